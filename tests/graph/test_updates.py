"""What nodes, callers and routers give, in one form."""

from __future__ import annotations

import collections
import operator
import types
from typing import Annotated, NamedTuple, TypedDict

import pytest

from beamweaver.errors import InvalidUpdate, UnknownChannel, UnknownTarget
from beamweaver.graph import (
    Graph,
    NodeReturn,
    append,
    normalize,
    normalize_input,
    normalize_routing,
)
from beamweaver.types import END, START, Command, Overwrite, Send


class State(TypedDict, total=False):
    n: int
    log: Annotated[list[str], append]


def nothing(state):
    return None


def route(state):
    return None


def build(schema=State, targets=None):
    graph = Graph(schema, name="g").add_node("a", nothing).add_node("b", nothing)
    return graph.add_edge(START, "a").add_conditional_edges("a", route, targets).compile()


GRAPH = build()
OPEN = build(None)


def returned(value, graph=GRAPH):
    return normalize(graph, graph.nodes["a"], value)


FORMS = {
    "None is nothing": (None, NodeReturn()),
    "an empty dict is nothing": ({}, NodeReturn()),
    "an update": ({"n": 1, "log": ["x"]}, NodeReturn((("n", 1, False), ("log", ["x"], False)))),
    "an overwrite": ({"log": Overwrite(["x"])}, NodeReturn((("log", ["x"], True),))),
    "another mapping": (types.MappingProxyType({"n": 1}), NodeReturn((("n", 1, False),))),
    "a dict subclass": (collections.OrderedDict(n=1), NodeReturn((("n", 1, False),))),
    "a command's update": (Command(update={"n": 1}), NodeReturn((("n", 1, False),))),
    "a command's goto": (Command(goto="b"), NodeReturn(goto=("b",))),
    "several gotos, each once": (Command(goto=["b", "a", "b"]), NodeReturn(goto=("b", "a"))),
    "goto END goes nowhere": (Command(goto=END), NodeReturn(goto=())),
    "goto END and a node": (Command(goto=[END, "b"]), NodeReturn(goto=("b",))),
    "an empty command": (Command(), NodeReturn()),
    "a send keeps the edges": (Send("b", {"n": 1}), NodeReturn(sends=(Send("b", {"n": 1}),))),
    "a send by goto replaces the edges": (
        Command(goto=Send("b")),
        NodeReturn(goto=(), sends=(Send("b"),)),
    ),
    "equal sends are separate (reference C)": (
        [Send("b"), Send("b")],
        NodeReturn(sends=(Send("b"), Send("b"))),
    ),
    "a list in order (graph 54)": (
        [Command(update={"log": ["a"]}), {"log": ["b"]}, None, Send("b"), Command(goto="a")],
        NodeReturn((("log", ["a"], False), ("log", ["b"], False)), goto=("a",), sends=(Send("b"),)),
    ),
    "two writes of one key in a list are both kept": (
        [{"n": 1}, {"n": 2}],
        NodeReturn((("n", 1, False), ("n", 2, False))),
    ),
    "a tuple is a list": (
        ({"n": 1}, Send("b")),
        NodeReturn((("n", 1, False),), None, (Send("b"),)),
    ),
    "gotos of several commands add up (graph 53)": (
        [Command(goto="a"), Command(goto="b")],
        NodeReturn(goto=("a", "b")),
    ),
}


@pytest.mark.parametrize("form", FORMS)
def test_a_return_has_one_form(form):
    value, expected = FORMS[form]

    assert returned(value) == expected


class Named(NamedTuple):
    n: int


WRONG = {
    "a number in a list": (
        [{"n": 1}, 5],
        InvalidUpdate,
        r"returned 5 \(int\) at \[1\] of its list",
    ),
    "a named tuple": (Named(1), InvalidUpdate, r"returned Named\(n=1\) \(Named\), which is no"),
    "a set": ({"n"}, InvalidUpdate, "which is no update"),
    "True": (True, InvalidUpdate, r"returned True \(bool\), which is no update"),
    "a nested list": ([[{"n": 1}]], InvalidUpdate, r"at \[0\] of its list"),
    "a key that is no str": ({1: 2}, InvalidUpdate, r"returned the key 1 \(int\); keys are str"),
    "a reserved key": ({"__n": 2}, InvalidUpdate, "'__' are reserved"),
    "an unknown key": ({"m": 2}, UnknownChannel, "which State lacks"),
    "an unknown key of a command": (Command(update={"m": 2}), UnknownChannel, "'m', which State"),
    "a command's update that is no dict": (
        Command(update=[1]),
        InvalidUpdate,
        r"returned Command\(update=\[1\]\); give a dict",
    ),
    "a command that answers": (
        Command(resume="yes"),
        InvalidUpdate,
        r"only a call can answer a question: app.resume\(answer\)",
    ),
    "an overwrite of a wrong type": (
        {"log": Overwrite("x")},
        InvalidUpdate,
        r"expected list\[str\]",
    ),
    "a goto that is no name": (Command(goto=5), UnknownTarget, r"to 5 \(int\)"),
    "goto START": (Command(goto=START), UnknownTarget, "no such node"),
    "a send to END": (Send(END), UnknownTarget, "no such node"),
    "a send of an unknown key": (Send("b", {"m": 1}), UnknownChannel, "'m', which State lacks"),
    "a send of a wrong type": (Send("b", {"n": "1"}), InvalidUpdate, "expected int"),
    "a send of one item for a list": (Send("b", {"log": "x"}), InvalidUpdate, r"list\[str\]"),
    "a send of an overwrite": (Send("b", {"n": Overwrite(1)}), InvalidUpdate, "the value itself"),
    "a send of no dict": (Send("b", 5), InvalidUpdate, r"made Send\('b', 5\); give a dict"),
    "a send with an unfit timeout": (Send("b", timeout=0), InvalidUpdate, "timeout of a Send to"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_return_is_refused(case):
    value, error, words = WRONG[case]

    with pytest.raises(error, match=words) as caught:
        returned(value)

    assert type(caught.value) is error
    assert caught.value.node == "a"


def test_an_unknown_goto_or_send_is_an_error_of_its_own_kind():
    """Reference AF, AG."""
    for value in (Command(goto="x"), Send("x")):
        with pytest.raises(UnknownTarget) as caught:
            returned(value)
        assert caught.value.target == "x"


def test_a_coroutine_is_closed_and_told():
    async def work():
        return {}

    with pytest.raises(InvalidUpdate, match="write the node with async def"):
        returned(work())


def test_without_a_schema_any_key_and_value_pass():
    value = object()

    assert returned({"x": value, "y": Overwrite(1)}, OPEN).writes == (
        ("x", value, False),
        ("y", 1, True),
    )


def test_without_a_schema_reserved_keys_and_keys_that_are_no_str_are_refused():
    for update in ({"__x": 1}, {1: 1}):
        with pytest.raises(InvalidUpdate):
            returned(update, OPEN)


def test_a_reducer_of_an_open_graph_takes_anything():
    graph = Graph(name="g").add_node("a", nothing).add_edge(START, "a")
    compiled = graph.add_reducer("log", operator.add).compile()

    assert returned({"log": ["x"]}, compiled).writes == (("log", ["x"], False),)


def test_values_are_passed_by_reference():
    value = ["x"]

    assert returned({"log": value}).writes[0][1] is value


class TestInput:
    def test_a_mapping_is_an_update(self):
        assert normalize_input(GRAPH, {"n": 1}) == NodeReturn((("n", 1, False),))

    def test_an_empty_mapping_is_nothing(self):
        assert normalize_input(GRAPH, {}) == NodeReturn()

    def test_a_command_updates_and_goes(self):
        """Graph 28."""
        command = Command(update={"n": 1}, goto=["b", Send("a")], resume="yes")

        assert normalize_input(GRAPH, command) == NodeReturn(
            (("n", 1, False),), goto=("b",), sends=(Send("a"),)
        )

    def test_an_overwrite_is_taken(self):
        assert normalize_input(GRAPH, {"log": Overwrite([])}).writes == (("log", [], True),)

    @pytest.mark.parametrize("value", [None, 5, [{"n": 1}], Send("b")])
    def test_anything_else_is_refused(self, value):
        with pytest.raises(InvalidUpdate, match="the input is"):
            normalize_input(GRAPH, value)

    def test_an_unknown_goto_names_the_input(self):
        with pytest.raises(UnknownTarget, match=r"the input has Command\(goto=...\) to 'x'"):
            normalize_input(GRAPH, Command(goto="x"))


class TestRouting:
    def test_a_key_of_the_targets_becomes_its_node(self):
        graph = build(targets={True: "b", "back": "a", 3: END})
        branch = graph.branches["a"][0]

        assert normalize_routing(graph, branch, True) == (("b",), ())
        assert normalize_routing(graph, branch, ["back", True]) == (("a", "b"), ())
        assert normalize_routing(graph, branch, 3) == ((), ())

    def test_without_targets_the_name_of_a_node_is_taken(self):
        branch = GRAPH.branches["a"][0]

        assert normalize_routing(GRAPH, branch, "b") == (("b",), ())
        assert normalize_routing(GRAPH, branch, ("b", "a", "b")) == (("b", "a"), ())

    def test_end_and_an_empty_list_go_nowhere(self):
        graph = build(targets={"x": "b"})
        for value in (END, [], [END]):
            assert normalize_routing(graph, graph.branches["a"][0], value) == ((), ())

    def test_sends_are_kept_in_order_and_never_merged(self):
        sends = [Send("b", {"n": 1}), Send("b", {"n": 1}), Send("a")]

        assert normalize_routing(GRAPH, GRAPH.branches["a"][0], sends) == ((), tuple(sends))

    def test_a_tuple_may_be_a_key(self):
        graph = build(targets={("x", 1): "b"})

        assert normalize_routing(graph, graph.branches["a"][0], ("x", 1)) == (("b",), ())

    def test_a_node_that_is_no_key_of_the_targets_is_refused(self):
        graph = build(targets={"x": "b"})

        with pytest.raises(UnknownTarget, match="expected one of its targets"):
            normalize_routing(graph, graph.branches["a"][0], "b")

    @pytest.mark.parametrize("value", [None, "c", 5, [None], {"b"}, START])
    def test_anything_else_is_refused_with_router_and_value(self, value):
        with pytest.raises(UnknownTarget, match="router 'route' after 'a' returned") as caught:
            normalize_routing(GRAPH, GRAPH.branches["a"][0], value)

        assert (caught.value.node, caught.value.router) == ("a", "route")

    def test_a_send_of_a_router_is_judged(self):
        with pytest.raises(UnknownTarget, match="router 'route' made a Send to 'x'"):
            normalize_routing(GRAPH, GRAPH.branches["a"][0], Send("x"))
        with pytest.raises(UnknownChannel):
            normalize_routing(GRAPH, GRAPH.branches["a"][0], [Send("b", {"zz": 1})])
