"""Live mode's virtual machine: its root, what vng is asked for and prints, and the threads on their host CPUs."""

import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
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
    other = msgspec.structs.replace(guest, cpu="host,-arch-capabilities")
    assert "-cpu host,-arch-capabilities" in live_machine.vng_argv(other)[-3], "the CPU model with which KVM works"
    assert "'odd=a b'" in words[words.index("--append") + 1], "one argument of the kernel's"
    assert "--disable-kvm" in live_machine.vng_argv(msgspec.structs.replace(guest, accelerator="tcg"))


def test_a_qemu_that_does_not_listen_is_waited_for_as_long_as_a_guest(tmp_path: Path) -> None:
    # It ends before any limit of our own would be reached.
    with subprocess.Popen(["sleep", "10"]) as process:
        with pytest.raises(GuestFailed, match="did not listen") as late:
            live_machine.pin_and_start(process, tmp_path, CpuSet(cpus=[0], others=[], nodes=[]), timeout_s=0.2)
        process.kill()
    assert late.value.hint and "--guest-timeout" in late.value.hint


# ---- the threads of a guest


def test_vcpus_are_pinned_by_their_number(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answer = [{"cpu-index": 1, "thread-id": 12}, {"cpu-index": 0, "thread-id": 11}]
    for thread in (10, 11, 12, 13):
        (tmp_path / "10" / "task" / str(thread)).mkdir(parents=True)
    done: dict[int, set[int]] = {}

    def place(thread: int, cpus: set[int]) -> None:
        if thread == 13:
            raise ProcessLookupError
        done[thread] = cpus

    monkeypatch.setattr("os.sched_setaffinity", place)
    live_machine.pin(10, live_machine.vcpu_threads(answer), CpuSet(cpus=[4, 6], others=[1, 2], nodes=[]), proc=tmp_path)
    assert done == {11: {4}, 12: {6}, 10: {1, 2}}
    done.clear()
    live_machine.pin(10, [11, 12], CpuSet(cpus=[4, 6], others=[], nodes=[]), proc=tmp_path)
    assert done == {11: {4}, 12: {6}}, "without CPUs left, the others run anywhere"


@pytest.fixture
def mute(tmp_path: Path) -> Iterator[socket.socket]:
    """The socket of a QEMU that listens in the test's folder, and does not answer."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / live_machine.QMP))
        listener.listen()
        yield listener


_GREETING = b'{"QMP": {"version": {"qemu": {"major": 7, "minor": 2, "micro": 0}}, "capabilities": []}}\r\n'
_STOPPED = """\
import asyncio, gc, subprocess, sys
from pathlib import Path
from lab.guests import live_machine
from lab.guests.topology import CpuSet

with subprocess.Popen(["sleep", "60"]) as process:
    print("waits", flush=True)
    try:
        cpu_set = CpuSet(cpus=[0], others=[], nodes=[])
        live_machine.pin_and_start(process, Path(sys.argv[1]), cpu_set, timeout_s=60)
    except KeyboardInterrupt:
        print("stopped")
    process.kill()
asyncio.set_event_loop(None)
gc.collect()
"""
"""What is left over of a connection complains as it is collected, which the end of a process may do or not."""


_CANCELLED = """\
import logging
from qemu.qmp import QMPClient

async def disconnect(client):
    raise asyncio.CancelledError

QMPClient.disconnect = disconnect
logging.basicConfig()  # as the lab does
"""
"""The library logs a fault of its own then: Ctrl-C may come once more while it disconnects."""


@pytest.mark.parametrize("also", ["", _CANCELLED])
def test_ctrl_c_while_qemu_is_connected_to_is_quiet(also: str, tmp_path: Path, mute: socket.socket) -> None:
    program = _STOPPED.replace("\n\n", f"\n{also}\n", 1)
    with subprocess.Popen(
        ["env", "--default-signal=INT", sys.executable, "-c", program, str(tmp_path)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        assert process.stdout and process.stdout.readline() == "waits\n"
        connection, _ = mute.accept()
        connection.sendall(_GREETING)
        assert b"qmp_capabilities" in connection.recv(4096), "it waits for the answer now"
        process.send_signal(signal.SIGINT)
        out, err = process.communicate()
        connection.close()
    assert (out, err) == ("stopped\n", "")
