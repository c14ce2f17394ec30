"""Pruning and deleting: what stays is whole, what goes is gone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from beamweaver.checkpoint.codec import Codec
from beamweaver.checkpoint.conformance._check import Place, check, expect, raises
from beamweaver.checkpoint.conformance._kit import (
    begun,
    entry,
    message,
    seqs,
    step,
    thread_row,
    values,
    write,
)
from beamweaver.checkpoint.deltas import appended, join
from beamweaver.checkpoint.records import DeltaRow
from beamweaver.errors import InvalidCall

if TYPE_CHECKING:
    from beamweaver.checkpoint.base import Checkpointer

_CODEC = Codec()


def _long(store: Checkpointer, count: int = 100) -> int:
    """A thread with a value that never changes, one that does, one that grows, and an open step."""
    epoch = begun(store)
    first = {"still": b"still", "n": b"0", "log": _CODEC.encode([0])}
    write(store, epoch, step("t", 0, writes=first))
    deltas = [DeltaRow(seq, join([appended(_CODEC.encode([seq + 1]))])) for seq in range(count - 1)]
    steps = [
        step("t", seq, deltas={"log": delta}, at_us=seq * 1_000_000)
        for seq, delta in enumerate(deltas, start=1)
    ]
    write(store, epoch, *steps, entry("t", count))
    return epoch


def _whole(store: Checkpointer, last: int = 99) -> None:
    """The head is as it was."""
    image = store.load("t")
    if image is None:
        return expect(image, "an image")
    expect(image.checkpoint.seq, last, "the head")
    expect([record.seq for record in image.entries], [last + 1], "the open step")
    expect(image.values["still"], b"still", "the value that never changed")
    expect(_CODEC.decode(image.values["log"]), list(range(last + 1)), "the value that grew")
    return expect(image.next_seq, last + 2, "the next number")


@check("retention")
def pruning_keeps_what_the_head_needs(place: Place) -> None:
    store = place.open()
    epoch = _long(store)
    expect(sum(store.prune(epoch, ["t"], keep_last=1)), 99, "the number that went")
    _whole(store)
    store = place.reopened(store)
    _whole(store)
    expect(seqs(store, "t"), [99], "the history")
    expect(store.load("t", 50), None, "a pruned checkpoint")
    write(store, store.acquire(), step("t", 101, parent=99, clears=(100,)))
    expect(values(store, "t") is None, wanted=False)


@check("retention")
def pruning_keeps_the_newest_ones_as_they_were(place: Place) -> None:
    store = place.open()
    epoch = _long(store, 20)
    before = [image.values for image in store.history("t", limit=5)]
    expect(sum(store.prune(epoch, keep_last=5)), 15, "the number that went")
    expect([image.values for image in store.history("t")], before, "the values")
    expect(seqs(store, "t"), [19, 18, 17, 16, 15], "the history")
    expect(sum(store.prune(epoch, keep_last=5)), 0, "what goes the second time")


@check("retention")
def pruning_by_age_keeps_the_young(place: Place) -> None:
    store = place.open()
    epoch = _long(store, 20)
    store.now = lambda: 20.0
    expect(sum(store.prune(epoch, older_than=10.5)), 10, "the number that went")
    expect(seqs(store, "t"), list(range(19, 9, -1)), "the history")
    expect(sum(store.prune(epoch, keep_last=1, older_than=3600.0)), 0, "what is that old")
    raises(InvalidCall, lambda: store.prune(epoch, keep_last=-1), "keep_last=-1")
    raises(InvalidCall, lambda: store.prune(epoch, older_than=-1.0), "older_than=-1")


@check("retention")
def pruning_keeps_the_end_of_each_branch_and_a_head_that_was_moved(place: Place) -> None:
    store = place.open()
    epoch = _long(store, 10)
    write(store, epoch, step("t", 11, parent=3, branch="c"), step("t", 12, parent=11, branch="c"))
    fork = values(store, "t", 12)
    store.set_head(epoch, "t", 9)
    expect(sum(store.prune(epoch, keep_last=1)), 10, "the number that went")
    _whole_after_fork(place.reopened(store), fork)


def _whole_after_fork(store: Checkpointer, fork: dict[str, bytes] | None) -> None:
    expect(seqs(store, "t"), [12, 9], "the history")
    expect(values(store, "t", 12), fork, "the fork")
    image = store.load("t")
    expect(image and [record.seq for record in image.entries], [10], "the open step of the head")
    expect(image and image.next_seq, 13, "the next number")


@check("retention")
def a_number_is_never_used_twice_though_the_newest_records_are_pruned(place: Place) -> None:
    store = place.open()
    epoch = _long(store, 5)
    write(store, epoch, step("t", 6, parent=2, branch="c"))
    store.set_head(epoch, "t", 4)
    expect(sum(store.prune(epoch, keep_last=0)), 5, "the number that went")
    store = place.reopened(store)
    image = store.load("t")
    expect(image and (image.checkpoint.seq, image.next_seq), (4, 7), "head and next number")
    write(store, store.acquire(), step("t", 7, parent=4, clears=(5,)))
    expect(seqs(store, "t"), [7, 4], "the history")


@check("retention")
def a_fork_from_a_pruned_checkpoint_is_refused(place: Place) -> None:
    store = place.open()
    epoch = _long(store, 5)
    list(store.prune(epoch, ["t", "unknown"]))
    results = store.commit(epoch, [step("t", 6, parent=2, branch="c")])
    expect([error and error.code for error in results], ["store_conflict"])


@check("retention")
def pruning_goes_on_while_the_thread_does(place: Place) -> None:
    store = place.open()
    epoch = _long(store, 600)
    steps = store.prune(epoch, ["t"], keep_last=1)
    removed = next(steps)
    write(store, epoch, step("t", 601, parent=599, clears=(600,)))
    expect(removed + sum(steps), 600, "the number that went")
    expect(seqs(store, "t"), [601], "the history")
    found = values(store, "t")
    expect(found and found["still"], b"still")


@check("retention")
def a_checkpoint_that_was_gone_on_from_is_no_tip_though_what_followed_is_removed(
    place: Place,
) -> None:
    store = place.open()
    epoch = begun(store)
    names = {"a": (("run-1", 1),), "b": (("run-2", 2),)}
    write(store, epoch, step("t", 0), step("t", 1, run_id="run-1", run_names=names["a"]))
    write(store, epoch, step("t", 2, run_id="run-2", run_names=names["b"]))
    write(store, epoch, step("t", 3, run_id="run-2"))
    write(store, epoch, step("t", 4, parent=1, branch="c", thread=thread_row("t", run=3)))
    expect(store.delete_runs(epoch, "t", ["run-2"]), 2, "the number that went")
    expect(seqs(store, "t"), [4, 1, 0], "the history")
    store = place.reopened(store)
    for seq, wanted in ((1, False), (4, True)):
        image = store.load("t", seq, entries=True)
        expect(image and image.tip, wanted, f"whether {seq} is a tip")
    epoch = store.acquire()
    store.set_head(epoch, "t", 1)
    expect(sum(store.prune(epoch, keep_last=0)), 2, "the number that went then")
    store = place.reopened(store)
    image = store.load("t")
    expect(image and (image.checkpoint.seq, image.tip), (1, False), "the head")
    raw = store.load("t", 1, entries=True)
    expect(raw and raw.tip, wanted=False, what="whether it is a tip")


@check("retention")
def the_runs_of_a_thread_are_deleted_by_any_of_their_names(place: Place) -> None:
    store = place.open()
    epoch = begun(store)
    write(store, epoch, step("t", 0, run_names=(("run-1", 1),), writes={"a": b"a", "b": b"b"}))
    write(store, epoch, step("t", 1, run_names=(("alias", 1),), run_ended=(1, 1)))
    row = thread_row("t", run=2)
    write(store, epoch, step("t", 2, run_id="run-2", run_names=(("run-2", 2),), thread=row))
    expect(store.delete_runs(epoch, "t", ["alias", "no such run"]), 2, "the number that went")
    expect([store.run_number("t", name) for name in ("run-1", "alias", "run-2")], [None, None, 2])
    expect(store.run_end("t", 1), None, "the end of the run")
    expect(values(place.reopened(store), "t"), {"a": b"a", "b": b"b", "n": b"2"})


@check("retention")
def the_run_at_the_head_is_not_deleted(place: Place) -> None:
    store = place.open()
    epoch = begun(store)
    write(store, epoch, step("t", 0, run_names=(("run-1", 1),)), step("t", 1))
    expect(store.delete_runs(epoch, "t", ["run-1"]), 0, "the number that went")
    expect(store.run_number("t", "run-1"), 1)
    expect(store.delete_runs(epoch, "unknown", ["run-1"]), 0)


@check("retention")
def a_deleted_thread_is_gone_with_all_that_was_its(place: Place) -> None:
    store = place.open()
    epoch = _long(store, 600)
    write(
        store,
        epoch,
        entry("t", 601, inbox_put=(message(1),), run_names=(("r", 1),), run_ended=(1, 1)),
    )
    store.set_head(epoch, "t", 3)
    expect(store.delete_thread(epoch, "t"), wanted=True)
    store = place.reopened(store)
    expect(store.load("t"), None)
    expect(seqs(store, "t"), [])
    expect((store.run_number("t", "r"), store.run_end("t", 1)), (None, None))
    expect((list(store.threads()), list(store.inbox_threads())), ([], []))
    epoch = begun(store, "t")
    expect(values(store, "t"), {"n": b"0"}, "the thread made again")
    expect(store.delete_thread(epoch, "unknown"), wanted=False)
