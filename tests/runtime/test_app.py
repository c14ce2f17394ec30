"""The faces of `compile()`: with and without a store, private runtimes and public ones."""

from __future__ import annotations

import gc

import pytest

from beamweaver import END, START, Completed, Graph, Invoke, Runtime, interrupt
from beamweaver.checkpoint import LMDBCheckpointer, MemoryCheckpointer
from beamweaver.errors import (
    InterruptWithoutCheckpointer,
    InvalidCall,
    InvalidThreadId,
    NoCheckpointer,
    NodeFailed,
    StoreDiffers,
)
from beamweaver.runtime import places
from supervisors.testing import eventually
from tests.runtime.kit import Caller, Counted, Gate, line, wrote


def double() -> Graph:
    graph = Graph(name="double").add_node("double", lambda s: {"n": s["n"] * 2})
    return graph.add_edge(START, "double").add_edge("double", END)


@pytest.fixture
def bare():
    with double().compile() as app:
        yield app


class TestWithoutACheckpointer:
    def test_a_call_runs_and_its_thread_has_an_id(self, bare):
        outcome = bare.invoke({"n": 21})
        assert outcome.state == {"n": 42}
        assert outcome.thread_id

    def test_each_call_is_a_new_thread(self, bare):
        first, second = bare.invoke({"n": 1}), bare.invoke({"n": 2})
        assert first.thread_id != second.thread_id
        assert second.state == {"n": 4}

    def test_nothing_of_a_call_stays_in_memory(self, bare):
        for n in range(5):
            bare.invoke({"n": n})
        core = bare._core
        eventually(lambda: list(core.store.threads()) == [] and core.hub.actors == {})

    @pytest.mark.parametrize(
        "call",
        [
            lambda app: app.invoke({"n": 1}, thread_id="t"),
            lambda app: app.invoke({"n": 1}, config={"configurable": {"thread_id": "t"}}),
            lambda app: app.resume("yes", thread_id="t"),
            lambda app: app.get_state("t"),
            lambda app: app.cancel("t"),
            lambda app: app.thread("t"),
        ],
        ids=["invoke", "config", "resume", "get_state", "cancel", "thread"],
    )
    def test_what_names_a_thread_is_no_checkpointer(self, bare, call):
        with pytest.raises(NoCheckpointer, match="compile\\(checkpointer="):
            call(bare)

    def test_a_question_is_an_error_at_once_reference_q(self):
        with line("g", a=lambda _s: {"log": [interrupt("?")]}).compile() as app:
            with pytest.raises(NodeFailed, match="no checkpointer") as caught:
                app.invoke({"n": 1})
        assert isinstance(caught.value.__cause__, InterruptWithoutCheckpointer)

    def test_a_failed_call_leaves_nothing(self):
        def fail(_state):
            raise ValueError("no")

        with line("g", a=fail).compile() as app:
            with pytest.raises(NodeFailed):
                app.invoke({"n": 1})
            eventually(lambda: list(app._core.store.threads()) == [])


class TestThreadIds:
    def test_no_thread_id_makes_one_that_is_in_the_outcome_reference_p(self, store):
        with double().compile(checkpointer=store) as app:
            made = app.invoke({"n": 1})
            assert app.get_state(made.thread_id).values == {"n": 2}

    def test_the_config_form_names_the_same_thread(self, store):
        with double().compile(checkpointer=store) as app:
            app.invoke({"n": 1}, config={"configurable": {"thread_id": "t"}})
            assert app.get_state("t").values == {"n": 2}
            assert app.get_state(config={"configurable": {"thread_id": "t"}}).values == {"n": 2}

    def test_two_forms_that_differ_are_refused(self, memory):
        with double().compile(checkpointer=memory) as app, pytest.raises(InvalidCall, match="'u'"):
            app.invoke({"n": 1}, thread_id="t", config={"configurable": {"thread_id": "u"}})

    @pytest.mark.parametrize("config", [{}, {"configurable": {}}, {"thread_id": "t"}, 7])
    def test_a_config_of_another_shape_is_refused(self, memory, config):
        with (
            double().compile(checkpointer=memory) as app,
            pytest.raises(InvalidCall, match="config"),
        ):
            app.invoke({"n": 1}, config=config)

    @pytest.mark.parametrize("name", ["", 7, "a" * 257, "é" * 129, "a\0b", "\ud800", None])
    def test_an_unfit_thread_id_is_refused_peers_61(self, memory, name):
        with double().compile(checkpointer=memory) as app:
            with Runtime(memory, graphs=[app]) as runtime, pytest.raises(InvalidThreadId):
                runtime.thread(name)
            if name is not None:
                with pytest.raises(InvalidThreadId):
                    app.invoke({"n": 1}, thread_id=name)

    @pytest.mark.parametrize("name", [" ", "a/b", "ä" * 128, "../..", "🧵", "a\nb"])
    def test_an_odd_thread_id_is_fine(self, store, name):
        with double().compile(checkpointer=store) as app:
            assert app.invoke({"n": 1}, thread_id=name).thread_id == name
            assert app.get_state(name).values == {"n": 2}


class TestPrivateRuntimes:
    def test_none_starts_before_the_first_call(self, memory):
        double().compile(checkpointer=memory)
        assert places.core_of(memory.identity) is None

    def test_apps_of_one_store_share_one(self, store):
        one, two = (
            double().compile(checkpointer=store),
            line("g", a=wrote("a")).compile(checkpointer=store),
        )
        with one, two:
            one.invoke({"n": 1}, thread_id="t1")
            two.invoke({"n": 1}, thread_id="t2")
            assert one._core is two._core

    def test_apps_on_two_checkpointers_of_one_path_share_one(self, tmp_path):
        path = tmp_path / "state.lmdb"
        one = double().compile(checkpointer=LMDBCheckpointer(path))
        two = line("g", a=wrote("a")).compile(checkpointer=LMDBCheckpointer(path))
        with one, two:
            one.invoke({"n": 1}, thread_id="t1")
            two.invoke({"n": 1}, thread_id="t2")
            assert one._core is two._core

    def test_the_last_app_closes_it(self, store):
        one, two = (
            double().compile(checkpointer=store),
            line("g", a=wrote("a")).compile(checkpointer=store),
        )
        one.invoke({"n": 1}, thread_id="t1")
        two.invoke({"n": 1}, thread_id="t2")
        core = one._core
        one.close()
        assert not core.closed
        assert two.invoke({"n": 1}, thread_id="t3").state["log"] == ["a"]
        two.close()
        assert core.closed

    def test_close_is_idempotent_and_the_next_call_opens_again(self, store):
        app = double().compile(checkpointer=store)
        app.close()
        with app:
            app.invoke({"n": 1}, thread_id="t")
        app.close()
        with app:
            assert app.get_state("t").values == {"n": 2}

    def test_two_memory_stores_are_two_places(self):
        one = double().compile(checkpointer=MemoryCheckpointer())
        two = double().compile(checkpointer=MemoryCheckpointer())
        with one, two:
            one.invoke({"n": 1}, thread_id="t")
            assert two.get_state("t") is None

    def test_an_app_that_is_forgotten_is_not_kept_alive_by_its_runtime_after_close(self, memory):
        app = double().compile(checkpointer=memory)
        with app:
            app.invoke({"n": 1}, thread_id="t")
        core = app._core
        del app
        gc.collect()
        assert core is None


class TestARuntimeTakesOver:
    def test_the_private_runtimes_thread_goes_on(self, store):
        gate = Gate({"log": ["gate"]})
        app = line("g", a=gate, b=wrote("b")).compile(checkpointer=store)
        waiting = Caller(app.invoke, {"n": 1}, thread_id="t")
        gate.wait()
        with Runtime(store, graphs=[app]) as runtime:
            joined = Caller(runtime.thread("t").ask, Invoke({"n": 2}))
            gate.open()
            assert waiting.join().state["log"] == ["gate", "b"]
            assert joined.join().state["n"] == 2
        assert gate.runs == 2

    def test_calls_on_an_app_go_through_the_runtime_that_owns_its_store(self, store):
        app = double().compile(checkpointer=store)
        with Runtime(store, graphs=[app]) as runtime:
            assert app.invoke({"n": 1}, thread_id="t").state == {"n": 2}
            assert app._core is runtime._core

    def test_an_app_of_another_graph_joins_the_runtime_of_its_store(self, store):
        app = double().compile(checkpointer=store)
        with Runtime(store):
            assert app.invoke({"n": 1}, thread_id="t").state == {"n": 2}

    def test_closing_the_app_leaves_the_runtime_up(self, store):
        app = double().compile(checkpointer=store)
        with Runtime(store, graphs=[app]) as runtime:
            app.invoke({"n": 1}, thread_id="t")
            app.close()
            assert isinstance(runtime.thread("t").ask(Invoke({"n": 5})), Completed)

    def test_after_the_runtimes_end_the_app_starts_a_private_one(self, store):
        app = double().compile(checkpointer=store)
        with Runtime(store, graphs=[app]):
            app.invoke({"n": 1}, thread_id="t")
        with app:
            assert app.get_state("t").values == {"n": 2}

    def test_it_takes_up_what_the_private_one_left_alone(self, place):
        failing = [True]

        def flaky(_state):
            if failing:
                raise KeyboardInterrupt  # a body cut by hand
            return {"log": ["a"]}

        node = Counted(flaky)
        app = line("g", a=node).compile(checkpointer=place.open())
        with app, pytest.raises(NodeFailed):
            app.invoke({"n": 1}, thread_id="t")
        failing.clear()
        with Runtime(place.open(), graphs=[app]) as runtime:
            assert runtime.get_state("t").status == "failed", "a failed thread waits for its caller"
            assert runtime.thread("t").ask(Invoke({"n": 1})).state["log"] == ["a"]


def test_a_graph_of_another_store_differs(tmp_path, memory):
    app = double().compile(checkpointer=LMDBCheckpointer(tmp_path / "other.lmdb"))
    with pytest.raises(StoreDiffers, match="'double'"):
        Runtime(memory, graphs=[app])
    with Runtime(memory) as runtime:
        with pytest.raises(StoreDiffers):
            runtime.register(app)
        with pytest.raises(StoreDiffers):
            runtime.thread("t", graph=app)
