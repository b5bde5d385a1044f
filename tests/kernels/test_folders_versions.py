"""Orders of versions: tables out of the tests of rpm (rpmvercmp.at) and pacman (vercmptest.sh)."""

import pytest

from lab.kernels import folders

ORDERED = {
    "rpm": [
        *("1.0~rc1", "1.0~rc1^git1", "1.0", "1.0^", "1.0^git1", "1.0^git2", "1.0a", "1.0.1", "1.1", "2.0"),
        *("5.5p1", "5.5p2", "5.5p10", "10xyz", "10.1xyz", "10.2", "20101121", "20101122"),
        *("1:0.1", "1:6.12.4-100.fc40", "1:6.12.4-200.fc40", "1:6.12.4-200.fc41", "1:6.12.10-200.fc41", "2:1"),
    ],
    "pacman": [
        *("1.0a", "1.0alpha", "1.0b", "1.0beta", "1.0rc", "1.0", "1.0.a", "1.0.1"),
        *("1.5-1", "1.5-2", "1.5.1-1", "6.11.9.arch1-1", "6.12.arch1-1", "6.12.1.arch1-1", "6.12.10.arch1-1"),
        *("1:1.0-1", "1:1.1-1"),
    ],
    "deb": ["6.1.9-1", "6.12~rc1-1", "6.12.107-1~bpo12+1", "6.12.107-1", "1:5.4-1"],
}


@pytest.mark.parametrize("kind", ORDERED)
def test_order(kind: str) -> None:
    assert sorted(sorted(ORDERED[kind]), key=folders.ORDERS[kind]) == ORDERED[kind]
