"""The patches that come with the lab."""

from __future__ import annotations

import re

import pytest

from lab.kernels import default_tree
from lab.kernels.default_tree import commit_of

UPSTREAM = ("efa7df3e3bb5", "d4148aeab412", "249608ee4713")


def test_names() -> None:
    assert {"hugetlb-pin-tax", "no-folio-batching", "thp-alignment"} <= set(default_tree.names())


@pytest.mark.parametrize("name", default_tree.names())
def test_every_patch_has_a_message_and_is_numbered(name: str) -> None:
    for number, patch in enumerate(default_tree.patches(name), start=0 if name == "thp-alignment" else 1):
        assert patch.name.startswith(f"{number:04}-")
        message, _ = commit_of(patch)
        subject, _, body = message.partition("\n\n")
        assert re.match(r"[\w/, ]+: \w", subject)
        assert all(len(line) <= 80 for line in message.splitlines())
        assert body.strip()


def test_the_commits_of_the_story_have_their_authors_and_dates() -> None:
    found = [commit_of(patch) for patch in default_tree.story()]
    assert all(f"commit {upstream}" in message for (message, _), upstream in zip(found[1:], UPSTREAM, strict=True))
    assert [(author.name, author.email, author.date) for _, author in found] == [
        ("kernel-ab-lab", "lab@localhost", "@1704067200 +0000"),
        ("Rik van Riel", "riel@surriel.com", "@1702593263 -0800"),
        ("Vlastimil Babka", "vbabka@suse.cz", "@1729782749 +0200"),
        ("Kalesh Singh", "kaleshsingh@google.com", "@1731966408 -0800"),
    ]


@pytest.mark.parametrize("name", [name for name in default_tree.names() if name != "thp-alignment"])
def test_a_reconstruction_says_so_and_names_what_it_mirrors(name: str) -> None:
    for patch in default_tree.patches(name):
        message, _ = commit_of(patch)
        assert "reconstruction" in message
        assert re.search(r"\b[0-9a-f]{12} \(\"", message)
