"""Any actor may be killed, or crash, in the middle of runs: they end right, and nobody notices."""

from __future__ import annotations

import asyncio
import contextlib
import logging

import pytest
from structlog.testing import capture_logs

from beamweaver import Completed, Invoke, Runtime
from beamweaver.errors import NodeExit, OwnershipLost, RuntimeFailed, RuntimeStopped, StoreBroken
from beamweaver.events import AttemptFailed, TaskStarted
from supervisors import KILLED, ActorExit, NoProc, which_children
from supervisors.testing import eventually
from tests.runtime.kit import SIX, Boom, Caller, Events, Gate, Oracle, failing_at, line, six, wrote

THREADS = 50
PARTS = ("registry", "timers", "writer", "threads", "recovery")


def part(runtime, name):
    """A child of the tree, once it is up."""
    return eventually(lambda: look(runtime, name))


def look(runtime, name):
    """A child of the tree, or None if it is not up."""
    with contextlib.suppress(ActorExit, NoProc):
        for child in which_children(runtime._core._root):
            if child.id == name:
                return child.ref
    return None


def kill(runtime, name):
    """Kill a part of the tree and wait until it is up again."""
    old = part(runtime, name)
    runtime._core.system.exit(old, KILLED)
    eventually(lambda: part(runtime, name) != old)


class Fleet:
    """A runtime with threads in the middle of their runs, and an oracle that watches them."""

    def __init__(self, store, **options):
        self.gate = Gate()
        self.runtime = Runtime(
            store, graphs=[six(self.wrap).compile()], max_restarts=100, **options
        )
        self.runtime.start()
        self.oracle = Oracle(self.runtime)
        self.callers = [
            Caller(self.runtime.thread(f"t{i}").ask, Invoke({"n": i})) for i in range(THREADS)
        ]

    def wrap(self, name, fn):
        """Node c waits at the gate, so that no run ends before the kills."""
        if name != "c":
            return fn

        def gated(state):
            self.gate.came.set()
            self.gate.pass_through()
            return fn(state)

        return gated

    def in_the_middle(self, count=10):
        self.oracle.wait(TaskStarted, node="c", count=count)

    def finish(self):
        """Let the runs end, and judge them."""
        self.gate.open()
        outcomes = [caller.join() for caller in self.callers]
        assert all(isinstance(outcome, Completed) for outcome in outcomes)
        assert [outcome.state["n"] for outcome in outcomes] == list(range(THREADS))
        assert all(outcome.state["log"] == SIX for outcome in outcomes)
        assert self.oracle.reruns == []
        found = {child.id for child in which_children(self.runtime._core._root) if child.ref}
        assert found >= set(PARTS), "the tree is whole again"
        assert self.runtime.failure is None
        assert self.runtime.statistics().waiting_calls == 0


@pytest.fixture
def fleet(store):
    made = Fleet(store)
    yield made
    made.gate.open()
    made.runtime.close()


@pytest.mark.slow
@pytest.mark.parametrize("name", PARTS)
def test_a_part_of_the_tree_is_killed_and_every_run_ends_right(fleet, name):
    fleet.in_the_middle()
    kill(fleet.runtime, name)
    kill(fleet.runtime, name)
    fleet.finish()


@pytest.mark.slow
def test_thread_actors_are_killed_and_every_run_ends_right(fleet):
    fleet.in_the_middle()
    hub = fleet.runtime._core.hub
    for cell in list(hub.actors.values())[:20]:
        hub.system.exit(cell, KILLED)
    fleet.finish()


@pytest.mark.slow
def test_every_part_in_turn_is_killed_and_every_run_ends_right(fleet):
    fleet.in_the_middle()
    for name in (*PARTS, *reversed(PARTS)):
        kill(fleet.runtime, name)
    fleet.finish()


@pytest.mark.slow
@pytest.mark.parametrize("point", ["writer.group", "writer.synced", "writer.acknowledged"])
def test_the_writer_crashes_around_a_sync_and_every_run_ends_right(store, point):
    fleet = Fleet(store, fault=failing_at(point, times=2))
    try:
        fleet.finish()
    finally:
        fleet.gate.open()
        fleet.runtime.close()


@pytest.mark.slow
@pytest.mark.parametrize(
    "point", ["thread.load", "thread.admitted", "thread.start", "thread.acknowledged"]
)
def test_thread_actors_crash_at_a_point_and_every_run_ends_right(store, point):
    fleet = Fleet(store, fault=failing_at(point, times=2))
    try:
        fleet.finish()
    finally:
        fleet.gate.open()
        fleet.runtime.close()


@pytest.mark.parametrize("point", ["writer.group", "writer.synced", "writer.acknowledged"])
@pytest.mark.parametrize("nth", [0, 3])
def test_the_writer_crashes_around_a_sync_and_the_run_ends_right(store, point, nth):
    later = [nth]

    def fault(reached, _thread=""):
        if reached == point:
            later[0] -= 1
            if later[0] == -1:
                raise Boom(point)

    with Runtime(store, graphs=[six().compile()], fault=fault) as runtime:
        oracle = Oracle(runtime)
        outcome = runtime.thread("t").ask(Invoke({"n": 1}), timeout=10)
    assert outcome.state["log"] == SIX
    assert oracle.reruns == []


@pytest.mark.parametrize("name", PARTS)
def test_a_call_that_waits_does_not_notice_that_a_part_is_killed(store, name):
    gate = Gate({"log": ["gate"]})
    app = line("g", a=wrote("a"), b=gate, c=wrote("c")).compile()
    with Runtime(store, graphs=[app]) as runtime:
        oracle = Oracle(runtime)
        waiting = Caller(runtime.thread("t").ask, Invoke({"n": 1}))
        gate.wait()
        kill(runtime, name)
        gate.open()
        assert waiting.join().state["log"] == ["a", "gate", "c"]
    assert oracle.reruns == []


def test_a_told_run_whose_thread_actor_is_killed_goes_on_by_itself(store):
    gate = Gate({"log": ["gate"]})
    app = line("g", a=gate, b=wrote("b")).compile()
    with Runtime(store, graphs=[app]) as runtime:
        runtime.thread("t").tell(Invoke({"n": 1}))
        gate.wait()
        hub = runtime._core.hub
        hub.system.exit(hub.actors["t"], KILLED)
        gate.open()
        eventually(lambda: runtime.get_state("t").status == "complete")
        assert runtime.get_state("t").values["log"] == ["gate", "b"]


@pytest.mark.parametrize("name", ["registry", "threads", "writer"])
def test_told_runs_go_on_by_themselves_after_their_supervisor_is_killed(store, name):
    gate = Gate({"log": ["gate"]})
    app = line("g", a=gate, b=wrote("b")).compile()
    with Runtime(store, graphs=[app], recover="none") as runtime:
        for i in range(5):
            runtime.thread(f"t{i}").tell(Invoke({"n": i}))
        gate.wait()
        kill(runtime, name)
        gate.open()
        for i in range(5):
            eventually(lambda i=i: runtime.get_state(f"t{i}").status == "complete")


class TestABodyThatOutlivesItsThreadActor:
    """The next attempt begins when it has ended or was given up (semantics 18)."""

    @pytest.mark.parametrize("part_name", ["actor", "threads", "writer"])
    def test_the_next_attempt_waits_for_it(self, store, part_name):
        order = []
        gate = Gate({"log": ["a"]}, hard=True)

        def node(state):
            order.append("begin")
            try:
                return gate(state)
            finally:
                order.append("end")

        with Runtime(store, graphs=[line("g", a=node).compile()]) as runtime:
            events = Events(runtime)
            waiting = Caller(runtime.thread("t").ask, Invoke({"n": 1}))
            gate.wait()
            if part_name == "actor":
                hub = runtime._core.hub
                hub.system.exit(hub.actors["t"], KILLED)
            else:
                kill(runtime, part_name)
            events.wait(TaskStarted, count=2)
            gate.open()
            assert waiting.join().state["log"] == ["a"]
        assert order == ["begin", "end", "begin", "end"]

    def test_an_async_one_is_waited_for_too(self, store):
        order = []
        gate = Gate()

        async def node(_state):
            order.append("begin")
            gate.came.set()
            while not gate.opened.is_set():
                with contextlib.suppress(asyncio.CancelledError):
                    await asyncio.sleep(0.001)
            order.append("end")
            return {"log": ["a"]}

        with Runtime(store, graphs=[line("g", a=node).compile()]) as runtime:
            events = Events(runtime)
            waiting = Caller(runtime.thread("t").ask, Invoke({"n": 1}))
            gate.wait()
            hub = runtime._core.hub
            hub.system.exit(hub.actors["t"], KILLED)
            events.wait(TaskStarted, count=2)
            gate.open()
            assert waiting.join().state["log"] == ["a"]
        assert order == ["begin", "end", "begin", "end"]

    @pytest.mark.slow
    def test_one_that_never_ends_is_given_up(self, store):
        gate = Gate({"log": ["late"]}, hard=True)

        def node(state):
            if not gate.came.is_set():
                return gate(state)
            return {"log": ["second"]}

        with Runtime(store, graphs=[line("g", a=node).compile()]) as runtime:
            waiting = Caller(runtime.thread("t").ask, Invoke({"n": 1}))
            gate.wait()
            hub = runtime._core.hub
            hub.system.exit(hub.actors["t"], KILLED)
            assert waiting.join().state["log"] == ["second"]
            gate.open()
            eventually(lambda: runtime.statistics().abandoned == 0)

    def test_nothing_of_it_stays_in_memory(self, memory):
        app = line("g", a=wrote("a")).compile()
        with app:
            for n in range(5):
                app.invoke({"n": n})
            eventually(lambda: app._core.hub.bodies == {})


class TestANodeActor:
    @staticmethod
    def kill_node(runtime, thread_id="t"):
        hub = runtime._core.hub
        actor = hub.actors[thread_id].actor
        tasks = getattr(actor, "_tasks", None)
        if tasks is None:
            tasks = actor._bodies.running
        (task,) = tasks.values()
        task.kill(5.0)

    def test_with_retries_another_attempt_follows_reference_at(self, store):
        gates = [Gate(), Gate({"log": ["second"]})]
        attempts = []

        def node(state, ctx):
            attempts.append(ctx.attempt)
            return gates[ctx.attempt - 1](state)

        app = line("g", a=(node, {"retries": 2})).compile()
        with Runtime(store, graphs=[app]) as runtime:
            events = Events(runtime)
            waiting = Caller(runtime.thread("t").ask, Invoke({"n": 1}))
            gates[0].wait()
            self.kill_node(runtime)
            gates[0].open()
            gates[1].open()
            assert waiting.join().state["log"] == ["second"]
        assert attempts == [1, 2]
        assert [e.failure_code for e in events.of(AttemptFailed)] == ["node_exit"]

    def test_without_retries_the_run_fails_and_the_caller_lives_reference_e(self, store):
        gate = Gate({"log": ["late"]})
        app = line("g", a=gate).compile()
        with Runtime(store, graphs=[app]) as runtime:
            waiting = Caller(runtime.thread("t").ask, Invoke({"n": 1}))
            gate.wait()
            self.kill_node(runtime)
            with pytest.raises(NodeExit, match="'a'"):
                waiting.join()
            gate.open()
            assert runtime.get_state("t").values.get("log", []) == []


class TestTooManyKills:
    def test_the_with_block_ends_with_the_tree(self, store):
        with pytest.raises(RuntimeFailed) as caught, Runtime(store, max_restarts=1) as runtime:
            kill(runtime, "registry")
            runtime._core.system.exit(part(runtime, "registry"), KILLED)
            eventually(lambda: runtime.failure)
        assert set(PARTS) <= set(caught.value.tree)
        assert caught.value.reason

    def test_pending_callers_are_told_with_their_run(self, store):
        gate = Gate()
        app = line("g", a=gate).compile()
        with pytest.raises(RuntimeFailed), Runtime(store, graphs=[app], max_restarts=0) as runtime:
            waiting = Caller(runtime.thread("t").ask, Invoke({"n": 1}, run_id="R"))
            gate.wait()
            runtime._core.system.exit(part(runtime, "registry"), KILLED)
            with pytest.raises(RuntimeStopped, match="'R'") as caught:
                waiting.join()
            gate.open()
        assert (caught.value.run_id, caught.value.thread_id) == ("R", "t")
        assert isinstance(caught.value.__cause__, RuntimeFailed)

    def test_an_exception_of_the_body_is_not_hidden(self, memory):
        with pytest.raises(ZeroDivisionError) as caught:
            with Runtime(memory, max_restarts=0) as runtime:
                runtime._core.system.exit(part(runtime, "registry"), KILLED)
                eventually(lambda: runtime.failure)
                _ = 1 / 0
        assert any("the runtime failed" in note for note in caught.value.__notes__)

    def test_the_next_runtime_goes_on(self, place):
        gate = Gate({"log": ["a"]})
        app = line("g", a=gate, b=wrote("b")).compile()
        with pytest.raises(RuntimeFailed):
            with Runtime(place.open(), graphs=[app], max_restarts=0) as runtime:
                runtime.thread("t").tell(Invoke({"n": 1}))
                gate.wait()
                runtime._core.system.exit(part(runtime, "registry"), KILLED)
                gate.open()
                eventually(lambda: runtime.failure)
        with Runtime(place.open(), graphs=[app]) as runtime:
            eventually(lambda: runtime.get_state("t").status == "complete")
            assert runtime.get_state("t").values["log"] == ["a", "b"]


class TestAStoreThatCannotBeMended:
    @pytest.mark.parametrize("error", [StoreBroken, OwnershipLost])
    def test_one_failure_ends_the_runtime_at_once(self, place, error):
        """A failed sync is never tried again, whatever the restart budget (semantics 13)."""
        left = [1]

        def faults(point):
            if point == "sync.before" and left[0]:
                left[0] -= 1
                raise error("the disk is gone")

        store = place.open()
        app = line("g", a=wrote("a"), b=wrote("b")).compile()
        with pytest.raises(RuntimeFailed, match="the disk is gone") as caught:
            with Runtime(store, graphs=[app], max_restarts=100) as runtime:
                store.faults = faults
                with pytest.raises(RuntimeStopped, match="'R'"):
                    runtime.thread("t").ask(Invoke({"n": 1}, run_id="R"))
                eventually(lambda: runtime.failure)
        store.faults = lambda _point: None
        assert isinstance(caught.value.__cause__, error)

    @pytest.mark.parametrize("error", [StoreBroken, OwnershipLost])
    def test_it_is_said_in_one_line(self, place, caplog, error):
        def faults(point):
            if point == "sync.before":
                raise error("the disk is gone")

        logging.disable(logging.NOTSET)
        store = place.open()
        app = line("g", a=wrote("a"), b=wrote("b")).compile()
        with (
            capture_logs() as said,
            pytest.raises(RuntimeFailed),
            Runtime(store, graphs=[app]) as runtime,
        ):
            store.faults = faults
            with pytest.raises(RuntimeStopped):
                runtime.thread("t").ask(Invoke({"n": 1}))
            eventually(lambda: runtime.failure)
        store.faults = lambda _point: None
        errors = [entry for entry in said if entry["log_level"] == "error"]
        assert [entry["event"] for entry in errors] == ["runtime_fails"]
        assert "the disk is gone" in errors[0]["error"]
        assert [each for each in caplog.records if each.levelno >= logging.WARNING] == []
