"""A bundle of a measured result, run by somebody who has nothing else: another user, another home, no store."""

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from .conftest import NEW, OLD, Lab, elsewhere

pytestmark = [pytest.mark.guest]


@pytest.fixture(scope="module")
def measured(lab: Lab) -> Any:
    return lab.ab(OLD, NEW, "-w", "alloc-burst:layout-4632k", "--seeds", "2")


@pytest.fixture(scope="module")
def stranger(lab: Lab) -> Iterator[Lab]:
    """The installed lab as another user with an empty home."""
    with elsewhere(lab, "daemon") as made:
        yield made


@pytest.fixture(scope="module")
def folder(lab: Lab, stranger: Lab, measured: Any) -> Path:
    """The bundle as that user unpacked it."""
    archive = lab.home / "sent.tar.zst"
    done = lab.run("report", measured["result"], "--format", "bundle", "--output", str(archive))
    assert done.returncode == 0, done.stderr
    mine = stranger.home / "got.tar.zst"
    shutil.copy(archive, mine)
    archive.unlink()
    subprocess.run(stranger.as_user("tar", "-xf", str(mine), "-C", str(stranger.home)), check=True)
    (found,) = [path for path in stranger.home.iterdir() if path.is_dir()]
    return found


@pytest.mark.smoke
def test_a_stored_result_gives_every_number_again(lab: Lab, measured: Any) -> None:
    again = lab.json("replay", measured["result"])
    assert (again["guests"], again["differences"], again["environment"]) == (4, [], [])
    assert lab.json("report", measured["result"]) == measured


@pytest.mark.smoke
def test_another_user_gets_every_number_to_the_last_digit(stranger: Lab, folder: Path, measured: Any) -> None:
    again = stranger.json("replay", str(folder))
    assert (again["guests"], again["differences"], again["environment"]) == (4, [], [])
    expected = json.loads((folder / "expected.json").read_text())["guests"]
    (case,) = measured["cases"]
    assert [metric["name"] for metric in case["metrics"] if metric["primary"]] == ["cycles_per_op"]
    for metric in case["metrics"]:
        for arm in ("base", "test"):
            kept = [expected[f"alloc-burst-{arm}-{seed:04d}"]["numbers"]["layout-4632k"] for seed in (1, 2)]
            assert [numbers.get(metric["name"]) for numbers in kept] == metric[arm]
    assert not list(stranger.home.glob(".cache/*/kernels/*")), "nothing was built"


def test_a_plain_shell_gets_the_same_bytes(stranger: Lab, folder: Path, lab: Lab, measured: Any) -> None:
    words = stranger.as_user("env", "-i", "PATH=/usr/bin:/bin", f"OUT={stranger.home}/out", "sh", f"{folder}/run.sh")
    done = subprocess.run(words, cwd="/", capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    guests = next(lab.home.glob(f".local/share/*/results/{measured['result']}/guests"))
    for guest in sorted(guests.iterdir()):
        for path in guest.glob("*.jsonl"):  # the report, and of one seed what the cost model wrote
            assert (stranger.home / "out" / guest.name / path.name).read_bytes() == path.read_bytes()
    assert done.stdout.count(": OK\n") == 6


def test_the_plugin_of_the_bundle_can_be_compiled_by_hand(stranger: Lab, folder: Path) -> None:
    (line,) = [line.strip() for line in (folder / "README.txt").read_text().splitlines() if "cc -std" in line]
    plugin = f"{stranger.home}/mine.so"
    words = stranger.as_user("sh", "-c", line.replace("-o libcost.so", f"-o {plugin}"))
    subprocess.run(words, cwd=folder, check=True)
    name = "alloc-burst-test-0001"
    variables = ["PATH=/usr/bin:/bin", f"OUT={stranger.home}/by-hand", f"PLUGIN={plugin}"]
    words = stranger.as_user("env", "-i", *variables, "sh", f"{folder}/run.sh", name)
    done = subprocess.run(words, cwd="/", capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert f"{name}/costs.jsonl: OK" in done.stdout
