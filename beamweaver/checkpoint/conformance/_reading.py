"""Ordering, and what listings give."""

from __future__ import annotations

from beamweaver.checkpoint.conformance._check import Place, check, expect, raises
from beamweaver.checkpoint.conformance._kit import begun, codes, entry, message, seqs, step, write
from beamweaver.checkpoint.conformance._kit import thread_row as row
from beamweaver.errors import InvalidCall


@check("ordering")
def records_are_ordered_by_number_and_never_by_the_clock(place: Place) -> None:
    store = place.open()
    epoch = begun(store, "t")
    write(store, epoch, step("t", 1, at_us=5_000), step("t", 2, at_us=-5_000))
    image = store.load("t")
    expect(image and image.checkpoint.seq, 2, "the head")
    expect(seqs(store, "t"), [2, 1, 0], "the history")


@check("ordering")
def numbers_beyond_a_byte_sort_as_numbers(place: Place) -> None:
    store = place.open()
    epoch = begun(store, "t")
    write(store, epoch, *[step("t", seq) for seq in range(1, 300)])
    expect(seqs(store, "t", limit=3), [299, 298, 297], "the history")


@check("ordering")
def numbers_that_no_record_can_have_are_not_found(place: Place) -> None:
    store = place.open()
    begun(store, "t")
    for number in (-1, 1 << 63, 1 << 64, 1 << 200):
        expect((store.load("t", number), store.run_end("t", number)), (None, None), str(number))
        found = [] if number < 0 else [0]
        expect(seqs(store, "t", before=number), found, f"the history before {number}")


@check("ordering")
def a_record_that_is_not_the_next_one_fails_alone(place: Place) -> None:
    store = place.open()
    epoch = begun(store, "a", "b")
    results = store.commit(epoch, [step("a", 0), step("a", 2), step("b", 1), step("a", 1)])
    expect(codes(results), ["store_conflict", "store_conflict", None, None])


@check("ordering")
def a_checkpoint_follows_one_that_exists(place: Place) -> None:
    store = place.open()
    epoch = begun(store, "t")
    write(store, epoch, entry("t", 1))
    expect(codes(store.commit(epoch, [step("t", 2, parent=1)])), ["store_conflict"])
    expect(codes(store.commit(epoch, [step("t", 2, parent=7)])), ["store_conflict"])
    write(store, epoch, step("t", 2, parent=0), step("t", 3), step("t", 4, parent=2))


@check("ordering")
def entries_follow_the_head_until_a_checkpoint_clears_them(place: Place) -> None:
    store = place.open()
    epoch = begun(store, "t")
    write(store, epoch, entry("t", 1), entry("t", 2))
    image = store.load("t")
    expect(image and [record.seq for record in image.entries], [1, 2], "the entries")
    write(store, epoch, step("t", 3, parent=0, clears=(1, 2)))
    image = place.reopened(store).load("t")
    expect(image and (image.entries, image.next_seq), ((), 4), "the entries after it")


@check("listing")
def threads_with_messages_are_listed_by_id_and_page(place: Place) -> None:
    store = place.open()
    epoch = begun(store, "b", "a", "ab", "a\x01", "none")
    for name in ("b", "a", "ab", "a\x01"):
        write(store, epoch, entry(name, 1, inbox_put=(message(1), message(2))))
    expect(list(store.inbox_threads()), ["a", "a\x01", "ab", "b"])
    expect(list(store.inbox_threads(after="a", limit=2)), ["a\x01", "ab"])
    expect(list(store.inbox_threads(after="aa")), ["ab", "b"])
    expect(list(store.inbox_threads(limit=0)), [])


@check("listing")
def a_thread_whose_messages_are_consumed_is_listed_no_more(place: Place) -> None:
    store = place.open()
    epoch = begun(store, "t")
    write(store, epoch, entry("t", 1, inbox_put=(message(1), message(2))))
    write(store, epoch, entry("t", 2, inbox_drop=(1,)))
    expect(list(store.inbox_threads()), ["t"])
    write(store, epoch, entry("t", 3, inbox_drop=(2,)))
    expect(list(place.reopened(store).inbox_threads()), [])


@check("listing")
def a_thread_is_listed_by_its_status_and_moves_with_it(place: Place) -> None:
    store = place.open()
    epoch = begun(store, "a", "b")
    write(store, epoch, step("a", 1, thread=row("a", "waiting")))
    found = [(line.status, line.thread_id) for line in store.threads()]
    expect(found, [("running", "b"), ("waiting", "a")])
    expect([line.thread_id for line in store.threads(statuses=["waiting"])], ["a"])
    raises(InvalidCall, lambda: store.threads(after="a"), "after= without one status")


@check("listing")
def what_does_not_exist_reads_as_nothing(place: Place) -> None:
    store = place.open()
    expect(store.load("t"), None)
    expect(list(store.threads()), [])
    expect(list(store.inbox_threads()), [])
    expect(list(store.history("t")), [])
    begun(store, "u")
    expect(store.load("t"), None)
    expect(store.load("u", 7), None)
    expect(list(store.history("t")), [])


@check("listing")
def a_run_is_found_by_each_of_its_names_and_by_its_end(place: Place) -> None:
    store = place.open()
    epoch = begun(store)
    write(store, epoch, step("t", 0, run_names=(("one", 1), ("two", 1)), run_ended=(1, 0)))
    again = place.reopened(store)
    found = [again.run_number("t", name) for name in ("one", "two", "three")]
    expect(found, [1, 1, None], "the runs")
    expect((again.run_end("t", 1), again.run_end("t", 2)), (0, None), "the ends")
