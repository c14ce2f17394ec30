"""Branches, the head that moves, copies."""

from __future__ import annotations

from typing import TYPE_CHECKING

from beamweaver.checkpoint.conformance._check import Place, check, expect, raises
from beamweaver.checkpoint.conformance._kit import (
    begun,
    codes,
    entry,
    message,
    seqs,
    step,
    thread_row,
    values,
    write,
)
from beamweaver.errors import InvalidCall

if TYPE_CHECKING:
    from beamweaver.checkpoint.base import Checkpointer


def _forked(store: Checkpointer) -> int:
    """Branch b: 0 1 2 with entries 3 4; branch c from 1: 5 with entry 6."""
    epoch = begun(store)
    write(
        store,
        epoch,
        step("t", 0, writes={"a": b"a0", "z": b"z0"}),
        step("t", 1, writes={"a": b"a1"}),
        step("t", 2, writes={"a": b"a2"}),
        entry("t", 3),
        entry("t", 4),
        step("t", 5, parent=1, branch="c", writes={"f": b"f5"}),
        entry("t", 6),
    )
    return epoch


def _head(store: Checkpointer) -> tuple[int, list[int], int, bool]:
    image = store.load("t")
    if image is None:
        return (-1, [], -1, False)
    entries = [record.seq for record in image.entries]
    return image.checkpoint.seq, entries, image.next_seq, image.tip


@check("forks")
def a_fork_has_the_values_of_its_parent_and_not_of_other_branches(place: Place) -> None:
    store = place.open()
    _forked(store)
    expect(values(store, "t"), {"a": b"a1", "z": b"z0", "f": b"f5"})
    expect(_head(store), (5, [6], 7, True), "the head")


@check("forks")
def the_history_goes_over_all_branches_newest_first(place: Place) -> None:
    store = place.open()
    _forked(store)
    expect(seqs(store, "t"), [5, 2, 1, 0])
    expect(seqs(store, "t", before=5), [2, 1, 0])
    expect(seqs(store, "t", before=2, limit=1), [1])
    expect(seqs(store, "t", limit=0), [])
    found = [image.values for image in store.history("t", limit=2)]
    expect(found, [values(store, "t", 5), values(store, "t", 2)], "the values")
    expect([image.values for image in store.history("t", values=False)], [{}] * 4)


@check("forks")
def the_head_moves_to_another_branch_with_its_open_step(place: Place) -> None:
    store = place.open()
    epoch = _forked(store)
    expect(store.set_head(epoch, "t", 2, thread_row("t", "waiting")), wanted=True)
    store = place.reopened(store)
    expect(_head(store), (2, [3, 4], 7, True), "the head")
    expect(values(store, "t"), {"a": b"a2", "z": b"z0"})
    expect([line.status for line in store.threads()], ["waiting"])


@check("forks")
def a_moved_head_goes_on_with_the_next_number_of_all(place: Place) -> None:
    store = place.open()
    epoch = _forked(store)
    store.set_head(epoch, "t", 2)
    expect(codes(store.commit(epoch, [step("t", 5, parent=2)])), ["store_conflict"])
    write(store, epoch, entry("t", 7), step("t", 8, parent=2, clears=(3, 4, 7)), entry("t", 9))
    expect(_head(place.reopened(store)), (8, [9], 10, True), "the head")


@check("forks")
def each_branch_keeps_its_own_open_step_when_the_head_goes_to_and_fro(place: Place) -> None:
    store = place.open()
    epoch = _forked(store)
    store.set_head(epoch, "t", 2)
    write(store, epoch, entry("t", 7))
    store.set_head(epoch, "t", 5)
    write(store, epoch, entry("t", 8))
    store.set_head(epoch, "t", 2)
    expect(_head(store), (2, [3, 4, 7], 9, True), "the first branch")
    write(store, epoch, entry("t", 9))
    store.set_head(epoch, "t", 5)
    store = place.reopened(store)
    expect(_head(store), (5, [6, 8], 10, True), "the second branch")
    image = store.load("t", 2, entries=True)
    expect(image and [record.seq for record in image.entries], [3, 4, 7, 9], "the step of 2")
    expect(image and image.tip, wanted=True, what="whether 2 is a tip")


@check("forks")
def a_head_amid_a_branch_says_that_it_is_no_tip(place: Place) -> None:
    store = place.open()
    epoch = _forked(store)
    store.set_head(epoch, "t", 1)
    expect(_head(store), (1, [], 7, False), "the head")
    image = store.load("t", 1, entries=True)
    expect(image and image.tip, wanted=False, what="whether 1 is a tip")
    write(store, epoch, step("t", 7, parent=1, branch="d", writes={"g": b"g7"}))
    expect(_head(store), (7, [], 8, True), "the head of the new branch")
    expect(values(store, "t"), {"a": b"a1", "z": b"z0", "g": b"g7"})


@check("forks")
def the_head_moves_to_checkpoints_only(place: Place) -> None:
    store = place.open()
    epoch = _forked(store)
    for seq in (3, 99, -1):
        raises(InvalidCall, lambda seq=seq: store.set_head(epoch, "t", seq), f"set_head to {seq}")  # type: ignore[misc] # a default binds the loop's value
    expect(store.set_head(epoch, "unknown", 0), wanted=False)
    expect(store.set_head(epoch, "t", 5), wanted=True)
    expect(_head(store), (5, [6], 7, True), "the head")


@check("copies")
def a_copy_has_all_branches_and_open_steps_and_no_inbox(place: Place) -> None:
    store = place.open()
    epoch = _forked(store)
    write(
        store,
        epoch,
        entry("t", 7, inbox_put=(message(1),), run_names=(("r", 1),), run_ended=(1, 2)),
    )
    store.set_head(epoch, "t", 2, thread_row("t", "waiting"))
    expect(store.copy_thread(epoch, "t", "u"), wanted=True)
    store = place.reopened(store)
    old, new = store.load("t"), store.load("u")
    if old is None or new is None:
        return expect((old, new), "two images")
    expect((new.values, new.entries), (old.values, old.entries), "values and entries")
    expect((new.row.thread_id, new.row.status, new.inbox), ("u", "waiting", ()), "the copy")
    expect(seqs(store, "u"), seqs(store, "t"), "the history")
    expect((store.run_number("u", "r"), store.run_end("u", 1)), (1, 2), "the runs")
    return None


@check("copies")
def a_copy_and_its_source_go_their_own_ways(place: Place) -> None:
    store = place.open()
    epoch = _forked(store)
    store.copy_thread(epoch, "t", "u")
    write(store, epoch, step("u", 7, parent=5, branch="c", writes={"a": b"u"}))
    expect(values(store, "t"), {"a": b"a1", "z": b"z0", "f": b"f5"})
    store.delete_thread(epoch, "t")
    expect(values(store, "u"), {"a": b"u", "z": b"z0", "f": b"f5"})


@check("copies")
def an_unfinished_run_of_a_copy_waits_for_a_caller(place: Place) -> None:
    store = place.open()
    epoch = _forked(store)
    store.copy_thread(epoch, "t", "u")
    found = [(line.status, line.thread_id) for line in store.threads()]
    expect(found, [("running", "t"), ("cancelled", "u")])


@check("copies")
def a_copy_is_made_of_what_exists_to_what_does_not(place: Place) -> None:
    store = place.open()
    epoch = begun(store, "t", "u")
    expect(store.copy_thread(epoch, "unknown", "v"), wanted=False)
    raises(InvalidCall, lambda: store.copy_thread(epoch, "t", "u"), "a copy over a thread")
    raises(InvalidCall, lambda: store.copy_thread(epoch, "t", ""), "a copy to an empty id")
    raises(InvalidCall, lambda: store.copy_thread(epoch, "t", "t"), "a copy to itself")


@check("forks")
def a_history_goes_on_while_the_thread_is_written_and_pruned(place: Place) -> None:
    store = place.open()
    epoch = begun(store)
    write(store, epoch, *[step("t", seq) for seq in range(100)])
    images = store.history("t")
    found = [next(images).checkpoint.seq for _ in range(20)]
    write(store, epoch, step("t", 100), step("t", 101, parent=50, branch="c"))
    list(store.prune(epoch, ["t"], keep_last=60))
    found += [image.checkpoint.seq for image in images]
    expect(found[:20], list(range(99, 79, -1)), "the first ones")
    expect(found == sorted(set(found), reverse=True), wanted=True)
    expect(found[-1], 41, "the last one")


@check("forks")
def a_history_ends_where_the_thread_is_deleted(place: Place) -> None:
    store = place.open()
    epoch = begun(store)
    write(store, epoch, *[step("t", seq) for seq in range(100)])
    images = store.history("t")
    first = next(images).checkpoint.seq
    store.delete_thread(epoch, "t")
    rest = [image.checkpoint.seq for image in images]
    expect((first, rest == list(range(98, 98 - len(rest), -1))), (99, True), "what was read")
    expect(len(rest) < 99, wanted=True, what="whether it ended")
