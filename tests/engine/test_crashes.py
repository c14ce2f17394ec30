"""A run that dies anywhere ends as one that never died."""

from __future__ import annotations

import random

import pytest

from beamweaver.limits import DEFAULT_LIMITS, Limits
from tests.engine.crashing import ALL, crash_plan
from tests.engine.generator import plan_of, run_plan

FAST, SLOW, EACH = 200, 1_400, 120


def crash(seed, *, points, limits=DEFAULT_LIMITS):
    """Crash the plan of a seed all along, and at so many of its commits, before or after they are written."""
    crash_plan(plan_of(seed), points=points, limits=limits, thorough=points == ALL)


@pytest.mark.parametrize("seed", range(FAST))
def test_a_run_that_dies_ends_as_the_clean_one(seed):
    crash(seed, points=3)


@pytest.mark.parametrize("seed", range(1_400, 1_480))
def test_a_run_whose_steps_are_stored_as_what_they_added_does_too(seed):
    crash(seed, points=3, limits=Limits(value_bytes_whole=0))


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("block", range(0, EACH, 20))
def test_a_run_that_dies_at_any_commit_ends_as_the_clean_one(block):
    for seed in range(block, block + 20):
        crash(seed, points=ALL)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("block", range(FAST, SLOW, 100))
def test_each_of_a_thousand_runs_that_die_ends_as_the_clean_one(block):
    for seed in range(block, block + 100):
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
