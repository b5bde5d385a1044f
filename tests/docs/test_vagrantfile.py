"""The Vagrantfile: what it asks for, and that Vagrant takes it for both providers. No machine is started."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

TOP = Path(__file__).resolve().parents[2]

pytestmark = [
    pytest.mark.vagrant,
    pytest.mark.skipif(shutil.which("vagrant") is None, reason="vagrant is not installed, nor to be had from apt here"),
]

# Vagrant detects VirtualBox by this program's answer; it is not asked for more before a machine is started.
VBOXMANAGE = "#!/bin/sh\necho 7.0.20r163906\n"

# Stands in for Vagrant: prints every setting and every call as [name, arguments...].
RECORDER = """
require "json"
class Recorder
  def initialize(place, said) = (@place, @said = place, said)
  def respond_to_missing?(*) = true
  def method_missing(name, *words, **options)
    @said << [[*@place, name].join("."), *words, *(options.empty? ? [] : [options])] unless words.empty?
    inner = Recorder.new([*@place, name, *words.grep(String).first(1)], @said)
    yield inner if block_given?
    inner
  end
end
module Vagrant
  def self.configure(_)
    said = []
    yield Recorder.new([], said)
    puts JSON.generate(said)
  end
end
load ARGV.fetch(0)
"""


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


@pytest.mark.parametrize(
    ("provider", "right", "wrong"),
    [("libvirt", "libvirt.nested", "libvirt.nestd"), ("virtualbox", "virtualbox.memory", "virtualbox.memery")],
)
def test_vagrant_would_notice_a_mistake(folder: Path, provider: str, right: str, wrong: str) -> None:
    text = (folder / "Vagrantfile").read_text()
    assert right in text
    (folder / "Vagrantfile").write_text(text.replace(right, wrong))
    done = _validated(folder, provider)
    assert done.returncode != 0
    assert wrong.partition(".")[2] in done.stdout + done.stderr


def _asked_for(folder: Path, **environment: str) -> list[Any]:
    script = folder / "recorder.rb"
    script.write_text(RECORDER)
    done = subprocess.run(
        ["ruby", "-W", str(script), str(TOP / "Vagrantfile")],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=True,
    )
    found: list[Any] = json.loads(done.stdout)
    return found


@pytest.mark.skipif(shutil.which("ruby") is None, reason="ruby is not installed")
def test_what_it_asks_for(tmp_path: Path) -> None:
    said = _asked_for(tmp_path, LAB_VM_CPUS="6")
    assert ["vm.box=", "debian/bookworm64"] in said
    assert ["vm.provider.libvirt.nested=", True] in said
    assert ["vm.provider.virtualbox.customize", ["modifyvm", "id", "--nested-hw-virt", "on"]] in said
    for provider in ("libvirt", "virtualbox"):
        assert [f"vm.provider.{provider}.cpus=", 6] in said
        assert [f"vm.provider.{provider}.memory=", 8192] in said


@pytest.mark.skipif(shutil.which("ruby") is None, reason="ruby is not installed")
def test_it_is_set_up_as_any_machine_by_the_same_roles(tmp_path: Path) -> None:
    said = _asked_for(tmp_path)
    (copied,) = [one for one in said if one[:3] == ["vm.synced_folder", ".", "/home/vagrant/lab"]]
    assert {".venv/", "build/"} <= set(copied[3]["rsync__exclude"])
    steps = {one[1]: one[2] for one in said if one[0] == "vm.provision"}
    assert list(steps) == ["packages", "setup", "bench"]
    assert steps["setup"] == {"type": "shell", "privileged": False, "inline": "make -C lab setup"}
    assert steps["bench"]["run"] == "always" and "lab doctor --fix" in steps["bench"]["inline"]
    makefile = (TOP / "Makefile").read_text()
    assert "setup: $(VENV)/host-ready" in makefile and "ansible/playbooks/host_ready.yml" in makefile
