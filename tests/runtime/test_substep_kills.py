"""Kills between sub-steps: what `ctx.step` returned once never runs again, and nobody waits for ever."""

from __future__ import annotations

import signal
from functools import partial

import pytest

from beamweaver import Completed, Invoke, Runtime
from beamweaver.checkpoint import LMDBCheckpointer
from supervisors import KILLED
from tests.runtime.children import (
    PATIENCE,
    STEPS,
    child,
    nap_to_point,
    napping,
    received,
    step_to_point,
    stepping,
)
from tests.runtime.kit import failing_at

CLASSES = ("power-loss", "process-kill")
STRIDE = 4


def lives(path, survives, points, mode="sync"):
    """Processes one after the other, each killed at its point: what they told, and whether the last was."""
    told = []
    for nth in points:
        with child(partial(step_to_point, durability=mode), path, survives, nth) as (process, pipe):
            process.join(PATIENCE)
            assert process.exitcode in (0, -signal.SIGKILL), f"point {nth}: {process.exitcode}"
            told += received(pipe)
        if process.exitcode == 0:
            return told, False
    return told, True


def go_on(path, survives):
    """Go on here; what was told, and the final state."""
    told = []
    store = LMDBCheckpointer(path, survives=survives)
    try:
        with Runtime(store, graphs=[stepping(told.append)], recover="none") as runtime:
            outcome = runtime.thread("t").ask(Invoke({"n": 1}, run_id="R"), timeout=PATIENCE)
    finally:
        store.close()
    return told, outcome.state


def judge(told):
    """Nothing runs after it was kept, and everything ran."""
    kept = set()
    for what, step in told:
        if what == "ran":
            assert step not in kept, f"{step} ran again in {told}"
        elif what == "kept":
            kept.add(step)
    assert {step for what, step in told if what == "ran"} == set(STEPS)


def killed_at(folder, survives, *points, mode="sync"):
    """Kill one life after the other, then go on; False if the run ended before the last kill."""
    path = folder / f"{survives}-{points}.lmdb"
    told, killed = lives(path, survives, points, mode)
    if not killed:
        (state,) = [state for what, state in told if what == "state"]
        judge(told[:-1])
    else:
        more, state = go_on(path, survives)
        judge(told + more)
    assert state == {"n": 1, "log": STEPS}
    return killed


@pytest.mark.parametrize("nth", [9, 14, 21, 30, 39])
def test_a_run_that_is_killed_between_sub_steps_goes_on(tmp_path, nth):
    assert killed_at(tmp_path, CLASSES[nth % 2], nth)


@pytest.mark.parametrize("nth", [13, 22, 31])
@pytest.mark.parametrize("mode", ["async", "exit"])
def test_a_sub_step_is_kept_in_each_mode(tmp_path, mode, nth):
    killed_at(tmp_path, "power-loss", nth, mode=mode)


@pytest.mark.slow
@pytest.mark.parametrize("start", range(1, STRIDE + 1))
@pytest.mark.parametrize("survives", CLASSES)
def test_a_run_that_is_killed_at_any_point_goes_on(tmp_path, survives, start):
    nth = start
    while killed_at(tmp_path, survives, nth):
        nth += STRIDE
    assert nth > 10 * STRIDE, "the points of a whole run were reached"


@pytest.mark.slow
@pytest.mark.parametrize("nth", [36, 40])
def test_a_sub_step_is_progress_so_that_no_life_is_wasted(tmp_path, nth):
    """Each life has room for some sub-steps before it is killed: none is poisoned."""
    killed_at(tmp_path, "process-kill", nth, nth, nth)


@pytest.mark.parametrize("times", [1, 2])
@pytest.mark.parametrize(
    "point", ["thread.acknowledged", "thread.start", "writer.synced", "writer.group"]
)
def test_an_actor_that_crashes_under_a_waiting_sub_step_wakes_it(store, point, times):
    told = []
    app = stepping(told.append)
    with Runtime(store, graphs=[app], fault=failing_at(point, times), max_restarts=10) as runtime:
        outcome = runtime.thread("t").ask(Invoke({"n": 1}), timeout=PATIENCE)
    assert isinstance(outcome, Completed)
    assert outcome.state["log"] == STEPS
    judge(told)


@pytest.mark.parametrize("when", range(1, 13, 2))
def test_an_actor_that_is_killed_under_a_waiting_sub_step_wakes_it(store, when):
    """The actor is killed in the moment in which a sub-step has run and is not kept."""
    told, seen = [], [0]

    def fault(point, thread_id=""):
        if point in ("step.ran", "step.kept"):
            seen[0] += 1
            if seen[0] == when:
                hub = runtime._core.hub
                hub.system.exit(hub.actors[thread_id], KILLED)

    app = stepping(told.append)
    with Runtime(store, graphs=[app], fault=fault) as runtime:
        outcome = runtime.thread("t").ask(Invoke({"n": 1}), timeout=PATIENCE)
    assert seen[0] > when, "the actor was killed, and sub-steps followed"
    assert outcome.state["log"] == STEPS
    judge(told)


@pytest.mark.slow
@pytest.mark.parametrize("nth", range(8, 60, 3))
def test_a_run_that_is_killed_around_a_sleep_goes_on(tmp_path, nth):
    path = tmp_path / "state.lmdb"
    with child(nap_to_point, path, nth) as (process, pipe):
        process.join(PATIENCE)
        assert process.exitcode in (0, -signal.SIGKILL)
        told = received(pipe)
    store = LMDBCheckpointer(path, survives="process-kill")
    try:
        with Runtime(store, graphs=[napping(told.append)], recover="none") as runtime:
            outcome = runtime.thread("t").ask(Invoke({"n": 1}, run_id="R"), timeout=PATIENCE)
    finally:
        store.close()
    assert outcome.state["log"] == ["awake"]
    for n in range(2):
        assert ("ran", n) not in told[told.index(("kept", n)) :]
