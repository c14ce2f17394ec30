"""Kinds of channels: topics, ephemeral, untracked and managed keys."""

from __future__ import annotations

import operator
from typing import Annotated, TypedDict

import pytest

from beamweaver.errors import InvalidGraph, InvalidUpdate
from beamweaver.graph import (
    MISSING,
    Ephemeral,
    Graph,
    IsLastStep,
    RemainingSteps,
    Topic,
    Untracked,
    append,
    normalize,
    normalize_input,
)
from beamweaver.types import START, Overwrite

pytestmark = pytest.mark.usefixtures("everything")


class State(TypedDict):
    n: int
    found: Annotated[list[str], Topic]
    all_found: Annotated[list[str], Topic(accumulate=True)]
    signal: Annotated[str, Ephemeral]
    parts: Annotated[list[int], Ephemeral, operator.add]
    client: Annotated[object, Untracked]
    left: Annotated[int, RemainingSteps]
    last: Annotated[bool, IsLastStep()]


def nothing(state):
    return None


def compiled(schema=State):
    return Graph(schema, name="g").add_node("a", nothing).add_edge(START, "a").compile()


def channel(name):
    return compiled().channels[name]


class TestTopic:
    """`channels 139`, `langgraph 14`: a topic collects, and clears each step unless it accumulates."""

    def test_it_collects_items_and_lists_of_them_in_order(self):
        assert channel("found").fold([], ["a", ["b", "c"], "d"]) == ["a", "b", "c", "d"]

    def test_a_step_begins_without_what_the_step_before_wrote(self):
        topic = channel("found")

        assert topic.fold(topic.begin(["old"]), ["new"]) == ["new"]

    def test_it_is_empty_after_a_step_that_writes_nothing(self):
        assert channel("found").rest(["old"]) == []

    def test_an_accumulating_one_keeps_what_was_written(self):
        topic = channel("all_found")

        assert topic.fold(topic.begin(["old"]), ["new"]) == ["old", "new"]
        assert topic.rest(["old"]) == ["old"]

    def test_it_starts_empty_and_is_stored(self):
        assert channel("found").initial() == []
        assert channel("found").stored

    def test_a_wrong_item_is_refused(self):
        with pytest.raises(InvalidUpdate, match=r"5 \(int\) for the key 'found'"):
            channel("found").check(5, node="a")


class TestEphemeral:
    """`channels 142`: an ephemeral value lasts for one step."""

    def test_it_is_absent_after_a_step_that_writes_nothing(self):
        assert channel("signal").rest("go") is MISSING

    def test_it_takes_one_write_a_step(self):
        assert channel("signal").reducer is None

    def test_with_a_reducer_a_step_begins_at_the_empty_value(self):
        parts = channel("parts")

        assert parts.fold(parts.begin([1, 2]), [[3], [4]]) == [3, 4]
        assert parts.rest([3, 4]) == []

    def test_it_is_stored_for_a_step_that_begins_again_after_a_crash(self):
        assert channel("signal").stored


class TestUntracked:
    """`channels 143`: an untracked value never reaches a store."""

    def test_it_is_not_stored(self):
        assert not channel("client").stored

    def test_it_keeps_its_value_over_steps(self):
        client = object()

        assert channel("client").rest(client) is client
        assert channel("client").begin(client) is client


class TestManaged:
    """`graph 132`, `graph 133`: managed values are computed and read only."""

    def test_they_are_computed_from_the_steps_that_remain(self):
        assert compiled().managed_values(3) == {"left": 3, "last": False}
        assert compiled().managed_values(1) == {"left": 1, "last": True}

    def test_a_view_has_them(self):
        graph = compiled()

        seen = graph.view({"n": 1, **graph.managed_values(2)})

        assert seen == {"n": 1, "left": 2, "last": False}

    def test_they_are_not_stored(self):
        assert not channel("left").stored
        assert not channel("last").stored

    @pytest.mark.parametrize("value", [3, Overwrite(3)])
    def test_a_node_cannot_write_them(self, value):
        graph = compiled()

        with pytest.raises(InvalidUpdate) as caught:
            normalize(graph, graph.nodes["a"], {"left": value})

        assert str(caught.value) == (
            "node 'a' returned 3 (int) for the key 'left', which is read only: it is computed for each "
            "step (RemainingSteps). Leave it out, or use another key"
        )

    def test_an_input_cannot_write_them(self):
        with pytest.raises(InvalidUpdate, match="the input has True .* which is read only"):
            normalize_input(compiled(), {"last": True})

    def test_a_kind_alone_stands_for_its_type(self):
        class Bare(TypedDict):
            left: RemainingSteps

        found = compiled(Bare).channels["left"]

        assert found.type is int
        assert found.managed


class TestCleared:
    def test_it_has_what_a_step_that_wrote_nothing_changes(self):
        values = {"n": 1, "found": ["x"], "all_found": ["x"], "signal": "go", "parts": [1]}

        assert compiled().cleared(values, {}) == {"found": [], "signal": MISSING, "parts": []}

    def test_what_the_step_wrote_stays(self):
        values = {"found": ["x"], "signal": "go"}

        assert compiled().cleared(values, {"found": ["y"], "signal": "on"}) == {}

    def test_what_is_clear_already_does_not_change(self):
        assert compiled().cleared({"found": [], "parts": []}, {}) == {}

    def test_a_graph_of_plain_keys_has_none(self):
        class Plain(TypedDict):
            n: int

        assert compiled(Plain).clearing == ()


WRONG = {
    "two kinds": (Annotated[list[str], Topic, Ephemeral], r"S.k is Topic and Ephemeral; keep one"),
    "a topic of no list": (
        Annotated[str, Topic],
        r"S.k is a Topic, which holds a list: write Annotated",
    ),
    "a topic with a reducer": (Annotated[list[str], Topic, append], "a topic collects by itself"),
    "a managed key with a reducer": (
        Annotated[int, RemainingSteps, max],
        "S.k is RemainingSteps and has a reducer; nobody writes it",
    ),
    "a managed key of another type": (
        Annotated[str, RemainingSteps],
        r"S.k is RemainingSteps: write Annotated\[int, RemainingSteps\]",
    ),
    "a kind without a type": (Topic, r"S.k is Topic; give its type too: Annotated\[type, Topic\]"),
}


@pytest.mark.parametrize("what", WRONG)
def test_a_kind_that_does_not_fit_is_refused(what):
    hint, words = WRONG[what]

    with pytest.raises(InvalidGraph, match=words):
        Graph(TypedDict("S", {"k": hint}), name="g")


@pytest.mark.parametrize("key", ["found", "left"])
def test_a_topic_or_managed_key_takes_no_reducer(key):
    with pytest.raises(InvalidGraph, match="which takes no reducer; change its kind"):
        Graph(State, name="g").add_reducer(key, max)


def test_a_kind_is_printed():
    assert repr(channel("signal")) == "Channel('signal', str, Ephemeral())"
    assert repr(channel("all_found")) == (
        "Channel('all_found', list[str], beamweaver.graph.reducers.append, Topic(accumulate=True))"
    )
