"""Recorded hosts: their setup, and what disturbed a round."""

from pathlib import Path

import pytest

from lab.core.errors import HostFailed
from lab.guests import host, topology
from lab.guests.host import Clocks, HostFact, Watch

from ..fakes import lscpu
from ..fakes.host import BENCH, CONTAINER, CPU, LAPTOP, plant


def facts(root: Path) -> dict[str, HostFact]:
    return {fact.name: fact for fact in host.survey([0, 1], root)}


NAMES = ["governor", "turbo", "SMT", "THP", "KSM", "swap", "clocksource", "steal", "load", "throttling", "other guests"]


def test_a_laptop_as_it_comes_is_limited_in_everything(tmp_path: Path) -> None:
    found = facts(plant(tmp_path, LAPTOP))
    assert {fact.name: fact.value for fact in found.values()} == {
        "governor": "powersave", "turbo": "on", "SMT": "on", "THP": "always", "KSM": "on", "swap": "on",
        "clocksource": "hpet", "steal": "3.00 %", "load": "1.50", "throttling": "26", "other guests": "1",
    }  # fmt: skip
    assert all(fact.state == "limited" and fact.remedy for fact in found.values())
    assert "2.0 GiB, 0.5 used" in found["swap"].text
    assert found["other guests"].text == "1 run here: qemu-system-x86 (77)"
    assert list(host.setup([*found.values()])) == NAMES[:7], "what stays until a user changes it"


def test_a_bench_host_is_fine_in_everything(tmp_path: Path) -> None:
    found = facts(plant(tmp_path, BENCH))
    assert {fact.state for fact in found.values()} == {"ok"}
    assert not any(fact.remedy for fact in found.values())


@pytest.mark.parametrize("files", [CONTAINER, {}])
def test_a_container_or_nothing_at_all_still_has_a_line_each(tmp_path: Path, files: dict[str, str]) -> None:
    found = facts(plant(tmp_path, files))
    assert list(found) == NAMES
    assert [found[name].value for name in ("governor", "turbo", "throttling")] == ["none", "unknown", "unknown"]


def test_huge_pages_set_aside_make_thp_no_matter(tmp_path: Path) -> None:
    pages = "sys/kernel/mm/hugepages/hugepages-2048kB"
    root = plant(tmp_path, {**LAPTOP, f"{pages}/nr_hugepages": "512", f"{pages}/free_hugepages": "500"})
    thp = facts(root)["THP"]
    assert thp.state == "ok" and "500 of 512" in thp.text


def test_swap_of_a_host_that_does_not_swap_is_fine(tmp_path: Path) -> None:
    root = plant(tmp_path, {**LAPTOP, "proc/sys/vm/swappiness": "0"})
    assert (facts(root)["swap"].state, facts(root)["swap"].value) == ("ok", "last resort")


def test_own_guests_are_not_other_guests(tmp_path: Path) -> None:
    root = plant(tmp_path, {**LAPTOP, "proc/80/stat": "80 (qemu-system-x86) S 78 77 77 0 -1 4194560 1 2 3"})
    assert [pid for pid, _ in host.guests(root, parent=1)] == []
    assert [pid for pid, _ in host.guests(root, parent=78)] == [77]
    assert [pid for pid, _ in host.guests(root, parent=99)] == [77, 80]


@pytest.mark.parametrize(
    ("text", "wanted"), [("0-3", [0, 1, 2, 3]), ("0", [0]), ("0-1,4,6-7", [0, 1, 4, 6, 7]), ("", []), ("a-b", [])]
)
def test_lists_of_cpus(text: str, wanted: list[int]) -> None:
    assert host.cpu_list(text) == wanted


# ---- rounds


class Day:
    """A host whose clocks and counters a test moves on."""

    def __init__(self, root: Path) -> None:
        self.root = plant(root, BENCH)
        self.now = Clocks(monotonic_s=100.0, boot_s=100.0, own_s=5.0)
        self.ticks = {"user": 0.0, "idle": 0.0, "steal": 0.0}
        self._write()

    def go(
        self, seconds: float, *, busy: float = 0.0, own: float = 0.0, steal: float = 0.0, asleep: float = 0.0
    ) -> None:
        """Let time pass on two CPUs: so many seconds of CPU time busy (of them ours) and stolen."""
        now, boot_s = self.now, self.now.boot_s + seconds + asleep
        self.now = Clocks(monotonic_s=now.monotonic_s + seconds, boot_s=boot_s, own_s=now.own_s + own)
        self.ticks["user"] += 100 * busy
        self.ticks["steal"] += 100 * steal
        self.ticks["idle"] += 100 * (2 * seconds - busy - steal)
        self._write()

    def _write(self) -> None:
        whole = [round(self.ticks[name]) for name in ("user", "idle", "steal")]
        half = [value // 2 for value in whole]
        rows = [f"{name} {u} 0 0 {i} 0 0 0 {s} {u} 0" for name, (u, i, s) in (("cpu", whole), ("cpu0", half))]
        plant(self.root, {"proc/stat": "\n".join([*rows, rows[1].replace("cpu0", "cpu1")])})


@pytest.fixture
def day(tmp_path: Path) -> Day:
    return Day(tmp_path)


@pytest.fixture
def watch(day: Day) -> Watch:
    return Watch([0, 1], day.root, clock=lambda: day.now)


def test_a_quiet_round_is_not_disturbed_by_its_own_work(day: Day, watch: Watch) -> None:
    watch.start()
    day.go(10, busy=18.0, own=17.5)
    seen = watch.stop()
    assert (seen.load, seen.steal, seen.throttled, seen.suspended_s) == (0.05, 0.0, 0, 0.0)
    assert not seen.disturbed


@pytest.mark.parametrize(("passing", "reason"), [
    ({"busy": 18.0, "own": 10.0}, "others kept 0.8 CPUs busy (limit 0.25)"),
    ({"steal": 0.4}, "steal 2.0 % (limit 0.5 %)"),
    ({"asleep": 3600.0}, "the host was suspended for 3600 s"),
])  # fmt: skip
def test_a_disturbed_round_says_by_what(day: Day, watch: Watch, passing: dict[str, float], reason: str) -> None:
    watch.start()
    day.go(10, **passing)
    assert watch.stop().reasons == [reason]


def test_throttling_disturbs_a_round(day: Day, watch: Watch) -> None:
    watch.start()
    day.go(10)
    plant(day.root, {f"{CPU}/cpu1/thermal_throttle/core_throttle_count": "2"})
    assert watch.stop().reasons == ["CPUs were slowed down for heat 2 times"]


def test_each_round_is_looked_at_on_its_own(day: Day, watch: Watch) -> None:
    watch.start()
    day.go(10, busy=18.0)
    assert watch.stop().disturbed
    with pytest.raises(ValueError, match="started before"):
        watch.stop()
    watch.start()
    day.go(10)
    assert not watch.stop().disturbed


# ---- memory


def test_memory_is_rounded_and_huge_pages_are_all_or_none(tmp_path: Path) -> None:
    assert host.round_memory(641, 1) == 642 and host.round_memory(640, 3) == 642
    layout = topology.plan(lscpu.host(lscpu.SERVER), vcpus=2, duet=True)
    for node, free in ((0, 320), (1, 319)):
        pages = f"sys/devices/system/node/node{node}/hugepages/hugepages-2048kB"
        plant(tmp_path, {f"{pages}/free_hugepages": f"{free}"})
    assert host.hugepage_kb(638, layout, tmp_path) == 2048
    assert host.hugepage_kb(640, layout, tmp_path) is None, "node 1 lacks one"
    alone = topology.plan(lscpu.host(lscpu.LAPTOP), vcpus=1)
    assert host.hugepage_kb(2, alone, tmp_path) is None, "no such folder"


def test_guests_that_do_not_fit_into_memory(tmp_path: Path) -> None:
    plant(tmp_path, {"proc/meminfo": "MemTotal: 9999999 kB\nMemAvailable: 1048576 kB"})
    host.require_memory(640, 1, tmp_path)
    with pytest.raises(HostFailed, match="2 guests at once need 1280 MiB of memory, and 1024 MiB are available"):
        host.require_memory(640, 2, tmp_path)
