"""`lab gc`: what may be deleted is, by age and size: what can be made again, and what guests said on their consoles.

Never what a report needs: documents, plans, the raw numbers of every guest, bisections and nights are not looked at.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from lab import discardable
from lab.discardable import Item
from lab.kernels import store

RECENT_S = 86400.0
"""What was used within a day stays, however little room there is: somebody may be at work with it."""


def choose(found: Sequence[Item], *, older_than_s: float, at_most: int | None, now: float) -> list[Item]:
    """What goes: whatever was unused for longer; then, until what is left fits, what was unused for longest.

    A clock that jumped ahead would make everything old: what seems to come from the future counts as used now.
    """
    aged = sorted(found, key=lambda item: item.used)
    chosen = [item for item in aged if now - item.used > older_than_s]
    left = sum(item.size for item in found) - sum(item.size for item in chosen)
    for item in aged:
        if at_most is None or left <= at_most:
            break
        if item not in chosen and now - item.used > RECENT_S:
            chosen.append(item)
            left -= item.size
    return chosen


def collect(*, older_than_s: float, at_most: int | None, dry_run: bool) -> tuple[list[Item], int]:
    """Delete what may go and nobody works with; it, and the bytes that are left."""
    found = discardable.items()
    gone = []
    for item in choose(found, older_than_s=older_than_s, at_most=at_most, now=time.time()):
        with item.claimed() as ours:
            if ours:
                gone.append(item)
            if ours and not dry_run:
                item.delete()
    if not dry_run:
        store.collect_garbage(float("inf"), dry_run=False)  # leftovers of builds that were killed
    return gone, sum(item.size for item in found) - sum(item.size for item in gone)
