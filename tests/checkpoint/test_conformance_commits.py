"""The conformance suite, part one: commits. Every store passes it."""

from __future__ import annotations

import pytest

from beamweaver.checkpoint.records import InboxMessage
from beamweaver.errors import CallRefused, OwnershipLost, StoreConflict, StoreError, StoreOwned
from tests.checkpoint.kit import (
    begun,
    codes,
    entry,
    message,
    run_row,
    step,
    thread_row,
)


class TestOrder:
    def test_records_come_back_in_the_order_of_their_numbers(self, store):
        epoch = begun(store, "t")
        store.commit(epoch, [entry("t", seq) for seq in range(1, 4)])

        assert [record.seq for record in store.load("t").entries] == [1, 2, 3]

    def test_the_head_is_the_newest_checkpoint_and_what_follows_it(self, store):
        epoch = begun(store, "t")
        store.commit(epoch, [entry("t", 1), step("t", 2, parent=0, clears=(1,)), entry("t", 3)])
        image = store.load("t")

        assert image.checkpoint.seq == 2
        assert [record.seq for record in image.entries] == [3]
        assert image.next_seq == 4

    def test_order_is_by_number_and_never_by_the_clock(self, store):
        """Peers 13."""
        epoch = begun(store, "t")
        store.commit(epoch, [step("t", 1, at_us=1_000), step("t", 2, at_us=-1_000)])

        assert store.load("t").checkpoint.seq == 2

    def test_numbers_beyond_one_byte_sort_as_numbers(self, store):
        epoch = begun(store, "t")
        for start in range(1, 601, 100):
            store.commit(epoch, [step("t", seq) for seq in range(start, start + 100)])

        assert store.load("t").checkpoint.seq == 600


class TestGroups:
    def test_a_group_writes_all_its_commits(self, store):
        epoch = begun(store)

        assert store.commit(epoch, [step("a", 0), step("b", 0), step("a", 1)]) == [None] * 3
        assert store.load("a").next_seq == 2
        assert store.load("b").next_seq == 1

    def test_an_empty_group_is_nothing(self, store):
        assert store.commit(begun(store), []) == []

    def test_a_stale_commit_fails_alone(self, store):
        epoch = begun(store, "a", "b")
        results = store.commit(epoch, [step("a", 0), step("b", 1), step("a", 1)])

        assert codes(results) == ["store_conflict", None, None]
        assert store.load("a").next_seq == 2

    def test_a_conflict_names_the_thread_and_both_numbers(self, store):
        [error] = store.commit(begun(store, "a"), [step("a", 5)])

        assert isinstance(error, StoreConflict)
        assert (error.thread_id, error.seq, error.next_seq) == ("a", 5, 1)

    def test_what_follows_a_failed_commit_of_its_thread_fails_too(self, store):
        epoch = begun(store, "a")

        assert codes(store.commit(epoch, [step("a", 2), step("a", 3), step("a", 1)])) == [
            "store_conflict",
            "store_conflict",
            None,
        ]

    def test_a_commit_that_cannot_be_encoded_fails_alone(self, store):
        epoch = begun(store, "a", "b")
        bad = step("a", 1, writes={"\ud800": b""})

        assert codes(store.commit(epoch, [step("b", 1), bad])) == [None, "store_error"]
        assert (store.load("a").next_seq, store.load("b").next_seq) == (1, 2)

    def test_a_failed_commit_leaves_no_trace(self, store):
        epoch = begun(store, "a")
        bad = step(
            "a",
            7,
            thread=thread_row("a", status="failed"),
            run_names=(("lost", 9),),
            run_ended=(1, 7),
            inbox_put=(message(1),),
        )
        store.commit(epoch, [bad])
        image = store.load("a")

        assert image.row.status == "running"
        assert image.inbox == ()
        assert store.run_number("a", "lost") is None
        assert store.run_end("a", 1) is None

    def test_a_thread_begins_with_its_row_and_a_checkpoint(self, store):
        epoch = begun(store)
        results = store.commit(epoch, [entry("a", 0, thread=thread_row("a")), entry("b", 0)])

        assert codes(results) == ["store_error", "store_error"]
        assert store.load("a") is None

    def test_a_commit_alone_is_as_good_as_a_group(self, store):
        epoch = begun(store, "a")

        assert store.commit(epoch, [step("a", 1)]) == [None]
        assert codes(store.commit(epoch, [step("a", 1)])) == ["store_conflict"]

    def test_a_long_thread_stays_exact_when_many_others_were_written_since(
        self, store, monkeypatch
    ):
        monkeypatch.setattr("beamweaver.checkpoint.store._HEADS", 2)
        epoch = begun(store, "a")
        store.commit(epoch, [step(f"x{number}", 0) for number in range(5)])

        assert codes(store.commit(epoch, [step("a", 2), step("a", 1), step("x0", 1)])) == [
            "store_conflict",
            None,
            None,
        ]


class TestFence:
    def test_the_epoch_rises_by_one_with_each_owner(self, store):
        first = store.acquire()
        store.release()

        assert store.acquire() == first + 1

    def test_a_second_owner_is_refused_at_once(self, place, store):
        store.acquire()
        with pytest.raises(StoreOwned) as caught:
            place.open().acquire()

        assert caught.value.pid > 0
        assert caught.value.host
        assert caught.value.since > 0

    def test_it_is_told_since_when_a_store_is_owned(self, place, store):
        store.now = lambda: 1_700_000_000.5
        store.acquire()
        with pytest.raises(StoreOwned) as caught:
            place.open().acquire()

        assert caught.value.since == 1_700_000_000.5

    def test_a_write_of_an_older_epoch_is_refused_as_a_whole(self, store):
        """Supervision: a stale owner's write never lands."""
        old = begun(store, "t")
        store.release()
        store.acquire()
        with pytest.raises(OwnershipLost):
            store.commit(old, [step("t", 1)])

        assert store.load("t").next_seq == 1

    def test_a_write_of_an_epoch_to_come_is_refused(self, store):
        epoch = begun(store, "t")
        with pytest.raises(OwnershipLost):
            store.commit(epoch + 1, [step("t", 1)])

    def test_a_write_after_release_is_refused(self, store):
        epoch = begun(store, "t")
        store.release()
        with pytest.raises(OwnershipLost):
            store.commit(epoch, [step("t", 1)])

    def test_a_delete_of_an_older_epoch_is_refused(self, store):
        old = begun(store, "t")
        store.release()
        store.acquire()
        with pytest.raises(OwnershipLost):
            store.delete_thread(old, "t")

        assert store.load("t") is not None

    def test_release_without_ownership_does_nothing(self, store):
        store.release()

        assert store.acquire() == 1

    def test_the_next_owner_goes_on_where_the_thread_is(self, store):
        begun(store, "t")
        store.release()
        epoch = store.acquire()

        assert codes(store.commit(epoch, [step("t", 0), step("t", 1)])) == ["store_conflict", None]


class TestClears:
    def test_entries_go_in_the_commit_that_clears_them(self, store):
        epoch = begun(store, "t")
        store.commit(epoch, [entry("t", 1), entry("t", 2)])
        store.commit(epoch, [step("t", 3, parent=0, clears=(1, 2))])

        assert store.load("t", 1) is None
        assert store.load("t").entries == ()

    def test_a_record_may_clear_entries_of_its_own_group(self, store):
        epoch = begun(store, "t")

        assert store.commit(epoch, [entry("t", 1), step("t", 2, parent=0, clears=(1,))]) == [
            None,
            None,
        ]
        assert store.load("t").next_seq == 3

    def test_a_refused_commit_clears_nothing(self, store):
        epoch = begun(store, "t")
        store.commit(epoch, [entry("t", 1)])
        store.commit(epoch, [step("t", 9, parent=0, clears=(1,))])

        assert [record.seq for record in store.load("t").entries] == [1]


class TestRows:
    def test_the_row_changes_only_with_a_commit_that_brings_one(self, store):
        epoch = begun(store, "t")
        store.commit(epoch, [step("t", 1)])
        before = store.load("t").row
        store.commit(epoch, [step("t", 2, thread=thread_row("t", "complete", run=run_row(2)))])

        assert before.status == "running"
        assert store.load("t").row.run.number == 2

    def test_the_current_run_is_found_by_thread(self, store):
        begun(store, "t")

        assert store.run_of("t") == run_row()
        assert store.run_of("unknown") is None

    def test_each_name_of_a_run_leads_to_its_number(self, store):
        """Semantics 5: an unknown run id is one more name of the run that it joins."""
        epoch = begun(store)
        store.commit(epoch, [step("t", 0, run_names=(("r1", 1), ("again", 1)))])
        store.commit(epoch, [step("t", 1, run_names=(("r2", 2),))])

        assert [store.run_number("t", name) for name in ("r1", "again", "r2", "no")] == [
            1,
            1,
            2,
            None,
        ]
        assert store.run_number("other", "r1") is None

    def test_a_run_ends_with_a_checkpoint(self, store):
        epoch = begun(store, "t")
        store.commit(epoch, [step("t", 1, run_ended=(1, 1))])

        assert (store.run_end("t", 1), store.run_end("t", 2)) == (1, None)

    @pytest.mark.parametrize("name", ["", "x" * 129, "é" * 65, "\ud800"])
    def test_a_run_id_that_cannot_be_kept_fails_its_commit(self, store, name):
        epoch = begun(store, "t")

        assert codes(store.commit(epoch, [step("t", 1, run_names=((name, 1),))])) == ["store_error"]
        assert store.run_number("t", name) is None

    def test_a_run_id_of_the_greatest_length_is_kept(self, store):
        name = "é" * 64
        epoch = begun(store, "t" * 256)
        store.commit(epoch, [step("t" * 256, 1, run_names=((name, 1),))])

        assert store.run_number("t" * 256, name) == 1


class TestInbox:
    def test_messages_wait_in_the_order_of_their_numbers(self, store):
        epoch = begun(store, "t")
        store.commit(epoch, [entry("t", 1, inbox_put=(message(300), message(2)))])
        store.commit(epoch, [entry("t", 2, inbox_put=(message(1),))])

        assert [item.number for item in store.load("t").inbox] == [1, 2, 300]

    def test_a_message_goes_with_the_record_that_it_causes(self, store):
        epoch = begun(store, "t")
        store.commit(epoch, [entry("t", 1, inbox_put=(message(1), message(2)))])
        store.commit(epoch, [step("t", 2, parent=0, inbox_drop=(1,))])

        assert store.load("t").inbox == (message(2),)

    def test_an_older_checkpoint_shows_no_messages(self, store):
        epoch = begun(store, "t")
        store.commit(epoch, [entry("t", 1, inbox_put=(message(1),))])

        assert store.load("t", 0).inbox == ()


class TestIds:
    @pytest.mark.parametrize(
        "thread_id",
        [
            "a",
            "ab",
            "a b/c",
            "äöü",
            "スレッド",
            "😀",
            "\x01",
            "x" * 256,
            "é" * 128,
            "..",
            "\x7f\t\n",
        ],
    )
    def test_any_text_of_up_to_256_bytes_names_a_thread(self, place, store, thread_id):
        begun(store, thread_id)
        again = place.reopened(store)

        assert again.load(thread_id).row.thread_id == thread_id
        assert [found.thread_id for found in again.threads()] == [thread_id]

    @pytest.mark.parametrize("thread_id", ["", "x" * 257, "é" * 129, "a\x00b", "\ud800"])
    def test_an_id_that_no_thread_can_have_fails_its_commit_alone(self, store, thread_id):
        """Peers 61: empty ids are refused, not kept."""
        epoch = begun(store)

        assert codes(store.commit(epoch, [step(thread_id, 0), step("t", 0)])) == [
            "store_error",
            None,
        ]
        assert store.load(thread_id) is None
        assert store.delete_thread(epoch, thread_id) is False

    def test_a_thread_whose_id_begins_another_is_apart_from_it(self, store):
        epoch = begun(store, "a", "ab", "a\x01")
        store.commit(epoch, [entry("ab", 1, inbox_put=(message(1),), run_names=(("r", 1),))])

        assert store.load("a").next_seq == 1
        assert store.run_number("a", "r") is None
        assert store.delete_thread(epoch, "a")
        assert store.load("ab").inbox == (message(1),)


def test_what_a_commit_reports_is_an_error_and_not_a_refused_call(store):
    [error] = store.commit(begun(store), [step("", 0)])

    assert isinstance(error, StoreError)
    assert not isinstance(error, CallRefused)


def test_a_message_without_bytes_is_refused_alone_and_nothing_of_its_commit_is_kept(store):
    epoch = begun(store, "a", "b")
    bad = InboxMessage(number=1, id="m", kind="invoke", run_id="\ud800", payload=b"")
    results = store.commit(epoch, [step("a", 1, inbox_put=(bad,)), step("b", 1)])

    assert codes(results) == ["store_error", None]
    assert [store.load(name).next_seq for name in "ab"] == [1, 2]
