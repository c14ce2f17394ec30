"""Names of a run: given ones, and those that are drawn for calls without one."""

from __future__ import annotations

import pytest

from beamweaver import Continue, Invoke, Runtime, interrupt
from beamweaver.errors import InvalidCall, UnknownRun
from beamweaver.limits import Limits
from tests.runtime.kit import Caller, Counted, Gate, line, wrote


@pytest.fixture
def gated(memory):
    gate = Gate()
    with Runtime(memory, graphs=[line("g", a=gate).compile()]) as runtime:
        yield runtime.thread("t"), gate
        gate.open()


def test_an_outcome_names_the_run_that_was_joined_not_the_call(gated):
    thread, gate = gated
    receipt = thread.tell(Invoke({"log": []}))
    waiting = Caller(thread.ask, Continue())
    gate.open()
    assert waiting.join().run_id == receipt.run_id


def test_an_outcome_has_the_name_that_the_call_gave(gated):
    thread, gate = gated
    gate.open()
    assert thread.ask(Invoke({"log": []}, run_id="mine")).run_id == "mine"


def test_a_run_can_be_joined_more_often_than_it_may_have_names(gated):
    thread, gate = gated
    thread.tell(Invoke({"log": []}))
    joined = [thread.tell(Continue()) for _ in range(100)]
    assert len({receipt.run_id for receipt in joined}) == 1
    gate.open()


def test_a_run_can_be_resumed_more_often_than_it_may_have_names(memory):
    def ask(_state):
        return {"log": [interrupt(n) for n in range(70)]}

    with line("g", a=ask).compile(checkpointer=memory) as app:
        app.invoke({"n": 0}, thread_id="t")
        for n in range(70):
            outcome = app.resume(n, thread_id="t")
    assert outcome.state["log"] == list(range(70))


def test_given_names_beyond_the_limit_are_refused(memory):
    gate = Gate()
    app = line("g", a=gate).compile()
    with Runtime(memory, graphs=[app], limits=Limits(run_names=2)) as runtime:
        thread = runtime.thread("t")
        thread.tell(Invoke({"log": []}, run_id="one"))
        thread.tell(Continue(run_id="two"))
        with pytest.raises(InvalidCall, match=r"limits\.run_names"):
            thread.tell(Continue(run_id="three"))
        gate.open()


def test_the_same_run_id_again_runs_nothing(store):
    node = Counted(wrote("a"))
    with line("g", a=node).compile(checkpointer=store) as app:
        first = app.invoke({"n": 1}, thread_id="t", run_id="R")
        again = app.invoke({"n": 1}, thread_id="t", run_id="R")
    assert (again.state, node.runs) == (first.state, 1)


def test_the_run_id_of_an_older_run_gives_its_recorded_outcome(store):
    with line("g", a=lambda s: {"log": [s["n"]]}).compile(checkpointer=store) as app:
        first = app.invoke({"n": 1}, thread_id="t", run_id="one")
        app.invoke({"n": 2}, thread_id="t", run_id="two")
        again = app.invoke({"n": 1}, thread_id="t", run_id="one")
    assert again == first


def test_a_run_that_was_restarted_has_no_recorded_outcome(store):
    with line("g", a=lambda _s: {"log": [interrupt("?")]}).compile(checkpointer=store) as app:
        app.invoke({"n": 1}, thread_id="t", run_id="one")
        app.invoke({"n": 2}, thread_id="t", run_id="two", on_unfinished="restart")
        app.resume("yes", thread_id="t")
        with pytest.raises(UnknownRun, match="'one'"):
            app.invoke({"n": 1}, thread_id="t", run_id="one")


def test_two_threads_may_have_runs_of_one_name(store):
    with line("g", a=wrote("a")).compile(checkpointer=store) as app:
        first = app.invoke({"n": 1}, thread_id="t1", run_id="R")
        second = app.invoke({"n": 2}, thread_id="t2", run_id="R")
    assert (first.state["n"], second.state["n"]) == (1, 2)


def test_the_recorded_outcome_of_an_older_run_has_the_reduced_keys_that_were_never_written(store):
    with line("g", a=lambda s: {"n": s["n"] + 1}).compile(checkpointer=store) as app:
        first = app.invoke({"n": 1}, thread_id="t", run_id="one")
        app.invoke({"n": 5}, thread_id="t", run_id="two")
        again = app.invoke({"n": 1}, thread_id="t", run_id="one")
    assert again == first
