"""What a step changed in a channel, as data, and that a store rebuilds the value from it."""

from __future__ import annotations

import collections
import operator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from beamweaver.graph import (
    MISSING,
    Appended,
    Channel,
    KeysRemoved,
    KeysSet,
    Replaced,
    Topic,
    add_messages,
    append,
    merge,
)

ints = st.integers(0, 5)
lists = st.lists(ints, max_size=5)
dicts = st.dictionaries(ints, ints, max_size=4)
messages = st.lists(
    st.fixed_dictionaries({"id": st.one_of(st.none(), st.sampled_from("abcd")), "n": ints}),
    max_size=5,
)
KINDS = {
    "append to a list": (list[int], append, lists, st.one_of(ints, lists)),
    "operator.add of lists": (list[int], operator.add, lists, lists),
    "operator.iadd of lists": (list[int], operator.iadd, lists, lists),
    "operator.add of tuples": (tuple, operator.add, lists.map(tuple), lists.map(tuple)),
    "operator.add of str": (
        str,
        operator.add,
        st.text("ab", max_size=4),
        st.text("ab", max_size=4),
    ),
    "operator.add of bytes": (bytes, operator.add, st.binary(max_size=4), st.binary(max_size=4)),
    "merge of dicts": (dict[int, int], merge, dicts, dicts),
    "| of dicts": (dict[int, int], operator.or_, dicts, dicts),
    "| of sets": (set[int], operator.or_, lists.map(set), lists.map(set)),
    "| of frozensets": (frozenset, operator.ior, lists.map(frozenset), lists.map(frozenset)),
    "& of sets": (set[int], operator.and_, lists.map(set), lists.map(set)),
    "- of sets": (set[int], operator.sub, lists.map(set), lists.map(set)),
    "^ of frozensets": (frozenset, operator.ixor, lists.map(frozenset), lists.map(frozenset)),
    "add_messages": (list[dict], add_messages, messages, messages),
}


def applied(value, changes):
    """A value after changes, without any reducer."""
    for change in changes:
        if isinstance(change, Appended):
            assert type(change.items) is type(value)
            value = value + change.items
        elif isinstance(change, KeysSet):
            value = value | change.items
        elif isinstance(change, KeysRemoved):
            assert value.issuperset(change.keys)
            value = value.difference(change.keys)
        else:
            assert isinstance(change, Replaced)
            value = list(value)
            for index, item in zip(change.indexes, change.items, strict=True):
                value[index] = item
    return value


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_the_changes_rebuild_the_value(kind, data):
    annotation, reducer, values, updates = KINDS[kind]
    before, given_updates = data.draw(values), data.draw(st.lists(updates, max_size=3))

    value, changes = Channel("k", annotation, reducer).folded(before, given_updates)

    assert changes is not None
    assert applied(before, changes) == value


@settings(max_examples=40, deadline=None)
@given(before=messages, update=messages)
def test_a_store_rebuilds_the_value_from_encoded_changes(before, update):
    deltas = pytest.importorskip("beamweaver.checkpoint.deltas")
    from beamweaver.checkpoint.codec import Codec

    codec = Codec()
    value, changes = Channel("k", list[dict], add_messages).folded(before, [update])
    operations = [
        deltas.appended(codec.encode(change.items))
        if isinstance(change, Appended)
        else deltas.replaced(change.indexes, codec.encode(change.items))
        for change in changes
    ]

    stored = deltas.in_parts(codec.encode(before), [deltas.join(operations)])

    assert codec.decode(stored) == value


def test_an_append_costs_what_was_added():
    before = list(range(1_000))

    assert Channel("k", list[int], append).folded(before, [7, [8]]).changes == (Appended([7, 8]),)


def test_a_message_that_takes_anothers_place_is_a_replacement():
    channel = Channel("k", list[dict], add_messages)
    before = [{"id": "a", "n": 1}, {"id": "b", "n": 1}]

    changes = channel.folded(before, [[{"id": "b", "n": 2}, {"id": "c", "n": 1}]]).changes

    assert changes == (Replaced((1,), [{"id": "b", "n": 2}]), Appended([{"id": "c", "n": 1}]))


def test_a_step_without_updates_changes_nothing():
    assert Channel("k", list[int], longest).folded([1], []) == ([1], ())


WHOLE = {
    "a reducer of one's own": (list[int], lambda a, b: a + b, [1], [[2]]),
    "a first value": (list[int], append, MISSING, [1]),
    "a last value": (int, None, 1, [2]),
    "numbers": (int, operator.add, 1, [2]),
    "counters, which | merges by the larger count": (
        collections.Counter,
        operator.or_,
        collections.Counter(a=1),
        [collections.Counter(a=2)],
    ),
    "a subclass of list": (list, operator.add, type("Mine", (list,), {})([1]), [[2]]),
}


@pytest.mark.parametrize("what", WHOLE)
def test_where_only_the_whole_value_says_there_are_no_changes(what):
    annotation, reducer, before, updates = WHOLE[what]

    assert Channel("k", annotation, reducer).folded(before, updates).changes is None


def test_a_reducer_that_cannot_be_hashed_is_no_fault():
    class Odd:
        __hash__ = None

        def __eq__(self, other):
            return False

        def __call__(self, a, b):
            return a + b

    assert Channel("k", list[int], Odd()).folded([1], [[2]]) == ([1, 2], None)


def test_an_accumulating_topic_appends():
    topic = Channel("k", list[int], kind=Topic(accumulate=True))

    assert topic.folded(topic.begin([1]), [2]) == ([1, 2], (Appended([2]),))


def test_a_clearing_topic_is_written_whole():
    topic = Channel("k", list[int], kind=Topic())

    assert topic.folded(topic.begin([1]), [2]) == ([2], None)


class Message:
    def __init__(self, id_, text):
        self.id = id_
        self.text = text


class TestAddMessages:
    def test_objects_are_known_by_their_attribute(self):
        old, new = Message("a", "hullo"), Message("a", "hello")

        assert add_messages([old], new) == [new]

    def test_messages_without_an_id_are_always_added(self):
        assert add_messages([{"n": 1}], [{"n": 1}, {"id": None, "n": 1}]) == [
            {"n": 1},
            {"n": 1},
            {"id": None, "n": 1},
        ]

    def test_the_last_of_one_id_in_an_update_stands(self):
        assert add_messages([], [{"id": "a", "n": 1}, {"id": "a", "n": 2}]) == [{"id": "a", "n": 2}]

    def test_the_list_before_is_never_changed(self):
        before = [{"id": "a", "n": 1}]
        add_messages(before, {"id": "a", "n": 2})

        assert before == [{"id": "a", "n": 1}]

    def test_its_channel_starts_empty_and_takes_one_message_or_a_list(self):
        channel = Channel("k", list[dict], add_messages)

        assert channel.initial() == []
        channel.check({"id": "a"})
        channel.check([{"id": "a"}])


def longest(a, b):
    return max(a, b, key=len)
