"""Hundreds of histories drawn from seeds: kills, faults, drains and deaths among random calls."""

from __future__ import annotations

import pytest

from tests.runtime.schedules import World


def judge(seed: int, *, drains: bool = False, **options: int) -> None:
    world = World(seed, **options)
    try:
        if drains:
            world.run_for_a_while(20 + seed % 7 * 40)
            world.drain()
        world.run()
        world.judge()
    finally:
        world.close()


@pytest.mark.parametrize("seed", range(120))
def test_killed_actors_and_faults_change_nothing_of_how_threads_end(seed):
    judge(seed, kills=8)


@pytest.mark.parametrize("seed", range(120))
def test_nor_do_deaths_of_the_process(seed):
    judge(seed, kills=6, deaths=3)


@pytest.mark.parametrize("seed", range(80))
def test_a_drain_answers_every_call_and_leaves_nothing_running_even_while_actors_die(seed):
    judge(seed, kills=8, drains=True)


@pytest.mark.parametrize("seed", [33, 113, 160, 338, 364, 414, 474, 944, 1578])
def test_nobody_waits_for_ever_where_somebody_once_did(seed):
    judge(seed, kills=8)
    judge(seed, kills=8, drains=True)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(1_000, 3_000, 100))
def test_a_hundred_more_histories(first):
    for seed in range(first, first + 100):
        judge(seed, kills=8 if seed % 2 else 6, deaths=0 if seed % 2 else 3, drains=not seed % 5)
