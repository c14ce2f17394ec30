"""Looking back at threads, and cleaning up: histories, copies, deletions, prunings."""

from __future__ import annotations

import threading

import pytest

from beamweaver import Invoke, Runtime, interrupt
from beamweaver.checkpoint import LMDBCheckpointer, MemoryCheckpointer
from beamweaver.errors import (
    InvalidCall,
    NoCheckpointer,
    RuntimeStopped,
    StoreOwned,
    ThreadBusy,
    UnknownGraph,
    WrongGraph,
)
from beamweaver.limits import Limits
from beamweaver.runtime import hub
from supervisors.testing import eventually
from tests.runtime.kit import Boom, Caller, Gate, Place, line, simulated, wrote


def ids(states):
    return [state.config["configurable"]["checkpoint_id"] for state in states]


def two(name="g"):
    return line(name, a=wrote("a"), b=wrote("b"))


@pytest.fixture
def app(store):
    """An app whose thread t ran twice: as run one, then as run two."""
    with two().compile(checkpointer=store) as app:
        app.invoke({"n": 1}, thread_id="t", run_id="one")
        app.invoke({"n": 2}, thread_id="t", run_id="two")
        yield app


class TestHistory:
    def test_it_is_newest_first(self, app):
        seen = [(s.step, s.values["log"], s.next) for s in app.get_state_history("t")]
        assert [values for _, values, _ in seen] == [
            ["a", "b", "a", "b"],
            ["a", "b", "a"],
            ["a", "b"],
            ["a", "b"],
            ["a"],
            [],
        ]
        assert [following for _, _, following in seen] == [(), ("b",), ("a",)] * 2

    def test_each_checkpoint_is_the_one_that_its_id_reads(self, app):
        for state in app.get_state_history("t"):
            (id_,) = ids([state])
            assert app.get_state("t", id_) == state

    def test_each_names_its_parent(self, app):
        states = list(app.get_state_history("t"))
        parents = [s.parent_config for s in states]
        assert parents == [*[s.config for s in states[1:]], None]

    def test_a_limit_ends_it(self, app):
        everything = ids(app.get_state_history("t"))
        assert ids(app.get_state_history("t", limit=2)) == everything[:2]
        assert ids(app.get_state_history("t", limit=0)) == []

    def test_it_goes_on_before_a_checkpoint(self, app):
        everything = ids(app.get_state_history("t"))
        assert ids(app.get_state_history("t", before=everything[1])) == everything[2:]

    def test_it_goes_on_before_a_checkpoint_that_was_removed(self, app):
        everything = ids(app.get_state_history("t"))
        app.delete_runs("t", ["one"])
        assert ids(app.get_state_history("t", before=everything[2])) == []

    def test_a_filter_chooses_by_metadata(self, app):
        inputs = list(app.get_state_history("t", filter={"source": "input"}))
        assert [(s.metadata["run_id"], s.values["n"]) for s in inputs] == [("two", 2), ("one", 1)]

    def test_a_filter_may_name_several(self, app):
        (state,) = app.get_state_history("t", filter={"run_id": "one", "source": "loop"}, limit=1)
        assert state.values["log"] == ["a", "b"]

    def test_steps_are_in_the_metadata(self, app):
        (first, *_) = app.get_state_history("t")
        assert ids(app.get_state_history("t", filter={"step": first.step})) == ids([first])

    def test_it_is_lazy(self, app):
        states = app.get_state_history("t")
        newest = ids([next(states)])
        app.invoke({"n": 3}, thread_id="t")
        assert ids(states) == ids(app.get_state_history("t", before=newest[0]))

    def test_an_unknown_thread_has_none(self, app):
        assert list(app.get_state_history("u")) == []

    @pytest.mark.parametrize(
        "options",
        [{"limit": -1}, {"limit": "1"}, {"before": "x"}, {"before": 1}, {"filter": {1: 1}}],
        ids=repr,
    )
    def test_a_wrong_argument_is_refused_by_the_call(self, app, options):
        with pytest.raises(InvalidCall):
            app.get_state_history("t", **options)

    def test_it_is_read_while_the_thread_runs(self, store):
        gate = Gate()
        with line("g", a=wrote("a"), b=gate).compile(checkpointer=store) as app:
            waiting = Caller(app.invoke, {"n": 1}, thread_id="t")
            gate.wait()
            assert [s.next for s in app.get_state_history("t")] == [("b",), ("a",)]
            gate.open()
            waiting.join()

    def test_it_needs_no_ownership(self, disk):
        with two().compile(checkpointer=disk.open()) as app:
            app.invoke({"n": 1}, thread_id="t")
            reader = two().compile(checkpointer=disk.open())
            assert len(list(reader.get_state_history("t"))) == 3

    def test_another_graphs_thread_is_the_wrong_graph(self, app, store):
        states = two("h").compile(checkpointer=store).get_state_history("t")
        with pytest.raises(WrongGraph):
            next(states)

    def test_a_runtime_finds_the_graph(self, place):
        with Runtime(place.open()) as runtime:
            runtime.thread("t", two("h").compile()).ask(Invoke({"n": 1}))
            assert [s.next for s in runtime.get_state_history("t")] == [(), ("b",), ("a",)]

    def test_a_runtime_without_the_graph_says_so(self, place):
        with two().compile(checkpointer=place.open()) as app:
            app.invoke({"n": 1}, thread_id="t")
        with Runtime(place.open()) as runtime, pytest.raises(UnknownGraph):
            next(runtime.get_state_history("t"))

    def test_without_a_store_there_is_none(self):
        with pytest.raises(NoCheckpointer):
            two().compile().get_state_history("t")


class TestDelete:
    def test_a_deleted_thread_is_gone(self, app):
        assert app.delete_thread("t") is True
        assert app.get_state("t") is None
        assert list(app.get_state_history("t")) == []

    def test_one_that_does_not_exist_is_told(self, app):
        assert app.delete_thread("u") is False

    def test_made_again_it_begins_anew_with_new_ids(self, app):
        before = app.get_state("t")
        old = set(ids(app.get_state_history("t")))
        app.delete_thread("t")
        outcome = app.invoke({"n": 1}, thread_id="t", run_id="one")
        assert outcome.state["log"] == ["a", "b"]
        assert not old & set(ids(app.get_state_history("t")))
        assert app.get_state("t", *ids([before])) is None

    def test_an_old_checkpoint_id_reads_nothing_of_the_new_thread(self, app):
        *_, oldest = ids(app.get_state_history("t"))
        app.delete_thread("t")
        app.invoke({"n": 1}, thread_id="t")
        assert app.get_state("t", oldest) is None

    def test_one_that_runs_is_busy_and_goes_on(self, store):
        gate = Gate({"log": ["b"]})
        with line("g", a=wrote("a"), b=gate).compile(checkpointer=store) as app:
            waiting = Caller(app.invoke, {"n": 1}, thread_id="t", run_id="r")
            gate.wait()
            with pytest.raises(ThreadBusy, match="'r'"):
                app.delete_thread("t")
            gate.open()
            assert waiting.join().state["log"] == ["a", "b"]

    def test_a_cancelled_one_can_be_deleted(self, store):
        gate = Gate()
        with line("g", a=gate).compile(checkpointer=store) as app:
            waiting = Caller(app.invoke, {"n": 1}, thread_id="t")
            gate.wait()
            app.cancel("t")
            waiting.join()
            assert app.delete_thread("t")
            assert app.get_state("t") is None

    def test_one_that_waits_for_an_answer_can_be_deleted(self, store):
        with line("g", a=lambda _s: {"log": [interrupt("?")]}).compile(checkpointer=store) as app:
            app.invoke({"n": 1}, thread_id="t")
            assert app.delete_thread("t")
            (question,) = app.invoke({"n": 1}, thread_id="t").interrupts
            assert question.value == "?"

    def test_a_commit_on_its_way_does_not_bring_it_back(self, place):
        """The call is taken up again, and begins a new thread."""
        entered, go_on = threading.Event(), threading.Event()
        armed = []

        def fault(point, _thread=""):
            if point == "writer.synced" and armed:
                armed.clear()
                entered.set()
                assert go_on.wait(10)

        with Runtime(place.open(), graphs=[two().compile()], fault=fault) as runtime:
            old = runtime.thread("t").ask(Invoke({"n": 1}))
            armed.append(True)
            other = Caller(runtime.thread("other").ask, Invoke({"n": 1}))
            assert entered.wait(10)  # the writer stands: its mailbox keeps what comes, in order
            mailbox = runtime._core.hub.writer
            deleting = Caller(runtime.delete_thread, "t")
            eventually(lambda: len(mailbox.q) == 1)
            calling = Caller(runtime.thread("t").ask, Invoke({"n": 2}))
            eventually(lambda: len(mailbox.q) == 2)
            go_on.set()
            assert deleting.join() is True
            new = calling.join()
            other.join()
            assert (old.state["log"], new.state["log"]) == (["a", "b"], ["a", "b"])
            assert len(list(runtime.get_state_history("t"))) == 3

    def test_a_node_cannot_delete_its_own_thread(self, store):
        held = []

        def delete(_state):
            try:
                held[0].delete_thread("t")
            except ThreadBusy as error:
                return {"log": [error.code]}

        held.append(line("g", a=delete).compile(checkpointer=store))
        with held[0] as app:
            assert app.invoke({"n": 1}, thread_id="t").state["log"] == ["thread_busy"]

    def test_a_store_that_syncs_deletes_too(self, tmp_path):
        store = LMDBCheckpointer(tmp_path / "state.lmdb")
        with two().compile(checkpointer=store) as app:
            app.invoke({"n": 1}, thread_id="t")
            assert app.delete_thread("t")
        store.close()

    @pytest.mark.parametrize("seed", range(5))
    def test_a_simulated_runtime_rests_after_changes(self, seed):
        with simulated(MemoryCheckpointer(), seed, graphs=[two().compile()]) as runtime:
            thread = runtime.thread("t")
            thread.ask(Invoke({"n": 1}))
            assert runtime.copy_thread("t", "u")
            assert runtime.delete_thread("t")
            assert thread.ask(Invoke({"n": 1})).state["log"] == ["a", "b"]
            assert runtime.drain(5)

    def test_another_graphs_thread_is_left_alone(self, app, store):
        with two("h").compile(checkpointer=store) as other:
            with pytest.raises(WrongGraph):
                other.delete_thread("t")
        assert app.get_state("t") is not None

    def test_a_runtime_deletes_threads_of_graphs_that_it_lacks(self, place):
        with two().compile(checkpointer=place.open()) as app:
            app.invoke({"n": 1}, thread_id="t")
        store = place.open()
        with Runtime(store) as runtime:
            assert runtime.delete_thread("t")
            assert store.load("t") is None


class TestCopy:
    def test_a_copy_has_the_history(self, app):
        assert app.copy_thread("t", "u") is True
        assert ids(app.get_state_history("u")) == ids(app.get_state_history("t"))

    def test_both_go_on_apart(self, app):
        app.copy_thread("t", "u")
        app.invoke({"n": 3}, thread_id="u")
        assert app.get_state("u").values["n"] == 3
        assert app.get_state("t").values["n"] == 2

    def test_an_unknown_source_is_told(self, app):
        assert app.copy_thread("x", "u") is False
        assert app.get_state("u") is None

    def test_a_target_that_exists_is_refused_and_left_alone(self, app):
        app.invoke({"n": 7}, thread_id="u")
        with pytest.raises(InvalidCall, match="'u' exists"):
            app.copy_thread("t", "u")
        assert app.get_state("u").values["n"] == 7

    def test_a_target_that_was_deleted_is_free(self, app):
        app.invoke({"n": 7}, thread_id="u")
        app.delete_thread("u")
        app.copy_thread("t", "u")
        assert app.invoke({"n": 3}, thread_id="u").state["log"] == ["a", "b"] * 3

    def test_a_running_thread_is_copied_as_cancelled(self, store):
        gate = Gate({"log": ["b"]})
        with line("g", a=wrote("a"), b=gate).compile(checkpointer=store) as app:
            waiting = Caller(app.invoke, {"n": 1}, thread_id="t")
            gate.wait()
            app.copy_thread("t", "u")
            assert app.get_state("u").status == "cancelled"
            gate.open()
            waiting.join()
            assert app.invoke(None, thread_id="u").state["log"] == ["a", "b"]

    def test_a_question_is_answered_in_both(self, store):
        with line("g", a=lambda _s: {"log": [interrupt("?")]}).compile(checkpointer=store) as app:
            (question,) = app.invoke({"n": 1}, thread_id="t").interrupts
            app.copy_thread("t", "u")
            assert app.resume({question.id: "x"}, thread_id="u").state["log"] == ["x"]
            assert app.resume({question.id: "y"}, thread_id="t").state["log"] == ["y"]


class TestDeleteRuns:
    def test_it_counts_the_checkpoints(self, app):
        assert app.delete_runs("t", ["one", "unknown"]) == 3
        assert {s.metadata["run_id"] for s in app.get_state_history("t")} == {"two"}

    def test_the_run_at_the_head_stays(self, app):
        assert app.delete_runs("t", ["two"]) == 0
        assert app.get_state("t").values["log"] == ["a", "b"] * 2

    def test_a_forgotten_run_id_begins_a_new_run(self, app):
        assert app.invoke({"n": 1}, thread_id="t", run_id="one").state["log"] == ["a", "b"]
        app.delete_runs("t", ["one"])
        again = app.invoke({"n": 1}, thread_id="t", run_id="one")
        assert again.state["log"] == ["a", "b"] * 3

    @pytest.mark.parametrize("run_ids", ["one", [1]], ids=repr)
    def test_ids_are_a_list_of_texts(self, app, run_ids):
        with pytest.raises(InvalidCall):
            app.delete_runs("t", run_ids)


class TestPrune:
    def test_it_counts_what_it_removed(self, app):
        assert app.prune() == 5
        assert [s.values["log"] for s in app.get_state_history("t")] == [["a", "b"] * 2]

    def test_the_newest_stay(self, app):
        everything = ids(app.get_state_history("t"))
        assert app.prune(["t", "unknown"], keep_last=4) == 2
        assert ids(app.get_state_history("t")) == everything[:4]

    def test_only_what_is_older_goes(self, app):
        assert app.prune(keep_last=0, older_than=3_600) == 0

    def test_the_thread_goes_on(self, app):
        app.prune()
        assert app.invoke({"n": 3}, thread_id="t").state["log"] == ["a", "b"] * 3

    def test_a_thread_that_runs_is_not_disturbed(self, store):
        gate = Gate({"log": ["b"]})
        with line("g", a=wrote("a"), b=gate, c=wrote("c")).compile(checkpointer=store) as app:
            waiting = Caller(app.invoke, {"n": 1}, thread_id="t")
            gate.wait()
            assert app.prune(["t"]) == 1
            gate.open()
            assert waiting.join().state["log"] == ["a", "b", "c"]
            assert app.get_state("t").values["log"] == ["a", "b", "c"]

    def test_an_app_prunes_its_own_threads_alone(self, app, store):
        with two("h").compile(checkpointer=store) as other:
            other.invoke({"n": 1}, thread_id="h")
            assert app.prune() == 5
            with pytest.raises(WrongGraph):
                app.prune(["h"])
            assert len(list(other.get_state_history("h"))) == 3

    def test_a_runtime_prunes_all(self, place):
        with Runtime(place.open(), graphs=[two().compile()]) as runtime:
            for name in "xyz":
                runtime.thread(name).ask(Invoke({"n": 1}))
            assert runtime.prune() == 6

    @pytest.mark.parametrize(
        "options",
        [{"keep_last": -1}, {"older_than": -1}, {"thread_ids": "t"}, {"keep_last": None}],
        ids=repr,
    )
    def test_a_wrong_argument_is_refused(self, app, options):
        with pytest.raises(InvalidCall):
            app.prune(**options)

    def test_it_outlives_the_writer(self, place):
        """What the writer's mailbox held when it crashed is done by the next writer."""
        entered, go_on = threading.Event(), threading.Event()
        armed = []

        def fault(point, _thread=""):
            if point == "writer.group" and armed:
                armed.clear()
                entered.set()
                assert go_on.wait(10)
                raise Boom(point)

        with Runtime(place.open(), graphs=[two().compile()], fault=fault) as runtime:
            runtime.thread("t").ask(Invoke({"n": 1}))
            armed.append(True)
            calling = Caller(runtime.thread("u").ask, Invoke({"n": 1}))
            assert entered.wait(10)
            pruning = Caller(runtime.prune, ["t"])
            eventually(lambda: runtime._core.hub.edits._waiting)
            go_on.set()
            assert pruning.join() == 2
            assert calling.join().state["log"] == ["a", "b"]

    def test_an_async_node_may_prune(self, store):
        held = []

        async def prune(_state):
            return {"log": [await held[0].aprune()]}

        held.append(line("g", a=wrote("a"), b=prune).compile(checkpointer=store))
        with held[0] as app:
            assert app.invoke({"n": 1}, thread_id="t").state["log"] == ["a", 1]

    def test_it_is_told_when_the_runtime_has_ended(self, memory):
        with Runtime(memory) as runtime:
            pass
        with pytest.raises(RuntimeStopped):
            runtime.prune()


class TestWaitingForAStore:
    def test_a_runtime_waits_until_another_one_closes(self, place):
        first = Runtime(place.open()).start()
        second = Runtime(place.open(), wait=10)
        starting = Caller(second.start)
        first.close()
        starting.join()
        second.close()

    def test_the_wait_is_over_on_the_stores_clock(self, tmp_path):
        place = Place("memory", tmp_path)
        store = place.open()
        now = [0.0]
        store.monotonic = lambda: now[0]
        store.pause = lambda seconds: now.__setitem__(0, now[0] + seconds)
        with Runtime(store), pytest.raises(StoreOwned):
            Runtime(store, wait=3).start()
        assert now[0] == pytest.approx(3)

    @pytest.mark.parametrize("options", [{"wait": -1}, {"takeover": "please"}], ids=repr)
    def test_an_option_that_is_none_is_refused(self, memory, options):
        with pytest.raises(InvalidCall):
            Runtime(memory, **options)

    def test_force_takes_a_store_from_its_owner(self, place):
        owner = place.open()
        owner.acquire()
        taken = place.open()
        with Runtime(taken, takeover="force", graphs=[two().compile()]) as runtime:
            assert runtime.thread("t").ask(Invoke({"n": 1})).state["log"] == ["a", "b"]


class TestLargeValues:
    @pytest.fixture
    def said(self, monkeypatch):
        entries = []
        monkeypatch.setattr(hub, "logger", lambda _name: Log(entries))
        return entries

    def test_a_large_value_is_said_once_a_node(self, memory, said):
        limits = Limits(value_bytes_warn=100)
        graph = line("g", a=lambda _s: {"note": "x" * 200}, b=lambda _s: {"note": "y" * 300})
        with Runtime(memory, graphs=[graph.compile()], limits=limits) as runtime:
            for _ in range(2):
                runtime.thread("t").ask(Invoke({"n": 1}))
        nodes = [entry["node"] for entry in said if entry["event"] == "value_is_large"]
        assert sorted(node for node in nodes if node) == ["a", "b"]

    def test_a_value_that_grows_is_said_by_its_channel(self, memory, said):
        graph = line("g", a=lambda _s: {"log": ["x" * 60]}).compile()
        with Runtime(memory, graphs=[graph], limits=Limits(value_bytes_warn=100)) as runtime:
            for _ in range(4):
                runtime.thread("t").ask(Invoke({"n": 1}))
        named = [(entry["graph"], entry["node"], entry["path"]) for entry in said]
        assert named == [("g", "", "log")]

    def test_values_of_one_name_that_grow_are_said_for_each_graph(self, memory, said):
        grown = [line(name, a=lambda _s: {"log": ["x" * 200]}).compile() for name in ("g", "h")]
        with Runtime(memory, graphs=grown, limits=Limits(value_bytes_warn=150)) as runtime:
            for graph in grown:
                runtime.thread(f"of {graph.name}", graph).ask(Invoke({"n": 1}))
        merged = [(entry["graph"], entry["path"]) for entry in said if not entry["node"]]
        assert merged == [("g", "log"), ("h", "log")]

    def test_an_input_and_the_result_of_a_call_are_said_with_graph_and_node(self, memory, said):
        child = line("child", a=lambda _s: {"note": "y" * 200}).compile()
        top = line("top", n=lambda _s, ctx: {"log": [ctx.call(child, {"n": 1})["note"][:1]]})
        with Runtime(
            memory, graphs=[top.compile()], limits=Limits(value_bytes_warn=100)
        ) as runtime:
            runtime.thread("t").ask(Invoke({"note": "x" * 200}))
        places = [(entry["graph"], entry["node"]) for entry in said]
        assert places == [("top", "START"), ("child", "a"), ("top", "n")]

    def test_the_input_of_a_call_is_one_of_the_graph_that_is_called(self, memory, said):
        child = line("child", a=lambda _s: {"note": "y"}).compile()
        top = line("top", n=lambda _s, ctx: {"log": [ctx.call(child, {"note": "x" * 200})["note"]]})
        with Runtime(
            memory, graphs=[top.compile()], limits=Limits(value_bytes_warn=100)
        ) as runtime:
            runtime.thread("t").ask(Invoke({"n": 1}))
        assert (said[0]["graph"], said[0]["node"]) == ("child", "START")

    def test_small_values_are_not_said(self, memory, said):
        with Runtime(memory, graphs=[two().compile()]) as runtime:
            runtime.thread("t").ask(Invoke({"n": 1}))
        assert [entry for entry in said if entry["event"] == "value_is_large"] == []


class Log:
    """A logger that keeps what it is told."""

    def __init__(self, said):
        self._said = said

    def __getattr__(self, _level):
        return lambda event, **fields: self._said.append({"event": event, **fields})
