"""The steps of graphs inside of tasks, read after the step around them has closed."""

from __future__ import annotations

import pytest

from beamweaver import START, Graph
from beamweaver.checkpoint import LMDBCheckpointer
from beamweaver.checkpoint.verify import verify
from beamweaver.errors import InvalidCall
from tests.runtime.kit import Log, line, wrote


def app_of(store, **options):
    """x, then a graph of a, b and c, then y; twice if the run says so."""
    child = line("child", a=wrote("a"), b=wrote("b"), c=wrote("c")).compile()
    graph = Graph(Log, name="top").add_node("x", wrote("x")).add_node("child", child)
    graph.add_node("y", wrote("y")).add_edge(START, "x").add_edge("x", "child")
    graph.add_edge("child", "y").add_edge("y", "child", max_runs=1, when=lambda s: bool(s.get("n")))
    return graph.compile(checkpointer=store, **options)


def logs(app, **options):
    """The logs of the child's steps, newest first, in a run of a new process."""
    found = app.get_state_history("t", namespace=("child",), **options)
    return [state.values["log"] for state in found]


class TestAfterItsStep:
    def test_its_steps_are_read_newest_first(self, place):
        with app_of(place.open()) as app:
            app.invoke({}, thread_id="t")
        with app_of(place.open()) as app:
            assert logs(app) == [["x", "a", "b", "c"], ["x", "a", "b"], ["x", "a"], ["x"]]
            assert logs(app, limit=2) == [["x", "a", "b", "c"], ["x", "a", "b"]]
            state = next(iter(app.get_state_history("t", namespace=("child",))))
        assert (state.metadata["namespace"], state.next, state.step) == (("child",), (), 3)

    def test_those_of_each_time_that_it_ran(self, store):
        with app_of(store) as app:
            app.invoke({"n": 1}, thread_id="t")
            app.invoke({"n": 0}, thread_id="t")
            assert [len(log) for log in logs(app)] == [13, 12, 11, 10, 8, 7, 6, 5, 4, 3, 2, 1]

    def test_the_history_of_the_thread_has_none_of_them(self, store):
        with app_of(store) as app:
            app.invoke({}, thread_id="t")
            assert [state.next for state in app.get_state_history("t")] == [
                (), ("y",), ("child",), ("x",),
            ]  # fmt: skip

    def test_they_are_those_of_graphs_at_every_depth(self, store):
        grand = line("grand", a=wrote("a"), b=wrote("b")).compile()
        child = line("child", first=wrote("1"), grand=grand).compile()
        with line("top", child=child).compile(checkpointer=store) as app:
            app.invoke({}, thread_id="t")
            found = app.get_state_history("t", namespace=("child", "grand"))
            assert [state.values["log"] for state in found] == [["1", "a", "b"], ["1", "a"], ["1"]]


class TestWhatElseIsTrue:
    def test_a_head_that_is_moved_back_is_raw_and_begins_the_graph_anew(self, store):
        """`graph 47`."""
        with app_of(store) as app:
            app.invoke({}, thread_id="t")
            (before,) = [s for s in app.get_state_history("t") if s.next == ("child",)]
            app.set_head("t", before.config["configurable"]["checkpoint_id"])
            assert app.get_state("t", namespace=("child",)) is None
            assert app.get_state("t").values["log"] == ["x"]
            assert app.invoke(None, thread_id="t").state["log"] == ["x", "a", "b", "c", "y"]
            assert len(logs(app)) == 8

    def test_a_copy_has_them_and_a_pruned_thread_has_them_no_more(self, store):
        with app_of(store) as app:
            app.invoke({}, thread_id="t")
            app.copy_thread("t", "u")
            app.prune(["t"], keep_last=1)
            assert logs(app) == []
            assert len(list(app.get_state_history("u", namespace=("child",)))) == 4
            assert app.invoke({}, thread_id="t").state["log"][:5] == ["x", "a", "b", "c", "y"]

    def test_a_store_that_has_them_is_whole(self, disk):
        with app_of(disk.open()) as app:
            app.invoke({"n": 1}, thread_id="t")
        disk.close()
        assert verify(disk.path).sound

    def test_a_shallow_store_has_none(self, tmp_path):
        store = LMDBCheckpointer(tmp_path / "s.lmdb", shallow=True)
        with app_of(store) as app:
            app.invoke({}, thread_id="t")
            assert logs(app) == []
        store.close()

    def test_those_of_a_version_whose_types_were_others_are_plain_data(self, place):
        with app_of(place.open()) as app:
            app.invoke({"n": 0}, thread_id="t")
        child = Graph(name="child").add_node("a", wrote("a")).add_edge(START, "a").compile()
        graph = Graph(name="top").add_node("child", child).add_edge(START, "child")
        with graph.compile(checkpointer=place.open()) as app:
            assert logs(app)[0] == ["x", "a", "b", "c"]


class TestFilters:
    def test_one_by_what_no_checkpoint_has_is_an_error(self, store):
        with app_of(store) as app:
            app.invoke({}, thread_id="t", metadata={"user": "ann"})
            assert len(list(app.get_state_history("t", filter={"user": "ann"}))) == 4
            assert list(app.get_state_history("t", filter={"user": "bob"})) == []
            assert list(app.get_state_history("t", filter={"tags": ["x"]})) == []
            with pytest.raises(
                InvalidCall, match="'usr', which no checkpoint .* Did you mean 'user'"
            ):
                list(app.get_state_history("t", filter={"usr": "ann"}))

    def test_of_a_thread_that_does_not_exist_it_gives_nothing(self, store):
        with app_of(store) as app:
            assert list(app.get_state_history("no", filter={"usr": "ann"})) == []
