"""What a run leaves behind is freed when it is done with, without waiting for the garbage collector.

A cycle in each task would keep its state alive for a while, and would have the collector run all the time.
"""

from __future__ import annotations

import gc
from collections import Counter
from typing import TypedDict

import pytest

from beamweaver import END, START, Graph, Send
from beamweaver.checkpoint import MemoryCheckpointer

PARTS = 20


class State(TypedDict, total=False):
    n: int


def bump(state):
    return {"n": state["n"] + 1}


async def bump_async(state):
    return {"n": state["n"] + 1}


def line(body):
    graph = Graph(State, name="line")
    graph.add_sequence([(f"n{i}", body) for i in range(PARTS)])
    graph.add_edge(START, "n0")
    graph.add_edge(f"n{PARTS - 1}", END)
    return graph


def fan():
    graph = Graph(State, name="fan")
    graph.add_node("plan", lambda _state: None)
    graph.add_node("part", lambda _state: None)
    graph.add_edge(START, "plan")
    graph.add_conditional_edges("plan", lambda _state: [Send("part", {})] * PARTS, ["part"])
    graph.add_edge("part", END)
    return graph


def rubbish(app):
    """What only the collector would free after a run, by type, the application's first run aside."""
    app.invoke({"n": 0}, thread_id="first")
    gc.collect()
    gc.freeze()  # what was there before is not looked at
    gc.disable()
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        app.invoke({"n": 0}, thread_id="second")
        gc.collect()
        return Counter(type(each).__name__ for each in gc.garbage)
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.unfreeze()
        gc.enable()


@pytest.mark.parametrize(
    "graph", [line(bump), line(bump_async), fan()], ids=["sync nodes", "async nodes", "Sends"]
)
def test_tasks_are_no_part_of_reference_cycles(graph):
    with graph.compile(checkpointer=MemoryCheckpointer()) as app:
        found = rubbish(app)
    many = {name: count for name, count in found.items() if count >= PARTS}
    assert many == {}
