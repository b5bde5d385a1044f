"""Bad input and bad guests, through the installed command: one clear line, the right status, nothing lost."""

import shutil
import subprocess
import time
from contextlib import suppress
from pathlib import Path

import pytest

from .conftest import NEW, Lab

pytestmark = [pytest.mark.guest]

ONE = ("-w", "alloc-burst:layout-512k")


def _ab(base: str, test: str | None = None, *more: str) -> tuple[str, ...]:
    return ("ab", "--base", base, "--test", test or base, *ONE, "--seeds", "1", *more)


@pytest.mark.smoke
def test_a_guest_without_its_init_panics_and_is_named(lab: Lab) -> None:
    line = lab.refused(4, *_ab(NEW, f"{NEW}@cmdline.rdinit=/nowhere"))
    assert "test arm" in line
    assert "panic" in line.lower()
    assert "console.log" in line


@pytest.mark.smoke
def test_a_guest_that_hangs_is_stopped_and_named(lab: Lab) -> None:
    line = lab.refused(4, *_ab(NEW, None, "--guest-timeout", "1s", "--no-snapshot"))
    assert "hung" in line


GREEDY = """\
schema = 1
name = "mine"
story = "the shipped program, asked for too much"
memory_mb = 320
vcpus = 1
program = "/usr/bin/large-alloc"
argv = ["--case", "zero-600m-fresh"]
[[metric]]
name = "throughput"
unit = "op/s"
better = "higher"
primary = true
description = "buffers a second"
[[case]]
name = "only"
"""


def test_a_workload_that_ran_out_of_memory_is_named(lab: Lab, open_folder: Path) -> None:
    (open_folder / "workload.toml").write_text(GREEDY)
    line = lab.refused(4, "ab", "--base", NEW, "--test", NEW, "--seeds", "1", "-w", str(open_folder))
    assert "memory" in line


@pytest.mark.parametrize("case", ["marks", "code"])
def test_a_harmful_guest_costs_its_memory_and_no_more_than_256_mib(lab: Lab, open_folder: Path, case: str) -> None:
    harm = Path(shutil.copytree(Path(__file__).with_name("harm"), open_folder / "harm"))
    words_of_it = ("-w", f"{harm}:{case}", "--seeds", "1", "--jobs", "1", "--guest-timeout", "300s")
    said, seen = _watched(lab, open_folder / "result", "--base", NEW, "--test", f"{NEW}@thp=never", *words_of_it)
    assert "the guest's operations and code take more than 64 MiB to count" in said, said
    assert 0 < max(_anonymous_kib(status) for status in seen) < (512 + 256) << 10


def test_a_kernel_that_means_harm_is_confined_and_named(lab: Lab, open_folder: Path) -> None:
    """Without privileges and behind seccomp; it writes nowhere but into its guest's folder."""
    kernel, source = open_folder / "kernel" / "vmlinux", Path(__file__).with_name("hostile") / "kernel.S"
    kernel.parent.mkdir()
    link = ("-nostdlib", "-static", "-Wl,-Ttext=0x1000000", "-Wl,--build-id=none", "-Wl,-e,start")
    subprocess.run(["gcc", *link, "-o", kernel, source], check=True)
    kernel.chmod(0o644)
    arms = ("--base", f"file:{kernel}", "--test", f"file:{kernel}@thp=never")
    words_of_it = ("-w", "alloc-burst:layout-512k", "--seeds", "1", "--jobs", "1", "--guest-timeout", "10s")
    folder = open_folder / "result"
    said, seen = _watched(lab, folder, *arms, *words_of_it)
    # Its stores reach devices, the console and the power among them.
    ends = ("the guest hung", "QEMU died by signal", "reset the machine, or switched it off", "its init never reported")
    assert any(end in said for end in ends), said
    assert "(log: " in said and "lab doctor" not in said, said
    assert 0 < max(_anonymous_kib(status) for status in seen) < (640 + 256) << 10
    assert {(status["Seccomp"].strip(), status["NoNewPrivs"].strip()) for status in seen} == {("2", "1")}
    assert [path.name for path in kernel.parent.iterdir()] == ["vmlinux"]
    written = [path for path in folder.rglob("*") if path.is_file()]
    assert max(path.stat().st_size for path in written) <= 64 << 20


def _watched(lab: Lab, folder: Path, *words: str) -> tuple[str, list[dict[str, str]]]:
    """Run a comparison that fails; what it said, and /proc/PID/status of its guests' QEMU as they ran."""
    process = lab.start("ab", *words, "--result", str(folder))
    seen: list[dict[str, str]] = []
    while process.poll() is None:
        seen += _guests(str(folder))
        time.sleep(0.05)
    said = process.communicate()[1]
    assert process.returncode == 4, said
    assert _guests(str(folder)) == [], "a guest outlived the lab"
    return said, seen


def _guests(folder: str) -> list[dict[str, str]]:
    """/proc/PID/status of each QEMU whose files are in a folder, once it runs its guest."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if (path / "comm").read_text().startswith("qemu-system") and folder in (path / "cmdline").read_text():
                fields = dict(line.split(":", 1) for line in (path / "status").read_text().splitlines())
                if int(fields.get("Seccomp", "0")):
                    found.append(fields)
    return found


def _anonymous_kib(status: dict[str, str]) -> int:
    """The memory of a process without what it maps of files."""
    return int(status.get("RssAnon", "0 kB").split()[0])


def test_doctor_says_what_works_here(lab: Lab) -> None:
    findings = {found["name"]: found for found in lab.json("doctor")["findings"]}
    assert findings["exact mode"]["state"] == "ok"
    assert all(found["remedy"] for found in findings.values() if found["state"] != "ok")
