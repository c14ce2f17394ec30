"""Continuation: what is done stays done, amendments merge where they came."""

from __future__ import annotations

from typing import Annotated, TypedDict

import pytest

from beamweaver.checkpoint.entries import Continued
from beamweaver.errors import InvalidUpdate, ReducerFailed
from beamweaver.graph import Graph
from beamweaver.types import START, Completed, Interrupted, Overwrite, Send
from tests.engine.driver import Driver, goto
from tests.engine.graphs import asks, fails, fails_once, fan, graph, sees, wrote


class TestFinishedSiblings:
    def test_the_successor_of_a_finished_sibling_runs_after_a_continuation(self):
        """reference A."""
        driver = Driver(graph("^>ok ^>bad ok>after", ok=None, bad=fails_once(), after=None))
        driver.fails({})
        assert driver.go_on().state["log"] == ["ok", "bad", "after"]
        assert driver.runs("ok") == 1

    def test_the_goto_of_a_finished_sibling_is_kept(self):
        """reference A2."""
        driver = Driver(
            graph("^>ok ^>bad", ok=lambda _s: goto("x1", log=["ok"]), bad=fails_once(), x1=None)
        )
        driver.fails({})
        driver.crash()
        assert driver.go_on().state["log"] == ["ok", "bad", "x1"]

    def test_the_successor_of_a_finished_sibling_runs_after_an_answer(self):
        """reference A3."""
        driver = Driver(graph("^>ok ^>ask ok>after", ok=None, ask=asks(), after=None))
        assert type(driver.invoke({})) is Interrupted
        assert driver.resume("yes").state["log"] == ["ok", "ask:yes", "after"]

    def test_the_sends_of_a_finished_sibling_are_kept(self):
        """reference Y."""
        one = graph(
            "^>fan ^>bad",
            fan=lambda _s: [{"log": ["fan"]}, Send("w", {"x": 1}), Send("w", {"x": 2})],
            bad=fails_once(),
            w=sees("x", "w"),
        )
        driver = Driver(one)
        driver.fails({})
        driver.crash()
        assert driver.go_on().state["log"] == ["fan", "bad", "w sees 1", "w sees 2"]

    @pytest.mark.parametrize("returned", [None, {}, goto("x1")])
    def test_a_finished_sibling_without_an_update_does_not_run_again(self, returned):
        """reference AP."""
        driver = Driver(graph("^>ok ^>bad", ok=lambda _s: returned, bad=fails_once(), x1=None))
        driver.fails({})
        driver.go_on()
        assert driver.runs("ok") == 1

    def test_results_merge_in_task_order_after_a_continuation(self):
        """reference AA."""
        driver = Driver(fan(a=fails_once("a"), b=None, c=None))
        driver.fails({})
        assert driver.go_on().state["log"] == ["a", "b", "c"]

    def test_a_continued_task_sees_the_results_of_its_siblings(self):
        """graph 78."""
        driver = Driver(fan(ok=wrote("ok", n=3), bad=fails_until(lambda s: s["n"] == 3)))
        driver.fails({"n": 0})
        assert driver.go_on().state["x"] == 3

    def test_a_recovered_task_sees_what_its_attempt_saw_before(self):
        driver = Driver(fan(ok=wrote("ok", n=3), slow=lambda s: {"x": s["n"]}))
        driver.send_invoke({"n": 1})
        driver.run(until=lambda: driver.entries_kept() == 1)
        driver.crash()
        driver.run()
        assert driver.machine.state.values["x"] == 1

    def test_a_recovered_continuation_sees_what_it_saw_before(self):
        """The user's document: the merged state and the new input update."""
        driver = Driver(fan(ok=wrote("ok", n=3), bad=fails_until(lambda s: s["n"] >= 3)))
        driver.fails({"n": 0})
        driver.send_invoke({"n": 10})
        driver.run(until=lambda: driver.runs("bad") == 2)
        driver.crash()
        driver.run()
        assert driver.machine.state.values["x"] == 13


class TestAmendments:
    def test_two_failed_calls_leave_their_inputs(self):
        """reference AJ."""
        need = fails_until(lambda s: {1, 2} <= {s.get("x"), s.get("y")})
        driver = Driver(fan(bad=need))
        driver.fails({})
        driver.fails({"x": 1})
        driver.crash()
        assert driver.invoke({"y": 2}).state["x"] == 1

    def test_reduced_inputs_of_failed_calls_add_up_in_order(self):
        """reference AJ."""
        driver = Driver(fan(bad=fails(3)))
        driver.fails({"log": ["in1"]})
        driver.fails({"log": ["in2"]})
        driver.fails({"log": ["in3"]})
        assert driver.go_on().state["log"] == ["in1", "in2", "in3", "bad"]

    def test_an_input_on_a_waiting_thread_is_kept_and_nothing_runs(self):
        """reference AJ2."""
        driver = Driver(fan(ask=asks()))
        first = driver.invoke({})
        second = driver.invoke({"x": "note"})
        assert second.interrupt.id == first.interrupt.id
        assert driver.runs("ask") == 1
        assert driver.resume("yes").state["x"] == "note"

    def test_an_amendment_merges_after_what_was_finished_and_before_what_was_not(self):
        driver = Driver(fan(a=fails_once("a"), b=None))
        driver.fails({"log": ["in"]})
        assert driver.invoke({"log": ["amended"]}).state["log"] == ["in", "b", "amended", "a"]

    def test_each_amendment_stands_where_it_came(self):
        one = fan(a=fails(2, "a"), b=fails_once("b"), c=None)
        driver = Driver(one)
        driver.fails({})
        driver.fails({"log": ["first"]})
        assert driver.invoke({"log": ["second"]}).state["log"] == ["c", "first", "b", "second", "a"]

    def test_segments_are_the_same_after_a_crash(self):
        driver = Driver(fan(a=fails(2, "a"), b=fails_once("b"), c=None))
        for value in ({}, {"log": ["first"]}):
            driver.fails(value)
            driver.crash()
        assert driver.invoke({"log": ["second"]}).state["log"] == ["c", "first", "b", "second", "a"]

    def test_the_state_of_a_failed_run_shows_results_and_amendments(self):
        driver = Driver(fan(a=fails(2, "a"), b=None))
        driver.fails({})
        driver.fails({"log": ["amended"]})
        assert driver.replies["c1"].outcome.state["log"] == ["b", "amended"]

    def test_an_amendment_wins_over_results_before_it(self):
        driver = Driver(fan(a=fails_once("a"), b=wrote("b", x="result")))
        driver.fails({})
        assert driver.invoke({"x": "amended"}).state["x"] == "amended"

    def test_a_result_after_an_amendment_wins_over_it(self):
        driver = Driver(fan(a=fails_once("a", x="result")))
        driver.fails({})
        assert driver.invoke({"x": "amended"}).state["x"] == "result"

    def test_an_empty_input_is_no_amendment(self):
        driver = Driver(fan(bad=fails_once()))
        driver.fails({"x": 1})
        driver.invoke({})
        assert driver.entries(Continued)[0].writes == ()

    def test_an_empty_input_is_not_the_runs_last_input(self):
        driver = Driver(fan(bad=fails(2)))
        driver.fails({"n": 1})
        driver.fails({})
        assert driver.invoke({"n": 1}).state["n"] == 1

    def test_an_amendment_may_add_tasks_for_the_next_step(self):
        driver = Driver(graph("^>bad bad>b", bad=fails_once(), b=None, c=sees("x", "c")))
        driver.fails({})
        outcome = driver.invoke(goto("c", Send("c", {"x": 9})))
        assert outcome.state["log"] == ["bad", "b", "c sees None", "c sees 9"]

    def test_tasks_of_an_amendment_survive_a_crash(self):
        driver = Driver(graph("^>ask", ask=asks(), c=sees("x", "c")))
        driver.invoke({})
        driver.invoke(goto("c", Send("c", {"x": 9})))
        driver.crash()
        assert driver.resume("y").state["log"] == ["ask:y", "c sees None", "c sees 9"]

    def test_tasks_of_two_amendments_have_ids_of_their_own(self):
        driver = Driver(graph("^>ask", ask=asks(), c=None))
        driver.invoke({})
        driver.invoke(goto(Send("c", {})))
        driver.invoke(goto(Send("c", {"x": 1})))
        driver.resume("y")
        assert len({attempt.task_id for attempt in driver.started}) == 3

    def test_an_overwrite_in_an_amendment_replaces_what_came_before_it(self):
        driver = Driver(fan(a=fails_once("a"), b=None))
        driver.fails({"log": ["in"]})
        assert driver.invoke({"log": Overwrite(["new"])}).state["log"] == ["new", "a"]


class TestMergesThatFail:
    def test_a_conflict_ends_by_an_amendment_that_overwrites(self):
        driver = Driver(fan(a=wrote("a", x=1), b=wrote("b", x=2)))
        driver.fails({})
        outcome = driver.invoke({"x": Overwrite(3)})
        assert (outcome.state["x"], driver.runs("a"), driver.runs("b")) == (3, 1, 1)

    def test_a_conflict_stays_one_without_it(self):
        driver = Driver(fan(a=wrote("a", x=1), b=wrote("b", x=2)))
        driver.fails({})
        assert isinstance(driver.fails(None), InvalidUpdate)
        assert driver.stored_status == "failed"

    def test_a_continuation_whose_view_does_not_merge_is_refused_and_changes_nothing(self):
        """graph 52."""
        one = fan(a=wrote("a", x=1), b=wrote("b", x=2), bad=fails_once())
        driver = Driver(one)
        driver.fails({})
        before = len(driver.commits)
        assert isinstance(driver.fails(None), InvalidUpdate)
        assert len(driver.commits) == before
        assert driver.invoke({"x": Overwrite(3)}).state["x"] == 3

    def test_an_answer_whose_view_does_not_merge_leaves_the_question_open(self):
        driver = Driver(fan(a=wrote("a", x=1), b=wrote("b", x=2), ask=asks()))
        driver.invoke({})
        with pytest.raises(InvalidUpdate):
            driver.resume("yes")
        driver.invoke({"x": Overwrite(3)})
        assert driver.resume("yes").state["x"] == 3

    def test_the_committed_state_is_shown_where_results_do_not_merge(self):
        driver = Driver(fan(a=wrote("a", x=1), b=wrote("b", x=2)))
        driver.fails({"x": 0})
        assert driver.replies["c0"].outcome.state["x"] == 0

    def test_a_reducer_that_fails_in_a_recovered_view_fails_the_run_and_not_the_thread(self):
        bad = [False]

        def picky(old, new):
            if bad[0]:
                raise ValueError("no")
            return old + new

        class Picky(TypedDict):
            n: Annotated[int, picky]

        left = [1]

        def failing(_state):
            if left.pop() if left else 0:
                raise ValueError("boom")

        one = Graph(Picky, name="g").add_node("ok", lambda _s: {"n": 1}).add_node("bad", failing)
        driver = Driver(one.add_edge(START, "ok").add_edge(START, "bad").compile())
        driver.fails({})
        driver.send_invoke({"n": 5})
        driver.run(until=lambda: driver.runs("bad") == 2)
        bad[0] = True
        driver.crash()
        driver.run()
        assert driver.stored_status == "failed"
        assert isinstance(driver.fails(None), ReducerFailed)
        bad[0] = False
        driver.crash()
        assert driver.go_on().state["n"] == 6


class TestRecords:
    def test_a_continuation_is_durable_before_any_code_runs(self):
        driver = Driver(fan(bad=fails_once()))
        driver.fails({})
        driver.crash_at, driver.written = len(driver.commits), False
        with pytest.raises(BaseException, match="before commit"):
            driver.invoke({"x": 1})
        assert driver.runs("bad") == 1

    def test_joining_a_run_that_a_dead_process_left_is_no_continuation(self):
        driver = Driver(fan(a=None))
        driver.send_invoke({})
        driver.run(until=lambda: driver.log == ["a"])
        driver.crash()
        driver.invoke({})
        assert driver.entries(Continued) == []

    def test_a_commit_clears_the_records_that_it_supersedes(self):
        driver = Driver(graph("^>a ^>b a>c", a=None, b=None, c=None))
        driver.invoke({})
        entries = [c.record.seq for c in driver.commits if c.record.checkpoint is None]
        assert driver.commits[-2].clears == tuple(entries) != ()

    def test_a_continued_run_completes(self):
        driver = Driver(fan(bad=fails_once()))
        driver.fails({})
        assert type(driver.go_on()) is Completed


def fails_until(ready):
    """A node that fails until `ready(state)`, and then writes what it sees of `n`, if anything, to `x`."""

    def node(state):
        if not ready(state):
            raise ValueError("not ready")
        return {"log": ["late"], **({"x": state["n"]} if state["n"] else {})}

    return node
