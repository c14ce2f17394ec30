"""Fixtures of the tests of `supervisors`: a world on the pool, and one in the simulation."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from supervisors import PoolScheduler, Scheduler
from supervisors.testing import DeterministicScheduler
from supervisors.threads import ThreadScheduler
from tests.supervisors.world import World, worlds

_SCHEDULERS: dict[str, Callable[[], Scheduler]] = {
    "pool": PoolScheduler,
    "threads": ThreadScheduler,
    "simulated": lambda: DeterministicScheduler(seed=11),
}


@pytest.fixture(params=_SCHEDULERS)
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    """A world, thrice: on a pool, with a thread for each actor, and simulated from a seed."""
    yield from worlds(_SCHEDULERS[request.param]())


@pytest.fixture
def pool() -> Iterator[World]:
    """A world on real workers."""
    yield from worlds(PoolScheduler())


@pytest.fixture
def simulated() -> Iterator[World]:
    """A world in a simulation."""
    yield from worlds(DeterministicScheduler(seed=23))
