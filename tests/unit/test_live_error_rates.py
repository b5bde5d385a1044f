"""How often the verdict of live mode is wrong, and what it finds, through the code that decides (`Rounds`).

`make bench-verdict` prints the full tables; these are fewer and shorter comparisons with bounds that would not hold
if boots were not what is sampled.
"""

from __future__ import annotations

from ..simulation.comparisons import Design, Noise, figures, many

NOISE = Noise()


def test_kernels_that_are_alike_are_hardly_ever_called_different_and_pooling_fails_this() -> None:
    """200 comparisons of 4 metrics, looked at after every block; at most 1 % of them may be wrong in any metric."""
    found = figures(many(NOISE, Design(metrics=4, max_blocks=10, fixed_iterations=5), 200, seed=11))
    assert found.wrong <= 1.0
    assert found.ever <= 2.0
    # The reason for all this: the test that everybody does, at the same 1 % for each metric, over the same numbers.
    assert found.naive_1 > 10.0
    assert found.naive_5 > 30.0


def test_a_change_as_large_as_the_noise_is_found_with_boots_enough() -> None:
    """Bounds three standard errors below what `make bench-verdict` prints."""
    large = figures(many(Noise(effect=2.0), Design(max_blocks=200, budget_s=600.0), 60, seed=12))
    assert large.found >= 90.0
    assert large.seconds < 450.0
    planned = Design(max_blocks=200, budget_s=600.0, alpha=0.05)
    assert figures(many(Noise(effect=1.0), planned, 60, seed=13)).found >= 40.0


def test_duets_find_more_in_the_same_time() -> None:
    """Both arms at the same instant: the host's drift is in neither, and a block takes half the time."""
    design = Design(max_blocks=200, budget_s=400.0, alpha=0.05)
    alone, together = (figures(many(Noise(effect=1.0, duet=duet), design, 60, seed=14)).found for duet in (False, True))
    assert together > alone + 15.0
