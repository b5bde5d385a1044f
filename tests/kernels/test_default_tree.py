"""The patches that come with the lab."""

from __future__ import annotations

import re

import pytest

from lab.kernels import default_tree
from lab.kernels.default_tree import message_of


def test_names() -> None:
    assert {"hugetlb-pin-tax", "no-folio-batching", "thp-alignment"} <= set(default_tree.names())


@pytest.mark.parametrize("name", default_tree.names())
def test_every_patch_has_a_message_and_is_numbered(name: str) -> None:
    for number, patch in enumerate(default_tree.patches(name), start=0 if name == "thp-alignment" else 1):
        assert patch.name.startswith(f"{number:04}-")
        message, _ = message_of(patch)
        subject, _, body = message.partition("\n\n")
        assert re.match(r"[\w/, ]+: \w", subject)
        assert all(len(line) <= 80 for line in message.splitlines())
        assert body.strip()


@pytest.mark.parametrize("name", [name for name in default_tree.names() if name != "thp-alignment"])
def test_a_reconstruction_says_so_and_names_what_it_mirrors(name: str) -> None:
    for patch in default_tree.patches(name):
        message, _ = message_of(patch)
        assert "reconstruction" in message
        assert re.search(r"\b[0-9a-f]{12} \(\"", message)
