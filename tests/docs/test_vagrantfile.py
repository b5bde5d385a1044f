"""The Vagrantfile: what it asks for, and that Vagrant takes it for both providers. No machine is started."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

TOP = Path(__file__).resolve().parents[2]

pytestmark = [
    pytest.mark.vagrant,
    pytest.mark.skipif(shutil.which("vagrant") is None, reason="vagrant is not installed, nor to be had from apt here"),
]

# Vagrant detects VirtualBox by this program's answer; it is not asked for more before a machine is started.
VBOXMANAGE = "#!/bin/sh\necho 7.0.20r163906\n"


def _vagrant(folder: Path, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["vagrant", *words],
        cwd=folder,
        env={**os.environ, "HOME": str(folder), "VAGRANT_CHECKPOINT_DISABLE": "1", **environment},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    shutil.copy(TOP / "Vagrantfile", tmp_path)
    fake = tmp_path / "bin" / "VBoxManage"
    fake.parent.mkdir()
    fake.write_text(VBOXMANAGE)
    fake.chmod(0o755)
    return tmp_path


def _validated(folder: Path, provider: str) -> subprocess.CompletedProcess[str]:
    if provider == "libvirt" and "vagrant-libvirt" not in _vagrant(folder, "plugin", "list").stdout:
        pytest.skip("vagrant-libvirt is not installed")
    path = f"{folder / 'bin'}:{os.environ['PATH']}"
    return _vagrant(folder, "validate", VAGRANT_DEFAULT_PROVIDER=provider, PATH=path)


@pytest.mark.parametrize("provider", ["libvirt", "virtualbox"])
def test_vagrant_takes_it(folder: Path, provider: str) -> None:
    done = _validated(folder, provider)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "validated successfully" in done.stdout
