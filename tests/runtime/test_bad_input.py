"""Mistakes of the first screen: each is a clear error at once, through the public API."""

from __future__ import annotations

from pathlib import Path

import pytest

from beamweaver import START, Command, Graph, Invoke, Resume, Runtime, Send, interrupt
from beamweaver.checkpoint import LMDBCheckpointer, MemoryCheckpointer
from beamweaver.errors import (
    InvalidCall,
    InvalidGraph,
    InvalidThreadId,
    InvalidUpdate,
    NodeFailed,
    NotAStore,
    SerializationError,
    StoreUnavailable,
    UnknownChannel,
    UnknownTarget,
)
from beamweaver.limits import Limits
from tests.runtime.kit import Log, line, star, wrote


def run(store, **nodes):
    with line("g", **nodes).compile(checkpointer=store) as app:
        return app.invoke({"n": 1}, thread_id="t")


def test_an_edge_to_an_unknown_node_names_it_and_the_nearest():
    graph = Graph(name="g").add_node("summarize", wrote("s")).add_edge(START, "summarise")
    with pytest.raises(InvalidGraph, match="'summarise'.*'summarize'"):
        graph.compile()


def test_all_faults_of_a_graph_come_at_once():
    graph = Graph(name="g").add_node("a", wrote("a")).add_edge(START, "x").add_edge("a", "y")
    with pytest.raises(InvalidGraph) as caught:
        graph.compile()
    assert len(caught.value.faults) >= 2


@pytest.mark.parametrize("returned", [5, "text", [1], object, ("log", 1)], ids=repr)
def test_a_node_that_returns_no_update_is_named(store, returned):
    with pytest.raises(InvalidUpdate, match="'a'"):
        run(store, a=lambda _s: returned)


def test_two_writers_of_a_key_are_named(store):
    graph = star("g", a=lambda _s: {"n": 1}, b=lambda _s: {"n": 2})
    with graph.compile(checkpointer=store) as app:
        with pytest.raises(InvalidUpdate, match="'n'") as caught:
            app.invoke({}, thread_id="t")
    assert "'a'" in str(caught.value)
    assert "'b'" in str(caught.value)


def test_a_key_that_the_state_lacks_is_named_with_the_nearest(store):
    with pytest.raises(UnknownChannel, match="'lgo'.*'log'"):
        run(store, a=lambda _s: {"lgo": []})


def test_a_value_of_the_wrong_type_is_named(store):
    with pytest.raises(InvalidUpdate, match="'n'"):
        run(store, a=lambda _s: {"n": "oops"})


def test_a_value_that_cannot_be_stored_is_named_with_its_path(store):
    with pytest.raises(NodeFailed, match="'a'") as caught:
        run(store, a=lambda _s: {"log": [{"deep": lambda: None}]})
    error = caught.value.__cause__
    assert isinstance(error, SerializationError)
    assert "deep" in error.path


def test_a_router_to_an_unknown_node_is_named(store):
    graph = Graph(Log, name="g").add_node("a", wrote("a")).add_node("sink", wrote("s"))
    graph.add_edge(START, "a").add_conditional_edges("a", lambda _s: "snik", ["sink"])
    with graph.compile(checkpointer=store) as app, pytest.raises(UnknownTarget, match="'snik'"):
        app.invoke({"n": 1}, thread_id="t")


def test_an_input_with_an_unknown_key_is_refused(store):
    with line("g", a=wrote("a")).compile(checkpointer=store) as app:
        with pytest.raises(UnknownChannel, match="'m'"):
            app.invoke({"m": 1}, thread_id="t")
        assert app.get_state("t") is None


@pytest.mark.parametrize("checkpointer", ["state.lmdb", 7, Graph], ids=repr)
def test_a_checkpointer_that_is_none_is_refused(checkpointer):
    with pytest.raises(InvalidCall, match="LMDBCheckpointer"):
        line("g", a=wrote("a")).compile(checkpointer=checkpointer)


def test_a_message_that_is_none_is_refused(memory):
    with Runtime(memory, graphs=[line("g", a=wrote("a")).compile()]) as runtime:
        with pytest.raises(InvalidCall, match="Invoke"):
            runtime.thread("t").tell("hello")


class TestStores:
    def start(self, path):
        with Runtime(path):
            pass

    def test_a_file_is_no_store(self, tmp_path):
        path = tmp_path / "notes.txt"
        path.write_text("mine")
        with pytest.raises(NotAStore, match=r"notes\.txt"):
            self.start(path)
        assert path.read_text() == "mine"

    def test_a_folder_of_another_program_is_no_store(self, tmp_path):
        (tmp_path / "data").mkdir()
        (tmp_path / "data" / "readme").write_text("mine")
        with pytest.raises(NotAStore):
            self.start(tmp_path / "data")
        assert [path.name for path in (tmp_path / "data").iterdir()] == ["readme"]

    def test_a_folder_without_a_parent_is_unavailable(self, tmp_path):
        with pytest.raises(StoreUnavailable, match="missing"):
            self.start(tmp_path / "missing" / "state.lmdb")

    @pytest.mark.skipif(not Path("/proc").is_dir(), reason="needs a folder that nobody can write")
    def test_a_path_that_cannot_be_written_is_unavailable(self):
        with pytest.raises(StoreUnavailable, match="/proc"):
            self.start("/proc/state.lmdb")

    def test_an_app_says_it_at_its_first_call(self, tmp_path):
        (tmp_path / "folder").mkdir()
        store = LMDBCheckpointer(tmp_path / "folder" / "state.lmdb")
        (tmp_path / "folder").rmdir()
        app = line("g", a=wrote("a")).compile(checkpointer=store)
        with app, pytest.raises(StoreUnavailable):
            app.invoke({"n": 1}, thread_id="t")

    def test_after_a_failed_start_the_place_is_free(self, tmp_path):
        (tmp_path / "folder").mkdir()
        app = line("g", a=wrote("a")).compile()
        runtime = Runtime(tmp_path / "folder" / "state.lmdb", graphs=[app])
        (tmp_path / "folder").rmdir()
        with pytest.raises(StoreUnavailable):
            runtime.start()
        (tmp_path / "folder").mkdir()
        with Runtime(tmp_path / "folder" / "state.lmdb", graphs=[app]) as again:
            assert again.thread("t").ask(Invoke({"n": 1})).state["log"] == ["a"]


def test_a_listener_that_raises_harms_nobody(store):
    def broken(_event):
        raise ValueError("listener")

    with Runtime(store, graphs=[line("g", a=wrote("a")).compile()]) as runtime:
        unsubscribe = runtime.subscribe(broken)
        assert runtime.thread("t").ask(Invoke({"n": 1})).state["log"] == ["a"]
        unsubscribe()


@pytest.mark.parametrize(
    "thread_id", ["\ud800", "\ud800" * 5_000, "a\0b"], ids=["odd", "long", "nul"]
)
def test_a_thread_id_that_no_store_can_keep_is_named(memory, thread_id):
    with Runtime(memory) as runtime, pytest.raises(InvalidThreadId, match="thread_id"):
        runtime.thread(thread_id)


@pytest.mark.parametrize("run_id", ["\ud800", "a\0b", ""], ids=["odd", "nul", "empty"])
def test_a_run_id_that_no_store_can_keep_is_named(memory, run_id):
    app = line("g", a=wrote("a")).compile()
    with Runtime(memory, graphs=[app]) as runtime, pytest.raises(InvalidCall, match="run_id"):
        runtime.thread("t").ask(Invoke({"n": 1}, run_id=run_id))


def test_a_key_that_only_a_send_has_is_said_of_the_send(store):
    with pytest.raises(UnknownChannel, match="made a Send to 'b' with the key 'm'"):
        run(store, a=lambda _s: Send("b", {"m": 1}), b=wrote("b"))


@pytest.mark.parametrize("timeout", ["3", -1, float("nan"), True, [1]])
def test_a_timeout_that_is_none_is_told_before_anything_runs(timeout):
    ran = []
    app = line("g", a=lambda _state: ran.append("a")).compile()
    with Runtime(MemoryCheckpointer(), graphs=[app]) as runtime:
        with pytest.raises(InvalidCall, match="timeout is .*give seconds from 0 on"):
            runtime.thread("t").ask(Invoke({"n": 1}), timeout=timeout)
        with pytest.raises(InvalidCall, match="timeout is"):
            runtime.drain(timeout)
    assert ran == []


@pytest.mark.parametrize(
    ("name", "value", "cure"),
    [
        ("ahead_commits", "9", "give a whole number from 1 on"),
        ("ahead_bytes", None, "give a whole number from 1 on"),
        ("inbox", -1, "give a whole number from 1 on"),
        ("threads_running", 0, "give a whole number from 1 on"),
        ("threads_running", True, "give a whole number from 1 on"),
        ("threads_idle", -1, "give a whole number from 0 on"),
        ("message_key_seconds", "1d", "give more than 0 seconds"),
    ],
)
def test_a_limit_that_is_none_is_told_where_it_is_given(name, value, cure):
    with pytest.raises(ValueError, match=f"Limits {name} is {value!r}; {cure}"):
        Limits(**{name: value})


def test_limits_that_are_none_are_told():
    with pytest.raises(InvalidCall, match=r"limits is \{'inbox': 3\}; give Limits\(...\)"):
        Runtime(MemoryCheckpointer(), limits={"inbox": 3})


class TestPlacesOfUnstorableValues:
    """The message says which value it is that cannot be stored, and where in it the fault lies."""

    @pytest.fixture
    def asking(self, store):
        with line("g", a=lambda _s: interrupt("go on?")).compile(checkpointer=store) as app:
            app.invoke({"n": 1}, thread_id="t")
            yield app

    @pytest.mark.parametrize("message", [Resume, lambda answer: Invoke(Command(resume=answer))])
    def test_an_answer(self, asking, message):
        with pytest.raises(SerializationError, match=r"^the answer\.x is of type object"):
            asking.thread("t").ask(message({"x": object()}))

    def test_an_answer_that_is_told(self, asking):
        with pytest.raises(SerializationError, match=r"^the answer is of type object"):
            asking.thread("t").tell(Resume(object()))

    def test_an_answer_in_advance(self, asking):
        asked = asking.get_state("t").config["configurable"]["checkpoint_id"]
        with pytest.raises(SerializationError, match=r"^the call\.asked\[0\] is of type object"):
            asking.resume(object(), thread_id="t", checkpoint_id=asked, fork=True)

    def test_an_answer_with_a_key(self, asking):
        with pytest.raises(SerializationError, match=r"^the message\.answer\[0\] is of type"):
            asking.thread("t").tell(Resume(object()), idempotency_key="k")

    def test_a_question(self, store):
        with pytest.raises(NodeFailed, match=r"'a' .*: the question\[0\] is of type object"):
            run(store, a=lambda _s: interrupt([object()]))

    def test_what_is_noted_of_a_run(self, asking):
        with pytest.raises(SerializationError, match=r"^metadata\['user'\]\[1\] is of type object"):
            asking.invoke({"n": 1}, thread_id="u", metadata={"user": [1, object()]})


@pytest.mark.parametrize("answers", [["yes"], 3, "yes"])
def test_answers_that_are_no_map_are_named(store, answers):
    with line("g", a=wrote("a")).compile(checkpointer=store) as app:
        with pytest.raises(InvalidCall, match="^answers is .*; give a dict from question id"):
            app.resume(answers=answers, thread_id="t")


def test_one_graph_in_the_place_of_a_list_is_named(store):
    with pytest.raises(InvalidCall, match=r"give a list of compiled graphs: graphs=\[app\]"):
        Runtime(store, graphs=line("g", a=wrote("a")).compile())


def test_two_graphs_of_one_name_are_refused(store):
    first, second = (line("g", a=wrote("a")).compile() for _ in range(2))
    with pytest.raises(InvalidCall, match="two graphs named 'g'"):
        Runtime(store, graphs=[first, second])


@pytest.mark.parametrize("path", [3, None, ["state.lmdb"]])
def test_a_path_that_is_none_is_named(path):
    with pytest.raises(ValueError, match="^path is .*; give the path of a folder"):
        Runtime(path)


@pytest.mark.parametrize("option", ["max_bytes", "compress_above"])
@pytest.mark.parametrize("size", ["1G", 1.5, True, 0])
def test_a_size_that_is_no_number_of_bytes_is_named(tmp_path, option, size):
    with pytest.raises(ValueError, match=f"^{option} is .*; give a number of bytes, or None"):
        LMDBCheckpointer(tmp_path / "state.lmdb", **{option: size})


@pytest.mark.parametrize("listener", [3, None])
def test_a_listener_that_cannot_be_called_is_named(memory, listener):
    runtime = Runtime(memory)
    with pytest.raises(InvalidCall, match="^listener is .*; give a function of one event"):
        runtime.subscribe(listener)
    with runtime, pytest.raises(InvalidCall, match="^listener is "):
        runtime.subscribe(listener)


@pytest.mark.parametrize("option", ["max_restarts", "max_seconds"])
@pytest.mark.parametrize("value", [-1, "3", float("inf")])
def test_a_budget_of_restarts_that_is_none_is_named(memory, option, value):
    with pytest.raises(InvalidCall, match=f"^{option} is {value!r}; give "):
        Runtime(memory, **{option: value})
