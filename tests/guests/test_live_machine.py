"""Live mode's virtual machine: its root, what vng is asked for, and what it prints."""

import subprocess
from pathlib import Path

import msgspec
import pytest

from lab.core.errors import GuestFailed, HostFailed
from lab.guests import initrd, live_machine, topology
from lab.guests.live_machine import LiveGuest
from lab.guests.topology import CpuSet

from ..fakes.lscpu import LAPTOP, host


def test_the_root_has_a_shell_and_leaves_the_image_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(initrd, "run_inside", lambda root, program, arguments: "sh\nmount\nbusybox\n")
    (tmp_path / "root" / "bin").mkdir(parents=True)
    (tmp_path / "root" / "bin" / "busybox").write_text("program")
    (tmp_path / "root" / "bin" / "bash").write_text("the image's own")
    root = live_machine.obtain_root(tmp_path)
    assert (root / "bin" / "sh").readlink() == Path("busybox")
    assert (root / "bin" / "busybox").samefile(tmp_path / "root" / "bin" / "busybox")
    assert (root / "proc").is_dir() and (root / "etc" / "passwd").read_text().startswith("root::0:0:")
    assert (tmp_path / "root" / "bin" / "bash").read_text() == "the image's own", "replaced, not written through"
    assert live_machine.obtain_root(tmp_path) == root
    for name in ("bin/su", "lib/systemd/systemd-udevd", "bin/udevadm"):
        subprocess.run(["sh", "-n", str(root / name)], check=True)


def test_virtme_ng_that_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda name, path=None: None)
    with pytest.raises(HostFailed, match="virtme-ng is not installed"):
        live_machine.find_vng()


PRINTED = (
    "/usr/bin/qemu-system-x86_64 -name virtme-ng -chardev file,id=console,path=/proc/self/fd/2 "
    "-chardev stdio,id=stdin,signal=on,mux=off -chardev file,id=stdout,path=/proc/self/fd/1 "
    "-chardev file,id=ret,path=/tmp/virtme_ret0 -kernel ./kernel "
    "-append 'virtme_hostname=virtme-ng rdinit=/init init=/bin/sh -- -c \"exec x\"' "
    "-chardev file,id=report,path=report.jsonl\n"
)


def test_what_vng_prints_becomes_a_command_of_the_guests_folder() -> None:
    words = live_machine.qemu_argv(f"a warning\n{PRINTED}")
    assert "file,id=console,path=console.log" in words
    assert "file,id=report,path=report.jsonl" in words
    assert {"null,id=stdin", "null,id=stdout", "null,id=ret"} < set(words)
    assert words[words.index("-append") + 1] == "virtme_hostname=virtme-ng rdinit=/init"
    with pytest.raises(HostFailed, match="printed no QEMU command"):
        live_machine.qemu_argv("usage: vng\n")


def test_vng_is_asked_for_a_guest_without_network_or_balloon() -> None:
    layout = topology.plan(host(LAPTOP), vcpus=2)
    guest = LiveGuest(
        qemu="/q", accelerator="kvm", shape=layout.shape, cpu_set=layout.cpu_sets[0], memory_mb=640, hugepage_kb=None,
        arguments=["odd=a b"],
    )  # fmt: skip
    words = live_machine.vng_argv(guest)
    assert words[:4] == ["--run", "./kernel", "--root", "./root"]
    assert not {"--network", "--balloon", "--rw", "--disable-kvm", "--pin"} & set(words)
    assert (
        "-cpu host,-arch-capabilities"
        in live_machine.vng_argv(msgspec.structs.replace(guest, cpu="host,-arch-capabilities"))[-3]
    ), "the CPU model with which KVM works"
    assert "'odd=a b'" in words[words.index("--append") + 1], "one argument of the kernel's"
    assert "--disable-kvm" in live_machine.vng_argv(msgspec.structs.replace(guest, accelerator="tcg"))


def test_a_qemu_that_does_not_listen_is_waited_for_as_long_as_a_guest(tmp_path: Path) -> None:
    # It ends before any limit of our own would be reached.
    with subprocess.Popen(["sleep", "10"]) as process:
        with pytest.raises(GuestFailed, match="did not listen") as late:
            live_machine.pin_and_start(process, tmp_path, CpuSet(cpus=[0], others=[], nodes=[]), timeout_s=0.2)
        process.kill()
    assert late.value.hint and "--guest-timeout" in late.value.hint
