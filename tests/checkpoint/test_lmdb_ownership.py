"""One owner at a time, over all processes; anybody may read."""

from __future__ import annotations

import contextlib
import gc
import json
import os
import threading

import pytest

from beamweaver.checkpoint import LMDBCheckpointer
from beamweaver.checkpoint.base import no_faults
from beamweaver.errors import OwnershipLost, StoreOptionsDiffer, StoreOwned, StoreUnavailable
from tests.checkpoint.children import (
    child,
    fork_and_use,
    fork_during_a_commit,
    fork_while_busy,
    own,
    race,
    raise_epoch,
    read,
)
from tests.checkpoint.kit import begun, step


@pytest.fixture
def path(tmp_path):
    return tmp_path / "s"


@pytest.fixture
def store(path):
    found = LMDBCheckpointer(path, survives="process-kill")
    yield found
    found.close()


def test_a_store_owned_by_another_process_is_refused_and_names_it(path, store):
    with child(own, path) as (process, pipe):
        pipe.recv()
        with pytest.raises(StoreOwned) as caught:
            store.acquire()

    assert caught.value.pid == process.pid
    assert str(process.pid) in str(caught.value)
    assert "Close that runtime" in str(caught.value)


def test_a_store_that_its_owner_closed_is_free(path, store):
    with child(own, path) as (process, pipe):
        pipe.recv()
        pipe.send("end")
        process.join(10)

        assert store.acquire() == 2


@pytest.mark.slow
@pytest.mark.parametrize("rounds", [3])
def test_of_starters_that_race_exactly_one_owns(path, rounds):
    epochs = []
    for _ in range(rounds):
        with contextlib.ExitStack() as stack:
            racers = [stack.enter_context(child(race, path)) for _ in range(4)]
            for _process, pipe in racers:
                assert pipe.recv() == "ready"
            for _process, pipe in racers:
                pipe.send("go")
            results = [pipe.recv() for _process, pipe in racers]
            owners = [epoch for what, epoch in results if what == "owner"]
            assert len(owners) == 1, results
            epochs += owners

    assert epochs == sorted(set(epochs))


def test_another_process_reads_what_is_committed(path, store):
    epoch = begun(store, "t")
    with child(read, path, "t") as (_process, pipe):
        pipe.send("again")
        assert pipe.recv() == 1
        store.commit(epoch, [step("t", 1)])
        pipe.send("again")
        assert pipe.recv() == 2


def test_a_reader_of_a_store_that_is_made_later_finds_it(path, store):
    with child(read, path, "t") as (_process, pipe):
        pipe.send("again")
        assert pipe.recv() is None
        begun(store, "t")
        pipe.send("again")
        assert pipe.recv() == 1


def test_reading_makes_no_store(path, store):
    store.load("t")
    list(store.threads())

    assert not path.exists()


def test_the_write_of_an_owner_whose_epoch_was_raised_is_refused_as_a_whole(path, store):
    """Peers 7: a stale owner's write is rejected, the history is linear."""
    epoch = begun(store, "t")
    with child(raise_epoch, path) as (_process, pipe):
        assert pipe.recv() is True
    with pytest.raises(OwnershipLost, match="another owner took the store"):
        store.commit(epoch, [step("t", 1), step("u", 0)])

    assert store.load("t").next_seq == 1
    assert store.load("u") is None


def test_a_forked_child_reads_and_owns_nothing(path):
    with child(fork_and_use, path) as (_process, pipe):
        assert pipe.recv() == (1, "ownership_lost")
        assert pipe.recv() == ([None], 2)


def test_a_child_forked_during_a_call_is_told_so_and_harms_nobody(path):
    with child(fork_while_busy, path) as (_process, pipe):
        assert "forkserver" in pipe.recv()
        assert pipe.recv() == [None]


def test_a_child_forked_during_a_commit_is_told_so_on_any_of_its_threads(path):
    with child(fork_during_a_commit, path) as (_process, pipe):
        assert ["forkserver" in said for said in pipe.recv()] == [True]
        assert pipe.recv() == [None]


def test_the_file_of_the_owner_tells_who_it_is(path, store):
    epoch = store.acquire()
    told = json.loads((path / f"owner.{epoch}").read_bytes())

    assert told["pid"] == os.getpid()
    assert set(told) == {"pid", "host", "since"}


def test_files_of_past_owners_do_not_pile_up(path, store):
    for _ in range(5):
        store.acquire()
        store.release()

    assert len(list(path.glob("owner.*"))) == 1


def test_an_owner_is_refused_in_its_own_process_under_any_spelling_of_the_path(
    path, store, monkeypatch
):
    store.acquire()
    (path.parent / "link").symlink_to(path)
    monkeypatch.chdir(path.parent)
    for spelling in ("s", "./s/", path.parent / "link", str(path)):
        other = LMDBCheckpointer(spelling, survives="process-kill")
        assert other.identity == store.identity
        with pytest.raises(StoreOwned, match="this one"):
            other.acquire()
        other.close()


def test_release_by_another_checkpointer_takes_nothing(path, store):
    epoch = begun(store, "t")
    LMDBCheckpointer(path, survives="process-kill").release()
    other = LMDBCheckpointer(path, survives="process-kill")
    other.load("t")
    other.close()

    assert store.commit(epoch, [step("t", 1)]) == [None]


@pytest.mark.parametrize("options", [{"survives": "power-loss"}, {"max_bytes": 1 << 30}])
def test_one_path_has_one_set_of_options_in_a_process(path, store, options):
    store.acquire()
    with pytest.raises(StoreOptionsDiffer, match="Give the same options"):
        LMDBCheckpointer(path, **({"survives": "process-kill"} | options))


def test_options_that_differ_are_found_at_first_use_too(path, store):
    other = LMDBCheckpointer(path, survives="power-loss")
    store.acquire()
    with pytest.raises(StoreOptionsDiffer):
        other.load("t")


def test_other_options_are_fine_when_nobody_has_it_open(path, store):
    store.acquire()
    store.close()
    other = LMDBCheckpointer(path, survives="power-loss")

    assert other.acquire() == 2
    other.close()


def test_a_forgotten_checkpointer_gives_the_store_back(path):
    forgotten = LMDBCheckpointer(path, survives="process-kill")
    forgotten.acquire()
    del forgotten
    gc.collect()
    store = LMDBCheckpointer(path, survives="power-loss")

    assert store.acquire() == 2
    store.close()


@pytest.mark.slow
def test_many_forgotten_stores_do_not_use_up_the_address_space(tmp_path):
    for number in range(200):
        LMDBCheckpointer(tmp_path / f"s{number}", survives="process-kill").acquire()
    gc.collect()

    store = LMDBCheckpointer(tmp_path / "last", survives="process-kill")
    assert store.acquire() == 1
    store.close()


def test_reads_from_many_workers_see_whole_groups(path, store):
    epoch = begun(store, "a", "b")
    torn, stop = [], threading.Event()

    def reading():
        while not stop.is_set():
            a, b = store.load("a").next_seq, store.load("b").next_seq
            if b < a:  # a was read first, so b is never behind it
                torn.append((a, b))

    workers = [threading.Thread(target=reading) for _ in range(3)]
    for worker in workers:
        worker.start()
    for seq in range(1, 100):
        store.commit(epoch, [step("a", seq), step("b", seq)])
    stop.set()
    for worker in workers:
        worker.join()

    assert torn == []


def test_closing_waits_for_reads_that_run(path, store):
    begun(store, "t")
    reader = LMDBCheckpointer(path, survives="process-kill")
    shared = reader._attached(create=False)
    shared.enter()
    closed = threading.Event()

    def closing():
        store.close()
        reader.close()
        closed.set()

    worker = threading.Thread(target=closing)
    worker.start()
    txn = shared._kv.begin(write=False)
    assert txn.get(b"\x00epoch") is not None
    assert not closed.is_set()
    txn.abort()
    shared.leave()
    worker.join(10)

    assert closed.is_set()


def test_closing_waits_for_a_commit_that_runs(path, store):
    epoch = begun(store, "t")
    shared = store._attached(create=False)
    reached, go_on = threading.Event(), threading.Event()
    found = []

    def pause(point):
        if point == "sync.before":
            reached.set()
            go_on.wait(10)

    def writing():
        found.extend(shared.writer.commit(epoch, [step("t", 1)], pause))

    writer = threading.Thread(target=writing)
    writer.start()
    assert reached.wait(10)
    assert shared.writer.busy
    closer = threading.Thread(target=store.close)
    closer.start()
    go_on.set()
    writer.join(10)
    closer.join(10)

    assert found == [None]
    again = LMDBCheckpointer(path, survives="process-kill")
    assert again.load("t").next_seq == 2
    again.close()


def test_a_commit_after_the_close_says_so(store):
    epoch = begun(store, "t")
    shared = store._attached(create=False)
    store.close()

    with pytest.raises(StoreUnavailable, match="it was closed during the call"):
        shared.writer.commit(epoch, [step("t", 1)], no_faults)
