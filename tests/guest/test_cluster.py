"""Real guests by the workers of a cluster, each with a store of its own: the numbers are those of one machine."""

import re
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ..fakes.cluster import Cluster, started
from .conftest import NEW, OLD, Lab

pytestmark = pytest.mark.guest

WORDS = ("ab", "--base", OLD, "--test", NEW, "-w", "alloc-burst:layout-1024k,layout-4632k", "--seeds", "2")
TIMES = re.compile(rb'"wall_s": [^,\n]*|"seal":"[0-9a-f]*",')


@pytest.fixture
def cluster(lab: Lab) -> Iterator[Cluster]:
    """Two workers of the installed lab."""
    python, user = lab.command()[:-2], lab.user if lab.command()[0] == "setpriv" else None
    folder = lab.home / "cluster"
    with started(Cluster(folder, python, lab.environment(), user), 2) as made:
        yield made
    shutil.rmtree(folder)


def measured(folder: Path) -> dict[str, bytes]:
    """What every guest gave, without times, seals, and where it was run, which is in its command line."""
    records = (folder / "runs").iterdir()
    return {path.name: TIMES.sub(b"", path.read_bytes()).replace(str(folder).encode(), b"") for path in records}


def test_workers_give_the_bytes_of_one_machine_also_when_one_is_killed(lab: Lab, cluster: Cluster) -> None:
    alone, together, killed = (lab.home / f"cluster-{name}" for name in ("alone", "together", "killed"))
    assert lab.run(*WORDS, "--result", str(alone)).returncode == 0
    done = lab.run(*WORDS, "--result", str(together), *cluster.options)
    assert done.returncode == 0 and "2 of 2 workers match" in done.stderr
    assert measured(together) == measured(alone) and len(measured(alone)) == 4
    for name in ("worker-1", "worker-2"):
        assert list((cluster.folder / name).glob("cache/*/blobs/*")), f"{name} had a part in it"

    process = lab.start(*WORDS, "--result", str(killed), *cluster.options)
    while len(list(killed.glob("runs/*.json"))) < 2:
        assert process.poll() is None
        time.sleep(0.05)
    cluster.kill("worker-1")
    _, said = process.communicate()
    assert process.returncode == 0, said
    assert measured(killed) == measured(alone)
