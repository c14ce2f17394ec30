"""Async nodes, async routers, and the awaitable calls."""

from __future__ import annotations

import asyncio
import contextvars
import operator
import threading
from typing import Annotated, TypedDict

import pytest
import structlog.testing

from beamweaver import START, Continue, Graph, Invoke, Runtime, Send, interrupt
from beamweaver.errors import AskTimeout, InvalidCall, NodeFailed, NodeTimeout, WouldBlock
from beamweaver.runtime import loop
from supervisors.testing import eventually
from tests.runtime.kit import Gate, line


class State(TypedDict, total=False):
    out: Annotated[list, operator.add]
    i: int
    n: int
    where: str
    answer: object


async def plus_one(state):
    await asyncio.sleep(0)
    return {"n": state["n"] + 1, "where": threading.current_thread().name}


def one(node, **options):
    graph = Graph(State, name="g").add_node("a", node, **options).add_edge(START, "a")
    return graph.compile()


def ask(store, app, message=None):
    with Runtime(store, graphs=[app]) as runtime:
        return runtime.thread("t").ask(message or Invoke({"n": 1}))


class TestNodes:
    def test_an_async_node_runs_on_the_node_loop(self, store):
        state = ask(store, one(plus_one)).state

        assert (state["n"], state["where"]) == (2, "beamweaver-node-loop")

    def test_a_thousand_run_at_once_beside_sync_ones(self, store):
        arrived, all_there = [], asyncio.Event()

        async def wait(state):
            arrived.append(1)
            if len(arrived) == 1000:
                all_there.set()
            await all_there.wait()
            return {"out": [state["i"]]}

        graph = Graph(State, name="g").add_node("fan", lambda state: None)
        graph.add_node("wait", wait).add_node("sync", lambda state: {"out": ["sync"]})
        graph.add_edge(START, "fan").add_conditional_edges(
            "fan", lambda state: ["sync", *(Send("wait", {"i": i}) for i in range(1000))]
        )

        assert ask(store, graph.compile()).state["out"] == ["sync", *range(1000)]

    def test_an_async_router_chooses(self, store):
        async def route(state):
            await asyncio.sleep(0)
            return "b"

        graph = Graph(State, name="g").add_node("a", lambda state: {"out": ["a"]})
        graph.add_node("b", lambda state: {"out": ["b"]}).add_edge(START, "a")
        graph.add_conditional_edges("a", route, ["b"])

        assert ask(store, graph.compile()).state["out"] == ["a", "b"]

    def test_a_timeout_cancels_it(self, store):
        ended = []

        async def hang(state):
            try:
                await asyncio.Event().wait()
            finally:
                ended.append(1)

        with pytest.raises(NodeTimeout):
            ask(store, one(hang, timeout=0.05))
        eventually(lambda: ended == [1])

    def test_a_cancelled_error_of_its_own_is_a_failure(self, store):
        async def cancel(state):
            raise asyncio.CancelledError

        with pytest.raises(NodeFailed, match="CancelledError"):
            ask(store, one(cancel))

    def test_it_may_ask(self, store):
        async def review(state):
            await asyncio.sleep(0)
            return {"answer": interrupt("well?")}

        app = one(review)
        with Runtime(store, graphs=[app]) as runtime:
            thread = runtime.thread("t")
            assert thread.ask(Invoke({"n": 1})).interrupt.value == "well?"
        with Runtime(store, graphs=[app]) as runtime:
            from beamweaver import Resume

            assert runtime.thread("t").ask(Resume("yes")).state["answer"] == "yes"

    def test_it_sees_the_callers_context_variables(self, store):
        variable = contextvars.ContextVar("variable", default="none")
        variable.set("the caller's")

        async def look(state):
            return {"answer": variable.get()}

        assert ask(store, one(look)).state["answer"] == "the caller's"

    def test_a_sync_one_sees_the_callers_context_variables(self, store):
        variable = contextvars.ContextVar("variable", default="none")
        variable.set("the caller's")

        assert (
            ask(store, one(lambda s: {"answer": variable.get()})).state["answer"] == "the caller's"
        )

    def test_retries_are_those_of_any_node(self, store):
        tries = []

        async def flaky(state):
            tries.append(1)
            if len(tries) < 3:
                raise ConnectionError
            return {"n": len(tries)}

        assert ask(store, one(flaky, retries=2)).state["n"] == 3


class TestCalls:
    def test_async_nodes_run_on_the_loop_that_entered_the_runtime(self, store):
        app = one(plus_one)

        async def main():
            async with Runtime(store, graphs=[app]) as runtime:
                outcome = await runtime.thread("t").aask(Invoke({"n": 1}))
                return outcome.state["where"] == threading.current_thread().name

        assert asyncio.run(main())

    def test_many_calls_wait_side_by_side(self, store):
        app = one(plus_one)

        async def main():
            async with Runtime(store, graphs=[app]) as runtime:
                calls = [runtime.thread(f"t{i}").aask(Invoke({"n": i})) for i in range(50)]
                return [outcome.state["n"] for outcome in await asyncio.gather(*calls)]

        assert asyncio.run(main()) == list(range(1, 51))

    def test_a_sync_call_on_that_loop_would_block_and_says_its_twin(self, store):
        app = one(plus_one)

        async def main():
            async with Runtime(store, graphs=[app]) as runtime:
                thread = runtime.thread("t")
                await thread.aask(Invoke({"n": 1}))
                with pytest.raises(WouldBlock, match="await aask"):
                    thread.ask(Continue())
                with pytest.raises(WouldBlock, match="await adrain"):
                    runtime.drain()

        asyncio.run(main())

    def test_atell_is_durable_when_it_returns(self, store):
        app = one(plus_one)

        async def main():
            async with Runtime(store, graphs=[app]) as runtime:
                receipt = await runtime.thread("t").atell(Invoke({"n": 1}, run_id="r"))
                state = await runtime.thread("t").aget_state()
                return receipt.run_id, state is not None

        assert asyncio.run(main()) == ("r", True)

    def test_ainvoke_and_aresume_work_on_an_app(self, store):
        async def review(state):
            return {"answer": interrupt("well?")}

        graph = Graph(State, name="g").add_node("a", review).add_edge(START, "a")

        async def main():
            with graph.compile(checkpointer=store) as app:
                await app.ainvoke({"n": 1}, thread_id="t")
                outcome = await app.aresume("yes", thread_id="t")
                return outcome.state["answer"], (await app.aget_state("t")).status

        assert asyncio.run(main()) == ("yes", "complete")

    def test_a_generator_that_a_node_left_open_is_closed_with_the_loop(self, store):
        left, closed = [], []

        async def numbers():
            try:
                yield 1
                yield 2
            finally:
                await asyncio.sleep(0)
                closed.append(1)

        async def first(state):
            left.append(numbers())
            return {"n": await anext(left[0])}

        ask(store, one(first))
        assert closed == [1]

    def test_a_caller_that_goes_away_cancels_its_run(self, store):
        started = threading.Event()

        async def hang(state):
            started.set()
            await asyncio.Event().wait()

        app = one(hang)

        async def main(on_disconnect):
            async with Runtime(store, graphs=[app]) as runtime:
                thread = runtime.thread(on_disconnect)
                call = asyncio.create_task(
                    thread.aask(Invoke({"n": 1}), on_disconnect=on_disconnect)
                )
                await asyncio.to_thread(started.wait)
                call.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await call
                if on_disconnect == "cancel":
                    status = lambda: thread.get_state().status
                    await asyncio.to_thread(eventually, lambda: status() == "cancelled")
                return (await thread.aget_state()).status

        assert asyncio.run(main("cancel")) == "cancelled"
        started.clear()
        assert asyncio.run(main("continue")) == "running"

    def test_aask_times_out_and_the_run_goes_on(self, store):
        gate = threading.Event()

        def wait(state):
            gate.wait()
            return {"n": 2}

        app = one(wait)

        async def main():
            async with Runtime(store, graphs=[app]) as runtime:
                thread = runtime.thread("t")
                with pytest.raises(AskTimeout):
                    await thread.aask(Invoke({"n": 1}), timeout=0.01)
                gate.set()
                return (await thread.aask(Continue())).state["n"]

        assert asyncio.run(main()) == 2

    def test_an_unknown_on_disconnect_is_refused(self, store):
        app = one(plus_one)

        async def main():
            async with Runtime(store, graphs=[app]) as runtime:
                with pytest.raises(InvalidCall, match="on_disconnect"):
                    await runtime.thread("t").aask(Invoke({"n": 1}), on_disconnect="stop")

        asyncio.run(main())


def test_a_caller_that_goes_away_leaves_a_run_that_others_wait_for(store):
    gate = Gate({"log": ["a"]})
    app = line("g", a=gate).compile()

    async def main():
        async with Runtime(store, graphs=[app]) as runtime:
            thread = runtime.thread("t")
            first = asyncio.create_task(thread.aask(Invoke({"n": 1})))
            await asyncio.to_thread(gate.wait)
            other = asyncio.create_task(thread.aask(Continue()))
            await asyncio.sleep(0)  # it has been sent
            first.cancel()
            with pytest.raises(asyncio.CancelledError):
                await first
            await thread.atell(Continue())  # behind a cancel, had there been one
            gate.open()
            return (await other).state["log"]

    assert asyncio.run(main()) == ["a"]


def test_a_node_that_blocks_the_loop_is_named_once(store, monkeypatch):
    monkeypatch.setattr(loop, "_BLOCKS_SECONDS", -1.0)

    async def node(_state):
        return {"log": ["a"]}

    with structlog.testing.capture_logs() as logged:
        with line("g", a=node).compile(checkpointer=store) as app:
            app.invoke({"n": 1}, thread_id="t")
            app.invoke({"n": 2}, thread_id="t")
    assert [e["node"] for e in logged if e["event"] == "node_blocks_the_loop"] == ["a"]
