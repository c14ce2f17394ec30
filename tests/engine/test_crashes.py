"""A run that dies anywhere ends as one that never died."""

from __future__ import annotations

import random

import pytest

from beamweaver.limits import DEFAULT_LIMITS, Limits
from tests.engine.generator import plan_of, run_plan
from tests.engine.modelled import run_model

FAST, SLOW = 120, 1_200


def crash(seed, *, points, limits=DEFAULT_LIMITS):
    """Crash the plan of a seed at so many of its commits, before or after they are written."""
    plan = plan_of(seed)
    clean = run_plan(plan, limits=limits)
    assert clean.faults == [], f"seed {seed}: {clean.faults}"
    expected = run_model(plan)
    assert clean.machine.state.values == expected.values, f"seed {seed}"
    assert clean.machine.state.step.number == expected.next_number, f"seed {seed}"
    places = [(at, written) for at in range(len(clean.commits)) for written in (False, True)]
    if points < len(places):
        places = random.Random(seed).sample(places, points)
    for at, written in places:
        where = f"seed {seed}, crash {'after' if written else 'before'} commit {at}"
        crashed = run_plan(plan, crash_at=at, written=written, limits=limits)
        assert crashed.values == clean.values, where
        assert crashed.faults == [], where
        assert crashed.machine.state.step.number == clean.machine.state.step.number, where


@pytest.mark.parametrize("seed", range(FAST))
def test_a_run_that_dies_ends_as_the_clean_one(seed):
    crash(seed, points=3)


@pytest.mark.parametrize("seed", range(1_200, 1_260))
def test_a_run_whose_steps_are_stored_as_what_they_added_does_too(seed):
    crash(seed, points=3, limits=Limits(value_bytes_whole=0))


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("block", range(0, 60, 10))
def test_a_run_that_dies_at_any_commit_ends_as_the_clean_one(block):
    for seed in range(block, block + 10):
        crash(seed, points=1_000_000)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("block", range(FAST, SLOW, 90))
def test_each_of_a_thousand_runs_that_die_ends_as_the_clean_one(block):
    for seed in range(block, block + 90):
        crash(seed, points=1)


@pytest.mark.parametrize("seed", range(50))
def test_the_order_of_completion_changes_nothing(seed):
    plan = plan_of(seed)
    clean = run_plan(plan)
    for order in range(3):
        other = run_plan(plan, order=order)
        where = f"seed {seed}, order {order}"
        assert other.values == clean.values, where
        assert other.faults == [], where


@pytest.mark.parametrize("seed", range(50))
def test_a_run_that_dies_in_any_order_of_completion_ends_as_the_clean_one(seed):
    plan = plan_of(seed)
    clean = run_plan(plan)
    rng = random.Random(seed)
    for _time in range(3):
        order, at = rng.randrange(1_000), rng.randrange(len(clean.commits))
        crashed = run_plan(plan, order=order, crash_at=at, written=rng.random() < 0.5)
        where = f"seed {seed}, order {order}, crash at commit {at}"
        assert crashed.values == clean.values, where
        assert crashed.faults == [], where
