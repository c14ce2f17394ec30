"""A checkpointer that nobody holds any more is found by the garbage collector, amid anything."""

from __future__ import annotations

import gc
import threading

import pytest

from beamweaver.checkpoint import LMDBCheckpointer, _registry
from beamweaver.checkpoint._owner import lives
from supervisors.testing import eventually
from tests.checkpoint.kit import begun, step


@pytest.fixture
def path(tmp_path):
    return tmp_path / "s"


def opened(path, **options):
    return LMDBCheckpointer(path, survives="process-kill", **options)


def in_a_cycle(path):
    """One that has read, and that only the collector frees."""
    found = opened(path)
    found.load("t")
    found.itself = found
    return [found]


def in_a_cycle_that_owns(path):
    found = in_a_cycle(path)
    found[0].acquire()
    return found


def forget_an_owner(path):
    opened(path).acquire()


@pytest.fixture
def no_threads(monkeypatch):
    """No OS thread can be started."""

    def refuse(*_args):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(_registry, "start_new_thread", refuse)


def test_one_that_is_collected_inside_of_a_commit_does_not_wait_for_a_close(path, monkeypatch):
    """The close waits for that commit, and holds what a close needs."""
    store = opened(path)
    epoch = begun(store, "t")
    writer, forgotten = store._shared.writer, in_a_cycle(path)
    committing, closing, found = threading.Event(), threading.Event(), []
    disown = writer.disown

    def announced():
        closing.set()
        disown()

    def collect(point):
        if point == "sync.before":
            committing.set()
            assert closing.wait(10)
            forgotten.clear()
            gc.collect()

    def close():
        assert committing.wait(10)
        store.close()

    def commit():
        found.extend(writer.commit(epoch, [step("t", 1)], collect))

    monkeypatch.setattr(writer, "disown", announced)
    workers = [threading.Thread(target=call, daemon=True) for call in (commit, close)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(10)

    assert [worker.is_alive() for worker in workers] == [False, False]
    assert found == [None]


def test_one_that_is_collected_while_another_is_closed_is_given_back_after_it(
    tmp_path, monkeypatch
):
    """On the thread that closes, in the middle of it."""
    store, forgotten = opened(tmp_path / "a"), in_a_cycle_that_owns(tmp_path / "b")
    store.acquire()
    shut = store._shared.shut

    def collecting():
        forgotten.clear()
        gc.collect()
        assert lives(tmp_path / "b", 1)
        shut()

    monkeypatch.setattr(store._shared, "shut", collecting)
    store.close()
    eventually(lambda: not lives(tmp_path / "b", 1))


def test_a_forgotten_owner_gives_the_store_up_though_nobody_here_opens_one(path):
    forget_an_owner(path)
    eventually(lambda: not lives(path, 1) and not _registry._registry.forgotten)


@pytest.mark.parametrize(
    "use",
    [
        lambda path: LMDBCheckpointer(path, survives="power-loss").acquire(),
        lambda path: opened(path).acquire(),
    ],
    ids=["with other options", "with the same"],
)
def test_without_a_thread_the_next_checkpointer_gives_back_what_was_forgotten(
    path, no_threads, use
):
    forget_an_owner(path)
    assert lives(path, 1)
    assert use(path) == 2


def test_one_that_is_there_already_can_own_what_a_forgotten_one_owned(path, no_threads):
    other = opened(path)
    other.load("t")
    forget_an_owner(path)
    assert other.acquire() == 2
    other.close()


def test_two_that_are_forgotten_one_after_the_other_are_both_given_back(tmp_path, monkeypatch):
    """There may be a thread that is about to be done with the first."""
    started = []
    monkeypatch.setattr(_registry, "start_new_thread", lambda call, _args: started.append(call))
    stores = [opened(tmp_path / name) for name in "ab"]
    for store in stores:
        store.acquire()
    del store
    stores.clear()
    assert len(started) == 1
    started[0]()
    assert [lives(tmp_path / name, 1) for name in "ab"] == [False, False]


def test_at_the_end_of_the_process_an_open_store_is_synced_and_given_up(path, monkeypatch):
    store = opened(path)
    store.acquire()
    synced = []
    monkeypatch.setattr(store._shared._kv, "sync", lambda: synced.append(True))
    registry = _registry._Registry()
    registry.open[str(path)] = store._shared
    registry.at_exit()
    assert (synced, lives(path, 1)) == ([True], False)
    store.close()
