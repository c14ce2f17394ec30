"""Rules of graphs in tasks that random graphs come to seldom."""

from __future__ import annotations

import pytest

from beamweaver.engine._core import Stop
from beamweaver.engine.calling import Calling
from beamweaver.errors import InvalidUpdate
from beamweaver.graph import Graph
from beamweaver.types import START, Completed
from tests.engine.driver import HANGS, Driver, Later
from tests.engine.generator import State


def around(child):
    """A graph of one node, which is this one."""
    return Graph(State, name="top").add_node("c", child).add_edge(START, "c").compile()


def called(child):
    """A graph of one node, whose function calls this one."""

    def calls(_state, ctx):
        return {"log": ctx.call(child, {"log": []})["log"]}

    return Graph(State, name="top").add_node("c", calls).add_edge(START, "c").compile()


@pytest.mark.parametrize("wrap", [around, called])
def test_an_amendment_of_a_run_that_executes_lets_what_runs_inside_go_on(wrap):
    """A dead process left the run, so another input of its next caller amends it while it executes."""
    seen = []

    def one(state):
        seen.append("one")
        return Later(5, {"log": ["one"]})

    def two(state):
        seen.append("two")
        return {"log": ["two"]}

    child = Graph(State, name="child").add_node("one", one).add_node("two", two)
    driver = Driver(wrap(child.add_edge(START, "one").add_edge("one", "two").compile()))
    driver.checks = True
    driver.send_invoke({"last": "a"})
    driver.run(until=lambda: seen)
    driver.crash()
    driver.run(until=lambda: len(seen) == 2)
    outcome = driver.invoke({"last": "b"})

    assert type(outcome) is Completed
    assert outcome.state["log"] == ["one", "two"]
    assert outcome.state["last"] == "b"
    assert seen == ["one", "one", "two"]


def test_what_it_wrote_must_fit_the_graph_around():
    """A graph without a schema may write anything; the node that it is fails then."""
    child = Graph(name="child").add_node("x", lambda _s: {"last": 5}).add_edge(START, "x")
    driver = Driver(around(child.compile()))

    error = driver.fails({"log": ["in"]})

    assert isinstance(error, InvalidUpdate)
    assert "'last'" in str(error)
    assert "'c'" in str(error)


def test_an_attempt_that_has_ended_calls_nothing():
    child = Graph(State, name="child").add_node("x", lambda _s: HANGS).add_edge(START, "x")
    compiled = child.compile()
    driver = Driver(called(compiled))
    driver.send_invoke({"log": []})
    driver.run(until=lambda: len(driver.started) == 2)
    attempt = driver.started[0]
    late = Calling(compiled, ("child", -4, None), b"d", {})

    assert driver.machine.called(attempt, late)
    driver.machine.halt(Stop("cancelled"), wait=False)
    assert not driver.machine.called(attempt, late)
