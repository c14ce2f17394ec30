"""`defer=True`: a node that waits, stored, until the plan has no other task."""

from __future__ import annotations

import pytest

from beamweaver.errors import GraphChanged, NodeFailed, RecursionLimit
from beamweaver.limits import Limits
from beamweaver.types import Send
from tests.engine.driver import Crashed, Driver, goto
from tests.engine.graphs import asks, fails_once, graph, sees, wrote

LATE = {"d": {"defer": True}}


def diamond(**nodes):
    """`d` is reached by a short way and by a long one."""
    given = {"a": None, "b1": None, "b2": None, "b3": None, "d": None, **nodes}
    return graph("^>a ^>b1 a>d b1>b2 b2>b3 b3>d", options=LATE, **given)


def waiting(driver):
    return [task.node for task in driver.machine.state.deferred]


class TestWaiting:
    def test_it_runs_once_after_every_other_branch(self):
        """langgraph 37."""
        driver = Driver(diamond())
        assert driver.invoke({}).state["log"] == ["a", "b1", "b2", "b3", "d"]
        assert driver.runs("d") == 1

    def test_it_sees_what_all_others_gave(self):
        driver = Driver(diamond(d=sees("x", "d"), b3=wrote("b3", x=3)))
        assert driver.invoke({}).state["log"][-1] == "d sees 3"

    def test_while_it_waits_it_is_stored(self):
        driver = Driver(diamond())
        driver.invoke({})
        steps = [c.record.checkpoint for c in driver.commits if c.record.checkpoint is not None]
        stored = [[row.node for row in step.deferred] for step in steps]
        assert stored == [[], ["d"], ["d"], [], []]

    def test_with_nothing_else_to_do_it_starts_at_once(self):
        driver = Driver(graph("^>d", options=LATE, d=None))
        assert driver.invoke({}).state["log"] == ["d"]
        assert len(driver.commits) == 2

    def test_what_follows_it_runs(self):
        one = graph("^>a ^>d d>c a>b", options=LATE, a=None, b=None, d=None, c=None)
        assert Driver(one).invoke({}).state["log"] == ["a", "b", "d", "c"]

    def test_all_of_them_start_together_in_order_of_declaration(self):
        options = {"d": {"defer": True}, "e": {"defer": True}}
        one = graph("^>a a>e a>b b>d", options=options, d=None, e=None, a=None, b=None)
        driver = Driver(one)
        assert driver.invoke({}).state["log"] == ["a", "b", "d", "e"]
        assert driver.machine.state.step.number == 4

    def test_one_that_another_one_reaches_waits_for_the_next_turn(self):
        options = {"d": {"defer": True}, "e": {"defer": True}}
        one = graph("^>d ^>a d>e d>c", options=options, d=None, e=None, a=None, c=None)
        assert Driver(one).invoke({}).state["log"] == ["a", "d", "c", "e"]

    def test_it_may_run_again_in_a_loop(self):
        one = graph(
            "^>a ^>b a>d b>b2",
            options=LATE,
            a=None,
            b=None,
            b2=None,
            d=None,
            guards=[("d>a", {"max_runs": 2})],
        )
        log = Driver(one).invoke({}).state["log"]
        assert log == ["a", "b", "b2", "d", "a", "d", "a", "d"]

    def test_a_source_of_a_join_may_wait(self):
        one = graph(
            "^>a ^>d a>b", options=LATE, a=None, b=None, d=None, c=None, joins=[("a d", "c")]
        )
        assert Driver(one).invoke({}).state["log"] == ["a", "b", "d", "c"]

    def test_the_target_of_a_join_may_wait(self):
        one = graph(
            "^>a ^>b b>b2 b2>b3",
            options=LATE,
            a=None,
            b=None,
            b2=None,
            b3=None,
            d=None,
            joins=[("a b", "d")],
        )
        assert Driver(one).invoke({}).state["log"] == ["a", "b", "b2", "b3", "d"]

    def test_it_is_not_among_the_steps_that_count_while_it_waits(self):
        assert isinstance(Driver(diamond()).fails({}, recursion_limit=3), RecursionLimit)
        driver = Driver(diamond())
        assert driver.invoke({}, recursion_limit=4).state["log"][-1] == "d"

    def test_a_step_of_it_that_the_limit_forbids_runs_after_a_continuation(self):
        driver = Driver(diamond())
        driver.fails({}, recursion_limit=3)
        driver.crash()
        assert driver.go_on().state["log"][-1] == "d"


class TestWaysToReachIt:
    def test_a_goto(self):
        one = graph("^>a ^>b b>c", options=LATE, a=lambda _s: goto("d"), b=None, c=None, d=None)
        assert Driver(one).invoke({}).state["log"] == ["b", "c", "d"]

    def test_a_router(self):
        one = graph(
            "^>a a>b", options=LATE, a=None, b=None, d=None, routers=[("a", lambda _s: "d")]
        )
        assert Driver(one).invoke({}).state["log"] == ["a", "b", "d"]

    def test_a_guard(self):
        one = graph(
            "^>a a>b", options=LATE, a=None, b=None, d=None, guards=[("a>d", {"max_runs": 1})]
        )
        assert Driver(one).invoke({}).state["log"] == ["a", "b", "d"]

    def test_sends_each_count_and_keep_their_overlays(self):
        sends = lambda _s: [Send("d", {"x": 1}), Send("d", {"x": 1}), Send("d", {"x": 2})]
        one = graph("^>a a>b b>c", options=LATE, a=sends, b=None, c=None, d=sees("x", "d"))
        driver = Driver(one)
        outcome = driver.invoke({})
        assert outcome.state["log"] == ["b", "c", "d sees 1", "d sees 1", "d sees 2"]
        assert len({a.task_id for a in driver.started if a.task.node == "d"}) == 3

    def test_sends_of_several_steps_come_in_order_after_an_edge(self):
        one = graph(
            "^>a a>b b>d b>c",
            options=LATE,
            a=lambda _s: Send("d", {"x": "a"}),
            b=lambda _s: Send("d", {"x": "b"}),
            c=None,
            d=sees("x", "d"),
        )
        log = Driver(one).invoke({"x": 0}).state["log"]
        assert log == ["c", "d sees 0", "d sees a", "d sees b"]

    def test_a_send_of_a_router(self):
        one = graph(
            "",
            options=LATE,
            a=None,
            d=sees("x", "d"),
            routers=[("^", lambda _s: ["a", Send("d", {"x": 5})])],
        )
        assert Driver(one).invoke({}).state["log"] == ["a", "d sees 5"]

    def test_a_goto_of_a_callers_input(self):
        driver = Driver(graph("^>bad bad>b", options=LATE, bad=fails_once(), b=None, d=None))
        driver.fails({})
        assert driver.invoke(goto("d")).state["log"] == ["bad", "b", "d"]


class TestCrashes:
    @pytest.mark.parametrize("written", [False, True])
    @pytest.mark.parametrize("commit", range(5))
    def test_it_waits_on_whatever_commit_the_process_dies_at(self, commit, written):
        one = graph(
            "^>a a>d a>b b>c",
            options=LATE,
            a=lambda _s: [{"log": ["a"]}, Send("d", {"x": 7})],
            b=None,
            c=None,
            d=sees("x", "d"),
        )
        driver = Driver(one, crash_at=commit, written=written)
        driver.checks = True
        with pytest.raises(Crashed):
            driver.invoke({"x": 0}, run_id="R")
        driver.crash()
        outcome = driver.invoke({"x": 0}, run_id="R")
        log = ["a", "b", "c", "d sees 0", "d sees 7"]
        assert (outcome["log"] if isinstance(outcome, dict) else outcome.state["log"]) == log
        assert driver.faults == []

    def test_a_failure_of_others_keeps_it_waiting(self):
        driver = Driver(graph("^>a ^>d a>bad", options=LATE, a=None, d=None, bad=fails_once()))
        assert isinstance(driver.fails({}), NodeFailed)
        driver.crash()
        assert waiting(driver) == ["d"]
        assert driver.go_on().state["log"] == ["a", "bad", "d"]

    def test_a_question_of_others_keeps_it_waiting(self):
        driver = Driver(graph("^>ask ^>d ask>b", options=LATE, ask=asks(), d=None, b=None))
        driver.invoke({})
        driver.crash()
        assert driver.resume("yes").state["log"] == ["ask:yes", "b", "d"]

    def test_its_own_question_is_one_of_its_step(self):
        driver = Driver(graph("^>a ^>d", options=LATE, a=None, d=asks("d")))
        (asked,) = driver.invoke({}).interrupts
        assert asked.node == "d"
        assert driver.resume("yes").state["log"] == ["a", "d:yes"]

    def test_a_restart_drops_it(self):
        driver = Driver(graph("^>bad ^>d bad>b", options=LATE, bad=fails_once(), d=None, b=None))
        driver.fails({})
        assert waiting(driver) == ["d"]
        outcome = driver.invoke(goto("b"), on_unfinished="restart")
        assert outcome.state["log"] == ["b"]


class TestBounds:
    def test_more_tasks_wait_than_the_limit_allows(self):
        sends = lambda _s: [Send("d", {}) for _i in range(4)]
        one = graph("^>a a>b", options=LATE, a=sends, b=None, d=None)
        driver = Driver(one, limits=Limits(tasks_a_step=3))
        assert "limits.tasks_a_step is 3" in str(driver.fails({}))

    def test_code_that_lost_it_says_so(self):
        driver = Driver(graph("^>a ^>d a>bad", options=LATE, a=None, d=None, bad=fails_once()))
        driver.fails({})
        driver.graph = graph("^>a a>bad", a=None, bad=None)
        driver.crash()
        assert isinstance(driver.fails(None), GraphChanged)
        driver.graph = graph("^>a a>bad", a=None, bad=None, d=None)
        driver.crash()
        assert driver.go_on().state["log"] == ["a", "bad", "d"]
