"""Branches: calls from older checkpoints, heads that move, and what cleaning up leaves of them."""

from __future__ import annotations

import operator
from typing import Annotated, TypedDict

import pytest

from beamweaver import (
    END,
    START,
    Command,
    Completed,
    Graph,
    Interrupted,
    Invoke,
    Runtime,
    Send,
    interrupt,
)
from beamweaver.errors import (
    AmbiguousResume,
    InvalidAnswer,
    InvalidCall,
    NodeFailed,
    NothingToResume,
    ThreadBusy,
    UnfinishedRun,
)
from supervisors.testing import eventually
from tests.runtime.kit import Caller, Counted, Gate, Log, line, star, wrote


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


class TestABranch:
    def test_it_goes_on_from_an_older_checkpoint(self, app):
        """graph 12, langgraph 53"""
        old = list(app.get_state_history("t"))
        before_b = old[1]
        outcome = app.invoke({}, thread_id="t", checkpoint_id=ids([before_b])[0])
        assert outcome.state["value"] == 111
        result, fork, *rest = app.get_state_history("t")
        assert rest == old
        assert result.parent_config == fork.config
        assert fork.parent_config == before_b.config
        assert (fork.values, fork.next) == (before_b.values, before_b.next)
        assert fork.metadata["source"] == "fork"
        assert ids([app.get_state("t")]) == ids([result])

    def test_the_head_is_as_none(self, app):
        """langgraph 102"""
        (head, *_), before = history(app), len(history(app))
        assert app.invoke(None, thread_id="t", checkpoint_id=head).state["value"] == 111
        assert len(history(app)) == before

    def test_a_fork_may_be_forced_at_the_head(self, asking):
        (head,) = ids([asking.get_state("t")])
        (old,) = asking.get_state("t").interrupts
        (new,) = asking.invoke(None, thread_id="t", checkpoint_id=head, fork=True).interrupts
        assert (new.value, new.id == old.id, new.task_id == old.task_id) == (
            old.value,
            False,
            False,
        )
        assert asking.invoke(None, thread_id="t", fork=True).interrupts[0].id not in (
            old.id,
            new.id,
        )

    def test_nothing_pending_comes_along(self, store):
        """graph 37, langgraph 94, langgraph 51: raw values, all tasks run again."""
        failing = [True]

        def bad(_state):
            if failing:
                failing.pop()
                raise ValueError("boom")
            return {"value": 100}

        ok = Counted(adds(10))
        graph = Graph(Sums, name="g").add_node("ok", ok).add_node("bad", bad)
        graph.add_edge(START, "ok").add_edge(START, "bad")
        with graph.compile(checkpointer=store) as app:
            with pytest.raises(NodeFailed):
                app.invoke({"value": 1}, thread_id="t")
            (head,) = ids([app.get_state("t")])
            assert app.get_state("t").values["value"] == 11
            raw = app.get_state("t", head)
            assert (raw.values["value"], raw.next, raw.pending_writes) == (1, ("ok", "bad"), ())
            assert app.invoke(None, thread_id="t", fork=True).state["value"] == 111
            assert ok.runs == 2

    def test_an_edit_of_an_older_checkpoint_branches_off(self, app):
        """graph 37"""
        before_a = history(app)[-1]
        made = app.update_state("t", {"value": 20}, as_node="a", checkpoint_id=before_a)
        state = app.get_state("t")
        assert (ids([state]), state.values["value"], state.next) == ([made], 21, ("b",))
        assert app.invoke(None, thread_id="t").state["value"] == 121
        assert len({id_.rpartition("-")[0] for id_ in history(app)}) == 2

    def test_an_edit_of_nothing_is_a_branch_of_its_own(self, app):
        """langgraph 106"""
        before_b = history(app)[1]
        app.update_state("t", None, checkpoint_id=before_b)
        assert app.get_state("t").next == ("b",)
        assert app.invoke(None, thread_id="t").state["value"] == 111

    def test_edits_are_part_of_a_checkpoint(self, app):
        """A branch from an edited checkpoint has the edit, and nothing of what ran after it."""
        before_b = history(app)[1]
        made = app.update_state("t", {"value": 1000}, checkpoint_id=before_b)
        assert app.get_state("t", made).values["value"] == 1011
        assert app.invoke(None, thread_id="t").state["value"] == 1111
        assert app.invoke(None, thread_id="t", checkpoint_id=made).state["value"] == 1111
        assert app.invoke({"value": 5}, thread_id="t", checkpoint_id=made).state["value"] == 1116

    def test_an_input_is_an_amendment_of_the_branch(self, app):
        before_b = history(app)[1]
        outcome = app.invoke({"value": 1000}, thread_id="t", checkpoint_id=before_b)
        assert outcome.state["value"] == 1111

    def test_an_input_from_a_complete_checkpoint_begins_a_run(self, app):
        (complete, *_) = history(app)
        app.invoke({"value": 1}, thread_id="t")
        outcome = app.invoke({"value": 2}, thread_id="t", checkpoint_id=complete)
        assert outcome.state["value"] == 111 + 2 + 110

    def test_a_complete_checkpoint_without_input_is_the_head_then(self, app):
        (complete, *_) = history(app)
        app.invoke({"value": 1}, thread_id="t")
        outcome = app.invoke(None, thread_id="t", checkpoint_id=complete)
        assert (type(outcome), outcome.state["value"]) == (Completed, 111)
        assert app.get_state("t").values["value"] == 111

    def test_a_restart_begins_a_run_on_the_older_values(self, app):
        before_b = history(app)[1]
        outcome = app.invoke(
            {"value": 1000}, thread_id="t", checkpoint_id=before_b, on_unfinished="restart"
        )
        assert outcome.state["value"] == 11 + 1000 + 110

    def test_amid_a_run_it_may_be_refused(self, app):
        (_, before_b, _) = history(app)
        with pytest.raises(UnfinishedRun):
            app.invoke({}, thread_id="t", checkpoint_id=before_b, on_unfinished="reject")
        assert len(history(app)) == 3

    def test_branches_of_one_checkpoint_are_independent(self, app):
        """langgraph 97, langgraph 95: each runs its nodes again"""
        before_b = history(app)[1]
        outcomes = [
            app.invoke({"value": n}, thread_id="t", checkpoint_id=before_b).state["value"]
            for n in (1, 2, 1)
        ]
        assert outcomes == [112, 113, 112]

    def test_a_branch_of_a_branch(self, app):
        before_a = history(app)[-1]
        app.invoke({"value": 5}, thread_id="t", checkpoint_id=before_a)
        (_, middle, *_) = history(app)
        assert app.invoke({"value": 7}, thread_id="t", checkpoint_id=middle).state["value"] == 123
        for state in app.get_state_history("t"):
            if state.parent_config is not None:
                assert app.get_state(config=state.parent_config).config == state.parent_config

    def test_joins_are_those_of_the_checkpoint(self, store):
        """The arrival that was there is there, the later one is not."""
        graph = Graph(Log, name="g")
        for name in ("a", "b1", "b2", "j"):
            graph.add_node(name, wrote(name))
        graph.add_edge(START, "a").add_edge(START, "b1").add_edge("b1", "b2")
        graph.add_edge(["a", "b2"], "j")
        with graph.compile(checkpointer=store) as app:
            app.invoke({}, thread_id="t")
            before_b2 = history(app)[2]
            assert app.get_state("t", before_b2).next == ("b2",)
            outcome = app.invoke(None, thread_id="t", checkpoint_id=before_b2)
            assert outcome.state["log"] == ["a", "b1", "b2", "j"]

    def test_sends_are_those_of_the_checkpoint(self, store):
        graph = Graph(Log, name="g").add_node(
            "a", lambda _s: [Send("w", {"item": i}) for i in (1, 2)]
        )
        graph.add_node("w", lambda state: {"log": [state["item"]]}).add_edge(START, "a")
        with graph.compile(checkpointer=store, allow_unreachable=True) as app:
            app.invoke({}, thread_id="t")
            (_, before_w, _) = history(app)
            assert app.invoke(None, thread_id="t", checkpoint_id=before_w).state["log"] == [1, 2]

    def test_from_an_entry_whose_router_had_not_chosen(self, store):
        failing = [True]

        def router(_state):
            if failing:
                failing.pop()
                raise ValueError("boom")
            return "a"

        graph = Graph(Log, name="g").add_node("a", wrote("a"))
        graph.add_conditional_edges(START, router, ["a"])
        with graph.compile(checkpointer=store) as app:
            app.invoke({"n": 1}, thread_id="t", raises=False)
            (entry,) = history(app)
            assert app.invoke(None, thread_id="t", checkpoint_id=entry, fork=True).state == {
                "log": ["a"],
                "n": 1,
            }

    def test_a_recursion_limit_counts_anew(self, store):
        names = dict.fromkeys("abcd", None)
        graph = line("g", **{name: wrote(name) for name in names})
        with graph.compile(checkpointer=store, recursion_limit=3) as app:
            app.invoke({}, thread_id="t", raises=False)
            first = history(app)[-1]
            app.invoke(None, thread_id="t", checkpoint_id=first, raises=False)
            assert app.invoke(None, thread_id="t").state["log"] == list("abcd")

    def test_ids_of_tasks_and_steps_are_new(self, store):
        seen = []

        def node(_state, ctx):
            seen.append((ctx.task_id, ctx.idempotency_key))
            return {}

        with line("g", a=node, b=wrote("b")).compile(checkpointer=store) as app:
            app.invoke({}, thread_id="t")
            app.invoke(None, thread_id="t", checkpoint_id=history(app)[-1])
            assert len({task for task, _key in seen}) == 2
            assert len({key for _task, key in seen}) == 2

    def test_memos_are_made_again(self, store):
        made = []

        def node(_state, ctx):
            ctx.step("work", lambda: made.append(1))
            return {"log": [interrupt("?")]}

        with line("g", a=node).compile(checkpointer=store) as app:
            app.invoke({}, thread_id="t")
            app.invoke(None, thread_id="t", fork=True)
            assert len(made) == 2
            app.resume("x", thread_id="t")
            assert len(made) == 2

    def test_messages_wait_on(self, place):
        """One that was told to the thread has its turn after the branch's run."""
        gate = Gate({"log": ["g"]})
        graph = line("g", a=wrote("a"), b=gate).compile()
        with Runtime(place.open(), graphs=[graph]) as runtime:
            thread = runtime.thread("t")
            gate.open()
            thread.ask(Invoke({"n": 0}))
            before_b = ids(runtime.get_state_history("t"))[1]
            gate.opened.clear()
            gate.came.clear()
            running = Caller(thread.ask, Invoke({"n": 1}))
            gate.wait()
            thread.tell(Invoke({"n": 2}))
            thread.tell(Invoke(None, checkpoint_id=before_b))
            gate.open()
            running.join()
            eventually(lambda: runtime.get_state("t").values["log"] == ["a", "g"])
            sources = [s.metadata["source"] for s in runtime.get_state_history("t")]
            assert sources.count("input") == 3


class TestQuestions:
    def test_they_are_asked_again(self, asking):
        """langgraph 98, langgraph 99, graph 17"""
        before_ask = history(asking)[1]
        found = set()
        for _ in range(3):
            outcome = asking.invoke(None, thread_id="t", checkpoint_id=before_ask)
            assert isinstance(outcome, Interrupted)
            found.add(outcome.interrupt.id)
        assert len(found) == 3
        asking.update_state("t", {"log": ["fork"]})
        assert asking.get_state("t").next == ("ask",)
        assert asking.resume("yes", thread_id="t").state["log"] == ["a", "fork", "yes", "b"]

    def test_an_answer_waits_for_its_question(self, asking):
        asking.resume("first", thread_id="t")
        before_a = history(asking)[-1]
        outcome = asking.resume("second", thread_id="t", checkpoint_id=before_a)
        assert outcome.state["log"] == ["a", "second", "b"]
        assert outcome.warnings == ()

    def test_an_answer_goes_to_the_first_question_alone(self, store):
        def twice(_state):
            return {"log": [interrupt("one"), interrupt("two")]}

        with line("g", a=twice).compile(checkpointer=store) as app:
            app.invoke({}, thread_id="t")
            outcome = app.resume("x", thread_id="t", fork=True)
            assert outcome.interrupt.value == "two"
            assert app.resume("y", thread_id="t").state["log"] == ["x", "y"]

    def test_an_answer_to_several_at_once_is_ambiguous(self, store):
        with star("g", a=ask, b=ask).compile(checkpointer=store) as app:
            app.invoke({}, thread_id="t")
            with pytest.raises(AmbiguousResume) as error:
                app.resume("x", thread_id="t", fork=True)
            waiting = app.get_state("t").interrupts
            assert error.value.interrupts == tuple(question.id for question in waiting)
            outcome = app.resume({q.id: q.node for q in waiting}, thread_id="t")
            assert outcome.state["log"] == ["a", "b"]

    def test_an_answer_that_the_question_refuses_leaves_it_open(self, store):
        def node(_state):
            return {"n": interrupt("how many?", schema=int)}

        with line("g", a=node).compile(checkpointer=store) as app:
            app.invoke({}, thread_id="t")
            with pytest.raises(InvalidAnswer):
                app.resume("many", thread_id="t", fork=True)
            assert app.resume(3, thread_id="t").state["n"] == 3

    def test_an_answer_that_nobody_asks_for_is_a_warning(self, app):
        (_, before_b, _) = history(app)
        outcome = app.resume("x", thread_id="t", checkpoint_id=before_b)
        assert outcome.state["value"] == 111
        assert "not used" in outcome.warnings[0]

    def test_a_complete_checkpoint_asks_nothing(self, app):
        (complete, *_) = history(app)
        app.invoke({"value": 1}, thread_id="t")
        with pytest.raises(NothingToResume):
            app.resume("x", thread_id="t", checkpoint_id=complete)

    def test_a_map_of_ids_is_refused(self, asking):
        (question,) = asking.get_state("t").interrupts
        with pytest.raises(InvalidCall, match="new ids"):
            asking.resume({question.id: "x"}, thread_id="t", fork=True)
        assert asking.get_state("t").interrupts == (question,)

    def test_none_is_an_answer(self, asking):
        assert asking.resume(None, thread_id="t", fork=True).state["log"] == ["a", None, "b"]

    def test_an_answer_with_an_amendment(self, asking):
        command = Command(update={"log": ["amended"]}, resume="yes")
        outcome = asking.invoke(command, thread_id="t", fork=True)
        assert outcome.state["log"] == ["a", "amended", "yes", "b"]

    def test_the_branch_left_keeps_its_question(self, asking):
        (question,) = asking.get_state("t").interrupts
        (waiting,) = ids([asking.get_state("t")])
        asking.resume("other", thread_id="t", fork=True)
        asking.set_head("t", waiting)
        assert asking.get_state("t").interrupts == (question,)
        assert asking.resume({question.id: "mine"}, thread_id="t").state["log"] == [
            "a",
            "mine",
            "b",
        ]


class TestTheSameCallAgain:
    def test_a_run_id_that_is_known_joins(self, app):
        before_b = history(app)[1]
        options = {"thread_id": "t", "checkpoint_id": before_b, "run_id": "F"}
        first = app.invoke({"value": 5}, **options)
        again = app.invoke({"value": 5}, **options)
        assert again == first
        app.invoke({"value": 1}, thread_id="t")
        assert app.invoke({"value": 5}, **options).state == first.state
        assert [s.metadata["source"] for s in app.get_state_history("t")].count("fork") == 1

    def test_a_failed_branch_goes_on(self, store):
        failing = [True]

        def bad(_state):
            if failing.pop():
                raise ValueError("boom")
            return {"log": ["b"]}

        failing[:] = [False, True, False]
        with line("g", a=wrote("a"), b=bad).compile(checkpointer=store) as app:
            app.invoke({}, thread_id="t")
            options = {"thread_id": "t", "checkpoint_id": history(app)[1], "run_id": "F"}
            with pytest.raises(NodeFailed):
                app.invoke(None, **options)
            assert app.invoke(None, **options).state["log"] == ["a", "b"]
            assert (
                len([s for s in app.get_state_history("t") if s.metadata["source"] == "fork"]) == 1
            )

    def test_an_answer_is_not_given_twice(self, store):
        def twice(_state):
            return {"log": [interrupt("one"), interrupt("two")]}

        with line("g", a=twice).compile(checkpointer=store) as app:
            (first,) = ids([app.invoke({}, thread_id="t") and app.get_state("t")])
            options = {"thread_id": "t", "checkpoint_id": first, "fork": True, "run_id": "F"}
            outcome = app.resume("x", **options)
            assert outcome.interrupt.value == "two"
            assert app.resume("x", **options) == outcome

    def test_without_a_run_id_it_is_another_branch(self, app):
        before_b = history(app)[1]
        for _ in range(2):
            app.invoke(None, thread_id="t", checkpoint_id=before_b)
        assert [s.metadata["source"] for s in app.get_state_history("t")].count("fork") == 2


class TestBusyThreads:
    @pytest.fixture
    def gate(self):
        return Gate({"log": ["b"]})

    @pytest.fixture
    def busy(self, store, gate):
        with line("g", a=wrote("a"), b=gate).compile(checkpointer=store) as app:
            gate.open()
            app.invoke({}, thread_id="t")
            gate.opened.clear()
            gate.came.clear()
            yield app

    def test_a_branch_waits_for_the_run(self, busy, gate):
        before_b = history(busy)[1]
        running = Caller(busy.invoke, {}, thread_id="t")
        gate.wait()
        with pytest.raises(ThreadBusy):
            busy.invoke(None, thread_id="t", checkpoint_id=before_b, on_busy="reject")
        branching = Caller(busy.invoke, None, thread_id="t", checkpoint_id=before_b)
        gate.open()
        assert running.join().state["log"] == ["a", "b", "a", "b"]
        assert branching.join().state["log"] == ["a", "b"]

    def test_a_branch_may_stop_the_run(self, busy, gate):
        before_b = history(busy)[1]
        running = Caller(busy.invoke, {}, thread_id="t")
        gate.wait()
        gate.update = {"log": ["other"]}
        branching = Caller(
            busy.invoke, None, thread_id="t", checkpoint_id=before_b, on_busy="cancel"
        )
        running.join()
        gate.open()
        assert branching.join().state["log"] == ["a", "other"]

    def test_a_head_does_not_move_under_a_run(self, busy, gate):
        before_b = history(busy)[1]
        running = Caller(busy.invoke, {}, thread_id="t")
        gate.wait()
        with pytest.raises(ThreadBusy, match="moved"):
            busy.set_head("t", before_b)
        gate.open()
        assert running.join().state["log"] == ["a", "b", "a", "b"]
