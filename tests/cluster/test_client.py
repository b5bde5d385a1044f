"""A cluster of real processes with separate stores: the same numbers as without one, whatever becomes of them."""

import os
import re
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import dask
import pytest

from lab import cluster as lab_cluster
from lab.cli import main
from lab.cluster import client

from ..fakes import qemu as fakeqemu
from ..fakes.bisection import line
from ..fakes.bisector import Bisector, culprits
from ..fakes.cluster import TOP, Cluster, boot_really, running, started

TIMES = re.compile(rb'"(wall_s|started|seconds|at|run_s|build_s)": [^,\n]*|"seal":"[0-9a-f]*",')


@pytest.fixture
def bisector(bisector: Bisector, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bisector:
    """The command with kernels that are fakes, and a real way to guests of a QEMU that is one."""
    boot_really(tmp_path, monkeypatch)
    monkeypatch.setenv("FAKE_RUNS", str(tmp_path / "runs-done"))
    return bisector


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """One for all tests that do it no harm."""
    with running(tmp_path_factory.mktemp("machines") / "cluster", 2) as made:
        yield made


def documents(folder: Path) -> dict[str, bytes]:
    """Every record of a result but for its times, and the seals over them."""
    return {
        str(path.relative_to(folder)): TIMES.sub(b"", path.read_bytes())
        for path in sorted(folder.rglob("*.json*"))
        if "guests" not in path.parts
    }


@contextmanager
def beside(condition: Callable[[], bool], act: Callable[[], object]) -> Iterator[None]:
    """Something that happens while a command is at work, as soon as a condition holds."""
    over = threading.Event()

    def wait() -> None:
        while not over.wait(0.02):
            if condition():
                act()
                return

    thread = threading.Thread(target=wait)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def who_ran(cluster: Cluster) -> list[str]:
    """The worker of each guest that was begun."""
    return [text.split()[0] for text in cluster.runs.read_text().splitlines()] if cluster.runs.exists() else []


def compare(bisector: Bisector, folder: Path, ends: list[str], *more: str) -> int:
    return main.run(
        ["ab", "--base", ends[0], "--test", ends[-1], "--tree", str(bisector.tree), "--mode", "exact",
         "-w", bisector.workload.removesuffix(":large"), "--result", str(folder), "--json", *more]
    )  # fmt: skip


def compare_alone(bisector: Bisector, folder: Path, ends: list[str]) -> dict[str, bytes]:
    """The records of a comparison of eight seeds without a cluster; its folder makes way for another of its name."""
    assert compare(bisector, folder, ends, "--seeds", "8") == 0
    alone = documents(folder)
    folder.rename(folder.with_name("alone"))
    return alone


def test_a_comparison_by_two_workers_has_the_bytes_of_one_without(
    bisector: Bisector, cluster: Cluster, tmp_path: Path
) -> None:
    ends = line(bisector.tree, [100.0, 60.0])
    result = tmp_path / "result"
    alone = compare_alone(bisector, result, ends)
    local = (tmp_path / "runs-done").read_text()
    before = len(who_ran(cluster))
    assert compare(bisector, result, ends, "--seeds", "8", *cluster.options) == 0, bisector.capsys.readouterr().err
    assert documents(result) == alone and len(alone) > 16
    assert set(who_ran(cluster)) == {"worker-1", "worker-2"} and len(who_ran(cluster)) - before == 16
    assert (tmp_path / "runs-done").read_text() == local, "and none here"
    assert len(list((result / "guests").glob("*/report.jsonl"))) == 16
    assert "2 of 2 workers match" in bisector.capsys.readouterr().err


def test_a_worker_that_is_killed_in_the_middle_loses_nothing(bisector: Bisector, tmp_path: Path) -> None:
    ends = line(bisector.tree, [100.0, 60.0])
    result = tmp_path / "result"
    alone = compare_alone(bisector, result, ends)
    local = (tmp_path / "runs-done").read_text()
    with running(tmp_path / "cluster", 2, FAKE_RUN_S="0.4") as cluster:
        with beside(lambda: "worker-1" in who_ran(cluster)[2:], lambda: cluster.kill("worker-1")):
            status = compare(bisector, result, ends, "--seeds", "8", *cluster.options)
        assert status == 0, bisector.capsys.readouterr().err
    assert documents(result) == alone
    assert len(who_ran(cluster)) == 17, "the guest that died with it was run again, and no other"
    assert (tmp_path / "runs-done").read_text() == local


@pytest.mark.usefixtures("interruptible")
@pytest.mark.parametrize("how", ["no worker is left", "Ctrl-C"])
def test_a_command_that_was_stopped_keeps_what_was_measured_and_goes_on_without_a_cluster(
    bisector: Bisector, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    monkeypatch.setattr(client, "_POLL_S", 0.2)
    monkeypatch.setattr(client, "_WAIT_S", 1.0)
    ends = line(bisector.tree, [100.0, 60.0])
    result = tmp_path / "result"
    with running(tmp_path / "cluster", 1, FAKE_RUN_S="0.3") as cluster:

        def stop() -> None:
            if how == "Ctrl-C":
                signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
            else:
                cluster.kill("worker-1")

        with beside(lambda: len(list(result.glob("runs/*.json"))) >= 2, stop):
            status = compare(bisector, result, ends, "--seeds", "8", *cluster.options)
    said = bisector.capsys.readouterr().err
    assert status == (130 if how == "Ctrl-C" else 4), said
    assert how == "Ctrl-C" or how in said
    kept = {path: path.read_bytes() for path in (result / "runs").iterdir()}
    assert 2 <= len(kept) < 16 and f"{len(kept)} runs are kept" in said
    assert main.run(["ab", "--resume", str(result)]) == 0
    assert len(list((result / "runs").iterdir())) == 16
    assert {path: path.read_bytes() for path in kept} == kept


@pytest.mark.long
def test_a_bisection_by_two_workers_needs_fewer_rounds_and_says_the_same(
    bisector: Bisector, cluster: Cluster, tmp_path: Path
) -> None:
    commits = line(bisector.tree, [100.0] * 40 + [60.0] * 25)
    alone = bisector.search(commits[0], commits[-1])
    assert culprits(alone) == [commits[40]] and alone.candidates == 64 and alone.measured == 6
    together = bisector.search(commits[0], commits[-1], *cluster.options)
    assert culprits(together) == culprits(alone)
    found, expected = together.changes[0], alone.changes[0]
    assert found.effect == expected.effect and found.confidence == expected.confidence
    assert found.proof and expected.proof and found.proof.fresh == expected.proof.fresh
    rounds = re.findall(r"^\d+ commits at once", bisector.said, re.MULTILINE)
    assert len(rounds) == 4 and 6 < together.measured <= 8
    assert "--cluster" not in together.reproduce


def test_a_kernel_that_panics_elsewhere_is_untestable_here(bisector: Bisector, cluster: Cluster) -> None:
    commits = line(bisector.tree, [100.0, 100.0, "panic", 100.0, 60.0, 60.0])
    answer = bisector.search(commits[0], commits[-1], *cluster.options)
    assert culprits(answer) == [commits[4]]
    (skipped,) = answer.skipped
    assert skipped.commit == commits[2] and skipped.decision == "untestable: panic"
    assert skipped.log and "Oh dear" in Path(skipped.log).read_text(), "its console is here"


@pytest.mark.long
def test_workers_that_would_give_other_numbers_are_left_out(bisector: Bisector, tmp_path: Path) -> None:
    ends = line(bisector.tree, [100.0, 60.0])
    # The same path leads to another QEMU on that machine.
    program = tmp_path / "qemu-system-x86_64"
    program.write_text(
        f'#!/bin/sh\n[ "$FAKE_NAME" = worker-2 ] && version=10.0.2 || version={fakeqemu.VERSION}\n'
        + program.read_text().splitlines()[-1].replace(f" {fakeqemu.VERSION} ", " $version ")
        + "\n"
    )
    with running(tmp_path / "cluster", 2) as cluster:
        assert compare(bisector, tmp_path / "result", ends, "--seeds", "3", *cluster.options) == 0
        said = bisector.capsys.readouterr().err
        assert "left out: differs in QEMU (10.0.2 there, 7.2.22 here)" in said and "1 of 2 workers match" in said
        assert set(who_ran(cluster)) == {"worker-1"}
        cluster.kill("worker-1")
        assert compare(bisector, tmp_path / "second", ends, "--seeds", "3", *cluster.options) == 4
        assert "none of the cluster's 1 workers gives the same numbers" in bisector.capsys.readouterr().err


@pytest.mark.parametrize(("words", "complaint"), [
    ("tcp://127.0.0.1:1", "--cluster needs --share"),
    ("tcp://127.0.0.1:1 --share nonsense://x", "--share nonsense://x"),
    ("nonsense --share /net/lab", "missing port number in address 'nonsense'"),
    ("http://x:1 --share /net/lab", "unknown address scheme 'http'"),
    ("tcp://127.0.0.1:1 --share /net/lab --mode live", "live mode measures on this host"),
])  # fmt: skip
def test_what_cannot_be_is_refused_before_any_work(bisector: Bisector, words: str, complaint: str) -> None:
    base, test = line(bisector.tree, [100.0, 60.0])
    asked = ["--tree", str(bisector.tree), "--cluster", *words.split()]
    status = main.run(["ab", "--base", base, "--test", test, *asked])
    assert status == 2 and complaint in bisector.capsys.readouterr().err


# ---- TLS


def _certificate(folder: Path, name: str) -> dict[str, str]:
    """A certificate that signs itself, as dask's settings name it: each end trusts that one alone."""
    key, certificate = folder / f"{name}.key", folder / f"{name}.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
         "-subj", "/CN=lab", "-keyout", key, "-out", certificate],
        check=True, capture_output=True,
    )  # fmt: skip
    ends = {
        f"{end}.{part}": str(path)
        for end in ("scheduler", "worker", "client")
        for part, path in (("key", key), ("cert", certificate))
    }
    settings = {"ca-file": str(certificate), **ends}
    return {f"distributed.comm.tls.{name}": path for name, path in settings.items()}


@pytest.mark.long
def test_a_cluster_by_tls_serves_those_with_its_certificate_and_nobody_else(
    bisector: Bisector, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ends, result = line(bisector.tree, [100.0, 60.0]), tmp_path / "result"
    alone = compare_alone(bisector, result, ends)
    own, foreign = (_certificate(tmp_path, name) for name in ("own", "foreign"))
    variables = {f"DASK_{name.upper().replace('.', '__').replace('-', '_')}": path for name, path in own.items()}
    environment = {**os.environ, "PYTHONPATH": str(TOP), **variables}
    cluster = Cluster(tmp_path / "cluster", environment=environment, protocol="tls")
    with started(cluster, 1):
        assert cluster.address.startswith("tls://")
        with dask.config.set(own):
            assert compare(bisector, result, ends, "--seeds", "8", *cluster.options) == 0, bisector.capsys.readouterr()
        assert documents(result) == alone
        monkeypatch.setattr(lab_cluster, "_TIMEOUT_S", 3)
        for settings, address in (
            (foreign, cluster.address),
            ({}, cluster.address),
            ({}, cluster.address.replace("tls://", "tcp://")),
        ):
            bisector.capsys.readouterr()
            with dask.config.set(settings):
                words = ["--cluster", address, "--share", str(tmp_path / "cluster" / "share")]
                assert compare(bisector, tmp_path / "refused", ends, "--seeds", "8", *words) == 4
            said = bisector.capsys.readouterr().err
            (complaint,) = [line for line in said.splitlines() if line.startswith("lab: ")]
            assert address in complaint and "Traceback" not in said
