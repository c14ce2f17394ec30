"""The conformance suite, part two: loading, listing, deleting, opening again. Every store passes it."""

from __future__ import annotations

import pytest

from beamweaver.errors import CorruptRecord, InvalidCall, StoreConflict
from tests.checkpoint.kit import begun, entry, message, step, thread_row


class TestVersions:
    def test_a_channel_keeps_its_value_until_it_is_written_again(self, store):
        epoch = begun(store)
        store.commit(epoch, [step("t", 0, writes={"a": b"a0", "b": b"b0"})])
        store.commit(epoch, [step("t", 1, writes={"a": b"a1"}), step("t", 2, writes={})])
        image = store.load("t")

        assert image.values == {"a": b"a1", "b": b"b0"}
        assert image.versions == {"a": 1, "b": 0}

    def test_it_is_told_how_many_checkpoints_follow_the_last_full_map(self, store):
        epoch = begun(store, "t")
        store.commit(epoch, [step("t", seq) for seq in (1, 2)])
        store.commit(epoch, [step("t", 3, versions={"n": 3}), step("t", 4)])

        assert [store.load("t", seq).since_full for seq in (0, 2, 3, 4)] == [0, 2, 0, 1]

    def test_a_full_map_drops_the_channels_that_it_does_not_name(self, store):
        epoch = begun(store)
        store.commit(epoch, [step("t", 0, writes={"a": b"a0", "b": b"b0"})])
        store.commit(epoch, [step("t", 1, writes={"a": b"a1"}, versions={"a": 1})])

        assert store.load("t").values == {"a": b"a1"}

    def test_a_full_map_may_name_values_of_older_records(self, store):
        epoch = begun(store)
        store.commit(epoch, [step("t", 0, writes={"a": b"a0"}), step("t", 1, writes={})])
        store.commit(epoch, [step("t", 2, writes={"b": b"b2"}, versions={"a": 0, "b": 2})])

        assert store.load("t").values == {"a": b"a0", "b": b"b2"}

    def test_a_branch_is_a_delta_on_its_parent_and_not_on_the_record_before_it(self, store):
        epoch = begun(store)
        store.commit(epoch, [step("t", 0, writes={"a": b"a0"}), step("t", 1, writes={"a": b"a1"})])
        store.commit(epoch, [step("t", 2, parent=0, writes={"b": b"b2"})])

        assert store.load("t").values == {"a": b"a0", "b": b"b2"}

    def test_a_long_chain_of_deltas_reads_as_its_last_values(self, store):
        epoch = begun(store)
        store.commit(epoch, [step("t", 0, writes={"a": b"a0", "z": b"z0"})])
        store.commit(epoch, [step("t", seq, writes={"a": b"%d" % seq}) for seq in range(1, 64)])
        image = store.load("t")

        assert image.values == {"a": b"63", "z": b"z0"}
        assert image.since_full == 63

    def test_a_checkpoint_without_a_value_that_it_names_is_corrupt(self, store):
        epoch = begun(store, "t")
        store.commit(epoch, [step("t", 1, writes={}, versions={"lost": 0})])
        with pytest.raises(CorruptRecord) as caught:
            store.load("t")

        assert caught.value.key == "record/t/0"

    @pytest.mark.parametrize("parent", [1, 7, 2])
    def test_a_checkpoint_follows_one_that_exists(self, store, parent):
        epoch = begun(store, "t")
        [first, error] = store.commit(epoch, [entry("t", 1), step("t", 2, parent=parent)])

        assert first is None
        assert isinstance(error, StoreConflict)
        assert error.parent == parent
        assert store.load("t").next_seq == 2

    def test_a_checkpoint_may_follow_one_of_its_own_group(self, store):
        epoch = begun(store, "t")
        group = [step("t", 1), step("t", 2), step("t", 3, parent=1)]

        assert store.commit(epoch, group) == [None] * 3


class TestRaw:
    def test_an_older_checkpoint_is_as_it_was(self, store):
        epoch = begun(store, "t")
        store.commit(epoch, [step("t", 1), step("t", 2), entry("t", 3)])
        image = store.load("t", 1)

        assert image.values == {"n": b"1"}
        assert image.checkpoint.seq == 1
        assert image.entries == ()
        assert image.next_seq == 4

    @pytest.mark.parametrize("seq", [1, 2, -1, 1 << 62])
    def test_what_is_no_checkpoint_is_none(self, store, seq):
        epoch = begun(store, "t")
        store.commit(epoch, [entry("t", 1)])

        assert store.load("t", seq) is None

    def test_a_checkpoint_of_no_thread_is_none(self, store):
        begun(store, "t")

        assert store.load("u", 0) is None


class TestThreads:
    def test_threads_come_by_status_and_then_by_id(self, store):
        epoch = begun(store)
        for name, status in (
            ("c", "running"),
            ("b", "complete"),
            ("a", "running"),
            ("d", "accepted"),
        ):
            store.commit(epoch, [step(name, 0, thread=thread_row(name, status))])

        assert [(row.status, row.thread_id) for row in store.threads()] == [
            ("accepted", "d"),
            ("running", "a"),
            ("running", "c"),
            ("complete", "b"),
        ]

    def test_only_the_wanted_statuses_come(self, store):
        epoch = begun(store, "r")
        store.commit(epoch, [step("f", 0, thread=thread_row("f", "failed"))])

        assert [row.thread_id for row in store.threads(statuses=["failed", "waiting"])] == ["f"]
        assert list(store.threads(statuses=[])) == []

    def test_a_thread_moves_in_the_index_with_its_row(self, store):
        epoch = begun(store, "t")
        store.commit(epoch, [step("t", 1, thread=thread_row("t", "waiting"))])
        store.commit(epoch, [step("t", 2, thread=thread_row("t", "complete"))])

        assert [row.status for row in store.threads()] == ["complete"]

    def test_a_new_owner_moves_threads_in_the_index_too(self, place, store):
        begun(store, "t")
        again = place.reopened(store)
        again.commit(again.acquire(), [step("t", 1, thread=thread_row("t", "failed"))])

        assert [row.status for row in again.threads()] == ["failed"]

    def test_a_row_with_the_same_status_stays_where_it_is(self, store):
        epoch = begun(store, "t")
        store.commit(epoch, [step("t", 1, thread=thread_row("t"))])

        assert [row.thread_id for row in store.threads(statuses=["running"])] == ["t"]

    def test_two_rows_of_one_group_leave_the_last_one(self, store):
        epoch = begun(store)
        rows = [thread_row("t", status) for status in ("accepted", "running", "failed")]
        store.commit(epoch, [step("t", seq, thread=row) for seq, row in enumerate(rows)])

        assert [row.status for row in store.threads()] == ["failed"]

    def test_paging_gives_each_thread_once(self, store):
        names = sorted(f"{number}-é" for number in range(23))
        begun(store, *names)
        seen, after = [], ""
        while page := list(store.threads(statuses=["running"], after=after, limit=5)):
            assert len(page) <= 5
            seen += [row.thread_id for row in page]
            after = seen[-1]

        assert seen == names

    def test_paging_goes_on_after_an_id_that_is_gone(self, store):
        begun(store, "a", "ab", "b")

        assert [row.thread_id for row in store.threads(statuses=["running"], after="aa")] == [
            "ab",
            "b",
        ]

    @pytest.mark.parametrize("limit", [0, 1, 2])
    def test_no_more_come_than_the_limit(self, store, limit):
        epoch = begun(store, "a", "b")
        store.commit(epoch, [step("f", 0, thread=thread_row("f", "failed"))])

        assert len(list(store.threads(limit=limit))) == limit

    def test_a_listing_is_of_one_moment(self, store):
        epoch = begun(store, "a", "b")
        listing = store.threads()
        store.delete_thread(epoch, "b")

        assert [row.thread_id for row in listing] == ["a", "b"]

    def test_a_line_tells_graph_and_run(self, store):
        begun(store, "t")
        [line] = store.threads()

        assert (line.graph, line.run) == ("g", thread_row().run)

    @pytest.mark.parametrize("statuses", [None, ["running", "failed"], []])
    def test_after_needs_exactly_one_status(self, store, statuses):
        with pytest.raises(InvalidCall, match="exactly one status"):
            store.threads(statuses=statuses, after="a")

    def test_an_unknown_status_is_refused(self, store):
        with pytest.raises(InvalidCall, match="runing"):
            store.threads(statuses=["runing"])


class TestDelete:
    def test_a_deleted_thread_is_gone_with_all_that_was_its(self, store):
        """Peers 46: thread deletion is complete."""
        epoch = begun(store)
        store.commit(
            epoch,
            [step("t", 0, run_names=(("r", 1),), run_ended=(1, 0), inbox_put=(message(1),))],
        )

        assert store.delete_thread(epoch, "t") is True
        assert store.load("t") is None
        assert store.load("t", 0) is None
        assert store.run_number("t", "r") is None
        assert store.run_end("t", 1) is None
        assert list(store.threads()) == []

    def test_deleting_what_is_not_there_is_false(self, store):
        epoch = begun(store, "t")

        assert store.delete_thread(epoch, "u") is False

    def test_a_deleted_thread_begins_again_at_0_and_empty(self, store):
        epoch = begun(store, "t")
        store.commit(epoch, [entry("t", 1, inbox_put=(message(1),))])
        store.delete_thread(epoch, "t")

        assert store.commit(epoch, [step("t", 0)]) == [None]
        assert store.load("t").inbox == ()
        assert store.load("t").next_seq == 1

    def test_a_deleted_thread_stays_deleted(self, place, store):
        epoch = begun(store, "t", "u")
        store.delete_thread(epoch, "t")
        again = place.reopened(store)

        assert [row.thread_id for row in again.threads()] == ["u"]


class TestOpening:
    def test_a_store_that_does_not_exist_reads_as_empty(self, store):
        assert store.load("t") is None
        assert store.run_number("t", "r") is None
        assert store.run_end("t", 1) is None
        assert store.run_of("t") is None
        assert list(store.threads()) == []

    def test_what_was_committed_is_there_when_the_store_is_opened_again(self, place, store):
        epoch = begun(store)
        store.commit(
            epoch,
            [step("t", 0, run_names=(("r", 1),), inbox_put=(message(1),)), entry("t", 1)],
        )
        before = store.load("t")
        again = place.reopened(store)

        assert again.load("t") == before
        assert again.run_number("t", "r") == 1

    def test_a_closed_store_opens_at_its_next_use(self, store):
        begun(store, "t")
        store.close()

        assert store.load("t") is not None
        assert store.acquire() == 2

    def test_closing_twice_is_closing_once(self, store):
        begun(store, "t")
        store.close()
        store.close()

        assert store.load("t") is not None

    def test_closing_gives_ownership_up(self, place, store):
        store.acquire()
        store.close()

        assert place.open().acquire() == 2

    def test_reading_needs_no_ownership(self, place, store):
        begun(store, "t")

        assert place.open().load("t") == store.load("t")

    def test_two_openings_of_one_place_have_one_identity(self, place, store):
        assert place.open().identity == store.identity

    @pytest.mark.parametrize("size", [0, 1, 4_000, 5_000_000])
    def test_values_of_any_size_come_back(self, place, store, size):
        value = bytes(range(256)) * (size // 256) + bytes(size % 256)
        epoch = begun(store)
        store.commit(epoch, [step("t", 0, writes={"big": value})])

        assert place.reopened(store).load("t").values["big"] == value
