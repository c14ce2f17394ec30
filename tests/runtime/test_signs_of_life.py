"""Idle timeouts, heartbeats, what nodes emit, and blocks that no kill tears."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from typing import Any

import pytest

from beamweaver import START, Graph, Invoke, RetryPolicy, Runtime, Send, TimeoutPolicy
from beamweaver.errors import InvalidGraph, InvalidUpdate, NodeTimeout
from beamweaver.events import AttemptKilled, Emitted
from supervisors import CallTimeout
from supervisors.testing import eventually
from tests.engine.driver import HANGS, Driver, Later
from tests.engine.graphs import fan
from tests.runtime.kit import PATIENCE, Events, Gate, line, simulated, wrote


def one(node: Any, **options: Any) -> Any:
    return line("g", a=(node, options)).compile()


def ask(store: Any, app: Any, **options: Any) -> Any:
    with Runtime(store, graphs=[app], **options) as runtime:
        return runtime.thread("t").ask(Invoke({}), timeout=PATIENCE)


def virtually(store: Any, app: Any) -> Any:
    """The same on a virtual clock."""
    with simulated(store, 1, graphs=[app]) as runtime:
        return runtime.thread("t").ask(Invoke({}), timeout=PATIENCE)


def wait(ctx: Any, seconds: float) -> None:
    """Let virtual time pass without a sign of life."""
    with contextlib.suppress(CallTimeout):
        ctx._frame.hub.system.future().get(timeout=seconds)


class TestPolicies:
    """graph 63 and 64."""

    @pytest.mark.parametrize(
        ("policy", "match"),
        [
            (TimeoutPolicy(total=0.05), r"took longer than its timeout of 0\.05 s"),
            (TimeoutPolicy(idle=0.05), r"no sign of life within its idle timeout of 0\.05 s"),
            (TimeoutPolicy(total=30, idle=0.05), "no sign of life"),
            (TimeoutPolicy(total=0.05, idle=30), "took longer"),
        ],
    )
    def test_the_shorter_time_counts(self, store, policy, match):
        with pytest.raises(NodeTimeout, match=match) as caught:
            ask(store, one(Gate(), timeout=policy))
        assert caught.value.timeout == 0.05

    def test_a_send_may_have_its_own(self, store):
        gate = Gate()
        graph = Graph(name="g").add_node("w", gate, timeout=30)
        policy = TimeoutPolicy(idle=0.05)
        graph.add_conditional_edges(
            START, lambda state: [Send("w", {"i": 1}, timeout=policy)], ["w"]
        )
        with pytest.raises(NodeTimeout, match="no sign of life"):
            ask(store, graph.compile())

    def test_that_of_a_send_is_durable(self, disk):
        gate, policy = Gate(), TimeoutPolicy(total=60, idle=0.05)
        graph = Graph(name="g").add_node("a", lambda state: Send("w", {"i": 1}, timeout=policy))
        graph.add_node("w", gate).add_edge(START, "a")
        app = graph.compile(allow_unreachable=True)
        with Runtime(disk.open(), graphs=[app]) as runtime:
            runtime.thread("t").tell(Invoke({}))
            gate.wait()
        with Runtime(disk.open(), graphs=[app]) as runtime:
            eventually(lambda: runtime.get_state("t").status == "failed", timeout=PATIENCE)
            assert "no sign of life" in runtime.get_state("t").tasks[0].failure.message

    def test_it_may_be_the_default_of_all_nodes(self, store):
        graph = Graph(name="g").set_node_defaults(timeout=TimeoutPolicy(idle=0.05))
        graph.add_node("a", Gate()).add_edge(START, "a")
        with pytest.raises(NodeTimeout, match="no sign of life"):
            ask(store, graph.compile())

    def test_a_node_turns_the_default_off(self, store):
        graph = Graph(name="g").set_node_defaults(timeout=TimeoutPolicy(idle=0.001))
        graph.add_node("a", lambda state: threading.Event().wait(0.05) or {}, timeout=None)
        assert ask(store, graph.add_edge(START, "a").compile()).state == {}

    def test_an_idle_attempt_is_made_again(self, store):
        gates = [Gate(), Gate({"log": ["second"]})]
        gates[1].open()
        left = iter(gates)
        policy = RetryPolicy(max_attempts=2, initial_delay=0, retry_on="transient")

        def node(state):
            return next(left)(state)

        app = one(node, timeout=TimeoutPolicy(idle=0.05), retry=policy)
        assert ask(store, app).state["log"] == ["second"]

    @pytest.mark.parametrize(
        "options",
        [{}, {"total": 0}, {"idle": -1}, {"idle": "1"}, {"total": True}, {"idle": float("nan")}],
    )
    def test_what_limits_nothing_is_refused(self, options):
        with pytest.raises(ValueError, match="TimeoutPolicy"):
            TimeoutPolicy(**options)

    def test_what_is_no_time_is_refused(self):
        with pytest.raises(InvalidGraph, match="timeout"):
            Graph(name="g").add_node("a", wrote("a"), timeout="1")
        node = lambda state: Send("a", {}, timeout="soon")
        app = Graph(name="g").add_node("a", node).add_edge(START, "a").compile()
        with pytest.raises(InvalidUpdate, match="timeout of a Send"), app:
            app.invoke({})


class TestHeartbeats:
    def test_an_attempt_that_beats_goes_on_for_long(self, store):
        """langgraph 137."""

        def node(state, ctx):
            for _ in range(10):
                wait(ctx, 0.9)
                ctx.heartbeat()
            return {"log": ["alive"]}

        assert virtually(store, one(node, timeout=TimeoutPolicy(idle=1))).state["log"] == ["alive"]

    def test_one_that_emits_too(self, store):
        def node(state, ctx):
            for _ in range(10):
                wait(ctx, 0.9)
                ctx.emit("alive")
            return {"log": ["alive"]}

        assert virtually(store, one(node, timeout=TimeoutPolicy(idle=1))).state["log"] == ["alive"]

    def test_one_that_does_not_is_ended(self, store):
        app = one(lambda state, ctx: wait(ctx, 1.1), timeout=TimeoutPolicy(idle=1))
        with pytest.raises(NodeTimeout, match="no sign of life"):
            virtually(store, app)

    def test_who_sleeps_in_place_is_not_idle(self, store):
        app = one(lambda state, ctx: ctx.sleep(0.9), timeout=TimeoutPolicy(idle=0.1))
        assert virtually(store, app).state["log"] == []

    def test_without_an_idle_timeout_it_does_nothing(self, store):
        assert ask(store, one(lambda state, ctx: ctx.heartbeat())).state["log"] == []

    def test_they_are_looked_at_when_the_time_is_over(self):
        """The timer is set once for each look, not once for each beat."""
        attempts = []

        def node(_state, ctx):
            attempts.append(ctx._attempt)
            return HANGS

        driver = Driver(fan(a=node, options={"a": {"timeout": TimeoutPolicy(idle=10)}}))
        call = driver.send_invoke({})
        began = driver.now
        for _ in range(100):
            driver.run(seconds=1)
            attempts[0].beat_at = driver.now
        driver.run()
        assert driver.now - began == pytest.approx(110)
        with pytest.raises(NodeTimeout, match="idle"):
            driver.answer(call)

    @pytest.mark.parametrize("beats", [0, 3])
    def test_the_total_time_is_not_made_longer(self, beats):
        attempts = []

        def node(_state, ctx):
            attempts.append(ctx._attempt)
            return HANGS

        policy = TimeoutPolicy(total=25, idle=10)
        driver = Driver(fan(a=node, options={"a": {"timeout": policy}}))
        began = driver.now
        driver.send_invoke({})
        for _ in range(beats):
            driver.run(seconds=9)
            attempts[0].beat_at = driver.now
        driver.run()
        assert driver.now - began == pytest.approx(25 if beats else 10, abs=2.1)

    def test_an_attempt_that_ends_leaves_no_timer(self):
        policy = TimeoutPolicy(total=25, idle=10)
        driver = Driver(fan(a=lambda _s: Later(5), options={"a": {"timeout": policy}}))
        driver.invoke({})
        assert driver.timers == {}

    @pytest.mark.parametrize("call", [lambda ctx: ctx.heartbeat(), lambda ctx: ctx.emit("late")])
    def test_a_body_that_was_given_up_is_ended_by_it(self, store, call):
        gate, ended = Gate(hard=True), threading.Event()

        def node(state, ctx):
            try:
                gate(state)
            except BaseException:
                gate.opened.wait(PATIENCE)
            try:
                call(ctx)
            finally:
                ended.set()

        app = one(node, timeout=0.05)
        with Runtime(store, graphs=[app]) as runtime:
            events = Events(runtime)
            with pytest.raises(NodeTimeout):
                runtime.thread("t").ask(Invoke({}))
            gate.open()
            assert ended.wait(PATIENCE)
            events.wait(AttemptKilled)
            assert events.of(Emitted) == []


class TestEmit:
    def test_listeners_hear_it_in_order(self, store):
        def node(state, ctx):
            for n in range(3):
                ctx.emit({"n": n})

        app = one(node)
        with Runtime(store, graphs=[app]) as runtime:
            events = Events(runtime)
            outcome = runtime.thread("t").ask(Invoke({}))
            told = events.of(Emitted)
        assert [event.value["n"] for event in told] == [0, 1, 2]
        assert {(e.thread_id, e.run_id, e.node, e.attempt) for e in told} == {
            ("t", outcome.run_id, "a", 1)
        }

    def test_a_listener_that_raises_is_no_fault_of_the_node(self, store):
        def listener(event):
            raise ValueError("listener")

        app = one(lambda state, ctx: ctx.emit(object()))
        with Runtime(store, graphs=[app]) as runtime:
            runtime.subscribe(listener)
            assert runtime.thread("t").ask(Invoke({})).state["log"] == []

    def test_nobody_need_listen(self, store):
        assert ask(store, one(lambda state, ctx: ctx.emit(1))).state["log"] == []


class TestShield:
    def test_a_kill_waits_for_the_end_of_the_block(self, store):
        gate, done = Gate(hard=True), []

        def node(state, ctx):
            with ctx.shield():
                gate(state)
                done.append("whole")
            done.append("never")

        app = one(node, timeout=0.05)
        with Runtime(store, graphs=[app]) as runtime:
            events = Events(runtime)
            with pytest.raises(NodeTimeout):
                runtime.thread("t").ask(Invoke({}))
            gate.open()
            events.wait(AttemptKilled, abandoned=False)
        assert done == ["whole"]

    def test_a_block_of_an_async_node_is_not_torn_either(self, store):
        opened, done, came = threading.Event(), [], threading.Event()

        async def node(state, ctx):
            with ctx.shield():
                came.set()
                await asyncio.to_thread(opened.wait, PATIENCE)
                done.append("whole")
            await asyncio.sleep(0)
            done.append("never")

        app = one(node, timeout=0.05)
        with Runtime(store, graphs=[app]) as runtime:
            events = Events(runtime)
            with pytest.raises(NodeTimeout):
                runtime.thread("t").ask(Invoke({}))
            opened.set()
            events.wait(AttemptKilled, abandoned=False)
        assert done == ["whole"]

    def test_it_nests_and_is_free_without_a_kill(self, store):
        def node(state, ctx):
            with ctx.shield(), ctx.shield():
                return {"log": ["a"]}

        async def anode(state, ctx):
            with ctx.shield(), ctx.shield():
                return {"log": ["b"]}

        app = line("g", a=node, b=anode).compile()
        assert ask(store, app).state["log"] == ["a", "b"]

    def test_a_block_that_takes_too_long_is_abandoned(self, store):
        gate = Gate(hard=True)

        def node(state, ctx):
            with ctx.shield():
                gate(state)

        with Runtime(store, graphs=[one(node, timeout=0.05)]) as runtime:
            events = Events(runtime)
            with pytest.raises(NodeTimeout):
                runtime.thread("t").ask(Invoke({}))
            assert events.wait(AttemptKilled).abandoned
            gate.open()
