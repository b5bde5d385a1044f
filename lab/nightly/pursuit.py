"""From what is news to whose doing it was: each event with its culprit, each culprit told once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from msgspec.structs import replace

from lab.compare import results
from lab.core.errors import DiskFull, LabError
from lab.nightly import blaming, chasing
from lab.nightly.chasing import Chase
from lab.nightly.night import Event
from lab.nightly.tonight import BranchTonight


@dataclass(frozen=True)
class Pursuit:
    """The bisections of one branch in one night."""

    at: BranchTonight
    chase: Chase

    def told(self, found: Sequence[Event]) -> list[Event]:
        """The events as they are told: with their culprits, those of one culprit as one."""
        chased: list[Event] = []
        for event in found:
            wanted = self.chase.plan.bisect and event.kind in ("regression", "creep", "step")
            chased += self._chased(event) if wanted else [event]
        return [self._known_elsewhere(event) for event in blaming.merged(chased)]

    def _chased(self, event: Event) -> list[Event]:
        """An event with its culprit; what that one does not explain is chased by itself."""
        at = self.at
        try:
            name = f"{event.id} {' '.join(sorted(case.shown for case in event.cases))}"
            if (known := at.now.bisections.get(name)) is None:
                if self.chase.out_of_time(chasing.worst_of(event).mode):
                    return [self._too_late(event)]
                folder = self.chase.begin(event)
                at.put(bisections={**at.now.bisections, name: results.reference(folder)})
            else:
                folder = results.open_folder(known)
            return self._concluded(event, folder)
        except DiskFull:
            raise  # the night stops, and this bisection goes on when there is room
        except LabError as error:
            return [replace(event, text=blaming.failed(error))]

    def _concluded(self, event: Event, folder: Path) -> list[Event]:
        answer = self.chase.finish(folder)
        if answer is None:
            return [self._too_late(event)]
        if event.kind == "creep":
            return [blaming.crept(event, answer, self._culprits(), self.chase.plan.small)]
        culprit = blaming.culprit_of(answer)
        if culprit is None:
            return [blaming.nameless(event, answer)]
        event = replace(event, culprit=culprit)
        mode = chasing.worst_of(event).mode
        if len(event.names) == 1 or culprit.among > 1 or (mode == "live" and self.chase.out_of_time(mode)):
            return [event]
        try:
            explained = self.chase.explained(event, culprit.commit)
        except DiskFull:
            raise
        except LabError as error:
            return [replace(event, text=f"what else the culprit explains was not measured: {error.message}")]
        mine, rest = chasing.split(event, explained)
        return [mine, *(self._chased(replace(rest, id=f"{rest.id}b")) if rest else [])]

    def _too_late(self, event: Event) -> Event:
        budget = "live mode's" if not self.chase.out_of_time("exact") else "the night's"
        return replace(event, text=f"not bisected: {budget} budget is used up")

    # ---- what was told of before

    def _known_elsewhere(self, event: Event) -> Event:
        """A culprit that was told of on another branch of the tree, or by another machine, is not told again."""
        if event.kind != "regression" or event.culprit is None:
            return event
        if event.culprit.among == 1 and (told := self.at.around.team.culprits.get(event.culprit.commit)):
            return replace(event, kind="known", text=f"the culprit of {told}")
        other = self._culprits().get(event.culprit.commit)
        if other is None or other.branch == self.at.plan.branch:
            return event
        return replace(event, kind="known", closes=other.id, text=f"the culprit of {other.id}, on this branch too")

    def _culprits(self) -> dict[str, Event]:
        """The commits of the tree that are known to have done something, on other branches this very night too."""
        tree = self.at.plan.tree
        events = [event for one in self.at.others if one.tree == tree for event in one.events]
        tonight = {culprit.commit: event for event in events for culprit in event.culprits}
        return self.at.around.memory.culprits(tree) | tonight
