"""Compiled graphs as nodes, and commands to the graph around."""

from __future__ import annotations

import dataclasses
from typing import Annotated, TypedDict

import pytest

from beamweaver.errors import InvalidGraph, InvalidUpdate, UnknownChannel, UnknownTarget
from beamweaver.graph import Graph, RemainingSteps, append, normalize
from beamweaver.types import END, PARENT, START, Command, Send

pytestmark = pytest.mark.usefixtures("everything")


class Parent(TypedDict):
    url: str
    n: int


class Child(TypedDict):
    n: int
    own: str


class Other(TypedDict):
    text: str


class Text(TypedDict):
    n: str


class Needs(TypedDict):
    own: str


@dataclasses.dataclass
class Data:
    own: str
    n: int = 0


def nothing(state):
    return None


def child(schema=Child, **options):
    return Graph(schema, name="inner", **options).add_node("x", nothing).add_edge(START, "x")


def parent(inner, schema=Parent, **options):
    graph = Graph(schema, name="outer").add_node("before", nothing).add_edge(START, "before")
    return graph.add_node("inside", inner, **options).add_edge("before", "inside")


def test_a_compiled_graph_is_a_node():
    inner = child().compile()
    spec = parent(inner).compile().nodes["inside"]

    assert spec.subgraph is inner
    assert not spec.persistent
    assert spec.caller is None


def test_its_name_may_be_left_to_the_graph():
    graph = Graph(Parent, name="outer").add_node(child().compile()).add_edge(START, "inner")

    assert list(graph.compile().nodes) == ["inner"]


def test_it_may_be_persistent_deferred_and_timed():
    spec = (
        parent(child().compile(), persistent=True, defer=True, timeout=3).compile().nodes["inside"]
    )

    assert (spec.persistent, spec.defer, spec.timeout) == (True, True, 3.0)


def test_it_has_no_function_to_call():
    spec = parent(child().compile()).compile().nodes["inside"]

    with pytest.raises(NotImplementedError, match="run its subgraph"):
        spec.fn({})


def test_without_a_schema_on_either_side_nothing_is_judged():
    assert parent(child(None).compile()).compile()
    assert parent(child(Other).compile(), schema=None).compile()


FAULTS = {
    "no key in common": (
        lambda: child(Other).compile(),
        (
            "graph 'inner' and Parent have no key in common, so nothing goes in and nothing comes back. Its "
            "keys: 'text'; give one of them to both, or call it inside of a node: ctx.call(graph, input)"
        ),
    ),
    "a key of another type": (
        lambda: child(Text).compile(),
        "graph 'inner' has str for the key 'n', and here it is int; make them the same, or rename one",
    ),
    "an input that nothing gives": (
        lambda: child(input_schema=Needs).compile(),
        (
            "graph 'inner' requires the key 'own', which Parent lacks. Add it, or give it a default in the "
            "graph"
        ),
    ),
    "a field that nothing gives": (
        lambda: child(Data).compile(),
        (
            "graph 'inner' requires the key 'own', which Parent lacks. Add it, or give it a default in the "
            "graph"
        ),
    ),
}


@pytest.mark.parametrize("what", FAULTS)
def test_graphs_that_do_not_fit_are_a_fault(what):
    inner, words = FAULTS[what]

    with pytest.raises(InvalidGraph) as caught:
        parent(inner()).compile()

    assert any(fault.endswith(words) for fault in caught.value.faults)
    assert caught.value.faults[0].startswith("node 'inside' at ")


REFUSED = {
    "a checkpointer of its own": (
        lambda: parent(child().compile(checkpointer=object())),
        "graph 'inner' has a checkpointer, and as a node it is kept with its parent",
    ),
    "input_schema": (
        lambda: parent(child().compile(), input_schema=Child),
        "a graph as a node has an input_schema of its own",
    ),
    "isolation": (
        lambda: parent(child().compile(), isolation="process"),
        "a graph as a node runs with its parent",
    ),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_a_subgraph_cannot_have_is_refused_at_once(what):
    build, words = REFUSED[what]

    with pytest.raises(InvalidGraph, match=words):
        build()


class TestSendsToAGraph:
    def compiled(self, inner):
        graph = Graph(Parent, name="outer").add_node("a", nothing).add_edge(START, "a")
        return graph.add_node("inside", inner).add_edge("a", "inside").compile()

    def test_they_bring_keys_of_its_input(self):
        graph = self.compiled(child().compile())

        assert normalize(graph, graph.nodes["a"], Send("inside", {"own": "x"})).sends

    def test_other_keys_are_refused(self):
        graph = self.compiled(child().compile())

        with pytest.raises(UnknownChannel, match="which that node does not see. .*'n', 'own'"):
            normalize(graph, graph.nodes["a"], Send("inside", {"url": "/"}))

    def test_one_without_a_schema_takes_the_keys_of_the_parent(self):
        graph = self.compiled(child(None).compile())

        assert normalize(graph, graph.nodes["a"], Send("inside", {"url": "/"})).sends


class TestParent:
    """`graph 41`, `langgraph 49`: a command to the graph around."""

    def graphs(self):
        inner = child().compile()
        return inner, parent(inner).compile()

    def test_it_is_kept_for_the_parent_to_judge(self):
        inner, outer = self.graphs()
        command = Command(graph=PARENT, update={"url": "/"}, goto="before")

        returned = normalize(inner, inner.nodes["x"], [{"own": "x"}, command], nested=True)

        assert returned.writes == (("own", "x", False),)
        assert returned.goto is None
        (kept,) = returned.parent
        judged = normalize(outer, outer.nodes["inside"], kept)
        assert (judged.writes, judged.goto) == ((("url", "/", False),), ("before",))

    def test_the_parent_refuses_what_it_does_not_know(self):
        inner, outer = self.graphs()
        returned = normalize(
            inner, inner.nodes["x"], Command(graph=PARENT, goto="befor"), nested=True
        )

        with pytest.raises(UnknownTarget, match="Did you mean 'before'"):
            normalize(outer, outer.nodes["inside"], returned.parent[0])

    def test_the_sentinel_is_on_the_command_too(self):
        assert Command.PARENT == PARENT
        assert Command(graph=Command.PARENT).graph == PARENT

    def test_a_graph_that_has_no_parent_refuses_it(self):
        inner, _outer = self.graphs()

        with pytest.raises(InvalidUpdate) as caught:
            normalize(inner, inner.nodes["x"], Command(graph=PARENT))

        assert str(caught.value) == (
            "node 'x' returned Command(graph=PARENT), and graph 'inner' does not run inside of another one "
            "here; leave graph= out"
        )

    def test_another_graph_is_refused(self):
        inner, _outer = self.graphs()

        with pytest.raises(InvalidUpdate, match=r"returned Command\(graph='outer'\); give PARENT"):
            normalize(inner, inner.nodes["x"], Command(graph="outer"), nested=True)

    def test_a_goto_to_end_leaves_the_parent_of_the_subgraph(self):
        inner, outer = self.graphs()
        returned = normalize(inner, inner.nodes["x"], Command(graph=PARENT, goto=END), nested=True)

        assert normalize(outer, outer.nodes["inside"], returned.parent[0]).goto == ()


def test_managed_keys_are_no_part_of_what_is_shared():
    class Counted(TypedDict):
        n: int
        log: Annotated[list[str], append]
        left: Annotated[int, RemainingSteps]

    assert parent(child(Counted).compile()).compile()
