"""Edits of the state by callers: what each makes of an open step, of a finished one, and of a new thread."""

from __future__ import annotations

from typing import Annotated, TypedDict

import pytest

from beamweaver.engine import CallKind
from beamweaver.engine._editing import last_nodes
from beamweaver.errors import (
    AmbiguousUpdate,
    CallRefused,
    Draining,
    GraphChanged,
    InvalidCall,
    InvalidUpdate,
    RouterFailed,
    StepTimeout,
)
from beamweaver.events import StateUpdated
from beamweaver.graph import Graph, RemainingSteps
from beamweaver.types import END, START, Command, Overwrite, Send
from tests.engine.driver import Driver, Later
from tests.engine.graphs import State, fails, fan, graph, line, wrote


def nodes(driver):
    """The nodes of the open step."""
    return [task.node for task in driver.machine.state.step.tasks]


def checkpoint_of(driver, number):
    """The id of a checkpoint, by its age: 0 is the oldest."""
    image = list(driver.store.history("t"))[-1 - number]
    return f"{image.checkpoint.checkpoint.branch}-{image.checkpoint.seq}"


def done(one=None, value=None):
    driver = Driver(one or line("a", "b"))
    driver.invoke({"x": 1} if value is None else value)
    return driver


class TestANewThread:
    def test_its_first_edit_counts_as_an_input(self):
        driver = Driver(line("a", "b"))
        made = driver.update({"x": 7})
        assert made == driver.head
        assert (driver.values["x"], nodes(driver), driver.status) == (7, ["a"], "cancelled")
        assert driver.go_on().state["log"] == ["a", "b"]

    def test_one_must_have_what_the_schema_requires(self):
        class Needs(TypedDict):
            x: int

        one = Graph(State, name="g", input_schema=Needs).add_node("a", wrote("a"))
        driver = Driver(one.add_edge(START, "a").compile())
        with pytest.raises(InvalidUpdate, match="'x'"):
            driver.update({})
        assert driver.status is None


class TestAFinishedStep:
    def test_of_several_nodes_that_ran_last_one_must_be_named(self):
        """semantics 10."""
        driver = done(fan(a=None, b=None))
        with pytest.raises(AmbiguousUpdate, match=r"ran a, b.*say as_node=") as refused:
            driver.update({"log": ["x"]})
        assert refused.value.candidates == ("a", "b")

    def test_where_the_step_before_was_pruned_the_node_must_be_named(self):
        driver = done(line("a"))
        assert list(driver.store.prune(driver.epoch))
        with pytest.raises(AmbiguousUpdate, match="was removed") as refused:
            driver.update({"log": ["x"]})
        assert refused.value.candidates == ("a",)

    def test_where_all_before_an_edit_of_no_node_was_pruned_it_is_not_known(self):
        driver = Driver(graph("^>a a>bad", a=None, bad=fails(1)))
        driver.fails({"x": 1})
        driver.update({"x": 2})
        assert list(driver.store.prune(driver.epoch))
        assert last_nodes(driver.env, driver.machine.state.checkpoint_seq) == ()

    def test_where_all_before_a_branch_of_a_finished_run_was_pruned_it_must_be_named(self):
        driver = done(line("a"))
        driver.branch(CallKind.CONTINUE, fork=True)
        assert list(driver.store.prune(driver.epoch))
        with pytest.raises(AmbiguousUpdate, match="was removed"):
            driver.update({"log": ["x"]})

    def test_after_a_run_of_no_node_it_is_the_start(self):
        driver = done(line("a"), Command(goto=[END]))
        driver.update({"x": 2})
        assert nodes(driver) == ["a"]

    def test_the_node_that_ran_last_is_found_behind_an_open_steps_checkpoints(self):
        """An amendment makes a checkpoint that no node made."""
        driver = Driver(graph("^>a a>bad", a=None, bad=fails(1)))
        driver.fails({"x": 1})
        driver.update({"x": 2})
        assert last_nodes(driver.env, driver.machine.state.checkpoint_seq) == ("a",)

    def test_an_edit_is_the_last_that_ran(self):
        driver = done()
        driver.update({"log": ["x"]}, "b")
        driver.update({"log": ["y"]})
        assert last_nodes(driver.env, driver.machine.state.checkpoint_seq) == ("b",)
        assert (driver.values["log"], nodes(driver)) == (["a", "b", "x", "y"], [])

    def test_an_unknown_node_is_refused(self):
        driver = done()
        """The id may be one of a task that was."""
        id_ = "0" * 24
        with pytest.raises(InvalidCall, match=f"as_node is '{id_}', which is no node of graph 'g'"):
            driver.answer(driver.send_update([[({"x": 2}, "a"), ({"y": 1}, id_)]]))
        assert driver.values["x"] == 1

    def test_as_the_end_the_run_is_over_and_what_was_deferred_is_dropped(self):
        one = graph(
            "^>a a>late a>bad", a=None, late=None, bad=fails(1), options={"late": {"defer": True}}
        )
        driver = Driver(one)
        driver.fails({})
        driver.update({"x": 5}, END)
        assert (driver.status, nodes(driver), driver.values["x"]) == ("complete", [], 5)
        assert driver.machine.state.deferred == ()

    def test_what_the_machine_tells_is_the_new_checkpoint(self):
        driver = done()
        made = driver.update({"x": 2})
        assert [event.checkpoint_id for event in driver.told_events(StateUpdated)] == [made]

    def test_a_driver_that_tells_nothing_makes_it_too(self):
        driver = Driver(line("a", "b"), publishing=False)
        driver.invoke({"x": 1})
        assert driver.update({"x": 2}) == driver.head


class TestRouters:
    def test_of_edges_whose_guards_need_no_question_none_is_asked(self):
        one = graph("^>a", guards=[("a>b", {"max_runs": 2})], a=None, b=None)
        driver = done(one)
        driver.update({"x": 2}, "a")
        assert nodes(driver) == ["b"]
        assert driver.asked == []

    def test_they_see_the_steps_that_are_left(self):
        class Counted(TypedDict, total=False):
            left: Annotated[int, RemainingSteps]
            x: int

        seen = []

        def router(state):
            seen.append(state["left"])
            return "b"

        one = graph("^>a", schema=Counted, routers=[("a", router, ["b"])], a=lambda _s: None,
                    b=lambda _s: None, options={"recursion_limit": 7})  # fmt: skip
        driver = done(one, {"x": 1})
        seen.clear()
        driver.update({"x": 2}, "a")
        assert seen == [driver.graph.recursion_limit - driver.machine.state.executed]

    def test_one_that_fails_fails_the_edit_and_nothing_is_changed(self):
        def router(state):
            return "b" if state["x"] == 1 else 1 / 0

        driver = done(graph("^>a", routers=[("a", router, ["b"])], a=None, b=None))
        head = driver.head
        with pytest.raises(RouterFailed, match="ZeroDivisionError"):
            driver.update({"x": 2}, "a")
        assert (driver.head, driver.values["x"]) == (head, 1)

    def asking(self, **options):
        """An edit whose routers are asked and have not answered."""
        one = graph("^>a", routers=[("a", lambda _s: "b", ["b"])], a=None, b=None, options=options)
        driver = done(one)
        call = driver.send_update([[({"x": 2}, "a")]], runs=False)
        driver.advance()
        (action,) = [action for action in driver.actions if action[0] == "route"]
        driver.actions.remove(action)  # the routers hang
        return driver, call, action

    def test_one_that_takes_too_long_fails_the_edit(self):
        driver, call, (_what, late) = self.asking(step_timeout=3)
        driver.run()
        with pytest.raises(StepTimeout, match=r"longer than the step_timeout of 3 s.*nothing was"):
            driver.answer(call)
        assert driver.values["x"] == 1
        driver.actions.append(("route", late))  # what it says then counts for nothing
        driver.run()
        assert (driver.values["x"], driver.status) == (1, "complete")

    def test_the_timer_of_one_that_answered_is_dropped(self):
        driver, call, action = self.asking(step_timeout=3)
        driver.actions.append(action)
        driver.run()
        assert driver.timers == {}
        assert driver.answer(call).checkpoint_id == driver.head

    def test_another_timer_does_not_end_it(self):
        driver, call, action = self.asking(step_timeout=3)
        driver.machine.fired(("step", 1))
        driver.advance()
        assert driver.machine.editing is not None
        driver.actions.append(action)
        driver.run()
        assert driver.answer(call).checkpoint_id == driver.head

    def test_a_cancel_gives_the_edit_up(self):
        driver, call, _action = self.asking()
        cancel = driver.send(CallKind.CANCEL)
        driver.run()
        with pytest.raises(CallRefused, match="was cancelled while its routers ran"):
            driver.answer(call)
        assert driver.answer(cancel).state["x"] == 1

    def test_the_end_of_a_drain_gives_the_edit_up(self):
        driver, call, _action = self.asking()
        driver.machine.cut()
        driver.run()
        with pytest.raises(Draining, match="end of a drain"):
            driver.answer(call)

    def test_a_cut_where_nothing_runs_changes_nothing(self):
        driver = done()
        driver.machine.cut()
        driver.run()
        assert driver.status == "complete"


class TestAnOpenStep:
    def two(self, **more):
        """One of two finished, the other failed."""
        one = graph("^>ok ^>bad ok>c bad>c", ok=None, bad=fails(1), c=None, **more)
        driver = Driver(one)
        driver.fails({"x": 1})
        return driver

    def test_an_empty_edit_of_no_node_amends_nothing(self):
        driver = self.two()
        before = driver.head
        made = driver.update({})
        assert made != before
        assert driver.machine.state.step.amendments == []

    def test_where_the_merge_failed_it_may_replace_what_did_not_merge(self):
        """semantics 6: an amendment with `Overwrite`. All tasks have finished."""
        driver = Driver(fan(a=lambda _s: {"x": 1}, b=lambda _s: {"x": 2}))
        driver.fails({})
        driver.update({"x": Overwrite(3)})
        assert driver.go_on().state["x"] == 3

    def test_a_run_that_goes_on_by_itself_still_does(self):
        """A dead process left it, and nobody has taken it up yet."""
        driver = Driver(graph("^>a a>b", a=lambda _s: Later(2), b=None), recover=False)
        driver.send_invoke({"x": 1})
        driver.run(seconds=1)
        driver.crash()
        driver.update({"x": 5})
        assert driver.stored_status == "running"
        driver.recover = True
        driver.crash()
        driver.run()
        assert (driver.status, driver.values["x"]) == ("complete", 5)

    def test_as_the_id_of_a_task_it_is_that_tasks_result(self):
        driver = self.two()
        state = driver.machine.state
        (id_,) = [state.id_of(task) for task in state.step.tasks if task.node == "bad"]
        driver.update({"log": ["by hand"]}, id_)
        assert nodes(driver) == ["c"]
        assert driver.values["log"] == ["ok", "by hand"]

    def test_as_no_node_of_the_graph_it_is_refused(self):
        """The id may be one of a task of an earlier step."""
        driver = self.two()
        with pytest.raises(InvalidCall, match="no node of graph 'g' and no task of the open step"):
            driver.update({"x": 1}, "0" * 24)

    def test_of_several_open_tasks_of_a_node_one_is_named_by_its_id(self):
        one = graph("^>a", a=lambda _s: [Send("w", {"x": 1}), Send("w", {"x": 2})], w=fails(2))
        driver = Driver(one)
        driver.fails({})
        state = driver.machine.state
        ids = tuple(state.id_of(task) for task in state.step.tasks)
        with pytest.raises(AmbiguousUpdate, match="2 tasks of node 'w' are open") as refused:
            driver.update({"log": ["x"]}, "w")
        assert refused.value.candidates == ids
        driver.update({"log": ["first"]}, ids[0])
        driver.update({"log": ["second"]}, "w")  # only one is open now
        assert driver.values["log"] == ["first", "second"]

    def test_of_several_finished_tasks_of_a_node_one_is_named_too(self):
        def once(state):
            return {"log": [state["x"]]}

        one = graph("^>a", w=once, bad=fails(1),
                    a=lambda _s: [Send("w", {"x": 1}), Send("w", {"x": 2}), Send("bad", {})])  # fmt: skip
        driver = Driver(one)
        driver.fails({})
        with pytest.raises(AmbiguousUpdate, match="2 tasks of node 'w'"):
            driver.update({"log": ["x"]}, "w")

    def test_in_the_last_of_several_supersteps_it_leaves_the_step(self):
        driver = self.two()
        driver.answer(driver.send_update([[({"x": 5}, None)], [({"x": 6}, "c")]]))
        assert (driver.status, driver.values["x"], nodes(driver)) == ("complete", 6, [])
        assert driver.values["log"] == ["ok"]

    def test_a_key_that_the_step_and_the_edit_grew_is_stored_whole(self):
        """Its value before the edit is in no record, so the record of the edit cannot say what was added."""
        driver = self.two()
        driver.update({"log": ["by hand"]}, "c")
        checkpoint = driver.commits[-1].record.checkpoint
        assert "log" in checkpoint.writes
        assert "log" not in checkpoint.deltas
        driver.crash()
        assert driver.values["log"] == ["ok", "by hand"]

    def test_what_a_persistent_graph_of_it_keeps_is_kept(self):
        counter = graph("^>n", name="counter", n=lambda s: {"log": [len(s.get("log", []))]})
        one = Graph(State, name="g").add_node("p", counter, persistent=True)
        one.add_node("bad", fails(9)).add_edge(START, "p").add_edge(START, "bad")
        driver = Driver(one.compile())
        driver.fails({})
        driver.update({"x": 1}, "bad")
        assert driver.status == "complete"
        assert list(driver.machine.state.kept) == ["p"]
        kept = driver.machine.state.kept
        driver.crash()
        assert driver.machine.state.kept == kept


class TestPlaces:
    @pytest.mark.parametrize("place", ["id0-99", "other-0"])
    def test_a_checkpoint_that_is_not_there_is_refused(self, place):
        driver = done()
        with pytest.raises(InvalidCall, match=f"no checkpoint '{place}'"):
            driver.update({"x": 2}, checkpoint=place)

    def test_one_that_needs_what_the_graph_has_lost_is_refused(self):
        driver = done()
        place = checkpoint_of(driver, 0)
        driver.graph = line("b", "c")
        driver.crash()
        with pytest.raises(GraphChanged, match="'a'"):
            driver.update({"x": 2}, checkpoint=place)

    def test_one_of_an_older_version_is_refused_with_the_cure(self):
        driver = done()
        place = checkpoint_of(driver, 0)
        driver.graph = graph("^>a a>b b>$", version=2, a=None, b=None)
        driver.crash()
        driver.run()
        with pytest.raises(GraphChanged, match=r"is of version 1 .* set_head\(\)"):
            driver.update({"x": 2}, checkpoint=place)


def test_one_that_waits_behind_a_run_has_its_turn_at_its_end():
    driver = Driver(fan(a=lambda _s: Later(2, {"log": ["a"]})))
    driver.send_invoke({"x": 1})
    driver.run(seconds=1)
    call = driver.send_update([[({"x": 9}, None)]])
    assert driver.answer(call).checkpoint_id == driver.head
    assert driver.values["x"] == 9
