"""Error handlers, deferred nodes, breakpoints: options that the engine is told."""

from __future__ import annotations

import enum
from typing import TypedDict

import pytest

from beamweaver.errors import InvalidGraph
from beamweaver.graph import (
    Graph,
    call_handler,
    call_on_failure,
    normalize,
    normalize_routing,
)
from beamweaver.types import START, Command, Failure, Send

pytestmark = pytest.mark.usefixtures("everything")

FAILURE = Failure(
    node="a", task_id="t", attempt=1, code="error", type_name="ValueError", message="no"
)


class State(TypedDict):
    n: int


def nothing(state):
    return None


def node(**options):
    graph = Graph(State, name="g").add_node("a", nothing, **options).add_edge(START, "a")
    return graph.compile().nodes["a"]


class Context:
    pass


def by_annotation(failure, where: Context):
    return (failure, where)


HANDLERS = {
    "failure": (lambda failure: failure, FAILURE),
    "failure and state": (lambda failure, state: (failure, state), (FAILURE, 1)),
    "all three": (lambda failure, state, ctx: (failure, state, ctx), (FAILURE, 1, 2)),
    "failure and context": (lambda failure, ctx: (failure, ctx), (FAILURE, 2)),
    "the context first": (lambda ctx, failure: (ctx, failure), (2, FAILURE)),
    "the context by keyword": (lambda failure, *, ctx: (failure, ctx), (FAILURE, 2)),
    "the context by annotation": (by_annotation, (FAILURE, 2)),
    "an optional parameter": (lambda failure, other=7: (failure, other), (FAILURE, 7)),
    "any number": (lambda failure, *rest: (failure, rest), (FAILURE, ())),
}


@pytest.mark.parametrize("what", HANDLERS)
def test_a_handler_gets_what_it_takes(what):
    fn, expected = HANDLERS[what]

    assert call_handler(node(error_handler=fn).error_handler, FAILURE, 1, 2) == expected


UNFIT = {
    "no function": (7, r"the error_handler is 7, which cannot be called"),
    "nothing": (lambda: None, r"a handler takes \(failure, state, ctx\)"),
    "too many": (
        lambda failure, state, other: None,
        r"has the parameters \(failure, state, other\)",
    ),
    "keywords": (lambda failure, *, other: None, r"has the parameters"),
    "a context alone": (lambda ctx: None, r"has the parameters \(ctx\)"),
}


@pytest.mark.parametrize("what", UNFIT)
def test_a_handler_of_something_else_is_refused_at_once(what):
    fn, words = UNFIT[what]

    with pytest.raises(InvalidGraph, match=words):
        Graph(name="g").add_node("a", nothing, error_handler=fn)


def test_a_generator_is_no_handler():
    def handler(failure):
        yield failure

    with pytest.raises(InvalidGraph, match="the error_handler is a generator function"):
        Graph(name="g").add_node("a", nothing, error_handler=handler)


def test_an_async_handler_is_known():
    async def handler(failure):
        return None

    assert node(error_handler=handler).error_handler.is_async


def test_a_handler_has_the_name_of_its_function():
    assert node(error_handler=by_annotation).error_handler.name == "by_annotation"


def test_a_builtin_without_a_signature_gets_the_failure():
    assert call_handler(node(error_handler=type).error_handler, FAILURE, 1, 2) is Failure


class TestDefaults:
    """`graph 104`, `langgraph 147`: defaults apply whatever the order; a node's own option wins."""

    def build(self, **options):
        graph = Graph(State, name="g").add_node("a", nothing, **options).add_edge(START, "a")
        graph.set_node_defaults(error_handler=lambda failure: "default", timeout=3)
        return graph.add_node("b", nothing).add_edge("a", "b").compile().nodes

    def test_a_default_handler_is_every_nodes(self):
        nodes = self.build()

        assert {call_handler(each.error_handler, FAILURE, 1, 2) for each in nodes.values()} == {
            "default"
        }

    def test_a_nodes_own_handler_wins(self):
        nodes = self.build(error_handler=lambda failure: "own")

        assert call_handler(nodes["a"].error_handler, FAILURE, 1, 2) == "own"

    def test_none_turns_it_off(self):
        assert self.build(error_handler=None)["a"].error_handler is None

    def test_defaults_given_in_two_calls_add_up(self):
        graph = Graph(name="g").add_node("a", nothing).add_edge(START, "a")
        graph.set_node_defaults(timeout=3).set_node_defaults(retries=1)
        found = graph.compile().nodes["a"]

        assert (found.timeout, found.retry.max_attempts) == (3.0, 2)


class TestOnFailure:
    def test_it_gets_failures_and_context(self):
        graph = Graph(name="g").add_node("a", nothing).add_edge(START, "a")
        compiled = graph.compile(on_failure=lambda failures, ctx: (failures, ctx))

        assert call_on_failure(compiled.on_failure, (FAILURE,), 2) == ((FAILURE,), 2)

    def test_something_else_is_a_fault(self):
        graph = Graph(name="g").add_node("a", nothing).add_edge(START, "a")

        with pytest.raises(InvalidGraph, match=r"on_failure has the parameters \(a, b\); .*ctx\)"):
            graph.compile(on_failure=lambda a, b: None)


class TestBreakpoints:
    def build(self, **options):
        graph = Graph(name="g").add_node("a", nothing).add_node("b", nothing)
        return graph.add_edge(START, "a").add_edge("a", "b").compile(**options)

    def test_they_are_names_or_all(self):
        compiled = self.build(interrupt_before=["b"], interrupt_after="*")

        assert compiled.interrupt_before == {"b"}
        assert compiled.interrupt_after == {"a", "b"}

    def test_an_unknown_node_is_a_fault_with_the_nearest(self):
        with pytest.raises(InvalidGraph) as caught:
            self.build(interrupt_before=["B"])

        assert str(caught.value) == (
            "graph 'g': interrupt_before names 'B', and there is no such node. Did you mean 'b'? Nodes: "
            "'a', 'b'"
        )

    def test_a_name_alone_is_a_fault(self):
        with pytest.raises(
            InvalidGraph, match=r"interrupt_after is 'b'; give a list of node names"
        ):
            self.build(interrupt_after="b")

    def test_strict_is_on_or_off_or_as_the_runtime_says(self):
        assert [self.build(strict=strict).strict for strict in (True, False, None)] == [
            True,
            False,
            None,
        ]
        with pytest.raises(InvalidGraph, match="strict is 1; give True, False, or None"):
            self.build(strict=1)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"defer": 1}, "defer is 1; give True or False"),
        ({"isolation": "thread"}, "isolation is 'thread'; give 'process'"),
        ({"persistent": True}, "persistent=True is for a compiled graph as a node"),
    ],
)
def test_an_unfit_option_of_a_node_is_refused_at_once(options, words):
    with pytest.raises(InvalidGraph, match=words):
        Graph(name="g").add_node("a", nothing, **options)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (
            lambda g: g.add_node("a", nothing, retris=2),
            "no option 'retris'. Did you mean 'retries'",
        ),
        (lambda g: g.set_node_defaults(defer=True), "no option 'defer'"),
        (lambda g: g.compile(checkpoint=1), "no option 'checkpoint'. Did you mean 'checkpointer'"),
        (lambda g: g.compile(7), "give options by name"),
    ],
)
def test_an_option_that_is_not_there_is_a_type_error(call, words):
    with pytest.raises(TypeError, match=words):
        call(Graph(name="g"))


def test_a_deferred_node_is_known():
    assert node(defer=True).defer
    assert not node().defer


class Names(enum.StrEnum):
    A = "a"
    B = "b"


def test_members_of_a_str_enum_are_names_by_their_value():
    """`langgraph 7`: string enums as node names."""
    graph = Graph(name="g").add_node(Names.A, nothing).add_node(Names.B, nothing)
    compiled = graph.add_edge(START, Names.A).add_conditional_edges(Names.A, nothing).compile()

    went = normalize(compiled, compiled.nodes["a"], [Command(goto=Names.B), Send(Names.B, {})])
    routed, _sends = normalize_routing(compiled, compiled.branches["a"][0], Names.B)

    assert [type(name) for name in (*compiled.nodes, *compiled.edges[START])] == [str, str, str]
    assert [type(name) for name in (*went.goto, *routed)] == [str, str]
    assert type(went.sends[0].node) is str
