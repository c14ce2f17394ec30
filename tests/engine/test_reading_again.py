"""Values that are read again from the store, after code that was abandoned may have changed them."""

from __future__ import annotations

import operator
from typing import Annotated, TypedDict

import pytest

from beamweaver.engine.fold import fold
from beamweaver.graph import Untracked
from beamweaver.types import Send
from tests.engine.driver import Driver, Later
from tests.engine.graphs import fails, fan, graph


def stored(driver):
    return fold(driver.store.load("t"), driver.env)


def test_values_are_those_of_the_store():
    driver = Driver(fan(bad=fails(1)))
    driver.fails({"x": [1]})
    driver.machine.state.values["x"].append("spoiled")
    driver.machine.replace_state(stored(driver))
    outcome = driver.go_on()
    assert (outcome.state["x"], outcome.state["log"]) == ([1], ["bad"])


def test_kept_results_are_those_of_the_store():
    shared = ["kept"]
    driver = Driver(fan(ok=lambda _s: {"x": shared}, bad=fails(1)))
    driver.fails({})
    shared.append("spoiled")
    driver.machine.replace_state(stored(driver))
    assert driver.go_on().state["x"] == ["kept"]


def test_overlays_of_sends_are_those_of_the_store():
    shared = ["kept"]
    one = graph(
        "^>a",
        a=lambda _s: [Send("slow", {}), Send("w", {"x": shared})],
        slow=lambda _s: Later(1),
        w=lambda s: {"log": s["x"]},
        options={"max_concurrency": 1},
    )
    driver = Driver(one)
    driver.send_invoke({})
    driver.run(until=lambda: driver.runs("slow"))
    shared.append("spoiled")
    driver.machine.replace_state(stored(driver))
    driver.run()
    assert driver.machine.state.values["log"] == ["kept"]


def test_a_store_that_is_behind_changes_nothing():
    driver = Driver(fan(a=None))
    driver.invoke({"x": 1})
    old = stored(driver)
    driver.invoke({"x": 2})
    driver.machine.replace_state(old)
    assert driver.machine.state.values["x"] == 2


def test_attempts_that_run_go_on():
    driver = Driver(fan(slow=lambda _s: Later(1, {"log": ["slow"]})))
    driver.send_invoke({})
    driver.run(seconds=0.5)
    driver.machine.replace_state(stored(driver))
    driver.run()
    assert driver.status == "complete"


def test_amendments_are_those_of_the_store():
    driver = Driver(fan(bad=fails(2)))
    driver.fails({"x": [1]})
    driver.fails({"x": [2]})
    driver.machine.state.step.amendments[-1].writes[0].value.append("spoiled")
    driver.machine.replace_state(stored(driver))
    assert driver.go_on().state["x"] == [2]


class Kinds(TypedDict, total=False):
    x: list[int]
    client: Annotated[object, Untracked]
    calls: Annotated[int, operator.add, Untracked]


def test_what_no_store_keeps_stays():
    client = object()
    nodes = {
        "ok": lambda _s: {"client": client, "calls": 1},
        "send": lambda _s: Send("bad", {"client": client, "x": [1]}),
    }
    one = graph("^>ok ^>send ok>bad", schema=Kinds, bad=sees_or_fails(client), **nodes)
    driver = Driver(one)
    driver.fails({"x": [0], "calls": 1})
    driver.machine.replace_state(stored(driver))
    outcome = driver.go_on()
    assert outcome.state == {"x": [0], "client": client, "calls": 2}


def sees_or_fails(client):
    """A node that fails at first, and sees the client whenever it runs."""
    left = [1, 1]

    def node(state):
        assert state["client"] is client
        if left:
            left.pop()
            raise ValueError("boom")

    return node


def test_what_no_store_keeps_of_results_and_amendments_stays():
    client = object()
    driver = Driver(fan(schema=Kinds, ok=lambda _s: {"client": client}, bad=fails(2)))
    driver.fails({})
    driver.fails({"x": [2], "calls": 5})
    driver.machine.replace_state(stored(driver))
    (amendment,) = driver.machine.state.step.amendments
    assert {write.channel: write.value for write in amendment.writes} == {"x": [2], "calls": 5}
    (result,) = [t.result for t in driver.machine.state.step.tasks if t.result is not None]
    assert [(write.channel, write.value) for write in result.writes] == [("client", client)]


def test_values_are_replaced_while_a_commit_is_on_its_way():
    driver = Driver(fan(bad=fails(1), slow=lambda _s: Later(5)))
    driver.send_invoke({"x": [1]})
    driver.run(until=lambda: driver.machine.in_flight is not None and driver.runs("bad"))
    assert stored(driver).seq != driver.machine.state.seq
    driver.machine.state.values["x"].append("spoiled")
    driver.machine.replace_state(stored(driver))
    assert driver.machine.state.values["x"] == [1]


class TestInside:
    """Graphs in tasks: their values are read again beside those of the graph around."""

    def running(self, child, wrap=None, **options):
        """A graph that runs in a task; its last node does."""
        driver = Driver((wrap or graph)("^>c", name="top", c=child, **options))
        driver.send_invoke({"x": [1]})
        driver.run(seconds=0.5)
        return driver

    def inner(self, driver):
        """The states of the graphs in the first task, from the outside in."""
        found, state = [], driver.machine.state
        while state.step.tasks[0].inner:
            (state,) = state.step.tasks[0].inner.values()
            found.append(state)
        return found

    def child(self, first=None):
        slow = lambda s: Later(1, {"log": [s["x"]]})
        if first is None:
            return graph(
                "^>slow slow>end", name="child", slow=slow, end=lambda s: {"log": [s["x"]]}
            )
        return graph("^>a a>slow", name="child", a=first, slow=slow)

    def test_one_that_has_records_has_the_values_of_the_last_one(self):
        driver = self.running(self.child(lambda _s: {"y": ["kept"]}))
        (state,) = self.inner(driver)
        state.values["y"].append("spoiled")
        driver.machine.replace_state(stored(driver))
        assert self.inner(driver)[0].values["y"] == ["kept"]
        driver.run()
        assert driver.status == "complete"

    def test_one_that_has_none_has_those_with_which_it_began(self):
        driver = self.running(self.child())
        (state,) = self.inner(driver)
        state.values["x"].append("spoiled")
        driver.machine.replace_state(stored(driver))
        assert (state.values["x"], state.start["x"]) == ([1], [1])
        driver.run()
        assert driver.values["log"][-1] == [1]

    def test_at_every_depth(self):
        middle = graph("^>c", name="middle", c=self.child(lambda _s: {"y": ["kept"]}))
        driver = self.running(middle)
        outer, inner = self.inner(driver)
        outer.values["x"].append("spoiled")
        inner.values["y"].append("spoiled")
        driver.machine.replace_state(stored(driver))
        assert (outer.values["x"], inner.values["y"]) == ([1], ["kept"])

    def test_one_that_a_function_calls(self):
        child = self.child(lambda _s: {"y": ["kept"]})

        def calls(_state, ctx):
            return {"log": ctx.call(child, {"x": [2]})["log"]}

        driver = self.running(calls)
        (state,) = self.inner(driver)
        state.values["y"].append("spoiled")
        state.values["x"].append("spoiled")
        driver.machine.replace_state(stored(driver))
        assert (state.values["x"], state.values["y"]) == ([2], ["kept"])
        driver.run()
        assert driver.status == "complete"

    def test_one_that_is_in_another_step_in_the_store_keeps_its_values(self):
        """A step of it is on its way to the store."""
        driver = self.running(self.child(lambda _s: {"y": ["new"]}), options=None)
        behind = stored(driver)
        (old,) = behind.step.tasks[0].inner.values()
        old.step.number += 1
        driver.machine.replace_state(behind)
        assert self.inner(driver)[0].values["y"] == ["new"]

    def test_what_no_store_keeps_stays_there_too(self):
        client = object()
        sees = lambda s: {"x": [int(s["client"] is client)]}
        child = graph("^>a a>slow slow>end", schema=Kinds, name="child", a=lambda _s: {"x": [2]},
                      slow=lambda _s: Later(1), end=sees)  # fmt: skip
        driver = Driver(graph("^>c", schema=Kinds, name="top", c=child))
        driver.send_invoke({"client": client})
        driver.run(seconds=0.5)
        driver.machine.replace_state(stored(driver))
        driver.run()
        assert driver.values["x"] == [1]

    def test_one_whose_beginning_cannot_be_stored_keeps_its_values(self):
        class Stored(TypedDict, total=False):
            client: object

        client = object()
        child = graph("^>slow", schema=Stored, name="child", slow=lambda _s: Later(1))
        driver = Driver(graph("^>c", schema=Kinds, name="top", c=child))
        driver.send_invoke({"client": client})
        driver.run(seconds=0.5)
        driver.machine.replace_state(stored(driver))
        assert self.inner(driver)[0].values["client"] is client

    def test_planned_sends_of_a_kept_result_are_those_of_the_store(self):
        shared = ["kept"]
        one = graph("^>a ^>bad", a=lambda _s: Send("w", {"x": shared}), bad=fails(1),
                    w=lambda s: {"log": s["x"]})  # fmt: skip
        driver = Driver(one)
        driver.fails({})
        shared.append("spoiled")
        driver.machine.replace_state(stored(driver))
        assert driver.go_on().state["log"] == ["bad", "kept"]


class TestCatchingUp:
    """Before values are read again, all that is only known here is brought to the store."""

    def test_a_machine_at_rest_has_nothing_to_bring(self):
        driver = Driver(fan(a=None))
        driver.invoke({})
        assert driver.machine.catch_up()
        assert driver.machine.may_leave

    def test_steps_that_were_left_out_are_brought(self):
        driver = Driver(graph("^>a a>slow", a=lambda _s: {"x": 1}, slow=lambda _s: Later(1)))
        driver.send_invoke({}, durability="exit")
        driver.run(seconds=0.5)
        assert "x" not in stored(driver).values
        assert not driver.machine.catch_up()
        assert not driver.machine.may_leave
        driver.run(seconds=0.1)
        assert driver.machine.catch_up()
        assert stored(driver).values["x"] == 1

    @pytest.mark.parametrize("durability", ["exit", "async"])
    def test_so_are_those_of_graphs_in_tasks(self, durability):
        child = graph("^>a a>slow", name="child", a=lambda _s: {"x": 1}, slow=lambda _s: Later(1))
        driver = Driver(graph("^>c", name="middle", c=graph("^>d", name="top", d=child)))
        driver.send_invoke({}, durability=durability)
        driver.run(until=lambda: driver.log[-1:] == ["slow"])
        while not driver.machine.catch_up():
            driver.run(seconds=0.1)
        (middle,) = stored(driver).step.tasks[0].inner.values()
        (inner,) = middle.step.tasks[0].inner.values()
        assert inner.values["x"] == 1
        assert not driver.machine.settled
        driver.run()
        assert driver.values["x"] == 1

    def test_a_step_whose_tasks_have_ended_is_settled(self):
        driver = Driver(fan(a=None))
        driver.send_invoke({})
        driver.run(until=lambda: driver.runs("a"))
        assert not driver.machine.settled
        driver._do_end(driver.actions.pop()[1])
        assert driver.machine.settled
