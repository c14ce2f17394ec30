"""Whole histories of the runtime, each drawn from one seed: every crash, nothing lost or done twice."""

from __future__ import annotations

import pytest

from tests.simulation.config import KINDS, Config
from tests.simulation.world import World, simulate

FAST, MODES = 60, 25
BLOCKS, BLOCK = 24, 50


@pytest.mark.parametrize("seed", range(FAST))
def test_whatever_goes_wrong_each_thread_ends_as_the_model_says(seed):
    simulate(seed)


@pytest.mark.parametrize("mode", ["async", "exit"])
@pytest.mark.parametrize("seed", range(200, 200 + MODES))
def test_so_it_does_within_the_promise_of_each_durability(seed, mode):
    simulate(seed, durability=mode)


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("block", range(BLOCKS))
def test_so_it_does_for_many_more_seeds(block):
    for seed in range(1_000 + block * BLOCK, 1_000 + (block + 1) * BLOCK):
        simulate(seed)


@pytest.mark.parametrize("seed", range(100, 106))
def test_one_seed_is_one_history(seed):
    assert simulate(seed).trace.digest == simulate(seed).trace.digest


def test_other_seeds_are_other_histories():
    assert len({simulate(seed).trace.digest for seed in range(5)}) == 5


def test_the_trace_begins_with_the_configuration():
    world = World(Config.drawn(7), keep=True)
    world.close()
    assert str(Config.drawn(7)) in world.trace.lines[0]


def test_the_configurations_of_many_seeds_have_every_kind_of_fault():
    drawn = {kind for seed in range(50) for kind in Config.drawn(seed).weights}
    assert drawn == set(KINDS)
