"""What a dead process left is taken up, and calls find it before, during and after."""

from __future__ import annotations

import pytest

from beamweaver import Continue, Invoke, Runtime
from beamweaver.errors import UnfinishedRun
from beamweaver.events import RunEnded, TaskStarted, ThreadTakenUp
from supervisors.testing import eventually
from tests.runtime.children import complete_and_die, killed, leave, tell_and_die
from tests.runtime.kit import Caller, Counted, Events, Gate, Oracle, line, simulated, wrote


@pytest.fixture
def left(disk):
    """A place whose process died in the second node of thread t."""
    killed(leave, disk.path, ["t"])
    return disk


def plain():
    return line("g", a=wrote("a"), b=wrote("b")).compile()


def gated():
    gate = Gate({"log": ["b"]})
    return gate, line("g", a=wrote("a"), b=gate).compile()


class TestRecover:
    def test_all_takes_up_what_nobody_calls(self, left):
        with Runtime(left.open(), graphs=[plain()]) as runtime:
            events = Events(runtime)
            eventually(lambda: runtime.get_state("t").status == "complete")
            assert runtime.get_state("t").values["log"] == ["a", "b"]
        assert events.of(TaskStarted, node="a") == [], "what was acknowledged does not run again"

    @pytest.mark.parametrize("recover", ["called", "none"])
    def test_others_leave_it_until_it_is_called(self, left, recover):
        gate, app = gated()
        gate.open()
        with Runtime(left.open(), graphs=[app], recover=recover) as runtime:
            eventually(lambda: not runtime._core.hub.recovery.actor._walking)
            assert (gate.runs, runtime.statistics().taken_up) == (0, 0)
            assert runtime.thread("t").ask(Invoke({"n": 1})).state["log"] == ["a", "b"]

    def test_many_threads_are_taken_up_in_batches(self, disk):
        names = [f"t{i:03}" for i in range(60)]
        killed(leave, disk.path, names)
        with Runtime(disk.open(), graphs=[plain()]) as runtime:
            for name in names:
                assert runtime.thread(name).ask(Continue(), timeout=10).state["log"] == ["a", "b"]

    def test_a_refused_call_does_not_keep_a_thread_from_recovery(self, left):
        """The thread's actor is there before Recovery comes by."""
        gate, app = gated()
        with Runtime(left.open(), graphs=[app], recover="none") as runtime:
            with pytest.raises(UnfinishedRun):
                runtime.thread("t").ask(Invoke({"n": 2}, on_unfinished="reject"))
            runtime._core.hub.recover = "all"
            runtime._core.recover_again()
            gate.wait()
            gate.open()
            assert runtime.thread("t").ask(Continue()).state["log"] == ["a", "b"]

    def test_a_complete_thread_is_left_alone(self, disk):
        killed(complete_and_die, disk.path, "R")
        with Runtime(disk.open(), graphs=[plain()]) as runtime:
            eventually(lambda: not runtime._core.hub.recovery.actor._walking)
            assert runtime.statistics().taken_up == 0

    def test_a_sweep_again_starts_nothing_twice_peers_61(self, left):
        gate, app = gated()
        with Runtime(left.open(), graphs=[app]) as runtime:
            gate.wait()
            for _ in range(5):
                runtime._core.recover_again()
            eventually(lambda: not runtime._core.hub.recovery.actor._walking)
            gate.open()
            runtime.thread("t").ask(Continue())
        assert gate.runs == 1

    def test_each_death_is_told(self, left):
        gate, app = gated()
        runtime = Runtime(left.open(), graphs=[app], recover="none")
        with runtime:
            events = Events(runtime)
            waiting = Caller(runtime.thread("t").ask, Continue())
            assert events.wait(ThreadTakenUp, thread_id="t").deaths == 1
            gate.open()
            waiting.join()


class TestTheSameCallAgain:
    def test_before_recovery_it_joins(self, left):
        node = Counted(wrote("a"))
        app = line("g", a=node, b=wrote("b")).compile(checkpointer=left.open())
        with app:
            outcome = app.invoke({"n": 1}, thread_id="t")
        assert (outcome.state["log"], node.runs) == (["a", "b"], 0)

    def test_during_recovery_it_joins(self, left):
        gate, app = gated()
        with Runtime(left.open(), graphs=[app]) as runtime:
            gate.wait()
            waiting = Caller(runtime.thread("t").ask, Invoke({"n": 1}))
            eventually(lambda: runtime.statistics().waiting_calls == 1)
            gate.open()
            assert waiting.join().state == {"n": 1, "log": ["a", "b"]}
        assert gate.runs == 1

    def test_after_recovery_it_is_told_what_came_of_it(self, left):
        node = Counted(wrote("b"))
        app = line("g", a=wrote("a"), b=node).compile()
        with Runtime(left.open(), graphs=[app]) as runtime:
            eventually(lambda: runtime.get_state("t").status == "complete")
            assert runtime.thread("t").ask(Invoke({"n": 1})).state["log"] == ["a", "b"]
        assert node.runs == 1

    def test_after_recovery_only_the_first_call_claims_it(self, left):
        with Runtime(left.open(), graphs=[plain()]) as runtime:
            eventually(lambda: runtime.get_state("t").status == "complete")
            runtime.thread("t").ask(Invoke({"n": 1}))
            second = runtime.thread("t").ask(Invoke({"n": 1}))
        assert second.state["log"] == ["a", "b", "a", "b"]

    def test_another_input_amends_before_recovery(self, left):
        app = line("g", a=wrote("a"), b=lambda s: {"log": [s["n"]]}).compile(
            checkpointer=left.open()
        )
        with app:
            outcome = app.invoke({"n": 2}, thread_id="t")
        assert outcome.state == {"n": 2, "log": ["a", 2]}

    def test_another_input_amends_during_recovery(self, left):
        gate, app = gated()
        with Runtime(left.open(), graphs=[app]) as runtime:
            gate.wait()
            waiting = Caller(runtime.thread("t").ask, Invoke({"n": 2}))
            eventually(lambda: runtime.get_state("t").values["n"] == 2)
            gate.open()
            assert waiting.join().state == {"n": 2, "log": ["a", "b"]}

    def test_another_input_after_recovery_is_a_new_run(self, left):
        with Runtime(left.open(), graphs=[plain()]) as runtime:
            eventually(lambda: runtime.get_state("t").status == "complete")
            outcome = runtime.thread("t").ask(Invoke({"n": 2}))
        assert outcome.state == {"n": 2, "log": ["a", "b", "a", "b"]}

    def test_restart_drops_what_was_left(self, left):
        with Runtime(left.open(), graphs=[plain()], recover="none") as runtime:
            outcome = runtime.thread("t").ask(Invoke({"n": 2}, on_unfinished="restart"))
        assert outcome.state == {"n": 2, "log": ["a", "a", "b"]}

    def test_a_run_id_joins_whatever_the_input(self, disk):
        killed(tell_and_die, disk.path, "t", 7)
        with Runtime(disk.open(), graphs=[plain()]) as runtime:
            outcome = runtime.thread("t").ask(Invoke({"n": 8}, run_id="run-7"))
        assert outcome.state["n"] == 7

    def test_a_run_id_covers_death_between_commit_and_reading(self, disk):
        killed(complete_and_die, disk.path, "R")
        node = Counted(wrote("a"))
        app = line("g", a=node, b=wrote("b")).compile(checkpointer=disk.open())
        with app:
            outcome = app.invoke({"n": 1}, thread_id="t", run_id="R")
        assert (outcome.state["log"], node.runs) == (["a", "b"], 0)

    def test_without_a_run_id_a_complete_run_is_no_longer_the_same_call(self, disk):
        killed(complete_and_die, disk.path, "R")
        app = plain()
        with Runtime(disk.open(), graphs=[app]) as runtime:
            outcome = runtime.thread("t").ask(Invoke({"n": 1}))
        assert outcome.state["log"] == ["a", "b", "a", "b"]


def test_a_caller_killed_in_step_two_goes_on_there_reference_j(left):
    counts = [Counted(wrote("a")), Counted(wrote("b"))]
    app = line("g", a=counts[0], b=counts[1]).compile(checkpointer=left.open())
    with app:
        assert app.invoke({}, thread_id="t").state["log"] == ["a", "b"]
    assert [node.runs for node in counts] == [0, 1]


@pytest.mark.slow
def test_a_run_that_is_killed_again_and_again_in_one_place_ends_when_it_commits(disk):
    """kill -9 loops: each process commits one node more before it dies."""
    for thread in ("t", "u"):
        killed(leave, disk.path, [thread])
    for _ in range(4):
        killed(tell_and_die, disk.path, f"x{_}", 1)
    with Runtime(disk.open(), graphs=[plain()]) as runtime:
        oracle = Oracle(runtime)
        for thread in ("x3", "x2"):
            assert runtime.thread(thread).ask(Continue(), timeout=10).state["log"] == ["a", "b"]
    assert oracle.reruns == []


@pytest.mark.parametrize("seed", range(10))
def test_a_closed_runtimes_threads_go_on_in_the_next_in_any_order(memory, seed):
    app = line("g", a=wrote("a"), b=wrote("b"), c=wrote("c")).compile()
    first = simulated(memory, seed, graphs=[app])
    with first:
        threads = [first.thread(f"t{i}") for i in range(6)]
        for thread in threads:
            thread.tell(Invoke({"n": 1}))
        for _ in range(seed * 5):
            first._core.system.scheduler.step()
    with simulated(memory, seed + 100, graphs=[app]) as second:
        oracle = Oracle(second)
        for i in range(6):
            outcome = second.thread(f"t{i}").ask(Continue(), timeout=30)
            assert outcome.state["log"] == ["a", "b", "c"], f"seed {seed}"
    assert oracle.reruns == [], f"seed {seed}"
    assert all(e.status == "complete" for e in oracle.of(RunEnded)), f"seed {seed}"
