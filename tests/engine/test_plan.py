"""What comes next: edges, joins, routers, Sends, Commands."""

from __future__ import annotations

import operator
from typing import Annotated, TypedDict

import pytest

from beamweaver.errors import GraphChanged, RouterFailed, UnknownTarget
from beamweaver.types import END, Command, Completed, Send
from tests.engine.driver import Crashed, Driver, goto
from tests.engine.graphs import fails_once, fan, graph, sees, wrote


class TestEdges:
    def test_a_shared_successor_of_two_nodes_runs_once(self):
        driver = Driver(graph("^>a ^>b a>c b>c", a=None, b=None, c=None))
        assert driver.invoke({}).state["log"] == ["a", "b", "c"]

    def test_a_node_may_lead_to_several(self):
        driver = Driver(graph("^>a a>b a>c", a=None, b=None, c=None))
        assert driver.invoke({}).state["log"] == ["a", "b", "c"]

    def test_next_tasks_come_in_the_order_of_declaration(self):
        driver = Driver(graph("^>z z>y z>x", y=None, x=None, z=None))
        assert driver.invoke({}).state["log"] == ["z", "y", "x"]


class TestJoins:
    def test_it_waits_for_sources_over_several_steps(self):
        """reference B."""
        one = graph("^>a ^>b1 b1>b2", a=None, b1=None, b2=None, c=None, joins=[("a b2", "c")])
        outcome = Driver(one).invoke({})
        assert outcome.state["log"] == ["a", "b1", "b2", "c"]
        assert outcome.warnings == ()

    def test_what_arrived_survives_a_crash(self):
        """reference B3."""
        one = graph("^>a ^>b1 b1>b2", a=None, b1=None, b2=None, c=None, joins=[("a b2", "c")])
        driver = Driver(one)
        driver.invoke_and_crash({}, when=lambda: driver.log == ["a", "b1", "b2"])
        assert driver.machine.state.values["log"] == ["a", "b1", "b2", "c"]

    def test_it_fires_again_in_a_loop(self):
        one = graph(
            "^>a ^>b",
            a=wrote("a", x=1),
            b=None,
            c=lambda s: Command(
                update={"log": ["c"]}, goto=["a", "b"] if len(s["log"]) < 5 else []
            ),
            joins=[("a b", "c")],
        )
        assert Driver(one).invoke({}).state["log"] == ["a", "b", "c", "a", "b", "c"]

    def test_a_second_arrival_is_absorbed(self):
        one = graph(
            "^>a",
            a=None,
            b=None,
            c=None,
            routers=[("a", lambda s: "a" if len(s["log"]) < 4 else "b")],
            joins=[("a b", "c")],
        )
        assert Driver(one).invoke({}).state["log"] == ["a", "a", "a", "a", "b", "c"]

    def test_a_source_that_ends_with_a_goto_has_not_arrived(self):
        one = graph("^>a ^>b", a=lambda _s: goto(log=["a"]), b=None, c=None, joins=[("a b", "c")])
        outcome = Driver(one).invoke({})
        assert outcome.state["log"] == ["a", "b"]

    def test_a_half_armed_join_is_warned_about_at_the_runs_end(self):
        one = graph("^>a", a=None, b=None, c=None, joins=[("a b", "c")])
        (warning,) = Driver(one).invoke({}).warnings
        assert "the join ['a', 'b'] -> 'c' half armed: only a arrived" in warning

    def test_a_half_armed_join_ends_with_its_run(self):
        one = graph(
            "", a=None, b=None, c=None, joins=[("a b", "c")], routers=[("^", lambda s: s["x"])]
        )
        driver = Driver(one)
        driver.invoke({"x": "a"})
        outcome = driver.invoke({"x": "b"})
        assert outcome.state["log"] == ["a", "b"]

    def test_a_warning_belongs_to_its_run(self):
        def node(state):
            if state.get("x"):
                raise ValueError("boom")

        driver = Driver(graph("^>a", a=node, b=None, c=None, joins=[("a b", "c")]))
        driver.invoke({})
        driver.fails({"x": 1})
        assert driver.replies["c1"].outcome.warnings == ()

    def test_a_warning_is_in_the_store(self):
        driver = Driver(graph("^>a", a=None, b=None, c=None, joins=[("a b", "c")]))
        warnings = driver.invoke({}).warnings
        assert len(warnings) == 1
        driver.crash()
        assert driver.go_on().warnings == warnings
        driver.invoke(goto("b"))
        assert "only b arrived" in driver.go_on().warnings[0]

    def test_nothing_of_it_is_left_when_its_run_has_ended(self):
        driver = Driver(graph("^>a", a=None, b=None, c=None, joins=[("a b", "c")]))
        driver.invoke({})
        assert driver.commits[-1].record.checkpoint.joins == {}

    def test_a_join_and_an_edge_into_one_node_in_one_step_are_one_task(self):
        one = graph("^>a ^>b a>c", a=None, b=None, c=None, joins=[("a b", "c")])
        assert Driver(one).invoke({}).state["log"] == ["a", "b", "c"]

    def test_tasks_of_sends_arrive_too(self):
        one = graph(
            "^>a",
            a=lambda _s: [Send("b", {}), {"log": ["a"]}],
            b=None,
            c=None,
            joins=[("a b", "c")],
        )
        assert Driver(one).invoke({}).state["log"] == ["a", "b", "c"]

    def test_a_node_may_be_in_two_joins(self):
        one = graph(
            "^>a ^>b",
            a=None,
            b=None,
            c=None,
            d=None,
            joins=[("a b", "c"), ("b c", "d")],
        )
        assert Driver(one).invoke({}).state["log"] == ["a", "b", "c", "d"]


class TestJoinsInLoops:
    def test_it_fires_once_for_each_round_of_its_sources(self):
        one = graph(
            "^>s s>a s>b b>b2",
            s=None,
            a=None,
            b=None,
            b2=None,
            c=None,
            joins=[("a b2", "c")],
            guards=[("c>s", {"max_runs": 2})],
        )
        round_ = ["s", "a", "b", "b2", "c"]
        assert Driver(one).invoke({}).state["log"] == round_ * 3

    def test_a_source_that_is_ahead_by_a_round_counts_once(self):
        """A second arrival is absorbed: `a` goes round three times while `b` is on its way."""
        one = graph(
            "^>a ^>b b>b2 b2>b3",
            a=None,
            b=None,
            b2=None,
            b3=None,
            c=None,
            joins=[("a b3", "c")],
            guards=[("a>a", {"max_runs": 2})],
        )
        outcome = Driver(one).invoke({})
        assert outcome.state["log"] == ["a", "b", "a", "b2", "a", "b3", "c"]
        assert outcome.warnings == ()

    def test_what_fires_empties_it_though_a_source_goes_on(self):
        one = graph(
            "^>a ^>b",
            a=None,
            b=None,
            c=None,
            joins=[("a b", "c")],
            guards=[("a>a", {"max_runs": 1})],
        )
        outcome = Driver(one).invoke({})
        assert outcome.state["log"] == ["a", "b", "a", "c"]
        assert "only a arrived" in outcome.warnings[0]

    @pytest.mark.parametrize("written", [False, True])
    def test_a_crash_at_any_commit_changes_nothing(self, written):
        one = graph(
            "^>s s>a s>b b>b2",
            s=None,
            a=None,
            b=None,
            b2=None,
            c=None,
            joins=[("a b2", "c")],
            guards=[("c>s", {"max_runs": 1})],
        )
        clean = Driver(one)
        clean.invoke({})
        for commit in range(1, len(clean.commits)):
            driver = Driver(one, crash_at=commit, written=written)
            driver.checks = True
            driver.send_invoke({})
            with pytest.raises(Crashed):
                driver.run()
            driver.crash()
            driver.run()
            assert driver.machine.state.values == clean.machine.state.values, commit
            assert driver.faults == []


class TestRouters:
    def test_only_the_chosen_branch_runs(self):
        """graph 31."""
        one = graph("^>a", a=None, l=None, r=None, routers=[("a", lambda _s: "l")])
        assert Driver(one).invoke({}).state["log"] == ["a", "l"]

    def test_from_start_it_sees_the_input(self):
        """graph 122."""
        one = graph("", l=None, r=None, routers=[("^", lambda s: "l" if s["x"] else "r")])
        assert Driver(one).invoke({"x": 0}).state["log"] == ["r"]

    def test_it_sees_the_merged_state(self):
        """graph 26."""
        one = graph(
            "^>a ^>b",
            a=None,
            b=None,
            done=None,
            routers=[("b", lambda s: "done" if s["log"] == ["a", "b"] else END)],
        )
        assert Driver(one).invoke({}).state["log"] == ["a", "b", "done"]

    def test_it_may_use_names_for_its_targets(self):
        one = graph("^>a", a=None, b=None, routers=[("a", lambda _s: "yes", {"yes": "b"})])
        assert Driver(one).invoke({}).state["log"] == ["a", "b"]

    def test_it_may_end_a_branch(self):
        one = graph("^>a", a=None, b=None, routers=[("a", lambda _s: END)])
        assert Driver(one).invoke({}).state["log"] == ["a"]

    def test_static_edges_hold_beside_it(self):
        one = graph("^>a a>b", a=None, b=None, c=None, routers=[("a", lambda _s: "c")])
        assert Driver(one).invoke({}).state["log"] == ["a", "b", "c"]

    def test_several_of_one_node_all_choose(self):
        one = graph(
            "^>a",
            a=None,
            b=None,
            c=None,
            routers=[("a", lambda _s: "c"), ("a", lambda _s: ["b", "c"])],
        )
        assert Driver(one).invoke({}).state["log"] == ["a", "b", "c"]

    def test_it_may_send(self):
        one = graph(
            "", w=sees("x", "w"), routers=[("^", lambda _s: [Send("w", {"x": 1}), Send("w", {})])]
        )
        assert Driver(one).invoke({"x": 0}).state["log"] == ["w sees 1", "w sees 0"]

    def test_it_starts_only_when_the_results_of_its_step_are_acknowledged(self):
        asked = []
        one = graph("^>a", a=None, routers=[("a", lambda _s: asked.append(1) or END)])
        driver = Driver(one, crash_at=1)
        with pytest.raises(BaseException, match="after commit 1"):
            driver.invoke({})
        assert asked == []

    @pytest.mark.parametrize(
        "router", [lambda _s: "b", lambda _s: 1 / 0], ids=["chooses", "raises"]
    )
    def test_it_may_end_while_a_message_is_on_its_way_to_the_store(self, router):
        driver = Driver(graph("^>a", a=None, b=None, routers=[("a", router)]))
        driver.send_invoke({})
        driver.run(until=lambda: driver.machine.transition is not None)
        driver.tell({"n": 1})
        driver.advance()
        assert [what for what, _token in driver.actions] == ["route", "write"]
        driver.run()
        assert len(driver.inbox) == (driver.status == "failed")

    def test_one_that_raises_keeps_the_results_of_its_step(self):
        """reference G."""
        bad = [True]

        def router(_state):
            if bad:
                bad.pop()
                raise ValueError("lost")
            return END

        driver = Driver(graph("^>a", a=None, routers=[("a", router)]))
        error = driver.fails({})
        assert isinstance(error, RouterFailed)
        assert error.node == "a"
        assert driver.go_on().state["log"] == ["a"]
        assert driver.runs("a") == 1

    def test_one_from_start_that_raises_keeps_the_input(self):
        bad = [True]

        def router(_state):
            if bad:
                bad.pop()
                raise ValueError("lost")
            return "a"

        driver = Driver(graph("", a=sees("x", "a"), routers=[("^", router)]))
        driver.fails({"x": 5})
        driver.crash()
        assert driver.go_on().state["log"] == ["a sees 5"]

    def test_one_that_names_an_unknown_node_is_continuable(self):
        """reference AF/AG."""
        target = ["nowhere"]
        one = graph("^>a", a=None, b=None, routers=[("a", lambda _s: target[0])])
        driver = Driver(one)
        assert isinstance(driver.fails({}), UnknownTarget)
        target[0] = "b"
        assert driver.go_on().state["log"] == ["a", "b"]

    def test_one_whose_entry_fails_counts_no_step(self):
        one = graph("", a=None, b=None, routers=[("^", lambda _s: "a"), ("a", lambda _s: "b")])
        assert type(Driver(one).invoke({}, recursion_limit=2)) is Completed


class TestSends:
    def test_two_equal_ones_are_two_tasks(self):
        """reference C."""
        one = graph("^>a", a=lambda _s: [Send("w", {"x": 1}), Send("w", {"x": 1})], w=None)
        driver = Driver(one)
        assert driver.invoke({}).state["log"] == ["w", "w"]
        assert len({attempt.task_id for attempt in driver.started}) == 3

    def test_an_overlay_is_seen_and_not_stored(self):
        one = graph("^>a", a=lambda _s: Send("w", {"x": 7}), w=sees("x", "w"))
        outcome = Driver(one).invoke({"x": 1})
        assert outcome.state["log"] == ["w sees 7"]
        assert outcome.state["x"] == 1

    def test_an_overlay_knows_no_reducer(self):
        one = graph("^>a", a=lambda _s: Send("w", {"n": 7}), w=lambda s: {"x": s["n"]})
        outcome = Driver(one).invoke({"n": 1})
        assert (outcome.state["x"], outcome.state["n"]) == (7, 1)

    def test_an_overlay_survives_a_crash(self):
        """graph 18."""
        one = graph("^>a", a=lambda _s: Send("w", {"x": {"deep": (1, 2)}}), w=sees("x", "w"))
        driver = Driver(one)
        driver.invoke_and_crash({}, when=lambda: "w" in driver.log)
        assert driver.machine.state.values["log"] == ["w sees {'deep': (1, 2)}"]

    def test_a_task_that_was_sent_may_send(self):
        def worker(state):
            return [
                {"log": [state["x"]]},
                *([Send("w", {"x": state["x"] - 1})] if state["x"] else []),
            ]

        one = graph("^>a", a=lambda _s: Send("w", {"x": 3}), w=worker)
        driver = Driver(one)
        assert driver.invoke({}).state["log"] == [3, 2, 1, 0]
        assert len({attempt.task_id for attempt in driver.started}) == 5

    def test_edges_hold_beside_them(self):
        one = graph("^>a a>b", a=lambda _s: [{"log": ["a"]}, Send("w", {})], b=None, w=None)
        assert Driver(one).invoke({}).state["log"] == ["a", "b", "w"]


class TestCommands:
    def test_a_goto_replaces_the_static_edges_of_its_own_node_only(self):
        """reference AD."""
        one = graph(
            "^>a ^>b a>c b>d", a=lambda _s: goto("x1", log=["a"]), b=None, c=None, d=None, x1=None
        )
        assert Driver(one).invoke({}).state["log"] == ["a", "b", "d", "x1"]

    def test_a_goto_replaces_the_routers_of_its_node(self):
        one = graph("^>a", a=lambda _s: goto("b"), b=None, c=None, routers=[("a", lambda _s: "c")])
        assert Driver(one).invoke({}).state["log"] == ["b"]

    def test_a_goto_to_the_end_goes_nowhere(self):
        one = graph("^>a a>b", a=lambda _s: goto(END, log=["a"]), b=None)
        assert Driver(one).invoke({}).state["log"] == ["a"]

    def test_without_a_goto_the_edges_hold(self):
        one = graph("^>a a>b", a=lambda _s: Command(update={"log": ["a"]}), b=None)
        assert Driver(one).invoke({}).state["log"] == ["a", "b"]

    def test_a_goto_may_be_a_send(self):
        """graph 27."""
        one = graph("^>a a>b", a=lambda _s: goto(Send("w", {"x": 1})), b=None, w=sees("x", "w"))
        assert Driver(one).invoke({}).state["log"] == ["w sees 1"]

    def test_a_goto_to_an_unknown_node_fails_its_node(self):
        """reference AF/AG."""
        driver = Driver(graph("^>a ^>b", a=lambda _s: goto("nowhere"), b=None))
        assert isinstance(driver.fails({}), UnknownTarget)
        assert driver.machine.state.step.tasks[1].result is not None

    def test_an_input_with_a_goto_goes_there_in_place_of_the_entry(self):
        one = graph("^>a", a=None, b=None)
        assert Driver(one).invoke(goto("b", log=["in"])).state["log"] == ["in", "b"]

    def test_an_input_that_goes_nowhere_completes_its_run_at_once(self):
        driver = Driver(graph("^>a", a=None))
        outcome = driver.invoke(goto(END, log=["in"]), run_id="R")
        assert (type(outcome), outcome.state["log"], len(driver.commits)) == (Completed, ["in"], 1)
        driver.invoke({})
        assert driver.invoke({}, run_id="R")["log"] == ["in"]


class TestGraphsThatLostANode:
    """Code changes between two processes."""

    def test_a_planned_task_of_a_lost_node_waits_for_the_right_code(self):
        driver = Driver(graph("^>a a>b", a=None, b=None))
        driver.send_invoke({})
        driver.run(until=lambda: driver.runs("b"))
        whole, driver.graph = driver.graph, graph("^>a", a=None)
        driver.crash()
        driver.run()
        assert driver.stored_status == "running"
        assert "node 'b' is gone" in str(driver.fails(None))
        driver.graph = whole
        driver.crash()
        assert driver.go_on().state["log"] == ["a", "b"]

    def test_a_kept_goto_to_a_lost_node_is_refused(self):
        driver = Driver(graph("^>a ^>bad", a=lambda _s: goto("c"), bad=fails_once(), c=None))
        driver.fails({})
        driver.graph = graph("^>a ^>bad", a=None, bad=None)
        driver.crash()
        assert isinstance(driver.fails(None), GraphChanged)

    def test_a_kept_send_to_a_lost_node_is_refused(self):
        driver = Driver(graph("^>a ^>bad", a=lambda _s: Send("c", {}), bad=fails_once(), c=None))
        driver.fails({})
        driver.graph = graph("^>a ^>bad", a=None, bad=None)
        driver.crash()
        assert isinstance(driver.fails(None), GraphChanged)

    def test_a_kept_write_of_a_lost_key_is_refused(self):
        class Narrow(TypedDict):
            log: Annotated[list[str], operator.add]

        driver = Driver(fan(a=wrote("a", x=1), bad=fails_once()))
        driver.fails({})
        driver.graph = fan(schema=Narrow, a=None, bad=None)
        driver.crash()
        assert isinstance(driver.fails(None), GraphChanged)

    def test_a_new_run_may_take_the_place_of_a_step_that_is_lost(self):
        driver = Driver(graph("^>a ^>bad", a=lambda _s: goto("c"), bad=fails_once(), c=None))
        driver.fails({})
        driver.graph = graph("^>b", b=None)
        driver.crash()
        assert isinstance(driver.fails(None), GraphChanged)
        assert driver.invoke({"x": 1}, on_unfinished="restart").state["log"] == ["b"]
        assert driver.invoke({"x": 2}).state["log"] == ["b", "b"]
