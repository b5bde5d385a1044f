"""Two machines with one database share their events, and their acknowledgements hold on both."""

from __future__ import annotations

import json
import platform
from dataclasses import dataclass
from pathlib import Path

import pytest
import sqlalchemy as sa

from lab.cli import main
from lab.history import database, schema
from lab.history.database import opened
from lab.kernels import trees
from lab.nightly import record

from ..fakes.nights import FIRST, Nights


@dataclass
class Team:
    """Several machines, each with its own folders; `sit_at` chooses one."""

    nights: Nights
    folder: Path

    def sit_at(self, host: str) -> Nights:
        self.nights.monkeypatch.setenv("XDG_DATA_HOME", str(self.folder / host))
        self.nights.monkeypatch.setattr(platform, "node", lambda: host)
        if not (self.folder / host).exists():
            trees.add(f"file://{self.nights.top}", "linux")
        return self.nights


@pytest.fixture
def team(nights: Nights, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Team:
    monkeypatch.setenv(database.VARIABLE, f"sqlite:///{tmp_path}/team.sqlite")
    return Team(nights, tmp_path / "machines")


def regressed(team: Team, host: str) -> str:
    """Run two nights on a machine, the second with a regression; returns its id."""
    nights = team.sit_at(host)
    nights.today = FIRST
    nights.run()
    nights.add(50.0)
    nights.run()
    return nights.events()[0].id


def test_what_one_machine_told_of_is_acknowledged_on_another(team: Team) -> None:
    check_acknowledged_elsewhere(team)


def check_acknowledged_elsewhere(team: Team) -> None:
    """Check acknowledgements of another machine's event, with any database."""
    event, nights = regressed(team, "alpha"), team.sit_at("beta")
    assert main.run(["history", "ack", "plan.9.9"]) == 2
    assert "no open change" in nights.capsys.readouterr().err
    assert main.run(["nightly", "status", "plan", "--json"]) == 0
    status = json.loads(nights.capsys.readouterr().out)
    assert status["host"] == "alpha" and [one["id"] for one in status["open"]] == [event]
    assert main.run(["history", "ack", event, "--note", "the price"]) == 0, nights.capsys.readouterr().err
    assert main.run(["nightly", "status"]) == 0
    assert "(acknowledged: the price)" in nights.capsys.readouterr().out
    team.sit_at("alpha")
    assert main.run(["nightly", "status"]) == 0
    assert "(acknowledged: the price)" in nights.capsys.readouterr().out
    nights.add(50.0)
    assert nights.run().outcome == "green"


@pytest.mark.parametrize("host", ["alpha", "beta"])
def test_a_rebuild_loses_no_acknowledgement(team: Team, host: str) -> None:
    event, nights = regressed(team, "alpha"), team.sit_at("beta")
    assert main.run(["history", "ack", event]) == 0
    team.sit_at(host)
    assert main.run(["history", "rebuild"]) == 0
    with opened() as base, base.reading() as connection:
        assert connection.execute(sa.select(schema.acks.c.host, schema.acks.c.event)).all() == [("alpha", event)]
        assert len(connection.execute(sa.select(schema.nights)).all()) == 2
    Path(str(database.choose(None).database)).unlink()
    team.sit_at("beta")
    assert main.run(["history", "rebuild"]) == 0
    with opened() as base, base.reading() as connection:
        assert connection.execute(sa.select(schema.acks.c.event)).scalars().all() == [event], "from the file"
    assert not record.load_acks(), "another machine's event is none of this one's"
    nights.capsys.readouterr()


def test_what_was_told_by_one_machine_is_not_news_on_another(team: Team) -> None:
    nights = team.nights
    for host in ("beta", "alpha"):
        team.sit_at(host)
        nights.today = FIRST
        nights.run()
    culprit = nights.add(50.0)
    nights.run()
    nights = team.sit_at("beta")
    nights.today = FIRST.replace(day=2)
    assert nights.run().outcome == "no news"
    (told,) = nights.events()
    assert (told.kind, told.text) == ("known", "the culprit of plan.2.1 on alpha")
    assert told.culprit is not None and told.culprit.commit == culprit
    assert main.run(["nightly", "status", "plan"]) == 0
    assert "of alpha" not in nights.capsys.readouterr().out.splitlines()[0], "one's own plan comes first"


def test_events_of_several_machines_that_are_called_alike(team: Team) -> None:
    event = regressed(team, "alpha")
    nights = team.sit_at("gamma")
    nights.today = FIRST
    nights.run()
    nights.add(20.0)
    nights.run()
    team.sit_at("beta")
    assert main.run(["history", "ack", event]) == 2
    assert f"name one: alpha/{event}, gamma/{event}" in nights.capsys.readouterr().err
    assert main.run(["nightly", "status", "plan"]) == 2
    assert "name one: alpha/plan, gamma/plan" in nights.capsys.readouterr().err
    assert main.run(["history", "ack", f"gamma/{event}"]) == 0
    assert main.run(["nightly", "status", "alpha/plan"]) == 0
    assert "acknowledged:" not in nights.capsys.readouterr().out
    assert main.run(["nightly", "status", "gamma/plan"]) == 0
    assert "acknowledged:" in nights.capsys.readouterr().out
