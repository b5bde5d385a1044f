"""Live mode with real guests, by `--accel tcg`: its times mean nothing here, everything else about it is the same."""

import pytest

from .conftest import NEW, OLD, TEST, Lab

pytestmark = [pytest.mark.guest, pytest.mark.live]

LIVE = ("--mode", "live", "--accel", "tcg", "-w", "alloc-burst:layout-4632k")
COUNTERS = ("page_faults", "thp_fault_alloc", "vmas")


def test_counters_and_roots_are_those_of_exact_mode_and_both_arms_have_the_same_guest(lab: Lab) -> None:
    compared = lab.ab(OLD, NEW, *LIVE, "--rounds=2", "--iterations=2")
    exact = lab.ab(OLD, NEW, "-w", "alloc-burst:layout-4632k", "--seeds", "1", "--model", "none")
    found, counted = (
        {m["name"]: (m["base"][0], m["test"][0]) for m in document["cases"][0]["metrics"] if m["name"] in COUNTERS}
        for document in (compared, exact)
    )
    assert found == counted
    roots = [one["environment"]["guests"]["alloc-burst"]["initrd_sha256"] for one in (compared, exact)]
    assert roots[0] == roots[1], "without perf, the guest's root is that of exact mode to the byte"
    assert compared["live"]["perf"] is None
    base, test = (compared["live"]["commands"]["alloc-burst"][arm] for arm in ("base", "test"))
    assert base == test, "all that differs is behind the name of the kernel"
    assert base["vng"][:5] == ["vng", "--run", "./kernel", "--root", "./root"]
    assert "-S" in base["qemu"] and not any("netdev" in word for word in base["qemu"])


@pytest.mark.build
def test_a_command_in_a_kernel(story: Lab) -> None:
    done = story.run("shell", "--accel", "tcg", TEST, "--", "sh", "-c", "uname -r; ls /usr/bin/fio; exit 7")
    assert (done.returncode, done.stdout.split()) == (7, ["6.12.117", "/usr/bin/fio"]), done.stderr
    assert "needs a terminal" in story.refused(2, "shell", "--accel", "tcg", TEST)
