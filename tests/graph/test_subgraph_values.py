"""What goes into a subgraph and what comes back from it."""

from __future__ import annotations

import operator
from typing import Annotated, TypedDict

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from beamweaver.graph import (
    Graph,
    RemainingSteps,
    Topic,
    add_messages,
    append,
    entering,
    leaving,
    merge,
)
from beamweaver.graph.channels import MISSING
from beamweaver.graph.subgraphs import comes_back, is_part, put_together
from beamweaver.types import START, Overwrite

pytestmark = pytest.mark.usefixtures("everything")


class State(TypedDict):
    n: int
    log: Annotated[list[int], append]
    text: Annotated[str, operator.add]
    notes: Annotated[dict[str, int], merge]
    seen: Annotated[set[int], operator.or_]
    most: Annotated[int, max]
    chat: Annotated[list[dict], add_messages]
    found: Annotated[list[int], Topic]
    left: Annotated[int, RemainingSteps]


class Input(TypedDict):
    n: int


class Output(TypedDict):
    log: list[int]


class Inner(TypedDict):
    n: int
    own: str


def compiled(schema=State, **options):
    graph = Graph(schema, name="g", **options).add_node("a", lambda state: None)
    return graph.add_edge(START, "a").compile()


def back(start, end, child=None, parent=None):
    child = child or compiled()
    return leaving(child, parent or compiled(), start, end, set(end))


class TestEntering:
    def test_it_begins_with_the_keys_that_it_has(self):
        assert entering(compiled(Inner), {"n": 1, "other": 2}) == {"n": 1}

    def test_an_input_schema_says_which(self):
        assert entering(compiled(input_schema=Input), {"n": 1, "log": [1]}) == {"n": 1}

    def test_without_a_schema_it_begins_with_all(self):
        assert entering(compiled(None), {"n": 1, "other": 2}) == {"n": 1, "other": 2}

    def test_managed_keys_are_its_own(self):
        assert entering(compiled(), {"left": 3}) == {}

    def test_values_are_shared(self):
        log = [1]

        assert entering(compiled(), {"log": log})["log"] is log


CASES = {
    "a last value": ({"n": 1}, {"n": 2}, {"n": 2}),
    "a last value that was absent": ({}, {"n": 2}, {"n": 2}),
    "items appended": ({"log": [1]}, {"log": [1, 2, 3]}, {"log": [2, 3]}),
    "a list that was absent": ({}, {"log": [1]}, {"log": [1]}),
    "a list thrown away": ({"log": [1, 2]}, {"log": [3]}, {"log": Overwrite([3])}),
    "text added": ({"text": "ab"}, {"text": "abc"}, {"text": "c"}),
    "keys set": (
        {"notes": {"a": 1, "b": 1}},
        {"notes": {"a": 1, "b": 2, "c": 3}},
        {"notes": {"b": 2, "c": 3}},
    ),
    "keys thrown away": ({"notes": {"a": 1}}, {"notes": {"b": 1}}, {"notes": Overwrite({"b": 1})}),
    "members added": ({"seen": {1}}, {"seen": {1, 2}}, {"seen": {2}}),
    "members thrown away": ({"seen": {1}}, {"seen": {2}}, {"seen": Overwrite({2})}),
    "another reducer": ({"most": 3}, {"most": 5}, {"most": 5}),
    "a message replaced and one added": (
        {"chat": [{"id": "a", "n": 1}, {"id": "b", "n": 1}]},
        {"chat": [{"id": "a", "n": 2}, {"id": "b", "n": 1}, {"id": "c", "n": 1}]},
        {"chat": [{"id": "a", "n": 2}, {"id": "c", "n": 1}]},
    ),
    "messages thrown away": (
        {"chat": [{"id": "a", "n": 1}, {"id": "b", "n": 1}]},
        {"chat": [{"id": "b", "n": 1}]},
        {"chat": Overwrite([{"id": "b", "n": 1}])},
    ),
    "a topic": ({"found": [1]}, {"found": [2]}, {"found": [2]}),
}


@pytest.mark.parametrize("what", CASES)
def test_what_it_wrote_comes_back_as_an_update(what):
    start, end, update = CASES[what]

    assert back(start, end) == update


def test_a_key_that_it_did_not_write_does_not_come_back():
    assert leaving(compiled(), compiled(), {"n": 1}, {"n": 1, "log": [1]}, {"log"}) == {"log": [1]}


def test_only_keys_of_the_output_schema_come_back():
    child = compiled(output_schema=Output)

    assert back({}, {"n": 2, "log": [1]}, child) == {"log": [1]}


def test_keys_that_the_parent_lacks_do_not_come_back():
    assert back({}, {"n": 2, "own": "x"}, compiled(Inner)) == {"n": 2}


def test_a_parent_without_a_schema_takes_all():
    assert back({}, {"n": 2, "own": "x"}, compiled(None), compiled(None)) == {"n": 2, "own": "x"}


values = {
    "log": st.lists(st.integers(0, 3), max_size=4),
    "notes": st.dictionaries(st.sampled_from("abc"), st.integers(0, 3), max_size=3),
    "seen": st.sets(st.integers(0, 3), max_size=3),
    "chat": st.lists(
        st.fixed_dictionaries({"id": st.sampled_from("abc"), "n": st.integers(0, 2)}),
        max_size=3,
        unique_by=lambda message: message["id"],
    ),
}


@pytest.mark.parametrize("key", values)
@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_the_parent_is_then_as_the_child_was(key, data):
    start, end = data.draw(values[key]), data.draw(values[key])
    graph = compiled()

    update = back({key: start}, {key: end}, graph, graph)[key]
    value = (
        update.value if isinstance(update, Overwrite) else graph.channels[key].fold(start, [update])
    )

    assert value == end


WHOLE = {
    "text": st.text("ab", max_size=3),
    "most": st.integers(0, 3),
    "n": st.integers(0, 3),
    **values,
}


@pytest.mark.parametrize("key", WHOLE)
@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_what_the_child_was_is_told_from_its_start_and_the_update(key, data):
    start, end = data.draw(WHOLE[key] | st.just(MISSING)), data.draw(WHOLE[key])
    graph = compiled()
    channel = graph.channels[key]
    update = back({} if start is MISSING else {key: start}, {key: end}, graph, graph)[key]

    assert comes_back(channel)
    if isinstance(update, Overwrite):
        assert update.value == end
    elif is_part(channel, start, update):
        assert put_together(channel, start, update) == end
    else:
        assert update == end


def test_what_a_topic_was_is_not_told_from_the_update():
    assert not comes_back(compiled().channels["found"])


def test_a_key_without_a_channel_comes_back_whole():
    assert comes_back(None)
    assert not is_part(None, [1], [2])


@pytest.mark.parametrize(
    ("start", "part", "end"), [([1], [2], [1, 2]), (MISSING, [2], [2]), ({1}, [2], [2])]
)
def test_where_the_parent_has_lost_the_key_its_kind_tells_how_parts_go_together(start, part, end):
    assert put_together(None, start, part) == end
