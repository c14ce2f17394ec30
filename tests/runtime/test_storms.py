"""A storm of kills on real workers; what seeds can draw is the matter of the simulation."""

from __future__ import annotations

import random
import threading

import pytest

from beamweaver import Continue, Invoke, Runtime
from beamweaver.events import RunEnded
from beamweaver.limits import Limits
from beamweaver.runtime.current import current_context
from supervisors import KILLED
from tests.runtime.kit import PATIENCE, SIX, Caller, Oracle, six
from tests.simulation.faults import cells_of


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
