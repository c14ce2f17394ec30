"""SIGKILL in a run whose nodes depend on every kind of key: it ends as the one that was never killed."""

from __future__ import annotations

import signal

import pytest

from beamweaver import Invoke, Runtime
from tests.runtime.children import PATIENCE, child, received, store_at
from tests.runtime.kinds import LOG, Job, kinds, run_kinds

STRIDE = 4


def judge(path, nth):
    """Kill a child at point `nth` and go on here; False if the run ended before that."""
    with child(run_kinds, path, nth) as (process, pipe):
        process.join(PATIENCE)
        assert process.exitcode in (0, -signal.SIGKILL), f"point {nth}: exit {process.exitcode}"
        if process.exitcode == 0:
            assert received(pipe) == [(LOG, [], "none")]
            return False
    store = store_at(path)
    try:
        with Runtime(store, graphs=[kinds()], recover="none") as runtime:
            given = Invoke({"url": "/", "found": ["in"]}, run_id="R")
            state = runtime.thread("t").ask(given, timeout=PATIENCE).state
            assert runtime.get_state("t").values == Job("/", LOG), f"point {nth}"
    finally:
        store.close()
    assert (state.log, state.found, state.hint) == (LOG, [], "none"), f"point {nth}"
    return True


@pytest.mark.parametrize("nth", [2, 11, 19, 27, 36])
def test_a_run_that_is_killed_at_a_point_ends_as_the_clean_one(tmp_path, nth):
    assert judge(tmp_path / "state.lmdb", nth)


@pytest.mark.slow
@pytest.mark.parametrize("start", range(1, STRIDE + 1))
def test_a_run_that_is_killed_at_any_point_ends_as_the_clean_one(tmp_path, start):
    nth = start
    while judge(tmp_path / f"{nth}.lmdb", nth):
        nth += STRIDE
    assert nth > 10 * STRIDE, "the points of a whole run were reached"
