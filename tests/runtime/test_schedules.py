"""Hundreds of histories drawn from seeds: kills, faults, drains and deaths among random calls."""

from __future__ import annotations

import random
import threading

import pytest

from beamweaver import Continue, Invoke, Runtime
from beamweaver.events import RunEnded
from beamweaver.limits import Limits
from beamweaver.runtime.context import current_context
from supervisors import KILLED
from tests.runtime.kit import PATIENCE, SIX, Caller, Oracle, six
from tests.runtime.schedules import World, cells_of


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


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("idle", [0, 50])
def test_on_real_workers_a_storm_of_kills_leaves_no_caller_without_its_outcome(store, seed, idle):
    rng, stop, wrong, again = random.Random(seed), threading.Event(), [], []
    oracle = Oracle()

    def watched(name, fn):
        # Bodies look, not listeners: an actor that was killed in its slice may be held up in one for a while.
        def body(state):
            task = (current_context().thread_id, current_context().task_id)
            if task in oracle.acknowledged:
                again.append((name, *task))
            return fn(state)

        return body

    limits = Limits(crashes_without_commit=1_000_000, threads_idle=idle, threads_running=3)

    def client(number):
        calls = 0
        while not stop.is_set():
            calls += 1
            thread = runtime.thread(f"t{number}-{calls}")
            if calls % 3 == 0:
                thread.tell(Invoke({"n": number}))
            message = Continue() if calls % 3 == 0 else Invoke({"n": number})
            state = thread.ask(message, timeout=PATIENCE).state
            if state["log"] != SIX:
                wrong.append(state)

    app = six(watched).compile()
    with Runtime(store, graphs=[app], limits=limits, max_restarts=1_000_000) as runtime:
        runtime.subscribe(oracle)
        clients = [Caller(client, number) for number in range(10)]
        for kill in range(60):
            oracle.wait(RunEnded, count=1 + 3 * kill)
            parts = cells_of(runtime._core._root.cell)
            threads = [cell for part in parts for cell in list(cells_of(part))]
            runtime._core.system.exit(rng.choice([*parts, *threads]), KILLED)
        stop.set()
        for one in clients:
            one.join()
        assert (wrong, again) == ([], []), f"seed {seed}"
