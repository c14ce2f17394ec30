"""The random graphs bite: each deliberate fault in the engine is found by those of a recorded seed."""

from __future__ import annotations

import pytest

from tests.engine.mutants import MUTANTS, fails, found

MOST_GRAPHS = 2_000
GRAPHS_A_SEED = 3
"""One graph, one with graphs in it, and one in a history of calls."""


@pytest.mark.timeout(60)
@pytest.mark.parametrize(("name", "seed"), found().items())
def test_a_deliberate_fault_is_found(name, seed):
    with MUTANTS[name]():
        assert fails(seed), f"seed {seed} does not find it any more"


@pytest.mark.slow
@pytest.mark.parametrize("seed", sorted(set(found().values())))
def test_the_seed_finds_nothing_without_the_fault(seed):
    assert not fails(seed)


def test_each_is_found_within_two_thousand_graphs():
    assert found().keys() == MUTANTS.keys()
    assert len(MUTANTS) >= 10
    assert max(found().values()) < MOST_GRAPHS // GRAPHS_A_SEED
