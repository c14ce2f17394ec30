"""Time, room, cancels, drains and kills of graphs that functions call."""

from __future__ import annotations

import asyncio
import signal
import threading

import pytest

from beamweaver import START, Continue, Graph, Invoke, Runtime, Send
from beamweaver.checkpoint import LMDBCheckpointer
from beamweaver.errors import NodeFailed, NodeTimeout, RunTimeout, StepTimeout
from beamweaver.limits import Limits
from beamweaver.types import Cancelled, Drained
from supervisors import KILLED
from supervisors.testing import eventually
from tests.runtime.children import CALLED, PATIENCE, call_to_point, caller_of, child, received
from tests.runtime.kit import Caller, Counted, Gate, Log, failing_at, line, star, wrote

KINDS = ("sync", "async")


def deep(gate, kind="sync", **options):
    """a, then a function that calls a graph of b, which calls one of c, the gate and d; then e."""
    grand = line("grand", c=wrote("c"), gate=gate, d=wrote("d")).compile()

    def inner(_state, ctx):
        return {"log": ctx.call(grand)["log"]}

    called = line("called", b=wrote("b"), inner=inner).compile()

    def calls(_state, ctx):
        return {"log": ctx.call(called)["log"]}

    async def calls_async(_state, ctx):
        return {"log": (await ctx.call(called))["log"]}

    node = calls if kind == "sync" else calls_async
    return line("top", a=wrote("a"), calls=node, e=wrote("e")).compile(**options)


DEEP = ["a", "b", "c", "gate", "d", "e"]


class TestStopping:
    @pytest.mark.parametrize("kind", KINDS)
    def test_a_cancel_reaches_what_was_called_and_the_run_goes_on_later(self, store, kind):
        gate = Gate({"log": ["gate"]})
        with deep(gate, kind, checkpointer=store) as app:
            caller = Caller(app.invoke, {}, thread_id="t")
            gate.wait()
            app.cancel("t")
            assert type(caller.join()) is Cancelled
            gate.open()
            outcome = app.invoke(None, thread_id="t")

        assert outcome.state["log"] == DEEP
        assert gate.runs == 2

    @pytest.mark.parametrize("kind", KINDS)
    def test_a_drain_waits_for_what_runs_and_the_next_runtime_goes_on(self, place, kind):
        gate = Gate({"log": ["gate"]})
        app = deep(gate, kind)
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

    def test_a_cancel_waits_for_the_bodies_of_what_was_called(self, store):
        """The function itself has ended long before."""
        gate = Gate({"log": ["gate"]}, hard=True)
        with Runtime(store, graphs=[deep(gate, "async")]) as runtime:
            thread = runtime.thread("t")
            caller = Caller(thread.ask, Invoke({}))
            gate.wait()
            cancel = Caller(thread.cancel)
            left = runtime._core.hub.bodies["t"]._killed
            eventually(lambda: [each.node.name for each in left] == ["gate"])
            assert not cancel.done
            gate.open()
            assert type(cancel.join()) is Cancelled
            assert type(caller.join()) is Cancelled
            assert thread.ask(Continue(), timeout=10).state["log"] == DEEP

    def test_a_drain_waits_for_all_that_was_called_at_once(self, place):
        gates = [Gate({"log": [f"gate{n}"]}) for n in range(2)]
        called = [
            line(f"called{n}", gate=gate, z=wrote("z")).compile() for n, gate in enumerate(gates)
        ]

        async def calls(_state, ctx):
            found = await asyncio.gather(*(ctx.call(each) for each in called))
            return {"log": [x for each in found for x in each["log"]]}

        app = line("top", calls=calls).compile()
        with Runtime(place.open(), graphs=[app]) as runtime:
            caller = Caller(runtime.thread("t").ask, Invoke({}))
            for gate in gates:
                gate.wait()
            drain = Caller(runtime.drain, 10)
            eventually(lambda: runtime._core.hub.draining)
            gates[0].open()
            eventually(lambda: gates[0].runs == 1 and not drain.done)
            gates[1].open()
            drain.join()
            assert type(caller.join()) is Drained
        with Runtime(place.open(), graphs=[app]) as runtime:
            outcome = runtime.thread("t").ask(Invoke({}), timeout=10)
        assert outcome.state["log"] == ["gate0", "z", "gate1", "z"]
        assert [gate.runs for gate in gates] == [1, 1]

    def test_a_call_that_comes_during_a_drain_is_left_to_the_next_runtime(self, place):
        gate, a = Gate(), Counted(wrote("a"))
        called = line("called", a=a).compile()

        def calls(state, ctx):
            gate(state)
            return {"log": ctx.call(called)["log"]}

        app = line("top", calls=calls).compile()
        with Runtime(place.open(), graphs=[app]) as runtime:
            caller = Caller(runtime.thread("t").ask, Invoke({}))
            gate.wait()
            drain = Caller(runtime.drain, 10)
            eventually(lambda: runtime._core.hub.draining)
            gate.open()
            drain.join()
            assert type(caller.join()) is Drained
        assert a.runs == 0
        with Runtime(place.open(), graphs=[app]) as runtime:
            assert runtime.thread("t").ask(Invoke({}), timeout=10).state["log"] == ["a"]

    def test_a_panic_stops_what_was_called(self, store):
        gate = Gate({"log": ["gate"]})

        def fails(_state):
            gate.wait()
            raise ValueError("boom")

        called = line("called", gate=gate, z=wrote("z")).compile()

        def calls(_state, ctx):
            return {"log": ctx.call(called)["log"]}

        graph = star("top", calls=calls, fails=fails)
        with graph.compile(checkpointer=store, failure_policy="panic") as app:
            with pytest.raises(NodeFailed, match="boom"):
                app.invoke({}, thread_id="t")
            gate.open()
            state = app.get_state("t")
        assert [task.state for task in state.tasks] == ["pending", "failed"]

    @pytest.mark.parametrize("option", ["step_timeout", "run_timeout"])
    def test_the_time_of_a_step_or_run_holds(self, store, option):
        gate = Gate({"log": ["gate"]})
        error = StepTimeout if option == "step_timeout" else RunTimeout
        with deep(gate, checkpointer=store) as app:
            with pytest.raises(error):
                app.invoke({}, thread_id="t", **{option: 0.2})
            gate.open()
            assert app.invoke(None, thread_id="t").state["log"] == DEEP

    def test_the_timeout_of_the_node_ends_what_it_called_and_a_retry_goes_on_there(self, store):
        gate, a = Gate({"log": ["gate"]}), Counted(wrote("a"))
        called = line("called", a=a, gate=gate).compile()

        def calls(_state, ctx):
            return {"log": ctx.call(called)["log"]}

        with line("top", calls=(calls, {"timeout": 0.2})).compile(checkpointer=store) as app:
            with pytest.raises(NodeTimeout):
                app.invoke({}, thread_id="t")
            gate.open()
            assert app.invoke(None, thread_id="t").state["log"] == ["a", "gate"]
        assert a.runs == 1

    def test_what_a_function_called_and_did_not_wait_for_is_given_up(self, store):
        gate = Gate({"log": ["gate"]})
        called = line("called", gate=gate).compile()

        async def calls(_state, ctx):
            waits = asyncio.ensure_future(ctx.call(called))
            await asyncio.to_thread(gate.wait)
            waits.cancel()
            return {"log": ["went on"]}

        with line("top", calls=calls, b=wrote("b")).compile(checkpointer=store) as app:
            assert app.invoke({}, thread_id="t").state["log"] == ["went on", "b"]
            gate.open()


class TestRoom:
    @pytest.mark.parametrize("kind", KINDS)
    def test_a_function_that_waits_takes_no_place(self, store, kind):
        """With room for one, what it called runs."""
        gate = Gate({"log": ["gate"]})
        gate.open()
        with deep(gate, kind, checkpointer=store, max_concurrency=1) as app:
            assert app.invoke({}, thread_id="t").state["log"] == DEEP

    @pytest.mark.parametrize("kind", KINDS)
    def test_no_more_run_at_once_than_the_limit_at_any_depth(self, store, kind):
        lock, now, most = threading.Lock(), [0], [0]

        def work(_state):
            with lock:
                now[0] += 1
                most[0] = max(most[0], now[0])
            threading.Event().wait(0.002)
            with lock:
                now[0] -= 1
            return {"log": ["w"]}

        called = star("called", x=work, y=work).compile()

        def calls(_state, ctx):
            return {"log": ctx.call(called)["log"]}

        async def calls_async(_state, ctx):
            return {"log": (await ctx.call(called))["log"]}

        graph = Graph(Log, name="top").add_node("w", calls if kind == "sync" else calls_async)
        graph.add_conditional_edges(START, lambda _s: [Send("w", {"item": n}) for n in range(6)])
        with graph.compile(checkpointer=store, max_concurrency=2) as app:
            assert app.invoke({}, thread_id="t").state["log"] == ["w"] * 12
        assert most[0] <= 2

    def test_only_so_many_workers_are_held_by_functions_that_wait(self, memory):
        """More functions than workers may be held wait for what needs a worker."""
        called = line("called", x=wrote("x")).compile()

        def calls(_state, ctx):
            return {"log": ctx.call(called)["log"]}

        graph = Graph(Log, name="top").add_node("w", calls)
        graph.add_conditional_edges(START, lambda _s: [Send("w", {"item": n}) for n in range(40)])
        limits = Limits(sync_nodes_a_thread=4)
        with Runtime(memory, graphs=[graph.compile()], limits=limits) as runtime:
            outcome = runtime.thread("t").ask(Invoke({}), timeout=PATIENCE)
            assert runtime._core.hub.system.scheduler.statistics().workers < 20
        assert outcome.state["log"] == ["x"] * 40


class TestSleeps:
    @pytest.mark.slow
    @pytest.mark.parametrize("kind", KINDS)
    def test_a_sleep_of_it_parks_the_node_and_the_thread_sleeps(self, disk, kind):
        a = Counted(wrote("a"))

        def rests(_state, ctx):
            ctx.sleep(1.2)
            return {"log": ["rested"]}

        called = line("called", a=a, rests=rests).compile()

        def calls(_state, ctx):
            return {"log": ctx.call(called)["log"]}

        async def calls_async(_state, ctx):
            return {"log": (await ctx.call(called))["log"]}

        node = calls if kind == "sync" else calls_async
        with line("top", calls=node).compile(checkpointer=disk.open()) as app:
            caller = Caller(app.invoke, {}, thread_id="t")
            eventually(lambda: (s := app.get_state("t")) and s.status == "sleeping", timeout=10)
            assert caller.join().state["log"] == ["a", "rested"]
        assert a.runs == 1


class TestKills:
    @pytest.mark.parametrize("times", [1, 2])
    @pytest.mark.parametrize(
        "point", ["thread.acknowledged", "thread.start", "writer.synced", "writer.group"]
    )
    def test_an_actor_that_crashes_under_a_waiting_call_goes_on(self, store, point, times):
        told = []
        app = caller_of(told.append)
        fault = failing_at(point, times)
        with Runtime(store, graphs=[app], fault=fault, max_restarts=10) as runtime:
            outcome = runtime.thread("t").ask(Invoke({}), timeout=PATIENCE)
        assert outcome.state["log"] == CALLED
        judge(told)

    @pytest.mark.parametrize("when", range(1, 14, 3))
    def test_an_actor_that_is_killed_between_sub_steps_of_what_is_called_goes_on(self, store, when):
        told, seen = [], [0]

        def fault(point, thread_id=""):
            if point in ("step.ran", "step.kept"):
                seen[0] += 1
                if seen[0] == when:
                    hub = runtime._core.hub
                    hub.system.exit(hub.actors[thread_id], KILLED)

        with Runtime(store, graphs=[caller_of(told.append)], fault=fault) as runtime:
            outcome = runtime.thread("t").ask(Invoke({}), timeout=PATIENCE)
        assert seen[0] > when
        assert outcome.state["log"] == CALLED
        judge(told)

    @pytest.mark.parametrize("nth", [12, 19, 26, 33, 40])
    def test_a_process_that_is_killed_goes_on(self, tmp_path, nth):
        assert killed_at(tmp_path / "state.lmdb", nth)

    @pytest.mark.slow
    @pytest.mark.parametrize("start", range(1, 5))
    def test_a_process_that_is_killed_at_any_point_goes_on(self, tmp_path, start):
        nth = start
        while killed_at(tmp_path / f"{nth}.lmdb", nth):
            nth += 8
        assert nth > 40, "the points of a whole run were reached"


def killed_at(path, nth):
    """Kill a process at a point, then go on here; False if the run ended before the kill."""
    with child(call_to_point, path, "process-kill", nth) as (process, pipe):
        process.join(PATIENCE)
        assert process.exitcode in (0, -signal.SIGKILL), process.exitcode
        told = received(pipe)
    killed = process.exitcode != 0
    if killed:
        store = LMDBCheckpointer(path, survives="process-kill")
        with Runtime(store, graphs=[caller_of(told.append)], recover="none") as runtime:
            outcome = runtime.thread("t").ask(Invoke({}, run_id="R"), timeout=PATIENCE)
        store.close()
        told.append(("state", outcome.state))
    *told, (_what, state) = told
    judge(told)
    assert state["log"] == CALLED, f"killed at point {nth}"
    return killed


def judge(told):
    """Nothing runs after it was kept, and everything ran."""
    kept = set()
    for what, step in told:
        if what == "ran":
            assert step not in kept, f"{step} ran again in {told}"
        else:
            kept.add(step)
    assert len({step for what, step in told if what == "ran"}) == 8
