"""What beginners do wrong at compile, in updates and in routing, and the words they get.

Each case is a row of the table of mistakes; the whole message is pinned.
"""

from __future__ import annotations

import operator
from typing import Annotated, TypedDict

import pytest

from beamweaver.errors import InvalidGraph, InvalidUpdate, UnknownChannel, UnknownTarget
from beamweaver.graph import Graph, normalize, normalize_input, normalize_routing
from beamweaver.types import END, START, Command, Send


class State(TypedDict):
    count: int
    names: Annotated[list[str], operator.add]


def nothing(state):
    return None


def route(state):
    return None


def graph():
    return (
        Graph(State, name="orders")
        .add_node("load", nothing)
        .add_node("save", nothing)
        .add_edge(START, "load")
        .add_conditional_edges("load", route, {"good": "save", "bad": END})
        .compile()
    )


UPDATES = {
    "mistakes: node returns a key that the state lacks": (
        {"cuont": 1},
        UnknownChannel,
        (
            "node 'load' returned the key 'cuont', which State lacks. Did you mean 'count'? "
            "Its keys: 'count', 'names'. Add 'cuont' to State, or fix the name"
        ),
    ),
    "mistakes: node returns the wrong type for a key": (
        {"count": "oops"},
        InvalidUpdate,
        (
            "node 'load' returned 'oops' (str) for the key 'count'; expected int. "
            "Give a value of type int, or change the type of 'count'"
        ),
    ),
    "mistakes: node returns one item for a list": (
        {"names": "Ada"},
        InvalidUpdate,
        (
            "node 'load' returned 'Ada' (str) for the key 'names'; expected list[str]. "
            'Wrap it in a list: {"names": [...]}'
        ),
    ),
    "mistakes: node returns a list with a wrong item": (
        {"names": ["Ada", 7]},
        InvalidUpdate,
        (
            "node 'load' returned 7 (int) for the key 'names' at names[1]; expected str. "
            "Give a list of the declared type: list[str]"
        ),
    ),
    "mistakes: node returns 5": (
        5,
        InvalidUpdate,
        (
            "node 'load' returned 5 (int), which is no update. Return None, a dict such as "
            '{"count": ...}, a Command, a Send, or a list of these'
        ),
    ),
    "mistakes: node returns the name of a node": (
        "save",
        InvalidUpdate,
        (
            "node 'load' returned 'save' (str), which is no update. To go to 'save' next, return "
            "Command(goto='save'). Return None, a dict such as "
            '{"count": ...}, a Command, a Send, or a list of these'
        ),
    ),
    "mistakes: node goes to an unknown node": (
        Command(goto="sav"),
        UnknownTarget,
        (
            "node 'load' returned Command(goto=...) to 'sav' (str), and there is no such node. "
            "Did you mean 'save'? Nodes: 'load', 'save'"
        ),
    ),
    "mistakes: node sends to an unknown node": (
        Send("laod"),
        UnknownTarget,
        (
            "node 'load' made a Send to 'laod' (str), and there is no such node. "
            "Did you mean 'load'? Nodes: 'load', 'save'"
        ),
    ),
}


@pytest.mark.parametrize("row", UPDATES)
def test_a_wrong_return_says_node_value_and_cure(row):
    returned, error, message = UPDATES[row]
    compiled = graph()

    with pytest.raises(error) as caught:
        normalize(compiled, compiled.nodes["load"], returned)

    assert str(caught.value) == message
    assert caught.value.node == "load"


INPUTS = {
    "mistakes: input with an unknown key": (
        {"coutn": 1},
        UnknownChannel,
        (
            "the input has the key 'coutn', which State lacks. Did you mean 'count'? "
            "Its keys: 'count', 'names'. Add 'coutn' to State, or fix the name"
        ),
    ),
    "mistakes: input of a wrong type": (
        {"count": None},
        InvalidUpdate,
        (
            "the input has None for the key 'count'; expected int. "
            "Give a value of type int, or change the type of 'count'"
        ),
    ),
    "mistakes: input is no mapping": (
        "https://example.com",
        InvalidUpdate,
        (
            "the input is 'https://example.com' (str); give a dict such as "
            '{"count": ...}, or a Command'
        ),
    ),
}


@pytest.mark.parametrize("row", INPUTS)
def test_a_wrong_input_says_value_and_cure(row):
    value, error, message = INPUTS[row]

    with pytest.raises(error) as caught:
        normalize_input(graph(), value)

    assert str(caught.value) == message


ROUTES = {
    "mistakes: router returns an unknown node": (
        "god",
        (
            "router 'route' after 'load' returned 'god' (str); expected one of its targets. "
            "Did you mean 'good'? Allowed: 'good', 'bad', END, a Send, or a list of these"
        ),
    ),
    "mistakes: router returns nothing": (
        None,
        (
            "router 'route' after 'load' returned None; expected one of its targets. "
            "Allowed: 'good', 'bad', END, a Send, or a list of these"
        ),
    ),
}


@pytest.mark.parametrize("row", ROUTES)
def test_a_wrong_route_says_router_value_and_what_is_allowed(row):
    returned, message = ROUTES[row]
    compiled = graph()

    with pytest.raises(UnknownTarget) as caught:
        normalize_routing(compiled, compiled.branches["load"][0], returned)

    assert str(caught.value) == message


def line_of(fn):
    return f"{__file__}:{fn.__code__.co_firstlineno + 1}"


def edge_to_unknown():
    return Graph(name="g").add_node("load", nothing).add_edge(START, "lod")


def unreachable():
    return Graph(name="g").add_node("load", nothing).add_edge(START, "load").add_node("x", nothing)


def same_name_twice():
    return Graph(name="g").add_node("a", nothing).add_node("a", nothing).add_edge(START, "a")


def no_entry():
    return Graph(name="g").add_node("a", nothing).add_node("b", nothing).add_edge("a", "b")


def edge_from_end():
    return Graph(name="g").add_node("a", nothing).add_edge(START, "a").add_edge(END, "a")


def edge_to_start():
    return Graph(name="g").add_node("a", nothing).add_edge(START, "a").add_edge("a", START)


GRAPHS = {
    "mistakes: edge to an unknown node": (
        edge_to_unknown,
        (
            "graph 'g' has 2 faults:\n"
            "  1. add_edge(START, 'lod') at {line}: there is no node 'lod'. Did you mean 'load'? "
            "Nodes: 'load'. Fix the name, or add the node with add_node('lod', fn)\n"
            "  2. node 'load' at {line} is unreachable: no edge, targets or destinations= name it. "
            "Add an edge to it; if a goto or Send leads to it, say so with destinations= at the node "
            "that goes there; or compile(allow_unreachable=True)"
        ),
    ),
    "mistakes: unreachable node": (
        unreachable,
        (
            "graph 'g': node 'x' at {line} is unreachable: no edge, targets or destinations= name it. "
            "Add an edge to it; if a goto or Send leads to it, say so with destinations= at the node "
            "that goes there; or compile(allow_unreachable=True)"
        ),
    ),
    "mistakes: same name registered twice": (
        same_name_twice,
        "graph 'g': node 'a' at {line}: a node of that name was added at {line}; rename one of them",
    ),
    "mistakes: no edge from START": (
        no_entry,
        "graph 'g': nothing leads into the graph; add an entry such as add_edge(START, 'a')",
    ),
    "mistakes: edge from END": (
        edge_from_end,
        (
            "graph 'g': add_edge(END, 'a') at {line}: nothing follows END; swap the two ends, or leave "
            "the edge out"
        ),
    ),
    "mistakes: edge to START": (
        edge_to_start,
        (
            "graph 'g': add_edge('a', START) at {line}: nothing leads to START; to begin again, lead to "
            "the first node"
        ),
    ),
}


@pytest.mark.parametrize("row", GRAPHS)
def test_a_faulty_graph_says_place_and_cure(row):
    build, message = GRAPHS[row]
    builder = build()

    with pytest.raises(InvalidGraph) as caught:
        builder.compile()

    assert str(caught.value) == message.format(line=line_of(build))


def test_all_faults_of_a_graph_come_in_one_error():
    builder = (
        Graph(name="g")
        .add_node("a", nothing)
        .add_node("a", nothing)
        .add_edge(START, "b")
        .add_edge(END, "a")
        .add_edge(["a", "c"], "a")
        .add_conditional_edges("a", route, ["d"])
    )

    with pytest.raises(InvalidGraph) as caught:
        builder.compile(recursion_limit=0, run_timeout=-1, failure_policy="stop", max_concurrency=0)

    assert len(caught.value.faults) == 9
    assert str(caught.value).count("\n") == 9
