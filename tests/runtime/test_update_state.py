"""Edits of the state: through channels and edges, on every step that a thread may stand at."""

from __future__ import annotations

import operator
from typing import Annotated, TypedDict

import pytest

from beamweaver import (
    END,
    START,
    Command,
    Graph,
    Overwrite,
    Runtime,
    Send,
    StateUpdate,
    interrupt,
)
from beamweaver.errors import (
    AmbiguousUpdate,
    InvalidCall,
    InvalidUpdate,
)
from tests.runtime.kit import Log, line, star, wrote


class Sums(TypedDict, total=False):
    value: Annotated[int, operator.add]
    items: Annotated[list, operator.add]
    route: str
    path: Annotated[list, operator.add]


def ask(_state):
    return {"log": [interrupt("ok?")]}


def once(update):
    """A node that fails at its first call."""
    left = [True]

    def node(_state):
        if left and left.pop():
            raise ValueError("boom")
        return update

    return node


def adds(n):
    return lambda _state: {"value": n}


def ids(states):
    return [state.config["configurable"]["checkpoint_id"] for state in states]


def routed(router=lambda state: state["route"]):
    """A graph whose node `route` leads to `left` or `right`."""
    graph = Graph(Sums, name="g")
    for name in ("route", "left", "right"):
        graph.add_node(name, lambda _s, name=name: {"path": [name]})
    return graph.add_edge(START, "route").add_conditional_edges("route", router, ["left", "right"])


class TestAFinishedStep:
    def test_the_values_count_as_those_of_the_node_that_ran_last(self, store):
        """graph 69"""
        graph = Graph(Sums, name="g").add_node("count", adds(1)).add_edge(START, "count")
        with graph.compile(checkpointer=store) as app:
            app.invoke({"value": 0}, thread_id="t")
            before = len(list(app.get_state_history("t")))
            made = app.update_state("t", {"value": 9})
            state = app.get_state("t")
            assert ids([state]) == [made]
            assert (state.values["value"], state.next, state.status) == (10, (), "complete")
            assert len(list(app.get_state_history("t"))) == before + 1
            assert state.metadata["source"] == "update"
            assert app.invoke({"value": 0}, thread_id="t").state["value"] == 11

    def test_the_edges_of_the_node_lead_on(self, store):
        with line("g", a=wrote("a"), b=wrote("b")).compile(checkpointer=store) as app:
            app.invoke({}, thread_id="t")
            app.update_state("t", {"log": ["x"]}, as_node="a")
            assert app.get_state("t").next == ("b",)
            assert app.invoke(None, thread_id="t").state["log"] == ["a", "b", "x", "b"]

    def test_nothing_runs_by_itself(self, place):
        with line("g", a=wrote("a"), b=wrote("b")).compile(checkpointer=place.open()) as app:
            app.invoke({}, thread_id="t")
            app.update_state("t", {"log": ["x"]}, as_node="a")
        with Runtime(place.open(), graphs=[line("g", a=wrote("a"), b=wrote("b")).compile()]) as rt:
            assert rt.drain(5)
            assert rt.get_state("t").next == ("b",)

    @pytest.mark.parametrize("node", ["route", None])
    def test_routers_choose(self, store, node):
        """graph 73, graph 74"""
        with routed().compile(checkpointer=store) as app:
            app.invoke({"route": "left"}, thread_id="t")
            if node is None:
                app.update_state("t", {}, as_node="route")
                app.update_state("t", {}, as_node=END)
            app.update_state("t", {"route": "right"}, as_node="route")
            assert app.get_state("t").next == ("right",)
            assert app.invoke(None, thread_id="t").state["path"][-1] == "right"

    def test_of_several_that_ran_last_one_must_be_named(self, store):
        with star("g", a=wrote("a"), b=wrote("b")).compile(checkpointer=store) as app:
            app.invoke({}, thread_id="t")
            with pytest.raises(AmbiguousUpdate) as error:
                app.update_state("t", {"log": ["x"]})
            assert error.value.candidates == ("a", "b")
            app.update_state("t", {"log": ["x"]}, as_node="b")
            assert app.get_state("t").values["log"] == ["a", "b", "x"]

    def test_where_the_step_before_was_pruned_it_must_be_named(self, store):
        with line("g", a=wrote("a")).compile(checkpointer=store) as app:
            app.invoke({}, thread_id="t")
            app.prune()
            with pytest.raises(AmbiguousUpdate, match="removed"):
                app.update_state("t", {"log": ["x"]})

    def test_an_edit_is_the_last_that_ran(self, store):
        with line("g", a=wrote("a"), b=wrote("b")).compile(checkpointer=store) as app:
            app.invoke({}, thread_id="t")
            app.update_state("t", {"log": ["x"]}, as_node="a")
            app.update_state("t", None, as_node=END)
            app.update_state("t", {"log": ["y"]})
            assert app.get_state("t").next == ()

    def test_as_start_it_is_an_input(self, store):
        with line("g", a=wrote("a"), b=wrote("b")).compile(checkpointer=store) as app:
            app.invoke({}, thread_id="t")
            app.update_state("t", {"n": 7}, as_node=START)
            assert (app.get_state("t").values["n"], app.get_state("t").next) == (7, ("a",))

    def test_a_command_goes_where_it_says(self, store):
        with line("g", a=wrote("a"), b=wrote("b"), c=wrote("c")).compile(checkpointer=store) as app:
            app.invoke({}, thread_id="t")
            app.update_state("t", Command(update={"log": ["x"]}, goto="c"), as_node="a")
            assert app.get_state("t").next == ("c",)

    def test_sends_are_tasks_of_the_next_step(self, store):
        graph = Graph(Log, name="g").add_node("a", wrote("a")).add_edge(START, "a")
        graph.add_node("w", lambda state: {"log": [state["item"]]})
        with graph.compile(checkpointer=store, allow_unreachable=True) as app:
            app.invoke({}, thread_id="t")
            app.update_state("t", [Send("w", {"item": i}) for i in (1, 2)], as_node="a")
            assert app.invoke(None, thread_id="t").state["log"] == ["a", 1, 2]

    def test_the_recorded_outcome_of_the_run_before_stays(self, store):
        with line("g", a=wrote("a")).compile(checkpointer=store) as app:
            app.invoke({}, thread_id="t", run_id="R")
            app.update_state("t", {"log": ["x"]})
            assert app.invoke({}, thread_id="t", run_id="R").state["log"] == ["a"]

    def test_a_join_counts_the_arrival(self, store):
        graph = Graph(Log, name="g")
        for name in "abj":
            graph.add_node(name, wrote(name))
        graph.add_edge(START, "a").add_edge(START, "b").add_edge(["a", "b"], "j")
        with graph.compile(checkpointer=store) as app:
            app.invoke({}, thread_id="t")
            app.update_state("t", {}, as_node="a")
            assert app.get_state("t").next == ()
            steps = [[StateUpdate({}, "a"), StateUpdate({}, "b")]]
            app.bulk_update_state("t", steps)
            assert app.get_state("t").next == ("j",)


class TestAThreadThatDoesNotExist:
    def test_it_begins_with_an_input(self, store):
        with line("g", a=wrote("a")).compile(checkpointer=store) as app:
            made = app.update_state("t", {"n": 1})
            state = app.get_state("t")
            assert (ids([state]), state.next, state.values["n"]) == ([made], ("a",), 1)
            assert app.invoke(None, thread_id="t").state["log"] == ["a"]

    def test_it_begins_as_any_node(self, store):
        with routed().compile(checkpointer=store) as app:
            app.update_state("t", {"route": "right"}, as_node="route")
            assert app.get_state("t").next == ("right",)

    def test_it_has_no_checkpoint(self, store):
        with line("g", a=wrote("a")).compile(checkpointer=store) as app:
            with pytest.raises(InvalidCall, match="no checkpoint"):
                app.update_state("t", {}, checkpoint_id="x-0")
            assert app.get_state("t") is None


class TestAnUnfinishedStep:
    @pytest.fixture
    def app(self, store):
        """One of two parallel nodes finished (value 1+2), the other failed; then `after` follows each."""
        graph = Graph(Sums, name="g").add_node("one", adds(2)).add_node("two", once({"value": 100}))
        graph.add_node("other", adds(1000)).add_node("after", lambda _s: {"path": ["after"]})
        graph.add_edge(START, "one").add_edge(START, "two").add_edge("two", "after")
        graph.add_edge("other", "after")
        with graph.compile(checkpointer=store, allow_unreachable=True) as app:
            app.invoke({"value": 1}, thread_id="t", raises=False)
            yield app

    def test_without_a_node_it_is_an_amendment(self, app):
        made = app.update_state("t", {"value": 10})
        state = app.get_state("t")
        assert (state.values["value"], state.next, state.status) == (13, ("two",), "failed")
        assert ids([state]) == [made]
        assert app.get_state("t", made).values["value"] == 11
        assert app.invoke(None, thread_id="t").state == {
            "value": 113,
            "path": ["after"],
            "items": [],
        }

    def test_as_a_finished_task_it_adds_to_its_result(self, app):
        """graph 44"""
        app.update_state("t", {"value": 10}, as_node="one")
        state = app.get_state("t")
        assert (state.values["value"], state.next) == (13, ("two",))
        assert app.invoke(None, thread_id="t").state["value"] == 113

    @pytest.mark.parametrize("by", ["node", "task id"])
    def test_as_an_unfinished_task_it_is_the_result(self, app, by):
        """The last result finishes the step: its edges lead on."""
        (task,) = [task for task in app.get_state("t").tasks if task.node == "two"]
        app.update_state("t", {"value": 50}, as_node="two" if by == "node" else task.id)
        state = app.get_state("t")
        assert (state.values["value"], state.next, state.status) == (53, ("after",), "cancelled")
        assert app.invoke(None, thread_id="t").state == {
            "value": 53,
            "path": ["after"],
            "items": [],
        }

    def test_as_another_node_it_leaves_the_step(self, app):
        """The branch has what was finished; the step stays where it was."""
        (old,) = ids([app.get_state("t")])
        app.update_state("t", {"value": 10}, as_node="other")
        state = app.get_state("t")
        assert (state.values["value"], state.next) == (13, ("after",))
        assert app.invoke(None, thread_id="t").state["value"] == 13
        app.set_head("t", old)
        assert (app.get_state("t").values["value"], app.get_state("t").next) == (3, ("two",))
        assert app.invoke(None, thread_id="t").state["value"] == 103

    def test_as_end_the_run_is_over(self, app):
        app.update_state("t", None, as_node=END)
        state = app.get_state("t")
        assert (state.values["value"], state.next, state.status) == (3, (), "complete")

    def test_nothing_changed_is_a_checkpoint_too(self, app):
        made = app.update_state("t", None)
        assert app.get_state("t", made).metadata["source"] == "update"
        assert app.invoke(None, thread_id="t").state["value"] == 103

    def test_steps_get_numbers_of_their_own(self, app):
        for _ in range(3):
            app.update_state("t", {"value": 1})
        app.invoke(None, thread_id="t")
        steps = [state.step for state in app.get_state_history("t")]
        assert steps == sorted(set(steps), reverse=True)

    def test_a_task_keeps_its_id_and_its_result(self, app):
        before = [task.id for task in app.get_state("t").tasks]
        app.update_state("t", {"value": 1})
        app.update_state("t", {"value": 1})
        assert [task.id for task in app.get_state("t").tasks] == before

    def test_an_edit_is_there_in_the_next_process(self, place):
        graph = line("g", a=once({"log": ["a"]}))
        with graph.compile(checkpointer=place.open()) as app:
            app.invoke({}, thread_id="t", raises=False)
            app.update_state("t", {"n": 3})
        with graph.compile(checkpointer=place.open()) as app:
            assert app.get_state("t").values["n"] == 3
            assert app.invoke(None, thread_id="t").state == {"log": ["a"], "n": 3}

    def test_a_node_sees_the_amendment(self, store):
        seen = []

        def node(state):
            seen.append(state.get("note"))
            if len(seen) == 1:
                raise ValueError("boom")
            return {}

        with line("g", a=node).compile(checkpointer=store) as app:
            app.invoke({}, thread_id="t", raises=False)
            app.update_state("t", {"note": "x"})
            app.invoke(None, thread_id="t")
            assert seen == [None, "x"]

    def test_results_that_do_not_merge_are_overwritten(self, store):
        graph = star("g", a=lambda _s: {"n": 1}, b=lambda _s: {"n": 2})
        with graph.compile(checkpointer=store) as app:
            app.invoke({}, thread_id="t", raises=False)
            assert app.get_state("t").merge_error
            with pytest.raises(InvalidUpdate):
                app.update_state("t", {"log": ["x"]}, as_node="a")
            app.update_state("t", {"n": Overwrite(3)})
            assert app.get_state("t").merge_error is None
            assert app.invoke(None, thread_id="t").state["n"] == 3

    def test_of_several_open_tasks_of_a_node_one_must_be_named(self, store):
        graph = Graph(Log, name="g").add_node(
            "a", lambda _s: [Send("w", {"item": i}) for i in (1, 2)]
        )
        graph.add_node("w", lambda _s: {"log": [interrupt("?")]}).add_edge(START, "a")
        with graph.compile(checkpointer=store, allow_unreachable=True) as app:
            app.invoke({}, thread_id="t")
            with pytest.raises(AmbiguousUpdate) as error:
                app.update_state("t", {"log": ["e"]}, as_node="w")
            first, second = (task.id for task in app.get_state("t").tasks)
            assert error.value.candidates == (first, second)
            app.update_state("t", {"log": ["e"]}, as_node=first)
            (question,) = app.get_state("t").interrupts
            assert (question.task_id, app.get_state("t").status) == (second, "waiting")
            app.update_state("t", {"log": ["f"]}, as_node="w")
            assert app.get_state("t").values["log"] == ["e", "f"]


class TestAWaitingThread:
    def test_the_question_stays_and_the_answer_meets_the_edit(self, store):
        """graph 76, reference AJ2"""
        graph = line("g", a=wrote("a"), ask=ask, b=lambda s: {"log": [s.get("note")]})
        with graph.compile(checkpointer=store) as app:
            (question,) = app.invoke({}, thread_id="t").interrupts
            app.update_state("t", {"note": "reviewed"})
            state = app.get_state("t")
            assert (state.interrupts, state.status) == ((question,), "waiting")
            outcome = app.resume({question.id: "yes"}, thread_id="t")
            assert outcome.state["log"] == ["a", "yes", "reviewed"]

    def test_the_answer_may_be_given_as_the_result(self, store):
        with line("g", ask=ask, b=wrote("b")).compile(checkpointer=store) as app:
            app.invoke({}, thread_id="t")
            app.update_state("t", {"log": ["edited"]}, as_node="ask")
            assert app.get_state("t").interrupts == ()
            assert app.invoke(None, thread_id="t").state["log"] == ["edited", "b"]

    def test_as_end_the_question_is_gone(self, store):
        with line("g", ask=ask).compile(checkpointer=store) as app:
            app.invoke({}, thread_id="t")
            app.update_state("t", None, as_node=END)
            state = app.get_state("t")
            assert (state.interrupts, state.next, state.status) == ((), (), "complete")


class TestBulk:
    @pytest.fixture
    def app(self, store):
        graph = Graph(Sums, name="g")
        for name in ("a", "b"):
            graph.add_node(name, lambda _s, name=name: {"items": [name]}).add_edge(START, name)
        graph.add_node("answer", adds(1)).add_edge(["a", "b"], "answer")
        with graph.compile(checkpointer=store) as app:
            yield app

    def test_each_superstep_is_one_checkpoint(self, app):
        """graph 71"""
        steps = [
            [StateUpdate({"value": 1}, START)],
            [StateUpdate({"items": ["a"]}, "a"), StateUpdate({"items": ["b"]}, "b")],
            [StateUpdate({"value": 41}, "answer")],
        ]
        made = app.bulk_update_state("t", steps)
        states = list(app.get_state_history("t"))
        assert ids(states)[0] == made
        assert [(s.next, s.values["value"], s.metadata["source"]) for s in states] == [
            ((), 42, "update"),
            (("answer",), 1, "update"),
            (("a", "b"), 1, "update"),
        ]
        assert states[0].values["items"] == ["a", "b"]

    def test_writers_that_compete_change_nothing(self, app):
        """graph 71"""
        steps = [
            [StateUpdate({"value": 1}, START)],
            [StateUpdate({"route": "x"}, "a"), StateUpdate({"route": "y"}, "b")],
        ]
        with pytest.raises(InvalidUpdate, match="'a' and 'b'"):
            app.bulk_update_state("t", steps)
        assert app.get_state("t") is None

    @pytest.mark.parametrize(
        "steps",
        [
            [],
            [[]],
            [[StateUpdate({}), StateUpdate({})]],
            [[StateUpdate({}, "a"), StateUpdate({}, END)]],
            [[StateUpdate({}, "a"), StateUpdate({}, "a")]],
            [[{"value": 1}]],
            "ab",
            [StateUpdate({}, "a")],
        ],
        ids=repr,
    )
    def test_what_cannot_be_meant_is_refused(self, app, steps):
        """graph 116"""
        with pytest.raises(InvalidCall):
            app.bulk_update_state("t", steps)
        assert app.get_state("t") is None

    def test_several_on_a_thread_that_stands_amid_a_step(self, app):
        app.update_state("t", {"value": 1}, as_node=START)
        steps = [[StateUpdate({"value": 10})], [StateUpdate({"items": ["a"]}, "a")]]
        app.bulk_update_state("t", steps)
        state = app.get_state("t")
        assert (state.next, state.values["value"], state.values["items"]) == (("b",), 11, ["a"])
        app.bulk_update_state("t", [[StateUpdate({}, "b")], [StateUpdate({"value": 1}, "answer")]])
        assert (app.get_state("t").next, app.get_state("t").values["value"]) == ((), 12)
