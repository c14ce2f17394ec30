"""One owner at a time."""

from __future__ import annotations

from beamweaver.checkpoint.conformance._check import Place, check, expect, raises
from beamweaver.checkpoint.conformance._kit import begun, entry, message, step, write
from beamweaver.errors import OwnershipLost, StoreOwned


@check("owners")
def a_second_owner_is_refused_at_once_and_told_who_owns_it(place: Place) -> None:
    store = place.open()
    store.now = lambda: 1_700_000_000.0
    store.acquire()
    error = raises(StoreOwned, lambda: place.open().acquire(), "a second acquire")
    expect(getattr(error, "since", None), 1_700_000_000.0, "since when")


@check("owners")
def the_epoch_rises_by_one_with_each_owner(place: Place) -> None:
    store = place.open()
    first = store.acquire()
    store.release()
    expect(store.acquire(), first + 1, "the next epoch")
    expect(place.reopened(store).acquire(), first + 2, "the epoch after a close")


@check("owners")
def every_write_of_an_older_epoch_is_refused(place: Place) -> None:
    store = place.open()
    old = begun(store, "t")
    write(store, old, step("t", 1), entry("t", 2, inbox_put=(message(1),)))
    store.release()
    store.acquire()
    before = store.load("t"), list(store.threads())
    for what, call in {
        "commit": lambda: store.commit(old, [step("t", 3)]),
        "delete_thread": lambda: store.delete_thread(old, "t"),
        "set_head": lambda: store.set_head(old, "t", 0),
        "copy_thread": lambda: store.copy_thread(old, "t", "u"),
        "prune": lambda: list(store.prune(old, ["t"])),
    }.items():
        raises(OwnershipLost, call, f"{what} of an older epoch")
    expect((store.load("t"), list(store.threads())), before, "the store after them")


@check("owners")
def reading_needs_no_ownership(place: Place) -> None:
    store = place.open()
    begun(store, "t")
    other = place.open()
    expect(other.load("t"), store.load("t"))
    expect(list(other.threads()), list(store.threads()))
