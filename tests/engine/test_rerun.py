"""`rerun=`: finished results of an unfinished step that a caller drops, so that they run again."""

from __future__ import annotations

import pytest

from beamweaver.checkpoint.entries import Continued
from beamweaver.engine import CallKind
from beamweaver.errors import InvalidCall, InvalidUpdate, ThreadBusy, UnfinishedRun
from beamweaver.types import Completed, Interrupted, Send
from tests.engine.driver import Driver, Later, goto
from tests.engine.graphs import asks, fails, fails_once, fan, graph, wrote
from tests.engine.standings import complete, failed, left, new, quarantined, running


def counting(name, **update):
    """A node that logs how often it ran."""
    runs = []

    def node(_state):
        runs.append(1)
        return {"log": [f"{name}{len(runs)}"], **update}

    return node


def unfinished(**nodes):
    """A failed step with finished results."""
    driver = Driver(fan(**(nodes or {"a": counting("a"), "b": counting("b"), "bad": fails_once()})))
    driver.fails({})
    return driver


class TestDroppedResults:
    def test_named_results_run_again_and_others_do_not(self):
        assert unfinished().go_on(rerun=("a",)).state["log"] == ["a2", "b1", "bad"]

    def test_several_may_be_named(self):
        assert unfinished().go_on(rerun=("b", "a")).state["log"] == ["a2", "b2", "bad"]

    def test_a_task_that_runs_again_keeps_its_id(self):
        driver = unfinished()
        driver.go_on(rerun=("a",))
        ids = [attempt.task_id for attempt in driver.started if attempt.task.node == "a"]
        assert len(ids) == 2
        assert len(set(ids)) == 1

    def test_all_sends_of_a_node_are_meant_by_its_name(self):
        one = graph(
            "^>a", a=lambda _s: [Send("w", {"x": i}) for i in range(3)], w=worker(fails_at=2)
        )
        driver = Driver(one)
        driver.fails({})
        assert driver.go_on(rerun=("w",)).state["log"] == [0, 1, 2]
        assert driver.runs("w") == 6

    def test_one_task_is_meant_by_its_id(self):
        one = graph(
            "^>a", a=lambda _s: [Send("w", {"x": i}) for i in range(3)], w=worker(fails_at=2)
        )
        driver = Driver(one)
        driver.fails({})
        first = driver.machine.state.id_of(driver.machine.state.step.tasks[0])
        driver.go_on(rerun=(first,))
        assert driver.runs("w") == 5

    def test_one_that_runs_again_sees_what_its_siblings_gave(self):
        driver = unfinished(
            a=lambda s: {"log": [f"a{s['n']}"]}, b=wrote("b", n=5), bad=fails_once()
        )
        assert driver.go_on(rerun=("a",)).state["log"] == ["a5", "b", "bad"]

    def test_an_input_may_come_with_it(self):
        driver = unfinished(a=lambda s: {"log": [f"a{s['n']}"]}, bad=fails_once())
        assert driver.invoke({"n": 7}, rerun=("a",)).state["log"] == ["a7", "bad"]

    def test_goto_and_sends_of_a_dropped_result_are_dropped_too(self):
        gone = [goto("x1", log=["a"]), {"log": ["a2"]}]
        driver = Driver(graph("^>a ^>bad", a=lambda _s: gone.pop(0), bad=fails_once(), x1=None))
        driver.fails({})
        assert driver.go_on(rerun=("a",)).state["log"] == ["a2", "bad"]

    def test_answers_of_a_task_that_runs_again_are_replayed(self):
        driver = Driver(fan(ask=asks(), bad=fails(2)))
        driver.fails({})
        with pytest.raises(Exception, match="boom"):
            driver.resume("yes")
        assert driver.go_on(rerun=("ask",)).state["log"] == ["ask:yes", "bad"]

    def test_a_merge_that_failed_is_mended(self):
        """Semantics 6: `invoke(None, rerun=["a"])` drops named results."""
        first = [{"x": 1}, {"y": 1}]
        driver = Driver(fan(a=lambda _s: first.pop(0), b=wrote("b", x=2)))
        assert isinstance(driver.fails({}), InvalidUpdate)
        assert driver.go_on(rerun=("a",)).state == {"log": ["b"], "x": 2, "y": 1, "n": 0}
        assert driver.runs("b") == 1

    def test_beside_an_open_question_it_runs_and_the_question_stays(self):
        driver = Driver(fan(a=counting("a"), ask=asks()))
        (asked,) = driver.invoke({}).interrupts
        outcome = driver.go_on(rerun=("a",))
        assert type(outcome) is Interrupted
        assert outcome.interrupts == (asked,)
        assert outcome.state["log"] == ["a2"]

    def test_an_answer_may_come_with_it(self):
        driver = Driver(fan(a=counting("a"), ask=asks()))
        driver.invoke({})
        assert driver.resume("yes", rerun=("a",)).state["log"] == ["a2", "ask:yes"]

    def test_what_has_no_result_runs_anyway(self):
        assert unfinished().go_on(rerun=("bad",)).state["log"] == ["a1", "b1", "bad"]

    def test_it_is_durable_before_anything_runs(self):
        driver = unfinished(a=counting("a"), bad=fails_once(), slow=lambda _s: Later(1))
        driver.send(CallKind.CONTINUE, rerun=("a",))
        driver.run(until=lambda: driver.runs("a") == 2)
        assert driver.entries(Continued)[-1].rerun == (0,)
        driver.crash()
        driver.run()
        assert driver.stored_status == "complete"
        assert driver.machine.state.values["log"][1:] == ["bad"]
        assert driver.runs("a") == 3


def worker(fails_at):
    left_ = [1]

    def node(state):
        if state["x"] == fails_at and left_[0]:
            left_[0] -= 1
            raise ValueError("boom")
        return {"log": [state["x"]]}

    return node


class TestRefusals:
    @pytest.mark.parametrize("stand", [new, complete, failed], ids=lambda f: f.__name__)
    def test_a_name_that_is_no_task_of_an_unfinished_step(self, stand):
        driver = stand()
        before = len(driver.commits)
        with pytest.raises(InvalidCall, match="rerun names 'nowhere'"):
            driver.go_on(rerun=("nowhere",))
        assert len(driver.commits) == before

    @pytest.mark.parametrize("value", [None, {"n": 1}], ids=["without", "with an input"])
    def test_a_complete_thread_has_nothing_to_run_again(self, value):
        with pytest.raises(InvalidCall, match="its tasks: none"):
            complete().invoke(value, rerun=("a",))

    def test_the_entry_of_a_run_is_no_task(self):
        driver = Driver(graph("", a=None, routers=[("^", lambda _s: 1 / 0)]))
        driver.fails({})
        with pytest.raises(InvalidCall, match="its tasks: none"):
            driver.go_on(rerun=("__start__",))

    def test_results_that_cannot_be_seen_merged_change_nothing(self):
        driver = Driver(fan(a=wrote("a", x=1), b=wrote("b", x=2), c=counting("c")))
        driver.fails({})
        with pytest.raises(InvalidUpdate):
            driver.go_on(rerun=("c",))
        assert driver.stored_status == "failed"
        assert driver.machine.state.step.tasks[2].result is not None

    def test_reject_concerns_it(self):
        with pytest.raises(UnfinishedRun):
            failed().invoke({"n": 3}, rerun=("ok",), on_unfinished="reject")


class TestOtherStandings:
    def test_on_a_thread_that_runs_it_waits_its_turn(self):
        driver = Driver(fan(a=lambda _s: Later(1, {"log": ["a"]}), bad=fails_once()))
        driver.send_invoke({})
        driver.run(seconds=0.5)
        assert type(driver.go_on(rerun=("a",))) is Completed
        assert driver.runs("a") == 2

    def test_on_a_thread_that_runs_and_completes_there_is_nothing_to_run_again(self):
        driver = running()
        call = driver.send(CallKind.CONTINUE, rerun=("slow",))
        driver.run()
        with pytest.raises(InvalidCall):
            driver.answer(call)

    def test_on_a_thread_that_runs_it_may_be_rejected(self):
        with pytest.raises(ThreadBusy):
            running().go_on(rerun=("slow",), on_busy="reject")

    def test_on_a_run_that_a_dead_process_left(self):
        driver = left(recover=False, ok=counting("ok"), slow=lambda _s: Later(1))
        driver.go_on(rerun=("ok",))
        assert driver.machine.state.values["log"] == ["ok2"]
        assert driver.row.run.deaths == 1

    def test_a_quarantined_thread_stays_so(self):
        with pytest.raises(Exception, match="quarantined"):
            quarantined().go_on(rerun=("slow",))

    def test_a_told_one_waits_in_the_store(self):
        driver = Driver(fan(a=counting("a"), bad=fails_late()))
        driver.send_invoke({})
        driver.run(seconds=0.5)
        driver.tell(None, CallKind.CONTINUE, rerun=("a",))
        driver.run(until=lambda: driver.inbox != ())
        driver.crash()
        driver.run()
        assert driver.stored_status == "complete"
        assert driver.inbox == ()
        assert driver.machine.state.values["log"] == ["a2", "bad"]

    @pytest.mark.parametrize("written", [False, True])
    def test_a_call_that_is_handed_to_the_next_actor_drops_results_once(self, written):
        driver = unfinished()
        driver.send(CallKind.CONTINUE, rerun=("a",))
        driver.advance()
        if written:
            driver.step()
        driver.restart_actor()
        driver.run()
        assert driver.machine.state.values["log"] == ["a2", "b1", "bad"]


def fails_late():
    """A node whose first two runs fail after a second."""
    runs = []

    def node(_state):
        runs.append(1)
        return Later(1, ValueError("boom") if len(runs) < 3 else {"log": ["bad"]})

    return node
