"""Two versions of a graph: what they differ in, and how threads of the older one are migrated."""

from __future__ import annotations

from typing import Annotated, TypedDict

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from beamweaver.errors import InvalidGraph
from beamweaver.graph import (
    Ephemeral,
    Graph,
    Migration,
    append,
    difference,
    migrations_from,
    outline_from_json,
)
from beamweaver.graph.outline import Key, Outline
from beamweaver.types import END, START

pytestmark = pytest.mark.usefixtures("everything")


def nothing(state):
    return None


def yes(state):
    return True


class State(TypedDict):
    n: int
    log: Annotated[list[str], append]


class Changed(TypedDict):
    n: float
    log: list[str]
    new: str


class Kinds(TypedDict):
    n: Annotated[int, Ephemeral]
    log: Annotated[list[str], append]


class Input(TypedDict):
    n: int


class OtherInput(TypedDict):
    n: str


def base(schema=State, **options):
    graph = Graph(schema, name="g").add_node("load", nothing, **options).add_node("save", nothing)
    return graph.add_edge(START, "load")


def child(name):
    return Graph(State, name="c").add_node(name, nothing).add_edge(START, name).compile()


def nested(name):
    graph = Graph(State, name="g").add_node("in", child(name))
    return graph.add_edge(START, "in")


CASES = {
    "nothing": (base, base, []),
    "a node is renamed": (
        base,
        lambda: (
            Graph(State, name="g")
            .add_node("loads", nothing)
            .add_node("save", nothing)
            .add_edge(START, "loads")
        ),
        [
            "node 'load' is gone (renamed to 'loads'?)",
            "node 'loads' is new",
            "the edge START -> 'load' is gone",
            "the edge START -> 'loads' is new",
        ],
    ),
    "an order": (
        base,
        lambda: (
            Graph(State, name="g")
            .add_node("save", nothing)
            .add_node("load", nothing)
            .add_edge(START, "load")
        ),
        ["the nodes are declared in another order"],
    ),
    "an edge": (
        lambda: base().add_edge("load", "save"),
        lambda: base().add_edge("save", "load"),
        ["the edge 'load' -> 'save' is gone", "the edge 'save' -> 'load' is new"],
    ),
    "a join": (
        base,
        lambda: base().add_edge(["load", "save"], "save"),
        ["the join of 'load', 'save' -> 'save' is new"],
    ),
    "targets": (
        lambda: base().add_conditional_edges("load", nothing, {"ok": "save"}),
        lambda: base().add_conditional_edges("load", nothing),
        [
            "the conditional edge after 'load' to {'ok': 'save'} is gone",
            "the conditional edge after 'load' to any node is new",
        ],
    ),
    "the order of routers": (
        lambda: (
            base().add_conditional_edges("load", yes, ["save"]).add_conditional_edges("load", yes)
        ),
        lambda: (
            base().add_conditional_edges("load", yes).add_conditional_edges("load", yes, ["save"])
        ),
        ["the conditional edges are declared in another order"],
    ),
    "a guard": (
        lambda: base().add_edge("load", "save", when=yes),
        lambda: base().add_edge("load", END, when=yes).add_edge("load", "save", default=True),
        [
            "the guarded edge 'load' -> 'save' is gone",
            "the guarded edge 'load' -> END is new",
            "the default edge 'load' -> 'save' is new",
        ],
    ),
    "keys": (
        base,
        lambda: base(Changed),
        [
            "the key 'n' was int and is float",
            "the key 'log' had the reducer beamweaver.graph.reducers.append and has no reducer",
            "the key 'new' is new",
        ],
    ),
    "keys that are gone": (
        lambda: base(Changed),
        lambda: base(Input),
        [
            "the key 'n' was float and is int",
            "the key 'log' is gone",
            "the key 'new' is gone",
        ],
    ),
    "a kind": (base, lambda: base(Kinds), ["the key 'n' was a plain key and is Ephemeral()"]),
    "no schema": (
        lambda: base(Input),
        lambda: base(None),
        ["there was a schema", "the key 'n' is gone"],
    ),
    "a schema": (
        lambda: base(None),
        lambda: base(Input),
        ["there was no schema", "the key 'n' is new"],
    ),
    "defer": (base, lambda: base(defer=True), ["node 'load' is now deferred"]),
    "no defer": (lambda: base(defer=True), base, ["node 'load' is no longer deferred"]),
    "an input schema of a node": (
        base,
        lambda: base(input_schema=Input),
        ["node 'load' has an input schema of its own now"],
    ),
    "no input schema of a node": (
        lambda: base(input_schema=Input),
        base,
        ["node 'load' has no input schema of its own now"],
    ),
    "the input of a node": (
        lambda: base(input_schema=Input),
        lambda: base(input_schema=OtherInput),
        ["in the input of node 'load', the key 'n' was int and is str"],
    ),
    "inside of a subgraph": (
        lambda: nested("x"),
        lambda: nested("y"),
        [
            "in the graph 'in': node 'x' is gone",
            "in the graph 'in': node 'y' is new",
            "in the graph 'in': the edge START -> 'x' is gone",
            "in the graph 'in': the edge START -> 'y' is new",
        ],
    ),
    "a function that is a graph now": (
        lambda: Graph(State, name="g").add_node("in", nothing).add_edge(START, "in"),
        lambda: nested("x"),
        ["node 'in' was a function and is a graph"],
    ),
    "a graph that is a function now": (
        lambda: nested("x"),
        lambda: Graph(State, name="g").add_node("in", nothing).add_edge(START, "in"),
        ["node 'in' was a graph and is a function"],
    ),
}


def made(build):
    return build().compile(allow_unreachable=True)


@pytest.mark.parametrize("what", CASES)
def test_the_difference_of_two_graphs_is_told_in_words(what):
    old, new, words = CASES[what]

    assert difference(made(old), made(new)) == words


@pytest.mark.parametrize("what", CASES)
def test_the_difference_is_empty_exactly_if_the_fingerprints_are_equal(what):
    old, new, words = CASES[what]

    assert (made(old).fingerprint == made(new).fingerprint) is (not words)


names = st.sampled_from("abc")
outlines = st.builds(
    Outline,
    nodes=st.permutations("abc").map(lambda order: tuple(order[:2])),
    edges=st.sets(st.tuples(names, names), max_size=3).map(lambda found: tuple(sorted(found))),
    joins=st.sets(st.tuples(st.just(("a", "b")), names), max_size=2).map(
        lambda f: tuple(sorted(f))
    ),
    branches=st.lists(
        st.tuples(names, st.sampled_from([(("*", "*"),), (("'x'", "a"),)])), max_size=2
    ).map(lambda found: tuple(sorted(found, key=lambda each: each[0]))),
    guards=st.sets(st.tuples(names, names, st.booleans()), max_size=2).map(
        lambda f: tuple(sorted(f))
    ),
    keys=st.dictionaries(names, st.builds(Key, type=st.sampled_from(["int", "str"])), max_size=2),
    deferred=st.sampled_from([(), ("a",)]),
    open=st.booleans(),
)


@settings(max_examples=40, deadline=None)
@given(old=outlines, new=outlines)
def test_two_outlines_differ_in_words_if_they_differ(old, new):
    deferred = {name for each in (old, new) for name in each.deferred}
    if deferred <= set(old.nodes) & set(new.nodes):
        assert bool(difference(old, new)) is (old.digest() != new.digest())


@settings(max_examples=40, deadline=None)
@given(outlines)
def test_an_outline_survives_being_stored(outline):
    assert outline_from_json(outline.to_json()) == outline


def test_the_fingerprint_is_the_digest_of_the_outline():
    compiled = made(base)

    assert compiled.fingerprint == compiled.outline.digest()
    assert len(compiled.fingerprint) == 32


class TestMigration:
    def test_nodes_are_renamed_and_dropped(self):
        step = Migration(rename={"pay": "charge"}, drop=("old",))

        assert [step.new_node(name) for name in ("pay", "old", "other")] == [
            "charge",
            None,
            "other",
        ]

    def test_state_and_updates_are_given_to_functions_as_dicts_of_their_own(self):
        values = {"n": 1}
        step = Migration(
            state=lambda v: v.update(m=v.pop("n")) or v, update=lambda v: {**v, "u": 1}
        )

        assert step.new_state(values) == {"m": 1}
        assert step.new_update(values) == {"n": 1, "u": 1}
        assert values == {"n": 1}

    def test_without_functions_values_stay(self):
        assert Migration().new_state({"n": 1}) == {"n": 1}
        assert Migration().new_update({"n": 1}) == {"n": 1}

    def test_the_steps_from_a_stored_version_come_in_order(self):
        one, three = Migration(drop=("a",)), Migration(drop=("b",))

        assert migrations_from({3: three, 1: one}, 1, 4) == (one, three)
        assert migrations_from({3: three, 1: one}, 2, 4) == (three,)
        assert migrations_from({3: three, 1: one}, 4, 4) == ()


def versioned(migrations, version=3):
    graph = Graph(State, name="g", version=version).add_node("charge", nothing)
    return graph.add_edge(START, "charge").compile(migrations=migrations)


def test_a_graph_keeps_its_migrations():
    step = Migration(rename={"pay": "charge"})

    assert versioned({2: step}).migrations == {2: step}


WRONG = {
    "no dict": ([Migration()], "migrations is [Migration("),
    "no migration": (
        {1: {"pay": "charge"}},
        "migrations[1] is {'pay': 'charge'}; give a Migration",
    ),
    "the graph's own version": (
        {3: Migration()},
        "migrations[3]: a migration leads away from an older version; give 1 to 2 as its key",
    ),
    "no version": (
        {"1": Migration()},
        "migrations['1']: a migration leads away from an older version",
    ),
    "a new name that is not there": (
        {2: Migration(rename={"pay": "chrage"})},
        (
            "migrations[2]: rename of 'pay' to 'chrage', and there is no such node. Did you mean 'charge'? "
            "Nodes: 'charge'"
        ),
    ),
    "two nodes to one": (
        {2: Migration(rename={"a": "charge", "b": "charge"})},
        "migrations[2]: rename gives two nodes the same new name; give each its own",
    ),
    "renamed and dropped": (
        {2: Migration(rename={"pay": "charge"}, drop=("pay",))},
        "migrations[2]: 'pay' is renamed and dropped; keep one of the two",
    ),
    "dropped and there": (
        {2: Migration(drop=("charge",))},
        "migrations[2]: drop of 'charge', which the graph still has; take it out of drop",
    ),
    "a state that is no function": (
        {2: Migration(state={})},
        "migrations[2]: state is {}; give a function from a dict to a dict",
    ),
    "a rename that is no dict": (
        {2: Migration(rename=[("a", "b")])},
        "migrations[2]: rename is [('a', 'b')]; give a dict from old to new name",
    ),
    "a drop that is a name": (
        {2: Migration(drop="pay")},
        "migrations[2]: drop is 'pay'; give a tuple of names",
    ),
}


@pytest.mark.parametrize("what", WRONG)
def test_an_unfit_migration_is_a_fault(what):
    migrations, words = WRONG[what]

    with pytest.raises(InvalidGraph) as caught:
        versioned(migrations)

    assert any(fault.startswith(words) for fault in caught.value.faults), caught.value


def test_names_of_older_versions_are_not_judged():
    """A step that does not lead to the graph's own version leads to names that may be gone since."""
    assert versioned({1: Migration(rename={"a": "pay"}), 2: Migration(rename={"pay": "charge"})})


def test_a_graph_of_version_1_has_no_older_one():
    with pytest.raises(
        InvalidGraph, match="the graph's version is 1, so no thread is older; give Graph"
    ):
        versioned({1: Migration()}, version=1)
