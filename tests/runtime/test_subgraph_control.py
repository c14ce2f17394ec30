"""Cancel, drain, panic, time and room reach graphs inside of graphs; kills of any part are no harm."""

from __future__ import annotations

import threading

import pytest

from beamweaver import START, Graph, Invoke, Runtime, Send
from beamweaver.errors import NodeFailed, NodeTimeout, RunTimeout, StepTimeout
from beamweaver.events import (
    AttemptFailed,
    AttemptKilled,
    Emitted,
    TaskAcknowledged,
    TaskStarted,
)
from beamweaver.types import Cancelled, Completed, Drained
from supervisors import KILLED, which_children
from supervisors.testing import eventually
from tests.runtime.kit import (
    Caller,
    Counted,
    Events,
    Gate,
    Log,
    Oracle,
    failing_at,
    line,
    simulated,
    star,
    wrote,
)

DEEP = ["a", "b", "c", "gate", "d", "e"]


def deep(gate, **options):
    """Three levels: a, then b in a child, then c, the gate and d in a child of it, then e."""
    grand = line("grand", c=wrote("c"), gate=gate, d=wrote("d")).compile()
    child = line("child", b=wrote("b"), grand=grand).compile()
    return line("top", a=wrote("a"), child=child, e=wrote("e")).compile(**options)


class TestStopping:
    def test_a_cancel_reaches_what_runs_inside_and_the_run_goes_on_later(self, store):
        """`peers 42`."""
        gate = Gate({"log": ["gate"]})
        with deep(gate, checkpointer=store) as app:
            caller = Caller(app.invoke, {}, thread_id="t")
            gate.wait()
            cancelled = app.cancel("t")
            assert type(caller.join()) is Cancelled
            gate.open()
            outcome = app.invoke(None, thread_id="t")

        assert type(cancelled) is Cancelled
        assert outcome.state["log"] == DEEP
        assert gate.runs == 2

    def test_a_drain_waits_for_what_runs_inside_and_the_next_runtime_goes_on(self, place):
        gate = Gate({"log": ["gate"]})
        app = deep(gate)
        with Runtime(place.open(), graphs=[app]) as runtime:
            caller = Caller(runtime.thread("t").ask, Invoke({}))
            gate.wait()
            drain = Caller(runtime.drain, 10)
            eventually(lambda: runtime._core.hub.draining)
            gate.open()
            drain.join()
            drained = caller.join()
        with Runtime(place.open(), graphs=[app]) as runtime:
            outcome = runtime.thread("t").ask(Invoke({}), timeout=10)

        assert type(drained) is Drained
        assert outcome.state["log"] == DEEP
        assert gate.runs == 1

    def test_a_panic_of_the_graph_around_stops_what_runs_inside(self, store):
        gate = Gate({"log": ["gate"]})

        def fails(_state):
            gate.wait()
            raise ValueError("boom")

        inner = star("inner", gate=gate, fails=fails).compile()
        with line("top", inner=inner).compile(checkpointer=store, failure_policy="panic") as app:
            with pytest.raises(NodeFailed, match="boom"):
                app.invoke({}, thread_id="t")
            gate.open()
            state = app.get_state("t", subgraphs=True)

        assert [t.state for t in state.tasks[0].subgraph.tasks] == ["pending", "failed"]

    @pytest.mark.parametrize("option", ["step_timeout", "run_timeout"])
    def test_the_time_of_a_step_or_run_holds_at_every_depth(self, store, option):
        gate = Gate({"log": ["gate"]})
        error = StepTimeout if option == "step_timeout" else RunTimeout
        with deep(gate, checkpointer=store) as app:
            with pytest.raises(error):
                app.invoke({}, thread_id="t", **{option: 0.2})
            gate.open()
            outcome = app.invoke(None, thread_id="t")

        assert outcome.state["log"] == DEEP

    def test_a_subgraphs_own_step_timeout_fails_the_node(self, store):
        gate = Gate({"log": ["gate"]})
        inner = line("inner", a=wrote("a"), gate=gate).compile(step_timeout=0.2)
        with line("top", inner=inner).compile(checkpointer=store) as app:
            with pytest.raises(StepTimeout) as caught:
                app.invoke({}, thread_id="t")
            gate.open()
            assert app.invoke(None, thread_id="t").state["log"] == ["a", "gate"]

        assert caught.value.failures[0].namespace == ("inner",)


class Crowd:
    """Counts how many of its bodies run at once."""

    def __init__(self):
        self.lock = threading.Lock()
        self.now = self.most = 0

    def body(self, _state):
        with self.lock:
            self.now += 1
            self.most = max(self.most, self.now)
        threading.Event().wait(0.002)
        with self.lock:
            self.now -= 1
        return {"log": ["x"]}


class TestRoom:
    @pytest.mark.parametrize("where", ["graph", "call"])
    def test_max_concurrency_holds_for_all_depths_together(self, where):
        crowd = Crowd()
        inner = star("inner", **{f"n{i}": crowd.body for i in range(4)}).compile()
        graph = Graph(Log, name="top").add_node("inner", inner)
        graph.add_conditional_edges(START, lambda _s: [Send("inner") for _i in range(4)], ["inner"])
        at_most = {"max_concurrency": 3}
        with graph.compile(**(at_most if where == "graph" else {})) as app:
            outcome = app.invoke({}, **({} if where == "graph" else at_most))

        assert len(outcome.state["log"]) == 16
        assert crowd.most <= 3

    def test_the_limit_of_sync_nodes_a_thread_holds_for_all_depths_together(self, memory):
        from beamweaver.limits import Limits

        crowd = Crowd()
        inner = star("inner", **{f"n{i}": crowd.body for i in range(4)}).compile()
        app = star("top", one=inner, two=inner, three=inner).compile()
        with Runtime(memory, graphs=[app], limits=Limits(sync_nodes_a_thread=2)) as runtime:
            outcome = runtime.thread("t").ask(Invoke({}), timeout=10)

        assert len(outcome.state["log"]) == 12
        assert crowd.most <= 2


class TestKills:
    """Whoever is killed, the run ends right, and no acknowledged task runs again."""

    def run(self, store, between, **options):
        gate = Gate({"log": ["gate"]})
        with Runtime(store, graphs=[deep(gate)], max_restarts=50, **options) as runtime:
            oracle = Oracle(runtime)
            caller = Caller(runtime.thread("t").ask, Invoke({}))
            gate.wait()
            oracle.wait(TaskAcknowledged, node="c")
            between(runtime)
            gate.open()
            outcome = caller.join()
        assert type(outcome) is Completed
        assert outcome.state["log"] == DEEP
        assert oracle.reruns == []
        return oracle

    def test_the_threads_actor(self, store):
        def kill(runtime):
            runtime._core.system.exit(runtime._core.hub.actors["t"].ref, KILLED)

        oracle = self.run(store, kill)
        assert len(oracle.of(TaskStarted, node="b")) == 1

    @pytest.mark.parametrize("part", ["writer", "timers", "threads", "recovery"])
    def test_a_part_of_the_tree(self, store, part):
        def kill(runtime):
            core = runtime._core
            (ref,) = [c.ref for c in which_children(core._root) if c.id == part]
            core.system.exit(ref, KILLED)

        self.run(store, kill)

    @pytest.mark.parametrize("point", ["thread.start", "thread.acknowledged"])
    def test_a_crash_of_the_threads_actor_at_a_point(self, store, point):
        self.run(store, lambda _runtime: None, fault=failing_at(point, times=2, thread_id="t"))

    def test_a_nodes_actor_is_a_failed_attempt_of_the_inner_node_alone(self, store):
        first = Counted(wrote("first"))
        gate = Gate({"log": ["gate"]})
        inner = line("inner", first=first, gate=(gate, {"retries": 1})).compile()
        app = line("top", inner=inner).compile()
        with Runtime(store, graphs=[app]) as runtime:
            events = Events(runtime)
            caller = Caller(runtime.thread("t").ask, Invoke({}))
            gate.wait()
            (body,) = runtime._core.hub.bodies["t"].running.values()
            body.kill(5.0)
            events.wait(AttemptFailed, node="gate")
            gate.open()
            outcome = caller.join()

        assert outcome.state["log"] == ["first", "gate"]
        assert first.runs == 1
        assert events.of(AttemptFailed)[0].namespace == ("inner",)

    def test_what_a_node_emits_and_that_its_attempt_was_killed_is_told_with_where_it_is(
        self, store
    ):
        def tells_and_waits(_state, ctx):
            ctx.emit("here")
            ctx._frame.hub.system.future().get()

        inner = line("inner", waits=(tells_and_waits, {"timeout": 5.0})).compile()
        app = line("top", inner=inner).compile()
        with simulated(store, 1, graphs=[app]) as runtime:
            events = Events(runtime)
            with pytest.raises(NodeTimeout):
                runtime.thread("t").ask(Invoke({}), timeout=60.0)
            runtime.drain(1.0)

        assert events.of(Emitted)[0].namespace == ("inner",)
        assert events.of(AttemptKilled)[0].namespace == ("inner",)
