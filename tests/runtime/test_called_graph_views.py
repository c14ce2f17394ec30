"""Graphs that functions call, read and edited by namespace."""

from __future__ import annotations

import msgspec
import pytest

from beamweaver import START, Graph
from beamweaver.errors import InvalidCall, InvalidGraph, InvalidUpdate
from beamweaver.types import StateUpdate
from tests.runtime.kit import Counted, Log, line, wrote

SUN = ("calls:look up:sun",)


def asks(state, ctx):
    return {"log": [f"{ctx.interrupt('right?')}"]}


def looking_up(**nodes):
    return line("look up", **(nodes or {"a": wrote("a"), "asks": asks, "z": wrote("z")})).compile()


def calling(child, store=None, *, said=True, name="top", **options):
    """A graph whose function calls another one under the key `sun`, and says so or not."""

    def calls(_state, ctx):
        return {"log": ctx.call(child, {"log": ["in"]}, key="sun")["log"]}

    graph = Graph(Log, name=name).add_node("calls", calls, calls=[child] if said else [])
    return graph.add_edge(START, "calls").compile(checkpointer=store, **options)


def history(app, namespace=SUN):
    return [s.values["log"] for s in app.get_state_history("t", namespace=namespace)]


class TestReading:
    def test_its_state_is_read_where_its_questions_say_that_it_is(self, place):
        with calling(looking_up(), place.open()) as app:
            (question,) = app.invoke({}, thread_id="t").interrupts
        with calling(looking_up(), place.open()) as app:
            state = app.get_state("t", namespace=question.namespace)
            assert (question.namespace, state.values["log"], state.next) == (
                SUN,
                ["in", "a"],
                ("asks",),
            )
            assert (state.metadata["graph"], state.graph_error) == ("look up", None)
            assert [each.value for each in state.interrupts] == ["right?"]

    def test_a_task_shows_all_that_its_function_called(self, store):
        with calling(looking_up(), store) as app:
            app.invoke({}, thread_id="t")
            (task,) = app.get_state("t", subgraphs=True).tasks
            assert (task.subgraph, [each.values["log"] for each in task.calls]) == (
                None,
                [["in", "a"]],
            )
            assert app.get_state("t").tasks[0].calls == ()

    def test_its_steps_are_history_also_when_it_has_ended(self, place):
        with calling(looking_up(), place.open()) as app:
            app.invoke({}, thread_id="t")
            app.resume("yes", thread_id="t")
        with calling(looking_up(), place.open()) as app:
            assert history(app)[-3:] == [["in", "a", "yes"], ["in", "a"], ["in"]]
            assert app.get_state("t", namespace=SUN) is None

    def test_a_graph_in_it_is_read_too(self, store):
        child = line("look up", b=wrote("b"), inner=looking_up(a=wrote("a"), asks=asks)).compile()
        with calling(child, store) as app:
            (question,) = app.invoke({}, thread_id="t").interrupts
            assert question.namespace == (*SUN, "inner")
            state = app.get_state("t", namespace=question.namespace)
            assert state.values["log"] == ["in", "b", "a"]

    def test_what_a_handler_calls_is_read_too(self, store):
        child = looking_up()

        def fails(_state):
            raise OSError("boom")

        def handles(_failure, _state, ctx):
            return {"log": ctx.call(child, {"log": ["in"]}, key="sun")["log"]}

        graph = Graph(Log, name="top").add_node("n", fails, error_handler=handles, calls=[child])
        with graph.add_edge(START, "n").compile(checkpointer=store) as app:
            (question,) = app.invoke({}, thread_id="t").interrupts
            assert app.get_state("t", namespace=question.namespace).values["log"] == ["in", "a"]

    def test_one_that_its_node_does_not_name_is_plain_data_and_says_so(self, place):
        with calling(looking_up(), place.open(), said=False) as app:
            app.invoke({}, thread_id="t")
        with calling(looking_up(), place.open(), said=False) as app:
            state = app.get_state("t", namespace=SUN)
            assert (state.values, state.next) == ({"log": ["in", "a"]}, ("asks",))
            assert state.metadata["graph"] == "look up"
            assert "calls=[graph]" in state.graph_error
            assert history(app) == [["in", "a"], ["in"]]

    def test_one_that_is_in_such_a_graph_is_plain_data_too(self, store):
        inner = looking_up(a=wrote("a"), asks=asks)
        child = line("look up", b=wrote("b"), inner=inner).compile()
        with calling(child, store, said=False) as app:
            app.invoke({}, thread_id="t")
            state = app.get_state("t", namespace=(*SUN, "inner"))
            assert (state.values["log"], state.metadata["graph"]) == (["in", "b", "a"], "inner")

    def test_of_one_that_has_not_begun_there_is_no_state(self, store):
        with calling(looking_up(), store) as app:
            app.invoke({}, thread_id="t")
            assert app.get_state("t", namespace=("calls:look up:moon",)) is None

    def test_a_function_alone_is_no_namespace(self, store):
        with calling(looking_up(), store) as app:
            app.invoke({}, thread_id="t")
            with pytest.raises(InvalidCall, match="'calls:<its name>'"):
                app.get_state("t", namespace=("calls",))


class TestEditing:
    def test_an_edit_as_the_node_that_asked_answers_for_it(self, place):
        with calling(looking_up(), place.open()) as app:
            app.invoke({}, thread_id="t")
        with calling(looking_up(), place.open()) as app:
            app.update_state("t", {"log": ["by hand"]}, as_node="asks", namespace=SUN)
            assert app.get_state("t", namespace=SUN).values["log"] == ["in", "a", "by hand"]
        with calling(looking_up(), place.open()) as app:
            assert app.invoke(None, thread_id="t").state["log"] == ["in", "a", "by hand", "z"]

    def test_an_amendment_keeps_its_question(self, store):
        with calling(looking_up(), store) as app:
            app.invoke({}, thread_id="t")
            app.update_state("t", {"log": ["more"]}, namespace=SUN)
            outcome = app.resume("yes", thread_id="t")
        assert outcome.state["log"] == ["in", "a", "more", "yes", "z"]

    def test_as_another_node_it_goes_on_from_there(self, place):
        a = Counted(wrote("a"))
        nodes = {"a": a, "asks": asks, "z": wrote("z")}
        with calling(looking_up(**nodes), place.open()) as app:
            app.invoke({}, thread_id="t")
            app.update_state("t", {"log": ["a2"]}, as_node="a", namespace=SUN)
        with calling(looking_up(**nodes), place.open()) as app:
            assert app.get_state("t", namespace=SUN).next == ("asks",)
            assert app.invoke(None, thread_id="t").interrupt.value == "right?"
            outcome = app.resume("yes", thread_id="t")
        assert (outcome.state["log"], a.runs) == (["in", "a", "a2", "yes", "z"], 1)

    def test_several_supersteps_follow_one_another(self, place):
        with calling(looking_up(), place.open()) as app:
            app.invoke({}, thread_id="t")
        with calling(looking_up(), place.open()) as app:
            steps = [[StateUpdate({"log": ["1"]}, "a")], [StateUpdate({"log": ["2"]}, "asks")]]
            app.bulk_update_state("t", steps, namespace=SUN)
            assert app.get_state("t", namespace=SUN).values["log"] == ["in", "a", "1", "2"]
            assert app.invoke(None, thread_id="t").state["log"] == ["in", "a", "1", "2", "z"]

    def test_a_graph_in_it_is_edited_too(self, place):
        child = line("look up", b=wrote("b"), inner=looking_up(a=wrote("a"), asks=asks)).compile()
        with calling(child, place.open()) as app:
            app.invoke({}, thread_id="t")
        with calling(child, place.open()) as app:
            app.update_state("t", {"log": ["hand"]}, as_node="asks", namespace=(*SUN, "inner"))
            assert app.invoke(None, thread_id="t").state["log"] == ["in", "b", "a", "hand"]

    def test_a_graph_that_a_called_one_calls_is_edited_too(self, place):
        top = calling(calling(looking_up(), name="middle"), place.open())
        path = ("calls:middle:sun", *SUN)
        with top as app:
            (question,) = app.invoke({}, thread_id="t").interrupts
            assert question.namespace == path
        with calling(calling(looking_up(), name="middle"), place.open()) as app:
            app.update_state("t", {"log": ["hand"]}, as_node="asks", namespace=path)
            assert app.invoke(None, thread_id="t").state["log"] == ["in", "in", "a", "hand", "z"]

    def test_one_that_its_node_does_not_name_is_not_edited(self, store):
        with calling(looking_up(), store, said=False) as app:
            app.invoke({}, thread_id="t")
            with pytest.raises(InvalidCall, match=r"add_node\('calls', …, calls=\[…"):
                app.update_state("t", {"log": ["x"]}, namespace=SUN)

    @pytest.mark.parametrize(
        ("namespace", "values", "as_node", "cure"),
        [
            (("calls:look up:moon",), {}, None, "no graph 'calls:look up:moon' has begun"),
            (SUN, {"lag": []}, "a", "lag"),
            (SUN, {}, START, "give one of its nodes"),
            (SUN, {}, "nope", "nope"),
        ],
    )
    def test_what_does_not_fit_is_refused(self, store, namespace, values, as_node, cure):
        with calling(looking_up(), store) as app:
            app.invoke({}, thread_id="t")
            with pytest.raises((InvalidCall, InvalidUpdate), match=cure):
                app.update_state("t", values, as_node, namespace=namespace)
            assert app.get_state("t", namespace=SUN).values["log"] == ["in", "a"]


class TestSaying:
    @pytest.mark.parametrize(
        ("calls", "cure"),
        [
            (7, "calls names 7; give a list of compiled graphs"),
            ([Graph(Log, name="open")], "give a list of compiled graphs"),
            ([looking_up(), looking_up()], "two of the graphs in calls have one name"),
        ],
    )
    def test_what_a_node_says_that_it_calls_is_judged(self, calls, cure):
        with pytest.raises(InvalidGraph, match=cure):
            Graph(Log, name="top").add_node("n", wrote("n"), calls=calls)

    def test_one_with_a_checkpointer_cannot_be_called(self, memory):
        kept = line("kept", a=wrote("a")).compile(checkpointer=memory)
        with pytest.raises(InvalidGraph, match="has a checkpointer"):
            Graph(Log, name="top").add_node("n", wrote("n"), calls=[kept])

    def test_a_graph_as_a_node_calls_nothing_itself(self):
        with pytest.raises(InvalidGraph, match="a graph as a node has nodes of its own"):
            Graph(Log, name="top").add_node("n", looking_up(), calls=[looking_up()])

    def test_what_is_stored_stays_readable_when_types_change(self, place):
        """A struct of another shape is plain data."""

        class Item(msgspec.Struct):
            n: int

        class Other(msgspec.Struct):
            m: int

        def app(kind):
            class State(Log, total=False):
                item: kind

            child = Graph(State, name="look up").add_node("a", lambda _s: {"item": Item(1)})
            child.add_node("asks", asks).add_edge(START, "a").add_edge("a", "asks")
            return calling(child.compile(), place.open())

        with app(Item) as first:
            first.invoke({}, thread_id="t")
        with app(Other) as second:
            state = second.get_state("t", namespace=SUN)
            assert state.values["item"] == {"n": 1}
            assert "plain data" in state.graph_error
