"""Single boots outside a comparison of two arms: of a commit in a search, or of whatever kernel comes next.

    booter = Booter(workloads.select_all(["alloc-burst:layout-4632k"]), plan, folder, qemu=qemu, timeout_s=300)
    reading = booter.boot(Arm(name=commit, kernel=kernel, settings={}), number=7, iterations=3)

A boot whose record is in the folder is taken from it, so a search that goes on measures nothing twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from lab import records
from lab.exact import Qemu
from lab.guests import Running
from lab.live import boots, comparing
from lab.live.boots import BootRecord
from lab.live.document import LivePlan
from lab.live.measuring import Stand
from lab.live.rounds import BootReading
from lab.progress import Meter
from lab.runs import Arm
from lab.workload import Case, Workload


class Booter:
    """Guests of one kind, around any kernel."""

    def __init__(
        self,
        chosen: Sequence[tuple[Workload, Sequence[Case]]],
        plan: LivePlan,
        folder: Path,
        *,
        qemu: Qemu,
        timeout_s: float,
        meter: Meter,
    ) -> None:
        """folder: of the result; boots and guests go there. All kernels have to boot as the first one does."""
        self._chosen, self._plan, self._folder = chosen, plan, folder
        self._qemu, self._timeout_s, self._meter = qemu, timeout_s, meter
        self._stands: list[Stand] = []
        self.running = Running()

    def boot(self, arm: Arm, *, number: int, iterations: int, seed: int | None = None, seat: int = 0) -> BootReading:
        """Boot an arm once and run every case so often: a guest for each workload, or each case that wants its own.

        number: of the boot in its folder, from 1; seed: of its guests, the number without. seat: in a duet, 0 or 1.
        GuestFailed: the guest died; its record and its folder say how.
        """
        if not self._stands:
            self._stands = comparing.prepare(
                (arm,), self._chosen, self._plan, self._folder, qemu=self._qemu, timeout_s=self._timeout_s,
                meter=self._meter,
            ).stands  # fmt: skip
        reading = BootReading(arm=arm.name, values={})
        for stand in self._stands:
            for cases in stand.bench.workload.by_guest(stand.bench.cases):
                alone = f"+{cases[0].name}" if stand.bench.workload.isolate else ""
                name = f"{number:04d}-{stand.bench.workload.name}{alone}"
                record = self._stored(stand, arm, name) or boots.boot(
                    stand.bench, arm, cases, name=name, seed=seed or number, iterations=iterations,
                    seat=stand.seats[seat], running=self.running,
                )  # fmt: skip
                reading.values.update({f"{record.workload}:{case}": v for case, v in record.reading().items()})
        return reading

    def _stored(self, stand: Stand, arm: Arm, name: str) -> BootRecord | None:
        path = boots.record_path(self._folder, name)
        if not path.is_file():
            return None
        record = records.load(path, BootRecord)
        same = (record.kernel, record.fingerprint) == (arm.kernel.key, stand.bench.fingerprint)
        return record if same and record.failure is None else None
