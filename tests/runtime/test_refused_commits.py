"""Commits that a store refuses, though it is not full: a run that nobody waits for is not left lying."""

from __future__ import annotations

import contextlib

import pytest

from beamweaver import Continue, Invoke
from beamweaver.errors import StoreError
from tests.runtime.kit import line, refusing, simulated, wrote


@contextlib.contextmanager
def told(store, seq, times):
    """A run that was told, whose record `seq` is refused so often; some time has passed."""
    with simulated(store, 1, graphs=[line("g", a=wrote("a"), b=wrote("b")).compile()]) as runtime:
        refusing(store, seq, StoreError("a page is bad"), times)
        runtime.thread("t").tell(Invoke({"n": 1}))
        runtime._core.system.scheduler.run_for(20.0)
        yield runtime


@pytest.mark.parametrize("seq", [1, 2])
@pytest.mark.parametrize("times", [1, 3])
def test_a_told_run_goes_on_by_itself(memory, seq, times):
    """Semantics 13: only the culprit fails, and an error that passes ends no run."""
    with told(memory, seq, times) as runtime:
        state = runtime.get_state("t")
        assert (state.status, state.values["log"]) == ("complete", ["a", "b"])


def test_one_that_is_refused_ever_again_rests_until_a_call(memory):
    with told(memory, 1, 4) as runtime:
        assert runtime.get_state("t").status == "running"
        assert runtime.thread("t").ask(Continue()).state["log"] == ["a", "b"]
