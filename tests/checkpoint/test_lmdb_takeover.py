"""Taking a store from an owner that lives: by waiting, or by force. Real processes, stopped and killed."""

from __future__ import annotations

import os
import signal
import threading

import pytest

from beamweaver.checkpoint import LMDBCheckpointer
from beamweaver.checkpoint._takeover import main
from beamweaver.checkpoint.verify import verify
from beamweaver.errors import StoreError, StoreOwned, TakeoverBlocked
from tests.checkpoint.children import child, own, own_and_stand_still
from tests.checkpoint.kit import begun, step


@pytest.fixture
def store(tmp_path):
    found = LMDBCheckpointer(tmp_path / "s", survives="process-kill")
    yield found
    found.close()


@pytest.mark.slow
def test_a_stopped_owner_loses_the_store_and_its_next_write_as_a_whole(tmp_path, store):
    """Peers 7, semantics 13: stopped, taken over by force, continued."""
    with child(own, tmp_path / "s") as (process, pipe):
        assert pipe.recv() == 1
        pipe.send("begin")
        assert pipe.recv() == [None]
        os.kill(process.pid, signal.SIGSTOP)
        with pytest.raises(StoreOwned):
            store.acquire()
        epoch = store.acquire(takeover="force")
        assert store.commit(epoch, [step("mine", 0)]) == [None]
        os.kill(process.pid, signal.SIGCONT)
        pipe.send("write all")

        assert epoch == 2
        assert pipe.recv() == "ownership_lost"
        assert store.load("child").next_seq == 1
        assert store.load("other") is None
        assert verify(tmp_path / "s").sound


@pytest.mark.slow
def test_an_owner_that_stands_still_in_a_write_blocks_a_takeover_and_is_named(tmp_path, store):
    store.takeover_seconds = 0.3
    with child(own_and_stand_still, tmp_path / "s") as (process, pipe):
        assert pipe.recv() == "put.after"
        with pytest.raises(TakeoverBlocked, match=f"kill -9 {process.pid}") as caught:
            store.acquire(takeover="force")

        assert caught.value.pid == process.pid
        process.kill()
        process.join()
        assert store.acquire() == 2
        assert store.load("t").next_seq == 1


@pytest.mark.slow
def test_a_takeover_that_was_blocked_leaves_the_owner_the_store(tmp_path, store):
    store.takeover_seconds = 0.3
    with child(own_and_stand_still, tmp_path / "s") as (process, pipe):
        pipe.recv()
        with pytest.raises(TakeoverBlocked):
            store.acquire(takeover="force")
        pipe.send("go on")
        process.join(10)

        assert process.exitcode == 0
        assert store.load("t").next_seq == 2


@pytest.mark.slow
def test_the_store_that_was_taken_by_force_is_owned_like_any_other(tmp_path, store):
    with child(own, tmp_path / "s") as (_process, pipe):
        pipe.recv()
        store.acquire(takeover="force")
        third = LMDBCheckpointer(tmp_path / "s", survives="process-kill")
        with pytest.raises(StoreOwned) as caught:
            third.acquire()

        assert caught.value.pid == os.getpid()
        third.close()
    assert [path.name for path in (tmp_path / "s").glob("owner.*")] == ["owner.2"]


def test_force_on_a_free_store_is_an_ordinary_acquire(store):
    assert store.acquire(takeover="force") == 1
    assert store.commit(1, [step("t", 0)]) == [None]


def test_an_owner_of_this_process_loses_the_store_by_force_too(tmp_path, store):
    old = begun(store, "t")
    other = LMDBCheckpointer(tmp_path / "s", survives="process-kill")
    epoch = other.acquire(takeover="force")

    assert epoch == old + 1
    with pytest.raises(StoreError):
        store.commit(old, [step("t", 1)])
    store.close()
    assert other.commit(epoch, [step("t", 1)]) == [None]
    other.close()


def test_who_waits_gets_the_store_of_an_owner_that_ends(tmp_path, store):
    with child(own, tmp_path / "s") as (_process, pipe):
        pipe.recv()
        tried = threading.Event()
        store.pause = lambda _seconds: tried.set() or threading.Event().wait(0.01)
        epochs = []
        waiter = threading.Thread(target=lambda: epochs.append(store.acquire(wait=15)))
        waiter.start()
        assert tried.wait(10)
        pipe.send("end")
        waiter.join(15)

    assert epochs == [2]


def test_a_child_whose_parent_died_does_not_take_the_store(tmp_path, store, capfd):
    begun(store, "t")
    store.close()
    main([str(tmp_path / "s"), "1", "1"])

    assert capfd.readouterr().out.split() == ["ready", "passed"]
    assert store.acquire() == 2


def test_a_takeover_whose_child_fails_says_what_it_said(tmp_path, store, monkeypatch):
    monkeypatch.setattr("beamweaver.checkpoint._takeover._CHILD", "raise SystemExit('no luck')")
    with child(own, tmp_path / "s") as (_process, pipe):
        pipe.recv()
        with pytest.raises(StoreError, match="no luck"):
            store.acquire(takeover="force")
