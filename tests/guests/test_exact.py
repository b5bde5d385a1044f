"""Exact mode's guest: its command line makes it repeatable, and its fingerprint covers the command line."""

import itertools
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest

from lab.core.errors import HostFailed, UserError
from lab.guests import exact, hardware
from lab.guests.exact import ExactGuest, Qemu
from lab.guests.plugin import Instrument, Model
from lab.kernels import architecture
from lab.kernels.architecture import MachineType

from ..fakes.guest import QEMU
from ..fakes.processes import program

sandbox = exact.sandbox  # which no other test calls


def guest(**facts: Any) -> ExactGuest:
    defaults = {
        "qemu": QEMU, "machine": MachineType.MICROVM, "vcpus": 2, "memory_mb": 640,
        "cmdline": ["console=ttyS0", "quiet"],
    }  # fmt: skip
    return ExactGuest(**{**defaults, **facts})


def argv(machine: MachineType = MachineType.MICROVM, folder: str = "/r") -> list[str]:
    return guest(machine=machine).argv(kernel=Path("/k/vmlinux"), folder=Path(folder), root=Path("/slice.cpio"))


def after(words: list[str], option: str) -> list[str]:
    return [value for name, value in itertools.pairwise(words) if name == option]


@pytest.mark.parametrize("machine", list(architecture.load().boards))
def test_nothing_outside_can_disturb_a_guest(machine: MachineType) -> None:
    words = argv(machine)
    assert after(words, "-accel") == ["tcg,thread=single,tb-size=96"]
    assert after(words, "-icount") == [f"shift={exact.exact_machine().shift},sleep=off"]
    (rtc,) = after(words, "-rtc")
    assert rtc.startswith("base=20") and rtc.endswith(",clock=vm")
    (cpu,) = after(words, "-cpu")
    assert cpu.split(",")[0] in ("Nehalem", "Westmere"), "a model without rdrand and rdseed"
    assert "+rdrand" not in cpu and "+rdseed" not in cpu and "+erms" not in cpu
    assert {"-nodefaults", "-no-user-config", "-no-reboot"} <= set(words)
    assert after(words, "-display") == ["none"]
    assert after(words, "-device") == ["isa-serial,chardev=console", "isa-serial,chardev=report"]
    for forbidden in ("kvm", "-drive", "-netdev", "-virtfs", "-nic", "virtio", "-monitor", "-hda", "rng"):
        assert not [word for word in words if forbidden in word], forbidden


def test_an_arm64_guest_has_ports_of_its_own_and_numbers_from_a_fixed_seed() -> None:
    words = guest(machine=MachineType.VIRT, parameters=exact.exact_machine("arm64")).argv(
        kernel=Path("/k/Image"), folder=Path("/r"), root=Path("/slice.cpio")
    )
    assert after(words, "-machine") == ["virt,gic-version=3,memory-backend=ram"]
    assert after(words, "-cpu") == ["cortex-a76"] and after(words, "-seed") == ["1"]
    assert after(words, "-serial") == ["chardev:console"] and after(words, "-device") == ["pci-serial,chardev=report"]
    assert after(words, "-accel") == ["tcg,thread=single,tb-size=96"] and after(words, "-rtc")[0].endswith(",clock=vm")


def test_a_comma_in_a_path_stays_in_the_path() -> None:
    assert after(argv(folder="/a,b"), "-chardev")[0] == "file,id=console,path=/a,,b/console.log"


def test_the_kernels_own_randomness_is_off_and_words_of_the_arms_own_win() -> None:
    words = exact.cmdline(["mine=1"])
    assert {"nokaslr", "norandmaps", "random.trust_cpu=off", "random.trust_bootloader=off"} <= set(words)
    assert {"console=ttyS0", "panic=-1", "reboot=t"} <= set(words)
    assert words[-1] == "mine=1", "the arm's own come last, so that they win"
    words = exact.cmdline(["mitigations=auto", "mine"])
    assert words[-2:] == ["mitigations=auto", "mine"]
    assert "mitigations=off" not in words and "nokaslr" in words


def test_parameters_make_up_for_the_cpu_where_mitigations_are_on() -> None:
    machine = hardware.load("sapphire-rapids")
    off = exact.cmdline([])
    assert exact.believing(off, machine) == off
    assert exact.believing(exact.cmdline(["mitigations=auto"]), None) == exact.cmdline(["mitigations=auto"])
    words = exact.believing(exact.cmdline(["mitigations=auto,nosmt", "mds=full"]), machine)
    assert {"nopti", "mitigations=auto,nosmt", "mds=full"} <= set(words)
    assert "mds=off" not in words, "a parameter of the user's goes before"


def fingerprint(
    settings: dict[str, str] | None = None, env: dict[str, str] | None = None, initrd_sha256: str = "0", **facts: Any
) -> str:
    return guest(**facts).fingerprint(settings=settings or {}, env=env or {}, initrd_sha256=initrd_sha256)


def test_equal_surroundings_have_equal_fingerprints() -> None:
    assert fingerprint() == fingerprint(qemu=msgspec.structs.replace(QEMU, path="/opt/qemu"))
    assert len(fingerprint()) == 16


OTHERS: dict[str, dict[str, Any]] = {
    "qemu": {"qemu": msgspec.structs.replace(QEMU, version="10.0.3")},
    "board": {"machine": MachineType.Q35},
    "boot": {"machine": MachineType.Q35_PVH},
    "vcpus": {"vcpus": 3},
    "memory": {"memory_mb": 641},
    "cmdline": {"cmdline": ["console=ttyS0"]},
    "settings": {"settings": {"thp": "always"}},
    "env": {"env": {"A": "1"}},
    "initrd": {"initrd_sha256": "1"},
    **{
        name: {"parameters": msgspec.structs.replace(exact.exact_machine(), **{name: value})}
        for name, value in {"cpu": "Westmere", "shift": 5, "rtc": "2025-01-01"}.items()
    },
}


def test_every_parameter_is_in_the_fingerprint() -> None:
    fingerprints = [fingerprint(**other) for other in OTHERS.values()]
    assert len({fingerprint(), *fingerprints}) == 1 + len(OTHERS)


def test_every_word_of_the_command_line_is_in_the_fingerprint(monkeypatch: pytest.MonkeyPatch) -> None:
    """A word without a path is made from the table of options alone, and any other table gives another fingerprint."""
    paths = [word for word in argv() if "/" in word]
    assert paths == [
        "/usr/bin/qemu-system-x86_64", "file,id=console,path=/r/console.log", "file,id=report,path=/r/report.jsonl",
        "/k/vmlinux", "/r/initrd.cpio",
    ]  # fmt: skip
    options, before = exact._options(architecture.load()), fingerprint()
    words = [(i, j) for i, option in enumerate(options) for j in range(len(option))]
    assert len(argv()) == 1 + len(words)
    for i, j in words:
        option = [*options[i]]
        option[j] += "x"
        others = (*options[:i], tuple(option), *options[i + 1 :])
        monkeypatch.setattr(exact, "_options", lambda _, others=others: others)
        assert fingerprint() != before, option
    monkeypatch.setattr(exact, "_options", lambda _: (*options, ("-device", "edu")))
    assert fingerprint() != before


@pytest.mark.parametrize(("machine", "plain", "full"), [
    (MachineType.MICROVM, "d196e7649ca15df5", "a51f01b2b3fe3d9c"),
    (MachineType.Q35_PVH, "cd0909b2d8b3deb4", "cb1d0250100757d5"),
    (MachineType.Q35, "7a04fff1b3a77b2c", "9085da1f20c8ff41"),
])  # fmt: skip
def test_fingerprints_are_those_of_stored_results(machine: MachineType, plain: str, full: str) -> None:
    assert fingerprint(machine=machine, vcpus=1, cmdline=exact.cmdline([])) == plain
    found = fingerprint(
        machine=machine, memory_mb=1536, cmdline=exact.cmdline(["nosmt"]), settings={"thp": "never"}, env={"A": "b"},
        initrd_sha256="1",
    )  # fmt: skip
    assert found == full


def _emulator(tmp_path: Path, says: str) -> str:
    return str(program(tmp_path / "qemu-system-x86_64", f"echo '{says}'"))


def test_qemu_is_asked_what_it_is(tmp_path: Path) -> None:
    found = exact.find_qemu(_emulator(tmp_path, "QEMU emulator version 7.2.22 (Debian 1:7.2+dfsg-7+deb12u18)"))
    assert (found.version, found.numbers) == ("7.2.22 (Debian 1:7.2+dfsg-7+deb12u18)", (7, 2))
    assert exact.find_qemu(_emulator(tmp_path, "QEMU emulator version 10.0.3")).numbers == (10, 0)


@pytest.mark.parametrize(("says", "words"), [
    ("QEMU emulator version 5.2.0 (Debian)", "is QEMU 5.2, exact mode needs 7.2"),
    ("hello", "does not print the version"),
])  # fmt: skip
def test_other_programs_are_refused(tmp_path: Path, says: str, words: str) -> None:
    with pytest.raises(HostFailed, match=words):
        exact.find_qemu(_emulator(tmp_path, says))


def test_a_missing_qemu_names_the_package() -> None:
    with pytest.raises(HostFailed, match="qemu-nothing is not installed") as caught:
        exact.find_qemu("qemu-nothing")
    assert "qemu-system-x86" in str(caught.value.hint)


def test_qemu_is_confined_where_it_can_be() -> None:
    found = shutil.which("qemu-system-x86_64")
    if found is None or not (options := sandbox(found)):
        pytest.skip("needs a QEMU that filters system calls")
    argv = [found, "-machine", "none", "-S", "-nodefaults", "-no-user-config", "-display", "none", *options]
    with subprocess.Popen(argv) as process:
        status = Path(f"/proc/{process.pid}/status")
        deadline = time.monotonic() + 30
        while "Seccomp:\t2\n" not in status.read_text() and time.monotonic() < deadline:
            time.sleep(0.01)
        filtered = status.read_text()
        process.kill()
    assert "Seccomp:\t2\n" in filtered and "NoNewPrivs:\t1\n" in filtered


def test_a_qemu_without_filters_runs_as_it_is(tmp_path: Path) -> None:
    qemu = program(tmp_path / "qemu", "echo '-sandbox support is not enabled in this QEMU binary' >&2; exit 1")
    assert sandbox(str(qemu)) == () and sandbox(str(tmp_path / "missing")) == ()


def test_guests_whose_vcpus_contend_share_a_slower_clock_and_see_no_hypervisor() -> None:
    parameters = exact.exact_machine()
    assert [parameters.for_contention(vcpus).shift for vcpus in (1, 2, 4, 8)] == [4, 3, 2, 2]
    instrument = Instrument(library=Path("libcost.so"), machine=hardware.load(), model=Model.TLB)
    assert "hypervisor" not in guest(instrument=instrument).cpu
    assert guest(instrument=instrument.contending(50)).cpu.endswith(",-hypervisor")
    with pytest.raises(UserError, match="x86-64"):
        exact.exact_machine("arm64").for_contention(2)


def test_a_qemu_that_cannot_end_turns_is_named_with_what_it_lacks(tmp_path: Path) -> None:
    needs = exact.exact_machine().contention
    assert needs is not None
    old = Qemu(path="/bin/true", version="7.2.22", numbers=(7, 2))
    assert exact.missing_for_contention(old, needs) == ["version 10.0", *needs.symbols]
    source = tmp_path / "exports.c"
    source.write_text("".join(f"int {name};" for name in needs.symbols))
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", tmp_path / "exports.so", source], check=True)
    new = Qemu(path=str(tmp_path / "exports.so"), version="10.0.2", numbers=(10, 0))
    assert exact.missing_for_contention(new, needs) == []
    newer = Qemu(path=new.path, version="11.1.3", numbers=(11, 1))
    assert exact.missing_for_contention(newer, needs) == ["version 10.0"]
