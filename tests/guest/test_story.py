"""The main job on real kernels: commits that are known to change things, and cases that must not change."""

import pytest

from .conftest import BASE, FIX, TEST, Lab, verdicts

pytestmark = [pytest.mark.guest, pytest.mark.build]


def test_the_fix_brings_all_back_but_alternating_sizes(story: Lab) -> None:
    cases = "alloc-burst:layout-4632k,layout-3072k,alternate-2048k-1400k,alternate-4096k-4632k"
    found = verdicts(story.ab(TEST, FIX, "-w", cases))
    assert found["layout-4632k"] == found["layout-3072k"] == "improvement"
    assert found["alternate-2048k-1400k"] == found["alternate-4096k-4632k"] == "same"
    fixed = verdicts(story.ab(BASE, FIX, "-w", cases))
    assert fixed["layout-4632k"] == fixed["layout-3072k"] == "same"
    assert fixed["alternate-2048k-1400k"] == "regression"
