"""Guests: every failure is told from the others, and no guest outlives the lab."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from lab.core.errors import GuestFailed, HostFailed
from lab.guests import run as guest_run
from lab.guests.run import GuestExit, RunningGuests

from ..fakes.processes import lives, program, until
from .test_channel import HELLO, begin, end, out
from .test_channel import report as whole

CASE = "layout-4632k"
BEGIN, OUT, END = begin(CASE), out(CASE, '{"metrics": {"throughput": 12.5}}'), end(CASE)
BOOT = "[    0.000000] Linux version 6.99.0 (lab@lab) (gcc 12.2.0)\n"

PANIC = "[    0.531] Kernel panic - not syncing: Fatal exception in interrupt\n"
NULL = """\
[    1.20] BUG: kernel NULL pointer dereference, address: 0000000000000008
[    1.21] Oops: 0000 [#1] PREEMPT SMP NOPTI
"""
BUG_ON = "[    1.20] kernel BUG at mm/mmap.c:1700!\n"
GP = "[    1.20] general protection fault, probably for non-canonical address 0xdead000000000122: 0000 [#1] SMP\n"
LOCKUP = "[   28.0] watchdog: BUG: soft lockup - CPU#0 stuck for 22s! [alloc-burst:44]\n"
RCU = "[   21.0] rcu: INFO: rcu_preempt self-detected stall on CPU\n"
TASK = "[  122.0] INFO: task init:1 blocked for more than 120 seconds.\n"
OOM = "[    2.10] init invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=0\n"
OOM_KILL = f"{OOM}[    2.11] Out of memory: Killed process 44 (alloc-burst) total-vm:702000kB, anon-rss:601000kB\n"
OOM_PANIC = f"{OOM}[    2.12] Kernel panic - not syncing: System is deadlocked on memory\n"
OOM_PANIC_SET = f"{OOM}[    2.12] Kernel panic - not syncing: Out of memory: compulsory panic_on_oom is enabled\n"
TOLD = "qemu-system-x86_64: terminating on signal 15 from pid 7 (pkill)\n"
ASSERTION = "ERROR:../hw/acpi/x.c:7:f: assertion failed\n"
NO_MEMORY = """\
qemu-system-x86_64: cannot set up guest memory 'ram': Cannot allocate memory
qemu-system-x86_64: warning: TCG doesn't support requested feature

"""
NO_INIT = "[    0.4] Kernel panic - not syncing: No working init found.  Try passing init= option to kernel.\n"
NO_ROOT = "[    0.4] Kernel panic - not syncing: VFS: Unable to mount root fs on unknown-block(0,0)\n"


def lines(*rows: dict[str, object]) -> bytes:
    return whole(*rows, done=False)


GOOD = whole(HELLO, BEGIN, OUT, END)


def ended(
    tmp_path: Path, *, console: str | None = BOOT, report: bytes | None = GOOD, status: int = 0,
    timed_out: bool = False, stderr: str = "",
) -> GuestExit:  # fmt: skip
    if console is not None:
        (tmp_path / "console.log").write_text(console)
    if report is not None:
        (tmp_path / "report.jsonl").write_bytes(report)
    return GuestExit(
        status=status, timed_out=timed_out, stderr=stderr, wall_s=60.0,
        console=tmp_path / "console.log", report=tmp_path / "report.jsonl",
    )  # fmt: skip


@pytest.mark.parametrize("stderr", ["", TOLD])
def test_a_guest_that_delivers_though_qemu_was_told_to_end_then(tmp_path: Path, stderr: str) -> None:
    report = guest_run.read_report(ended(tmp_path, stderr=stderr))
    outcome = report.case("layout-4632k")
    assert report.complete and outcome is not None and outcome.stdout == [OUT["line"]]


def test_a_case_that_was_killed_for_memory_is_in_the_report(tmp_path: Path) -> None:
    # The guest lives on and reports it, with the other cases.
    report = whole(HELLO, BEGIN, end(CASE, status=137, signal=9, oom_kills=1))
    outcome = guest_run.read_report(ended(tmp_path, console=BOOT + OOM_KILL, report=report)).case("layout-4632k")
    assert outcome is not None and outcome.oom_kills == 1


@pytest.mark.parametrize(
    ("kind", "words", "left"),
    [
        ("panic", "panicked: Fatal exception in interrupt", {"console": BOOT + PANIC, "report": lines(HELLO)}),
        ("panic", "found no init that it can run: No working init", {"console": BOOT + NO_INIT, "report": b""}),
        ("panic", "found no init that it can run: VFS: Unable", {"console": BOOT + NO_ROOT, "report": None}),
        ("panic", "panicked", {"console": BOOT + NULL + PANIC, "report": lines(HELLO)}),
        ("panic", "panicked", {"console": BOOT + PANIC, "timed_out": True, "status": -9}),
        ("oom", "ran out of memory and panicked", {"console": BOOT + OOM_PANIC_SET, "report": lines(HELLO, BEGIN)}),
        ("oom", "ran out of memory and panicked", {"console": BOOT + OOM_PANIC, "report": lines(HELLO, BEGIN)}),
        ("oops", "oopsed: BUG: kernel NULL pointer", {"console": BOOT + NULL}),
        ("oops", "oopsed: kernel BUG at mm/mmap.c:1700", {"console": BOOT + BUG_ON}),
        ("oops", "complained: watchdog: BUG: soft lockup", {"console": BOOT + LOCKUP}),
        ("oops", "oopsed: general protection fault", {"console": BOOT + GP}),
        ("oops", "oopsed", {"console": BOOT + NULL, "timed_out": True, "status": -9, "report": lines(HELLO)}),
        ("hang", "hung; stopped after 60 s$", {"timed_out": True, "status": -9, "report": lines(HELLO, BEGIN)}),
        ("hang", "before it printed anything", {"timed_out": True, "status": -9, "console": "", "report": b""}),
        ("hang", "60 s: rcu: INFO: rcu_preempt", {"timed_out": True, "status": -9, "console": BOOT + RCU}),
        ("hang", "INFO: task init:1 blocked", {"timed_out": True, "status": -9, "console": BOOT + TASK}),
        ("hang", "soft lockup", {"timed_out": True, "status": -9, "console": BOOT + LOCKUP, "report": lines(HELLO)}),
        ("qemu-died", r"QEMU died by signal 11 \(SIGSEGV\) while it ran this kernel: no message",
         {"status": -11, "report": lines(HELLO)}),
        ("qemu-died",
         r"QEMU died by signal 6 \(SIGABRT\) while it ran this kernel: Bail out! ERROR:.*: assertion failed",
         {"status": -6, "report": None, "stderr": f"**\n{ASSERTION}Bail out! {ASSERTION}"}),
        ("qemu-died", "died with signal 9", {"status": -9, "report": lines(HELLO, BEGIN)}),
        ("qemu-died", "died with status 1: qemu-system-x86_64: cannot set up guest memory",
         {"status": 1, "console": None, "report": None, "stderr": NO_MEMORY}),
        ("no-report", "init gave up: no job; no modules", {"report": whole(
            HELLO, {"t": "fatal", "error": "no job"}, {"t": "fatal", "error": "no modules"}
        )}),
        ("qemu-died", r"QEMU was told to end before its guest did: .* signal 15 from pid 7 \(pkill\)",
         {"report": lines(HELLO, BEGIN), "stderr": TOLD}),
        ("no-report", "reset the machine, or switched it off, before it printed", {"console": "", "report": b""}),
        ("no-report", "its init never reported", {"report": b""}),
        ("no-report", r"in the middle of its report \(at layout-4632k\)", {"report": lines(HELLO, BEGIN, OUT)}),
        ("no-report", r"in the middle of its report \(at the first case\)", {"report": lines(HELLO)}),
        ("no-report", "in the middle of its report", {"report": GOOD[:-3]}),
        ("workload", "^the guest's operations and code take more than 64 MiB",
         {"status": 1, "stderr": "cost plugin: the guest's operations and code take more than 64 MiB to count\n"}),
        ("malformed", "line 2 of the guest's report cannot be read", {"report": lines(HELLO) + b"\x00\xff\n" + GOOD}),
        ("refused", "refused the setting sysctl.vm.nothing=1: No such file", {"report": whole(
            HELLO, {"t": "refused", "name": "sysctl.vm.nothing", "value": "1", "error": "No such file"}, BEGIN, END
        )}),
    ],
)  # fmt: skip
def test_failures(tmp_path: Path, kind: str, words: str, left: dict[str, object]) -> None:
    with pytest.raises(GuestFailed, match=words) as caught:
        guest_run.read_report(ended(tmp_path, **left))  # type: ignore[arg-type]
    assert (caught.value.kind, caught.value.exit_status) == (kind, 4)
    assert kind == "malformed" or caught.value.log is not None


def test_a_sysctl_that_is_refused_is_spelled_right(tmp_path: Path) -> None:
    refused = {"t": "refused", "name": "sysctl.vm.swapines", "value": "1", "error": "No such file"}
    with pytest.raises(GuestFailed) as caught:
        guest_run.read_report(ended(tmp_path, report=whole(HELLO, refused, BEGIN, END)))
    assert "did you mean sysctl.vm.swappiness" in (caught.value.hint or "")


def test_flags_that_no_cpu_has_are_qemus(tmp_path: Path) -> None:
    flags = "[ 1.0] RSP: 0018:ffffc90000617a48 EFLAGS: %s\n"
    for word, wrong in (("00000246", False), ("003fffff", False), ("00400246", True), ("052476aa", True)):
        with pytest.raises(GuestFailed) as caught:
            guest_run.read_report(ended(tmp_path, console=BOOT + flags % word + PANIC, report=b""))
        assert caught.value.wrong_flags is wrong
        assert ("cmpxchg16b" in (caught.value.hint or "")) is wrong


# --- booting, with programs that stand in for QEMU


def qemu(tmp_path: Path, text: str) -> list[str]:
    return [str(program(tmp_path / "qemu", text))]


LASTING = "echo $$ > pid.new; mv pid.new pid; exec sleep 600"


def test_a_guest_that_ends_by_itself(tmp_path: Path) -> None:
    argv = qemu(tmp_path, "echo booted > console.log; printf '{\"t\"' > report.jsonl; echo warned >&2; exit 3")
    left = guest_run.boot(argv, folder=tmp_path, timeout_s=20)
    assert (left.status, left.timed_out, left.stderr) == (3, False, "warned\n")
    assert left.console.read_text() == "booted\n" and left.report.read_bytes() == b'{"t"'
    assert (tmp_path / "qemu.log").read_text() == "warned\n"
    assert left.wall_s > 0


def test_a_guest_that_takes_too_long_is_killed(tmp_path: Path) -> None:
    argv = qemu(tmp_path, "trap '' TERM INT; echo $$ > pid; exec sleep 600")
    left = guest_run.boot(argv, folder=tmp_path, timeout_s=0.3)
    assert left.timed_out and left.status == -signal.SIGKILL
    assert 0.3 <= left.wall_s < 600
    until(lambda: not lives(int((tmp_path / "pid").read_text())))


def test_a_guest_that_oopsed_ends_once_it_is_silent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guest_run, "LAST_WORDS_S", 2.0)
    talk = "echo 'Oops: double fault: 0000' >console.log"
    talk += "; for n in 1 2 3 4 5; do printf ' ' >>report.jsonl; sleep 0.6; done"
    left = guest_run.boot(["sh", "-c", f"{talk}; sleep 60"], folder=tmp_path, timeout_s=60)
    assert left.timed_out and left.report.read_text() == " " * 5
    with pytest.raises(GuestFailed, match=r"oopsed: Oops: double fault"):
        guest_run.read_report(left)


def test_a_guest_that_waits_for_a_processor_does_not_hang(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guest_run, "_queued_s", lambda process: 60.0)
    left = guest_run.boot(qemu(tmp_path, "sleep 0.5"), folder=tmp_path, timeout_s=0.2)
    assert (left.status, left.timed_out) == (0, False) and left.wall_s >= 0.5


def test_a_guest_that_hangs_beside_other_work_is_ended_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guest_run, "_queued_s", lambda process: 60.0)
    left = guest_run.boot(qemu(tmp_path, "exec sleep 600"), folder=tmp_path, timeout_s=0.3)
    assert left.timed_out and (1 + guest_run.QUEUED_MAX) * 0.3 <= left.wall_s < 600


@pytest.mark.skipif(not Path("/proc/self/schedstat").exists(), reason="the host's kernel does not count it")
def test_the_time_that_a_process_waits_for_a_processor_is_counted() -> None:
    cpu = str(min(os.sched_getaffinity(0)))
    both = [subprocess.Popen(["taskset", "-c", cpu, "sh", "-c", "while :; do :; done"]) for _ in range(2)]
    try:
        while sum(guest_run._queued_s(one.pid) for one in both) < 0.05:
            time.sleep(0.01)
    finally:
        for one in both:
            one.kill()
            one.wait()


def test_a_guest_that_writes_without_end_is_ended(tmp_path: Path) -> None:
    # The limit is set once it runs: QEMU writes nothing for longer than that.
    argv = qemu(tmp_path, 'while [ "$(ulimit -f)" = unlimited ]; do :; done; exec yes >console.log')
    left = guest_run.boot(argv, folder=tmp_path, timeout_s=60, file_max=1 << 20)
    assert (left.status, left.timed_out) == (-signal.SIGXFSZ, False) and left.console.stat().st_size == 1 << 20
    with pytest.raises(GuestFailed, match="wrote more than 64 MiB") as caught:
        guest_run.read_report(left)
    assert caught.value.kind == "workload"


@pytest.mark.parametrize(
    ("name", "most"), [("report.jsonl", guest_run.REPORT_MAX), ("console.log", guest_run.FILE_MAX)]
)
def test_a_file_that_is_larger_than_one_may_be_is_not_read(tmp_path: Path, name: str, most: int) -> None:
    argv = qemu(tmp_path, f"truncate --size {most + 1} {name}")
    left = guest_run.boot(argv, folder=tmp_path, timeout_s=60)
    with pytest.raises(GuestFailed, match=f"wrote more than {most >> 20} MiB") as caught:
        guest_run.read_report(left)
    assert caught.value.kind == "workload"


def test_a_program_that_cannot_be_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    left = guest_run.boot([str(tmp_path / "nothing")], folder=tmp_path, timeout_s=5)
    with pytest.raises(GuestFailed, match="QEMU died with status 127"):
        guest_run.read_report(left)
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(HostFailed, match="cannot start"):
        guest_run.boot(["/bin/true"], folder=tmp_path, timeout_s=5)


def test_a_guest_does_not_outlive_a_lab_that_is_killed(tmp_path: Path) -> None:
    argv = qemu(tmp_path, LASTING)
    boots = (
        "import sys; from pathlib import Path; from lab.guests import run\n"
        "run.boot(sys.argv[2:], folder=Path(sys.argv[1]), timeout_s=600)\n"
    )
    lab = subprocess.Popen([sys.executable, "-c", boots, str(tmp_path), *argv])
    until((tmp_path / "pid").exists)
    lab.kill()
    lab.wait()
    until(lambda: not lives(int((tmp_path / "pid").read_text())))


def test_stop_all_kills_those_that_run_and_those_that_come_later(tmp_path: Path) -> None:
    running, ends = RunningGuests(), {}
    folders = [tmp_path / name for name in ("one", "two")]

    def run(folder: Path) -> None:
        folder.mkdir()
        ends[folder.name] = guest_run.boot(qemu(folder, LASTING), folder=folder, timeout_s=8, running=running)

    threads = [threading.Thread(target=run, args=(folder,)) for folder in folders]
    for thread in threads:
        thread.start()
    for folder in folders:
        until((folder / "pid").exists)
    running.stop_all()
    for thread in threads:
        thread.join(timeout=5)
    run(tmp_path / "three")
    assert [(left.status, left.timed_out) for left in ends.values()] == [(-signal.SIGKILL, False)] * 3


@pytest.mark.usefixtures("interruptible")
def test_an_interrupt_kills_the_guest(tmp_path: Path) -> None:
    argv = qemu(tmp_path, LASTING)

    def interrupt() -> None:
        until((tmp_path / "pid").exists)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=interrupt).start()
    with pytest.raises(KeyboardInterrupt):
        guest_run.boot(argv, folder=tmp_path, timeout_s=30)
    until(lambda: not lives(int((tmp_path / "pid").read_text())))


def test_a_console_that_is_silent_for_too_long_ends_the_guest(tmp_path: Path) -> None:
    talk = f"for i in 1 2 3 4 5 6; do echo $i >>{guest_run.CONSOLE}; sleep 0.2; done"
    ended = guest_run.boot(["sh", "-c", talk], folder=tmp_path, timeout_s=60, silence_s=1)
    assert not ended.timed_out and ended.console_text.endswith("6\n")
    ended = guest_run.boot(["sh", "-c", f"{talk}; sleep 60"], folder=tmp_path, timeout_s=60, silence_s=1)
    assert ended.timed_out
