"""The role that sets a machine up for measuring and puts it back, on hosts that are files in a folder."""

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest

from lab.cli import main
from lab.core import ansible
from lab.core.ansible import PlaybookFailed
from lab.core.errors import HostFailed
from lab.core.paths import data_folder
from lab.guests import doctor
from lab.guests.doctor import Change, fix, restore, succeeded

from ..fakes.host import CPU, LAPTOP, plant

THP = "sys/kernel/mm/transparent_hugepage/enabled"


@pytest.fixture
def host(tmp_path: Path) -> Path:
    return plant(tmp_path / "host", LAPTOP)


def said(host: Path) -> dict[str, str]:
    files = [path for path in host.rglob("*") if path.is_file()]
    return {str(path.relative_to(host)): path.read_text().strip() for path in files}


def outcomes(changes: list[Change]) -> dict[str, str]:
    return {change.name: change.outcome for change in changes}


def test_what_is_set_is_put_back(host: Path, tmp_path: Path) -> None:
    before, state = said(host), tmp_path / "var" / "state.json"
    tried = fix(without_smt=True, check=True, root=host, state=state)
    assert outcomes(tried)["governor"] == "to set"
    assert said(host) == before
    assert not state.exists()

    done = fix(without_smt=True, check=False, root=host, state=state)
    assert outcomes(done) == {
        "governor": "set", "turbo": "set", "boost": "absent", "THP": "set", "KSM": "set", "swap": "set", "SMT": "set",
    }  # fmt: skip
    assert next(change.text for change in done if change.name == "governor") == "powersave -> performance (4 CPUs)"
    assert (said(host)[THP], said(host)[f"{CPU}/smt/control"]) == ("never", "off")
    assert succeeded(done)

    # A second time nothing is set, and what was there first is what is remembered.
    assert set(outcomes(fix(without_smt=True, check=False, root=host, state=state)).values()) == {"as is", "absent"}
    back = restore(check=False, root=host, state=state)
    assert {change.outcome for change in back} == {"set"}
    assert said(host) == {**before, THP: "always"}  # a file takes the word; the kernel would show the choice again
    assert not state.exists()
    assert restore(check=False, root=host, state=state) == []


def test_what_another_boot_had_is_not_put_back(host: Path, tmp_path: Path) -> None:
    state = tmp_path / "state.json"
    state.write_text(json.dumps({"schema": 1, "boot": "another", "before": {THP: "never"}}))
    restore(check=False, root=host, state=state)
    assert said(host)[THP] == "[always] madvise never"


# ---- the module that turns the switches


def turn(host: Path, path: str, value: str | None, *, dry: bool = False) -> dict[str, Any]:
    found = importlib.util.spec_from_file_location(
        "bench_knob", data_folder("ansible") / "roles/bench_host/library/bench_knob.py"
    )
    assert found
    assert found.loader
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    changes: dict[str, Any] = module._set(host, path, value, dry=dry)
    return changes


def test_a_switch_that_refuses_says_why(host: Path) -> None:
    (host / "sys/kernel/mm/ksm/run").unlink()
    (host / "sys/kernel/mm/ksm/run").mkdir()
    assert turn(host, "sys/kernel/mm/ksm/run", "0")["refused"] == "Is a directory"
    assert turn(host, "sys/gone", "0")["refused"] == "No such file or directory"
    (host / "dead").symlink_to("/dev/null")  # takes anything and says nothing
    assert turn(host, "dead", "0")["refused"] == "it says  still"


def test_what_became_of_switches_is_changes_in_a_line_each(host: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = doctor._File(path="sys/a", before="1", after="0", changed=True)
    bad = doctor._File(path="sys/b", before=None, after=None, changed=False, refused="Operation not permitted")
    monkeypatch.setattr(doctor, "_play", lambda *_, **__: {"turbo": [one, bad], "boost": []})
    done = fix(without_smt=False, check=False)
    assert [(change.outcome, change.text) for change in done] == [
        ("refused", "1 of 2: /sys/b: Operation not permitted"), ("absent", "this machine has no such switch"),
    ]  # fmt: skip
    assert not succeeded(done)
    monkeypatch.setattr(doctor, "_play", lambda *_, **__: {"turbo": [], "boost": []})
    assert not succeeded(fix(without_smt=False, check=False))


def test_without_the_right_to_it_says_what_it_needs(host: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PlaybookFailed("bench_host", "Set it", "sudo: a password is required")

    monkeypatch.setattr(ansible, "play", refuse)
    with pytest.raises(HostFailed, match="a password is required") as caught:
        fix(without_smt=False, check=False, root=host)
    assert "sudo" in str(caught.value.hint)


# ---- the command


@pytest.mark.parametrize(
    "words", [["--fix", "--restore"], ["--check"], ["--without-smt"], ["--restore", "--without-smt"]]
)
def test_options_that_make_no_sense_together_are_misuse(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["doctor", *words]) == 2
    assert "Error: --" in capsys.readouterr().err


def test_the_command_says_what_was_refused_and_exits_4(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    changes = [
        Change(name="THP", outcome="set", text="always -> never"),
        Change(name="turbo", outcome="refused", text="/sys/x: Operation not permitted"),
    ]
    monkeypatch.setattr(doctor, "fix", lambda **_: changes)
    assert main.run(["doctor", "--fix"]) == 4
    lines = capsys.readouterr().out.splitlines()
    assert lines[:2] == ["set      THP: always -> never", "refused  turbo: /sys/x: Operation not permitted"]
    assert any("live: governor" in line for line in lines)
    monkeypatch.setattr(doctor, "restore", lambda **_: [])
    assert main.run(["doctor", "--restore"]) == 0
    assert capsys.readouterr().out.startswith("nothing to put back\n")
