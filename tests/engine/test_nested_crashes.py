"""A nested run that dies anywhere ends as one that never died."""

from __future__ import annotations

import random

import pytest

from beamweaver.graph import Graph
from beamweaver.types import START, RetryPolicy
from tests.engine.crashing import crash_plan
from tests.engine.driver import HANGS, Crashed, Driver
from tests.engine.generator import State, plan_of, run_plan

FAST, SLOW, DEPTH, DEEP = 24, 60, 2, 3


def crash(seed, *, points, depth=DEPTH, calls=False):
    """Crash the nested plan of a seed at so many of its commits."""
    crash_plan(plan_of(seed, depth=depth, calls=calls), points=points, all_along=False)


@pytest.mark.parametrize("calls", [False, True], ids=["graphs", "calls"])
@pytest.mark.parametrize("seed", range(600, 600 + FAST))
def test_a_nested_run_that_dies_all_along_ends_as_the_clean_one(seed, calls):
    plan = plan_of(seed, depth=1, calls=calls)
    plan.stay_awake()
    crash_plan(plan, points=0)


@pytest.mark.parametrize("seed", range(FAST))
def test_a_nested_run_that_dies_ends_as_the_clean_one(seed):
    crash(seed, points=2)


@pytest.mark.parametrize("seed", range(FAST))
def test_one_whose_functions_call_graphs_ends_as_the_clean_one(seed):
    crash(seed, points=2, calls=True)


@pytest.mark.parametrize("seed", range(12))
def test_the_order_of_completion_changes_nothing_where_functions_call_graphs(seed):
    plan = plan_of(seed, depth=DEPTH, calls=True)
    clean = run_plan(plan)
    for order in range(2):
        other = run_plan(plan, order=order)
        assert other.values == clean.values, f"seed {seed}, order {order}"


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("block", range(0, SLOW, 10))
def test_a_nested_run_that_dies_at_many_commits_ends_as_the_clean_one(block):
    for seed in range(block, block + 10):
        crash(seed, points=4, depth=DEEP)


@pytest.mark.parametrize("seed", range(12))
def test_the_order_of_completion_changes_nothing_at_any_depth(seed):
    plan = plan_of(seed, depth=DEPTH)
    clean = run_plan(plan)
    for order in range(2):
        other = run_plan(plan, order=order)
        where = f"seed {seed}, order {order}"
        assert other.values == clean.values, where
        assert other.faults == [], where


@pytest.mark.parametrize("seed", range(12))
def test_a_nested_run_that_dies_in_any_order_ends_as_the_clean_one(seed):
    plan = plan_of(seed, depth=DEPTH)
    clean = run_plan(plan)
    rng = random.Random(seed)
    order, at = rng.randrange(1_000), rng.randrange(len(clean.commits))
    crashed = run_plan(plan, order=order, crash_at=at, written=rng.random() < 0.5)
    where = f"seed {seed}, order {order}, crash at commit {at}"
    assert crashed.values == clean.values, where
    assert crashed.faults == [], where


@pytest.mark.parametrize("at", range(8))
def test_an_attempt_that_was_cut_off_before_it_stored_anything_leaves_what_it_began_with(at):
    """The attempt after it goes on with the graph, whose first record is still to be stored."""
    runs = []

    def slow_at_first(_state):
        runs.append(1)
        return HANGS if len(runs) == 1 else {"log": ["one"]}

    child = Graph(State, name="child").add_node("one", slow_at_first).add_edge(START, "one")
    child.add_node("two", lambda _s: {"log": ["two"]}).add_edge("one", "two")
    retry = RetryPolicy(max_attempts=2, retry_on="any", initial_delay=0.1)
    top = Graph(State, name="top").add_node("c", child.compile(), timeout=1.0, retry=retry)
    driver = Driver(top.add_edge(START, "c").compile(), crash_at=at)
    driver.checks = True
    driver.send_invoke({"log": ["in"]})
    try:
        driver.run()
    except Crashed:
        driver.crash()
        driver.run()
    driver.go_on() if driver.status else driver.invoke({"log": ["in"]})

    assert driver.values["log"] == ["in", "one", "two"]


def failing_and_asking(*, told):
    """A graph in a graph of which one node fails and another one asks."""

    def fails(_state):
        raise ValueError("broken")

    child = Graph(State, name="child").add_node("bad", fails).add_edge(START, "bad")
    child.add_node("ask", lambda _s, ctx: {"log": [ctx.interrupt("q")]}).add_edge(START, "ask")
    options = {"on_failure": lambda failures: None} if told else {}
    top = Graph(State, name="top").add_node("c", child.compile(**options)).add_edge(START, "c")
    return top.compile()


@pytest.mark.parametrize("told", [False, True], ids=["untold", "told"])
def test_a_graph_that_failed_and_asks_has_failed_wherever_its_process_dies(told):
    graph = failing_and_asking(told=told)
    clean = Driver(graph)
    clean.fails({"log": ["in"]})
    for at in range(1, len(clean.commits)):
        for written in (False, True):
            driver = Driver(graph, crash_at=at, written=written)
            driver.send_invoke({"log": ["in"]})
            with pytest.raises(Crashed):
                driver.run()
            driver.crash()
            driver.run()
            assert driver.status == clean.status == "failed", f"{at=}, {written=}"


def test_the_plans_nest_ask_fail_and_command():
    """What the other tests of this file would miss without a trace if the plans had none of it."""
    levels, moods, ups, persistent = set(), set(), 0, 0
    for seed in range(60):
        waiting = [(1, plan_of(seed, depth=DEEP))]
        while waiting:
            level, plan = waiting.pop()
            for node in plan.nodes:
                if node.inner is not None:
                    waiting.append((level + 1, node.inner))
                    persistent += node.persistent
                elif level > 1:
                    levels.add(level)
                    moods.add(node.mood)
                    ups += node.up is not None

    assert levels == {2, 3, 4}
    assert moods >= {"fine", "slow", "retried", "fails", "asks", "asks keyed"}
    assert ups > 20
    assert persistent > 20


def test_the_plans_have_functions_that_call_graphs():
    plans = [plan_of(seed, depth=DEPTH, calls=True) for seed in range(FAST)]
    callers = [node for plan in plans for node in plan.nodes if node.calls]

    assert len(callers) > 10
    assert {node.is_async for node in callers} == {True, False}
    assert any(node.sends for node in callers), "some call twice"
