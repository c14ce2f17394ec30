"""Idempotency keys of messages."""

from __future__ import annotations

from functools import partial
from itertools import pairwise

from beamweaver.checkpoint.conformance._check import Place, check, expect, raises
from beamweaver.checkpoint.conformance._kit import (
    Crash,
    begun,
    codes,
    crash_at,
    entry,
    message,
    step,
    write,
)
from beamweaver.checkpoint.records import KeyPut, MessageKey


def _put(name: str, at_us: int = 0, *, id_: str = "", before_us: int = 0, most: int = 99) -> KeyPut:
    row = MessageKey(name, id_ or f"m-{name}", "run-1", b"digest", at_us)
    return KeyPut(row, before_us, most)


@check("message keys")
def a_key_is_kept_with_the_commit_that_brings_it(place: Place) -> None:
    store = place.open()
    epoch = begun(store, "t", "u")
    put = _put("k")
    write(store, epoch, entry("t", 1, inbox_put=(message(1),), key=put))
    expect(store.message_key("t", "k"), put.row)
    store = place.reopened(store)
    expect(store.message_key("t", "k"), put.row, "the key after a close")
    expect(store.message_keys("t"), 1)
    for thread_id, name in (
        ("t", "other"),
        ("u", "k"),
        ("nobody", "k"),
        ("t", ""),
        ("t", "k" * 999),
    ):
        expect(store.message_key(thread_id, name), None, f"key {name[:9]!r} of {thread_id!r}")
    expect((store.message_keys("u"), store.message_keys("nobody")), (0, 0))


@check("message keys")
def the_first_commit_of_a_thread_may_bring_one(place: Place) -> None:
    store = place.open()
    write(store, store.acquire(), step("t", 0, key=_put("k")))
    expect(store.message_key("t", "k"), _put("k").row)


@check("message keys")
def a_key_is_there_exactly_if_its_commit_is(place: Place) -> None:
    for point in ("put.before", "put.after", "sync.before", "sync.after"):
        store = place.open()
        epoch = begun(store, point)
        store.faults = crash_at(point)
        commits = [entry(point, 1, key=_put("k"))]
        raises(Crash, partial(store.commit, epoch, commits), f"a crash at {point}")
        store = place.reopened(store)
        image = store.load(point)
        kept = image is not None and image.next_seq == 2
        expect(
            store.message_key(point, "k") is not None, kept, f"whether the key is there at {point}"
        )
        expect(kept, point == "sync.after", f"whether the commit is there at {point}")
        store.release()


@check("message keys")
def a_refused_commit_brings_none(place: Place) -> None:
    store = place.open()
    epoch = begun(store, "t")
    refused = store.commit(
        epoch, [entry("t", 7, key=_put("a")), entry("t", 1, key=_put("k" * 999))]
    )
    expect(["store_conflict", "store_error"], codes(refused))
    expect(store.message_keys("t"), 0)


@check("message keys")
def the_same_key_again_takes_the_place_of_the_old_one(place: Place) -> None:
    store = place.open()
    epoch = begun(store, "t")
    write(store, epoch, entry("t", 1, key=_put("k", 1)))
    write(store, epoch, entry("t", 2, key=_put("k", 9, id_="second")))
    expect(store.message_key("t", "k"), _put("k", 9, id_="second").row)
    for seq in range(3, 9):
        write(store, epoch, entry("t", seq, key=_put(f"k{seq}", 10, before_us=5)))
    expect(store.message_key("t", "k"), _put("k", 9, id_="second").row, "the key that was renewed")


@check("message keys")
def keys_that_are_too_old_go_some_with_each_commit(place: Place) -> None:
    store = place.open()
    epoch = begun(store, "t")
    write(store, epoch, *[entry("t", n, key=_put(f"k{n}", n)) for n in range(1, 101)])
    counts = [store.message_keys("t")]
    for seq in range(101, 141):
        write(store, epoch, entry("t", seq, key=_put(f"k{seq}", 200, before_us=51)))
        counts.append(store.message_keys("t"))
    expect(max(a - b for a, b in pairwise(counts)) < 50, True, "a bounded sweep")
    expect(counts[-1], 90, "the keys that are young enough")
    expect(store.message_key("t", "k50"), None)
    expect(store.message_key("t", "k51"), _put("k51", 51).row)


@check("message keys")
def keys_beyond_the_bound_go_the_oldest_first(place: Place) -> None:
    store = place.open()
    epoch = begun(store, "t")
    for n in range(1, 16):
        write(store, epoch, entry("t", n, key=_put(f"k{n}", n, most=5)))
    expect(store.message_keys("t"), 5)
    there = [n for n in range(1, 16) if store.message_key("t", f"k{n}") is not None]
    expect(there, list(range(11, 16)))


@check("message keys")
def a_copy_has_none_and_a_deleted_thread_leaves_none(place: Place) -> None:
    store = place.open()
    epoch = begun(store, "t")
    write(store, epoch, entry("t", 1, key=_put("k")))
    store.copy_thread(epoch, "t", "copy")
    expect((store.message_key("copy", "k"), store.message_keys("copy")), (None, 0))
    store.delete_thread(epoch, "t")
    write(store, epoch, step("t", 0))
    expect((store.message_key("t", "k"), store.message_keys("t")), (None, 0))
