"""Snapshots: the state of an exact guest that is ready for its cases. Guests with other cases continue from it.

Most of a short measurement is the boot, which is the same for every seed. A booting guest is held once it is up
(`get_ready` in images/guest/init/init.c), QEMU writes its state, and the guest continues. Each later guest of the same
kernel, machine, archive and settings starts from that state, with its own cases written over those of the first. No
guest sees any of it, and the plugin remembers nothing from before, so all three ways give the same bytes.
"""

from __future__ import annotations

import hmac
import logging
import os
import secrets
import select
import shutil
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NamedTuple, Self

from lab.core import locks, paths, process, records
from lab.core.errors import LabError
from lab.core.records import Record
from lab.guests.run import CONSOLE, REPORT

if TYPE_CHECKING:
    from qemu.qmp import QMPClient

logger = logging.getLogger(__name__)

FOLDER = "snapshots"
"""Of the cache."""

KEPT_MAX = 4 << 30
"""The most bytes of all snapshots. The least recently used go first."""

STATE, RECORD = "state.zst", "snapshot.json"

_POLL_S = 0.002
_STOPPING_S = 10.0
"""The longest time for QEMU to begin to stop; after that it continues, and no state is kept."""
_GO_ON = b"g"
"""The byte that the plugin waits for; it takes any."""
_PIECE = 1024
"""The bytes that one packet writes: the stub of QEMU 7.2 takes 4,096 characters, two for each byte."""


class Entry(NamedTuple):
    """The place in a guest's init from which guests continue.

    goes_on: the address of its first instruction. cases: that of the text of /cases. pc: the number of the program
    counter among the registers.
    """

    goes_on: int
    cases: int
    pc: int


@cache
def entry(init: Path, pc: int | None) -> Entry | None:
    """The addresses in an init; None if it is not the lab's, and without a program counter."""
    from elftools.common.exceptions import ELFError  # a twentieth of a second, only when a guest runs
    from elftools.elf.elffile import ELFFile

    if pc is None:
        return None
    try:
        with init.open("rb") as stream:
            table: Any = ELFFile(stream).get_section_by_name(".symtab")
            goes_on, cases = (table.get_symbol_by_name(name)[0] for name in ("guest_goes_on", "job_cases"))
    except (OSError, ELFError, AttributeError, TypeError):
        return None
    return Entry(goes_on["st_value"], cases["st_value"], pc)


class _Record(Record, frozen=True, kw_only=True):
    """`snapshot.json`. digest: of the state, with the key of this store. console, report: the text before it."""

    schema: int = 1
    digest: str
    console: bytes
    report: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """A place in the cache for the state of guests that begin alike. key: of all that their beginning depends on."""

    key: str
    entry: Entry

    @property
    def folder(self) -> Path:
        """Its folder, if it was kept."""
        return paths.cache_dir(FOLDER) / self.key

    def load(self) -> _Record | None:
        """Read the record of a whole state that this store made; None if there is no such state."""
        if not locks.hold(self.folder / RECORD):
            return None
        found = records.find(self.folder / RECORD, _Record)
        with suppress(OSError):
            if found and found.digest == _signed(records.remembered_digest(self.folder / STATE)):
                return found
        self.discard()
        return None

    def discard(self) -> None:
        """Forget the state. A guest that reads it now reads on: the file stays as long as it is open."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def keep(self, state: IO[bytes], console: bytes, report: bytes) -> None:
        """Give a state its place, as a whole or not at all: its record comes last. state: an unnamed file."""
        self.folder.mkdir(exist_ok=True)
        for name in (RECORD, STATE):
            (self.folder / name).unlink(missing_ok=True)
        _link(state, self.folder / STATE)
        digest = _signed(records.file_digest(self.folder / STATE))
        records.save(self.folder / RECORD, _Record(digest=digest, console=console, report=report))


def _unnamed(folder: Path) -> IO[bytes]:
    """A file without a name: a killed lab leaves nothing of it."""
    return open(os.open(folder, os.O_TMPFILE | os.O_RDWR, 0o600), "w+b")  # noqa: PTH123


def _link(file: IO[bytes], path: Path) -> None:
    # Only with a folder, which a whole path does without, does Python follow the link.
    here = os.open(path.parent, os.O_RDONLY)
    try:
        os.link(f"/proc/self/fd/{file.fileno()}", path, src_dir_fd=here, follow_symlinks=True)
    finally:
        os.close(here)


def _signed(digest: str) -> str:
    """Sign a state's digest with the store's own key, so that QEMU never reads a state that was made elsewhere."""
    return hmac.new(_store_key(), digest.encode(), "sha256").hexdigest()


def _store_key() -> bytes:
    path = paths.cache_dir(FOLDER) / "key"
    with suppress(FileExistsError):
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with open(descriptor, "wb") as stream:  # noqa: PTH123
            stream.write(secrets.token_bytes(32))
    return path.read_bytes()


def kept() -> list[Path]:
    """The folders of all snapshots, the longest unused first."""
    folders = [path for path in paths.cache_dir(FOLDER).iterdir() if path.is_dir() and path.name[0] != "."]
    return sorted(folders, key=used)


def used(folder: Path) -> float:
    """The time when a snapshot was used last, in seconds since the epoch; 0 if it was never whole."""
    with suppress(FileNotFoundError):
        return (folder / RECORD).stat().st_mtime
    return 0.0


def _bound() -> None:
    """Remove the snapshots that were not used for longest, until all fit."""
    size = {folder: (folder / STATE).stat().st_size for folder in kept() if (folder / STATE).exists()}
    left = sum(size.values())
    for folder, its in size.items():
        if left <= KEPT_MAX:
            return
        with locks.unheld(folder / RECORD) as free:
            if free:
                shutil.rmtree(folder, ignore_errors=True)
                left -= its


# ---- the conversation with QEMU


class _Misunderstood(Exception):
    """QEMU refused a command."""


async def _status(monitor: QMPClient, command: str, *passing: str) -> str:
    """The status of a command, once it is none of the passing ones."""
    import asyncio

    while True:
        answer: Any = await monitor.execute(command)
        if (status := str(answer.get("status"))) not in passing:
            return status
        await asyncio.sleep(_POLL_S)


async def _is_alone(monitor: QMPClient) -> bool:
    """True if one vCPU runs, and all others wait for an interrupt: QEMU's state does not say which would run next."""
    registers: Any = await monitor.execute("human-monitor-command", {"command-line": "info registers -a"})
    return str(registers).count("HLT=0") <= 1


def _status_word(process: int, name: str) -> str:
    """A word of /proc about the main thread of a process; `EOFError` if the process has ended."""
    try:
        status = Path(f"/proc/{process}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        raise EOFError from None
    return next(line.split()[1] for line in status.splitlines() if line.startswith(name))


class _Stub:
    """QEMU's debug stub: as much of gdb's remote protocol as reads a register and writes memory."""

    def __init__(self, end: socket.socket) -> None:
        self._end, self._stream = end, end.makefile("rb")

    def ask(self, packet: str) -> str:
        """Send a packet; returns the answer. QEMU also says by itself that the guest has stopped."""
        self._end.sendall(f"${packet}#{sum(packet.encode()) & 0xFF:02x}".encode())
        answer = "T"
        while answer.startswith("T"):
            self._until(b"$")
            answer = self._until(b"#").decode()
            self._stream.read(2)
            self._end.sendall(b"+")
        return answer

    def _until(self, end: bytes) -> bytes:
        """The bytes before a byte."""
        content = b""
        while (byte := self._stream.read(1)) != end:
            if not byte:
                raise EOFError
            content += byte
        return content

    def require(self, packet: str) -> None:
        """Send a packet that must be accepted."""
        if (answer := self.ask(packet)) != "OK":
            raise _Misunderstood(f"QEMU's debug stub does not accept {packet[:40]}: {answer}")

    def find(self, entry: Entry) -> bool:
        """Turn to the vCPU that is where guests continue; False if none is."""
        vcpu = 0
        # QEMU numbers vCPUs from 1, and refuses one that is not there.
        while self.ask(f"Hg{(vcpu := vcpu + 1):x}") == "OK":
            # Each general register has 8 bytes, the lowest first.
            if int.from_bytes(bytes.fromhex(self.ask("g"))[8 * entry.pc :][:8], "little") == entry.goes_on:
                return True
        return False

    def write(self, address: int, content: bytes) -> None:
        for at in range(0, len(content), _PIECE):
            piece = content[at : at + _PIECE]
            self.require(f"M{address + at:x},{len(piece):x}:{piece.hex()}")


class Start:
    """A guest's start that the lab controls; a context, at whose end its sockets are closed.

    The plugin holds the guest when it is ready, until QEMU's main thread has nothing left to do: that thread would
    interrupt the turn of a vCPU.

    argv, fds: more options for QEMU, and the files that they name, which QEMU inherits.
    error: None unless the lab and QEMU did not understand each other. The guest's own end is not such an error.
    """

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._ours: dict[str, socket.socket] = {}
        self._theirs: list[socket.socket | IO[bytes]] = []
        self._thread = threading.Thread(target=self._run)
        self.argv = ["-S"]
        self.fds: list[int] = []
        self.error: Exception | None = None
        self._process: subprocess.Popen[bytes] | None = None
        for name in ("stub", "monitor"):
            self.argv += ["-chardev", f"socket,id={name},fd={self._pair(name)}"]
        self.argv += ["-gdb", "chardev:stub", "-mon", "chardev=monitor,mode=control"]
        self._held = self._pair("hold")

    def _pair(self, name: str) -> int:
        """Connect to QEMU; returns the number of its end."""
        self._ours[name], theirs = socket.socketpair()
        return self._give(theirs)

    def _give(self, file: socket.socket | IO[bytes] | None) -> int:
        if file is None:
            raise ValueError("there is no such file")
        self._theirs.append(file)
        self.fds.append(file.fileno())
        return file.fileno()

    def changed(self, argv: Sequence[str]) -> list[str]:
        """QEMU's argument list for such a start: the plugin holds the guest."""
        plugin = argv.index("-plugin") + 1
        return [*argv[:plugin], f"{argv[plugin]},hold={self._held}", *argv[plugin + 1 :], *self.argv]

    def begin(self, process: subprocess.Popen[bytes]) -> None:
        """Talk to QEMU, which has started, in the background."""
        self._close(self._theirs)
        self._process, self._pid = process, process.pid
        # Not by the process: that would take its status from who waits for it.
        self._pidfd = os.pidfd_open(process.pid)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Close everything. QEMU has ended, or was never started."""
        for ours in self._ours.values():
            with suppress(OSError):
                ours.shutdown(socket.SHUT_RDWR)
        if self._thread.ident:
            self._thread.join()
            os.close(self._pidfd)
        self._close([*self._theirs, *self._ours.values()])

    @staticmethod
    def _close(files: Iterable[socket.socket | IO[bytes]]) -> None:
        for file in files:
            file.close()

    def _run(self) -> None:
        import asyncio  # with qemu.qmp, only when there is a guest

        from qemu.qmp import ExecuteError, QMPError

        try:
            asyncio.run(self._converse())
            self._wait_until_held()
            self._wait_until_quiet()
            self._release()
        except (_Misunderstood, ExecuteError, OSError, ValueError, LabError) as error:
            logger.debug("a snapshot was of no use: %s", error)
            self.error = error
            self._kill()
        except (QMPError, EOFError):
            pass  # QEMU has ended

    async def _converse(self) -> None:
        from qemu.qmp import QMPClient

        monitor = QMPClient()
        await monitor.connect(self._ours["monitor"])
        try:
            await self._talk(_Stub(self._ours["stub"]), monitor)
        finally:
            with suppress(EOFError):
                await monitor.disconnect()

    async def _talk(self, stub: _Stub, monitor: QMPClient) -> None:
        raise NotImplementedError

    def _wait_until_held(self) -> None:
        """Wait until the plugin holds the guest at its next mark."""
        if not self._ours["hold"].recv(1):
            raise EOFError

    def _wait_until_quiet(self) -> None:
        """Wait until QEMU's main thread sleeps, after the last command."""
        while (state := _status_word(self._pid, "State")) != "S":
            if state in "ZX":
                raise EOFError
            time.sleep(_POLL_S)

    def _release(self) -> None:
        self._ours["hold"].send(_GO_ON)

    def _kill(self) -> None:
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)


class Keeping(Start):
    """A guest boots, and its state is kept when it is up. folder: the guest's. ends: QEMU ends once the state is kept.

    The plugin holds the guest at a mark. QEMU gets the command to stop then, so it stops at the next possible
    instruction. A breakpoint would not do because of QEMU's clock: if a guest stops by itself, the clock jumps
    ahead to its next timer (icount_start_warp_timer() in softmmu/icount.c), and the guest that boots through would
    differ.
    """

    def __init__(self, snapshot: Snapshot, folder: Path, *, ends: bool = False) -> None:
        super().__init__(snapshot)
        self._folder, self._ends = folder, ends
        self.has_ended = False

    async def _talk(self, stub: _Stub, monitor: QMPClient) -> None:
        with _one_at_a_time(self._snapshot.key) as is_first:
            await monitor.execute("cont")
            self._wait_until_held()
            if not is_first:
                self._release()
                return
            await self._stop(monitor)
            if stub.find(self._snapshot.entry) and await _is_alone(monitor):
                self.has_ended = await self._keep(monitor) and self._ends
            if self.has_ended:
                self._kill()
                raise EOFError
            await monitor.execute("cont")

    async def _stop(self, monitor: QMPClient) -> None:
        """Stop the guest that the plugin holds, without QEMU's lock, before it takes another step."""
        import asyncio

        # The number of times that QEMU's main thread has gone to sleep.
        slept = partial(_status_word, self._pid, "voluntary_ctxt_switches")
        before, deadline = slept(), time.monotonic() + _STOPPING_S
        stopping = asyncio.create_task(monitor.execute("stop"))
        # If QEMU ends first, nobody waits for the answer, and asyncio would print its loss with a traceback.
        stopping.add_done_callback(lambda task: task.cancelled() or task.exception())
        await asyncio.sleep(_POLL_S)
        while slept() == before and time.monotonic() < deadline:
            await asyncio.sleep(_POLL_S)
        self._release()
        while not stopping.done():
            if select.select([self._ours["hold"]], [], [], 0)[0]:
                self._kill()  # now: QEMU would never answer, and the monitor waits for that
                raise _Misunderstood("QEMU did not stop in time")
            await asyncio.sleep(_POLL_S)
        await stopping

    async def _keep(self, monitor: QMPClient) -> bool:
        """Keep the state; False if there is no whole one."""
        said = [(self._folder / name).read_bytes() for name in (CONSOLE, REPORT)]
        try:
            with _unnamed(paths.cache_dir(FOLDER)) as state:
                if await _save(monitor, state):
                    self._snapshot.keep(state, *said)
                    _bound()
                    return True
        except OSError as error:  # a full disk, or a file system without unnamed files: the guest does without
            logger.debug("the state of %s is not kept: %s", self._folder, error)
        return False


_being_kept: set[str] = set()
_guard = threading.Lock()


@contextmanager
def _one_at_a_time(key: str) -> Iterator[bool]:
    """Tell the first guest of a key that it leaves the state; False for guests that boot beside it."""
    with _guard:
        is_first = key not in _being_kept
        _being_kept.add(key)
    try:
        yield is_first
    finally:
        if is_first:
            _being_kept.discard(key)


async def _save(monitor: QMPClient, state: IO[bytes]) -> bool:
    """Have QEMU write its state, compressed; False if that is not whole."""
    with subprocess.Popen([_zstd(), "-1", "-q", "-c"], stdin=subprocess.PIPE, stdout=state) as zstd:
        await monitor.execute("migrate-set-parameters", {"max-bandwidth": 1 << 40})
        if zstd.stdin:
            monitor.send_fd_scm(zstd.stdin.fileno())
        await monitor.execute("getfd", {"fdname": "state"})
        await monitor.execute("migrate", {"uri": "fd:state"})
        how = await _status(monitor, "query-migrate", "none", "setup", "active", "device")
    return zstd.returncode == 0 and how == "completed"


class GoingOn(Start):
    """A guest continues from a kept state. cases: its own, the text of /cases."""

    def __init__(self, snapshot: Snapshot, cases: bytes) -> None:
        super().__init__(snapshot)
        self._cases = cases
        self._went_on = False
        self._zstd = subprocess.Popen([_zstd(), "-dcq", snapshot.folder / STATE], stdout=subprocess.PIPE)
        self.argv += ["-incoming", f"fd:{self._give(self._zstd.stdout)}"]
        # QEMU would announce the guest's place on the network, by timers of the host that interrupt it.
        self.argv += ["-global", "migration.announce-rounds=0"]

    @property
    def is_refused(self) -> bool:
        """True if QEMU ended before the guest continued, and nothing killed it."""
        if self._went_on or self._process is None:
            return False
        return self.error is not None or self._process.returncode != -signal.SIGKILL

    def changed(self, argv: Sequence[str]) -> list[str]:
        """QEMU's argument list; the guest's text goes behind the text before the state."""
        return super().changed([f"{word},append=on" if word.startswith("file,id=") else word for word in argv])

    def __exit__(self, *_: object) -> None:
        super().__exit__()
        self._zstd.kill()
        self._zstd.wait()

    async def _talk(self, stub: _Stub, monitor: QMPClient) -> None:
        await _status(monitor, "query-status", "inmigrate")
        if not stub.find(self._snapshot.entry):
            raise _Misunderstood("no vCPU of the kept state is where guests continue")
        stub.write(self._snapshot.entry.cases, self._cases + b"\0")
        await monitor.execute("cont")
        self._went_on = True


def _zstd() -> str:
    return process.find_tool("zstd", package="zstd")
