"""One run, with a program that stands in for QEMU: what goes into the guest, and what must come out."""

import dataclasses
import json
import re
from pathlib import Path
from types import SimpleNamespace

import pytest

from lab.compare import runs
from lab.compare.runs import Bench, GuestRun, Run
from lab.core import records
from lab.core.errors import DiskFull, GuestFailed
from lab.guests.exact import Qemu
from lab.guests.plugin import Marks
from lab.guests.run import Arm, RunningGuests
from lab.kernels import architecture
from lab.kernels.architecture import MachineType
from lab.workloads import selection
from lab.workloads.spec import Case

from ..core.test_cpio import members
from ..fakes.build import own_folders
from ..fakes.guest import FakeInstrument, kernel, write_workload

HELLO = {"t": "hello", "release": "6.99.0", "clocksource": "tsc", "mem_kb": 600000, "cmdline": "quiet", "cpus": 1}
END = {"t": "end", "status": 0, "signal": 0, "oom_kills": 0, "now_ns": 2}


def case_rows(name: str, *lines: str, **end: object) -> list[dict[str, object]]:
    return [
        {"t": "begin", "case": name, "now_ns": 1},
        *({"t": "out", "case": name, "line": line} for line in lines),
        {**END, "case": name, **end},
    ]


SMALL = case_rows("small", '{"metrics": {"throughput": 3.5, "faults": 7}}')
LARGE = case_rows("large", "some talk", '{"metrics": {"throughput": 4, "faults": 0}}')


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    own_folders(monkeypatch, tmp_path)
    (tmp_path / "slice.cpio").write_bytes(b"SLICE" * 4)
    return Bench(
        qemu=Qemu(path=str(tmp_path / "qemu"), version="7.2", numbers=(7, 2)), machine=MachineType.Q35,
        workload=selection.load(write_workload(tmp_path / "mine")), packed_root=tmp_path / "slice.cpio",
        timeout_s=20, folder=tmp_path / "result", fingerprint="print",
    )  # fmt: skip


def arm(**settings: str) -> Arm:
    return Arm(name="base", kernel=kernel("base"), settings=settings)


def measure(bench: Bench, *rows: dict[str, object], script: str = "", which: Arm | None = None, seed: int = 3) -> Run:
    """A run whose guest keeps a copy of its initrd, and reports the given rows."""
    (bench.folder / "runs").mkdir(parents=True, exist_ok=True)
    report = [HELLO, *rows, {"t": "done", "lines": len(rows) + 1}]
    (bench.folder.parent / "report").write_text("".join(json.dumps(row) + "\n" for row in report))
    program = Path(bench.qemu.path)
    program.write_text(
        "#!/bin/sh\nprintf '%s\\n' \"$@\" > argv; cp initrd.cpio copy; echo Linux > console.log\n"
        f"cp {bench.folder.parent}/report report.jsonl\n{script}\n"
    )
    program.chmod(0o755)
    guest = GuestRun(bench=bench, arm=which or arm(), seed=seed, cases=bench.workload.cases)
    return runs.measure(guest, RunningGuests())


def guest_folder(bench: Bench, seed: int = 3) -> Path:
    return bench.folder / "guests" / f"mine-base-{seed:04d}"


def test_a_run_is_recorded(bench: Bench) -> None:
    run = measure(bench, *SMALL, *LARGE)
    assert run.metrics("small") == {"throughput": 3.5, "faults": 7.0}
    assert run.metrics("large") == {"throughput": 4.0, "faults": 0.0}
    assert run.metrics("unheard-of") == {}
    path = runs.run_path(bench.folder, "mine-base-0003")
    assert path.name == "mine-base-0003.json"
    assert records.load(path, Run) == run
    assert (run.arm, run.seed, run.kernel, run.fingerprint) == ("base", 3, "key of base", "print")
    assert run.argv[0] == bench.qemu.path
    assert (guest_folder(bench) / "console.log").exists()
    assert not (guest_folder(bench) / "initrd.cpio").exists(), "it is large, and can be made again"


def test_what_the_guest_is_given(bench: Bench) -> None:
    which = arm(**{"thp": "never", "sysctl.vm.swappiness": "1", "cmdline.x": "$(touch canary)", "cmdline.bare": ""})
    run = measure(bench, *SMALL, *LARGE, which=which)
    archive = (guest_folder(bench) / "copy").read_bytes()
    assert archive.startswith(b"SLICE" * 4)
    assert len(archive) % 4096 == 4, "the rest of the last page is where newer firmware keeps its tables"
    (name, _, job), (other, _, cases), _ = members(archive[20:].rstrip(b"\0") + b"\0")
    assert (name, other) == ("job", "cases") and len(job) == len(cases) == 16 << 10
    text, commands = job.rstrip(b"\0").decode(), cases.rstrip(b"\0").decode()
    assert commands.startswith("seed\t3\n") and "seed" not in text, "a guest is made ready alike for every seed"
    assert "set\tthp\tnever\n" in text and "set\tsysctl.vm.swappiness\t1\n" in text
    assert "set\tsysctl.vm.compaction_proactiveness\t0\n" in text, "the machine's, where the arm says nothing"
    assert "cmdline" not in text
    assert "case\tlarge\t/usr/bin/mine\t--case\tlarge\n" in commands
    words = run.argv[run.argv.index("-append") + 1]
    assert words.endswith(" x=$(touch canary) bare")
    assert not list(bench.folder.rglob("canary"))


def test_the_job_never_moves_what_lies_behind_it(bench: Bench) -> None:
    sizes = set()
    for seed in (1, 9999):
        measure(bench, *SMALL, *LARGE, which=arm(thp="never") if seed > 1 else arm(), seed=seed)
        sizes.add((guest_folder(bench, seed) / "copy").stat().st_size)
    assert len(sizes) == 1


def test_the_order_of_cases_depends_on_the_seed_alone() -> None:
    cases = [Case(name=f"case-{i}") for i in range(6)]
    orders = {tuple(case.name for case in runs.shuffled(cases, seed)) for seed in range(20)}
    assert len(orders) > 10
    assert runs.shuffled(cases, 7) == runs.shuffled(cases[::-1], 7)
    assert sorted(case.name for case in runs.shuffled(cases, 7)) == [case.name for case in cases]


@pytest.mark.parametrize(
    ("rows", "kind", "words"),
    [
        ([*SMALL, LARGE[0]], "no-report", "mine:large never ended"),
        ([*SMALL, *case_rows("large", oom_kills=1, status=137, signal=9)], "oom", r"ran out of memory \(512 MiB\)"),
        ([*SMALL, LARGE[0], {"t": "err", "case": "large", "line": "mmap: no"}, {**END, "case": "large", "status": 1}],
         "workload", "exited with status 1: mmap: no"),
        ([*SMALL, *case_rows("large", '{"metrics": {"throughput": "many"}}')], "malformed", "not a number"),
    ],
)  # fmt: skip
def test_a_case_that_fails_costs_itself(bench: Bench, rows: list[dict[str, object]], kind: str, words: str) -> None:
    run = measure(bench, *rows)
    assert run.metrics("small") and not run.metrics("large")
    small, large = (runs.failure_of(bench, run, Case(name=name)) for name in ("small", "large"))
    assert small is None and large is not None
    assert (large.kind, large.case) == (kind, "large")
    assert re.search(words, large.message) and large.message.startswith("base arm, seed 3: mine:large")
    assert large.log is not None and large.log.parent == guest_folder(bench)
    assert not (guest_folder(bench) / "initrd.cpio").exists()


def test_a_case_that_runs_several_times_has_the_mean_of_its_metrics(bench: Bench) -> None:
    again = case_rows("large", '{"metrics": {"throughput": 8, "faults": 1}}')
    run = measure(bench, *SMALL, *LARGE, *again)
    assert run.metrics("large") == {"throughput": 6.0, "faults": 0.5}
    assert run.metrics("small") == {"throughput": 3.5, "faults": 7.0}
    failed = measure(bench, *SMALL, *case_rows("large", status=1), *LARGE)
    assert not failed.metrics("large"), "once is enough"
    assert runs.failure_of(bench, failed, Case(name="large")) is not None


def test_the_job_has_a_line_for_every_window(bench: Bench) -> None:
    guest = GuestRun(bench=bench, arm=arm(), seed=3, cases=bench.workload.cases, windows={"large": 3})
    lines = [
        line.split("\t")[1] for line in guest.job().decode(errors="replace").splitlines() if line.startswith("case\t")
    ]
    assert sorted(lines) == ["large"] * 3 + ["small"]
    assert "".join(name[0] for name in lines) in ("llls", "slll"), "one after the other"


def test_only_a_modelled_program_without_marks_runs_several_times(bench: Bench, tmp_path: Path) -> None:
    assert bench.windows == 1
    modelled = dataclasses.replace(bench, instrument=FakeInstrument())
    assert modelled.windows == 3
    bench.packed_root.write_bytes(b"root" + architecture.load().mark.numbered(Marks.WINDOW_BEGIN) + b"more")
    assert modelled.windows == 1


FLAGS = "echo 'EFLAGS: 050ee67a Kernel panic - not syncing: Fatal exception in interrupt' >> console.log"


def test_a_guest_that_qemus_flags_end_boots_again_a_little_longer(bench: Bench) -> None:
    turns = bench.folder.parent / "turns"
    script = f"echo >> {turns}; [ $(wc -l < {turns}) -gt 2 ] || {{ {FLAGS}; rm report.jsonl; }}"
    run = measure(bench, *SMALL, *LARGE, script=script)
    assert run.turn == 2 and run.metrics("small")["throughput"] == 3.5
    words = next(word for word in run.argv if "lab.turn" in word).split()
    assert "lab.turn=++" in words
    assert "lab.turn=++" in (guest_folder(bench) / "argv").read_text().split()
    assert "EFLAGS" not in (guest_folder(bench) / "console.log").read_text()


def test_a_guest_that_qemus_flags_end_each_time_has_failed(bench: Bench) -> None:
    turns = bench.folder.parent / "turns"
    with pytest.raises(GuestFailed, match=r"the guest's kernel panicked") as caught:
        measure(bench, *SMALL, script=f"echo >> {turns}; {FLAGS}")
    assert caught.value.hint and "--qemu" in caught.value.hint
    assert len(turns.read_text().splitlines()) == runs.TURNS
    turns.unlink()
    with pytest.raises(GuestFailed):
        measure(bench, *SMALL, script=f"echo >> {turns}; echo 'Kernel panic - not syncing: boom' >> console.log")
    assert len(turns.read_text().splitlines()) == 1


@pytest.mark.parametrize(("free", "boots"), [([63], False), ([999, 63], True)])
def test_a_full_disk_is_the_hosts(bench: Bench, monkeypatch: pytest.MonkeyPatch, free: list[int], boots: bool) -> None:
    """free: MiB before and after the guest, whose report is cut short."""
    left = iter(free)
    monkeypatch.setattr("shutil.disk_usage", lambda folder: SimpleNamespace(free=next(left) << 20))
    with pytest.raises(DiskFull, match="63 MiB free, a guest needs 64 MiB"):
        measure(bench, *SMALL, *LARGE, script="sed -i '$d' report.jsonl")
    assert not list((bench.folder / "runs").iterdir())
    assert (guest_folder(bench) / "argv").exists() == boots


def test_what_an_earlier_guest_left_is_not_taken_for_this_ones(bench: Bench) -> None:
    measure(bench, *SMALL, *LARGE)
    Path(bench.qemu.path).write_text("#!/bin/sh\necho Linux > console.log\n")
    with pytest.raises(GuestFailed, match="its init never reported"):
        runs.measure(GuestRun(bench=bench, arm=arm(), seed=3, cases=bench.workload.cases), RunningGuests())
