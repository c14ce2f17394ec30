"""Moments at which two things happen at once, each found by a schedule or by reading, and mended."""

from __future__ import annotations

import asyncio
import threading
from typing import TypedDict

import pytest

from beamweaver import Cancelled, Continue, Graph, Invoke, Runtime
from beamweaver.checkpoint import MemoryCheckpointer
from beamweaver.errors import (
    CallingSelf,
    GraphChanged,
    RuntimeFailed,
    RuntimeStopped,
    StoreError,
    StoreOwned,
    StoreUnavailable,
    UnfinishedRun,
    WouldBlock,
)
from beamweaver.events import RunEnded
from beamweaver.runtime import places
from supervisors import KILLED
from supervisors.testing import eventually
from tests.runtime.kit import Boom, Caller, Events, Gate, line, simulated, wrote
from tests.simulation.faults import cells_of


def submit(runtime, app, thread_id, message, *, waits=True):
    return runtime._core.submit(app, thread_id, message, waits=waits)


def threads_of(runtime):
    """The cells of all thread actors, those that are starting too."""
    return [cell for part in cells_of(runtime._core._root.cell) for cell in cells_of(part)]


class TestStarts:
    @pytest.mark.parametrize("seed", range(20))
    def test_a_thread_whose_actor_is_killed_while_it_starts_gets_another(self, memory, seed):
        app = line("g", a=wrote("a")).compile()
        with simulated(memory, seed, graphs=[app]) as runtime:
            scheduler = runtime._core.system.scheduler
            call = submit(runtime, app, "t", Invoke({"n": 1}))
            while not threads_of(runtime):
                scheduler.step()
            for cell in threads_of(runtime):
                runtime._core.system.exit(cell, KILLED)
            assert call.done.get().outcome.state["log"] == ["a"], f"seed {seed}"

    @pytest.mark.parametrize("seed", range(40))
    def test_an_actor_of_a_dead_supervisor_takes_no_thread_from_its_successor(self, memory, seed):
        app = line("g", a=wrote("a"), b=wrote("b")).compile()
        with simulated(memory, seed, graphs=[app], max_restarts=100) as runtime:
            core = runtime._core
            calls = [submit(runtime, app, f"t{i}", Invoke({"n": 1})) for i in range(4)]
            for _ in range(3):
                for _step in range(seed % 8):
                    core.system.scheduler.step()
                (threads,) = [c for c in cells_of(core._root.cell) if "Thread" in repr(c)] or [None]
                if threads is not None:
                    core.system.exit(threads, KILLED)
            for call in calls:
                assert call.done.get().outcome.state["log"] == ["a", "b"], f"seed {seed}"

    @pytest.mark.parametrize("seed", range(20))
    def test_a_thread_that_cannot_start_is_quarantined_alone(self, memory, seed):
        app = line("g", a=wrote("a")).compile()
        with simulated(memory, seed, graphs=[app]) as runtime:
            made = runtime._core.hub.thread_class

            class Broken(made):
                def on_start(self):
                    if self.thread_id == "bad":
                        raise Boom("no start")
                    super().on_start()

            runtime._core.hub.thread_class = Broken
            bad = submit(runtime, app, "bad", Invoke({"n": 1}))
            good = submit(runtime, app, "good", Invoke({"n": 1}))
            assert "Boom" in bad.done.get().error.reason, f"seed {seed}"
            assert good.done.get().outcome.state["log"] == ["a"]


class TestRecovery:
    @pytest.mark.parametrize("seed", range(40))
    def test_a_call_that_is_refused_does_not_keep_a_thread_from_being_taken_up(self, memory, seed):
        """Recovery's wish to take a thread up outlives an actor that a call has just started."""
        app = line("g", a=wrote("a"), b=wrote("b")).compile()
        runtime = simulated(memory, seed, graphs=[app]).start()
        runtime.thread("t").tell(Invoke({"n": 1}))
        runtime.close()
        runtime = simulated(memory, seed, graphs=[app])
        reject = Invoke({"n": 2}, on_unfinished="reject")
        with runtime:
            refused = submit(runtime, app, "t", reject)
            runtime._core.system.scheduler.settle()
            assert refused.done.done()
            assert runtime.get_state("t").status == "complete", f"seed {seed}"
            error = refused.done.get().error
            assert error is None or isinstance(error, UnfinishedRun)


class TestDrain:
    @pytest.mark.parametrize("seed", range(20))
    def test_it_does_not_wait_for_actors_that_crash_meanwhile(self, memory, seed):
        app = line("g", a=wrote("a")).compile()
        with simulated(memory, seed, graphs=[app]) as runtime:
            core = runtime._core
            for i in range(5):
                runtime.thread(f"t{i}").ask(Invoke({"n": i}))
            drained = core.system.future()
            core.hub.draining = True
            for cell in core.hub.table.drain(drained):
                core.system.exit(cell, KILLED)
            drained.get(timeout=5)

    def test_a_call_after_the_end_hears_that_it_ended(self, memory):
        app = line("g", a=wrote("a")).compile()
        with Runtime(memory, graphs=[app]) as runtime:
            thread = runtime.thread("t")
        with pytest.raises(RuntimeStopped):
            thread.ask(Invoke({"n": 1}))

    @pytest.mark.parametrize("call", ["close", "drain"])
    def test_a_node_cannot_end_its_own_runtime(self, place, call):
        """It would wait for itself, be killed in the middle, and leave the store owned for ever."""
        runtimes = []

        def node(_state):
            getattr(runtimes[0], call)()

        app = line("g", a=node).compile()
        with Runtime(place.open(), graphs=[app]) as runtime:
            runtimes.append(runtime)
            with pytest.raises(Exception, match="for itself") as caught:
                runtime.thread("t").ask(Invoke({"n": 1}), timeout=10)
            assert isinstance(caught.value.__cause__, CallingSelf)
        with Runtime(place.open(), graphs=[app]):
            pass

    def test_a_node_cannot_close_its_own_app(self, memory):
        apps = []
        app = line("g", a=lambda _s: apps[0].close()).compile(checkpointer=memory)
        apps.append(app)
        with app, pytest.raises(Exception, match="for itself"):
            app.invoke({"n": 1}, thread_id="t")


class TestListeners:
    @pytest.mark.parametrize("error", [ValueError, SystemExit, KeyboardInterrupt])
    def test_one_that_raises_disturbs_nobody(self, memory, error):
        def listener(_event):
            raise error

        app = line("g", a=wrote("a")).compile()
        with Runtime(memory, graphs=[app]) as runtime:
            runtime.subscribe(listener)
            assert runtime.thread("t").ask(Invoke({"n": 1}), timeout=10).state["log"] == ["a"]

    def test_one_that_calls_is_told_that_it_would_wait_for_itself(self, memory):
        heard = []
        app = line("g", a=wrote("a")).compile()
        with Runtime(memory, graphs=[app]) as runtime:
            thread = runtime.thread("t")

            def listener(event):
                if isinstance(event, RunEnded):
                    for call in (thread.tell, thread.ask):
                        with pytest.raises(WouldBlock) as caught:
                            call(Continue())
                        heard.append(caught.value.twin)

            runtime.subscribe(listener)
            thread.ask(Invoke({"n": 1}), timeout=10)
        assert heard == ["atell", "aask"]


class Old(TypedDict, total=False):
    """What a channel once was."""

    n: int


class New(TypedDict, total=False):
    """What it is now: stored values do not fit."""

    n: str


class TestThreadsThatCannotBeRead:
    def test_a_value_that_does_not_fit_the_graph_is_said_and_the_thread_is_left_alone(self, place):
        """The code is wrong, not the thread: the old code still reads it."""

        def graph(schema, value):
            return (
                Graph(schema, name="g")
                .add_node("a", lambda _s: {"n": value})
                .add_edge("__start__", "a")
            )

        old, new = graph(Old, 1).compile(), graph(New, "x").compile()
        with Runtime(place.open(), graphs=[old]) as runtime:
            runtime.thread("t").ask(Invoke({"n": 5}))
        with Runtime(place.open(), graphs=[new]) as runtime:
            with pytest.raises(
                GraphChanged, match="n cannot be read back: Expected `str`, got `int`"
            ):
                runtime.thread("t").ask(Invoke({"n": "y"}), timeout=10)
            assert runtime.failure is None
        with Runtime(place.open(), graphs=[old]) as runtime:
            assert runtime.get_state("t").status == "complete"
            assert runtime.thread("t").ask(Invoke({"n": 6}), timeout=10).state["n"] == 1

    def test_an_error_of_the_store_is_the_callers_and_the_next_call_reads_again(self, memory):
        broken = []
        load = memory.load

        def failing(thread_id, *args, **kwargs):
            if broken and thread_id == "t":
                broken.pop()
                raise StoreUnavailable("the disk is away")
            return load(thread_id, *args, **kwargs)

        memory.load = failing
        app = line("g", a=wrote("a")).compile()
        with Runtime(memory, graphs=[app]) as runtime:
            broken.append(True)
            with pytest.raises(StoreError, match="away"):
                runtime.thread("t").ask(Invoke({"n": 1}), timeout=10)
            outcome = runtime.thread("t").ask(Invoke({"n": 1}), timeout=10)
        assert outcome.state["log"] == ["a"]

    def test_the_recorded_outcome_of_an_old_run_that_cannot_be_read_is_an_error(self, memory):
        app = line("g", a=wrote("a")).compile()
        load = memory.load

        def failing(thread_id, seq=None, **kwargs):
            if seq is not None:
                raise StoreUnavailable("that page is away")
            return load(thread_id, seq, **kwargs)

        with Runtime(memory, graphs=[app]) as runtime:
            thread = runtime.thread("t")
            thread.ask(Invoke({"n": 1}, run_id="old"))
            thread.ask(Invoke({"n": 2}, run_id="new"))
            memory.load = failing
            with pytest.raises(StoreError, match="away"):
                thread.ask(Invoke({"n": 1}, run_id="old"), timeout=10)
            memory.load = load
            assert thread.ask(Invoke({"n": 3}), timeout=10).state["n"] == 3


class TestStores:
    def test_a_call_beside_the_end_of_a_private_runtime_waits_for_the_store(self, disk):
        """The store is this process's own: no call of it hears that somebody owns it."""
        store = disk.open()
        app = line("g", a=wrote("a")).compile(checkpointer=store)
        app.invoke({"n": 0}, thread_id="t")
        release, gate, came = store.release, threading.Event(), threading.Event()

        def slowly():
            came.set()
            assert gate.wait(10)
            release()

        store.release = slowly
        closing = Caller(app.close)
        assert came.wait(10)
        calling = Caller(app.invoke, {"n": 1}, thread_id="t")
        assert places._places, "the store has its place until it is free"
        store.release = release
        gate.set()
        closing.join()
        assert calling.join().state["n"] == 1
        app.close()

    def test_the_owner_in_this_process_is_named_with_its_time(self, memory):
        memory.now = lambda: 123.0
        with Runtime(memory), pytest.raises(StoreOwned) as caught:
            Runtime(memory).start()
        assert caught.value.since == 123.0

    def test_a_runtime_that_takes_a_private_one_over_brings_its_limits(self, memory):
        from beamweaver.limits import Limits

        app = line("g", a=wrote("a")).compile(checkpointer=memory)
        app.invoke({"n": 1}, thread_id="t")
        with Runtime(memory, graphs=[app], limits=Limits(threads_running=3)) as runtime:
            assert runtime._core is app._core
            assert runtime._core.hub.table.limits.threads_running == 3
        app.close()


class TestEventLoops:
    def test_a_caller_that_goes_away_from_an_ended_runtime_is_cancelled_all_the_same(self, memory):
        gate = Gate({"log": ["a"]})
        app = line("g", a=gate).compile()

        async def main():
            runtime = Runtime(memory, graphs=[app])
            await asyncio.to_thread(runtime.start)
            task = asyncio.ensure_future(runtime.thread("t").aask(Invoke({"n": 1})))
            await asyncio.to_thread(gate.wait)
            core = runtime._core
            core.submit = _stopped
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            del core.submit
            gate.open()
            await asyncio.to_thread(runtime.close)

        asyncio.run(main())

    def test_a_node_that_stops_its_loop_has_it_replaced(self, memory):
        stopped = []

        async def node(_state):
            if not stopped:
                stopped.append(True)
                asyncio.get_running_loop().stop()
                await asyncio.sleep(60)
            return {"log": ["a"]}

        app = line("g", a=node).compile()
        with Runtime(memory, graphs=[app]) as runtime:
            outcome = runtime.thread("t").ask(Invoke({"n": 1}), timeout=10)
        assert outcome.state["log"] == ["a"]

    def test_with_the_users_loop_the_runtime_ends(self, memory):
        async def node(_state):
            return {"log": ["a"]}

        app = line("g", a=node).compile()
        runtime = Runtime(memory, graphs=[app])

        async def main():
            await runtime.__aenter__()
            await runtime.thread("t").aask(Invoke({"n": 1}))

        asyncio.run(main())
        with pytest.raises(RuntimeStopped):
            runtime.thread("t").ask(Invoke({"n": 2}), timeout=10)
        eventually(lambda: isinstance(runtime.failure, RuntimeFailed))
        assert "event loop" in str(runtime.failure)
        runtime.close()

    def test_a_user_loops_nodes_end_with_a_runtime_that_fails(self, memory):
        came, ended = asyncio.Event(), asyncio.Event()

        async def node(_state):
            came.set()
            try:
                await asyncio.sleep(60)
            finally:
                ended.set()

        app = line("g", a=node).compile()

        async def main():
            runtime = Runtime(memory, graphs=[app], max_restarts=0)
            await runtime.__aenter__()
            task = asyncio.ensure_future(runtime.thread("t").aask(Invoke({"n": 1})))
            await came.wait()
            core = runtime._core
            core.system.exit(core.hub.writer, KILLED)
            with pytest.raises(RuntimeStopped):
                await task
            await ended.wait()
            with pytest.raises(RuntimeFailed):
                await runtime.__aexit__(None, None, None)

        asyncio.run(asyncio.wait_for(main(), 10))


def _stopped(*_args, **_kwargs):
    raise RuntimeStopped("the runtime was closed")


def test_cancel_reaches_a_run_whose_actor_is_replaced(memory):
    gate = Gate({"log": ["a"]})
    app = line("g", a=gate).compile()
    with Runtime(memory, graphs=[app]) as runtime:
        events = Events(runtime)
        thread = runtime.thread("t")
        thread.tell(Invoke({"n": 1}))
        gate.wait()
        hub = runtime._core.hub
        hub.system.exit(hub.actors["t"], KILLED)
        assert isinstance(thread.cancel(), Cancelled)
        gate.open()
        events.wait(RunEnded, status="cancelled")


def test_a_memory_store_that_nobody_runs_is_free_at_once():
    store = MemoryCheckpointer()
    for _ in range(3):
        app = line("g", a=wrote("a")).compile(checkpointer=store)
        app.invoke({"n": 1}, thread_id="t")
        app.close()
