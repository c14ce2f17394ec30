"""The rules of a store hold on any ordered key-value engine, here a dict."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from beamweaver.checkpoint._meta import read_epoch
from beamweaver.checkpoint._prune import CHUNK
from beamweaver.checkpoint._reads import read_image, read_threads
from beamweaver.checkpoint._retention import copy, delete
from beamweaver.checkpoint.base import no_faults
from beamweaver.checkpoint.store import RecordWriter
from beamweaver.errors import OwnershipLost, StoreFull
from tests.checkpoint.kit import codes, message, step


class DictTxn:
    """A transaction on a copy of the pairs."""

    def __init__(self, kv):
        self.kv = kv
        self.pairs = dict(kv.pairs)

    def get(self, key):
        return self.pairs.get(key)

    def put(self, key, value):
        if len(self.pairs) >= self.kv.room:
            raise StoreFull("no room")
        self.pairs[key] = value

    def delete(self, key):
        return self.pairs.pop(key, None) is not None

    def range(self, start, stop):
        yield from sorted(pair for pair in self.pairs.items() if start <= pair[0] < stop)

    def back(self, start, stop):
        yield from reversed(list(self.range(start, stop)))

    def keys(self, start, stop):
        yield from (key for key, _ in self.range(start, stop))

    def last(self, start, stop):
        return max((key for key in self.pairs if start <= key < stop), default=None)

    def used(self):
        return sum(map(len, self.pairs.values()))

    def commit(self):
        self.kv.pairs = self.pairs
        interruption, self.kv.interruption = self.kv.interruption, None
        if interruption is not None:
            raise interruption

    def abort(self):
        pass


class DictKv:
    def __init__(self):
        self.pairs = {}
        self.room = 10_000
        self.interruption = None

    def begin(self, *, write):
        return DictTxn(self)

    def sync(self):
        pass

    def close(self):
        pass


@pytest.fixture
def kv():
    return DictKv()


@pytest.fixture
def writer(kv):
    found = RecordWriter(kv, "a dict")
    found.initialise()
    assert found.raise_epoch(0)
    return found


def test_a_group_is_written_and_read(kv, writer):
    results = writer.commit(
        1, [step("a", 0, inbox_put=(message(1),)), step("a", 5), step("b", 0)], no_faults
    )

    assert codes(results) == [None, "store_conflict", None]
    assert read_image(kv.begin(write=False), "a", None).inbox == (message(1),)
    assert [row.thread_id for row in read_threads(kv.begin(write=False), None, "", 9)] == ["a", "b"]


@pytest.mark.parametrize("options", [{}, {"max_bytes": 1 << 30}], ids=["alone", "judged"])
def test_commits_one_by_one_leave_the_same_bytes_as_a_group(kv, writer, options):
    commits = [step("a", 0), *[step("a", n, parent=n - 1) for n in range(1, 5)]]
    assert writer.commit(1, commits, no_faults) == [None] * 5
    other = DictKv()
    single = RecordWriter(other, "another dict", **options)
    single.initialise()
    assert single.raise_epoch(0)
    assert [single.commit(1, [commit], no_faults) for commit in commits] == [[None]] * 5

    assert other.pairs == kv.pairs


def test_a_commit_alone_reaches_the_points_of_a_group(writer):
    writer.commit(1, [step("a", 0)], no_faults)
    points = []
    assert writer.commit(1, [step("a", 1, parent=0)], points.append) == [None]

    assert points == ["put.before", "put.after", "sync.before", "sync.after"]


def test_an_error_of_the_fault_hook_passes_through_a_commit_alone(writer):
    def fault(_point):
        raise ValueError("mine")

    writer.commit(1, [step("a", 0)], no_faults)
    with pytest.raises(ValueError, match="mine"):
        writer.commit(1, [step("a", 1, parent=0)], fault)
    assert writer.commit(1, [step("a", 1, parent=0)], no_faults) == [None]


def test_what_an_interrupted_commit_alone_has_written_is_not_written_over(kv, writer):
    writer.commit(1, [step("a", 0)], no_faults)
    kv.interruption = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        writer.commit(1, [step("a", 1, parent=0)], no_faults)
    other = step("a", 1, parent=0, writes={"n": b"\x07"})

    assert codes(writer.commit(1, [other], no_faults)) == ["store_conflict"]


def test_a_first_record_without_a_row_is_refused_each_time(writer):
    first = replace(step("a", 0), thread=None)
    refusals = [writer.commit(1, [first], no_faults) for _ in range(2)]

    assert [codes(refusal) for refusal in refusals] == [["store_error"]] * 2


def test_who_lost_the_store_hears_that_also_of_a_record_that_cannot_be_stored(kv, writer):
    writer.commit(1, [step("a", 0)], no_faults)
    commit = step("a", 1, parent=0)
    commit = replace(commit, record=replace(commit.record, at_us=object()))
    assert RecordWriter(kv, "the same dict").raise_epoch(1)

    with pytest.raises(OwnershipLost):
        writer.commit(1, [commit], no_faults)


def test_an_engine_without_room_keeps_nothing_of_a_group(kv, writer):
    kv.room = len(kv.pairs) + 4
    with pytest.raises(StoreFull):
        writer.commit(1, [step("a", 0), step("b", 0)], no_faults)

    assert read_image(kv.begin(write=False), "a", None) is None
    kv.room = 10_000
    assert writer.commit(1, [step("a", 0), step("b", 0)], no_faults) == [None, None]


def test_of_two_writers_the_one_of_the_older_epoch_is_refused(kv, writer):
    other = RecordWriter(kv, "a dict")

    assert other.raise_epoch(0) is False
    assert other.raise_epoch(1) is True
    assert read_epoch(kv.begin(write=False)) == 2
    with pytest.raises(OwnershipLost):
        writer.commit(1, [step("a", 0)], no_faults)


def test_a_deleted_thread_leaves_no_key(kv, writer):
    before = dict(kv.pairs)
    writer.commit(
        1,
        [step("a", 0, inbox_put=(message(1),), run_names=(("r", 1),), run_ended=(1, 0))],
        no_faults,
    )

    assert delete(writer, 1, "a") is True
    assert kv.pairs == before


def begun_and_cut_off(kv, writer, monkeypatch):
    """A deletion of the long thread `a` that fails between two of its transactions."""
    writer.commit(1, [step("a", 0), step("b", 0)], no_faults)
    for seq in range(1, CHUNK + 9):
        writer.commit(1, [step("a", seq)], no_faults)
    left = [1]
    commit = DictTxn.commit

    def full(txn):
        if not left:
            raise StoreFull("no room")
        left.pop()
        commit(txn)

    with monkeypatch.context() as patch:
        patch.setattr(DictTxn, "commit", full)
        with pytest.raises(StoreFull):
            delete(writer, 1, "a")


def test_a_deletion_that_was_cut_off_is_finished_by_the_next_one(kv, writer, monkeypatch):
    begun_and_cut_off(kv, writer, monkeypatch)

    assert delete(writer, 1, "a") is True
    assert delete(writer, 1, "a") is False
    assert writer.commit(1, [step("a", 0)], no_faults) == [None]


def test_a_copy_holds_nothing_of_a_thread_whose_deletion_was_cut_off(kv, writer, monkeypatch):
    begun_and_cut_off(kv, writer, monkeypatch)

    assert copy(writer, 1, "b", "a") is True
    assert read_image(kv.begin(write=False), "a", None).next_seq == 1
