"""Running one of the lab's Ansible roles on folders of this machine, and reading what it wrote."""

import configparser
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

TOP = Path(__file__).resolve().parents[2]


def play(playbook: str, inventory: str, home: Path, values: dict[str, str]) -> int:
    """Run a playbook with these variables; how many tasks changed something, on all hosts together."""
    words = [word for name, value in values.items() for word in ("-e", f"{name}={value}")]
    env = {
        **os.environ, "ANSIBLE_ROLES_PATH": str(TOP / "ansible" / "roles"), "ANSIBLE_LOCALHOST_WARNING": "false",
        "ANSIBLE_HOME": str(home), "ANSIBLE_NOCOLOR": "1",
    }  # fmt: skip
    done = subprocess.run(
        [
            str(Path(sys.executable).parent / "ansible-playbook"), "-i", inventory, "-c", "local",
            "-e", f"ansible_python_interpreter={sys.executable}", *words, str(TOP / "ansible/playbooks" / playbook),
        ],
        env=env, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    found = re.findall(r"changed=(\d+)", done.stdout)
    assert found
    return sum(map(int, found))


def unit(path: Path) -> configparser.ConfigParser:
    parsed = configparser.ConfigParser(strict=False, interpolation=None)
    parsed.optionxform = str  # type: ignore[assignment,method-assign]
    assert parsed.read(path)
    return parsed


def require_valid(units: Sequence[Path]) -> None:
    """Have systemd look at units; the test is skipped where there is none."""
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd is not installed")
    done = subprocess.run(["systemd-analyze", "verify", *units], capture_output=True, text=True, check=False)
    own = [line for line in done.stderr.splitlines() if any(path.stem in line for path in units)]
    assert done.returncode == 0 and own == [], done.stderr
