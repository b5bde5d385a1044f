#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""Write what `lab ci` found to its merge request, in place of what the last run wrote: comment.py FILE NAME.

Runs in a pipeline of GitHub (GITHUB_TOKEN and PULL_REQUEST in the environment) or GitLab (LAB_CI_TOKEN), with Python's
own library alone. What cannot be written is said, and is no failure: the pipeline's summary has it too.
"""

from __future__ import annotations

import json
import os
import sys
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_MOST = 60_000
"""Characters. GitHub takes 65,536."""
_PAGE = 100
_PAGES = 20
_TIMEOUT_S = 30


@dataclass(frozen=True)
class Forge:
    """A merge request's comments. listing: their address; one: that of one of them, without its number.

    update: the method that changes one. author: of comments that may be changed, by the fields that tell.
    """

    headers: dict[str, str]
    listing: str
    one: str
    update: str
    author: dict[str, Any]

    def put(self, mark: str, text: str) -> None:
        """Change the comment that begins with a mark, or write a new one."""
        body = f"{mark}\n{text}"
        for comment in self._comments():
            author = comment.get("user") or comment.get("author") or {}
            is_own = all(author.get(name) == value for name, value in self.author.items())
            if is_own and str(comment.get("body", "")).startswith(mark):
                call(f"{self.one}/{int(comment['id'])}", self.headers, self.update, {"body": body})
                return
        call(self.listing, self.headers, "POST", {"body": body})

    def _comments(self) -> Iterator[dict[str, Any]]:
        for page in range(1, _PAGES + 1):
            found = call(f"{self.listing}?per_page={_PAGE}&page={page}", self.headers)
            yield from found
            if len(found) < _PAGE:
                return


def call(address: str, headers: dict[str, str], method: str = "GET", body: object = None) -> Any:
    """What a forge answers, decoded."""
    if not address.startswith(("https://", "http://")):
        raise ValueError(f"{address} is no address of a forge")
    data = json.dumps(body).encode() if body is not None else None
    headers = {**headers, "Content-Type": "application/json", "User-Agent": "kernel-ab-lab"}
    request = urllib.request.Request(address, data=data, headers=headers, method=method)  # noqa: S310 - checked above
    with urllib.request.urlopen(request, timeout=_TIMEOUT_S) as answer:  # noqa: S310
        return json.load(answer)


def forge(env: dict[str, str]) -> Forge | str:
    """The merge request that a pipeline runs for, or the reason why nothing can be written to one."""
    if env.get("GITHUB_ACTIONS"):
        if not env.get("PULL_REQUEST"):
            return "this is no pull request"
        if not env.get("GITHUB_TOKEN"):
            return "there is no token"
        top = f"{env['GITHUB_API_URL']}/repos/{env['GITHUB_REPOSITORY']}/issues"
        # Only a bot's: anybody can begin a comment with the mark, and the token may change everybody's.
        headers = {"Authorization": f"Bearer {env['GITHUB_TOKEN']}", "Accept": "application/vnd.github+json"}
        number = int(env["PULL_REQUEST"])
        return Forge(headers, f"{top}/{number}/comments", f"{top}/comments", "PATCH", {"type": "Bot"})
    if env.get("GITLAB_CI"):
        if not env.get("CI_MERGE_REQUEST_IID"):
            return "this is no merge request"
        if not env.get("LAB_CI_TOKEN"):
            return "there is no LAB_CI_TOKEN, a project's access token that may write comments"
        headers = {"PRIVATE-TOKEN": env["LAB_CI_TOKEN"]}
        top = env["CI_API_V4_URL"]
        project = f"{top}/projects/{int(env['CI_PROJECT_ID'])}"
        notes = f"{project}/merge_requests/{int(env['CI_MERGE_REQUEST_IID'])}/notes"
        return Forge(headers, notes, notes, "PUT", {"id": call(f"{top}/user", headers)["id"]})
    return "this is no pipeline of GitHub or GitLab"


def main(file: str, name: str) -> None:
    """Write a file as the comment of this name."""
    try:
        text = Path(file).read_text()
        if len(text) > _MOST:
            text = f"{text[:_MOST]}\n\nThe rest is in the artifact.\n"
        found = forge(dict(os.environ))
        if isinstance(found, str):
            print(f"no comment: {found}", file=sys.stderr)  # noqa: T201
            return
        found.put(f"<!-- kernel-ab-lab {urllib.parse.quote(name)} -->", text)
    except (OSError, KeyError, TypeError, ValueError, urllib.error.URLError) as error:
        print(f"no comment: {type(error).__name__}: {error}", file=sys.stderr)  # noqa: T201


if __name__ == "__main__":
    main(*sys.argv[1:])
