"""The table of calls: threads that were left, begun anew, or set aside."""

from __future__ import annotations

import pytest

from beamweaver.checkpoint.entries import Continued
from beamweaver.engine import CallKind
from beamweaver.errors import (
    NodeFailed,
    Quarantined,
    UnfinishedRun,
    WrongGraph,
)
from beamweaver.types import Cancelled, Completed, Drained, RetryPolicy
from tests.engine.driver import Driver, Later
from tests.engine.graphs import asks, fails, fan, graph, wrote
from tests.engine.standings import (
    INPUT,
    OTHER,
    cancelled,
    complete,
    drained,
    failed,
    left,
    quarantined,
    slow,
    waiting,
)


class TestLeft:
    """By a dead process; recovery has not begun, has begun, or has finished."""

    @pytest.mark.parametrize("recover", [False, True])
    def test_an_equal_input_joins(self, recover):
        driver = left(recover=recover)
        assert driver.invoke(INPUT).state["n"] == 1

    @pytest.mark.parametrize("recover", [False, True])
    def test_another_input_amends(self, recover):
        driver = left(recover=recover)
        assert driver.invoke(OTHER).state["n"] == 11
        assert driver.row.run.number == 1

    @pytest.mark.parametrize("recover", [False, True])
    def test_an_empty_input_joins(self, recover):
        driver = left(recover=recover)
        assert driver.invoke({}).state["n"] == 1
        assert driver.entries(Continued) == []

    @pytest.mark.parametrize("recover", [False, True])
    def test_a_continuation_goes_on(self, recover):
        assert left(recover=recover).go_on().state["log"] == ["ok", "slow"]

    @pytest.mark.parametrize("recover", [False, True])
    def test_an_equal_input_joins_whatever_it_says_of_unfinished_runs(self, recover):
        assert left(recover=recover).invoke(INPUT, on_unfinished="reject").state["n"] == 1

    @pytest.mark.parametrize("recover", [False, True])
    def test_another_input_is_refused_where_unfinished_runs_are(self, recover):
        with pytest.raises(UnfinishedRun):
            left(recover=recover).invoke(OTHER, on_unfinished="reject")

    def test_an_equal_input_on_a_run_that_recovery_finished_is_the_same_call(self):
        driver = left(recover=True, until_end=True)
        assert driver.invoke(INPUT).state["n"] == 1
        assert driver.row.run.number == 1

    def test_only_the_first_call_claims_a_run_that_recovery_finished(self):
        driver = left(recover=True, until_end=True)
        driver.invoke(INPUT)
        assert driver.invoke(INPUT).state["n"] == 2

    def test_only_the_first_call_joins_a_run_that_recovery_goes_on_with(self):
        driver = left(recover=True)
        first = driver.send_invoke(INPUT)
        second = driver.send_invoke(INPUT)
        driver.run()
        assert (driver.answer(first).state["n"], driver.answer(second).state["n"]) == (1, 2)

    def test_another_input_on_a_run_that_recovery_finished_starts_one(self):
        driver = left(recover=True, until_end=True)
        assert driver.invoke(OTHER).state["n"] == 11
        assert driver.row.run.number == 2

    def test_a_call_that_repeats_a_failed_run_goes_on_with_it(self):
        ends = [{}, ValueError("boom"), {"x": 1}]
        driver = left(recover=True, until_end=True, bad=lambda _s: Later(1, ends.pop(0)))
        assert driver.stored_status == "failed"
        assert driver.invoke(INPUT).state["n"] == 1

    def test_finished_tasks_do_not_run_again(self):
        driver = left(recover=False)
        driver.go_on()
        assert (driver.runs("ok"), driver.runs("slow")) == (1, 2)

    def test_one_record_takes_a_run_up_for_a_caller(self):
        driver = left(recover=False)
        before = len(driver.commits)
        driver.send_invoke(OTHER, run_id="two")
        driver.advance()
        driver.step()
        commit = driver.commits[before]
        assert (commit.thread.run.taken_up_epoch, commit.thread.run.claimed_epoch) == (2, 2)
        assert commit.thread.run.names[-1] == "two"
        assert [type(entry) for entry in commit.record.entries] == [Continued]

    def test_a_cancel_before_recovery_keeps_recovery_away(self):
        driver = left(recover=False)
        assert type(driver.call(CallKind.CANCEL)) is Cancelled
        driver.recover = True
        driver.crash()
        driver.run()
        assert driver.runs("slow") == 1

    def test_a_cancel_of_another_run_leaves_it(self):
        driver = left(recover=False)
        driver.tell(None, CallKind.CANCEL, run_id="another")
        driver.run()
        assert driver.stored_status == "running"

    def test_amending_a_recovered_run_restarts_its_counts(self):
        driver = left(recover=True, bad=fails(1), slow=slow())
        assert driver.invoke(OTHER).state["log"] == ["bad", "slow"]

    def test_an_amendment_of_a_recovered_run_survives_a_crash(self):
        driver = left(recover=True)
        driver.checks = True
        driver.send_invoke(OTHER)
        driver.run(seconds=0.1)
        driver.crash()
        driver.run()
        assert driver.machine.state.values["n"] == 11

    def test_an_amendment_wakes_a_task_that_waits_for_its_next_attempt(self):
        retry = RetryPolicy(max_attempts=2, initial_delay=5.0, jitter=False)
        one = fan(bad=fails(2), slow=slow(), options={"bad": {"retry": retry}})
        driver = Driver(one)
        driver.send_invoke(INPUT)
        driver.run(seconds=0.5)
        driver.crash()
        driver.run(seconds=0.1)
        driver.checks = True
        assert type(driver.invoke(OTHER)) is Completed
        assert driver.now < 1_700_000_010

    def test_an_amendment_cancels_the_routers_of_the_step(self):
        asked = []
        one = graph("^>a", a=None, b=None, routers=[("a", lambda s: asked.append(s["n"]) or "b")])
        driver = Driver(one)
        driver.send_invoke(INPUT)
        driver.run(until=lambda: driver.entries_kept() == 1)
        driver.crash()
        driver.run(until=lambda: driver.machine.transition is not None)
        assert driver.invoke(OTHER).state["n"] == 11
        assert asked[-1] == 11

    def test_an_amendment_that_does_not_merge_is_refused(self):
        one = fan(a=wrote("a", x=1), b=wrote("b", x=2), slow=slow())
        driver = Driver(one)
        driver.send_invoke({})
        driver.run(seconds=0.5)
        driver.crash()
        driver.run(seconds=0.5)
        assert "wrote 'x'" in str(driver.fails(OTHER))

    def test_an_amendment_of_a_run_that_is_being_stopped_waits_behind_it(self):
        driver = left(recover=True)
        driver.send(CallKind.CANCEL)
        driver.advance()
        assert type(driver.invoke(OTHER)) is Cancelled

    def test_an_amendment_that_meets_a_failure_that_stops_the_run_gets_the_failure(self):
        nodes = {"bad": lambda _s: Later(1, ValueError("boom")), "slow": lambda _s: Later(9)}
        driver = Driver(fan(**nodes, options={"failure_policy": "panic"}))
        driver.send_invoke(INPUT)
        driver.run(seconds=0.5)
        driver.crash()
        driver.run(seconds=0.5)
        driver._move_time(float("inf"))
        driver.step()
        with pytest.raises(NodeFailed, match="boom"):
            driver.invoke(OTHER)

    def test_an_attempt_that_was_amended_while_it_ran_keeps_its_beginning(self):
        policy = RetryPolicy(max_attempts=2, initial_delay=1, jitter=False)
        ends = [{}, ValueError("boom"), {"x": 1}]
        begun = []

        def node(_state, ctx):
            begun.append(ctx.first_attempt_at)
            return Later(1, ends.pop(0))

        driver = Driver(fan(a=node, options={"a": {"retry": policy}}))
        driver.send_invoke(INPUT)
        driver.run(seconds=0.5)
        driver.crash()
        driver.run(seconds=0.5)
        driver.invoke(OTHER)
        assert begun[2] == begun[1]

    def test_a_drain_while_an_amendment_is_written_starts_nothing(self):
        driver = left(recover=True)
        call = driver.send_invoke(OTHER)
        driver.advance()
        driver.machine.drain()
        driver.run()
        assert type(driver.answer(call)) is Completed
        assert driver.runs("ok") == 1

    def test_a_run_is_taken_up_where_nobody_listens(self):
        driver = left(recover=False)
        driver.publishing = False
        driver.recover = True
        driver.crash()
        driver.run()
        assert (driver.stored_status, driver.events[-1].__class__.__name__) == (
            "complete",
            "TaskAcknowledged",
        )


class TestRestart:
    @pytest.mark.parametrize("make", [failed, waiting, cancelled, drained])
    def test_it_starts_a_run_on_the_committed_state(self, make):
        driver = make()
        number = driver.machine.state.step.number
        driver.send_invoke(OTHER, on_unfinished="restart", run_id="new")
        driver.run(seconds=0.5)
        assert (driver.row.run.number, driver.row.run.names) == (2, ("new",))
        assert driver.machine.state.values["n"] == 11
        assert driver.machine.state.step.number > number

    def test_pending_results_and_questions_are_dropped(self):
        driver = waiting()
        outcome = driver.invoke(OTHER, on_unfinished="restart")
        assert (driver.runs("ok"), driver.runs("ask")) == (2, 2)
        assert outcome.state["log"] == ["ok"]
        assert len({i.id for c in ("c0", "c1") for i in driver.replies[c].outcome.interrupts}) == 2

    def test_an_equal_input_of_a_new_call_restarts_too(self):
        driver = failed()
        driver.invoke(INPUT, on_unfinished="restart")
        assert driver.row.run.number == 2

    def test_a_restart_that_a_dead_process_made_is_joined_when_it_is_made_again(self):
        driver = failed(times=1)
        driver.send_invoke(OTHER, on_unfinished="restart")
        driver.run(until=lambda: driver.row.run.number == 2)
        driver.recover = False
        driver.crash()
        assert driver.invoke(OTHER, on_unfinished="restart").state["n"] == 11
        assert driver.row.run.number == 2

    def test_an_input_that_is_refused_leaves_the_old_run(self):
        driver = Driver(graph("^>a ^>ask", a=None, ask=asks()))
        driver.invoke({})
        call = driver.send_invoke({"x": 1}, on_unfinished="restart")
        call.input.writes = call.input.writes * 2
        driver.run()
        with pytest.raises(Exception, match="two values"):
            driver.answer(call)
        assert driver.resume("yes").state["log"] == ["a", "ask:yes"]

    def test_ids_of_the_new_run_are_new(self):
        driver = failed()
        driver.invoke(INPUT, on_unfinished="restart")
        ids = [attempt.task_id for attempt in driver.started if attempt.task.node == "ok"]
        assert len(set(ids)) == 2


class TestQuarantined:
    @pytest.mark.parametrize("how", ["invoke", "go_on", "resume"])
    def test_every_call_is_refused(self, how):
        driver = quarantined()
        calls = {
            "invoke": lambda: driver.invoke(OTHER),
            "go_on": driver.go_on,
            "resume": lambda: driver.resume("yes"),
        }
        with pytest.raises(Quarantined, match=r"died 3 times in step 1 \(nodes slow\)"):
            calls[how]()

    def test_a_release_goes_on(self):
        driver = quarantined()
        assert type(driver.call(CallKind.RELEASE)) is Completed

    def test_a_release_forgets_the_deaths(self):
        driver = quarantined()
        driver.send(CallKind.RELEASE)
        driver.run(seconds=0.1)
        driver.crash()
        driver.run()
        assert driver.stored_status == "complete"

    def test_a_release_of_a_thread_that_is_not_set_aside_tells_how_it_stands(self):
        assert type(complete().call(CallKind.RELEASE)) is Completed

    def test_after_a_release_an_equal_input_is_another_call(self):
        driver = quarantined()
        driver.send(CallKind.RELEASE)
        assert driver.invoke(INPUT).state["n"] == 2


@pytest.mark.parametrize("make", [complete, failed, waiting, cancelled, quarantined])
def test_a_thread_belongs_to_the_graph_that_began_it(make):
    with pytest.raises(WrongGraph, match="belongs to graph 'g'"):
        make().invoke(INPUT, graph="other")


def test_a_drained_outcome_says_so():
    driver = Driver(graph("^>slow slow>b", slow=slow(), b=None))
    call = driver.send_invoke({})
    driver.run(seconds=0.5)
    driver.machine.drain()
    driver.run()
    assert type(driver.answer(call)) is Drained
