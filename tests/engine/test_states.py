"""States of classes, values that no store keeps, and what reaches the states of graphs in tasks."""

from __future__ import annotations

import dataclasses
import operator
from typing import Annotated, Any, TypedDict

import pytest

from beamweaver.engine import CallKind
from beamweaver.errors import InvalidUpdate, NodeFailed
from beamweaver.graph import Graph, Untracked
from beamweaver.types import START, Interrupted
from tests.engine.driver import Driver, Later
from tests.engine.graphs import asks, fails, graph


@dataclasses.dataclass
class Account:
    balance: int = 0
    log: Annotated[list[Any], operator.add] = dataclasses.field(default_factory=list)

    def __post_init__(self):
        if self.balance < 0:
            raise ValueError("overdrawn")


@dataclasses.dataclass
class Shown:
    balance: int = 0

    def __post_init__(self):
        if self.balance > 10:
            raise ValueError("too much to show")


def account(edges="^>a", **nodes):
    return Driver(graph(edges, schema=Account, **nodes))


def showing(*balances, **options):
    """A graph whose outcomes are of a class that does not take every state."""
    builder, last = Graph(Account, name="g", output_schema=Shown), START
    for number, balance in enumerate(balances):
        node = balance if callable(balance) else lambda _s, balance=balance: {"balance": balance}
        builder.add_node(f"n{number}", node).add_edge(last, f"n{number}")
        last = f"n{number}"
    return Driver(builder.compile(**options))


class TestClasses:
    def test_a_step_whose_state_the_class_refuses_fails_and_can_be_continued(self):
        driver = account(a=lambda s: {"balance": s.balance - 5})
        error = driver.fails({"balance": 3})
        assert isinstance(error, InvalidUpdate)
        assert "overdrawn" in str(error)
        assert driver.values["balance"] == 3

    def test_the_class_judges_each_step(self):
        driver = account("^>a a>b", a=lambda _s: {"balance": 1}, b=lambda s: {"log": [s.balance]})
        assert driver.invoke({}).state == Account(1, [1])

    def test_a_complete_state_that_the_output_class_refuses_is_the_callers_error(self):
        driver = showing(11)
        with pytest.raises(InvalidUpdate, match="too much to show"):
            driver.invoke({})
        assert driver.status == "complete"

    def test_amid_a_run_such_a_state_is_shown_as_a_dict(self):
        driver = showing(11, lambda _s, ctx: {"balance": ctx.interrupt("?")})
        outcome = driver.invoke({})
        assert type(outcome) is Interrupted
        assert outcome.state["balance"] == 11
        assert driver.resume(4).state == Shown(4)


class Live(TypedDict, total=False):
    log: Annotated[list[Any], operator.add]
    x: Any
    client: Annotated[Any, Untracked]
    calls: Annotated[int, operator.add, Untracked]


class TestWhatACallerBringsAgain:
    """What no store keeps is lost with a process; the call that takes the run up brings it."""

    def left(self, one, value):
        driver = Driver(one, recover=False)
        driver.send_invoke(value)
        driver.run(seconds=1)
        driver.crash()
        return driver

    def sees(self, state):
        return {"log": [(state.get("client"), state["calls"])]}

    def test_a_call_that_takes_a_run_up_brings_what_it_had(self):
        nodes = iter([Later(2), None])
        one = graph("^>a a>b", schema=Live, a=lambda _s: next(nodes), b=self.sees)
        driver = self.left(one, {"client": "old", "calls": 2, "x": 1})
        outcome = driver.invoke({"client": "new", "calls": 2, "x": 1})
        assert outcome.state["log"] == [("new", 2)]

    def test_what_is_there_already_stays(self):
        """It was recovered and a node has made it anew."""
        nodes = iter([{"client": "old"}, {"client": "made", "calls": 5}])
        one = graph("^>a a>slow slow>b", schema=Live, a=lambda _s: next(nodes),
                    slow=lambda _s: Later(3), b=self.sees)  # fmt: skip
        driver = Driver(one)
        driver.send_invoke({"x": 1, "client": "given", "calls": 1})
        driver.run(until=lambda: driver.runs("a"))
        driver.crash()
        driver.run(until=lambda: driver.runs("slow"))
        outcome = driver.invoke({"x": 1, "client": "given", "calls": 1})
        assert outcome.state["log"] == [("made", 5)]

    def test_the_routers_next_step_has_it_too(self):
        """The step is merged when the call comes, and waits for its routers."""
        one = graph("^>a", schema=Live, a=lambda _s: Later(2, {"x": 2}), b=self.sees,
                    routers=[("a", lambda _s: "b", ["b"])])  # fmt: skip
        driver = self.left(one, {"x": 1, "client": "old"})
        driver.machine.begin(recover=True)
        driver.run(until=lambda: driver.machine.transition is not None)
        call = driver.send_invoke({"x": 1, "client": "new"})
        driver.run()
        assert driver.answer(call).state["log"] == [("new", 0)]


class TestInside:
    def test_a_merge_that_fails_inside_is_the_failure_of_the_run(self):
        child = graph("^>a ^>b", name="child", a=lambda _s: {"x": 1}, b=lambda _s: {"x": 2})
        driver = Driver(graph("^>c", name="top", c=child))
        error = driver.fails({})
        assert isinstance(error, InvalidUpdate)
        assert [failure.namespace for failure in error.failures] == [("c",)]

    def test_an_edit_of_the_graph_around_reaches_those_that_have_begun(self):
        """semantics 10: without `as_node`, on an unfinished step, it is an amendment."""
        asked = lambda s, ctx: {"log": [ctx.interrupt("?"), s["x"]]}
        child = graph("^>ask", name="child", ask=asked)
        middle = graph("^>m", name="middle", m=child)
        driver = Driver(graph("^>c", name="top", c=middle))
        driver.invoke({"x": 1})
        driver.update({"x": 2})
        driver.checks = True
        assert driver.resume("yes").state["log"] == ["yes", 2]

    def test_one_of_keys_that_it_does_not_take_does_not(self):
        child = graph("^>ask", name="child", ask=asks())
        driver = Driver(graph("^>c ^>bad", name="top", c=child, bad=fails(1)))
        with pytest.raises(NodeFailed):
            driver.invoke({"x": 1})
        driver.update({"log": ["edited"]})
        (inner,) = driver.machine.state.step.tasks[0].inner.values()
        assert inner.step.amendments == []
        assert driver.status == "failed"
        call = driver.send(CallKind.RESUME, answer="yes")
        driver.run()
        assert sorted(driver.answer(call).state["log"]) == ["ask:yes", "bad", "edited"]
