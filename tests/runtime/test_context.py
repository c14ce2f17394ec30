"""What a node knows of its attempt, and what it may not do."""

from __future__ import annotations

import asyncio

import pytest

from beamweaver import START, Graph, Invoke, Runtime, interrupt
from beamweaver.errors import InvalidCall, InvalidGraph, InvalidUpdate, NodeTimeout, RouterFailed
from supervisors.testing import eventually


def one(node, **options):
    return Graph(name="g").add_node("a", node, **options).add_edge(START, "a").compile()


def run(store, app):
    with Runtime(store, graphs=[app]) as runtime:
        return runtime.thread("t").ask(Invoke({"n": 1}))


def test_an_attempt_with_a_timeout_has_a_deadline(store):
    def node(state, ctx):
        return {"left": ctx.deadline - ctx.first_attempt_at}

    assert run(store, one(node, timeout=5)).state["left"] >= 5


def test_an_attempt_without_a_timeout_has_none(store):
    assert run(store, one(lambda state, ctx: {"deadline": ctx.deadline})).state["deadline"] is None


def test_an_attempt_that_was_given_up_can_see_it(store):
    seen = []

    def node(state, ctx):
        seen.append(ctx.cancelled)
        try:
            while True:
                pass
        finally:
            seen.append(ctx.cancelled)

    with pytest.raises(NodeTimeout):
        run(store, one(node, timeout=0.05))

    eventually(lambda: seen == [False, True])


def test_an_async_attempt_that_was_given_up_can_see_it(store):
    seen = []

    async def node(state, ctx):
        seen.append(ctx.cancelled)
        try:
            await asyncio.Event().wait()
        finally:
            seen.append(ctx.cancelled)

    with pytest.raises(NodeTimeout):
        run(store, one(node, timeout=0.05))

    eventually(lambda: seen == [False, True])


def test_a_router_cannot_ask(store):
    graph = Graph(name="g").add_node("a", lambda state: {}).add_edge(START, "a")
    app = graph.add_conditional_edges("a", lambda state: interrupt("where?"), ["a"]).compile()

    with pytest.raises(RouterFailed, match="only nodes can ask"):
        run(store, app)


def test_a_node_that_swallows_its_question_fails(memory):
    def node(state):
        try:
            return {"answer": interrupt("well?")}
        except BaseException:
            return {"answer": None}

    with pytest.raises(InvalidUpdate, match="returned all the same"):
        run(memory, one(node))


def test_a_config_that_says_more_than_is_read_is_refused(memory):
    graph = Graph(name="g").add_node("a", lambda state: {}).add_edge(START, "a")
    with graph.compile(checkpointer=memory) as app:
        config = {"configurable": {"thread_id": "t"}, "recursion_limit": 3}
        with pytest.raises(InvalidCall, match="recursion_limit="):
            app.invoke({"n": 1}, config=config)
        with pytest.raises(InvalidCall, match="no checkpoint"):
            app.invoke({}, config={"configurable": {"thread_id": "t", "checkpoint_id": "x-1"}})


def test_the_config_of_a_parent_leads_to_the_parent(store):
    graph = Graph(name="g").add_node("a", lambda state: {"y": 1}).add_edge(START, "a")
    with graph.compile(checkpointer=store) as app:
        app.invoke({"x": 1}, thread_id="t")
        parent = app.get_state(config=app.get_state("t").parent_config)

    assert parent.values == {"x": 1}


def test_options_that_nothing_acts_on_yet_say_so():
    graph = Graph(name="g").add_node("a", lambda state: {}).add_edge(START, "a")
    with pytest.raises(InvalidGraph, match="not supported yet"):
        graph.compile(cache=object())


def test_outside_of_a_node_nobody_can_ask():
    with pytest.raises(InvalidCall, match="no node runs here"):
        interrupt("who?")
