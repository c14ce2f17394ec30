"""The conformance suite, part three: faults. A group is in the store as a whole or not at all."""

from __future__ import annotations

import pytest

from beamweaver.checkpoint import LMDBCheckpointer
from beamweaver.checkpoint._lmdb_kv import LmdbTxn
from beamweaver.errors import StoreBroken, StoreError, StoreFull
from tests.checkpoint.kit import Boom, begun, codes, entry, failing_at, message, step, thread_row

BEFORE = [
    ("put.before", 1),
    ("put.before", 3),
    ("put.after", 1),
    ("put.after", 3),
    ("sync.before", 1),
]


def group():
    """Three commits of two threads, of every kind of write."""
    return [
        entry("a", 1, inbox_put=(message(1),)),
        step("a", 2, parent=0, clears=(1,), inbox_drop=(1,), thread=thread_row("a", "complete")),
        step("b", 0, run_names=(("r", 1),), run_ended=(1, 0)),
    ]


def test_the_points_come_in_their_order(store):
    epoch = begun(store, "a")
    seen = []
    store.faults = seen.append
    store.commit(epoch, [step("a", 1), step("a", 2)])

    assert seen == [*["put.before", "put.after"] * 2, "sync.before", "sync.after"]


def test_a_refused_commit_reaches_no_point(store):
    epoch = begun(store, "a")
    seen = []
    store.faults = seen.append
    store.commit(epoch, [step("a", 5)])
    store.commit(epoch, [step("a", 5), step("a", 6)])

    assert seen == []


@pytest.mark.parametrize(("point", "nth"), BEFORE)
def test_nothing_of_a_group_that_failed_before_its_end_is_in_the_store(place, store, point, nth):
    """Peers 2: either all or none of the step is visible."""
    epoch = begun(store, "a")
    before = store.load("a")
    store.faults = failing_at(point, nth)
    with pytest.raises(Boom):
        store.commit(epoch, group())
    again = place.reopened(store)

    assert again.load("a") == before
    assert again.load("b") is None
    assert again.run_number("b", "r") is None
    assert [row.status for row in again.threads()] == ["running"]


def test_all_of_a_group_that_failed_after_its_end_is_in_the_store(place, store):
    epoch = begun(store, "a")
    store.faults = failing_at("sync.after")
    with pytest.raises(Boom):
        store.commit(epoch, group())
    again = place.reopened(store)

    assert again.load("a").next_seq == 3
    assert again.load("a").inbox == ()
    assert again.run_end("b", 1) == 0


@pytest.mark.parametrize(("point", "nth"), [*BEFORE, ("sync.after", 1)])
def test_a_store_goes_on_after_a_fault(store, point, nth):
    epoch = begun(store, "a")
    store.faults = failing_at(point, nth)
    with pytest.raises(Boom):
        store.commit(epoch, group())
    next_seq = store.load("a").next_seq

    assert store.commit(epoch, [step("a", next_seq, parent=0)]) == [None]
    assert store.load("a").next_seq == next_seq + 1


@pytest.mark.parametrize(("point", "nth"), BEFORE)
def test_a_full_store_takes_nothing_and_goes_on_when_there_is_room(store, point, nth):
    epoch = begun(store, "a")
    store.faults = failing_at(point, nth, StoreFull("the disk is full"))
    with pytest.raises(StoreFull):
        store.commit(epoch, group())
    assert store.load("a").next_seq == 1

    assert store.commit(epoch, group()) == [None] * 3


@pytest.mark.parametrize(("point", "nth"), BEFORE)
def test_a_put_that_is_refused_once_is_made_again_alone(store, point, nth):
    epoch = begun(store, "a")
    store.faults = failing_at(point, nth, StoreError("refused"))

    assert store.commit(epoch, group()) == [None] * 3
    assert store.load("b") is not None


@pytest.mark.parametrize("point", ["put.before", "put.after", "sync.before"])
def test_a_commit_alone_that_is_refused_fails(store, point):
    epoch = begun(store, "a")
    store.faults = failing_at(point, 1, StoreError("refused"))

    assert codes(store.commit(epoch, [step("a", 1)])) == ["store_error"]
    assert store.load("a").next_seq == 1


@pytest.mark.parametrize("error", [Boom(), StoreError("late"), StoreFull("late")])
def test_what_goes_wrong_after_the_sync_leaves_the_group_in_the_store(store, error):
    epoch = begun(store, "a")
    store.faults = failing_at("sync.after", 1, error)
    with pytest.raises(type(error)):
        store.commit(epoch, group())

    assert store.load("a").next_seq == 3


@pytest.mark.parametrize("survives", ["power-loss", "process-kill"])
class TestRefusedPuts:
    """Only the culprit of a group fails; a memory store has no puts that could be refused."""

    @pytest.fixture
    def store(self, survives, tmp_path, monkeypatch):
        put = LmdbTxn.put

        def refusing(txn, key, value):
            if b"bad" in key:
                raise StoreError("this put is refused")
            put(txn, key, value)

        monkeypatch.setattr(LmdbTxn, "put", refusing)
        store = LMDBCheckpointer(tmp_path / "s", survives=survives)
        yield store
        store.close()

    def test_the_others_of_its_group_are_written(self, store):
        epoch = begun(store, "a")
        results = store.commit(epoch, [step("a", 1), step("bad", 0), step("b", 0), step("a", 2)])

        assert codes(results) == [None, "store_error", None, None]
        assert store.load("a").next_seq == 3
        assert store.load("b") is not None

    def test_the_culprit_leaves_no_trace(self, store):
        epoch = begun(store, "a")
        store.commit(epoch, [step("a", 1), step("bad", 0)])

        assert store.load("bad") is None
        assert [row.thread_id for row in store.threads()] == ["a"]

    def test_a_culprit_alone_fails_alone(self, store):
        assert codes(store.commit(begun(store), [step("bad", 0)])) == ["store_error"]

    def test_what_follows_the_culprit_in_its_thread_fails(self, store):
        epoch = begun(store, "a")
        results = store.commit(
            epoch,
            [step("a", 1, run_names=(("bad", 1),)), step("a", 2), step("b", 0)],
        )

        assert codes(results) == ["store_error", "store_conflict", None]


def test_a_broken_disk_ends_it(store):
    epoch = begun(store, "a")
    store.faults = failing_at("sync.before", 1, StoreBroken("the disk is gone"))
    with pytest.raises(StoreBroken):
        store.commit(epoch, [step("a", 1)])
    store.faults = lambda _point: None

    with pytest.raises(StoreBroken, match="the disk is gone"):
        store.commit(epoch, [step("a", 1)])
