"""Stores with one damaged file: every command names it, does without it or makes it anew, and never breaks."""

from collections.abc import Callable

import pytest

from lab.cli import main
from lab.core import records

from ..fakes.store import Store
from .conftest import Tally
from .damages import SEED, TEXTS, rng
from .kinds import KINDS, LISTS, commands_of, files_of

FINE = {0, 2, 3, 4, 5}
"""Statuses of commands that met something: never 1, which says that --fail-on matched."""

PARTS = 4
"""Shares of the time: a damaged store takes a hundred times as long as another input."""


@pytest.mark.parametrize("part", range(PARTS))
def test_no_damaged_file_breaks_a_command(
    part: int, store: Store, kept: Callable[[], None], tally: Tally, capsys: pytest.CaptureFixture[str]
) -> None:
    names = [*KINDS]
    for number in tally.goes_on():
        turn = number * PARTS + part
        dice, name = rng("damage", turn), names[turn % len(names)]
        path = dice.choice(files_of(KINDS[name], store))
        damage = dice.choice([*TEXTS])
        before = path.read_bytes()
        after = TEXTS[damage](before, dice)
        path.write_bytes(after)
        commands = commands_of(KINDS[name], store)
        for command in dict.fromkeys([*dice.sample(commands, min(2, len(commands))), dice.choice(LISTS)]):
            records.forget_warnings()
            status = main.run([*command])
            said = capsys.readouterr()
            wrong = status not in FINE or "Traceback" in said.err or "mistake of the lab's own" in said.err
            if wrong or "\x1b" in said.out:
                words = f"seed {SEED}: lab {' '.join(command)} with {path.name} {damage} ({after[:60]!r})"
                tally.found.append((f"stored {name}", f"{words}: status {status}\n{said.err}"))
        tally.inputs[f"stored {name}"] += 1
        kept()
