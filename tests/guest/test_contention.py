"""vCPUs that contend, in real guests: the planted cases, the same bytes twice, and lines by name."""

import re
from pathlib import Path

import pytest

from lab.guests.plugin import COSTS

from .conftest import NEW, Lab

pytestmark = [pytest.mark.guest, pytest.mark.usefixtures("qemu_of_turns")]

CASES = "contention:user-near,user-apart,getppid,fstat,epoll-send"


def test_planted_false_sharing_and_its_controls_the_same_twice(lab: Lab, open_folder: Path) -> None:
    folder = open_folder / "result"
    document = lab.ab(NEW, NEW, "-w", CASES, "--cpus", "1,4", "--seeds", "1", "--result", str(folder))
    cases = {f"{case['workload']}:{case['case']}": case for case in document["cases"]}
    values = {name: {metric["name"]: metric["base"][0] for metric in case["metrics"]} for name, case in cases.items()}
    near, apart = values["contention@4:user-near"], values["contention@4:user-apart"]
    assert near["moved_lines"] == pytest.approx(2, abs=0.1) and near["false_moves"] == pytest.approx(2, abs=0.1)
    assert near["cycles_per_op"] > 20 * apart["cycles_per_op"]
    assert apart["moved_lines"] == 0
    assert values["contention@4:getppid"]["moved_lines"] < 0.1
    fstat = values["contention@4:fstat"]
    assert fstat["moved_lines"] > 2 and fstat["queue_cycles"] > 0
    assert all(values[f"contention@1:{case}"]["moved_lines"] == 0 for case in ("user-near", "getppid", "fstat"))
    assert fstat["speedup"] == pytest.approx(
        4 * values["contention@1:fstat"]["cycles_per_op"] / fstat["cycles_per_op"], rel=1e-6
    )
    for vcpus in (1, 4):
        base, test = (folder / "guests" / f"contention@{vcpus}-{arm}-0001" / COSTS for arm in ("base", "test"))
        assert base.read_bytes() == test.read_bytes(), "one kernel, one seed: the same bytes"
    for case, expected in (("fstat", r"file\."), ("epoll-send", r".*\(do_epoll_create\)\+")):
        why = lab.json("explain", str(folder), "--case", f"contention@4:{case}")
        places = [line["place"] for line in why["lines"]]
        assert any(re.match(expected, place) for place in places), places
