"""Calling Ansible: what it is told arrives as it is, and its failures come back in its own words."""

import json
import os
import tempfile
from pathlib import Path

import pytest

from lab.core import ansible
from lab.core.ansible import PlaybookFailed
from lab.core.errors import HostFailed
from lab.guests import doctor

PLAYBOOK = """\
- name: Try
  hosts: localhost
  connection: local
  gather_facts: false
  tasks:
    - name: Keep what was said
      ansible.builtin.copy:
        content: "{{ {'words': words, 'tag': lookup('env', 'LAB_PLAY')} | to_json }}"
        dest: "{{ target }}"
        mode: "0644"
    - name: The task that fails
      ansible.builtin.command:
        argv: [sh, -c, "echo first >&2; echo the reason >&2; exit 3"]
      changed_when: true
"""


def test_words_arrive_as_they_are_and_a_failure_names_its_task(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = tmp_path / "ansible"
    (home / "playbooks").mkdir(parents=True)
    (home / "playbooks" / "try.yml").write_text(PLAYBOOK)
    monkeypatch.setenv("LAB_HOME", str(tmp_path))
    monkeypatch.setenv("LC_ALL", "xx_YY.UTF-8")  # no such locale
    # Where temporary files are is the user's choice, spaces and all.
    spaced = tmp_path / "my tmp"
    spaced.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(spaced))
    words = {
        "template": f"{{{{ lookup('pipe', 'touch {tmp_path}/canary') }}}}", "shell": f"$(touch {tmp_path}/canary)",
        "list": ["a b", "{% if %}", 1, 2.5, True, None], "text": "é \U0001f600 ' \" \\ \n#",
    }  # fmt: skip
    with pytest.raises(PlaybookFailed, match="try: The task that fails: the reason") as caught:
        ansible.play("try", {"words": words, "target": str(tmp_path / "said")}, tag="a tag")
    assert (caught.value.task, caught.value.detail) == ("The task that fails", "the reason")
    assert json.loads((tmp_path / "said").read_text()) == {"words": words, "tag": "a tag"}
    assert not (tmp_path / "canary").exists()
    assert not list(spaced.iterdir())


def test_a_system_without_pseudo_terminals_is_told_how_to_get_some(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> None:
        raise OSError("out of pty devices")

    monkeypatch.setattr(os, "openpty", refuse)
    with pytest.raises(HostFailed, match="no pseudo-terminal can be opened") as caught:
        ansible.play("gone", {})
    assert "mount -t devpts" in str(caught.value.hint)
    assert doctor._terminals().state == "missing"


def test_a_playbook_that_is_not_there_is_a_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAB_HOME", str(tmp_path))
    with pytest.raises(PlaybookFailed, match="gone: start: "):
        ansible.play("gone", {})


def test_ansible_comes_from_beside_the_labs_own_python() -> None:
    given = ansible._environment("/private")
    first = given["PATH"].split(os.pathsep)[0]
    assert (Path(first) / "ansible-playbook").exists()
    assert given["ANSIBLE_LOCAL_TEMP"] == "/private"
