"""What beginners do wrong with the state, through `invoke`, and the words they get; nothing wrong is stored.

Each case is a row of the table of mistakes; the whole message is pinned.
"""

from __future__ import annotations

import dataclasses
import operator
import threading
from typing import Annotated, Any, TypedDict

import pytest

from beamweaver import START, Command, Graph, Overwrite, Send
from beamweaver.errors import BeamWeaverError
from beamweaver.graph import Ephemeral, IsLastStep, Topic


class State(TypedDict, total=False):
    count: int
    names: Annotated[list[str], operator.add]
    found: Annotated[list[str], Topic]
    hint: Annotated[str, Ephemeral]
    best: Annotated[int, max]
    last: Annotated[bool, IsLastStep]
    notes: Any


@dataclasses.dataclass
class Job:
    url: str
    pages: int = 0


def returns(*values, schema=State):
    """One node for each value, side by side, named a, b, c."""
    graph = Graph(schema, name="g")
    for name, value in zip("abc", values, strict=False):
        graph.add_node(name, lambda _state, value=value: value).add_edge(START, name)
    return graph


def changes(state):
    state["count"] = 2


def brittle(_current, _update):
    raise ZeroDivisionError("oh")


RETURNS = {
    "node returns a key that the state lacks": (
        returns({"cuont": 1}),
        (
            "node 'a' returned the key 'cuont', which State lacks. Did you mean 'count'? Its keys: 'count', "
            "'names', 'found', 'hint', 'best', 'last', 'notes'. Add 'cuont' to State, or fix the name"
        ),
    ),
    "node returns the wrong type for a key": (
        returns({"count": "oops"}),
        (
            "node 'a' returned 'oops' (str) for the key 'count'; expected int. Give a value of type int, or "
            "change the type of 'count'"
        ),
    ),
    "node overwrites with the wrong type": (
        returns({"names": Overwrite("Ada")}),
        (
            "node 'a' returned 'Ada' (str) for the key 'names'; expected list[str]. Wrap it in a list: "
            '{"names": [...]}'
        ),
    ),
    "node commands the wrong type": (
        returns(Command(update={"count": None})),
        (
            "node 'a' returned None for the key 'count'; expected int. Give a value of type int, or "
            "change the type of 'count'"
        ),
    ),
    "node sends the wrong type": (
        returns(Send("a", {"count": "oops"})),
        (
            "node 'a' made a Send to 'a' with 'oops' (str) for the key 'count'; expected int. Give "
            "a value of type int, or change the type of 'count'"
        ),
    ),
    "node sends an unknown key": (
        returns(Send("a", {"cuont": 1})),
        (
            "node 'a' made a Send to 'a' with the key 'cuont', which State lacks. Did you mean 'count'? Its "
            "keys: 'count', 'names', 'found', 'hint', 'best', 'last', 'notes'. Add 'cuont' to "
            "State, or fix the name"
        ),
    ),
    "node writes what is computed": (
        returns({"last": True}),
        (
            "node 'a' returned True (bool) for the key 'last', which is read only: it is computed "
            "for each step (IsLastStep). Leave it out, or use another key"
        ),
    ),
    "node returns an instance of the state": (
        returns(Job("/"), schema=Job),
        (
            "node 'a' returned Job(url='/', pages=0) (Job), which is no update. To write some of its fields, "
            'return update_of(Job, url=...). Return None, a dict such as {"url": ...}, a Command, a '
            "Send, or a list of these"
        ),
    ),
    "node returns 5": (
        returns(5),
        (
            "node 'a' returned 5 (int), which is no update. Return None, a dict such as {\"count\": ...}, a "
            "Command, a Send, or a list of these"
        ),
    ),
    "unserializable value in state": (
        returns({"notes": {"conn": [threading.Lock()]}}),
        (
            "node 'a' failed in attempt 1: beamweaver.errors.SerializationError: node 'a', notes: "
            "$.conn[0] is "
            "of type _thread.lock, which cannot be stored: an open handle cannot be stored; open it "
            "in the node that uses it, or keep it in an Untracked key"
        ),
    ),
    "two parallel writers, no reducer": (
        returns({"count": 1}, {"count": 2}),
        (
            "'a' and 'b' wrote 'count' in one step; a key without a reducer takes one value a step: "
            "give it a "
            "reducer (Annotated[T, fn] or add_reducer('count', fn)), or let one of them write it"
        ),
    ),
    "two parallel writers of an ephemeral key": (
        returns({"hint": "x"}, {"hint": "y"}),
        (
            "'a' and 'b' wrote 'hint' in one step; a key without a reducer takes one value a step: give it a "
            "reducer (Annotated[T, fn] or add_reducer('hint', fn)), or let one of them write it"
        ),
    ),
    "one return writes a key twice": (
        returns([{"count": 1}, {"count": 2}]),
        (
            "node 'a' gave two values for 'count' in one return; a key without a reducer takes one a step: "
            "return one, or give the key a reducer (Annotated[T, fn])"
        ),
    ),
    "two parallel Overwrites": (
        returns({"found": Overwrite([])}, {"found": Overwrite([])}),
        (
            "'a' and 'b' wrote 'found' in one step; a key takes one Overwrite a step: return plain "
            "updates, or let one of them write it"
        ),
    ),
    "a reducer raises": (
        returns({"best": 1}).add_reducer("best", brittle),
        (
            "the reducer of 'best' raised ZeroDivisionError: oh while the updates of a were merged; their "
            "results are kept, continue the thread when the reducer is mended"
        ),
    ),
    "node changes its state in place": (
        returns().add_node("a", changes).add_edge(START, "a"),
        (
            "node 'a' changed the key 'count' of the state that it was given, in place. State is "
            "shared, so that "
            'change is lost or seen by others: return an update, such as {"count": ...}'
        ),
    ),
}


@pytest.mark.parametrize("row", RETURNS)
def test_what_a_node_does_wrong_is_said_and_not_stored(memory, row):
    """`mistakes`: the rows that concern the state."""
    graph, message = RETURNS[row]
    first = {"url": "/"} if graph.schema is Job else {"names": ["first"]}
    with graph.compile(checkpointer=memory) as app:
        with pytest.raises(BeamWeaverError) as caught:
            app.invoke(first, thread_id="t")
        state = app.get_state("t", app.get_state("t").config["configurable"]["checkpoint_id"])

    assert str(caught.value) == message
    assert state.status == "failed"
    assert state.values == (Job("/") if graph.schema is Job else {**EMPTY, "names": ["first"]})


EMPTY = {"names": [], "found": [], "best": 0}

INPUTS = {
    "input with an unknown key": (
        State,
        {"coutn": 1},
        (
            "the input has the key 'coutn', which State lacks. Did you mean 'count'? Its keys: "
            "'count', 'names', "
            "'found', 'hint', 'best', 'last', 'notes'. Add 'coutn' to State, or fix the name"
        ),
    ),
    "input of a wrong type": (
        State,
        {"names": ["Ada", 7]},
        (
            "the input has 7 (int) for the key 'names' at names[1]; expected str. Give a list of "
            "the declared type: list[str]"
        ),
    ),
    "input in a Command of a wrong type": (
        State,
        Command(update={"count": "1"}),
        (
            "the input has '1' (str) for the key 'count'; expected int. Give a value of type int, "
            "or change the type of 'count'"
        ),
    ),
    "input of what is computed": (
        State,
        {"last": False},
        (
            "the input has False (bool) for the key 'last', which is read only: it is computed for each step "
            "(IsLastStep). Leave it out, or use another key"
        ),
    ),
    "input is an instance of the state": (
        Job,
        Job("/"),
        (
            "the input is Job(url='/', pages=0) (Job); give a dict such as {\"url\": ...}, or a Command. To "
            "write some of its fields: update_of(Job, url=...)"
        ),
    ),
    "input lacks what the class requires": (
        Job,
        {"pages": 1},
        "the input lacks 'url', which Job requires: give {\"url\": ...}, or a default to the field",
    ),
    "unserializable value in the input": (
        State,
        {"notes": {"conn": threading.Lock()}},
        (
            "the input, notes: $.conn is of type _thread.lock, which cannot be stored: an open "
            "handle cannot be stored; open it in the node that uses it, or keep it in an Untracked key"
        ),
    ),
}


@pytest.mark.parametrize("row", INPUTS)
def test_a_wrong_input_is_refused_before_anything_is_stored(memory, row):
    """`mistakes`: the rows that concern inputs."""
    schema, given, message = INPUTS[row]
    with returns(None, schema=schema).compile(checkpointer=memory) as app:
        with pytest.raises(BeamWeaverError) as caught:
            app.invoke(given, thread_id="t")
        assert app.get_state("t") is None

    assert str(caught.value) == message
