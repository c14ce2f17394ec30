"""Rows of the lists of cases that no other test names: of the original's own tests, and where it fails."""

from __future__ import annotations

import asyncio
import operator
import threading
import uuid
from typing import Annotated, TypedDict

import pytest

from beamweaver import END, START, Command, Graph, Send
from beamweaver.errors import InvalidUpdate, NodeTimeout, RecursionLimit
from beamweaver.graph import Untracked
from tests.runtime.kit import PATIENCE, Counted, Gate, Log, line, star, wrote


def test_nodes_of_an_entry_run_side_by_side(memory):
    """graph 8, langgraph 54."""
    met = threading.Barrier(2, timeout=PATIENCE)

    def meet(_state):
        met.wait()
        return {"log": ["met"]}

    with star("g", a=meet, b=meet).compile(checkpointer=memory) as app:
        assert app.invoke({}).state["log"] == ["met", "met"]


def test_runs_without_a_store_share_nothing():
    """graph 9."""
    with star("g", a=lambda state: {"n": state["n"] + 1}).compile() as app:
        threads = [threading.Thread(target=app.invoke, args=({"n": 0},)) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE)
        assert app.invoke({"n": 0}).state["n"] == 1


def test_gotos_and_sends_of_one_step_run_in_their_order(memory):
    """graph 13, langgraph 41: pulls in the order of declaration, then Sends by source and index."""
    graph = Graph(Log, name="g")
    graph.add_node(
        "start", lambda _s: [Send("w", {"item": 1}), Command(goto="b"), Send("w", {"item": 2})]
    )
    graph.add_node("b", wrote("b")).add_node("a", wrote("a"))
    graph.add_node("w", lambda state: {"log": [f"w{state['item']}"]})
    graph.add_edge(START, "a").add_edge(START, "start")
    with graph.compile(checkpointer=memory, allow_unreachable=True) as app:
        assert app.invoke({}).state["log"] == ["a", "b", "w1", "w2"]


def test_the_awaitable_calls_give_the_same(memory):
    """graph 16."""
    graph = Graph(Log, name="g").add_node("n", lambda state: {"n": state["n"] - 1})
    graph.add_node("two", lambda _s: [{"n": 1}, {"n": 2}]).add_edge(START, "n")
    graph.add_conditional_edges("n", lambda state: "two" if state["n"] == 99 else END, ["two"])

    async def main():
        outcomes = await asyncio.gather(*(app.ainvoke({"n": n}) for n in (6, 5, 4)))
        assert [outcome.state["n"] for outcome in outcomes] == [5, 4, 3]
        with pytest.raises(InvalidUpdate):
            await app.ainvoke({"n": 100})

    with graph.compile(checkpointer=memory) as app:
        asyncio.run(main())


def test_a_timeout_of_a_node_ends_with_its_siblings_finished(memory):
    """graph 61: by default siblings finish, and their results are kept."""
    gate = Gate()
    ran = threading.Event()

    def quick(_state):
        ran.set()
        return {"log": ["quick"]}

    graph = star("g", slow=(gate, {"timeout": 0.02}), quick=quick)
    with graph.compile(checkpointer=memory) as app:
        with pytest.raises(NodeTimeout, match="slow"):
            app.invoke({}, thread_id="t")
        assert ran.is_set()
        assert app.get_state("t").values["log"] == ["quick"]
        assert app.get_state("t").next == ("slow",)
        gate.open()


def test_a_loop_ends_at_its_limit_and_the_steps_before_it_ran(memory):
    """graph 68, graph 2."""
    node = Counted(lambda state: {"n": state["n"] + 1})
    graph = Graph(Log, name="g").add_node("n", node).add_edge(START, "n").add_edge("n", "n")
    with graph.compile(checkpointer=memory) as app:
        with pytest.raises(RecursionLimit, match="took 2 steps"):
            app.invoke({"n": 0}, thread_id="t", recursion_limit=2)
        assert node.runs == 2
        assert app.get_state("t").values["n"] == 2


def test_a_copy_of_a_thread_that_waits_is_answered_by_itself(store):
    """graph 77."""
    graph = line("g", ask=lambda _s, ctx: {"note": ctx.interrupt("?")})
    with graph.compile(checkpointer=store) as app:
        asked = app.invoke({}, thread_id="a").interrupt
        app.copy_thread("a", "b")
        (copied,) = app.get_state("b").interrupts
        assert (copied.id, copied.value) == (asked.id, "?")
        assert app.resume("for b", thread_id="b").state["note"] == "for b"
        assert app.get_state("a").status == "waiting"
        assert app.resume("for a", thread_id="a").state["note"] == "for a"


def test_ids_of_runs_are_uuids_that_rise_with_time(memory):
    """graph 86."""
    with line("g", a=wrote("a")).compile(checkpointer=memory) as app:
        ids = [uuid.UUID(app.invoke({}).run_id) for _ in range(3)]
    assert {each.version for each in ids} == {7}
    assert [each.int >> 80 for each in ids] == sorted(each.int >> 80 for each in ids)


def test_destinations_are_for_drawings_and_reach_and_do_not_route(memory):
    """graph 93."""
    graph = Graph(Log, name="g")
    graph.add_node(
        "a", lambda _s: Command(update={"log": ["a"]}, goto="c"), destinations=["b", "c"]
    )
    graph.add_node("b", wrote("b")).add_node("c", wrote("c")).add_edge(START, "a")
    with graph.compile(checkpointer=memory) as app:
        assert app.invoke({}).state["log"] == ["a", "c"]
        assert app.draw_mermaid().count("goto") == 2


class Whole(TypedDict, total=False):
    question: str
    answer: int
    notes: Annotated[list[str], operator.add]
    client: Annotated[object, Untracked]


class Out(TypedDict):
    answer: int


def test_an_outcome_has_the_keys_of_the_output_schema(memory):
    """graph 124, reference RS: those of a resume too; the store has all."""
    graph = Graph(Whole, name="g", output_schema=Out)
    graph.add_node("a", lambda _s, ctx: {"answer": ctx.interrupt("?"), "notes": ["asked"]})
    with graph.add_edge(START, "a").compile(checkpointer=memory) as app:
        assert app.invoke({"question": "how many?"}, thread_id="t").state == {}
        assert app.resume(3, thread_id="t").state == {"answer": 3}
        assert app.get_state("t").values["notes"] == ["asked"]


def test_an_untracked_key_goes_with_a_send_and_is_not_stored(memory):
    """graph 131, langgraph 45, reference PC: the task sees it; only what can be stored is."""
    seen = []
    handle = threading.Lock()

    def worker(state):
        seen.append((state["client"] is handle, state["question"]))
        return {"answer": 1}

    graph = Graph(Whole, name="g").add_node("worker", worker)
    graph.add_node("start", lambda _s: Send("worker", {"client": handle, "question": "kept"}))
    graph.add_edge(START, "start")
    with graph.compile(checkpointer=memory, allow_unreachable=True) as app:
        app.invoke({}, thread_id="t")
        stored = [
            task.update
            for image in memory.history("t")
            for task in image.checkpoint.checkpoint.tasks
            if task.node == "worker"
        ]
    assert seen == [(True, "kept")]
    assert [sorted(key for key, data in update.items() if data) for update in stored] == [
        ["question"]
    ]


def test_a_last_value_comes_back_from_its_checkpoint(store):
    """graph 137."""
    with line("g", a=lambda _s: {"note": "kept"}).compile(checkpointer=store) as app:
        app.invoke({"n": 1}, thread_id="t")
        values = app.get_state("t").values
        (newest, _input) = app.get_state_history("t")
        assert (values["note"], newest.values["note"]) == ("kept", "kept")


class TestBeginnersMistakes:
    def test_a_question_that_nobody_could_answer(self):
        """mistakes: interrupt with no checkpointer."""
        graph = line("g", ask=lambda _s, ctx: ctx.interrupt("?"))
        with graph.compile() as app, pytest.raises(Exception, match="checkpointer"):
            app.invoke({})

    def test_an_answer_where_nothing_waits(self, memory):
        """mistakes: resume when nothing waits."""
        node = Counted(wrote("a"))
        with line("g", a=node).compile(checkpointer=memory) as app:
            app.invoke({}, thread_id="t")
            with pytest.raises(Exception, match="no question is open"):
                app.resume("yes", thread_id="t")
        assert node.runs == 1

    def test_an_input_while_a_question_is_open(self, memory):
        """mistakes: new input while interrupted."""
        graph = line("g", ask=lambda _s, ctx: {"note": ctx.interrupt("?")})
        with graph.compile(checkpointer=memory) as app:
            first = app.invoke({"n": 1}, thread_id="t").interrupt
            second = app.invoke({"n": 2}, thread_id="t")
            assert second.interrupt.id == first.id
            assert app.resume("yes", thread_id="t").state["n"] == 2

    def test_a_loop_without_an_end(self):
        """mistakes: endless loop."""
        graph = Graph(Log, name="g").add_node("a", lambda _s: None).add_edge(START, "a")
        with graph.add_edge("a", "a").compile() as app:
            with pytest.raises(RecursionLimit, match="took 100 steps .* recursion_limit is 100"):
                app.invoke({})

    def test_a_call_without_a_thread(self, memory):
        """mistakes: no thread_id."""
        with line("g", a=wrote("a")).compile(checkpointer=memory) as app:
            outcome = app.invoke({})
            assert app.get_state(outcome.thread_id).status == "complete"

    def test_an_exception_with_arguments_of_its_own(self, store):
        """mistakes: custom exception read through a handle."""

        class Odd(Exception):
            def __init__(self, a, b):
                super().__init__(f"{a} and {b}")

        def fails(_state):
            raise Odd(1, 2)

        with line("g", a=fails).compile(checkpointer=store) as app:
            app.invoke({}, thread_id="t", raises=False)
            (task,) = app.get_state("t").tasks
        assert task.failure.message == "1 and 2"
        assert task.failure.type_name.endswith("Odd")

    def test_an_id_of_a_run_that_was_never(self, memory):
        """mistakes: unknown run id. It is the name of the run that the call makes."""
        with line("g", a=wrote("a")).compile(checkpointer=memory) as app:
            assert app.invoke({}, thread_id="t", run_id="nobody").run_id == "nobody"
