"""The action and the template around `lab ci`: their form, and their steps run as scripts."""

import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from lab.cli.ci import ci

from ..fakes.kernel import commit_all, git, make_kernel
from ..fakes.processes import program

TOP = Path(__file__).resolve().parents[2]
ACTION: dict[str, Any] = yaml.safe_load((TOP / "ci" / "action.yml").read_text())
STEPS: list[dict[str, Any]] = ACTION["runs"]["steps"]
JOB: dict[str, Any] = yaml.safe_load((TOP / "ci" / "gitlab.yml").read_text())[".kernel-ab-lab"]
BLOCKS: list[dict[str, Any]] = [
    yaml.safe_load(text)
    for text in re.findall(r"^```yaml\n(.*?)^```$", (TOP / "docs" / "ci.md").read_text(), re.MULTILINE | re.DOTALL)
]


JOBS: list[dict[str, Any]] = [
    job for block in BLOCKS for job in (*block.get("jobs", {}).values(), *block.values()) if isinstance(job, dict)
]


def step(name: str) -> dict[str, Any]:
    (found,) = [one for one in STEPS if one["name"] == name]
    return found


def scripts() -> list[str]:
    """All that a shell gets: of the action, the template, and the examples."""
    lines = [
        line
        for job in (JOB, *JOBS)
        for part in ("before_script", "script", "after_script")
        for line in job.get(part, [])
    ]
    steps = [one for job in JOBS for one in job.get("steps", [])]
    return [*(one["run"] for one in (*STEPS, *steps) if "run" in one), *lines]


# ---- their form


def test_nothing_of_a_merge_request_becomes_part_of_a_script() -> None:
    found = scripts()
    assert len(found) > 10
    assert not [text for text in found if "${{" in text or "$[[" in text or "eval" in text]


def test_every_action_is_pinned_to_a_commit_or_a_full_version() -> None:
    texts = [(TOP / "ci" / "action.yml").read_text(), (TOP / "docs" / "ci.md").read_text()]
    used = [line for text in texts for line in re.findall(r"uses: (.*)", text)]
    assert len(used) > 4
    for line in used:
        assert re.fullmatch(
            r"actions/[a-z/-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+|OWNER/kernel-ab-lab/ci@v\d+\.\d+\.\d+", line
        ), line
    assert re.fullmatch(r"debian:\d+\.\d+", JOB["image"]) and re.fullmatch(
        r"v\d+\.\d+\.\d+", JOB["variables"]["LAB_REF"]
    )


def test_every_variable_is_an_option_of_the_command() -> None:
    options = {f"LAB_CI_{param.name}".upper() for param in ci.params if isinstance(param, click.Option)}
    own = [step(name)["env"] for name in ("Find the keys of the cache", "Compare")]
    given = [*own, *(job.get("variables", {}) for job in (JOB, *JOBS))]
    named = {name for env in given for name in env if name.startswith("LAB_CI_")}
    assert named <= options and {"LAB_CI_BASE", "LAB_CI_BASE_PROGRAM", "LAB_CI_KERNELS", "LAB_CI_EXEC"} <= named
    assert own[0] == own[1], "the keys are those of what is compared"


def test_every_script_exists_and_can_be_run() -> None:
    named = {name for text in scripts() for name in re.findall(r"(?:GITHUB_ACTION_PATH|HOME/lab/ci)/([\w.]+)", text)}
    assert named == {"install", "comment.py"}
    for name in named:
        assert os.access(TOP / "ci" / name, os.X_OK)
    subprocess.run(["sh", "-n", TOP / "ci" / "install"], check=True)
    for text in scripts():
        subprocess.run(["bash", "-n", "-c", text], check=True)


def test_only_a_regression_fails_a_job_of_gitlab() -> None:
    assert sorted(JOB["allow_failure"]["exit_codes"]) == [2, 3, 4, 5, 130]
    for line in JOB["before_script"]:
        assert line.endswith(("|| exit 4", "|| true")) or "ci/install" in line or "git config" in line


def test_the_token_of_the_action_reaches_the_comment_alone() -> None:
    assert [one["name"] for one in STEPS if "inputs.token" in json.dumps(one)] == ["Comment"]


# ---- their steps


def run(script: str, cwd: Path, **env: str) -> subprocess.CompletedProcess[str]:
    """A step as the runner runs it."""
    return subprocess.run(
        ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", script],
        cwd=cwd, env={**os.environ, **env}, capture_output=True, text=True, check=False,
    )  # fmt: skip


def write_lab(folder: Path, script: str) -> str:
    """A PATH with a program called lab."""
    folder.mkdir()
    program(folder / "lab", script)
    return f"{folder}:{os.environ['PATH']}"


WARNED = [(status, False, "::warning::") for status in (2, 3, 4, 5, 127, 130)]


@pytest.mark.parametrize(("status", "red", "said"), [(0, False, ""), (1, True, "::error::"), *WARNED])
def test_the_action_is_red_for_a_regression_only(tmp_path: Path, status: int, red: bool, said: str) -> None:
    path = write_lab(tmp_path / "bin", f"mkdir -p lab-ci; echo found >lab-ci/comment.md; exit {status}")
    outputs = {"GITHUB_OUTPUT": str(tmp_path / "out"), "GITHUB_STEP_SUMMARY": str(tmp_path / "summary")}
    assert run(step("Compare")["run"], tmp_path, PATH=path, **outputs).returncode == 0
    assert (tmp_path / "out").read_text() == f"status={status}\n"
    assert (tmp_path / "summary").read_text() == "found\n"
    done = run(step("Red for a regression only")["run"], tmp_path, STATUS=str(status))
    assert (done.returncode, done.stdout.startswith(said)) == (int(red), True)
    assert bool(done.stdout) == bool(said)


@pytest.mark.parametrize("status", [0, 1, 4])
def test_the_status_of_a_job_of_gitlab_is_the_commands(tmp_path: Path, status: int) -> None:
    path = write_lab(tmp_path / "bin", f"exit {status}")
    (script,) = JOB["script"]
    assert run(script, tmp_path, PATH=path).returncode == status


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A fresh clone, as a runner makes it: the merge commit of a change to README, and one parent of it."""
    origin = make_kernel(tmp_path / "origin")
    (origin / "README").write_text("words\n")
    commit_all(origin, "words")
    git(tmp_path, "clone", "-q", "--depth=2", f"file://{origin}", str(tmp_path / "clone"))
    return tmp_path / "clone"


HOSTILE = "$(touch pwned);`touch pwned`\n;touch pwned\"'"


@pytest.mark.parametrize(("base", "word"), [("HEAD^1", "nothing to measure"), (HOSTILE, "no baseline")])
def test_the_steps_of_the_action_on_a_clone(checkout: Path, tmp_path: Path, base: str, word: str) -> None:
    path = write_lab(tmp_path / "bin", f'PYTHONPATH={TOP} exec {sys.executable} -m lab "$@"')
    env = {
        "PATH": path, "HOME": str(tmp_path / "home"), "GITHUB_OUTPUT": str(tmp_path / "out"),
        "GITHUB_STEP_SUMMARY": str(tmp_path / "summary"),
        **dict.fromkeys(step("Compare")["env"], ""), "LAB_CI_BASE": base, "LAB_CI_TEST": "HEAD",
    }  # fmt: skip
    (tmp_path / "out").touch()
    assert run(step("Find the keys of the cache")["run"], checkout, **env).returncode == 0
    assert (tmp_path / "out").read_text() == "", "nothing is fetched for a change that needs no kernel"
    done = run(step("Compare")["run"], checkout, **env)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "out").read_text() == "status=0\n", done.stderr
    assert (tmp_path / "summary").read_text().startswith(f"### Kernel comparison: {word}\n")
    assert not list(tmp_path.rglob("pwned"))


# ---- the comment


class Forge(BaseHTTPRequestHandler):
    """A forge with a list of comments."""

    comments: list[dict[str, Any]]
    broken: bool
    wrote: list[tuple[str, str]]

    def _answer(self, body: object) -> None:
        self.send_response(500 if self.broken else 200)
        self.end_headers()
        self.wfile.write(json.dumps(body).encode())

    def _write(self) -> None:
        text = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["body"]
        self.wrote.append((f"{self.command} {self.path}", text))
        self._answer({})

    do_POST = do_PATCH = do_PUT = _write

    def do_GET(self) -> None:
        self._answer({"id": 7} if self.path == "/user" else self.comments)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def forge(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[type[Forge], str]]:
    for name, value in {"comments": [], "wrote": [], "broken": False}.items():
        monkeypatch.setattr(Forge, name, value, raising=False)
    server = HTTPServer(("127.0.0.1", 0), Forge)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield Forge, f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def comment(tmp_path: Path, name: str, **env: str) -> str:
    """Run the script on a comment; what it said. It never fails."""
    (tmp_path / "comment.md").write_text("what was found\n")
    clean = {key: value for key, value in os.environ.items() if not key.startswith(("GITHUB_", "CI_", "GITLAB_"))}
    done = subprocess.run(
        [sys.executable, TOP / "ci" / "comment.py", str(tmp_path / "comment.md"), name],
        env={**clean, "no_proxy": "*", **env}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stderr


GITHUB_TOKEN, GITLAB_TOKEN = {"GITHUB_TOKEN": "t"}, {"LAB_CI_TOKEN": "t"}
MARK = "<!-- kernel-ab-lab kernel -->"


def test_a_comment_on_github_replaces_that_of_the_last_run(tmp_path: Path, forge: tuple[type[Forge], str]) -> None:
    own, address = forge
    env = {"GITHUB_ACTIONS": "true", "GITHUB_API_URL": address, "GITHUB_REPOSITORY": "a/b"} | GITHUB_TOKEN
    env["PULL_REQUEST"] = "5"
    own.comments = [
        {"id": 1, "user": {"type": "User"}, "body": f"{MARK}\nspoofed"},
        {"id": 2, "user": {"type": "Bot"}, "body": "<!-- kernel-ab-lab other -->"},
    ]
    assert comment(tmp_path, "kernel", **env) == ""
    assert own.wrote == [("POST /repos/a/b/issues/5/comments", f"{MARK}\nwhat was found\n")]
    own.comments.append({"id": 3, "user": {"type": "Bot"}, "body": f"{MARK}\nold"})
    comment(tmp_path, "kernel", **env)
    assert own.wrote[1:] == [("PATCH /repos/a/b/issues/comments/3", f"{MARK}\nwhat was found\n")]


def test_a_comment_on_gitlab_replaces_ones_own(tmp_path: Path, forge: tuple[type[Forge], str]) -> None:
    own, address = forge
    env = {"GITLAB_CI": "true", "CI_API_V4_URL": address, "CI_PROJECT_ID": "3", "CI_MERGE_REQUEST_IID": "4"}
    assert "no LAB_CI_TOKEN" in comment(tmp_path, "kernel", **env) and own.wrote == []
    own.comments = [{"id": 1, "author": {"id": 8}, "body": MARK}]
    comment(tmp_path, "kernel", **env, **GITLAB_TOKEN)
    own.comments.append({"id": 2, "author": {"id": 7}, "body": MARK})
    comment(tmp_path, "kernel", **env, **GITLAB_TOKEN)
    notes = "/projects/3/merge_requests/4/notes"
    assert [where for where, _ in own.wrote] == [f"POST {notes}", f"PUT {notes}/2"]


def test_a_comment_that_cannot_be_written_is_no_failure(tmp_path: Path, forge: tuple[type[Forge], str]) -> None:
    own, address = forge
    own.broken = True
    env = {"GITHUB_ACTIONS": "true", "GITHUB_API_URL": address, "GITHUB_REPOSITORY": "a/b", "PULL_REQUEST": "5"}
    assert "there is no token" in comment(tmp_path, "kernel", **env)
    assert "HTTPError" in comment(tmp_path, "kernel", **env, **GITHUB_TOKEN)
    assert "no pipeline" in comment(tmp_path, "kernel")
