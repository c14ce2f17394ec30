"""Which threads sleep, and until when."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from beamweaver.checkpoint.conformance._check import Place, check, expect
from beamweaver.checkpoint.conformance._kit import begun, entry, step, write
from beamweaver.checkpoint.conformance._kit import thread_row as row

if TYPE_CHECKING:
    from beamweaver.checkpoint import Checkpointer
    from beamweaver.checkpoint.records import ThreadRow


def _until(due_us: int, thread_id: str) -> ThreadRow:
    asleep = row(thread_id, "sleeping")
    return msgspec.structs.replace(asleep, run=msgspec.structs.replace(asleep.run, due_us=due_us))


def _found(store: Checkpointer, **paging: object) -> list[tuple[int, str]]:
    found = store.sleepers(**paging)  # type: ignore[arg-type] # they are as they are named
    return [(thread.run.due_us, thread.thread_id) for thread in found]


@check("sleeping")
def sleepers_come_by_their_due_times(place: Place) -> None:
    store = place.open()
    epoch = begun(store, "a", "b", "c", "awake")
    due = {"a": 300, "b": 1 << 40, "c": 300}
    write(store, epoch, *[entry(name, 1, thread=_until(at, name)) for name, at in due.items()])
    expect(_found(store), [(300, "a"), (300, "c"), (1 << 40, "b")])
    store = place.reopened(store)
    expect(_found(store), [(300, "a"), (300, "c"), (1 << 40, "b")], "another process")


@check("sleeping")
def sleepers_are_given_page_by_page(place: Place) -> None:
    store = place.open()
    names = [f"t{number:02}" for number in range(30)]
    epoch = begun(store, *names)
    due = {name: number // 3 for number, name in enumerate(names)}
    write(store, epoch, *[entry(name, 1, thread=_until(at, name)) for name, at in due.items()])
    pages: list[tuple[int, str]] = []
    while page := _found(store, after=pages[-1] if pages else None, limit=7):
        pages += page
    expect(pages, sorted((at, name) for name, at in due.items()))


@check("sleeping")
def who_wakes_or_sleeps_again_is_found_in_one_place(place: Place) -> None:
    store = place.open()
    epoch = begun(store, "a", "b")
    write(store, epoch, entry("a", 1, thread=_until(5, "a")), entry("b", 1, thread=_until(6, "b")))
    write(
        store, epoch, entry("a", 2, thread=_until(7, "a")), step("b", 2, parent=0, thread=row("b"))
    )
    expect(_found(store), [(7, "a")])
    store = place.reopened(store)
    epoch = store.acquire()
    write(store, epoch, entry("a", 3, thread=_until(4, "a")), entry("b", 3, thread=_until(5, "b")))
    expect(_found(store), [(4, "a"), (5, "b")], "another owner")


@check("sleeping")
def what_is_deleted_copied_or_moved_does_not_sleep(place: Place) -> None:
    store = place.open()
    epoch = begun(store, "a", "b")
    write(store, epoch, entry("a", 1, thread=_until(5, "a")), entry("b", 1, thread=_until(6, "b")))
    store.copy_thread(epoch, "a", "copy")
    expect(_found(store), [(5, "a"), (6, "b")], "a copy")
    store.delete_thread(epoch, "a")
    store.set_head(epoch, "b", 0, row("b", "cancelled"))
    expect(_found(store), [])
    store.set_head(epoch, "b", 0, _until(8, "b"))
    expect(_found(store), [(8, "b")], "a head that sleeps")


@check("sleeping")
def it_is_known_when_a_thread_fell_asleep(place: Place) -> None:
    store = place.open()
    epoch = begun(store, "a")
    if store.asleep_us() is None:
        return  # the store does not keep it, which is allowed
    expect(store.asleep_us(), 0, "nobody slept")
    at = 1_000_000_000_000
    slept = step("a", 1, at_us=at, thread=_until(at + 5, "a"))
    write(store, epoch, slept)
    store = place.reopened(store)
    known = store.asleep_us() or 0
    expect(at - 300_000_000 <= known <= at, True, f"the time {known}")
