"""Timeouts and retries, as a user sees them."""

from __future__ import annotations

import asyncio

import pytest

from beamweaver import START, Continue, Graph, Invoke, RetryPolicy, Runtime, Send
from beamweaver.errors import (
    InvalidCall,
    NodeError,
    NodeFailed,
    NodeTimeout,
    RunTimeout,
    SerializationError,
    StepTimeout,
)
from beamweaver.events import AttemptFailed, AttemptKilled, TaskStarted
from supervisors.testing import eventually
from tests.runtime.kit import Boom, Caller, Counted, Events, Gate, Log, line, simulated, star, wrote


def failing(times, error=ConnectionError, then="ok"):
    """A node that fails so many times."""
    left = [times]

    def node(_state):
        if left[0]:
            left[0] -= 1
            raise error("not yet")
        return {"log": [then]}

    return Counted(node)


class TestNodeTimeout:
    @pytest.fixture
    def gate(self):
        made = Gate({"log": ["late"]}, hard=True)
        yield made
        made.open()

    def test_it_comes_while_the_body_still_runs_peers_37(self, store, gate):
        with star("g", slow=(gate, {"timeout": 0.05})).compile(checkpointer=store) as app:
            with pytest.raises(NodeTimeout, match=r"'slow'.*0\.05 s") as caught:
                app.invoke({"n": 1}, thread_id="t")
            assert not gate.opened.is_set()
            assert (caught.value.node, caught.value.timeout) == ("slow", 0.05)
            gate.open()

    def test_the_late_result_is_refused_peers_37(self, store, gate):
        app = star("g", slow=(gate, {"timeout": 0.02}), quick=wrote("quick")).compile()
        with Runtime(store, graphs=[app]) as runtime:
            events = Events(runtime)
            with pytest.raises(NodeTimeout):
                runtime.thread("t").ask(Invoke({"n": 1}))
            gate.open()
            events.wait(AttemptKilled)
            assert runtime.get_state("t").values["log"] == ["quick"]

    def test_a_node_ends_within_its_timeout(self, store):
        with line("g", a=(wrote("a"), {"timeout": 30})).compile(checkpointer=store) as app:
            assert app.invoke({"n": 1}, thread_id="t").state["log"] == ["a"]

    def test_it_cannot_be_swallowed(self, store):
        gate = Gate()

        def stubborn(state):
            try:
                gate(state)
            except BaseException:
                return {"log": ["swallowed"]}

        with line("g", a=(stubborn, {"timeout": 0.02})).compile(checkpointer=store) as app:
            with pytest.raises(NodeTimeout):
                app.invoke({"n": 1}, thread_id="t")
            assert app.get_state("t").values.get("log", []) == []

    def test_each_node_has_its_own_clock_reference_au(self, store, gate):
        slow = Gate({"log": ["slow"]})
        nodes = {"quick": (gate, {"timeout": 0.02}), "slow": (slow, {"timeout": 30})}
        app = star("g", **nodes).compile()
        with Runtime(store, graphs=[app]) as runtime:
            events = Events(runtime)
            waiting = Caller(runtime.thread("t").ask, Invoke({"n": 1}))
            events.wait(AttemptFailed, node="quick")
            slow.open()
            with pytest.raises(NodeTimeout, match="'quick'"):
                waiting.join()
            assert runtime.get_state("t").values["log"] == ["slow"]
            gate.open()

    def test_a_send_may_have_its_own(self, store, gate):
        graph = Graph(Log, name="g").add_node("w", gate, timeout=30)
        graph.add_conditional_edges(START, lambda _s: [Send("w", {"item": 1}, timeout=0.02)])
        with graph.compile(checkpointer=store) as app, pytest.raises(NodeTimeout, match=r"0\.02 s"):
            try:
                app.invoke({"n": 1}, thread_id="t")
            finally:
                gate.open()


class TestTheNextAttempt:
    def test_it_begins_only_when_the_body_of_the_last_has_ended_peers_38(self, store):
        """The first body waits where no kill reaches it."""
        order = []
        gate = Gate(hard=True)

        def node(state, ctx):
            order.append(f"begin {ctx.attempt}")
            try:
                if ctx.attempt == 1:
                    gate(state)
            finally:
                order.append(f"end {ctx.attempt}")
            return {"log": [ctx.attempt]}

        policy = RetryPolicy(max_attempts=2, initial_delay=0)
        app = line("g", a=(node, {"retry": policy, "timeout": 0.1})).compile()
        with Runtime(store, graphs=[app]) as runtime:
            events = Events(runtime)
            waiting = Caller(runtime.thread("t").ask, Invoke({"n": 1}))
            events.wait(TaskStarted, attempt=2)
            gate.open()
            assert waiting.join().state["log"] == [2]
        assert order == ["begin 1", "end 1", "begin 2", "end 2"]

    def test_its_clock_starts_with_its_body(self, store):
        """The wait for the last attempt's body is not the next one's time."""
        gate = Gate(hard=True)

        def node(state, ctx):
            if ctx.attempt == 1:
                gate(state)
            return {"log": [ctx.attempt]}

        policy = RetryPolicy(max_attempts=2, initial_delay=0)
        app = line("g", a=(node, {"retry": policy, "timeout": 0.05})).compile()
        with Runtime(store, graphs=[app]) as runtime:
            events = Events(runtime)
            waiting = Caller(runtime.thread("t").ask, Invoke({"n": 1}))
            events.wait(TaskStarted, attempt=2)
            with star("clock", tick=(Gate(), {"timeout": 0.15})).compile() as longer:
                with pytest.raises(NodeTimeout):
                    longer.invoke({"n": 1})
            gate.open()
            assert waiting.join().state["log"] == [2]

    @pytest.mark.slow
    def test_after_the_grace_period_the_body_is_given_up(self, store):
        gate = Gate(hard=True)

        def node(state, ctx):
            if ctx.attempt == 1:
                state["log"].append("from an abandoned body")
                gate(state)
            return {"log": [ctx.attempt]}

        policy = RetryPolicy(max_attempts=2, initial_delay=0)
        app = line(
            "g", first=wrote("first"), a=(node, {"retry": policy, "timeout": 0.05})
        ).compile()
        with Runtime(store, graphs=[app]) as runtime:
            events = Events(runtime)
            outcome = runtime.thread("t").ask(Invoke({"n": 1}), timeout=10)
            assert events.of(AttemptKilled)[0].abandoned
            assert runtime.statistics().abandoned == 1
            gate.open()
            eventually(lambda: runtime.statistics().abandoned == 0)
        assert outcome.state["log"] == ["first", 2], "the state was read again"


class TestStepAndRunTimeouts:
    def test_a_step_timeout_cuts_the_step(self, store):
        gate = Gate()
        app = star("g", slow=gate, quick=wrote("quick")).compile(
            checkpointer=store, step_timeout=0.05
        )
        with app:
            with pytest.raises(StepTimeout, match="unfinished: slow"):
                app.invoke({"n": 1}, thread_id="t")
            assert app.get_state("t").values["log"] == ["quick"]
            assert app.get_state("t").next == ("slow",)

    def test_after_a_step_timeout_only_what_was_cut_runs(self, store):
        gate, quick = Gate({"log": ["slow"]}), Counted(wrote("quick"))
        app = star("g", slow=gate, quick=quick).compile(checkpointer=store, step_timeout=0.1)
        with app:
            with pytest.raises(StepTimeout):
                app.invoke({"n": 1}, thread_id="t")
            gate.open()
            assert sorted(app.invoke(None, thread_id="t").state["log"]) == ["quick", "slow"]
        assert (gate.runs, quick.runs) == (2, 1)

    def test_a_step_timeout_is_for_one_step(self, memory):
        nodes = {f"n{i}": wrote(str(i)) for i in range(20)}
        with line("g", **nodes).compile(checkpointer=memory, step_timeout=30) as app:
            assert len(app.invoke({"n": 1}, thread_id="t").state["log"]) == 20

    def test_a_run_timeout_ends_the_run(self, store):
        app = line("g", a=wrote("a"), slow=Gate()).compile(checkpointer=store, run_timeout=0.1)
        with app:
            with pytest.raises(RunTimeout, match=r"run_timeout of 0\.1 s"):
                app.invoke({"n": 1}, thread_id="t")
            assert app.get_state("t").values["log"] == ["a"]

    def test_a_calls_own_limits_win(self, store):
        app = line("g", slow=Gate()).compile(checkpointer=store, run_timeout=30, step_timeout=30)
        with app:
            with pytest.raises(StepTimeout):
                app.invoke({"n": 1}, thread_id="t", step_timeout=0.02)
            with pytest.raises(RunTimeout):
                app.invoke({"n": 1}, thread_id="u", run_timeout=0.02)

    def test_a_continuation_has_a_fresh_run_timeout(self, store):
        gate = Gate({"log": ["a"]})
        app = line("g", slow=gate).compile(checkpointer=store, run_timeout=0.1)
        with app:
            with pytest.raises(RunTimeout):
                app.invoke({"n": 1}, thread_id="t")
            gate.open()
            assert app.invoke(None, thread_id="t").state["log"] == ["a"]

    @pytest.mark.parametrize("value", [0, -1, "1", float("nan"), float("inf"), True])
    def test_a_limit_that_is_no_time_is_refused(self, memory, value):
        with line("g", a=wrote("a")).compile(checkpointer=memory) as app:
            with pytest.raises(InvalidCall, match="run_timeout"):
                app.invoke({"n": 1}, thread_id="t", run_timeout=value)
            assert app.get_state("t") is None


class TestRetries:
    def test_retries_are_more_tries(self, store):
        node = failing(2)
        policy = RetryPolicy(max_attempts=3, initial_delay=0)
        with line("g", a=(node, {"retry": policy})).compile(checkpointer=store) as app:
            assert app.invoke({"n": 1}, thread_id="t").state["log"] == ["ok"]
        assert node.runs == 3

    def test_one_failure_too_many_fails_with_the_last(self, store):
        node = failing(3)
        policy = RetryPolicy(max_attempts=3, initial_delay=0)
        with line("g", a=(node, {"retry": policy})).compile(checkpointer=store) as app:
            with pytest.raises(NodeFailed, match="attempt 3") as caught:
                app.invoke({"n": 1}, thread_id="t")
        assert isinstance(caught.value.__cause__, ConnectionError)
        assert caught.value.attempt == 3

    def test_without_a_policy_there_is_one_attempt(self, store):
        node = failing(1)
        with line("g", a=node).compile(checkpointer=store) as app, pytest.raises(NodeFailed):
            app.invoke({"n": 1}, thread_id="t")
        assert node.runs == 1

    def test_a_programming_error_is_not_retried(self, store):
        node = failing(1, TypeError)
        with line("g", a=(node, {"retries": 3})).compile(checkpointer=store) as app:
            with pytest.raises(NodeFailed, match="TypeError"):
                app.invoke({"n": 1}, thread_id="t")
        assert node.runs == 1

    def test_what_a_node_calls_unretryable_is_not_retried(self, store):
        def refuse(_state):
            raise NodeError("card_declined", "no money", retryable=False)

        node = Counted(refuse)
        with line("g", a=(node, {"retries": 3})).compile(checkpointer=store) as app:
            with pytest.raises(NodeFailed) as caught:
                app.invoke({"n": 1}, thread_id="t")
        assert (caught.value.code, node.runs) == ("card_declined", 1)

    def test_a_value_that_cannot_be_stored_is_not_retried_peers_62(self, store):
        node = Counted(lambda _s: {"log": [object()]})
        with line("g", a=(node, {"retries": 3})).compile(checkpointer=store) as app:
            with pytest.raises(NodeFailed, match="'a'") as caught:
                app.invoke({"n": 1}, thread_id="t")
        assert isinstance(caught.value.__cause__, SerializationError)
        assert node.runs == 1

    @pytest.mark.parametrize("seed", range(3))
    def test_delays_are_waited_for_on_the_clock(self, memory, seed):
        policy = RetryPolicy(
            max_attempts=4, initial_delay=10, backoff=2, max_delay=60, jitter=False
        )
        app = line("g", a=(failing(3), {"retry": policy})).compile()
        with simulated(memory, seed, graphs=[app]) as runtime:
            clock = runtime._core.system.clock
            began = clock.monotonic()
            runtime.thread("t").ask(Invoke({"n": 1}), timeout=1_000)
            assert clock.monotonic() - began == pytest.approx(70), f"seed {seed}"

    def test_attempts_are_counted_over_runtimes(self, place):
        """Attempt count and due time are durable."""
        policy = RetryPolicy(max_attempts=2, initial_delay=1_000, jitter=False, max_delay=1_000)
        node = failing(5)
        app = line("g", a=(node, {"retry": policy})).compile()
        with simulated(place.open(), 1, graphs=[app]) as runtime:
            runtime.thread("t").tell(Invoke({"n": 1}))
            runtime._core.system.scheduler.run_for(1)
            assert node.runs == 1
        with simulated(place.open(), 2, graphs=[app]) as runtime:
            runtime._core.system.scheduler.run_for(2_000)
            assert runtime.get_state("t").status == "failed"
        assert node.runs == 2

    def test_a_backoff_is_cut_by_a_continuation_of_nobody(self, memory):
        """Waiting for the next attempt, the thread is busy; a joined call gets its outcome."""
        policy = RetryPolicy(max_attempts=2, initial_delay=100, jitter=False, max_delay=100)
        app = line("g", a=(failing(1), {"retry": policy})).compile()
        with simulated(memory, 3, graphs=[app]) as runtime:
            thread = runtime.thread("t")
            thread.tell(Invoke({"n": 1}))
            assert thread.ask(Continue(), timeout=1_000).state["log"] == ["ok"]


class TestOddEnds:
    @pytest.mark.parametrize("error", [SystemExit, KeyboardInterrupt, GeneratorExit])
    def test_what_a_node_raises_to_end_a_process_ends_only_the_node(self, store, error):
        def leave(_state):
            raise error("bye")

        with line("g", a=leave).compile(checkpointer=store) as app:
            with pytest.raises(NodeFailed, match=error.__name__):
                app.invoke({"n": 1}, thread_id="t")
            assert app.get_state("t").status == "failed"

    def test_os_exit_codes_do_not_reach_the_caller(self, store):
        def leave(_state):
            raise SystemExit(3)

        with line("g", a=leave).compile(checkpointer=store) as app:
            failed = app.invoke({"n": 1}, thread_id="t", raises=False)
        assert failed.error.node == "a"

    def test_a_cancelled_error_of_user_code_is_a_failure(self, store):
        def leave(_state):
            raise asyncio.CancelledError

        with line("g", a=leave).compile(checkpointer=store) as app:
            with pytest.raises(NodeFailed, match="CancelledError"):
                app.invoke({"n": 1}, thread_id="t")

    def test_a_failure_is_returned_where_the_call_says_so(self, store):
        with line("g", a=failing(1, Boom)).compile(checkpointer=store) as app:
            failed = app.invoke({"n": 1}, thread_id="t", raises=False)
        assert isinstance(failed.error, NodeFailed)
        assert failed.state["n"] == 1
