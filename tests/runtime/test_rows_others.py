"""Rows of the lists of cases that no other test names: LangGraph's own tests, and reports from the field."""

from __future__ import annotations

import asyncio
import operator
import threading
from typing import Annotated, Any, TypedDict

import pytest

from beamweaver import END, START, Command, Graph, Send
from beamweaver.errors import InvalidGraph, InvalidUpdate, NodeFailed
from beamweaver.graph import Ephemeral, Topic, append
from beamweaver.types import StateUpdate
from tests.runtime.kit import Boom, Counted, Log, line, star, wrote


class Kinds(TypedDict, total=False):
    log: Annotated[list[Any], append]
    found: Annotated[list[int], Topic]
    total: Annotated[int, operator.add]
    signal: Annotated[str, Ephemeral]
    n: int


def test_a_node_that_nothing_leads_to_is_a_fault():
    """langgraph 11."""
    graph = Graph(Log, name="g").add_node("a", wrote("a"))
    with pytest.raises(InvalidGraph):
        graph.compile()


def test_a_key_for_one_step_is_not_in_the_last_checkpoint(memory):
    """langgraph 17."""
    graph = Graph(Kinds, name="g").add_node("a", lambda _s: {"signal": "go"})
    graph.add_node("b", lambda state: {"log": state["signal"]}).add_edge(START, "a").add_edge(
        "a", "b"
    )
    with graph.compile(checkpointer=memory) as app:
        assert app.invoke({}, thread_id="t").state["log"] == ["go"]
        assert "signal" not in app.get_state("t").values


def test_two_writers_of_a_last_value_conflict_and_a_topic_takes_both(memory):
    """langgraph 18, langgraph 14."""
    for key, value in (("n", 1), ("found", 1)):
        graph = Graph(Kinds, name="g").add_node("a", lambda _s, k=key, v=value: {k: v})
        graph.add_node("b", lambda _s, k=key, v=value: {k: v}).add_edge(START, "a").add_edge(
            START, "b"
        )
        graph.add_node("see", lambda state: {"log": [list(state.get("found", ()))]})
        graph.add_edge(["a", "b"], "see")
        with graph.compile(checkpointer=memory) as app:
            if key == "n":
                with pytest.raises(InvalidUpdate, match="'a' and 'b' wrote 'n'"):
                    app.invoke({}, thread_id=key)
            else:
                assert app.invoke({}, thread_id=key).state["log"] == [[1, 1]]


def test_a_fan_out_joins_and_a_node_may_give_nothing(memory):
    """langgraph 19, langgraph 38, graph 26: the diamond's end runs once."""
    graph = star("g", a=wrote("a"), b=lambda _s: None).add_node("end", wrote("end"))
    with graph.add_edge("a", "end").add_edge("b", "end").compile(checkpointer=memory) as app:
        assert app.invoke({}).state["log"] == ["a", "end"]


@pytest.mark.parametrize("retries", [0, 1])
def test_a_failed_attempt_writes_nothing(memory, retries):
    """langgraph 21."""
    fails = [True]

    def node(_state):
        if fails:
            fails.clear()
            raise Boom
        return {"log": ["once"]}

    with line("g", a=(node, {"retries": retries})).compile(checkpointer=memory) as app:
        if retries:
            assert app.invoke({}, thread_id="t").state["log"] == ["once"]
            return
        with pytest.raises(NodeFailed):
            app.invoke({}, thread_id="t")
        state = app.get_state("t")
        assert (state.values["log"], state.pending_writes) == ([], ())
        assert [task.state for task in state.tasks] == ["failed"]


def test_a_total_grows_over_runs_and_old_checkpoints_keep_theirs(store):
    """langgraph 22, graph 69."""
    graph = Graph(Kinds, name="g").add_node("a", lambda _s: {"total": 1}).add_edge(START, "a")
    with graph.compile(checkpointer=store) as app:
        for _run in range(3):
            app.invoke({"total": 10}, thread_id="t")
        totals = [state.values["total"] for state in app.get_state_history("t")]
        assert totals == [33, 32, 22, 21, 11, 10]


def test_a_list_of_updates_is_reduced_in_order(memory):
    """langgraph 23, graph 54."""
    with line("g", a=lambda _s: [{"log": [1]}, {"log": [2]}, {"n": 3}]).compile(
        checkpointer=memory
    ) as app:
        outcome = app.invoke({})
    assert (outcome.state["log"], outcome.state["n"]) == ([1, 2], 3)


def test_an_update_may_say_none_and_what_is_left_out_stays(memory):
    """langgraph 25."""
    graph = Graph(name="g").add_node("a", lambda _s: {"note": None}).add_edge(START, "a")
    with graph.compile(checkpointer=memory) as app:
        state = app.invoke({"note": "old", "n": 1}).state
    assert (state["note"], state["n"]) == (None, 1)


def test_ids_of_tasks_follow_from_the_place_alone(place):
    """langgraph 27: another process, the same ids."""
    seen = []
    graph = line(
        "g", a=lambda _s, ctx: seen.append(ctx.task_id), b=lambda _s, ctx: ctx.interrupt("?")
    )
    with graph.compile(checkpointer=place.open()) as app:
        first = app.invoke({}, thread_id="t").interrupt
    with graph.compile(checkpointer=place.open()) as app:
        assert app.invoke(None, thread_id="t").interrupt == first


@pytest.mark.parametrize(("n", "log"), [(1, ["a"]), (2, ["b"]), (3, ["a", "b"])])
def test_the_entry_may_be_chosen_one_or_several(memory, n, log):
    """langgraph 31, graph 122."""
    graph = Graph(Log, name="g").add_node("a", wrote("a")).add_node("b", wrote("b"))
    chosen = {1: "a", 2: "b", 3: ["a", "b"]}
    graph.add_conditional_edges(START, lambda state: chosen[state["n"]], ["a", "b"])
    with graph.compile(checkpointer=memory) as app:
        assert app.invoke({"n": n}).state["log"] == log


def test_a_join_waits_for_sources_that_routers_reach(memory):
    """langgraph 34."""
    graph = star("g", a=wrote("a"), start=wrote("start")).add_node("b", wrote("b"))
    graph.add_conditional_edges("start", lambda _s: "b", ["b"])
    graph.add_node("end", wrote("end")).add_edge(["a", "b"], "end")
    with graph.compile(checkpointer=memory) as app:
        assert app.invoke({}).state["log"] == ["a", "start", "b", "end"]


def test_an_edge_and_a_join_into_one_node_run_it_early_and_again(memory):
    """langgraph 35."""
    graph = star("g", a=wrote("a"), start=wrote("start")).add_node("b", wrote("b"))
    graph.add_node("end", wrote("end")).add_edge("start", "b")
    graph.add_edge("a", "end").add_edge(["a", "b"], "end")
    with graph.compile(checkpointer=memory) as app:
        assert app.invoke({}).state["log"] == ["a", "start", "b", "end", "end"]


def test_sends_of_sends_come_in_the_next_step_in_order(memory):
    """langgraph 42."""

    def spread(state):
        n = state["item"]
        return [{"log": [n]}, *(Send("n", {"item": f"{n}{i}"}) for i in range(2) if len(n) < 2)]

    graph = Graph(None, name="g").add_reducer("log", append).add_node("n", spread)
    graph.add_conditional_edges(
        START, lambda _s: [Send("n", {"item": "a"}), Send("n", {"item": "b"})]
    )
    with graph.compile(checkpointer=memory) as app:
        assert app.invoke({}).state["log"] == ["a", "b", "a0", "a1", "b0", "b1"]


def test_finished_sends_do_not_run_again_after_an_answer(store):
    """langgraph 43, langgraph 71."""
    node = Counted(lambda state: {"log": [state["item"]]})

    def worker(state, ctx):
        if state["item"] == 1:
            ctx.interrupt("?")
        return node(state)

    graph = Graph(Log, name="g").add_node("w", worker)
    graph.add_conditional_edges(START, lambda _s: [Send("w", {"item": i}) for i in range(3)])
    with graph.compile(checkpointer=store) as app:
        app.invoke({}, thread_id="t")
        assert node.runs == 2
        assert app.resume("go", thread_id="t").state["log"] == [0, 1, 2]
    assert node.runs == 3


def test_commands_drive_a_plan_until_it_is_empty(memory):
    """langgraph 47."""

    def plan(state):
        step, *rest = state["log"][-1] if state["log"] else ["x", "y"]
        return Command(update={"log": [rest], "note": step}, goto="work" if rest else END)

    graph = Graph(Log, name="g").add_node("plan", plan, destinations=["work"])
    graph.add_node("work", lambda _s: None).add_edge(START, "plan").add_edge("work", "plan")
    with graph.compile(checkpointer=memory) as app:
        state = app.invoke({}).state
    assert (state["log"], state["note"]) == ([["y"], []], "y")


def test_a_question_is_not_tried_again(memory):
    """langgraph 69, reference U."""
    node = Counted(lambda _s: None)

    def asks(state, ctx):
        node(state)
        return {"note": ctx.interrupt("?")}

    with line("g", ask=(asks, {"retries": 5})).compile(checkpointer=memory) as app:
        app.invoke({}, thread_id="t")
        assert node.runs == 1
        assert app.resume("yes", thread_id="t").state["note"] == "yes"


def test_a_breakpoint_an_update_and_on(store):
    """langgraph 89."""
    graph = line("g", a=wrote("a"), b=lambda state: {"log": [state["note"]]})
    with graph.compile(checkpointer=store, interrupt_after=["a"]) as app:
        app.invoke({}, thread_id="t")
        app.update_state("t", {"note": "seen"})
        assert app.invoke(None, thread_id="t").state["log"] == ["a", "seen"]


def test_several_updates_are_several_checkpoints(store):
    """langgraph 91."""
    with line("g", a=wrote("a"), b=wrote("b")).compile(checkpointer=store) as app:
        app.invoke({}, thread_id="t")
        before = len(list(app.get_state_history("t")))
        updates = [StateUpdate({"n": 1}, as_node="a"), StateUpdate({"n": 2}, as_node="b")]
        app.bulk_update_state("t", [[update] for update in updates])
        states = list(app.get_state_history("t"))
    assert len(states) == before + 2
    assert [state.values["n"] for state in states[:2]] == [2, 1]


def test_branches_leave_the_history_as_it_was(store):
    """langgraph 107, langgraph 93."""
    with line("g", a=wrote("a"), b=wrote("b")).compile(checkpointer=store) as app:
        app.invoke({}, thread_id="t")
        old = list(app.get_state_history("t"))
        middle = old[1].config["configurable"]["checkpoint_id"]
        app.invoke(None, thread_id="t", checkpoint_id=middle)
        states = list(app.get_state_history("t"))
        assert [s.config for s in states[-len(old) :]] == [s.config for s in old]
        fork = states[len(states) - len(old) - 1]
        assert fork.parent_config == old[1].config


def test_a_clock_that_is_set_back_changes_no_order(memory):
    """peers 13."""
    times = iter([5_000.0, 4_000.0, 3_000.0, *[2_000.0] * 100])
    with line("g", a=wrote("a")).compile(checkpointer=memory) as app:
        app._open().hub.system.clock.time = lambda: next(times)
        for _run in range(2):
            app.invoke({}, thread_id="t")
        assert app.get_state("t").values["log"] == ["a", "a"]
        assert len(next(app.get_state_history("t")).values["log"]) == 2


def test_a_sync_call_on_a_loop_that_runs_no_nodes_works(memory):
    """peers 49."""

    async def main():
        return app.get_state("t"), app.invoke({}, thread_id="t")

    with line("g", a=wrote("a")).compile(checkpointer=memory) as app:
        before, outcome = asyncio.run(main())
    assert (before, outcome.state["log"]) == (None, ["a"])


def test_a_handle_that_a_node_uses_is_not_stored(memory):
    """peers 57: what a context holds never reaches the store."""
    handle = threading.Lock()

    def node(_state, ctx):
        return {"note": str(ctx.context is handle)}

    with line("g", a=node).compile(checkpointer=memory) as app:
        assert app.invoke({}, thread_id="t", context=handle).state["note"] == "True"
