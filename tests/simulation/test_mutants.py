"""The checkers bite: each deliberate fault in the product is found by the history of a recorded seed."""

from __future__ import annotations

import pytest

from tests.simulation.config import Config
from tests.simulation.mutants import MUTANTS, found
from tests.simulation.shrink import failure_of, shrink


@pytest.mark.slow
@pytest.mark.timeout(60)
@pytest.mark.parametrize(("name", "seed"), found().items())
def test_a_deliberate_fault_is_found(name, seed):
    with MUTANTS[name]():
        assert failure_of(Config.drawn(seed)) is not None, f"seed {seed} does not find it any more"


@pytest.mark.slow
@pytest.mark.parametrize("seed", sorted(set(found().values())))
def test_the_seed_finds_nothing_without_the_fault(seed):
    assert failure_of(Config.drawn(seed)) is None


def test_there_are_many_and_each_is_still_one():
    assert len(found()) >= 25
    assert found().keys() <= MUTANTS.keys()


def test_a_failing_configuration_is_made_smaller():
    small = shrink(Config.drawn(5), lambda config: config.threads > 1 or "drain" in config.weights)
    assert failing_parts(small) in ((2, 0), (1, 1))


def failing_parts(config):
    return config.threads, len([kind for kind in config.weights if kind == "drain"])
