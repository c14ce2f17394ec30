"""What a node knows of its attempt, and what it may not do."""

from __future__ import annotations

import asyncio

import pytest

from beamweaver import START, Graph, Invoke, Runtime, interrupt
from beamweaver.errors import InvalidCall, NodeTimeout, RouterFailed
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


def test_outside_of_a_node_nobody_can_ask():
    with pytest.raises(InvalidCall, match="no node runs here"):
        interrupt("who?")
