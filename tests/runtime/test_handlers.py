"""Error handlers and `on_failure` in a runtime: sync, async, killed, drained, over kills."""

from __future__ import annotations

import asyncio

import pytest

from beamweaver import Completed, Continue, Drained, Invoke, Runtime, interrupt
from beamweaver.errors import ErrorHandlerFailed, NodeFailed
from beamweaver.events import RunSleeps, TaskAcknowledged
from beamweaver.types import Command
from tests.runtime.children import killed
from tests.runtime.kit import PATIENCE, Caller, Events, Gate, Oracle, line, simulated, star, wrote
from tests.runtime.people import boom, die_in_handler, die_in_on_failure, handled, store_at


def says(failure):
    return {"log": [failure.message]}


async def says_async(failure, state, ctx):
    await asyncio.sleep(0)
    return {"log": [f"{failure.message} {state['n']} {ctx.node}"]}


async def fails_async(_state):
    raise ValueError("boom")


def test_a_failed_node_is_handled(store):
    with handled(says).compile(checkpointer=store) as app:
        outcome = app.invoke({"n": 1}, thread_id="t")
        assert outcome.state["log"] == ["boom", "b"]
        assert app.get_state("t").status == "complete"


def test_without_a_store_too():
    with handled(says).compile() as app:
        assert app.invoke({"n": 1}).state["log"] == ["boom", "b"]


def test_an_async_handler_of_a_sync_node(store):
    with handled(says_async).compile(checkpointer=store) as app:
        assert app.invoke({"n": 1}, thread_id="t").state["log"] == ["boom 1 a", "b"]


def test_a_sync_handler_of_an_async_node(store):
    graph = line("g", a=(fails_async, {"error_handler": says}), b=wrote("b"))
    with graph.compile(checkpointer=store) as app:
        assert app.invoke({"n": 1}, thread_id="t").state["log"] == ["boom", "b"]


def test_the_handler_of_a_node_beside_others(store):
    """peers 29."""
    graph = star(
        "g",
        a=(boom, {"error_handler": says}),
        b=wrote("b"),
        c=(fails_async, {"error_handler": says_async}),
    )
    with graph.compile(checkpointer=store) as app:
        assert app.invoke({"n": 1}, thread_id="t").state["log"] == ["boom", "b", "boom 1 c"]


def test_a_handler_that_hangs_is_ended_by_its_nodes_timeout(memory):
    """peers 30."""
    gate = Gate()
    hangs = handled(lambda failure, state: gate(state), timeout=0.1)
    with hangs.compile(checkpointer=memory) as app:
        with pytest.raises(ErrorHandlerFailed, match=r"timeout of 0.1 s"):
            app.invoke({"n": 1}, thread_id="t")
    assert not gate.opened.is_set()


def test_its_failure_has_both_and_continuing_runs_only_it(store):
    runs = []

    def node(_state):
        runs.append("node")
        raise ValueError("boom")

    def handler(failure):
        runs.append("handler")
        if len(runs) == 2:
            raise KeyError("worse")
        return {"log": [failure.message]}

    graph = line("g", a=(node, {"error_handler": handler}), b=wrote("b"))
    with graph.compile(checkpointer=store) as app:
        with pytest.raises(ErrorHandlerFailed, match="worse.*\n.*ValueError: boom") as caught:
            app.invoke({"n": 1}, thread_id="t")
        assert isinstance(caught.value.__cause__, KeyError)
        state = app.get_state("t")
        assert (state.status, state.tasks[0].failure.code) == ("failed", "error_handler_failed")
        assert app.invoke(None, thread_id="t").state["log"] == ["boom", "b"]
    assert runs == ["node", "handler", "handler"]


def test_while_it_runs_its_task_is_being_handled(store):
    gate = Gate()

    def handler(failure, state):
        return gate(state)

    with Runtime(store, graphs=[app := handled(handler).compile()]) as runtime:
        thread = runtime.thread("t", graph=app)
        thread.tell(Invoke({"n": 1}))
        gate.wait()
        (task,) = thread.get_state().tasks
        assert (task.state, task.failure.message) == ("handling", "boom")
        assert "handling" in app.draw_mermaid(state=thread.get_state())
        gate.open()
        assert thread.ask(Continue()).state["log"] == ["b"]


def test_a_handler_may_ask_and_route(store):
    """reference AH; graph 106."""

    def handler(failure):
        return Command(update={"log": [interrupt(failure.message)]}, goto="c")

    graph = line("g", a=(boom, {"error_handler": handler}), b=wrote("b"), c=wrote("c"))
    with graph.compile(checkpointer=store) as app:
        assert app.invoke({"n": 1}, thread_id="t").interrupt.value == "boom"
        assert app.resume("skip b", thread_id="t").state["log"] == ["skip b", "c"]


def test_its_sub_steps_and_key_are_not_those_of_its_node(store):
    seen = []

    def node(_state, ctx):
        seen.append(ctx.step("charge", lambda: "charged"))
        seen.append(ctx.idempotency_key)
        raise ValueError("boom")

    def handler(failure, state, ctx):
        seen.append(ctx.step("charge", lambda: "charged back"))
        seen.append(ctx.idempotency_key)

    with line("g", a=(node, {"error_handler": handler})).compile(checkpointer=store) as app:
        app.invoke({"n": 1}, thread_id="t")
    assert seen[0::2] == ["charged", "charged back"]
    assert seen[1] != seen[3]


def test_a_drain_whose_deadline_passes_leaves_it_to_the_next_runtime(place):
    gate = Gate()
    app = handled(lambda failure, state: gate(state)).compile()
    with Runtime(place.open(), graphs=[app]) as runtime:
        caller = Caller(runtime.thread("t", graph=app).ask, Invoke({"n": 1}))
        gate.wait()
        runtime.drain(timeout=0.0)
        assert type(caller.join()) is Drained
    gate.open()
    with Runtime(place.open(), graphs=[app]) as runtime:
        outcome = runtime.thread("t", graph=app).ask(Continue(), timeout=PATIENCE)
        assert outcome.state["log"] == ["b"]
    assert gate.runs == 2


def test_a_cancel_ends_it_and_continuing_runs_it_again(store):
    gate = Gate()
    app = handled(lambda failure, state: gate(state)).compile()
    with Runtime(store, graphs=[app]) as runtime:
        thread = runtime.thread("t", graph=app)
        thread.tell(Invoke({"n": 1}))
        gate.wait()
        thread.cancel()
        gate.open()
        assert type(thread.ask(Continue())) is Completed
    assert gate.runs == 2


def test_after_a_kill_in_it_only_it_runs_again(tmp_path):
    path = tmp_path / "state.lmdb"
    (told,) = killed(die_in_handler, path)
    seen = []

    def handler(failure, state, ctx):
        seen.append((failure.message, ctx.idempotency_key))
        assert failure.exception is None
        return {"log": ["handled"]}

    def never(_state):
        raise AssertionError("the node ran again")

    store = store_at(path)
    app = line("handled", a=(never, {"error_handler": handler}), b=wrote("b")).compile()
    with Runtime(store, graphs=[app]) as runtime:
        assert runtime.thread("t", graph=app).ask(Continue()).state["log"] == ["handled", "b"]
    store.close()
    assert seen == [told]


def test_an_acknowledged_handler_never_starts_again(store):
    """peers 6."""
    fails = [1]

    def once(_state):
        if fails:
            fails.pop()
            raise ValueError("later")

    graph = star("g", a=(boom, {"error_handler": says}), b=once)
    app = graph.compile()
    with Runtime(store, graphs=[app]) as runtime:
        oracle = Oracle(runtime)
        thread = runtime.thread("t", graph=app)
        with pytest.raises(NodeFailed):
            thread.ask(Invoke({"n": 1}))
        assert oracle.of(TaskAcknowledged, node="a")
        assert thread.ask(Continue()).state["log"] == ["boom"]
        assert oracle.reruns == []


class TestOnFailure:
    def test_it_is_told_before_the_caller(self, store):
        told = []
        graph = line("g", a=wrote("a"), b=boom)
        with graph.compile(checkpointer=store, on_failure=told.extend) as app:
            with pytest.raises(NodeFailed):
                app.invoke({"n": 1}, thread_id="t")
            assert [(failure.node, failure.message) for failure in told] == [("b", "boom")]
            assert app.get_state("t").status == "failed"

    def test_awaited(self, store):
        told = []

        async def on_failure(failures, ctx):
            await asyncio.sleep(0)
            told.append((ctx.thread_id, ctx.node, ctx.state["log"]))

        graph = line("g", a=wrote("a"), b=boom)
        with graph.compile(checkpointer=store, on_failure=on_failure) as app:
            with pytest.raises(NodeFailed):
                app.invoke({"n": 1}, thread_id="t")
        assert told == [("t", "on_failure", ["a"])]

    def test_without_a_store_too(self):
        told = []
        with line("g", a=boom).compile(on_failure=told.append) as app:
            with pytest.raises(NodeFailed):
                app.invoke({"n": 1})
        assert len(told) == 1

    def test_its_own_failure_is_a_note(self, store):
        def on_failure(failures):
            raise RuntimeError("no mail")

        with line("g", a=boom).compile(checkpointer=store, on_failure=on_failure) as app:
            with pytest.raises(NodeFailed) as caught:
                app.invoke({"n": 1}, thread_id="t")
        assert caught.value.__notes__ == ["on_failure failed too: RuntimeError: no mail"]
        assert caught.value.failures[-1].node == "on_failure"

    def test_it_has_no_sub_steps(self, memory):
        def on_failure(failures, ctx):
            ctx.step("mail", lambda: None)

        with line("g", a=boom).compile(checkpointer=memory, on_failure=on_failure) as app:
            with pytest.raises(NodeFailed) as caught:
                app.invoke({"n": 1}, thread_id="t")
        assert "idempotency_key" in caught.value.__notes__[0]

    def test_a_kill_in_it_leaves_it_to_the_next_process(self, tmp_path):
        path = tmp_path / "state.lmdb"
        (first,) = killed(die_in_on_failure, path)
        seen = []

        def on_failure(failures, ctx):
            seen.append(([failure.node for failure in failures], ctx.idempotency_key))

        store = store_at(path)
        app = line("g", a=wrote("a"), b=wrote("b")).compile(on_failure=on_failure)
        with Runtime(store, graphs=[app], recover="called") as runtime:
            thread = runtime.thread("t", graph=app)
            with pytest.raises(NodeFailed, match="boom"):
                thread.ask(Invoke({"n": 1}), timeout=PATIENCE)
            assert thread.ask(Continue()).state["log"] == ["a", "b"]
        store.close()
        assert seen == [first]

    def test_a_drain_lets_it_end(self, store):
        gate = Gate()
        app = line("g", a=boom).compile(on_failure=gate)
        with Runtime(store, graphs=[app]) as runtime:
            caller = Caller(runtime.thread("t", graph=app).ask, Invoke({"n": 1}))
            gate.wait()
            draining = Caller(runtime.drain, timeout=PATIENCE)
            gate.open()
            assert draining.join()
            with pytest.raises(NodeFailed):
                caller.join()


def test_its_sleeps_are_not_those_of_its_node(memory):
    slept = []

    def node(_state, ctx):
        ctx.sleep(60)
        slept.append("node")
        raise ValueError("boom")

    def handler(failure, state, ctx):
        began = len(slept)
        ctx.sleep(60)
        slept.append(f"handler, {began}")

    app = line("g", a=(node, {"error_handler": handler})).compile()
    with simulated(memory, 1, graphs=[app]) as runtime:
        slept_away = Events(runtime)
        assert type(runtime.thread("t", graph=app).ask(Invoke({"n": 1}))) is Completed
        assert len(slept_away.of(RunSleeps)) == 2
    assert slept == ["node", "handler, 1"]


def test_on_failure_does_not_sleep(memory):
    app = line("g", a=boom).compile(
        checkpointer=memory, on_failure=lambda failures, ctx: ctx.sleep(9)
    )
    with app, pytest.raises(NodeFailed) as caught:
        app.invoke({"n": 1}, thread_id="t")
    assert "are quick" in caught.value.__notes__[0]
