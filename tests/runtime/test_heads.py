"""Heads that move between branches, and what cleaning up leaves of these."""

from __future__ import annotations

import operator
from typing import Annotated, TypedDict

import pytest

from beamweaver import (
    END,
    START,
    Continue,
    Graph,
    Invoke,
    Resume,
    Runtime,
    interrupt,
)
from beamweaver.checkpoint import LMDBCheckpointer, MemoryCheckpointer
from beamweaver.errors import (
    InvalidCall,
)
from tests.runtime.kit import Counted, line, star, wrote


class Sums(TypedDict, total=False):
    value: Annotated[int, operator.add]
    log: Annotated[list, operator.add]


def ids(states):
    return [state.config["configurable"]["checkpoint_id"] for state in states]


def adds(n):
    return lambda _state: {"value": n}


def ask(_state):
    return {"log": [interrupt("ok?")]}


def sums(**nodes):
    graph, before = Graph(Sums, name="g"), START
    for name, fn in nodes.items():
        graph.add_node(name, fn).add_edge(before, name)
        before = name
    return graph.add_edge(before, END)


@pytest.fixture
def app(store):
    """1 + 10 as a, + 100 as b."""
    with sums(a=adds(10), b=adds(100)).compile(checkpointer=store) as app:
        app.invoke({"value": 1}, thread_id="t", run_id="R")
        yield app


@pytest.fixture
def asking(store):
    with line("g", a=wrote("a"), ask=ask, b=wrote("b")).compile(checkpointer=store) as app:
        app.invoke({}, thread_id="t")
        yield app


def history(app):
    return ids(app.get_state_history("t"))


class TestHeads:
    def test_it_moves_to_and_fro(self, app):
        complete, before_b, before_a = history(app)
        app.invoke({"value": 5}, thread_id="t", checkpoint_id=before_b)
        (branch, *_) = history(app)
        assert app.set_head("t", complete) is True
        state = app.get_state("t")
        assert (ids([state]), state.status, state.values["value"]) == ([complete], "complete", 111)
        assert state.metadata["run_id"] == "R"
        app.set_head("t", branch)
        assert app.get_state("t").values["value"] == 116
        app.set_head("t", before_a)
        assert (app.get_state("t").next, app.get_state("t").status) == (("a",), "cancelled")

    def test_amid_a_branch_what_goes_on_is_a_new_one(self, app):
        complete, _before_b, before_a = history(app)
        app.set_head("t", before_a)
        assert app.invoke({"value": 5}, thread_id="t").state["value"] == 116
        assert len({id_.rpartition("-")[0] for id_ in history(app)}) == 2
        assert app.get_state("t", complete).values["value"] == 111

    def test_the_runs_keep_what_they_recorded(self, app):
        app.set_head("t", history(app)[1])
        assert app.invoke({}, thread_id="t", run_id="R").state["value"] == 111
        app.invoke({}, thread_id="t", run_id="S")
        assert app.invoke({}, thread_id="t", run_id="R").state["value"] == 111

    def test_runs_are_numbered_on(self, app):
        """A head at an older run, then two more runs: each is known by its own id."""
        app.invoke({"value": 0}, thread_id="t", run_id="S")
        app.set_head("t", history(app)[3])
        app.invoke({"value": 1000}, thread_id="t", run_id="T")
        app.invoke({"value": 1000}, thread_id="t", run_id="U")
        found = {run: app.invoke({}, thread_id="t", run_id=run).state["value"] for run in "RSTU"}
        assert found == {"R": 111, "S": 221, "T": 1221, "U": 2331}

    def test_at_a_failed_step_its_results_are_there(self, store):
        failing = [True]

        def bad(_state):
            if failing:
                failing.pop()
                raise ValueError("boom")
            return {"log": ["bad"]}

        ok = Counted(wrote("ok"))
        with star("g", ok=ok, bad=bad).compile(checkpointer=store) as app:
            app.invoke({}, thread_id="t", raises=False)
            (failed,) = ids([app.get_state("t")])
            app.invoke(None, thread_id="t", fork=True)
            app.set_head("t", failed)
            state = app.get_state("t")
            assert (state.status, state.next, state.values["log"]) == ("failed", ("bad",), ["ok"])
            assert app.invoke(None, thread_id="t").state["log"] == ["ok", "bad"]
            assert ok.runs == 2

    def test_it_is_there_in_the_next_process(self, place):
        graph = sums(a=adds(10), b=adds(100))
        with graph.compile(checkpointer=place.open()) as app:
            app.invoke({"value": 1}, thread_id="t")
            app.set_head("t", history(app)[1])
        with Runtime(place.open(), graphs=[graph.compile()]) as runtime:
            assert runtime.get_state("t").next == ("b",)
            assert runtime.thread("t").ask(Invoke(None)).state["value"] == 111

    def test_where_it_is_already_nothing_changes(self, asking):
        before = asking.get_state("t")
        asking.set_head("t", *ids([before]))
        assert asking.get_state("t") == before

    def test_an_unknown_thread_is_told(self, app):
        assert app.set_head("u", history(app)[0]) is False

    @pytest.mark.parametrize("checkpoint", ["x-0", "x-99", "nonsense", None, 3, f"x-{1 << 64}"])
    def test_a_checkpoint_that_is_none_is_refused(self, app, checkpoint):
        before = app.get_state("t")
        with pytest.raises(InvalidCall):
            app.set_head("t", checkpoint)
        assert app.get_state("t") == before


class TestCleaningUp:
    @pytest.fixture
    def branched(self, asking):
        """A branch that waits, beside the one that it left, which waits too; the head is the new one."""
        before_ask = history(asking)[1]
        (old,) = ids([asking.get_state("t")])
        (question,) = asking.invoke({"n": 1}, thread_id="t", checkpoint_id=before_ask).interrupts
        return asking, old, question

    def test_pruning_keeps_a_tip_of_each_branch(self, branched):
        app, old, question = branched
        app.prune(keep_last=1)
        app.set_head("t", old)
        assert app.get_state("t").interrupts
        app.set_head("t", history(app)[0])
        assert app.resume({question.id: "yes"}, thread_id="t").state["log"] == ["a", "yes", "b"]

    def test_pruning_all_keeps_the_head_and_its_question(self, branched):
        app, old, question = branched
        app.prune(keep_last=0)
        assert len(history(app)) == 1
        assert app.get_state("t", old) is None
        assert app.resume({question.id: "yes"}, thread_id="t").state == {
            "log": ["a", "yes", "b"],
            "n": 1,
        }

    def test_the_run_that_a_branch_left_may_be_deleted(self, branched):
        app, _old, question = branched
        first = [s.metadata["run_id"] for s in app.get_state_history("t")][-1]
        assert app.delete_runs("t", [first]) == 2
        assert app.resume({question.id: "yes"}, thread_id="t").state["log"] == ["a", "yes", "b"]

    def test_the_run_at_the_head_stays_even_if_it_is_asked_for(self, branched):
        app, old, _question = branched
        app.set_head("t", old)
        runs = {state.metadata["run_id"] for state in app.get_state_history("t")}
        app.delete_runs("t", runs)
        assert app.get_state("t").interrupts
        assert app.resume("yes", thread_id="t").state["log"] == ["a", "yes", "b"]

    @pytest.mark.parametrize("cleaned", ["deleted", "pruned"])
    def test_an_end_that_was_gone_on_from_begins_a_branch_though_what_followed_is_gone(
        self, store, cleaned
    ):
        """Else the tasks of two runs would have the same ids, and the same keys for the outside world."""
        keys = []

        def node(_state, ctx):
            keys.append(ctx.idempotency_key)
            return {"log": [ctx.run_id]}

        with line("g", node=node).compile(checkpointer=store) as app:
            app.invoke({}, thread_id="t", run_id="first")
            (end,) = ids([app.get_state("t")])
            app.invoke({}, thread_id="t", run_id="second")
            app.invoke({}, thread_id="t", run_id="third", checkpoint_id=end)
            (other,) = ids([app.get_state("t")])
            if cleaned == "deleted":
                assert app.delete_runs("t", ["second"]) == 2
            else:
                app.set_head("t", end)
                assert app.prune(keep_last=1) == 3
                app.set_head("t", other)
            app.set_head("t", end)
            assert app.invoke({}, thread_id="t").state["log"][0] == "first"
            assert len(keys) == len(set(keys)) == 4

    def test_a_copy_has_all_branches_and_the_head(self, branched):
        app, old, question = branched
        app.copy_thread("t", "u")
        assert ids(app.get_state_history("u")) == history(app)
        assert app.resume({question.id: "yes"}, thread_id="u").state["log"] == ["a", "yes", "b"]
        app.set_head("u", old)
        assert app.resume("old", thread_id="u").state["log"] == ["a", "old", "b"]
        assert app.get_state("t").interrupts == (question,)

    def test_an_edited_thread_can_be_pruned_and_goes_on(self, branched):
        app, _old, question = branched
        app.update_state("t", {"note": "x"})
        app.prune(keep_last=1)
        assert app.get_state("t").interrupts == (question,)
        assert app.resume("yes", thread_id="t").state["note"] == "x"

    def test_a_pruned_checkpoint_starts_no_branch(self, app):
        before_b = history(app)[1]
        app.prune()
        with pytest.raises(InvalidCall, match="any more"):
            app.invoke(None, thread_id="t", checkpoint_id=before_b)
        assert app.get_state("t").status == "complete"

    @pytest.mark.parametrize("kind", ["memory", "lmdb"])
    def test_a_shallow_store_keeps_the_branch(self, tmp_path, kind):
        store = MemoryCheckpointer(shallow=True)
        if kind == "lmdb":
            store = LMDBCheckpointer(tmp_path / "s", survives="process-kill", shallow=True)
        with line("g", a=wrote("a"), ask=ask).compile(checkpointer=store) as app:
            app.invoke({}, thread_id="t")
            app.invoke(None, thread_id="t", fork=True)
            app.update_state("t", {"n": 1})
            assert len(history(app)) == 1
            assert app.resume("yes", thread_id="t").state == {"log": ["a", "yes"], "n": 1}
        store.close()


class TestFaces:
    def test_a_message_may_name_a_checkpoint(self, place):
        graph = line("g", a=wrote("a"), ask=ask, b=wrote("b")).compile()
        with Runtime(place.open(), graphs=[graph]) as runtime:
            thread = runtime.thread("t")
            thread.ask(Invoke({}))
            before_ask = ids(runtime.get_state_history("t"))[1]
            outcome = thread.ask(Resume("yes", checkpoint_id=before_ask))
            assert outcome.state["log"] == ["a", "yes", "b"]
            thread.tell(Continue(checkpoint_id=before_ask))
            assert thread.ask(Continue()).interrupt.value == "ok?"
            assert runtime.set_head("t", before_ask)

    def test_the_form_of_langgraph(self, app):
        (_, before_b, _) = app.get_state_history("t")
        assert app.invoke(None, config=before_b.config).state["value"] == 111
        with pytest.raises(InvalidCall, match="give one"):
            app.invoke(None, config=before_b.config, checkpoint_id="x-0")

    @pytest.mark.parametrize(
        "options",
        [{"checkpoint_id": "x"}, {"checkpoint_id": 5}, {"fork": "yes"}, {"checkpoint_id": "x-0"}],
        ids=repr,
    )
    def test_a_wrong_argument_is_refused(self, app, options):
        with pytest.raises(InvalidCall):
            app.invoke(None, thread_id="t", **options)
        assert len(history(app)) == 3

    @pytest.mark.parametrize("options", [{"checkpoint_id": "x-0"}, {"fork": True}], ids=repr)
    def test_a_new_thread_has_no_checkpoint(self, app, options):
        with pytest.raises(InvalidCall, match="no checkpoint"):
            app.invoke({"value": 1}, thread_id="u", **options)
        assert app.get_state("u") is None

    def test_dropped_results_make_no_sense_in_a_branch(self, app):
        with pytest.raises(InvalidCall, match="rerun="):
            app.invoke(None, thread_id="t", checkpoint_id=history(app)[1], rerun=["b"])

    def test_a_head_that_is_asked_for_by_its_id_is_raw(self, store):
        """Finished results and amendments are of the head, not of its checkpoint."""
        with star("g", ok=wrote("ok"), ask=ask).compile(checkpointer=store) as app:
            app.invoke({}, thread_id="t")
            app.invoke({"note": "amended"}, thread_id="t")
            state = app.get_state("t")
            assert (state.values, state.next) == ({"log": ["ok"], "note": "amended"}, ("ask",))
            raw = app.get_state("t", *ids([state]))
            assert (raw.values, raw.next, raw.interrupts) == ({"log": []}, ("ok", "ask"), ())
            assert raw.config == state.config
