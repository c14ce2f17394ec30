"""Cancel, drain, close, and a caller who goes away."""

from __future__ import annotations

import signal
import threading

import pytest

from beamweaver import (
    Cancel,
    Cancelled,
    Completed,
    Continue,
    Drained,
    Invoke,
    RetryPolicy,
    Runtime,
    interrupt,
)
from beamweaver.errors import Draining, NodeFailed
from beamweaver.events import AttemptFailed, AttemptKilled, RunEnded, TaskStarted
from supervisors.testing import eventually
from tests.runtime.kit import Caller, Counted, Events, Gate, line, simulated, star, wrote


class TestCancel:
    def test_it_returns_how_the_run_ended(self, store):
        gate = Gate()
        app = line("g", a=wrote("a"), b=gate).compile()
        with Runtime(store, graphs=[app]) as runtime:
            thread = runtime.thread("t")
            waiting = Caller(thread.ask, Invoke({"n": 1}))
            gate.wait()
            cancelled = thread.cancel()
            assert isinstance(cancelled, Cancelled)
            assert cancelled.state["log"] == ["a"]
            assert isinstance(waiting.join(), Cancelled)

    def test_it_returns_when_the_body_has_ended_peers_43(self, store):
        order = []
        gate = Gate(hard=True)

        def node(state):
            try:
                gate(state)
            finally:
                order.append("body")

        app = line("g", a=node).compile()
        with Runtime(store, graphs=[app]) as runtime:
            events = Events(runtime)
            thread = runtime.thread("t")
            thread.tell(Invoke({"n": 1}))
            gate.wait()

            def cancel():
                thread.cancel()
                order.append("cancel")

            calls = [Caller(cancel), Caller(cancel)]
            actor = runtime._core.hub.actors["t"].actor
            eventually(lambda: len(actor._machine.attached) == 2)
            assert order == []
            gate.open()
            for call in calls:
                call.join()
            assert order == ["body", "cancel", "cancel"]
            assert events.of(AttemptKilled)[0].abandoned is False

    @pytest.mark.slow
    def test_it_returns_when_the_body_was_abandoned(self, store):
        gate = Gate(hard=True)
        app = line("g", a=gate).compile()
        with Runtime(store, graphs=[app]) as runtime:
            events = Events(runtime)
            thread = runtime.thread("t")
            thread.tell(Invoke({"n": 1}))
            gate.wait()
            assert isinstance(thread.cancel(), Cancelled)
            assert events.of(AttemptKilled)[0].abandoned is True
            gate.open()
            eventually(lambda: runtime.statistics().abandoned == 0)

    @pytest.mark.parametrize("again", [Continue(), Invoke({"n": 1}), Invoke({})], ids=repr)
    def test_a_cancelled_thread_goes_on_on_request(self, store, again):
        gate = Gate({"log": ["b"]})
        node = Counted(wrote("a"))
        app = line("g", a=node, b=gate).compile()
        with Runtime(store, graphs=[app]) as runtime:
            thread = runtime.thread("t")
            thread.tell(Invoke({"n": 1}))
            gate.wait()
            thread.cancel()
            gate.open()
            assert thread.ask(again).state["log"] == ["a", "b"]
        assert node.runs == 1

    def test_a_finished_sibling_is_kept(self, store):
        gate, quick = Gate({"log": ["slow"]}), Counted(wrote("quick"))
        app = star("g", slow=gate, quick=quick).compile()
        with Runtime(store, graphs=[app]) as runtime:
            thread = runtime.thread("t")
            thread.tell(Invoke({"n": 1}))
            gate.wait()
            eventually(lambda: thread.get_state().pending_writes)
            thread.cancel()
            gate.open()
            assert sorted(thread.ask(Continue()).state["log"]) == ["quick", "slow"]
        assert quick.runs == 1

    def test_a_cancelled_thread_stays_so_over_runtimes(self, place):
        gate = Gate({"log": ["a"]})
        app = line("g", a=gate).compile()
        with Runtime(place.open(), graphs=[app]) as runtime:
            runtime.thread("t").tell(Invoke({"n": 1}))
            gate.wait()
            runtime.thread("t").cancel()
        gate.open()
        with Runtime(place.open(), graphs=[app]) as runtime:
            eventually(lambda: not runtime._core.hub.recovery.actor._walking)
            assert runtime.get_state("t").status == "cancelled"
            assert runtime.thread("t").ask(Continue()).state["log"] == ["a"]

    def test_a_backoff_is_cut_short(self, memory):
        def fail(_state):
            raise ConnectionError("down")

        policy = RetryPolicy(max_attempts=2, initial_delay=1_000, max_delay=1_000)
        app = line("g", a=(fail, {"retry": policy})).compile()
        with Runtime(memory, graphs=[app]) as runtime:
            events = Events(runtime)
            thread = runtime.thread("t")
            thread.tell(Invoke({"n": 1}))
            events.wait(AttemptFailed)
            assert isinstance(thread.cancel(), Cancelled)

    def test_on_a_thread_that_does_not_run_it_says_how_it_stands(self, store):
        with line("g", a=wrote("a")).compile(checkpointer=store) as app:
            app.invoke({"n": 1}, thread_id="t")
            assert isinstance(app.cancel("t"), Completed)

    def test_on_a_failed_thread_the_failure_is_returned(self, store):
        def fail(_state):
            raise ValueError("no")

        with line("g", a=fail).compile(checkpointer=store) as app:
            with pytest.raises(NodeFailed):
                app.invoke({"n": 1}, thread_id="t")
            assert app.cancel("t").error.node == "a"

    def test_told_it_cancels_too(self, store):
        gate = Gate()
        app = line("g", a=gate).compile()
        with Runtime(store, graphs=[app]) as runtime:
            events = Events(runtime)
            thread = runtime.thread("t")
            thread.tell(Invoke({"n": 1}))
            gate.wait()
            thread.tell(Cancel())
            events.wait(RunEnded, status="cancelled")


class TestDrain:
    def test_waiting_callers_get_drained(self, store):
        gate = Gate({"log": ["a"]})
        app = line("g", a=gate, b=wrote("b")).compile()
        with Runtime(store, graphs=[app]) as runtime:
            waiting = Caller(runtime.thread("t").ask, Invoke({"n": 1}))
            gate.wait()
            draining = Caller(runtime.drain, timeout=10)
            eventually(lambda: runtime._core.hub.draining)
            gate.open()
            assert draining.join() is True
            outcome = waiting.join()
        assert isinstance(outcome, Drained)
        assert outcome.state["log"] == ["a"], "the running body was let end"

    def test_a_run_whose_last_commit_completes_it_is_completed(self, store):
        gate = Gate({"log": ["a"]})
        app = line("g", a=gate).compile()
        with Runtime(store, graphs=[app]) as runtime:
            waiting = Caller(runtime.thread("t").ask, Invoke({"n": 1}))
            gate.wait()
            draining = Caller(runtime.drain, timeout=10)
            eventually(lambda: runtime._core.hub.draining)
            gate.open()
            draining.join()
            assert isinstance(waiting.join(), Completed | Drained)

    def test_the_next_runtime_goes_on_by_itself(self, place):
        gate, first = Gate({"log": ["b"]}), Counted(wrote("a"))
        app = line("g", a=first, b=gate, c=wrote("c")).compile()
        with Runtime(place.open(), graphs=[app]) as runtime:
            runtime.thread("t").tell(Invoke({"n": 1}))
            gate.wait()
            gate.open()
            runtime.drain(timeout=10)
        with Runtime(place.open(), graphs=[app]) as runtime:
            eventually(lambda: runtime.get_state("t").status == "complete")
            assert runtime.get_state("t").values["log"] == ["a", "b", "c"]
        assert first.runs == 1

    def test_what_runs_beyond_the_deadline_is_cut(self, store):
        gate = Gate()
        app = line("g", a=gate).compile()
        with Runtime(store, graphs=[app]) as runtime:
            waiting = Caller(runtime.thread("t").ask, Invoke({"n": 1}))
            gate.wait()
            assert runtime.drain(timeout=0.01) is False
            assert isinstance(waiting.join(), Drained)

    def test_a_node_sees_that_it_is_wanted(self, store):
        seen = []

        def node(_state, ctx):
            came.set()
            eventually(lambda: ctx.drain_requested)
            seen.append(True)

        came = threading.Event()
        app = line("g", a=node).compile()
        with Runtime(store, graphs=[app]) as runtime:
            runtime.thread("t").tell(Invoke({"n": 1}))
            assert came.wait(10)
            assert runtime.drain(timeout=10)
        assert seen == [True]

    def test_new_calls_are_refused_and_told_ones_kept(self, place):
        node = Counted(wrote("a"))
        app = line("g", a=node).compile()
        with Runtime(place.open(), graphs=[app]) as runtime:
            runtime.drain(timeout=10)
            with pytest.raises(Draining, match="tell"):
                runtime.thread("t").ask(Invoke({"n": 1}))
            runtime.thread("u").tell(Invoke({"n": 2}))
            assert node.runs == 0
        with Runtime(place.open(), graphs=[app]) as runtime:
            eventually(lambda: (runtime.get_state("u") or None) is not None)
            assert runtime.thread("u").ask(Continue()).state == {"n": 2, "log": ["a"]}

    def test_a_long_backoff_does_not_hold_it_peers_41(self, place):
        def fail(_state):
            raise ConnectionError("down")

        node = Counted(fail)
        policy = RetryPolicy(max_attempts=2, initial_delay=10_000, max_delay=10_000, jitter=False)
        app = line("g", a=(node, {"retry": policy})).compile()
        with Runtime(place.open(), graphs=[app]) as runtime:
            events = Events(runtime)
            for i in range(10):
                runtime.thread(f"t{i}").tell(Invoke({"n": i}))
            events.wait(AttemptFailed, count=10)
            assert runtime.drain(timeout=10)
        with Runtime(place.open(), graphs=[app]) as runtime:
            eventually(lambda: runtime.statistics().taken_up == 10)
        assert node.runs == 10, "their second attempts are not due yet"

    @pytest.mark.parametrize("seed", range(20))
    def test_at_any_moment_each_caller_hears_and_nothing_is_lost(self, place, seed):
        app = line("g", a=wrote("a"), b=wrote("b"), c=wrote("c")).compile()
        with simulated(place.open(), seed, graphs=[app]) as runtime:
            threads = [runtime.thread(f"t{i}") for i in range(5)]
            waiting = [
                runtime._core.submit(app, t.thread_id, Invoke({"n": 1}), waits=True)
                for t in threads
            ]
            for _ in range(seed * 3):
                runtime._core.system.scheduler.step()
            assert runtime.drain(timeout=100), f"seed {seed}"
            answers = [w.done.get(timeout=100).outcome for w in waiting]
            assert all(isinstance(a, Drained | Completed) for a in answers), f"seed {seed}"
        with simulated(place.open(), seed, graphs=[app]) as runtime:
            for i in range(5):
                outcome = runtime.thread(f"t{i}").ask(Continue(), timeout=100)
                assert outcome.state["log"] == ["a", "b", "c"], f"seed {seed}"


class TestClose:
    def test_what_runs_is_cut_and_goes_on_in_the_next_runtime(self, place):
        gate = Gate({"log": ["a"]})
        app = line("g", a=gate).compile()
        runtime = Runtime(place.open(), graphs=[app]).start()
        waiting = Caller(runtime.thread("t").ask, Invoke({"n": 1}))
        gate.wait()
        runtime.close()
        assert isinstance(waiting.join(), Drained)
        gate.open()
        with Runtime(place.open(), graphs=[app]) as runtime:
            assert runtime.thread("t").ask(Continue()).state["log"] == ["a"]

    @pytest.mark.slow
    def test_a_body_that_hangs_does_not_hold_it_peers_41(self, place):
        gate = Gate(hard=True)
        app = line("g", a=gate).compile()
        runtime = Runtime(place.open(), graphs=[app]).start()
        runtime.thread("t").tell(Invoke({"n": 1}))
        gate.wait()
        closing = Caller(runtime.close)
        eventually(lambda: closing.done, timeout=8)
        gate.open()
        closing.join()

    def test_it_counts_no_death(self, place):
        gate = Gate({"log": ["a"]})
        app = line("g", a=gate).compile()
        for _ in range(4):
            with Runtime(place.open(), graphs=[app]) as runtime:
                runtime.thread("t").tell(Invoke({"n": 1}))
                events = Events(runtime)
                eventually(lambda events=events: gate.runs or events.of(TaskStarted))
            assert runtime._core.closed
        gate.open()
        with Runtime(place.open(), graphs=[app]) as runtime:
            eventually(lambda: runtime.get_state("t").status == "complete")


class TestACallerGoesAway:
    def test_an_interrupted_invoke_leaves_the_run_resumable(self, place):
        gate = Gate({"log": ["a"]})
        app = line("g", a=gate).compile(checkpointer=place.open())

        def interrupt_main():
            gate.wait()
            signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)

        with app:
            helper = threading.Thread(target=interrupt_main)
            helper.start()
            with pytest.raises(KeyboardInterrupt):
                app.invoke({"n": 1}, thread_id="t")
            helper.join()
        gate.open()
        with app:
            assert app.invoke({"n": 1}, thread_id="t").state["log"] == ["a"]

    def test_a_node_that_was_cut_waits_for_no_thread_any_more(self, memory):
        """The thread that it called may call it afterwards."""
        gate = Gate()
        held = []

        def node(state):
            if state["note"] == "first":
                held[0].invoke({"note": "second"}, thread_id="second")
            elif state["note"] == "second":
                gate(state)
                held[0].invoke({"note": "third"}, thread_id="first", on_unfinished="restart")
            return {"log": [state["note"]]}

        held.append(line("g", a=node).compile(checkpointer=memory))
        with held[0] as app:
            failed = app.invoke({"note": "first"}, thread_id="first", run_timeout=0.2, raises=False)
            assert failed.error.code == "run_timeout"
            gate.open()
            assert app.invoke(None, thread_id="second").state["log"] == ["second"]
            assert app.get_state("first").values["log"] == ["third"]


def test_a_question_that_is_open_is_not_cancelled_away(store):
    with line("g", a=lambda _s: {"log": [interrupt("?")]}).compile(checkpointer=store) as app:
        asked = app.invoke({"n": 1}, thread_id="t").interrupt
        assert app.cancel("t").interrupts == (asked,)
        assert app.resume("yes", thread_id="t").state["log"] == ["yes"]
