"""The search of live mode as its driver meets it, and a few dozen simulated ones."""

import random

import pytest

from lab.bisection.acquisition import Costs
from lab.bisection.live_search import LiveSearch, NextBoots, Phase, Result, SearchOutcome, StoppingRules
from lab.stats.posterior import Belief, Image, Reading

from ..scenarios.simulation import searches
from ..scenarios.simulation.world import Noise, World

COSTS = Costs(120.0, 10.0)
Journal = list[Reading | int]


def drive(live: LiveSearch, world: World, journal: Journal | None = None, most: int = 10**6) -> NextBoots | Result:
    """Do what the search asks for, until it is done or that many things were recorded."""
    journal = [] if journal is None else journal
    while isinstance(step := live.next(), NextBoots):
        if not world.build(Image(step.commit)):
            live.skip(step.commit)
            journal.append(step.commit)
            continue
        for image in step.boots:
            if len(journal) >= most:
                return live.next()
            journal.append(booted(world, image))
            live.record(journal[-1])
    return step


def booted(world: World, image: Image) -> Reading:
    world.build(image)
    value = world.boot(image)
    return Reading(image.commit, world.now_s, value, image.layout)


def replay(live: LiveSearch, journal: Journal) -> LiveSearch:
    for event in journal:
        if isinstance(event, Reading):
            live.record(event)
        else:
            live.skip(event)
    return live


def ended(live: LiveSearch, world: World) -> Result:
    done = drive(live, world)
    assert isinstance(done, Result)
    return done


def quiet(commits: int = 64, **more: float) -> Noise:
    return Noise(**{"commits": commits, "effect": 3.0, "outliers": 0.0, **more})  # type: ignore[arg-type]


@pytest.mark.parametrize("cut", [1, 7, 20, 33, 47])
def test_a_journal_brings_back_any_search(cut: int) -> None:
    noise, journal = quiet(broken=0.2, effect=2.0), []  # type: ignore[var-annotated]
    whole = LiveSearch(64, costs=COSTS, seed=5)
    world = World(noise, (1, 3))
    done = drive(whole, world, journal)
    assert len(journal) > cut
    broken_off, again = LiveSearch(64, costs=COSTS, seed=5), World(noise, (1, 3))
    step = drive(broken_off, again, kept := [], most=cut)
    assert kept == journal[:cut]
    resumed = replay(LiveSearch(64, costs=COSTS, seed=5), kept)
    assert resumed.next() == step and resumed.outlook() == broken_off.outlook()
    assert drive(resumed, again) == done


def test_ends_that_are_alike_are_not_searched() -> None:
    world = World(quiet(effect=0.0), (1, 5))
    done = ended(LiveSearch(64, costs=COSTS, rules=StoppingRules(end_blocks=30)), world)
    assert done.outcome is SearchOutcome.NO_CULPRIT and done.suspects == ()
    assert world.built == {Image(0), Image(64)} and world.samples == 60


def test_a_commit_that_does_not_always_boot_is_left_out() -> None:
    world = World(quiet(effect=4.0), (1, 10))
    live = LiveSearch(64, costs=COSTS)
    while isinstance(step := live.next(), NextBoots) and step.phase is not Phase.CONFIRM:
        for image in step.boots:
            live.record(booted(world, image))
    assert isinstance(step, NextBoots)
    flaky = step.commit if step.commit != 64 else step.commit - 1
    live.skip(flaky)
    world.broken = frozenset({flaky})
    world.built = {image for image in world.built if image.commit != flaky}
    done = ended(live, world)
    assert world.culprit in done.suspects
    assert flaky not in (done.last_good, done.first_bad)
    assert all(reading.commit != flaky for reading in live.readings)


# ---- simulated searches; tests/scenarios/bench_search.py has many more


def test_simulated_searches_are_right_and_cheap() -> None:
    figures, _ = searches.many(Noise(commits=128, effect=2.0), StoppingRules(confirm_alpha=None), 16, seed=300)
    assert figures.right >= 80  # 97 expected; fewer than 13 of 16 then has a chance of .1 %
    assert figures.claimed >= 95
    assert figures.samples <= 105 and figures.builds <= 11


def test_levels_of_the_images_own_mislead_no_confirmed_search() -> None:
    # Boots of the same two images confirmed 86 wrong answers of 196 in such a world.
    noise = Noise(commits=128, effect=2.0, level_sd=0.6)
    figures, _ = searches.many(noise, StoppingRules(max_boots=250), 8, seed=303)
    assert figures.confirmed >= 3 and figures.misled <= 1


def test_an_a_a_of_builds_says_how_far_images_are_apart() -> None:
    """Few readings that show no levels: the usual prior soon has none, one that knows better still has them."""

    def belief(known: float | None) -> Belief:
        live = LiveSearch(64, costs=COSTS, rules=StoppingRules(layouts_sd=known))
        chance = random.Random(4)  # noqa: S311
        while isinstance(step := live.next(), NextBoots) and len(live.readings) < 14:
            (commit, layout), *_ = step.boots
            reading = (commit >= 20) + chance.gauss(0, 0.05)
            live.record(Reading(commit, 10.0 * len(live.readings), reading, layout))
        return live.belief

    assert belief(None).own_sd < 0.1 < 0.2 < belief(0.4).own_sd
    assert belief(0.0).own_sd == belief(None).own_sd
