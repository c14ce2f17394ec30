"""Values that are read again from the store, after code that was abandoned may have changed them."""

from __future__ import annotations

import operator
from typing import Annotated, TypedDict

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
