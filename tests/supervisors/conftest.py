"""Fixtures of the tests of `supervisors`: a world on the pool, and one in the simulation."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from supervisors import PoolScheduler
from supervisors.testing import DeterministicScheduler
from tests.supervisors.world import World, worlds


@pytest.fixture(params=["pool", "simulated"])
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    """A world, twice: on real workers, and simulated from a seed."""
    scheduler = PoolScheduler() if request.param == "pool" else DeterministicScheduler(seed=11)
    yield from worlds(scheduler)


@pytest.fixture
def pool() -> Iterator[World]:
    """A world on real workers."""
    yield from worlds(PoolScheduler())


@pytest.fixture
def simulated() -> Iterator[World]:
    """A world in a simulation."""
    yield from worlds(DeterministicScheduler(seed=23))
