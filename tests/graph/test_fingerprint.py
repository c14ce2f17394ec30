"""The fingerprint of a graph: of shape and types, and of nothing else."""

from __future__ import annotations

import operator
import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Annotated, TypedDict

import pytest

from beamweaver.graph import Graph, append
from beamweaver.types import END, START


def nothing(state):
    return None


def other(state):
    return {"n": 2}


class State(TypedDict):
    n: int
    log: Annotated[list[str], operator.add]


class Float(TypedDict):
    n: float
    log: Annotated[list[str], operator.add]


class Append(TypedDict):
    n: int
    log: Annotated[list[str], append]


def graph(schema=State, fn=nothing, name="g", **options):
    built = Graph(schema, name=name).add_node("a", fn, **options).add_node("b", fn)
    return built.add_edge(START, "a").add_edge("a", "b")


def test_equal_graphs_have_equal_fingerprints():
    assert graph().compile().fingerprint == graph().compile().fingerprint


SAME = {
    "bodies": lambda: graph(fn=other),
    "timeouts and retries": lambda: graph(timeout=5, retries=2),
    "metadata": lambda: graph(metadata={"x": 1}),
    "the graph's name": lambda: graph(name="h"),
    "an edge into END": lambda: graph().add_edge("b", END),
}


@pytest.mark.parametrize("what", SAME)
def test_what_may_change_freely_does_not_change_it(what):
    assert SAME[what]().compile().fingerprint == graph().compile().fingerprint


DIFFERENT = {
    "a type": lambda: graph(Float),
    "a reducer": lambda: graph(Append),
    "no schema": lambda: graph(None),
    "one more node": lambda: graph().add_node("c", nothing).add_edge("b", "c"),
    "one more edge": lambda: graph().add_edge("b", "a"),
    "a join": lambda: graph().add_edge(["a", "b"], "a"),
    "a branch": lambda: graph().add_conditional_edges("b", nothing, ["a"]),
    "a branch without targets": lambda: graph().add_conditional_edges("b", nothing),
}


@pytest.mark.parametrize("what", DIFFERENT)
def test_shape_and_types_change_it(what):
    assert DIFFERENT[what]().compile().fingerprint != graph().compile().fingerprint


def test_the_order_of_nodes_changes_it():
    one = Graph(name="g").add_node("a", nothing).add_node("b", nothing)
    two = Graph(name="g").add_node("b", nothing).add_node("a", nothing)
    for built in (one, two):
        built.add_edge(START, "a").add_edge("a", "b")

    assert one.compile().fingerprint != two.compile().fingerprint


@pytest.mark.slow
def test_it_is_the_same_in_every_process():
    program = textwrap.dedent("""
        from typing import Annotated, TypedDict, Literal
        from beamweaver.graph import Graph, append
        class State(TypedDict, total=False):
            a: dict[str, int | None]
            b: Annotated[list[str], append]
            c: Literal["x", "y"]
        f = lambda state: None
        graph = Graph(State, name="g").add_node("a", f).add_node("b", f).add_edge("__start__", "a")
        graph.add_conditional_edges("a", f, {True: "b", "k": "a", 3: "b"})
        print(graph.compile().fingerprint)
    """)
    root = str(Path(__file__).parents[2])
    prints = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": root},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }

    assert len(prints) == 1
