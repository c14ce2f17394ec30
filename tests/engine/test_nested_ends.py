"""Graphs in tasks: room for what runs in them, their timers, how they are stopped, what cannot be stored."""

from __future__ import annotations

import operator
from typing import Annotated, Any, TypedDict

import pytest

from beamweaver.checkpoint.entries import Finished, Inner
from beamweaver.checkpoint.records import RunOptions, decode_record
from beamweaver.engine import CallKind
from beamweaver.errors import NodeFailed, NodeTimeout
from beamweaver.graph import Ephemeral, Graph, Untracked
from beamweaver.limits import Limits
from beamweaver.types import PARENT, START, Command, Interrupted, RetryPolicy, TimeoutPolicy
from tests.engine.driver import HANGS, Driver, Later
from tests.engine.graphs import asks, fails, fan, graph, line, wrote
from tests.engine.modes import ASYNC

EXIT = RunOptions(durability="exit")


def takes(seconds, name="x"):
    return lambda _s: Later(seconds, {"log": [name]})


def side_by_side(**nodes):
    return graph(" ".join(f"^>{name}" for name in nodes), name="child", **nodes)


class TestRoom:
    def test_what_runs_inside_counts_against_the_limits_around_it(self):
        """At most `max_concurrency` functions run at once, at all depths together."""
        child = side_by_side(**{name: takes(2, name) for name in "abc"})
        driver = Driver(fan(c=child, d=takes(2, "d"), options={"max_concurrency": 2}))
        driver.send_invoke({})
        driver.run(seconds=1)
        assert len(driver.log) == 2
        driver.run(seconds=2)
        assert len(driver.log) == 4
        driver.run()
        assert sorted(driver.values["log"]) == ["a", "b", "c", "d"]

    def test_sync_functions_of_all_graphs_share_the_workers_of_the_thread(self):
        child = side_by_side(a=takes(2, "a"), b=takes(2, "b"))
        driver = Driver(fan(c=child, d=child), limits=Limits(sync_nodes_a_thread=1))
        sent = driver.send_invoke({})
        driver.run(seconds=7)
        assert sent.id not in driver.replies
        assert len(driver.log) == 4
        driver.run()
        assert driver.answer(sent).state["log"] == ["a", "b"] * 2

    def test_a_graph_that_is_cut_off_makes_room_for_those_that_wait(self):
        """It waited for room itself, which must not keep another one from being waked."""
        child = side_by_side(a=takes(5, "a"), b=takes(5, "b"))
        one = fan(c=child, d=child, options={"c": {"timeout": 2}})
        driver = Driver(one, limits=Limits(sync_nodes_a_thread=1))
        sent = driver.send_invoke({})
        driver.run()
        assert isinstance(driver.replies[sent.id].error, NodeTimeout)
        assert driver.log == ["a", "a", "b"]

    def test_it_makes_room_for_as_many_as_it_had(self):
        busy = side_by_side(a=takes(9, "a"), b=takes(9, "b"))
        other = side_by_side(x=takes(1))
        options = {"max_concurrency": 3, "c": {"timeout": 2}}
        one = fan(c=busy, d=other, e=other, options=options)
        driver = Driver(one)
        sent = driver.send_invoke({})
        driver.run(seconds=2.5)
        assert driver.log == ["a", "b", "x", "x"]
        driver.run()
        assert isinstance(driver.replies[sent.id].error, NodeTimeout)

    def test_who_has_no_room_by_a_limit_of_its_own_keeps_nobody_from_being_waked(self):
        two = side_by_side(a=takes(9, "a"), b=takes(9, "b"))
        inner = graph("^>d ^>e", name="inner", d=two, e=side_by_side(e=takes(1, "e")),
                      options={"max_concurrency": 2})  # fmt: skip
        other = side_by_side(x=takes(1, "x"), y=takes(1, "y"))
        driver = Driver(fan(c=inner, f=other, options={"max_concurrency": 3}))
        driver.send_invoke({})
        driver.run(seconds=1.5)
        assert driver.log == ["a", "b", "x", "y"]
        driver.run()
        assert driver.status == "complete"


class TestStopping:
    def nested(self, *, depth=1, **nodes):
        child = graph("^>x x>y", name="child", **{"x": takes(2), "y": takes(2, "y"), **nodes})
        for level in range(depth):
            child = graph("^>c", name=f"top{level}", c=child)
        driver = Driver(child)
        driver.checks = True
        driver.sent = driver.send_invoke({"log": ["in"]})
        driver.run(seconds=1)
        return driver

    @pytest.mark.parametrize("depth", [1, 2])
    def test_in_a_drain_what_runs_inside_ends_and_nothing_more_starts(self, depth):
        driver = self.nested(depth=depth)
        driver.machine.drain()
        driver.run()
        assert (driver.status, driver.log[-1]) == ("drained", "x")
        driver.recover = True
        driver.crash()
        driver.run()
        assert driver.values["log"] == ["in", "x", "y"]
        assert driver.runs("x") == 1

    @pytest.mark.parametrize("depth", [1, 2])
    def test_a_cancel_waits_for_the_bodies_inside(self, depth):
        driver = self.nested(depth=depth, x=lambda _s: HANGS)
        cancel = driver.send(CallKind.CANCEL)
        driver.advance()
        assert cancel.id not in driver.replies
        assert [attempt.node.name for attempt in driver.killed] == ["x"]
        driver.run()
        assert driver.answer(cancel).thread_id == "t"
        assert driver.status == "cancelled"

    def test_a_cut_stops_graphs_and_functions_alike(self):
        child = side_by_side(x=lambda _s: HANGS)
        driver = Driver(fan(c=child, f=lambda _s: HANGS))
        driver.send_invoke({})
        driver.run(seconds=1)
        driver.machine.cut()
        driver.run()
        assert driver.status == "drained"
        assert (driver.machine.leaves, driver.machine.sync_leaves) == (0, 0)

    def test_who_falls_asleep_inside_in_a_drain_is_left_asleep(self):
        def sleeper(_state, ctx):
            ctx.sleep(50)
            return {"log": ["slept"]}

        child = side_by_side(x=takes(2), z=sleeper)
        driver = Driver(graph("^>c", c=child))
        driver.send_invoke({})
        driver.run(seconds=1)
        driver.machine.drain()
        driver.run()
        assert driver.status == "sleeping"
        driver.recover = True
        driver.crash()
        driver.run()
        assert driver.values["log"] == ["x", "slept"]
        assert driver.runs("x") == 1

    def test_what_a_graph_has_that_is_cut_off_is_kept(self):
        """Its time is up while one of its tasks has ended and another one runs."""
        child = side_by_side(x=takes(1), y=lambda _s: HANGS)
        retry = RetryPolicy(max_attempts=2, retry_on="any", initial_delay=1, jitter=False)
        driver = Driver(fan(c=child, options={"c": {"timeout": 3, "retry": retry}}))
        error = driver.fails({}, options=EXIT)
        assert isinstance(error, NodeTimeout)
        assert driver.runs("x") == 1
        assert driver.runs("y") == 2


class TestTimers:
    def test_progress_inside_is_a_sign_of_life(self):
        """`TimeoutPolicy(idle=…)` of a node that is a graph."""
        child = graph("^>a a>b b>d", name="child", a=takes(1.5, "a"), b=takes(1.5, "b"),
                      d=takes(1.5, "d"))  # fmt: skip
        driver = Driver(fan(c=child, options={"c": {"timeout": TimeoutPolicy(idle=2)}}))
        assert driver.invoke({}).state["log"] == ["a", "b", "d"]

    @pytest.mark.parametrize("depth", [0, 1, 2])
    def test_a_timer_inside_is_known_to_the_outermost_machine(self, depth):
        child = fan(x=lambda _s: HANGS, options={"x": {"timeout": 5}})
        for level in range(depth):
            child = graph("^>c", name=f"top{level}", c=child)
        driver = Driver(child)
        driver.send_invoke({})
        driver.run(seconds=1)
        (attempt,) = driver.started
        assert list(driver.timers) == [attempt.owner.outer_key(attempt.timer)]

    def test_a_time_limit_inside_holds(self):
        child = fan(x=lambda _s: HANGS, options={"x": {"timeout": 5}})
        driver = Driver(graph("^>c", c=child))
        error = driver.fails({})
        assert isinstance(error, NodeTimeout)
        assert error.node == "x"

    def test_a_timer_of_a_graph_that_has_ended_says_nothing(self):
        child = fan(x=takes(1), options={"x": {"timeout": 5}})
        driver = Driver(graph("^>c c>d", c=child, d=takes(9, "d")))
        sent = driver.send_invoke({})
        driver.run(seconds=0.5)
        (late,) = driver.timers
        driver.run(seconds=1)
        driver.machine.fired(late)
        driver.run()
        assert driver.answer(sent).state["log"] == ["x", "d"]


class TestRunningAhead:
    """`durability=` of graphs in tasks."""

    @pytest.mark.parametrize("publishing", [True, False])
    def test_async_steps_inside_go_on_whether_anybody_listens_or_not(self, publishing):
        child = line("a", "b", "d")
        driver = Driver(graph("^>c", name="top", c=child), publishing=publishing)
        assert driver.invoke({}, options=ASYNC).state["log"] == ["a", "b", "d"]
        assert bool(driver.events) is publishing

    def test_keys_that_are_cleared_inside_do_not_count_as_written_where_steps_are_left_out(self):
        """Nor does what the graph began with: only what nodes wrote comes back."""

        class Signals(TypedDict, total=False):
            log: Annotated[list[Any], operator.add]
            x: Annotated[Any, Ephemeral]
            y: Any

        child = graph("^>a a>b b>d", schema=Signals, name="child", a=lambda _s: {"log": ["a"]},
                      b=lambda s: {"log": [s.get("x")]}, d=lambda _s: {"y": 2})  # fmt: skip
        states = []
        for options in (None, EXIT):
            driver = Driver(graph("^>c c>bad", name="top", c=child, bad=fails(1)))
            driver.fails({"x": "signal", "y": 1}, options=options)
            driver.crash()
            states.append(driver.go_on().state)
        assert states[0] == states[1]
        assert (states[0]["x"], states[0]["y"]) == ("signal", 2)

    def test_more_ends_than_may_wait_for_a_record_are_made_durable(self):
        """Each step that is left out may hold the end of a graph, whose waiters hear when it is stored."""
        child = graph("^>x", name="child", x=None)
        one = graph("^>c", name="top", c=child, guards=[("c>c", {"max_runs": 70})])
        driver = Driver(one)
        driver.invoke({}, options=EXIT, recursion_limit=200)
        assert driver.values["log"] == ["x"] * 71
        assert len(driver.commits) == 3

    def test_a_record_of_a_graph_that_was_cut_off_meanwhile_changes_nothing(self):
        child = graph("^>x x>y", name="child", x=takes(1), y=takes(1, "y"))
        driver = Driver(fan(c=child, options={"c": {"timeout": 5}}))
        sent = driver.send_invoke({})
        driver.run(seconds=0.5)
        (timer,) = driver.timers
        driver.run(until=lambda: driver.machine.in_flight)
        driver.machine.fired(timer)
        driver.run()
        assert isinstance(driver.replies[sent.id].error, NodeTimeout)
        assert driver.runs("y") == 0
        assert driver.go_on().state["log"] == ["x", "y"]

    def test_results_inside_that_found_no_room_are_history_before_their_step_is(self):
        """A commit of a step brings what its graphs gave, not what happened in them."""
        child = side_by_side(x=takes(1, "x"), y=takes(2, "y"), z=takes(3, "z"))
        top = graph("^>a a>c", name="top", a=None, c=child)
        driver = Driver(top, limits=Limits(ahead_commits=1))
        sent = driver.send_invoke({}, options=ASYNC)
        driver.run(until=lambda: driver.commits)
        while True:  # all but what is on its way to the store
            driver.advance()
            now = [action for action in driver.actions if action[0] != "write"]
            driver.actions = [action for action in driver.actions if action[0] == "write"]
            for what, token in now:
                getattr(driver, f"_do_{what}")(token)
            if not now and not driver._move_time(float("inf")):
                break
        driver.run()
        assert driver.answer(sent).state["log"] == ["a", "x", "y", "z"]
        records = [decode_record(entry.data) for entry in driver.entries(Inner)]
        done = [e.task for record in records for e in record.entries if type(e) is Finished]
        assert done == [0, 1], "the last one is that of the graph itself"


class TestBreakpoints:
    def test_those_of_a_graph_in_a_task_stop_the_run_and_are_passed_once(self):
        """It may stand at one before any of its nodes has run."""
        child = graph("^>x x>y", name="child", x=None, y=None, options={"interrupt_before": ["x"]})
        driver = Driver(graph("^>c", name="top", c=child))
        driver.checks = True
        assert type(driver.invoke({})) is Interrupted
        assert driver.log == []
        driver.crash()
        assert driver.go_on().state["log"] == ["x", "y"]

    def test_a_process_that_takes_the_run_up_leaves_it_standing_there(self):
        child = graph("^>x", name="child", x=wrote("x"), options={"interrupt_before": ["x"]})
        driver = Driver(graph("^>c ^>slow", name="top", c=child, slow=takes(2, "slow")))
        driver.send_invoke({})
        driver.run(seconds=1)
        driver.crash()
        driver.run()
        assert (driver.status, driver.runs("x")) == ("waiting", 0)
        assert sorted(driver.go_on().state["log"]) == ["slow", "x"]

    def test_an_edit_leaves_it_standing_there(self):
        child = graph("^>x", name="child", x=wrote("x"), options={"interrupt_before": ["x"]})
        driver = Driver(graph("^>c", name="top", c=child))
        driver.invoke({})
        driver.update({"y": 1})
        assert driver.status == "waiting"
        outcome = driver.go_on()
        assert (outcome.state["log"], outcome.state["y"]) == (["x"], 1)


def test_on_failure_of_a_graph_with_graphs_in_it_takes_a_place_while_it_runs():
    told = []

    def hears(failures, ctx):
        told.append(failures[0].node)
        return Later(1)

    child = side_by_side(x=fails(1))
    driver = Driver(graph("^>c", c=child, options={"on_failure": hears}))
    driver.send_invoke({})
    driver.run(seconds=0.5)
    assert (told, driver.machine.leaves) == (["x"], 1)
    driver.run()
    assert (driver.status, driver.machine.leaves) == ("failed", 0)


def test_a_command_to_the_graph_around_may_bring_an_update_alone():
    up = lambda _s: Command(graph=PARENT, update={"x": 1})
    driver = Driver(graph("^>c c>end", c=side_by_side(x=up), end=None))
    outcome = driver.invoke({})
    assert (outcome.state["x"], outcome.state["log"]) == (1, ["end"])


def test_questions_at_all_depths_are_found_by_their_ids():
    child = side_by_side(a=asks("a"), b=asks("b"))
    driver = Driver(graph("^>c ^>d", c=child, d=graph("^>m", name="middle", m=child)))
    interrupts = driver.invoke({}).interrupts
    assert len(interrupts) == 4
    for number, interrupt in enumerate(reversed(interrupts)):
        outcome = driver.resume(answers={interrupt.id: number})
        driver.crash()
    assert outcome.state["log"] == ["a:3", "b:2", "a:1", "b:0"]


class Live(TypedDict, total=False):
    log: Annotated[list[Any], operator.add]
    client: Annotated[object, Untracked]


class Stored(TypedDict, total=False):
    log: Annotated[list[Any], operator.add]
    client: object


class TestWhatCannotBeStored:
    """A graph begins with a value of the graph around that no store keeps, under a key that it stores."""

    def around(self, child, **options):
        builder = Graph(Live, name="top").add_node("c", child, **options).add_edge(START, "c")
        return Driver(builder.compile())

    def inner(self, edges="^>x x>y", **nodes):
        given = {"x": lambda _s: {"log": ["x"]}, "y": lambda _s: {"log": ["y"]}, **nodes}
        return graph(edges, schema=Stored, name="child", **given)

    @pytest.mark.parametrize("options", [None, ASYNC], ids=["sync", "async"])
    @pytest.mark.parametrize("edges", ["^>x x>y", "^>x ^>y"], ids=["in turn", "side by side"])
    def test_it_fails_when_its_first_record_is_due(self, edges, options):
        driver = self.around(self.inner(edges, y=takes(1, "y")))
        error = driver.fails({"client": object()}, options=options)
        assert isinstance(error, NodeFailed)
        assert "node 'c' failed in attempt 1: beamweaver.errors.SerializationError" in str(error)
        assert "client is of type object" in str(error)
        assert driver.status == "failed"

    def test_where_steps_are_left_out_one_that_ends_well_needs_no_record(self):
        driver = self.around(self.inner())
        assert driver.invoke({"client": object()}, options=EXIT).state["log"] == ["x", "y"]

    def test_where_steps_are_left_out_it_fails_when_one_inside_of_it_does(self):
        driver = self.around(self.inner(y=fails(1)))
        assert "SerializationError" in str(driver.fails({"client": object()}, options=EXIT))

    def test_one_that_ends_with_its_first_step_needs_no_record(self):
        driver = self.around(self.inner("^>x"))
        assert driver.invoke({"client": object()}).state["log"] == ["x"]

    def test_one_that_stands_at_a_breakpoint_at_once_needs_one(self):
        child = graph("^>x", schema=Stored, name="child", x=lambda _s: {"log": ["x"]},
                      options={"interrupt_before": ["x"]})  # fmt: skip
        driver = self.around(child)
        assert isinstance(driver.fails({"client": object()}), NodeFailed)

    def test_one_that_was_called_fails_each_time_it_is_called(self):
        """What its reducer makes of the input is a value that it begins with."""

        class Reduced(TypedDict, total=False):
            made: Annotated[list[Any], lambda _old, _new: [object()]]

        child = graph("^>x x>y", schema=Reduced, name="child", x=lambda _s: None, y=lambda _s: None)

        def calls(_state, ctx):
            ctx.call(child, {"made": [1]})

        driver = Driver(graph("^>a", a=calls))
        for _again in range(2):
            assert "made[0] is of type object" in str(driver.fails({}))
        assert driver.runs("a") == 2

    def test_one_that_is_cut_off_leaves_nothing(self):
        child = self.inner("^>x ^>y", y=lambda _s: HANGS)
        driver = self.around(child, timeout=2.0)
        error = driver.fails({"client": object()}, options=EXIT)
        assert driver.status == "failed"
        assert isinstance(error, (NodeFailed, NodeTimeout))
