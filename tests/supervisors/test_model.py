"""Trees beside their model, mutants that the model must catch, and storms."""

from __future__ import annotations

import pytest

from tests.soak.mutants import FOUND, MUTANTS, caught
from tests.supervisors.machine import drive
from tests.supervisors.model import history
from tests.supervisors.storms import storm
from tests.supervisors.storms_elsewhere import storm as storm_elsewhere


@pytest.mark.parametrize("block", range(10))
def test_trees_do_what_the_model_says(block):
    for seed in range(block * 20, block * 20 + 20):
        history(seed)


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_a_state_machine_finds_no_difference_in_5_000_steps():
    steps = 0
    while steps < 5_000:
        steps += drive(examples=50, seed=steps)


def test_each_mutant_has_a_recorded_seed():
    assert FOUND.keys() == MUTANTS.keys()


@pytest.mark.parametrize("mutant", MUTANTS)
def test_each_mutant_is_caught_by_its_recorded_seed(mutant):
    """Supervision 6.1.10: a decision that is turned round must be noticed."""
    assert caught(mutant, FOUND[mutant])


@pytest.mark.parametrize("block", range(5))
def test_a_storm_leaves_nothing_behind(block):
    for seed in range(block * 20, block * 20 + 20):
        storm(seed)


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_500_storms_leave_nothing_behind():
    for seed in range(1_000, 1_500):
        storm(seed)


@pytest.mark.parametrize("seed", range(3))
def test_a_storm_over_a_loop_and_threads_leaves_nothing_behind(seed):
    """Threads that raise fail it, too."""
    storm_elsewhere(seed, steps=25, processes=0)


@pytest.mark.slow
@pytest.mark.timeout(180)
@pytest.mark.parametrize("seed", range(100, 104))
def test_a_storm_over_processes_leaves_nothing_behind(seed):
    storm_elsewhere(seed)
