"""A source tree while its history is laid out: what differs from the commit that it starts from, in memory."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from lab.core import git
from lab.core.git import Repo
from lab.core.process import run

from .layout import LayoutError


@dataclass(frozen=True, slots=True)
class State:
    """Files that differ from the start, and the effects there are."""

    files: Mapping[str, bytes]
    effects: frozenset[str]

    def merged(self, side: State, fork: State) -> State:
        """This with what a side did since the fork; no file may have been changed on both."""
        changed = {path for path, content in side.files.items() if fork.files.get(path) != content}
        for path in changed:
            if self.files.get(path) not in (fork.files.get(path), side.files[path]):
                raise LayoutError(f"{path} is changed on both sides of a merge")
        files = {**self.files, **{path: side.files[path] for path in changed}}
        effects = (self.effects - (fork.effects - side.effects)) | (side.effects - fork.effects)
        return State(files, effects)


class Start:
    """The commit that a history starts from; its files are read when they are needed."""

    def __init__(self, repo: Repo, commit: str) -> None:
        self.repo, self.commit = repo, commit
        self._read: dict[str, bytes] = {}

    def content(self, state: State, path: str) -> bytes:
        """A file as it is in a state."""
        if path in state.files:
            return state.files[path]
        if path not in self._read:
            self._read[path] = self.repo.git_bytes("cat-file", "blob", f"{self.commit}:{path}")
        return self._read[path]

    def patched(self, state: State, patch: Path, *, reverse: bool) -> dict[str, bytes]:
        """The files that a patch touches, as it leaves them."""
        paths = re.findall(r"^\+\+\+ b/(\S+)", patch.read_text(), re.MULTILINE)
        with tempfile.TemporaryDirectory(prefix="lab-history-") as name:
            top = Path(name).resolve()
            for path in paths:
                (top / path).parent.mkdir(parents=True, exist_ok=True)
                (top / path).write_bytes(self.content(state, path))
            words = git.command("apply", *(["--reverse"] if reverse else []), patch.absolute())
            run(words, cwd=top, env={**git.environment(), "GIT_CEILING_DIRECTORIES": str(top.parent)})
            return {path: (top / path).read_bytes() for path in paths}
