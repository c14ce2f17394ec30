"""What a step adds to a channel is stored as that: which commits have it, and that nothing is lost by it."""

from __future__ import annotations

import dataclasses
import operator
from typing import Annotated, Any, TypedDict

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from beamweaver.errors import ReducerFailed
from beamweaver.graph import Topic, add_messages, merge
from beamweaver.limits import Limits
from beamweaver.types import START, Overwrite
from tests.engine.driver import Driver, Later
from tests.engine.graphs import graph

FILL = "x" * 600
"""A value that has this is worth a delta."""


@dataclasses.dataclass
class Note:
    id: str
    text: str


class State(TypedDict, total=False):
    log: Annotated[list[Any], operator.add]
    notes: Annotated[list[Note], add_messages]
    facts: Annotated[dict[str, Any], merge]
    seen: Annotated[set[int], operator.or_]
    left: Annotated[set[int], operator.sub]
    text: Annotated[str, operator.add]
    found: Annotated[list[str], Topic(accumulate=True)]
    passing: Annotated[list[str], Topic]
    pair: Annotated[tuple[Any, ...], operator.add]
    free: Annotated[Any, operator.add]
    longest: Annotated[str, max]


def driver(**options):
    return Driver(graph("^>a", schema=State, a=lambda _s: None), **options)


def steps(made):
    """Of each commit with values: the channels that it has whole, and those that it has as deltas."""
    found = [commit.record.checkpoint for commit in made.commits]
    return [
        (set(one.writes), set(one.deltas)) for one in found if one and (one.writes or one.deltas)
    ]


def taken(*updates, **options):
    """A driver that was called with each of the updates."""
    made = driver(**options)
    for update in updates:
        made.invoke(update)
    return made


GROWING = {
    "a list by operator.add": ("log", [FILL], [(1, {2})]),
    "a list by a topic": ("found", FILL, ["a", "b"]),
    "messages": ("notes", [Note("a", FILL), Note("b", "")], [Note("b", "new"), Note("c", "")]),
    "a dict by merge": ("facts", {"a": FILL, "b": 1}, {"b": 2, "c": (3,)}),
    "a set by |": ("seen", set(range(1_000)), {1, 2_000}),
    "text by operator.add": ("text", FILL, "more"),
    "a tuple by operator.add": ("pair", (FILL,), (1, [2])),
}


class TestWhatIsStored:
    @pytest.mark.parametrize("what", GROWING)
    def test_a_large_value_that_grows_is_stored_as_what_was_added(self, what):
        name, first, more = GROWING[what]
        made = taken({name: first}, {name: more})

        assert steps(made) == [({name}, set()), (set(), {name})]
        before = made.values
        made.crash()
        assert made.values == before

    def test_members_that_a_set_loses_are_stored_as_what_was_removed(self):
        made = taken({"left": Overwrite(set(range(1_000)))}, {"left": {3, 5}})
        assert steps(made)[-1] == (set(), {"left"})
        made.crash()
        assert made.values["left"] == set(range(1_000)) - {3, 5}

    def test_the_bytes_of_a_step_do_not_grow_with_the_value(self):
        made = taken(*({"log": [FILL]} for _ in range(40)))
        deltas = [c.record.checkpoint.deltas for c in made.commits if c.record.checkpoint.deltas]
        sizes = {len(each["log"].data) for each in deltas}
        assert len(deltas) > 30
        assert max(sizes) < 700

    def test_a_small_value_is_stored_whole(self):
        made = taken({"log": ["a"]}, {"log": ["b"]})
        assert steps(made) == [({"log"}, set()), ({"log"}, set())]

    def test_the_value_is_stored_whole_when_what_was_added_is_twice_as_large(self):
        made = taken(*({"log": [FILL]} for _ in range(5)))
        assert steps(made) == [
            ({"log"}, set()),
            (set(), {"log"}),
            ({"log"}, set()),
            (set(), {"log"}),
            (set(), {"log"}),
        ]

    def test_a_reducer_of_ones_own_stores_whole_values(self):
        made = taken({"longest": FILL}, {"longest": FILL + "y"})
        assert steps(made)[-1] == ({"longest"}, set())

    def test_numbers_are_stored_whole(self):
        made = taken({"free": 1}, {"free": 2}, limits=Limits(value_bytes_whole=0))
        assert steps(made)[-1] == ({"free"}, set())

    def test_an_overwritten_value_is_stored_whole(self):
        made = taken({"log": [FILL]}, {"log": Overwrite([FILL, 1])}, {"log": [2]})
        assert steps(made)[1:] == [({"log"}, set()), (set(), {"log"})]
        made.crash()
        assert made.values["log"] == [FILL, 1, 2]

    def test_a_value_that_becomes_of_another_type_is_stored_whole(self):
        made = taken({"free": [FILL]}, {"free": [1]}, {"free": Overwrite((FILL,))}, {"free": (2,)})
        assert steps(made)[1:] == [
            (set(), {"free"}),
            ({"free"}, set()),
            (set(), {"free"}),
        ]
        made.crash()
        assert made.values["free"] == (FILL, 2)

    def test_what_lasts_for_a_step_is_stored_whole(self):
        made = taken({"passing": FILL}, {"passing": FILL})
        assert all(not deltas for _whole, deltas in steps(made))

    def test_the_first_step_after_a_load_goes_on_with_the_chain(self):
        made = taken({"log": [FILL]})
        made.crash()
        made.invoke({"log": ["next"]})
        assert steps(made)[-1] == (set(), {"log"})
        made.crash()
        assert made.values["log"] == [FILL, "next"]

    def test_several_writes_of_a_step_are_one_delta(self):
        both = graph(
            "^>a ^>b",
            schema=State,
            a=lambda _s: {"log": ["a"]},
            b=lambda _s: Later(1, {"log": ["b"]}),
        )
        made = Driver(both)
        made.invoke({"log": [FILL]})
        assert steps(made)[-1] == (set(), {"log"})
        made.crash()
        assert made.values["log"] == [FILL, "a", "b"]

    def test_steps_that_are_left_out_are_stored_whole_together(self):
        both = graph(
            "^>a a>b", schema=State, a=lambda _s: {"log": ["a"]}, b=lambda _s: {"log": ["b"]}
        )
        made = Driver(both)
        made.invoke({"log": [FILL]}, durability="exit")
        made.crash()
        made.invoke({"log": ["next"]})
        assert steps(made)[:3] == [({"log"}, set()), ({"log"}, set()), (set(), {"log"})]
        made.crash()
        assert made.values["log"] == [FILL, "a", "b", "next", "a", "b"]


class TestLimits:
    def test_a_value_that_grew_too_large_is_refused(self):
        limits = Limits(value_bytes=2_000)
        made = taken({"log": [FILL]}, {"log": [FILL]}, {"log": [FILL]}, limits=limits)
        with pytest.raises(ReducerFailed, match=r"limits\.value_bytes"):
            made.invoke({"log": [FILL]})
        assert made.values["log"] == [FILL] * 3

    def test_a_value_whose_keys_are_set_again_and_again_is_not_too_large(self):
        limits = Limits(value_bytes=2_000)
        made = taken(*({"facts": {"a": FILL, "n": n}} for n in range(30)), limits=limits)
        made.crash()
        assert made.values["facts"] == {"a": FILL, "n": 29}

    def test_a_value_that_grew_large_is_told_of(self):
        told = []
        made = driver(limits=Limits(value_bytes_warn=1_000))
        made.codec.on_large = lambda path, size: told.append((path, size))
        for _ in range(2):
            made.invoke({"log": [FILL]})
        assert steps(made)[-1] == (set(), {"log"})
        assert [(path, size > 1_000) for path, size in told] == [("log", True)]


class TestEdits:
    def test_an_edit_goes_on_with_the_chain(self):
        made = taken({"log": [FILL]})
        made.update({"log": ["edit"]}, "a")
        made.invoke({"log": ["next"]})
        assert steps(made)[1:] == [(set(), {"log"}), (set(), {"log"})]
        made.crash()
        assert made.values["log"] == [FILL, "edit", "next"]

    def test_edits_in_one_call_go_on_from_each_other(self):
        made = taken({"log": [FILL]})
        call = made.send_update([[({"log": [n]}, "a")] for n in range(3)])
        made.answer(call)
        assert made.store.load("t").chains["log"].count == 3
        made.crash()
        assert made.values["log"] == [FILL, 0, 1, 2]

    def test_an_edit_that_leaves_a_step_keeps_what_its_tasks_gave(self):
        fails = [True]

        def bad(_state):
            if fails[0]:
                raise ValueError("boom")

        made = Driver(graph("^>a ^>bad", schema=State, a=lambda _s: {"log": ["a"]}, bad=bad))
        made.fails({"log": [FILL]})
        made.update({"log": ["left"]}, START)
        fails[0] = False
        made.crash()
        assert made.values["log"][:3] == [FILL, "a", "left"]

    def test_a_branch_goes_on_from_its_origin(self):
        made = taken({"log": [FILL]}, {"log": ["first"]})
        origin = made.head
        made.invoke({"log": ["old"]})
        made.update({"log": ["branch"]}, "a", checkpoint=origin)
        assert steps(made)[-1] == (set(), {"log"})
        made.crash()
        assert made.values["log"] == [FILL, "first", "branch"]


_small = st.integers(0, 9)
_items = st.one_of(_small, st.text("ab", max_size=3), st.tuples(_small), st.just(FILL))
_updates = st.fixed_dictionaries(
    {},
    optional={
        "log": st.lists(_items, max_size=3),
        "notes": st.lists(
            st.builds(Note, st.sampled_from("abcd"), st.text("ab", max_size=3)), max_size=3
        ),
        "facts": st.dictionaries(st.sampled_from("abcd"), _items, max_size=3),
        "seen": st.sets(st.integers(0, 200), max_size=30),
        "left": st.one_of(st.sets(_small, max_size=3), st.sets(_small, min_size=5).map(Overwrite)),
        "text": st.text("aé\ud800", max_size=20),
        "found": st.one_of(st.just("one"), st.lists(st.text("ab", max_size=3), max_size=3)),
        "pair": st.lists(_items, max_size=2).map(tuple),
        "free": st.one_of(
            st.lists(_items, max_size=2),
            st.lists(_items, max_size=2).map(tuple).map(Overwrite),
            st.lists(_items, max_size=2).map(Overwrite),
        ),
    },
)
_modes = st.sampled_from(["sync", "sync", "exit", "async"])
_moves = st.one_of(st.tuples(_updates, _modes), st.just("crash"))


def _agreed(update, values):
    """An update whose `free` fits the value that is there: lists are not added to tuples."""
    free, before = update.get("free"), values.get("free", [])
    if isinstance(free, list) and isinstance(before, tuple):
        return {**update, "free": tuple(free)}
    return update


@settings(max_examples=5, deadline=None)
@given(moves=st.lists(_moves, min_size=5, max_size=15))
def test_what_a_store_gives_back_is_what_the_reducers_made(moves):
    _check(moves)


@pytest.mark.slow
@settings(max_examples=100, deadline=None)
@given(moves=st.lists(_moves, min_size=5, max_size=25))
def test_so_it_is_over_many_more_histories(moves):
    _check(moves)


def _check(moves):
    both = graph(
        "^>a a>b",
        schema=State,
        a=lambda _s: {"log": ["a"], "found": "a"},
        b=lambda s: {"log": ["b"], "facts": {"b": len(s["log"])}},
    )
    whole = Driver(both, limits=Limits(value_bytes_whole=1 << 40))
    made = Driver(both, limits=Limits(value_bytes_whole=0))
    for move in moves:
        if move == "crash":
            made.crash()
            continue
        update, mode = _agreed(move[0], whole.values), move[1]
        whole.invoke(update, durability=mode)
        made.invoke(update, durability=mode)
        assert made.values == whole.values
    made.crash()
    assert made.values == whole.values
    assert not any(deltas for _writes, deltas in steps(whole))
