"""Hundreds of histories drawn from seeds: kills, faults and deaths of the process among random calls."""

from __future__ import annotations

import pytest

from tests.runtime.schedules import World


def judged(seed: int, **options: int) -> None:
    world = World(seed, **options)
    try:
        world.run()
        world.judge()
    finally:
        world.close()


@pytest.mark.parametrize("seed", range(150))
def test_killed_actors_and_faults_change_nothing_of_how_threads_end(seed):
    judged(seed, kills=8)


@pytest.mark.parametrize("seed", range(150))
def test_nor_do_deaths_of_the_process(seed):
    judged(seed, kills=6, deaths=3)


HUNG = (
    33,
    113,
    364,
    408,
    414,
    428,
    474,
    505,
    697,
    847,
    944,
    1042,
    1138,
    1210,
    1235,
    1445,
    1578,
    1821,
)
"""Seeds in which a caller was never answered, before what they found was mended."""


@pytest.mark.parametrize("seed", HUNG)
def test_nobody_waits_for_ever_where_somebody_did(seed):
    judged(seed, kills=8)
    judged(seed, kills=6, deaths=3)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(1_000, 3_000, 100))
def test_a_hundred_more_histories(first):
    for seed in range(first, first + 100):
        judged(seed, kills=8 if seed % 2 else 6, deaths=0 if seed % 2 else 3)
