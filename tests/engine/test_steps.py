"""Supersteps: the order of tasks and of their merge, conflicts, reducers, limits."""

from __future__ import annotations

import operator
from typing import Annotated, TypedDict

import pytest

from beamweaver.engine import Call, CallKind, Machine, RunState
from beamweaver.errors import InvalidUpdate, RecursionLimit, ReducerFailed
from beamweaver.graph import Graph, append
from beamweaver.limits import Limits
from beamweaver.types import END, START, Completed, Overwrite, RetryPolicy, Send
from tests.engine.driver import Driver, Later
from tests.engine.graphs import fan, graph, line, sees, wrote


class TestSteps:
    def test_nodes_run_along_their_edges(self):
        driver = Driver(line("a", "b", "c"))
        outcome = driver.invoke({"log": ["in"]})
        assert outcome.state["log"] == ["in", "a", "b", "c"]

    def test_an_entry_that_leads_nowhere_completes_the_run(self):
        one = graph("", a=None, routers=[("^", lambda _s: END)])
        driver = Driver(one)
        outcome = driver.invoke({"x": 1})
        assert (type(outcome), outcome.state["x"], driver.log) == (Completed, 1, [])

    def test_an_input_writes_through_reducers(self):
        assert Driver(line("a")).invoke({"n": 3}).state["n"] == 3

    def test_tasks_of_a_step_start_from_the_state_at_its_beginning(self):
        driver = Driver(fan(a=wrote("a", x=1), b=sees("x")))
        assert driver.invoke({"x": 0}).state["log"] == ["a", "see sees 0"]

    def test_the_next_step_sees_the_merged_state(self):
        driver = Driver(graph("^>a a>b", a=wrote("a", x=1), b=sees("x")))
        assert driver.invoke({"x": 0}).state["log"] == ["a", "see sees 1"]

    def test_a_change_of_the_top_level_of_a_view_is_not_seen_by_others(self):
        def thief(state):
            state["x"] = "stolen"

        driver = Driver(fan(a=thief, b=sees("x")))
        assert driver.invoke({"x": 0}).state["log"] == ["see sees 0"]

    def test_each_step_is_one_commit(self):
        driver = Driver(line("a", "b", "c"))
        driver.invoke({"x": 1})
        assert [c.record.checkpoint.step for c in driver.commits] == [0, 1, 2, 3]

    def test_a_commit_has_only_what_changed(self):
        driver = Driver(graph("^>a a>b", a=wrote("a", x=1), b=lambda _s: {"y": 2}))
        driver.invoke({"log": ["in"]})
        written = [set(c.record.checkpoint.writes) for c in driver.commits]
        assert written == [{"log"}, {"log", "x"}, {"y"}]

    def test_a_successor_starts_only_when_its_step_is_acknowledged(self):
        driver = Driver(line("a", "b"))
        driver.send(CallKind.INVOKE, {"x": 1})
        driver.run(until=lambda: driver.log == ["a"] and driver.machine.in_flight)
        driver.advance()
        assert driver.log == ["a"]


class TestOrder:
    @pytest.mark.parametrize("seed", range(20))
    def test_results_merge_in_task_order_whatever_the_order_of_completion(self, seed):
        driver = Driver(fan(c=None, a=None, b=None), seed=seed)
        assert driver.invoke({}).state["log"] == ["c", "a", "b"], f"seed {seed}"

    def test_a_slow_first_task_still_merges_first(self):
        driver = Driver(fan(slow=lambda _s: Later(5, {"log": ["slow"]}), quick=None))
        assert driver.invoke({}).state["log"] == ["slow", "quick"]

    @pytest.mark.parametrize("seed", range(10))
    def test_sends_merge_after_pulls_by_source_and_index(self, seed):
        def router(_state):
            return [Send("w", {"x": 2}), "last", Send("w", {"x": 1}), "first"]

        one = graph(
            "^>a ^>b",
            a=lambda _s: [{"log": ["a"]}, Send("w", {"x": "a0"}), Send("w", {"x": "a1"})],
            b=None,
            first=None,
            w=lambda s: {"log": [f"w{s['x']}"]},
            last=None,
            routers=[("b", router)],
        )
        log = Driver(one, seed=seed).invoke({}).state["log"]
        assert log == ["a", "b", "first", "last", "wa0", "wa1", "w2", "w1"], f"seed {seed}"

    def test_at_most_max_concurrency_tasks_run_at_once(self):
        running, most = [0], [0]

        def node(_state):
            running[0] += 1
            most[0] = max(most[0], running[0])
            return Later(1, {"n": 1})

        nodes = {f"n{i}": node for i in range(7)}
        driver = Driver(fan(**nodes, options={"max_concurrency": 3}))
        driver.send(CallKind.INVOKE, {})
        while driver.machine.state.status != "complete":
            driver.advance()
            assert len(driver.machine.running) <= 3
            if driver.actions:
                running[0] -= driver.actions[0][0] == "end"
                driver.step()
            else:
                driver._move_time(float("inf"))
        assert most[0] == 3

    def test_a_task_starts_while_results_of_its_step_are_on_their_way_to_the_store(self):
        driver = Driver(fan(a=None, b=lambda _s: Later(9), c=None, options={"max_concurrency": 2}))
        driver.send(CallKind.INVOKE, {})
        driver.run(until=lambda: len(driver.commits) == 1)
        driver.run(until=lambda: driver.actions and driver.actions[0][0] == "write")
        driver.advance()
        assert driver.log == ["a", "b", "c"]

    def test_tasks_beyond_the_limit_of_node_actors_wait(self):
        driver = Driver(fan(a=lambda _s: Later(1), b=None), limits=Limits(sync_nodes_a_thread=1))
        driver.send(CallKind.INVOKE, {})
        driver.run(seconds=0.5)
        assert driver.log == ["a"]


def asynchronous(seconds, name):
    async def node(_state):
        return Later(seconds, {"log": [name]})

    return node


class TestAsyncNodes:
    def test_they_merge_in_task_order_among_sync_ones(self):
        driver = Driver(fan(a=asynchronous(2, "a"), b=None, c=asynchronous(1, "c"), d=None))
        assert driver.invoke({}).state["log"] == ["a", "b", "c", "d"]

    def test_the_limit_of_sync_nodes_holds_for_sync_nodes(self):
        slow = lambda _s: Later(5)
        nodes = {"a": asynchronous(5, "a"), "b": slow, "c": asynchronous(5, "c"), "d": slow}
        driver = Driver(fan(**nodes), limits=Limits(sync_nodes_a_thread=1))
        driver.send_invoke({})
        driver.run(seconds=1)
        assert sorted(driver.log) == ["a", "b", "c"]
        driver.run()
        assert driver.log[-1] == "d"
        assert driver.status == "complete"

    def test_the_limit_of_all_tasks_holds_for_both(self):
        nodes = {"a": asynchronous(5, "a"), "b": lambda _s: Later(5), "c": asynchronous(5, "c")}
        driver = Driver(fan(**nodes, options={"max_concurrency": 2}))
        driver.send_invoke({})
        driver.run(seconds=1)
        assert len(driver.log) == 2

    def test_one_starts_while_results_of_its_step_are_on_their_way_to_the_store(self):
        nodes = {"a": asynchronous(1, "a"), "b": asynchronous(9, "b"), "c": asynchronous(1, "c")}
        driver = Driver(fan(**nodes, options={"max_concurrency": 2}))
        driver.send_invoke({})
        driver.run(until=lambda: len(driver.commits) == 1 and driver.machine.in_flight)
        assert driver.log == ["a", "b", "c"]

    def test_one_that_was_cut_does_not_count_any_more(self):
        driver = Driver(fan(a=asynchronous(5, "a"), b=lambda _s: Later(1, {"log": ["b"]})))
        driver.send_invoke({})
        driver.run(seconds=0.5)
        driver.machine.cut()
        driver.run(seconds=0)
        assert driver.machine._async_running == 0
        driver.crash()
        driver.run()
        assert driver.machine.state.values["log"] == ["a", "b"]

    def test_one_is_tried_again(self):
        ends = [ValueError("boom"), {"log": ["a"]}]

        async def node(_state):
            return Later(1, ends.pop(0))

        options = {"a": {"retry": RetryPolicy(initial_delay=1)}}
        assert Driver(fan(a=node, options=options)).invoke({}).state["log"] == ["a"]


class TestConflicts:
    def test_two_nodes_that_write_one_last_value_are_named(self):
        """graph 11."""
        error = Driver(fan(a=wrote("a", x=1), b=wrote("b", x=2))).fails({})
        assert isinstance(error, InvalidUpdate)
        assert "'a' and 'b' wrote 'x'" in str(error)

    def test_two_tasks_of_one_node_that_write_one_last_value_are_an_error(self):
        """graph 59."""
        sends = graph("^>a", a=lambda _s: [Send("w", {}), Send("w", {})], w=wrote("w", x=1))
        assert "2 tasks of 'w' wrote 'x'" in str(Driver(sends).fails({}))

    def test_one_task_that_writes_a_last_value_twice_is_an_error(self):
        error = Driver(fan(a=lambda _s: [{"x": 1}, {"x": 2}])).fails({})
        assert "node 'a' gave two values for 'x'" in str(error)

    def test_a_conflict_leaves_the_thread_readable_and_its_results_kept(self):
        """peers 33."""
        driver = Driver(fan(a=wrote("a", x=1), b=wrote("b", x=2)))
        driver.fails({"x": 0})
        assert driver.stored_status == "failed"
        assert driver.entries_kept() == 3

    def test_an_input_that_conflicts_with_itself_is_no_new_thread(self):
        driver = Driver(line("a"))
        call = Call("c", CallKind.INVOKE, "g", "r", input=driver.prepared({"x": 1}))
        call.input.writes = call.input.writes * 2
        driver.machine.call(call)
        driver.run()
        assert isinstance(driver.replies["c"].error, InvalidUpdate)
        assert driver.status is None


class TestOverwrite:
    @pytest.mark.parametrize("first", [True, False])
    def test_it_bypasses_the_reducer_and_drops_plain_writes_in_either_order(self, first):
        over, plain = (lambda _s: {"n": Overwrite(100)}), (lambda _s: {"n": 1})
        nodes = {"a": over, "b": plain} if first else {"a": plain, "b": over}
        assert Driver(fan(**nodes)).invoke({"n": 5}).state["n"] == 100

    def test_it_may_meet_a_plain_write_of_a_last_value(self):
        driver = Driver(fan(a=lambda _s: {"x": Overwrite(1)}, b=lambda _s: {"x": 2}))
        assert driver.invoke({}).state["x"] == 1

    @pytest.mark.parametrize("key", ["n", "x"])
    def test_two_in_one_step_are_an_error(self, key):
        node = lambda _s: {key: Overwrite(1)}
        assert "one Overwrite a step" in str(Driver(fan(a=node, b=node)).fails({}))

    def test_one_task_may_reset_a_channel_and_no_more(self):
        driver = Driver(fan(a=lambda _s: [{"n": Overwrite(7)}, {"n": 1}]))
        assert driver.invoke({"n": 5}).state["n"] == 7

    def test_of_a_single_task_it_replaces_the_value(self):
        assert Driver(fan(a=lambda _s: {"n": Overwrite(7)})).invoke({"n": 5}).state["n"] == 7

    def test_of_none_is_kept(self):
        driver = Driver(fan(a=lambda _s: {"x": Overwrite(None)}))
        assert driver.invoke({"x": 1}).state["x"] is None


class TestReducers:
    def test_a_channel_starts_at_its_types_empty_value(self):
        driver = Driver(fan(a=lambda s: {"x": [s["log"], s["n"]]}))
        assert driver.invoke({}).state["x"] == [[], 0]

    def test_an_empty_value_is_not_stored(self):
        driver = Driver(fan(a=None))
        driver.invoke({})
        assert driver.commits[0].record.checkpoint.writes == {}

    def test_a_last_value_is_absent_until_it_is_written(self):
        driver = Driver(fan(a=lambda s: {"y": "x" in s}))
        assert driver.invoke({}).state["y"] is False

    def test_append_takes_its_first_element_into_a_list(self):
        class Items(TypedDict):
            items: Annotated[list[int], append]

        one = Graph(Items, name="g").add_node("a", lambda _s: {"items": 7}).add_edge(START, "a")
        assert Driver(one.compile()).invoke({}).state["items"] == [7]

    def test_without_a_type_the_first_write_is_the_value(self):
        one = Graph(name="g").add_reducer("t", operator.add).add_node("a", lambda _s: {"t": 2})
        driver = Driver(one.add_edge(START, "a").compile())
        assert driver.invoke({"t": 1}).state["t"] == 3

    def test_any_key_of_a_graph_without_schema_keeps_its_last_value(self):
        one = Graph(name="g").add_node("a", lambda _s: {"k": 2}).add_node("b", lambda _s: {"j": 3})
        driver = Driver(one.add_edge(START, "a").add_edge(START, "b").compile())
        assert driver.invoke({"k": 1}).state == {"k": 2, "j": 3}

    def test_one_that_raises_fails_the_run_and_keeps_the_results(self):
        """reference F."""
        bad = [True]

        def picky(old, new):
            if bad[0]:
                raise ValueError("no")
            return old + new

        class Picky(TypedDict):
            total: Annotated[int, picky]

        one = Graph(Picky, name="g").add_node("a", lambda _s: {"total": 1})
        driver = Driver(one.add_edge(START, "a").compile())
        error = driver.fails({})
        assert isinstance(error, ReducerFailed)
        assert "reducer of 'total' raised ValueError: no" in str(error)
        bad[0] = False
        assert driver.go_on().state["total"] == 1
        assert driver.runs("a") == 1

    def test_one_that_raises_on_an_input_refuses_the_input(self):
        def picky(old, new):
            raise ValueError("no")

        class Picky(TypedDict):
            total: Annotated[int, picky]

        one = Graph(Picky, name="g").add_node("a", lambda _s: None).add_edge(START, "a").compile()
        driver = Driver(one)
        assert "updates of the input" in str(driver.fails({"total": 1}))
        assert driver.status is None

    def test_one_that_makes_what_cannot_be_stored_is_at_fault(self):
        class Odd(TypedDict):
            odd: Annotated[object, lambda _old, _new: object()]

        one = Graph(Odd, name="g").add_node("a", lambda _s: {"odd": 1}).add_edge(START, "a")
        driver = Driver(one.compile())
        error = driver.fails({"odd": 0})
        assert isinstance(error, ReducerFailed)
        assert "the value that the reducer of 'odd' made cannot be stored" in str(error)
        assert driver.stored_status == "failed"


class TestLimits:
    def test_the_limit_stops_a_run_before_its_next_step(self):
        """graph 2."""
        driver = Driver(line("a", "b"))
        error = driver.fails({}, recursion_limit=1)
        assert isinstance(error, RecursionLimit)
        assert (error.limit, driver.log) == (1, ["a"])

    def test_a_run_that_ends_with_its_last_allowed_step_completes(self):
        assert type(Driver(line("a", "b")).invoke({}, recursion_limit=2)) is Completed

    def test_a_run_at_its_limit_goes_on_with_new_counts(self):
        driver = Driver(line("a", "b", "c", "d", recursion_limit=2))
        driver.fails({})
        assert driver.go_on().state["log"] == ["a", "b", "c", "d"]

    def test_the_limit_counts_from_the_last_call(self):
        """reference R."""
        driver = Driver(line(*"abcdef", recursion_limit=3))
        driver.fails({})
        assert driver.log == ["a", "b", "c"]
        driver.go_on()
        assert driver.log == list("abcdef")

    def test_recovery_resets_no_count(self):
        driver = Driver(line(*"abcdef", recursion_limit=4))
        driver.send(CallKind.INVOKE, {})
        driver.run(until=lambda: driver.log == ["a", "b", "c"])
        driver.crash()
        driver.run()
        assert driver.status == "failed"
        assert driver.log == ["a", "b", "c", "c", "d"]

    def test_a_continuation_without_a_limit_has_the_graphs_own(self):
        driver = Driver(line(*"abcd", recursion_limit=2))
        driver.fails({}, recursion_limit=1)
        driver.fails(None)
        assert driver.log == ["a", "b", "c"]

    def test_the_limit_of_a_call_survives_a_crash(self):
        driver = Driver(line(*"abcd"))
        driver.send(CallKind.INVOKE, {}, recursion_limit=2)
        driver.run(until=lambda: driver.log == ["a"])
        driver.crash()
        driver.run()
        assert driver.log == ["a", "a", "b"]

    def test_more_tasks_than_a_step_may_have_fail_the_merge(self):
        many = graph("^>a", a=lambda _s: [Send("w", {})] * 4, w=None)
        driver = Driver(many, limits=Limits(tasks_a_step=3))
        assert "limits.tasks_a_step is 3" in str(driver.fails({}))
        assert driver.stored_status == "failed"

    def test_more_entry_tasks_than_a_step_may_have_refuse_the_input(self):
        driver = Driver(fan(a=None, b=None), limits=Limits(tasks_a_step=1))
        assert "would have 2 tasks" in str(driver.fails({}))
        assert driver.status is None

    def test_a_checkpoint_names_all_versions_again_after_that_many(self):
        driver = Driver(line(*"abcdefg"), limits=Limits(full_versions_every=3))
        driver.invoke({"x": 1})
        full = [c.record.checkpoint.versions is not None for c in driver.commits]
        assert full == [True, False, False, True, False, False, True, False]


def test_an_event_that_nobody_listens_to_is_not_made():
    driver = Driver(graph("^>a ^>b b>c", a=None, b=None, c=None), publishing=False)
    driver.invoke({})
    assert driver.events == []


def test_a_machine_without_a_thread_is_idle():
    driver = Driver(line("a"))
    assert Machine(driver.graph, driver.env, RunState("other")).idle


def test_a_machine_is_idle_when_its_run_has_stopped():
    driver = Driver(line("a"))
    driver.send(CallKind.INVOKE, {})
    driver.advance()
    busy = driver.machine.idle
    driver.run()
    assert (busy, driver.machine.idle) == (False, True)


def test_the_state_of_an_outcome_is_a_copy():
    driver = Driver(line("a"))
    driver.invoke({"x": 1}).state["x"] = 2
    assert driver.go_on().state["x"] == 1
