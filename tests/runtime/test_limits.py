"""What can grow has a bound, and a runtime says how it is."""

from __future__ import annotations

import gc
import threading
import weakref

import pytest
import structlog.testing

from beamweaver import Completed, Continue, Invoke, Runtime
from beamweaver.checkpoint import LMDBCheckpointer
from beamweaver.errors import AskTimeout, RuntimeFailed, StoreFull
from beamweaver.events import RunEnded, TaskStarted
from beamweaver.limits import Limits
from beamweaver.runtime.messages import Fired
from beamweaver.runtime.writing import ROOM
from supervisors import KILLED
from supervisors.testing import eventually
from tests.runtime.kit import Caller, Events, Gate, line, simulated, wrote


def left_unfinished(place, threads):
    """Threads `t0`, `t1`, … that a closed runtime left; their next attempts wait at the gate."""
    stop, gate = Gate(), Gate({"log": ["a"]})
    gates = [stop]

    def node(state):
        return gates[0](state)

    app = line("g", a=node).compile()
    runtime = Runtime(place.open(), graphs=[app]).start()
    for i in range(threads):
        runtime.thread(f"t{i}").tell(Invoke({"n": i}))
    runtime.close()
    stop.open()
    gates[0] = gate
    return app, gate


class TestPlacesOfRunningThreads:
    def test_threads_beyond_the_limit_wait_and_health_says_so(self, store):
        gate = Gate({"log": ["a"]})
        app = line("g", a=gate).compile()
        with Runtime(store, graphs=[app], limits=Limits(threads_running=2)) as runtime:
            events = Events(runtime)
            callers = [Caller(runtime.thread(f"t{i}").ask, Invoke({"n": i})) for i in range(5)]
            eventually(lambda: runtime.statistics().waiting_threads == 3)
            events.wait(TaskStarted, count=2)
            assert gate.runs == 2
            assert runtime.statistics().running == 2
            health = runtime.health()
            assert (health.ready, health.waits) == (True, {"threads_running": 3})
            gate.open()
            assert all(isinstance(caller.join(), Completed) for caller in callers)
            eventually(lambda: runtime.statistics().running == 0)
            assert runtime.health().waits == {}

    @pytest.mark.parametrize("seed", range(10))
    def test_they_get_their_places_in_order_of_arrival(self, memory, seed):
        order = []

        def node(state, ctx):
            if state["n"] == 0 and ctx.attempt == 1:
                raise ConnectionError
            order.append(state["n"])

        app = line("g", a=(node, {"retries": 1})).compile()
        limits = Limits(threads_running=1)
        with simulated(memory, seed, graphs=[app], limits=limits) as runtime:
            core, scheduler = runtime._core, runtime._core.system.scheduler
            calls = []
            for i in range(4):
                calls.append(core.submit(app, f"t{i}", Invoke({"n": i}), waits=True))
                scheduler.settle()
            assert runtime.statistics().waiting_threads == 3
            for call in calls:
                call.done.get()
        assert order == [0, 1, 2, 3], f"seed {seed}"

    def test_a_thread_that_a_node_waits_for_gets_a_place_beyond_the_limit(self, store):
        inner = line("inner", a=wrote("inner")).compile()
        runtimes = []

        def calls(_state):
            thread = runtimes[0].thread("inside", graph="inner")
            return thread.ask(Invoke({"n": 1}), timeout=10).state

        outer = line("outer", a=calls).compile()
        limits = Limits(threads_running=1)
        with Runtime(store, graphs=[inner, outer], limits=limits) as runtime:
            runtimes.append(runtime)
            outcome = runtime.thread("t", graph="outer").ask(Invoke({"n": 2}), timeout=10)
        assert outcome.state["log"] == ["inner"]

    def test_so_does_one_that_a_node_tells(self, store):
        inner = line("inner", a=wrote("inner")).compile()
        runtimes = []

        def tells(_state):
            runtimes[0].thread("inside", graph="inner").tell(Invoke({"n": 1}))

        outer = line("outer", a=tells).compile()
        limits = Limits(threads_running=1)
        with Runtime(store, graphs=[inner, outer], limits=limits) as runtime:
            runtimes.append(runtime)
            assert runtime.thread("t", graph="outer").ask(Invoke({"n": 2}), timeout=10)
            outcome = runtime.thread("inside", graph="inner").ask(Continue(), timeout=10)
        assert outcome.state["log"] == ["inner"]

    @pytest.mark.parametrize("batch", [1, 256])
    def test_recovery_takes_up_no_more_than_there_are_places_and_all_in_the_end(self, place, batch):
        app, gate = left_unfinished(place, 6)
        limits = Limits(threads_running=2, recovery_batch=batch)
        with Runtime(place.open(), graphs=[app], limits=limits) as runtime:
            eventually(lambda: gate.runs == 2 and runtime.statistics().waiting_threads == 1)
            assert runtime.statistics().actors == 2, "the others wait in the store"
            gate.open()
            eventually(
                lambda: all(runtime.get_state(f"t{i}").status == "complete" for i in range(6))
            )
            assert runtime.statistics().taken_up == 6

    def test_a_killed_recovery_leaves_no_place_taken(self, place):
        app, gate = left_unfinished(place, 4)
        limits = Limits(threads_running=1)
        with Runtime(place.open(), graphs=[app], limits=limits, max_restarts=100) as runtime:
            hub = runtime._core.hub
            eventually(lambda: runtime.statistics().waiting_threads == 1)
            old = hub.recovery
            hub.system.exit(old, KILLED)
            eventually(lambda: hub.recovery is not old)
            gate.open()
            eventually(
                lambda: all(runtime.get_state(f"t{i}").status == "complete" for i in range(4))
            )
            eventually(lambda: runtime.statistics().running == 0)


class TestIdleThreads:
    @pytest.mark.parametrize("seed", range(10))
    def test_those_that_rest_leave_even_where_the_oldest_are_busy(self, memory, seed):
        app = line("g", a=(wrote("a"), {"retries": 1})).compile()

        def fails(_state):
            raise ConnectionError

        busy = line("busy", a=(fails, {"retries": 1_000})).compile()
        limits = Limits(threads_idle=3)
        with simulated(memory, seed, graphs=[app, busy], limits=limits) as runtime:
            for i in range(70):
                runtime.thread(f"busy{i}", graph="busy").tell(Invoke({"n": i}))
            for i in range(10):
                runtime.thread(f"t{i}", graph="g").ask(Invoke({"n": i}))
            runtime._core.system.scheduler.settle()
            assert runtime.statistics().actors == 73, f"seed {seed}"

    @pytest.mark.parametrize("seed", range(20))
    def test_none_leaves_before_it_was_taken_up(self, memory, seed):
        """An actor that has not read its thread knows nothing of what Recovery wants of it."""
        app = line("g", a=wrote("a"), b=wrote("b")).compile()
        runtime = simulated(memory, seed, graphs=[app]).start()
        for i in range(5):
            runtime.thread(f"t{i}").tell(Invoke({"n": i}))
        runtime.close()
        with simulated(memory, seed, graphs=[app], limits=Limits(threads_idle=0)) as runtime:
            runtime._core.system.scheduler.settle()
            states = {runtime.get_state(f"t{i}").status for i in range(5)}
        assert states == {"complete"}, f"seed {seed}"

    def test_the_writer_forgets_who_left(self, memory):
        app = line("g", a=wrote("a")).compile()
        with Runtime(memory, graphs=[app], limits=Limits(threads_idle=2)) as runtime:
            for i in range(20):
                runtime.thread(f"t{i}").ask(Invoke({"n": i}))
            hub = runtime._core.hub
            eventually(lambda: len(hub.writer.actor._incarnations) <= 2)
            eventually(lambda: len(hub.bodies) <= 2)


class TestCalls:
    def test_asks_that_timed_out_leave_nothing(self, memory):
        gate = Gate({"log": ["a"]})
        app = line("g", a=gate).compile()
        with Runtime(memory, graphs=[app]) as runtime:
            thread = runtime.thread("t")
            thread.tell(Invoke({"n": 1}))
            gate.wait()
            machine = runtime._core.hub.actors["t"].actor._machine
            for _ in range(150):
                with pytest.raises(AskTimeout):
                    thread.ask(Continue(), timeout=0.0)
                eventually(lambda: runtime.statistics().waiting_calls == 0)
            assert len(machine.attached) <= 64
            gate.open()
            assert thread.ask(Continue(), timeout=10).state["log"] == ["a"]

    def test_a_timed_out_ask_that_was_not_taken_yet_is_not_lost(self, memory):
        gate = Gate({"log": ["a"]})
        app = line("g", a=gate).compile()
        with Runtime(memory, graphs=[app]) as runtime:
            events = Events(runtime)
            thread = runtime.thread("t")
            thread.tell(Invoke({"n": 1}, run_id="first"))
            gate.wait()
            with pytest.raises(AskTimeout) as caught:
                thread.ask(Invoke({"n": 2}, run_id="second"), timeout=0.0)
            assert caught.value.receipt.run_id == "second"
            gate.open()
            events.wait(RunEnded, run_id="second")

    def test_calls_of_an_ended_runtime_raise_errors_of_their_own(self, memory):
        app = line("g", a=wrote("a")).compile()
        with Runtime(memory, graphs=[app]) as runtime:
            core = runtime._core
        errors = []
        for _ in range(2):
            with pytest.raises(Exception, match="closed") as caught:
                core.submit(app, "t", Invoke({"n": 1}), waits=True)
            errors.append(caught.value)
        assert errors[0] is not errors[1]


class TestGraphsWithoutAStore:
    def test_one_that_is_forgotten_takes_its_workers_with_it(self):
        before = set(threading.enumerate())
        app = line("g", a=wrote("a")).compile()
        app.invoke({"n": 1})
        core = app._core
        gone = weakref.ref(app)
        del app
        gc.collect()
        assert gone() is None
        eventually(lambda: core._closed and not set(threading.enumerate()) - before)

    def test_to_forget_one_waits_for_no_thread(self, monkeypatch):
        """The collector may call amid anything: to start a thread takes a lock, and waits for it."""
        starters = []
        start = threading.Thread.start

        def told(thread):
            starters.append(threading.get_ident())
            start(thread)

        app = line("g", a=wrote("a")).compile()
        app.invoke({"n": 1})
        core = app._core
        monkeypatch.setattr(threading.Thread, "start", told)
        del app
        gc.collect()
        eventually(lambda: core._closed)
        assert starters
        assert threading.get_ident() not in starters

    def test_one_that_runs_stays(self):
        gate = Gate({"log": ["a"]})
        calls = [line("g", a=gate).compile().invoke]
        waiting = Caller(calls[0], {"n": 1})
        gate.wait()
        app = weakref.ref(calls.pop().__self__)
        gc.collect()
        gate.open()
        assert waiting.join().state["log"] == ["a"]
        if app() is not None:
            app().close()


class TestWorkersAndGroups:
    def test_the_limit_of_abandoned_workers_is_that_of_the_system(self, memory):
        with Runtime(memory, limits=Limits(abandoned=7)) as runtime:
            assert runtime._core.system.limits.max_abandoned == 7

    @pytest.mark.parametrize("seed", range(5))
    def test_a_group_ends_at_its_bytes(self, memory, seed):
        sizes = []
        commit = memory.commit

        def recording(epoch, commits):
            sizes.append(len(commits))
            return commit(epoch, commits)

        memory.commit = recording
        app = line("g", a=lambda _s: {"note": "x" * 1_000}).compile()
        limits = Limits(group_bytes=2_500)
        with simulated(memory, seed, graphs=[app], limits=limits) as runtime:
            core = runtime._core
            calls = [
                core.submit(app, f"t{i}", Invoke({"note": "y" * 1_000}), waits=True)
                for i in range(30)
            ]
            for call in calls:
                call.done.get()
        assert max(sizes) <= 3, f"seed {seed}"


class TestHealth:
    def test_a_runtime_is_ready_while_it_runs(self, memory):
        runtime = Runtime(memory)
        assert runtime.health().reasons == ("the runtime is not started",)
        with runtime:
            assert runtime.health().ready
        assert runtime.health().reasons == ("the runtime was closed",)

    def test_one_that_drains_is_not(self, memory):
        with Runtime(memory) as runtime:
            runtime.drain()
            assert not runtime.health().ready
            assert "drains" in runtime.health().reasons[0]

    def test_one_that_failed_says_why(self, memory):
        with pytest.raises(RuntimeFailed), Runtime(memory, max_restarts=0) as runtime:
            runtime._core.system.exit(runtime._core.hub.writer, KILLED)
            eventually(lambda: runtime.failure)
            assert "failed" in runtime.health().reasons[0]

    def test_in_a_full_store_runs_wait_where_they_are_and_go_on_when_there_is_room(self, memory):
        full = []

        def faults(point):
            if full and point == "put.before":
                raise StoreFull("the disk is full")

        memory.faults = faults
        app = line(
            "g", a=wrote("a"), b=lambda _s: full.append(True) or {"log": ["b"]}, c=wrote("c")
        ).compile()
        with simulated(memory, 1, graphs=[app]) as runtime:
            scheduler = runtime._core.system.scheduler
            call = runtime._core.submit(app, "t", Invoke({"n": 1}), waits=True)
            scheduler.run_for(10.0)
            assert not call.done.done()
            assert not runtime.health().ready
            assert "full" in runtime.health().reasons[0]
            with pytest.raises(StoreFull):
                runtime.thread("other").ask(Invoke({"n": 1}))
            full.clear()
            outcome = call.done.get().outcome
            assert outcome.state["log"] == ["a", "b", "c"]
            assert runtime.health().ready

    def test_a_thread_that_could_not_be_taken_up_in_a_full_store_is_when_there_is_room(
        self, memory
    ):
        full = []

        def faults(point):
            if full and point == "put.before":
                raise StoreFull("the disk is full")

        memory.faults = faults
        app = line("g", a=wrote("a"), b=wrote("b")).compile()
        runtime = simulated(memory, 1, graphs=[app]).start()
        runtime.thread("t").tell(Invoke({"n": 1}))
        runtime.close()
        full.append(True)
        with simulated(memory, 2, graphs=[app]) as runtime:
            scheduler = runtime._core.system.scheduler
            scheduler.run_for(10.0)
            assert runtime.get_state("t").status != "complete"
            full.clear()
            scheduler.run_for(10.0)
            assert runtime.get_state("t").values["log"] == ["a", "b"]

    def test_where_there_is_no_room_for_a_group_there_may_be_for_its_parts(self, memory):
        """One that is too large alone must not hold up the others for ever."""
        commit = memory.commit

        def tight(epoch, commits):
            if any("large" in c.thread_id for c in commits):
                raise StoreFull("no room for that")
            return commit(epoch, commits)

        memory.commit = tight
        app = line("g", a=wrote("a")).compile()
        for seed in range(10):
            with simulated(memory, seed, graphs=[app]) as runtime:
                core = runtime._core
                names = [f"{seed}-{i}" for i in range(5)] + [f"{seed}-large"]
                calls = [core.submit(app, n, Invoke({"n": 1}), waits=True) for n in names]
                answers = [call.done.get() for call in calls]
            assert [a.error is None for a in answers] == [True] * 5 + [False], f"seed {seed}"

    def test_the_tree_is_shown(self, memory):
        app = line("g", a=wrote("a")).compile()
        with Runtime(memory, graphs=[app]) as runtime:
            runtime.thread("t").ask(Invoke({"n": 1}))
            text = runtime.tree().text()
        for part in ("registry", "timers", "writer", "loop", "threads", "recovery", "'t'"):
            assert part in text

    def test_a_commit_that_was_refused_is_not_repeated_over_a_later_one(self, memory):
        full, commit = [True], memory.commit

        def faults(point):
            if full and point == "put.before":
                raise StoreFull("the disk is full")

        def slow(epoch, commits):
            results = commit(epoch, commits)
            runtime._core.hub.actors["t"].put(Fired(ROOM))  # before the answer
            return results

        memory.faults = faults
        app = line("g", a=wrote("a")).compile()
        with simulated(memory, 1, graphs=[app]) as runtime:
            with pytest.raises(StoreFull):
                runtime.thread("t").ask(Invoke({"n": 1}))
            full.clear()
            memory.commit = slow
            assert runtime.thread("t").ask(Invoke({"n": 2})).state["n"] == 2

    def test_a_drain_while_recovery_waits_for_a_place_takes_up_nothing_more(self, place):
        app, gate = left_unfinished(place, 3)
        limits = Limits(threads_running=1)
        with Runtime(place.open(), graphs=[app], limits=limits, max_restarts=0) as runtime:
            eventually(lambda: gate.runs == 1 and runtime.statistics().waiting_threads == 1)
            drained = Caller(lambda: runtime.drain(10))
            eventually(lambda: runtime._core.hub.draining)
            gate.open()
            assert drained.join() is True
            assert runtime.failure is None
            assert "" not in runtime._core.hub.actors


def test_below_max_bytes_a_deleted_thread_makes_room_for_a_run_that_waits(tmp_path):
    """It is said once that the run waits, however long it does."""
    store = LMDBCheckpointer(tmp_path / "s", survives="process-kill", max_bytes=300_000)
    app = line("g", a=lambda _s: {"note": "x" * 20_000}).compile()
    with (
        structlog.testing.capture_logs() as said,
        simulated(store, 1, graphs=[app]) as runtime,
    ):
        scheduler = runtime._core.system.scheduler
        number = 0
        while runtime.health().ready:
            runtime.thread(f"t{number}").tell(Invoke({"n": 1}))
            scheduler.run_for(1.0)
            number += 1
        last = f"t{number - 1}"
        scheduler.run_for(60.0)
        assert runtime.get_state(last).status in ("accepted", "running")
        with pytest.raises(StoreFull, match="max_bytes is 300000"):
            runtime.thread("another").tell(Invoke({"note": "x" * 30_000}))
        runtime.delete_thread("t0")
        scheduler.run_for(2.0)
        assert runtime.get_state(last).status == "complete"
        assert runtime.health().ready
    store.close()
    assert len([line for line in said if line.get("thread_id") == last]) == 1
