"""The Vagrantfile: what it asks for, and that Vagrant takes it for both providers. No machine is started."""

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


@pytest.mark.parametrize("provider", ["libvirt", "virtualbox"])
def test_vagrant_takes_it(tmp_path: Path, provider: str) -> None:
    def vagrant(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(["vagrant", *words], cwd=tmp_path, env=env, capture_output=True, text=True, check=False)

    shutil.copy(TOP / "Vagrantfile", tmp_path)
    (tmp_path / "VBoxManage").write_text(VBOXMANAGE)
    (tmp_path / "VBoxManage").chmod(0o755)
    env = {**os.environ, "HOME": str(tmp_path), "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    env |= {"VAGRANT_CHECKPOINT_DISABLE": "1", "VAGRANT_DEFAULT_PROVIDER": provider}
    if provider == "libvirt" and "vagrant-libvirt" not in vagrant("plugin", "list").stdout:
        pytest.skip("vagrant-libvirt is not installed")
    done = vagrant("validate")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "validated successfully" in done.stdout
