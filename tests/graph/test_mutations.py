"""State is shared by reference: what a node changed in place is found."""

from __future__ import annotations

import collections
import dataclasses
from typing import Annotated, Any, TypedDict

import msgspec
import pytest

from beamweaver.errors import StateMutated
from beamweaver.graph import Graph, Untracked, Watch, mutations, state_mutated, watch
from beamweaver.types import START

pytestmark = pytest.mark.usefixtures("everything")


@dataclasses.dataclass
class Data:
    n: int = 0
    log: list[str] = dataclasses.field(default_factory=list)


class Struct(msgspec.Struct):
    n: int = 0
    log: list[str] = []


TOP = {
    "nothing": (lambda state: None, ()),
    "a key set": (lambda state: state.update(n=2), ("n",)),
    "a key set to an equal object": (lambda state: state.update(log=["a"]), ("log",)),
    "a key added": (lambda state: state.update(new=1), ("new",)),
    "a key deleted": (lambda state: state.pop("n"), ("n",)),
    "one deleted and one added": (lambda state: state.update(m=state.pop("n")), ("n", "m")),
    "all": (lambda state: state.clear(), ("n", "log")),
    "inside of a value": (lambda state: state["log"].append("b"), ()),
}


@pytest.mark.parametrize("what", TOP)
def test_the_keys_that_a_node_changed_are_found(what):
    """`mutation`: semantics 16, the shallow copy compared by identity."""
    change, keys = TOP[what]
    before = {"n": 1, "log": ["a"]}
    view = dict(before)
    change(view)

    assert mutations(before, view) == keys


@pytest.mark.parametrize("schema", [Data, Struct])
def test_attributes_that_a_node_changed_are_found(schema):
    graph = Graph(schema, name="g").add_node("a", lambda state: None).add_edge(START, "a").compile()
    shape = graph.shape_of(graph.nodes["a"])
    view = graph.view({"n": 1})
    before = shape.read(view)
    view.n = 2

    assert mutations(before, shape.read(view)) == ("n",)
    assert mutations(before, before) == ()


def test_a_deleted_attribute_is_found():
    graph = Graph(Data, name="g").add_node("a", lambda state: None).add_edge(START, "a").compile()
    view = graph.view({"n": 1})
    before = graph.shape.read(view)
    del view.log

    assert mutations(before, graph.shape.read(view)) == ("log",)


def test_a_value_that_cannot_be_compared_is_compared_by_identity():
    class Odd:
        def __eq__(self, other):
            raise RuntimeError

        __hash__ = None

    odd = Odd()

    assert mutations({"x": odd}, {"x": odd}) == ()
    assert mutations({"x": odd}, {"x": Odd()}) == ("x",)


def test_the_error_names_node_key_and_cure():
    error = state_mutated("load", ("n",))

    assert isinstance(error, StateMutated)
    assert (error.node, error.keys, error.code) == ("load", ("n",), "state_mutated")
    assert str(error) == (
        "node 'load' changed the key 'n' of the state that it was given, in place. State is shared, so "
        'that change is lost or seen by others: return an update, such as {"n": ...}'
    )


def test_the_error_names_several_keys():
    assert "changed the keys 'n', 'm' of the state" in str(state_mutated("load", ("n", "m")))


def test_the_error_of_a_nested_change_names_the_path():
    assert str(state_mutated("load", ("['log'][0]",))) == (
        "node 'load' changed state['log'][0] of the state that it was given, in place. State is shared, so "
        'that change is lost or seen by others: return a new value, such as {"log": [*state["log"], '
        "item]}, or use a reducer"
    )


class Slotted:
    __slots__ = ("items", "unset")

    def __init__(self):
        self.items = []


def values() -> dict[str, Any]:
    return {
        "list": [1, [2]],
        "dict": {"k": {"deep": [1]}},
        "set": {1},
        "deque": collections.deque([1]),
        "bytes": bytearray(b"a"),
        "data": Data(log=["a"]),
        "struct": Struct(log=["a"]),
        "slots": Slotted(),
        "tuple": ([1], {"x": 1}),
        "text": "abc",
    }


NESTED = {
    "an item appended": (lambda v: v["list"].append(3), "['list']"),
    "an item replaced by an equal one": (lambda v: v["list"].__setitem__(1, [2]), "['list']"),
    "an inner list": (lambda v: v["list"][1].append(3), "['list'][1]"),
    "a key of a dict": (lambda v: v["dict"].update(k=1), "['dict']"),
    "a dict in a dict": (lambda v: v["dict"]["k"].pop("deep"), "['dict']['k']"),
    "a list in a dict in a dict": (
        lambda v: v["dict"]["k"]["deep"].clear(),
        "['dict']['k']['deep']",
    ),
    "a set": (lambda v: v["set"].add(2), "['set']"),
    "a deque": (lambda v: v["deque"].append(2), "['deque']"),
    "bytes": (lambda v: v["bytes"].append(2), "['bytes']"),
    "an attribute": (lambda v: setattr(v["data"], "n", 5), "['data']"),
    "a list of an attribute": (lambda v: v["data"].log.append("b"), "['data'].log"),
    "an attribute of a Struct": (lambda v: setattr(v["struct"], "n", 5), "['struct']"),
    "an attribute that was not set": (lambda v: setattr(v["slots"], "unset", 1), "['slots']"),
    "a list of slots": (lambda v: v["slots"].items.append(1), "['slots'].items"),
    "a list in a tuple": (lambda v: v["tuple"][0].append(1), "['tuple'][0]"),
    "a dict in a tuple": (lambda v: v["tuple"][1].update(x=2), "['tuple'][1]"),
}


@pytest.mark.parametrize("what", NESTED)
def test_a_change_at_any_depth_is_found_with_its_path(what):
    change, path = NESTED[what]
    given = values()
    seen = Watch(given)
    change(given)

    assert seen.changes() == (path,)


def test_where_nothing_changed_nothing_is_found():
    given = values()
    seen = Watch(given)
    sorted(given["list"], key=str)

    assert seen.changes() == ()
    assert seen.complete


def test_values_that_hold_themselves_are_watched_once():
    loop: list[Any] = []
    loop.append(loop)
    seen = Watch({"loop": loop})
    loop.append(1)

    assert seen.changes() == ("['loop']",)


def test_a_large_state_is_watched_in_part_and_said_so():
    given = {"rows": [[n] for n in range(10)]}
    seen = Watch(given, most=5)
    given["rows"].append([])

    assert not seen.complete
    assert seen.changes() == ("['rows']",)


def test_classes_functions_and_modules_are_not_looked_into():
    given = {"x": [Data, collections, nothing := (lambda state: None)]}
    seen = Watch(given)
    nothing.note = 1

    assert seen.changes() == ()


def test_untracked_keys_are_not_watched():
    class State(TypedDict):
        log: list[str]
        client: Annotated[object, Untracked]

    graph = Graph(State, name="g").add_node("a", lambda state: None).add_edge(START, "a").compile()
    given = {"log": [], "client": []}
    seen = watch(graph, given)
    given["client"].append(1)

    assert seen.changes() == ()
    given["log"].append("x")
    assert seen.changes() == ("['log']",)
