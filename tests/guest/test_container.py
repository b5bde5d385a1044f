"""The container image, built and run without a registry: its base is a bootstrapped root of Debian."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab.guests.image import _APT, host_suite

from .conftest import CHECKOUT

pytestmark = [
    pytest.mark.guest,
    pytest.mark.network,
    pytest.mark.skipif(os.geteuid() != 0 or shutil.which("buildah") is None, reason="needs buildah, as root"),
]

CERTIFICATES = "/etc/ssl/certs/ca-certificates.crt"


class Buildah:
    """buildah with a store of its own, and without anything that a container inside a container would lack."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        store = ["--root", f"{folder}/root", "--runroot", f"{folder}/runroot", "--storage-driver", "vfs"]
        self._argv = ["buildah", *store]

    def __call__(self, command: str, *words: str | Path) -> str:
        argv = [*self._argv, command, *words]
        return subprocess.run(argv, check=True, stdout=subprocess.PIPE, text=True).stdout.strip()

    def lab(self, container: str, *words: str) -> str:
        """The output of the lab as an ordinary user without any capability."""
        home = self.folder / "home"
        home.mkdir(exist_ok=True)
        os.chown(home, 1000, 1000)
        user = ["--user=1000:1000", "--cap-drop=all"]
        return self("run", "--isolation=chroot", *user, f"--volume={home}:/home/lab", container, "--", "lab", *words)


@pytest.fixture(scope="module")
def buildah() -> Iterator[Buildah]:
    folder = Path(tempfile.mkdtemp(prefix="lab-container-", dir="/var/tmp"))
    folder.chmod(0o755)
    yield Buildah(folder)
    shutil.rmtree(folder)


@pytest.fixture(scope="module")
def container(buildah: Buildah) -> str:
    """A container of the image that the Containerfile describes."""
    base, context = buildah.folder / "base.tar", buildah.folder / "context"
    apt = [path for path in _APT if path.is_file()]
    subprocess.run(["mmdebstrap", "--quiet", "--variant=minbase", host_suite(), base, *apt], check=True)
    scratch = buildah("from", "scratch")
    buildah("add", "--quiet", scratch, base, "/")
    buildah("commit", "--quiet", "--rm", scratch, "localhost/base")
    base.unlink()

    context.mkdir()
    for name in ("Containerfile", ".dockerignore"):
        shutil.copy(CHECKOUT / name, context)
    pip = [sys.executable, "-m", "pip", "--quiet", "wheel", "--no-deps", "--wheel-dir", context / "dist"]
    subprocess.run([*pip, CHECKOUT], check=True)
    (buildah.folder / "pip.conf").write_text("[global]\ncert = /etc/host.crt\n")
    trusted = [f"--volume={CERTIFICATES}:/etc/host.crt:ro", f"--volume={buildah.folder}/pip.conf:/etc/pip.conf:ro"]
    buildah("build", "--isolation=chroot", "--build-arg=BASE=localhost/base", *trusted, "--tag=lab", context)
    return buildah("from", "localhost/lab")


def test_the_image_has_what_the_lab_needs(buildah: Buildah, container: str) -> None:
    settings = json.loads(buildah("inspect", "--type=image", "localhost/lab"))["OCIv1"]["config"]
    assert (settings["Entrypoint"], settings["Volumes"]) == (["lab"], {"/home/lab": {}})
    findings = {
        found["name"]: found["state"] for found in json.loads(buildah.lab(container, "doctor", "--json"))["findings"]
    }
    assert (findings["packages"], findings["exact mode"]) == ("ok", "ok")


def test_it_compares_kernels_without_privileges(buildah: Buildah, container: str) -> None:
    arms = ["--base", "deb:6.1", "--test", "deb:6.12", "--suite", "quick"]
    said = json.loads(buildah.lab(container, "ab", *arms, "--json"))
    assert (said["mode"], said["verdict"], len(said["cases"])) == ("exact", "regression", 20)
