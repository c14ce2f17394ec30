"""A value in parts is what the operations make of the snapshot, whatever its type and encoding."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import decimal
import operator

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from beamweaver.checkpoint import Codec
from beamweaver.checkpoint.deltas import (
    PARTS,
    appended,
    in_parts,
    join,
    keys_removed,
    keys_set,
    replaced,
)
from beamweaver.checkpoint.records import Chain
from beamweaver.errors import DeserializationError


@dataclasses.dataclass
class Money:
    cents: int


SEQUENCES = [
    (list[int], [[1], [2, 3], [], [2**200]]),
    (list[decimal.Decimal], [[decimal.Decimal("1.10")], [decimal.Decimal(2)]]),
    (list[Money], [[Money(1)], [Money(2), Money(3)]]),
    (tuple[int, ...], [(1,), (), (2, 3)]),
    (str, ["a", "é", "\ud800"]),
    (bytes, [b"a", b"", b"\x00"]),
    (None, [[1], [(2,)], [{3}]]),
    (None, [(1,), ("x",), ((),)]),
]


@pytest.mark.parametrize(("declared", "parts"), SEQUENCES)
def test_what_is_added_at_the_end_comes_after_the_rest(declared, parts):
    plan = Codec(types=[Money]).plan(declared)
    first, *rest = [plan.encode(part) for part in parts]
    whole = parts[0]
    for part in parts[1:]:
        whole = operator.add(whole, part)

    value = plan.decode(in_parts(first, [join([appended(data)]) for data in rest]))
    assert value == whole
    assert repr(value) == repr(whole)


def test_one_delta_may_hold_several_operations():
    codec = Codec()
    delta = join([appended(codec.encode([2])), replaced([0], codec.encode([9]))])

    assert codec.decode(in_parts(codec.encode([1]), [delta])) == [9, 2]


@pytest.mark.parametrize(
    "first",
    [
        {"a": 1, "b": 2},
        collections.OrderedDict([("a", 1), ("b", 2)]),
        collections.defaultdict(int, {"a": 1, "b": 2}),
        collections.Counter({"a": 1, "b": 2}),
    ],
)
def test_keys_are_set_in_place_and_removed_in_any_kind_of_mapping(first):
    codec = Codec()
    more = type(first)() if not isinstance(first, collections.defaultdict) else first.copy()
    more.clear()
    more.update({"a": 5, "c": 6})
    delta = join([keys_set(codec.encode(more)), keys_removed(codec.encode(["b", "unknown"]))])
    value = codec.decode(in_parts(codec.encode(first), [delta]))

    assert type(value) is type(first)
    assert list(value.items()) == [("a", 5), ("c", 6)]


@pytest.mark.parametrize("kind", [set, frozenset])
def test_members_are_added_and_removed(kind):
    codec = Codec()
    delta = join([keys_set(codec.encode(kind({(3,)}))), keys_removed(codec.encode([1]))])

    assert codec.decode(in_parts(codec.encode(kind({1, 2})), [delta])) == kind({2, (3,)})


def test_a_deque_keeps_its_bound():
    codec = Codec()
    first = collections.deque([1, 2], maxlen=2)
    delta = join([appended(codec.encode(collections.deque([3], maxlen=2)))])
    value = codec.decode(in_parts(codec.encode(first), [delta]))

    assert (value, value.maxlen) == (collections.deque([2, 3]), 2)


def test_without_deltas_the_value_is_the_snapshot_itself():
    assert in_parts(b"data", []) == b"data"


CODEC = Codec()


@pytest.mark.parametrize(
    ("first", "operation"),
    [
        ([1], appended(CODEC.encode((2,)))),
        ([1], appended(CODEC.encode("x"))),
        ((1,), appended(CODEC.encode([2]))),
        (5, appended(CODEC.encode(6))),
        ([1], keys_set(CODEC.encode([2]))),
        ({"a": 1}, keys_removed(CODEC.encode("a"))),
        ([1], replaced([1], CODEC.encode([2]))),
        ([1], replaced([-1], CODEC.encode([2]))),
        ([1], replaced([0, 0], CODEC.encode([2]))),
        ({"a": 1}, replaced([0], CODEC.encode([2]))),
    ],
)
def test_an_operation_that_does_not_fit_its_value_is_an_error(first, operation):
    with pytest.raises(DeserializationError, match=r"\$\.log"):
        CODEC.decode(in_parts(CODEC.encode(first), [join([operation])]), "$.log")


def test_an_operation_of_a_later_version_is_an_error():
    delta = msgspec.msgpack.encode([[99, CODEC.encode([1]), []]])
    with pytest.raises(DeserializationError, match="upgrade"):
        CODEC.decode(in_parts(CODEC.encode([1]), [delta]))


@given(st.binary(max_size=60))
@settings(max_examples=300, deadline=None)
def test_any_bytes_after_the_mark_of_parts_are_a_value_or_an_error(data):
    with contextlib.suppress(DeserializationError):
        CODEC.decode(PARTS + data)


@given(st.lists(st.lists(st.integers() | st.text() | st.tuples(st.booleans()))))
@settings(max_examples=100, deadline=None)
def test_deltas_of_a_list_are_the_sum_of_its_parts(parts):
    encoded = [CODEC.encode(part) for part in parts]
    value = CODEC.decode(in_parts(CODEC.encode([]), [join([appended(one)]) for one in encoded]))

    assert value == [item for part in parts for item in part]


class TestChain:
    def test_snapshots_of_a_value_that_grows_are_little_more_than_half_more_than_it(self):
        """Performance P6: stored at most 3 times the payload."""
        chain, snapshots, size = Chain(1_000), 1_000, 1_000
        for _ in range(20_000):
            size += 1_000
            if chain.takes(1_000):
                chain = chain.with_delta(1_000)
            else:
                chain = Chain(size)
                snapshots += size
            assert snapshots <= 1.6 * size + 3_000

    def test_a_chain_of_small_deltas_is_never_much_longer_than_its_value(self):
        chain, longest, snapshots = Chain(10_000_000), 0, 0
        for _ in range(100_000):
            if chain.takes(10):
                chain = chain.with_delta(10)
                longest = max(longest, chain.count)
            else:
                chain = Chain(10_000_000)
                snapshots += 10_000_000

        assert longest <= 10_000_000 / 512 + 1
        assert snapshots <= 100_000 * 600

    def test_a_small_value_takes_no_delta_larger_than_itself_twice(self):
        assert Chain(10).takes(20)
        assert not Chain(10).takes(21)
