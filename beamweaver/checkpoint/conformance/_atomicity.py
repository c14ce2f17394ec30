"""A group is in the store as a whole or not at all, wherever the process ends."""

from __future__ import annotations

from typing import TYPE_CHECKING

from beamweaver.checkpoint.conformance._check import Place, check, expect, raises
from beamweaver.checkpoint.conformance._kit import (
    Crash,
    begun,
    codes,
    crash_at,
    entry,
    message,
    step,
    thread_row,
    write,
)
from beamweaver.errors import StoreError

if TYPE_CHECKING:
    from beamweaver.checkpoint.base import Checkpointer
    from beamweaver.checkpoint.records import Commit

_POINTS = [(name, nth) for nth in (1, 2, 3) for name in ("put.before", "put.after")]


def _group() -> list[Commit]:
    return [
        entry("a", 1, inbox_put=(message(1),)),
        step("a", 2, parent=0, clears=(1,), thread=thread_row("a", "complete"), run_ended=(1, 2)),
        step("b", 0, run_names=(("r", 1),)),
    ]


def _state(store: Checkpointer) -> tuple[object, ...]:
    """All that the group changes."""
    return (
        store.load("a"),
        store.load("b"),
        store.run_number("b", "r"),
        store.run_end("a", 1),
        list(store.threads()),
        list(store.inbox_threads()),
        [image.checkpoint for image in store.history("a")],
    )


@check("crash between writes")
def nothing_is_kept_of_a_group_that_ended_before_its_sync(place: Place) -> None:
    store = place.open()
    epoch = begun(store, "a")
    before = _state(store)
    for point, nth in [*_POINTS, ("sync.before", 1)]:
        _crash(store, epoch, point, nth)
        store = place.reopened(store)
        expect(_state(store), before, f"the store after a crash at {point} {nth}")
        epoch = store.acquire()


def _crash(store: Checkpointer, epoch: int, point: str, nth: int) -> None:
    store.faults = crash_at(point, nth)
    raises(Crash, lambda: store.commit(epoch, _group()), f"a crash at {point} {nth}")


@check("crash between writes")
def all_is_kept_of_a_group_that_ended_after_its_sync(place: Place) -> None:
    store = place.open()
    epoch = begun(store, "a")
    store.faults = crash_at("sync.after")
    raises(Crash, lambda: store.commit(epoch, _group()), "a crash after the sync")
    again = place.reopened(store)
    image = again.load("a")
    expect(image and (image.next_seq, image.row.status, len(image.inbox)), (3, "complete", 1))
    expect(again.run_number("b", "r"), 1)


@check("atomicity")
def a_store_goes_on_after_a_group_that_failed(place: Place) -> None:
    store = place.open()
    epoch = begun(store, "a")
    store.faults = crash_at("sync.before")
    raises(Crash, lambda: store.commit(epoch, _group()), "a crash before the sync")
    write(store, epoch, *_group())


@check("atomicity")
def what_is_refused_leaves_no_trace(place: Place) -> None:
    store = place.open()
    epoch = begun(store, "a")
    before = _state(store)
    bad = step(
        "a",
        7,
        thread=thread_row("a", "failed"),
        run_ended=(1, 7),
        inbox_put=(message(1),),
        clears=(0,),
    )
    expect(codes(store.commit(epoch, [bad])), ["store_conflict"])
    expect(_state(store), before, "the store after a refused commit")


@check("atomicity")
def a_commit_that_has_no_bytes_fails_alone(place: Place) -> None:
    store = place.open()
    epoch = begun(store, "a", "b")
    results = store.commit(epoch, [step("a", 1, writes={"\ud800": b""}), step("b", 1)])
    expect(codes(results), ["store_error", None])


@check("atomicity")
def a_refused_write_is_tried_again_alone(place: Place) -> None:
    store = place.open()
    epoch = begun(store, "a")
    refusals = [StoreError("refused once")]

    def faults(point: str) -> None:
        if point == "put.before" and refusals:
            raise refusals.pop()

    store.faults = faults
    write(store, epoch, *_group())
