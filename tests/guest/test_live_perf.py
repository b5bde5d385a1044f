"""perf in real guests of live mode, under TCG: what it counts without a PMU, and what it records."""

import pytest

from .conftest import NEW, Lab, metrics

pytestmark = [pytest.mark.guest, pytest.mark.live]

MEASURED = ("-w", "alloc-burst:layout-4632k", "--mode", "live", "--accel", "tcg", "--rounds", "1", "--iterations", "1")


def test_events_and_profiles_of_both_arms(lab: Lab) -> None:
    document = lab.ab(NEW, f"{NEW}@thp=never", *MEASURED, "--perf", "--perf-record")
    found = metrics(document)
    assert not found["perf-page-faults"]["primary"]
    for arm in ("base", "test"):
        # All of the program's faults, so at least those of the window that it counts itself.
        assert found["perf-page-faults"][arm][0] > found["page_faults"][arm][0]
        assert found["perf-task-clock"][arm][0] > 0
    # A fault for every small page, which no noise of an emulator can hide.
    assert found["perf-page-faults"]["test"][0] > 1.5 * found["perf-page-faults"]["base"][0]
    assert "perf-cycles" not in found
    assert document["live"]["perf"]["pmu"] is False
    profile = document["live"]["profiles"]["alloc-burst:layout-4632k"]
    assert profile["event"] == "cpu-clock" and min(profile["samples"]) > 20
    assert any(one["name"].startswith("clear_page") for one in profile["symbols"]), "most of the time goes there"
