"""Nights whose guests are run by workers: the same bytes as without them, and the same news."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab.cli import main
from lab.kernels import trees
from lab.nightly import record

from ..cluster.test_client import documents, who_ran
from ..fakes import nights as fakenights
from ..fakes.cluster import Cluster, boot_really, running
from ..fakes.nights import FIRST, Nights

ID = re.compile(rb"\d{8}-\d{6}-[0-9a-f]{4}")
FINISHED = re.compile(rb'"finished": [^,\n]*')


@pytest.fixture
def nights(nights: Nights, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Nights:
    """Nights with a real way to guests of a QEMU that is a fake."""
    boot_really(tmp_path, monkeypatch)
    return nights


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with running(tmp_path_factory.mktemp("machines") / "cluster", 2) as made:
        yield made


def stored(data: Path) -> dict[str, bytes]:
    """Every record of nights and results but for times and names that are new each time."""
    results = [cleaned(place, data) for place in (data / "results").iterdir()]
    # By what is in them: those of one second are in no order.
    numbered = enumerate([*sorted(results, key=lambda one: sorted(one.items())), cleaned(data / "nightly", data)])
    return {f"{number} {name}": content for number, one in numbered for name, content in one.items()}


def cleaned(place: Path, data: Path) -> dict[str, bytes]:
    """The records below a folder without what is new each time."""
    found = documents(place).items()
    return {name: FINISHED.sub(b"", ID.sub(b"ID", content)).replace(bytes(data), b"DATA") for name, content in found}


@pytest.mark.long
def test_nights_by_two_workers_have_the_bytes_of_nights_without(
    nights: Nights, cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    places: dict[str, dict[str, bytes]] = {}
    tips = [nights.commits[0], nights.add(100.0), nights.add(60.0)]
    for name, more in (("alone", ""), ("spread", f'cluster = "{cluster.address}"\nshare = "{cluster.options[-1]}"\n')):
        monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / name))
        trees.add(f"file://{nights.top}", "linux")
        nights.write(f"bisect = false\n{more}")
        nights.today = FIRST
        for tip in tips:
            fakenights.git(nights.top, "reset", "-q", "--hard", tip)
            nights.run()
        assert [event.kind for event in nights.events()] == ["regression"]
        places[name] = stored(tmp_path / name / "kernel-ab-lab")
    assert {*who_ran(cluster)} == {"worker-1", "worker-2"}
    for name, content in places["alone"].items():
        assert places["spread"][name].decode() == content.decode()
    assert places["spread"].keys() == places["alone"].keys() and len(places["alone"]) > 20


def test_a_cluster_that_is_away_begins_no_night(
    nights: Nights, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from lab import cluster as lab_cluster

    monkeypatch.setattr(lab_cluster, "_TIMEOUT_S", 1)
    nights.run()
    nights.add(60.0)
    (tmp_path / "share").mkdir()
    words = ("--cluster", "tcp://127.0.0.1:9", "--share", str(tmp_path / "share"))
    assert main.run(["nightly", "run", "--plan", str(nights.plan), *words]) == 4
    assert "no cluster answers" in nights.capsys.readouterr().err
    assert len(record.load_all("plan")) == 1
    nights.today = FIRST
    nights.run(0, *words)
    assert "is done" in nights.said, "nobody is asked"
    assert nights.run().outcome == "regression"
