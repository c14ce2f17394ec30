"""SIGKILL at every fault point of a run: no acknowledged task starts again, and the state is right.

The child tells each start and each acknowledgement on a pipe as it happens; the oracle is that pipe.
"""

from __future__ import annotations

import signal
from functools import partial

import pytest

from beamweaver import Invoke, Runtime
from beamweaver.checkpoint import LMDBCheckpointer
from tests.runtime.children import (
    PATIENCE,
    child,
    received,
    run_nested_to_point,
    run_to_point,
)
from tests.runtime.kit import NESTED, SIX, Oracle, nested, six

CLASSES = ("power-loss", "process-kill")
STRIDE = 4


def run_child(path, survives, nth, run=run_to_point):
    """What the child told, and whether it was killed."""
    with child(run, path, survives, nth) as (process, pipe):
        process.join(PATIENCE)
        assert process.exitcode in (0, -signal.SIGKILL), f"point {nth}: exit {process.exitcode}"
        return received(pipe), process.exitcode != 0


def go_on(path, survives, acknowledged, graph=six):
    """Go on here after the kill; the final state and the tasks that ran again."""
    store = LMDBCheckpointer(path, survives=survives)
    try:
        oracle = Oracle()
        oracle.acknowledged = {("t", task) for task in acknowledged}
        with Runtime(store, graphs=[graph().compile()], recover="none") as runtime:
            runtime.subscribe(oracle)
            outcome = runtime.thread("t").ask(Invoke({"n": 1}, run_id="R"), timeout=PATIENCE)
    finally:
        store.close()
    return outcome.state, oracle.reruns


def judge(folder, survives, nth, run=run_to_point, graph=six, log=SIX):
    """Kill at point `nth` and judge what follows; False if the run ended before it."""
    path = folder / f"{survives}-{nth}.lmdb"
    told, killed = run_child(path, survives, nth, run)
    if not killed:
        assert dict(told)["state"] == {"n": 1, "log": log}
        return False
    acknowledged = [task for name, task in told if name == "TaskAcknowledged"]
    twice = set()
    for name, task in told:
        if name == "TaskStarted" and task in twice:
            pytest.fail(f"point {nth}: {task} started again after its acknowledgement")
        if name == "TaskAcknowledged":
            twice.add(task)
    state, reruns = go_on(path, survives, acknowledged, graph)
    assert state == {"n": 1, "log": log}, f"point {nth}"
    assert reruns == [], f"point {nth}"
    return True


@pytest.mark.parametrize("nth", [1, 4, 9, 17, 30, 43])
def test_a_run_that_is_killed_at_a_point_goes_on(tmp_path, nth):
    assert judge(tmp_path, CLASSES[nth % 2], nth)


@pytest.mark.parametrize("nth", [2, 9, 16, 23])
@pytest.mark.parametrize("mode", ["async", "exit"])
def test_a_run_in_another_mode_that_is_killed_at_a_point_goes_on(tmp_path, mode, nth):
    """Within the promise of its mode: what was told as durable never runs again."""
    judge(tmp_path, "power-loss", nth, partial(run_to_point, durability=mode))


@pytest.mark.parametrize("nth", [19, 40])
@pytest.mark.parametrize("mode", ["async", "exit"])
def test_a_nested_run_in_another_mode_that_is_killed_at_a_point_goes_on(tmp_path, mode, nth):
    run = partial(run_nested_to_point, durability=mode)
    judge(tmp_path, "power-loss", nth, run, nested, NESTED)


@pytest.mark.slow
@pytest.mark.timeout(120)
@pytest.mark.parametrize("mode", ["async", "exit"])
@pytest.mark.parametrize("survives", CLASSES)
def test_a_run_in_another_mode_that_is_killed_at_any_point_goes_on(tmp_path, survives, mode):
    nth = 1
    while judge(tmp_path, survives, nth, partial(run_to_point, durability=mode)):
        nth += 1
    assert nth > 10, "the points of a whole run were reached"


@pytest.mark.slow
@pytest.mark.parametrize("start", range(1, STRIDE + 1))
@pytest.mark.parametrize("survives", CLASSES)
def test_a_run_that_is_killed_at_any_point_goes_on(tmp_path, survives, start):
    nth = start
    while judge(tmp_path, survives, nth):
        nth += STRIDE
    assert nth > 10 * STRIDE, "the points of a whole run were reached"


@pytest.mark.parametrize("nth", [7, 18, 31, 52, 75])
def test_a_nested_run_that_is_killed_at_a_point_goes_on(tmp_path, nth):
    assert judge(tmp_path, CLASSES[nth % 2], nth, run_nested_to_point, nested, NESTED)


@pytest.mark.slow
@pytest.mark.parametrize("start", range(1, STRIDE + 1))
def test_a_nested_run_that_is_killed_at_any_point_goes_on(tmp_path, start):
    nth = start
    while judge(tmp_path, "process-kill", nth, run_nested_to_point, nested, NESTED):
        nth += STRIDE
    assert nth > 20 * STRIDE, "the points of a whole run were reached"


@pytest.mark.slow
def test_a_run_that_is_killed_again_in_each_life_ends(tmp_path):
    """Each life lasts for some commits, so none is poisoned; the next goes on."""
    path = tmp_path / "state.lmdb"
    acknowledged: set[str] = set()
    for nth in (50,) * 8:
        told, killed = run_child(path, "process-kill", nth)
        for name, task in told:
            if name == "TaskStarted":
                assert task not in acknowledged, f"life to point {nth}"
            elif name == "TaskAcknowledged":
                acknowledged.add(task)
        if not killed:
            break
    state, reruns = go_on(path, "process-kill", acknowledged)
    assert (state, reruns) == ({"n": 1, "log": SIX}, [])
