"""One owner at a time."""

from __future__ import annotations

from beamweaver.checkpoint.conformance._check import Place, check, expect, raises
from beamweaver.checkpoint.conformance._kit import begun, entry, message, step, write
from beamweaver.errors import InvalidCall, OwnershipLost, StoreOwned


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


@check("owners")
def a_forced_takeover_leaves_the_old_owner_without_a_write(place: Place) -> None:
    store = place.open()
    old = begun(store, "t")
    other = place.open()
    new = other.acquire(takeover="force")
    expect(new, old + 1, "the new epoch")
    raises(OwnershipLost, lambda: store.commit(old, [step("t", 1)]), "a write of the old owner")
    if store is not other:  # one that lives in this process may be one object
        store.release()
    write(other, new, step("t", 1))
    raises(StoreOwned, lambda: place.open().acquire(), "a third one's acquire")


@check("owners")
def who_waits_for_a_store_gets_it_when_it_is_free(place: Place) -> None:
    store = place.open()
    store.acquire()
    other = place.open()
    pauses: list[float] = []

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 3:
            store.release()

    other.pause, other.monotonic = pause, lambda: 0.0
    expect(other.acquire(wait=10.0), 2, "the epoch")
    expect(len(pauses), 3, "the number of tries")


@check("owners")
def who_waits_too_long_is_told_who_owns_it(place: Place) -> None:
    store = place.open()
    store.acquire()
    other = place.open()
    clock = [0.0]

    def pause(seconds: float) -> None:
        clock[0] += seconds

    other.pause, other.monotonic = pause, lambda: clock[0]
    raises(StoreOwned, lambda: other.acquire(wait=10.0), "a wait that is over")
    expect(round(clock[0], 6), 10.0, "how long it waited")
    raises(InvalidCall, lambda: other.acquire(wait=-1.0), "wait=-1")
