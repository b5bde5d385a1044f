"""`lab demo`: a verdict on two packages, while the kernels of the second comparison are built."""

from __future__ import annotations

import os
import re
import secrets
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext

import click

from lab.cli.ab import ab
from lab.core import process
from lab.core.errors import UserError
from lab.core.progress import Progress
from lab.core.text import visible_lines
from lab.kernels import debs
from lab.kernels.kernel import resolve

_SUITE = "trixie-backports"
_PACKAGES = (f"deb:{_SUITE}/6.16", f"deb:{_SUITE}/6.17")
_CASES = "syscalls:getppid,mprotect-private-4k,mprotect-private-64k,mprotect-private-1m,mprotect-private-4m"
_COMMIT = "efa7df3e3bb5"
_SUBJECT = "mm: align larger anonymous mappings on THP boundaries"
_STORY = (f"{_COMMIT}^", _COMMIT)
_TREE = ("--tree", "default")
_KEPT = "all downloads, objects and numbers are kept, so the same command goes on from there"
_BUILDS = "about 5 minutes of two idle cores"
_TAG = "LAB_DEMO"
_LAB = ("nice", "-n", "19", "ionice", "-c", "idle", sys.executable, "-m", "lab")
"""The lab at low priority."""


@click.command()
def demo() -> None:
    """Compare two packaged kernels, then the kernels before and after one commit, which are built meanwhile.

    The builds run at low priority from the beginning. Ctrl-C stops them, and compiled objects are kept.

    \b
    Example:
      lab demo
    """
    with Progress() as progress:
        packages = _packages(progress)
    with _building(_STORY) as builder:
        _say(f"1 of 2: {' against '.join(packages)}, changing the protection of memory of 4 KiB to 4 MiB")
        ab.main([*packages, "-w", _CASES], standalone_mode=False)
        _say("")
        _say(f'2 of 2: the kernels before and after commit {_COMMIT} ("{_SUBJECT}"), {builder.state}')
        _say(f"Ctrl-C costs nothing: {_KEPT}")
        builder.wait()
        ab.main([*_STORY, *_TREE, "-w", "alloc-burst"], standalone_mode=False)


def _packages(progress: Progress) -> Sequence[str]:
    """The two packages to compare: those of README's example, or the newest two of their suite if these are gone."""
    try:
        for spec in _PACKAGES:
            resolve(spec, progress=progress)
    except UserError:
        offers = debs.available([_SUITE, "cloud"], progress, refresh=False)
        series = dict.fromkeys(found[0] for offer in offers if (found := re.match(r"\d+\.\d+", offer.version)))
        if len(series) < 2:
            raise
        return [f"deb:{_SUITE}/{version}" for version in list(series)[-2:]]
    return _PACKAGES


class _Builder:
    """`lab kernel build` in the background; its messages are shown from `wait` on."""

    def __init__(self, child: subprocess.Popen[str]) -> None:
        self._child = child
        self._aloud = threading.Event()
        self._last = "resolving them"
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def state(self) -> str:
        """Tell whether the builds have ended, or else their estimate and their last message."""
        if self._child.poll() is not None:
            return "whose builds have ended"
        return f"which take {_BUILDS} to build from nothing ({self._last})"

    def wait(self) -> None:
        """Show its messages until it ends; an error of theirs comes from the command that needs the kernels."""
        self._aloud.set()
        self._child.wait()
        self._reader.join()

    def stop(self) -> None:
        """End it, if it has not ended."""
        self._aloud.clear()
        if self._child.poll() is None:
            _say(f"stopping the build: {_KEPT}")
            self._child.terminate()
        self._child.wait()

    def _read(self) -> None:
        with self._child.stderr or nullcontext(()) as messages:
            for line in messages:
                self._last = visible_lines(line.rstrip())
                if self._aloud.is_set():
                    _say(self._last)


@contextmanager
def _building(specs: Sequence[str]) -> Iterator[_Builder]:
    """Build kernels at low priority while the block lasts; its end, of any kind, ends them."""
    token = secrets.token_hex(8)
    with process.swept(variable=_TAG, value=token):
        builder = _Builder(
            subprocess.Popen(
                [*_LAB, "kernel", "build", *specs, *_TREE],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                text=True,
                errors="replace",
                env={**os.environ, _TAG: token},
                start_new_session=True,
            )
        )
        try:
            yield builder
        finally:
            builder.stop()


def _say(text: str) -> None:
    click.echo(text, err=True)
