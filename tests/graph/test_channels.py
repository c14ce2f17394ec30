"""Channels: beginnings, folds, and what they accept."""

from __future__ import annotations

import collections
import collections.abc as cabc
import operator
import pickle
from typing import Any, TypedDict

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from beamweaver.errors import InvalidUpdate
from beamweaver.graph import MISSING, Channel, append, merge

ITEMS = st.lists(st.integers(0, 9), max_size=4)


def longest(a, b):
    return max(a, b, key=len)


class TestInitial:
    @pytest.mark.parametrize(
        ("annotation", "empty"),
        [
            (list, []),
            (list[int], []),
            (dict[str, int], {}),
            (set[str], set()),
            (frozenset, frozenset()),
            (tuple[int, ...], ()),
            (str, ""),
            (int, 0),
            (float, 0.0),
            (bytes, b""),
            (bool, False),
            (collections.deque, collections.deque()),
            (collections.Counter, collections.Counter()),
            (cabc.Sequence[int], []),
            (cabc.Mapping[str, int], {}),
            (cabc.Set[int], set()),
        ],
    )
    def test_a_reducers_channel_starts_at_its_types_empty_value(self, annotation, empty):
        value = Channel("k", annotation, operator.add).initial()

        assert value == empty
        assert type(value) is type(empty)

    def test_each_beginning_is_a_new_object(self):
        channel = Channel("k", list[int], operator.add)

        assert channel.initial() is not channel.initial()

    @pytest.mark.parametrize("annotation", [None, Any, list[int] | None, Exception])
    def test_a_type_without_an_empty_value_starts_missing(self, annotation):
        assert Channel("k", annotation, longest).initial() is MISSING

    @pytest.mark.parametrize("annotation", [int, list[int], None])
    def test_a_last_value_channel_starts_missing(self, annotation):
        assert Channel("k", annotation).initial() is MISSING

    def test_built_in_reducers_know_their_empty_value_without_a_type(self):
        assert Channel("k", None, append).initial() == []
        assert Channel("k", None, merge).initial() == {}

    def test_missing_prints_as_its_name_and_survives_pickling(self):
        assert repr(MISSING) == "MISSING"
        assert pickle.loads(pickle.dumps(MISSING)) is MISSING


class TestFold:
    def test_without_updates_the_value_stays(self):
        value = [1]

        assert Channel("k", list, operator.add).fold(value, []) is value
        assert Channel("k").fold(value, []) is value

    def test_a_last_value_channel_takes_the_last_update(self):
        assert Channel("k", int).fold(1, [2, 3]) == 3

    def test_the_first_write_of_a_missing_channel_is_its_value(self):
        assert Channel("k", None, longest).fold(MISSING, ["abc", "d"]) == "abc"

    def test_a_missing_channel_starts_at_its_initial_value(self):
        assert Channel("k", list[dict[str, int]], append).fold(MISSING, [{"a": 1}]) == [{"a": 1}]
        assert Channel("k", int, lambda a, b: a - b).fold(MISSING, [1, 2]) == -3

    def test_updates_fold_in_order(self):
        assert Channel("k", str, operator.add).fold("a", ["b", "c"]) == "abc"

    def test_a_failing_reducer_raises_its_own_error(self):
        def boom(a, b):
            raise ZeroDivisionError("boom")

        with pytest.raises(ZeroDivisionError, match="boom"):
            Channel("k", int, boom).fold(1, [2])

    def test_a_reducer_that_returns_another_type_is_a_type_error(self):
        with pytest.raises(TypeError, match=r"returned None; expected list\[int\]"):
            Channel("k", list[int], lambda a, b: a.extend(b)).fold([1], [[2]])

    @pytest.mark.parametrize(
        ("reducer", "start", "update"),
        [
            (operator.add, [1], [2]),
            (operator.iadd, [1], [2]),
            (append, [1], 2),
            (lambda a, b: a.append(b) or a, [1], 2),
            (lambda a, b: a.update(b) or a, {"a": 1}, {"b": 2}),
            (lambda a, b: a.add(b) or a, {1}, 2),
            (operator.ior, {"a": 1}, {"b": 2}),
            (merge, {"a": 1}, {"b": 2}),
        ],
    )
    def test_the_value_before_is_never_changed(self, reducer, start, update):
        before = start.copy()
        after = Channel("k", type(start), reducer).fold(start, [update])

        assert start == before
        assert len(after) == 2

    @pytest.mark.parametrize("reducer", [operator.add, operator.iadd, append])
    def test_the_first_update_of_a_missing_channel_is_never_changed(self, reducer):
        first = [1]
        after = Channel("k", None, reducer).fold(MISSING, [first, [2]])

        assert (first, after) == ([1], [1, 2])

    @settings(max_examples=40, deadline=None)
    @given(st.lists(ITEMS, max_size=5), ITEMS)
    def test_the_fast_path_of_add_equals_adding_one_by_one(self, updates, current):
        slow = current
        for update in updates:
            slow = operator.add(slow, update)

        assert Channel("k", list[int], operator.add).fold(current, updates) == slow

    @settings(max_examples=40, deadline=None)
    @given(st.lists(st.integers(0, 9) | ITEMS, max_size=5), ITEMS)
    def test_the_fast_path_of_append_equals_appending_one_by_one(self, updates, current):
        slow = current
        for update in updates:
            slow = append(slow, update)

        assert Channel("k", list[int], append).fold(current, updates) == slow


class TestCheck:
    @pytest.mark.parametrize(
        ("annotation", "reducer", "update"),
        [
            (int, None, 1),
            (int, operator.add, 1),
            (list[str], operator.add, ["a"]),
            (list[str], append, ["a"]),
            (list[str], append, "a"),
            (list, append, 7),
            (list[list[int]], append, [[1]]),
            (dict[str, int], merge, {"a": 1}),
            (list[str], lambda a, b: a, 5),
            (None, None, object()),
            (None, append, object()),
        ],
    )
    def test_fit_updates_pass(self, annotation, reducer, update):
        Channel("k", annotation, reducer).check(update, node="a")

    @pytest.mark.parametrize(
        ("annotation", "reducer", "update", "expected"),
        [
            (int, None, "1", "int"),
            (int, operator.add, "1", "int"),
            (list[str], operator.add, ("a",), r"list\[str\]"),
            (list[str], append, 5, r"list\[str\] \| str"),
            (dict[str, int], merge, {"a": "1"}, "int"),
            (dict, merge, [], "dict"),
        ],
    )
    def test_unfit_updates_are_refused(self, annotation, reducer, update, expected):
        with pytest.raises(InvalidUpdate, match=f"expected {expected}") as caught:
            Channel("k", annotation, reducer).check(update, node="a")

        assert (caught.value.node, caught.value.key) == ("a", "k")
        assert caught.value.got in {type(update).__name__, "str"}

    def test_a_custom_reducers_own_annotation_judges_its_updates(self):
        def add_text(current: list[str], update: int) -> list[str]:
            return [*current, str(update)]

        channel = Channel("k", list[str], add_text)

        channel.check(5)
        with pytest.raises(InvalidUpdate, match="expected int"):
            channel.check("5")

    def test_a_whole_value_is_judged_by_the_type_even_with_a_reducer(self):
        channel = Channel("k", list[str], append)

        channel.check_value(["a"])
        with pytest.raises(InvalidUpdate, match=r"expected list\[str\]"):
            channel.check_value("a")

    def test_a_refusal_survives_pickling(self):
        with pytest.raises(InvalidUpdate) as caught:
            Channel("k", int).check("x", node="a")
        again = pickle.loads(pickle.dumps(caught.value))

        assert (again.node, again.key, str(again)) == ("a", "k", str(caught.value))

    def test_a_huge_value_is_cut_in_the_message(self):
        with pytest.raises(InvalidUpdate) as caught:
            Channel("k", int).check(["x" * 1000] * 1000)

        assert len(str(caught.value)) < 700

    def test_a_value_whose_repr_fails_is_still_reported(self):
        class Bad:
            def __repr__(self):
                raise RuntimeError

        with pytest.raises(InvalidUpdate, match=r"\(Bad\) for the key 'k'"):
            Channel("k", int).check(Bad())

    def test_a_nested_typed_dict_says_which_key(self):
        class Item(TypedDict):
            price: float

        with pytest.raises(InvalidUpdate, match=r"at k\[1\]\['price'\]; expected float"):
            Channel("k", list[Item]).check([{"price": 1.0}, {"price": "1"}])


def test_a_channel_prints_its_name_type_and_reducer():
    assert repr(Channel("k", list[int], operator.add)) == "Channel('k', list[int], operator.add)"
    assert repr(Channel("k")) == "Channel('k', Any)"
