"""`Command(update=, goto=, resume=)` as an input: amendment, more tasks and answers in one."""

from __future__ import annotations

import pytest

from beamweaver.checkpoint.entries import Answered, Continued
from beamweaver.engine import CallKind
from beamweaver.errors import NothingToResume, UnknownInterrupt
from beamweaver.types import Command, Completed, Interrupted, Send
from tests.engine.driver import Driver, Later, goto
from tests.engine.graphs import asks, fails_once, fan, graph, sees, wrote
from tests.engine.standings import complete, failed, new


def asked(**nodes):
    driver = Driver(graph("^>ok ^>ask", ok=None, ask=asks(), **nodes))
    driver.invoke({})
    return driver


def test_an_update_an_answer_and_a_task_are_one_record():
    driver = asked(x1=None)
    before = len(driver.commits)
    outcome = driver.call(CallKind.RESUME, goto("x1", n=5), answer="yes")
    assert (type(outcome), outcome.state["log"], outcome.state["n"]) == (
        Completed,
        ["ok", "ask:yes", "x1"],
        5,
    )
    assert [type(e) for e in driver.commits[before].record.entries] == [Answered, Continued]


def test_the_answered_task_sees_the_update():
    def ask(state, ctx):
        answer = ctx.interrupt("ok?")
        return {"log": [f"{answer}{state['n']}"]}

    driver = Driver(fan(ask=ask))
    driver.invoke({})
    assert driver.call(CallKind.RESUME, {"n": 3}, answer="a").state["log"] == ["a3"]


@pytest.mark.parametrize("written", [False, True])
def test_it_takes_effect_once_whatever_dies(written):
    """A crash at its record: the same call again, or the next process, goes on."""
    driver = asked(x1=sees("n", "x1"))
    driver.crash_at, driver.written = len(driver.commits), written
    call = {"value": goto("x1", n=5), "answer": "yes"}
    with pytest.raises(BaseException, match="commit"):
        driver.call(CallKind.RESUME, **call)
    driver.crash()
    driver.run()
    if not written:
        assert driver.stored_status == "waiting"
        driver.call(CallKind.RESUME, **call)
    assert driver.machine.state.values["log"] == ["ok", "ask:yes", "x1 sees 5"]


def test_an_unknown_question_leaves_everything_as_it_is():
    driver = asked()
    with pytest.raises(UnknownInterrupt):
        driver.call(CallKind.RESUME, {"n": 5}, answers={"int_x": 1})
    assert driver.machine.state.step.amendments == []
    assert driver.stored_status == "waiting"


@pytest.mark.parametrize("stand", [new, complete, failed], ids=lambda f: f.__name__)
def test_an_answer_needs_a_question(stand):
    driver = stand()
    with pytest.raises(NothingToResume):
        driver.call(CallKind.RESUME, {"n": 100}, answer="yes")
    assert driver.status is None or driver.machine.state.values["n"] < 100


def test_without_an_answer_it_amends_and_the_question_stays():
    """graph 76, langgraph 28: goto of a call beside the step."""
    driver = asked(x1=None)
    assert type(driver.invoke(goto("x1", n=5))) is Interrupted
    outcome = driver.resume("yes")
    assert (outcome.state["log"], outcome.state["n"]) == (["ok", "ask:yes", "x1"], 5)


def test_a_goto_of_a_call_is_beside_the_edges_of_the_step():
    """graph 28."""
    driver = Driver(graph("^>ok ^>bad ok>after", ok=None, bad=fails_once(), after=None, x1=None))
    driver.fails({})
    assert driver.invoke(goto("x1")).state["log"] == ["ok", "bad", "after", "x1"]


def test_sends_of_a_call_are_tasks_of_the_next_step():
    driver = Driver(graph("^>bad", bad=fails_once(), w=sees("x", "w")))
    driver.fails({"x": 0})
    outcome = driver.invoke(Command(goto=[Send("w", {"x": 1}), Send("w", {"x": 2})]))
    assert outcome.state["log"] == ["bad", "w sees 1", "w sees 2"]


def test_on_a_left_run_without_a_question_its_update_is_not_lost():
    driver = Driver(fan(ok=wrote("ok"), slow=lambda _s: Later(1, {"log": ["slow"]})))
    driver.send_invoke({})
    driver.run(seconds=0.5)
    driver.recover = False
    driver.crash()
    outcome = driver.call(CallKind.RESUME, {"n": 5}, answer="yes")
    assert (outcome.state["n"], outcome.state["log"]) == (5, ["ok", "slow"])


def test_a_told_one_is_whole_in_the_store():
    driver = Driver(
        graph("^>slow ^>ask", slow=lambda _s: Later(1, {"log": ["slow"]}), ask=asks(), x1=None)
    )
    driver.send_invoke({})
    driver.run(seconds=0.5)
    driver.tell(goto("x1", n=5), CallKind.RESUME, answer="yes")
    driver.run(until=lambda: driver.inbox != ())
    driver.crash()
    driver.run()
    assert driver.machine.state.values["log"] == ["slow", "ask:yes", "x1"]
    assert driver.machine.state.values["n"] == 5
