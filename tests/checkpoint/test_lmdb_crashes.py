"""Processes that are killed, with real signals, while they write or take a store."""

from __future__ import annotations

import os
import signal

import pytest

from beamweaver.checkpoint import LMDBCheckpointer
from beamweaver.errors import StoreFull, StoreOwned
from tests.checkpoint.children import (
    child,
    die_in_acquire,
    die_in_group,
    die_reading,
    fill,
    killed,
    own,
    own_and_fork,
    own_and_stand_still,
)
from tests.checkpoint.kit import begun, step

POINTS = [
    ("put.before", 1),
    ("put.before", 3),
    ("put.after", 1),
    ("put.after", 3),
    ("sync.before", 1),
    ("sync.after", 1),
]
SURVIVES = ["power-loss", "process-kill"]


@pytest.mark.parametrize("survives", SURVIVES)
@pytest.mark.parametrize(("point", "nth"), POINTS)
def test_a_killed_process_leaves_all_or_nothing_of_its_group(tmp_path, survives, point, nth):
    """Peers 1, 2, 9: every listed thread can be loaded."""
    killed(die_in_group, tmp_path / "s", survives, point, nth)
    store = LMDBCheckpointer(tmp_path / "s", survives=survives)
    whole = point == "sync.after"

    assert store.load("a").next_seq == (3 if whole else 1)
    assert (store.load("b") is not None) is whole
    listed = [(row.thread_id, row.status) for row in store.threads()]
    assert listed == ([("b", "running"), ("a", "complete")] if whole else [("a", "running")])
    store.close()


@pytest.mark.parametrize("place", ["lock 1", "lock 2", "raised", "swept"])
def test_a_process_killed_while_it_takes_a_store_leaves_it_free(tmp_path, place):
    killed(die_in_acquire, tmp_path / "s", place)
    store = LMDBCheckpointer(tmp_path / "s", survives="process-kill")

    assert store.acquire() == (2 if place in ("raised", "swept") else 1)
    assert store.commit(store._shared.writer._epoch, [step("t", 0)]) == [None]
    store.close()


def test_the_store_of_a_killed_owner_is_free_at_once(tmp_path):
    with child(own, tmp_path / "s") as (process, pipe):
        assert pipe.recv() == 1
        pipe.send("begin")
        assert pipe.recv() == [None]
        process.kill()
        process.join()

    store = LMDBCheckpointer(tmp_path / "s", survives="process-kill")
    assert store.acquire() == 2
    assert store.load("child").next_seq == 1
    store.close()


def test_a_child_that_outlives_a_killed_owner_does_not_keep_the_lock(tmp_path):
    with child(own_and_fork, tmp_path / "s") as (process, pipe):
        assert pipe.recv() == process.pid
        process.kill()
        process.join()
        store = LMDBCheckpointer(tmp_path / "s", survives="process-kill")

        assert store.acquire() == 2
        store.close()


def test_an_owner_that_is_only_stopped_keeps_the_store(tmp_path):
    """Semantics 13: the lock of a living process is never broken by time."""
    with child(own, tmp_path / "s") as (process, pipe):
        pipe.recv()
        os.kill(process.pid, signal.SIGSTOP)
        with pytest.raises(StoreOwned) as caught:
            LMDBCheckpointer(tmp_path / "s", survives="process-kill").acquire()
        os.kill(process.pid, signal.SIGCONT)

        assert caught.value.pid == process.pid


def test_an_owner_that_stands_still_in_a_write_makes_nobody_wait(tmp_path):
    """Semantics 13: who is not the owner never writes, so never waits for one."""
    with child(own_and_stand_still, tmp_path / "s") as (process, pipe):
        assert pipe.recv() == "put.after"
        store = LMDBCheckpointer(tmp_path / "s", survives="process-kill")
        assert store.load("t").next_seq == 1
        with pytest.raises(StoreOwned) as caught:
            store.acquire()

        assert caught.value.pid == process.pid
        process.kill()
        process.join()
        assert store.acquire() == 2
        assert store.load("t").next_seq == 1
        store.close()


def test_a_reader_that_was_killed_does_not_keep_old_pages_for_ever(tmp_path, monkeypatch):
    monkeypatch.setattr("beamweaver.checkpoint._lmdb_kv._WRITES_A_CHECK", 2)
    store = LMDBCheckpointer(tmp_path / "s", survives="process-kill")
    epoch = begun(store, "t")
    killed(die_reading, tmp_path / "s")
    before = store._shared._kv._env.readers()
    store.commit(epoch, [step("t", 1)])
    store.commit(epoch, [step("t", 2)])
    after = store._shared._kv._env.readers()
    store.close()

    assert before.count("\n") > after.count("\n") or "no active readers" in after


def test_a_disk_without_room_is_a_full_store_that_goes_on_when_there_is_room(tmp_path):
    with child(fill, tmp_path / "s", 1 << 20) as (_process, pipe):
        error, kept, after = pipe.recv()

    assert isinstance(error, StoreFull)
    assert kept
    assert after == [None]
