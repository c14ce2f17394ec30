"""Guarded edges: predicates as part of a step's transition, and budgets that belong to the run."""

from __future__ import annotations

import pytest

from beamweaver.engine import CallKind
from beamweaver.errors import NodeFailed, RecursionLimit, RouterFailed, StepTimeout
from beamweaver.types import END, Command, Completed, Send
from tests.engine.driver import Crashed, Driver, goto
from tests.engine.graphs import asks, fails, fails_once, graph, sees, wrote


def yes(_state):
    return True


def no(_state):
    return False


def short(most):
    """A predicate: the log is shorter than that."""
    return lambda state: len(state["log"]) < most


def log(one, value=None, **options):
    return Driver(one).invoke(value or {}, **options).state["log"]


class TestWhichAreTaken:
    def test_one_whose_predicate_says_so(self):
        """graph 118."""
        one = graph(
            "^>a", a=None, b=None, c=None, guards=[("a>b", {"when": no}), ("a>c", {"when": yes})]
        )
        assert log(one) == ["a", "c"]

    def test_several_at_once(self):
        one = graph(
            "^>a", a=None, b=None, c=None, guards=[("a>c", {"when": yes}), ("a>b", {"when": yes})]
        )
        assert log(one) == ["a", "b", "c"]

    @pytest.mark.parametrize(("x", "taken"), [(1, "b"), (2, "c")])
    def test_the_default_if_no_other_is(self, x, taken):
        """graph 128."""
        one = graph(
            "^>a",
            a=None,
            b=None,
            c=None,
            guards=[("a>b", {"when": lambda s: s["x"] == 1}), ("a>c", {"default": True})],
        )
        assert log(one, {"x": x}) == ["a", taken]

    def test_predicates_see_the_merged_state_of_the_step(self):
        """graph 94."""
        one = graph(
            "^>a ^>b",
            a=None,
            b=None,
            c=None,
            guards=[("a>c", {"when": lambda s: s["log"] == ["a", "b"]})],
        )
        assert log(one) == ["a", "b", "c"]

    def test_one_to_the_end_ends_the_branch_and_yet_counts_as_taken(self):
        one = graph(
            "^>a", a=None, b=None, guards=[("a>$", {"when": yes}), ("a>b", {"default": True})]
        )
        assert log(one) == ["a"]

    def test_static_edges_hold_beside_them(self):
        one = graph("^>a a>b", a=None, b=None, c=None, guards=[("a>c", {"when": yes})])
        assert log(one) == ["a", "b", "c"]

    def test_routers_hold_beside_them(self):
        one = graph(
            "^>a",
            a=None,
            b=None,
            c=None,
            routers=[("a", lambda _s: "b")],
            guards=[("a>c", {"when": yes})],
        )
        assert log(one) == ["a", "b", "c"]

    def test_a_node_that_two_of_them_reach_runs_once(self):
        edges = [("a>b", {"when": yes}), ("a>b", {"when": yes}), ("c>b", {"when": yes})]
        assert log(graph("^>a ^>c", a=None, c=None, b=None, guards=edges)) == ["a", "c", "b"]

    def test_a_goto_replaces_them_and_nobody_is_asked(self):
        one = graph(
            "^>a",
            a=lambda _s: goto("c", log=["a"]),
            b=None,
            c=None,
            guards=[("a>b", {"when": yes, "max_runs": 1})],
        )
        driver = Driver(one)
        assert driver.invoke({}).state["log"] == ["a", "c"]
        assert driver.asked == []

    def test_a_source_of_a_join_may_have_them_too(self):
        one = graph(
            "^>a ^>b",
            a=None,
            b=None,
            c=None,
            d=None,
            joins=[("a b", "c")],
            guards=[("a>d", {"when": yes})],
        )
        assert log(one) == ["a", "b", "c", "d"]

    def test_a_guard_may_lead_to_a_source_of_a_join(self):
        """graph 121, graph 127."""
        one = graph(
            "^>a ^>b",
            a=None,
            b=None,
            c=None,
            d=None,
            joins=[("b c", "d")],
            guards=[("a>c", {"when": yes})],
        )
        assert log(one) == ["a", "b", "c", "d"]


class TestFromStart:
    def test_predicates_see_the_input(self):
        one = graph(
            "",
            a=None,
            b=None,
            guards=[("^>a", {"when": lambda s: s["x"] > 1}), ("^>b", {"default": True})],
        )
        assert log(one, {"x": 2}) == ["a"]
        assert log(one, {"x": 1}) == ["b"]

    def test_a_budget_alone_needs_no_step_of_its_own(self):
        one = graph("", a=None, guards=[("^>a", {"max_runs": 1})])
        driver = Driver(one)
        assert driver.invoke({}).state["log"] == ["a"]
        assert len(driver.commits) == 2

    def test_a_budget_of_the_entry_is_one_of_each_run(self):
        driver = Driver(graph("", a=None, guards=[("^>a", {"max_runs": 1})]))
        driver.invoke({})
        assert driver.invoke({}).state["log"] == ["a", "a"]

    def test_one_that_fails_keeps_the_input(self):
        bad = [True]
        one = graph(
            "", a=sees("x", "a"), guards=[("^>a", {"when": lambda _s: bad == [] or bad.pop() / 0})]
        )
        driver = Driver(one)
        assert isinstance(driver.fails({"x": 5}), RouterFailed)
        driver.crash()
        assert driver.go_on().state["log"] == ["a sees 5"]


class TestBudgets:
    def test_an_edge_is_taken_at_most_so_often_in_a_run(self):
        """graph 129."""
        one = graph("^>a", a=None, guards=[("a>a", {"max_runs": 2})])
        assert log(one) == ["a", "a", "a"]

    def test_with_a_predicate_only_takings_count(self):
        one = graph(
            "^>a",
            a=None,
            b=None,
            guards=[
                ("a>a", {"when": lambda s: len(s["log"]) % 2 == 1, "max_runs": 2}),
                ("a>b", {"default": True}),
                ("b>a", {"max_runs": 2}),
            ],
        )
        assert log(one) == ["a", "a", "b", "a", "b", "a", "b"]

    def test_a_spent_edge_is_not_asked(self):
        driver = Driver(graph("^>a", a=None, guards=[("a>a", {"when": yes, "max_runs": 2})]))
        assert driver.invoke({}).state["log"] == ["a", "a", "a"]
        assert driver.asked == ["a:a:0", "a:a:0"]

    def test_the_default_is_taken_when_the_budget_is_spent(self):
        one = graph(
            "^>a", a=None, b=None, guards=[("a>a", {"max_runs": 2}), ("a>b", {"default": True})]
        )
        assert log(one) == ["a", "a", "a", "b"]

    def test_several_tasks_of_one_node_share_it_in_their_order(self):
        one = graph(
            "^>s",
            s=lambda _s: [Send("w", {"x": i}) for i in range(3)],
            w=None,
            b=None,
            c=None,
            guards=[("w>b", {"when": yes, "max_runs": 2}), ("w>c", {"default": True})],
        )
        driver = Driver(one)
        assert driver.invoke({}).state["log"] == ["w", "w", "w", "b", "c"]
        assert driver.asked == ["w:b:0", "w:b:0"]

    def test_it_begins_anew_with_each_run(self):
        driver = Driver(graph("^>a", a=None, guards=[("a>a", {"max_runs": 1})]))
        driver.invoke({})
        driver.crash()
        assert driver.invoke({}).state["log"] == ["a"] * 4

    def test_it_begins_anew_with_a_restart(self):
        driver = Driver(graph("^>a", a=fails_at(2), guards=[("a>a", {"max_runs": 1})]))
        driver.fails({})
        outcome = driver.invoke({}, on_unfinished="restart")
        assert outcome.state["log"] == ["a", "a", "a"]

    def test_a_callers_continuation_keeps_it(self):
        driver = Driver(graph("^>a", a=fails_at(2), guards=[("a>a", {"max_runs": 2})]))
        driver.fails({})
        driver.crash()
        assert driver.go_on().state["log"] == ["a"] * 3
        assert driver.machine.state.spent == {}

    def test_it_is_kept_over_an_answer(self):
        one = graph(
            "^>a",
            a=None,
            ask=asks(),
            guards=[("a>ask", {"max_runs": 1}), ("ask>a", {"max_runs": 9})],
        )
        driver = Driver(one)
        driver.invoke({})
        driver.crash()
        assert driver.resume("yes").state["log"] == ["a", "ask:yes", "a"]

    @pytest.mark.parametrize("written", [False, True])
    def test_it_is_kept_whatever_commit_the_process_dies_at(self, written):
        one = graph("^>a", a=None, guards=[("a>a", {"when": yes, "max_runs": 3})])
        for commit in range(1, 8):
            driver = Driver(one, crash_at=commit, written=written)
            driver.checks = True
            driver.send_invoke({})
            with pytest.raises(Crashed):
                driver.run()
            driver.crash()
            driver.run()
            assert driver.machine.state.values["log"] == ["a"] * 4, commit

    def test_it_is_stored_with_the_step_and_gone_with_the_run(self):
        driver = Driver(graph("^>a", a=None, guards=[("a>a", {"max_runs": 2})]))
        driver.invoke({})
        spent = [commit.record.checkpoint.spent for commit in driver.commits]
        assert spent == [{}, {"a:a:0": 1}, {"a:a:0": 2}, {}]

    def test_a_loop_without_one_meets_the_recursion_limit(self):
        one = graph("^>a", a=None, guards=[("a>a", {"when": yes})])
        assert isinstance(Driver(one).fails({}, recursion_limit=5), RecursionLimit)


def fails_at(run, name="a"):
    """A node that fails in that run of its body."""
    runs = []

    def node(_state):
        runs.append(1)
        if len(runs) == run:
            raise ValueError("boom")
        return {"log": [name]}

    return node


class TestFailures:
    """A guard that fails never poisons a thread: results stay, and continuing asks again."""

    @pytest.mark.parametrize("said", [None, 1, "yes"])
    def test_an_answer_that_is_neither_fails_the_step(self, said):
        driver = Driver(graph("^>a", a=None, b=None, guards=[("a>b", {"when": lambda _s: said})]))
        error = driver.fails({})
        assert isinstance(error, RouterFailed)
        assert driver.stored_status == "failed"

    def test_continuing_asks_again_and_runs_nothing_else(self):
        bad = [True, True]

        def guard(_state):
            if bad:
                bad.pop()
                raise ValueError("lost")
            return True

        driver = Driver(
            graph(
                "^>a ^>c", a=None, c=None, b=None, guards=[("a>b", {"when": guard, "max_runs": 1})]
            )
        )
        driver.fails({})
        driver.crash()
        assert isinstance(driver.fails(None), RouterFailed)
        assert driver.go_on().state["log"] == ["a", "c", "b"]
        assert (driver.runs("a"), driver.runs("c")) == (1, 1)

    def test_an_amendment_may_mend_it(self):
        one = graph("^>a", a=None, b=None, guards=[("a>b", {"when": lambda s: s["x"] > 1})])
        driver = Driver(one)
        driver.fails({"x": "text"})
        assert driver.invoke({"x": 2}).state["log"] == ["a", "b"]

    def test_a_budget_is_not_spent_by_a_step_that_failed(self):
        bad = [True]
        one = graph(
            "^>a",
            a=None,
            b=None,
            guards=[
                ("a>a", {"max_runs": 1}),
                ("a>b", {"when": lambda _s: bad == [] or bad.pop() / 0}),
            ],
        )
        driver = Driver(one)
        driver.fails({})
        assert driver.go_on().state["log"] == ["a", "a", "b", "b"]

    def test_it_is_asked_only_when_the_results_of_its_step_are_acknowledged(self):
        driver = Driver(graph("^>a", a=None, b=None, guards=[("a>b", {"when": yes})]), crash_at=1)
        with pytest.raises(Crashed):
            driver.invoke({})
        assert driver.asked == []

    def test_a_crash_while_it_is_asked_asks_again(self):
        driver = Driver(
            graph("^>a", a=None, b=None, guards=[("a>b", {"when": yes, "max_runs": 1})])
        )
        driver.send_invoke({})
        driver.run(until=lambda: driver.asked != [])
        driver.crash()
        driver.run()
        assert driver.asked == ["a:b:0", "a:b:0"]
        assert driver.machine.state.values["log"] == ["a", "b"]
        assert driver.runs("a") == 1

    def test_a_step_timeout_ends_it(self):
        driver = Driver(graph("^>a", a=None, b=None, guards=[("a>b", {"when": yes})]))
        call = driver.send_invoke({}, step_timeout=5.0)
        driver.run(until=lambda: driver.machine.transition is not None)
        driver.actions.clear()
        driver.run()
        with pytest.raises(StepTimeout, match="routers and guards"):
            driver.answer(call)
        assert driver.go_on().state["log"] == ["a", "b"]

    def test_a_cancel_stops_it_and_the_run_goes_on_later(self):
        driver = Driver(graph("^>a", a=None, b=None, guards=[("a>b", {"when": yes})]))
        driver.send_invoke({})
        driver.run(until=lambda: driver.machine.transition is not None)
        driver.actions.clear()
        driver.send(CallKind.CANCEL)
        driver.run()
        assert driver.stored_status == "cancelled"
        assert driver.go_on().state["log"] == ["a", "b"]

    def test_a_drain_leaves_the_asking_to_the_next_process(self):
        driver = Driver(graph("^>a", a=None, b=None, guards=[("a>b", {"when": yes})]))
        driver.send_invoke({})
        driver.run(until=lambda: driver.log == ["a"])
        driver.machine.drain()
        driver.run()
        assert (driver.stored_status, driver.asked) == ("drained", [])
        driver.crash()
        driver.run()
        assert driver.machine.state.values["log"] == ["a", "b"]

    def test_a_failed_task_beside_them_comes_first(self):
        driver = Driver(
            graph("^>a ^>bad", a=None, bad=fails_once(), b=None, guards=[("a>b", {"when": yes})])
        )
        assert isinstance(driver.fails({}), NodeFailed)
        assert driver.asked == []
        assert driver.go_on().state["log"] == ["a", "bad", "b"]


def test_without_predicates_nobody_is_asked():
    """Budgets and defaults alone are part of the step's own commit."""
    driver = Driver(graph("^>a", a=None, guards=[("a>a", {"max_runs": 3})]))
    assert type(driver.invoke({})) is Completed
    assert len(driver.commits) == 5


def test_code_that_lost_a_guard_goes_on():
    driver = Driver(graph("^>a", a=fails(1, "a"), guards=[("a>a", {"max_runs": 3})]))
    driver.fails({})
    driver.graph = graph("^>a", a=wrote("a"))
    driver.crash()
    assert driver.go_on().state["log"] == ["a"]


def test_a_command_to_the_end_asks_nobody():
    one = graph("^>a", a=lambda _s: Command(goto=END), b=None, guards=[("a>b", {"when": yes})])
    driver = Driver(one)
    driver.invoke({})
    assert driver.asked == []
