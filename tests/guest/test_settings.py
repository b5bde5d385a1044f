"""Settings in real guests of a distributor's kernel: one of each is in force, or is refused in the right words."""

from pathlib import Path

import pytest

from lab.guests import hardware

from ..fakes.processes import program
from .conftest import NEW, OLD, Lab, metrics

pytestmark = [pytest.mark.guest]

SEEN = """\
group=$(sed -n 's/^0:://p' /proc/self/cgroup)
max=$(cat "/sys/fs/cgroup$group/memory.max" 2>/dev/null || echo 0)
cpu=$(cut -d ' ' -f 1 "/sys/fs/cgroup$group/cpu.max" 2>/dev/null || echo 0)
landlock=$(grep -c landlock /sys/kernel/security/lsm 2>/dev/null)
yama=$(grep -c yama /sys/kernel/security/lsm 2>/dev/null)
mitigated=$(grep -c Mitigation /sys/devices/system/cpu/vulnerabilities/spectre_v1)
delayed=$(grep -cw DELAY_DEQUEUE /sys/kernel/debug/sched/features)
full=$(grep -c '(full)' /sys/kernel/debug/sched/preempt)
printf '{"metrics": {"max": %s, "cpu": %s, "landlock": %s, "yama": %s, "mitigated": %s, "delayed": %s, "full": %s}}' \\
    "$max" "$cpu" "${landlock:-0}" "${yama:-0}" "$mitigated" "$delayed" "$full"
"""
SETTINGS = (
    "cgroup.memory.max=96M,cgroup.cpu.max=50000 100000,sched_feat.NO_DELAY_DEQUEUE,debugfs.sched/preempt=full,"
    "lsm=landlock,lockdown,mitigations=auto"
)


@pytest.fixture
def seen(lab: Lab) -> Path:
    return program(lab.home / "seen.sh", SEEN)


@pytest.mark.smoke
def test_one_of_each_setting_is_in_force(lab: Lab, seen: Path) -> None:
    document = lab.ab(f"{NEW}@mitigations=off", f"{NEW}@{SETTINGS}", "--seeds", "1", "-w", f"script:{seen}")
    found = {name: (*metric["base"], *metric["test"]) for name, metric in metrics(document).items()}
    expected = {
        "max": (0, 96 << 20), "cpu": (0, 50_000), "landlock": (0, 1), "yama": (0, 0),
        "mitigated": (0, 1), "delayed": (1, 0), "full": (0, 1),
    }  # fmt: skip
    assert {name: found[name] for name in expected} == expected


@pytest.mark.parametrize(
    ("setting", "why"),
    [
        pytest.param(
            "sched_feat.NO_SUCH_THING",
            "sched_feat.SUCH_THING=0: /sys/kernel/debug/sched/features: Invalid argument",
            marks=pytest.mark.smoke,
        ),
        ("debugfs.sched/nothing=1", "/sys/kernel/debug/sched/nothing: No such file"),
        ("cgroup.memory.max=97M1", "/sys/fs/cgroup/lab/memory.max: Invalid argument"),
        ("cgroup.memory.max=5000", "cgroup.memory.max=5000: reads back as '4096'"),
        ("cgroup.nothing.max=1", "the kernel has no cgroup v2 controller 'nothing', only '"),
        ("lsm=landlock,nothing", "cmdline.lsm=landlock,nothing: reads back as '"),
    ],
)
def test_what_a_kernel_does_not_do_is_refused(lab: Lab, seen: Path, setting: str, why: str) -> None:
    spec = f"{NEW}@{setting}"
    said = lab.refused(4, "ab", "--base", spec, "--test", spec, "--seeds", "1", "-w", f"script:{seen}")
    assert "the guest refused the setting" in said and why in said


@pytest.mark.parametrize("machine", hardware.names())
def test_a_kernel_that_takes_its_cpu_from_the_command_line_believes_in_the_machine(lab: Lab, machine: str) -> None:
    """Since commit 814165e9fd1f ("x86/cpu: Add the 'setcpuid=' boot parameter") (in v6.15)."""
    mitigated = "deb:7.1@mitigations=auto"
    document = lab.ab("deb:7.1", mitigated, "--machine", machine, "-w", "syscalls:getppid")
    primary = document["cases"][0]["metrics"][0]
    assert not any("believes" in line for line in document["remarks"])
    if machine == "zen4":  # by safe returns
        assert primary["verdict"] == "regression" and primary["ratio"] > 1.5, primary
    else:
        assert primary["verdict"] == "unknown" and abs(primary["ratio"] - 1) < 0.02, primary
        assert "no model counts what bhi: bhi_dis_s, enhanced / automatic ibrs cost" in primary["reason"]


@pytest.mark.parametrize("base", [OLD, NEW])
def test_a_kernel_that_believes_in_another_cpu_says_so_and_gives_no_word(lab: Lab, base: str) -> None:
    document = lab.ab(base, f"{base}@mitigations=auto", "-w", "syscalls:getppid")
    primary = document["cases"][0]["metrics"][0]
    assert document["verdict"] == "unknown"
    assert primary["reason"] == "test believes in another CPU than sapphire-rapids: spec_store_bypass, spectre_v2"
    assert any("spectre_v2 is 'Mitigation: Retpolines" in line for line in document["remarks"])


def test_a_program_that_needs_more_than_its_cgroup_gives_is_killed(lab: Lab, seen: Path) -> None:
    words = ("ab", "--base", NEW, "--test", f"{NEW}@cgroup.memory.max=256K", "--seeds", "1", "-w", f"script:{seen}")
    assert "its cgroup ran out of memory" in lab.refused(4, *words)


MOUNTED = """\
set -e
there=$(grep ' /tmp ' /proc/mounts | tail -n 1 | cut -d ' ' -f 3)
place=0
for kind in btrfs ext4 tmpfs xfs none; do
    [ "$kind" = "$there" ] && break
    place=$((place + 1))
done
echo kept > /tmp/file
sync
printf '{"metrics": {"place": %s, "kept": %s}}' "$place" "$(grep -c kept /tmp/file)"
"""


@pytest.mark.parametrize(("base", "test"), [("deb:6.1@mount.fs=ext4", "deb:trixie/6.12@mount.fs=xfs"), (
    f"{NEW}@mount.fs=btrfs", f"{NEW}@mount.fs=tmpfs"
)])  # fmt: skip
def test_a_file_system_is_mounted_where_programs_write(lab: Lab, base: str, test: str) -> None:
    script = program(lab.home / "mounted.sh", MOUNTED)
    document = lab.ab(base, test, "--seeds", "1", "-w", f"script:{script}")
    found = {name: (*metric["base"], *metric["test"]) for name, metric in metrics(document).items()}
    kinds = ["btrfs", "ext4", "tmpfs", "xfs"]
    assert found["place"] == tuple(kinds.index(spec.rpartition("=")[2]) for spec in (base, test))
    assert found["kept"] == (1, 1)
    rows = lab.json("explain", document["result"])["rows"]
    for arm, spec in (("base", base), ("test", test)):
        kind = spec.rpartition("=")[2]
        names = {row["name"] for row in rows if row[f"{arm}_instructions"]}
        assert any(name.startswith(f"{kind}_" if kind != "tmpfs" else "shmem_") for name in names), names
        assert "[unknown kernel]" not in names
