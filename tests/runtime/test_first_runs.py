"""The first screen of the semantics: both programs, as a reader types them."""

from __future__ import annotations

import pytest

from beamweaver import END, START, Completed, Continue, Graph, Invoke, Runtime
from beamweaver.checkpoint import LMDBCheckpointer
from beamweaver.errors import Draining
from tests.runtime.kit import simulated


def load(state):
    return {"loaded_url": state["url"]}


def summarize(state):
    return {"summary": f"Fetched {state['loaded_url']}"}


def example() -> Graph:
    return (
        Graph(name="durable-example")
        .add_node("load", load)
        .add_node("summarize", summarize)
        .add_edge(START, "load")
        .add_edge("load", "summarize")
        .add_edge("summarize", END)
    )


URL = {"url": "https://example.com"}
FETCHED = "Fetched https://example.com"


def test_a_graph_with_a_checkpointer_runs_and_keeps_its_state(store):
    with example().compile(checkpointer=store) as app:
        outcome = app.invoke(URL, thread_id="durable-run-1")
        assert outcome.state["summary"] == FETCHED
        assert app.get_state("durable-run-1").values == outcome.state


def test_a_runtime_tells_asks_and_drains(store):
    app = example().compile()
    with Runtime(store, graphs=[app]) as runtime:
        thread = runtime.thread("durable-run-2", graph=app)
        receipt = thread.tell(Invoke(URL))
        outcome = thread.ask(Continue(), timeout=30)
        assert runtime.drain(timeout=10)
        with pytest.raises(Draining):
            thread.ask(Continue(), timeout=10)
    assert outcome.state["summary"] == FETCHED
    assert outcome.run_id == receipt.run_id


def test_a_path_is_enough_for_a_store(tmp_path):
    app = example().compile()
    with Runtime(tmp_path / "state.lmdb", graphs=[app]) as runtime:
        assert runtime.thread("t").ask(Invoke(URL), timeout=30).state["summary"] == FETCHED
    with example().compile(checkpointer=LMDBCheckpointer(tmp_path / "state.lmdb")) as again:
        assert again.get_state("t").values["summary"] == FETCHED


def test_an_outcome_says_thread_run_and_checkpoint(store):
    with example().compile(checkpointer=store) as app:
        outcome = app.invoke(URL, thread_id="t", run_id="order-17")
        assert isinstance(outcome, Completed)
        assert (outcome.thread_id, outcome.run_id) == ("t", "order-17")
        assert app.get_state("t", outcome.checkpoint_id).values["summary"] == FETCHED
        assert (outcome.interrupts, outcome.interrupt, outcome.warnings) == ((), None, ())


def test_a_complete_thread_has_nothing_next(store):
    with example().compile(checkpointer=store) as app:
        app.invoke(URL, thread_id="t")
        state = app.get_state("t")
        assert (state.next, state.tasks, state.status) == ((), (), "complete")


def test_a_second_input_is_a_new_run_on_top_of_the_state(store):
    with example().compile(checkpointer=store) as app:
        first = app.invoke(URL, thread_id="t")
        second = app.invoke({"url": "b"}, thread_id="t")
        assert second.state == {"url": "b", "loaded_url": "b", "summary": "Fetched b"}
        assert second.run_id != first.run_id


def test_the_state_of_an_unknown_thread_is_none(store):
    with example().compile(checkpointer=store) as app:
        assert app.get_state("nobody") is None


@pytest.mark.parametrize("seed", range(5))
def test_the_example_runs_in_a_simulation(memory, seed):
    app = example().compile()
    with simulated(memory, seed, graphs=[app]) as runtime:
        threads = [runtime.thread(f"t{i}") for i in range(5)]
        receipts = [thread.tell(Invoke(URL)) for thread in threads]
        outcomes = [thread.ask(Continue(), timeout=30) for thread in threads]
    assert [o.run_id for o in outcomes] == [r.run_id for r in receipts], f"seed {seed}"
    assert all(o.state["summary"] == FETCHED for o in outcomes), f"seed {seed}"
