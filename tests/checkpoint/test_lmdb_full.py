"""A disk that is full at the very page that names the newest transaction: LMDB ends its environment then."""

from __future__ import annotations

import errno
import fcntl
import os
from pathlib import Path

import lmdb
import pytest

from beamweaver import END, START, Graph, Runtime
from beamweaver.checkpoint import LMDBCheckpointer, _shared
from beamweaver.checkpoint._lmdb_kv import LmdbKv
from beamweaver.checkpoint._owner import lives
from beamweaver.errors import RuntimeFailed, RuntimeStopped, StoreBroken, StoreFull
from beamweaver.types import Invoke
from tests.checkpoint.anomalies import PAGES, Anomaly
from tests.checkpoint.kit import begun, step

FULL, OPEN = Path("/dev/full"), Path("/proc/self/fd")
only_there = pytest.mark.skipif(
    not (FULL.exists() and OPEN.exists()), reason="no device that is always full"
)
CURE = r"the disk is full .* Make room on the disk, then start again"


@pytest.fixture
def path(tmp_path):
    return tmp_path / "s"


def refuse_the_last_page(path):
    """From now on the disk is full for writes that are synced at once: LMDB writes only that page so."""
    for link in list(OPEN.iterdir()):
        if link.exists() and link.resolve() == path / "data.mdb":
            fd = int(link.name)
            if fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_DSYNC:
                full = os.open(FULL, os.O_RDWR)
                os.dup2(full, fd, inheritable=False)
                os.close(full)


@only_there
def test_the_commit_breaks_the_store_at_once_and_says_what_to_do(path):
    store = LMDBCheckpointer(path)
    epoch = begun(store, "t")
    refuse_the_last_page(path)
    with pytest.raises(StoreBroken, match=CURE):
        store.commit(epoch, [step("t", 1)])
    store.close()


@only_there
@pytest.mark.parametrize(
    "use",
    [
        lambda store, epoch: store.commit(epoch, [step("t", 1), step("u", 0)]),
        lambda store, epoch: store.delete_thread(epoch, "t"),
        lambda store, _epoch: store.load("t"),
    ],
    ids=["a commit", "a deletion", "a read"],
)
def test_whatever_comes_later_says_the_same(path, use):
    store = LMDBCheckpointer(path)
    epoch = begun(store, "t")
    refuse_the_last_page(path)
    with pytest.raises(StoreBroken):
        store.commit(epoch, [step("t", 1)])
    with pytest.raises(StoreBroken, match=CURE):
        use(store, epoch)
    store.close()


@only_there
def test_opened_anew_the_store_is_as_after_its_last_complete_commit(path):
    store = LMDBCheckpointer(path)
    epoch = begun(store, "t")
    refuse_the_last_page(path)
    with pytest.raises(StoreBroken):
        store.commit(epoch, [step("t", 1)])
    store.close()
    epoch = store.acquire()

    assert store.load("t").next_seq == 1
    assert store.commit(epoch, [step("t", 1)]) == [None]
    store.close()


@only_there
@pytest.mark.slow
def test_a_runtime_ends_with_the_cure_and_the_next_one_goes_on(path):
    graph = Graph(name="g").add_node("x", lambda state: {"n": state["n"] + 1})
    graph.add_node("full", lambda _state: refuse_the_last_page(path) if left.pop() else None)
    graph.add_edge(START, "full").add_edge("full", "x").add_edge("x", END)
    left, store = [False, True], LMDBCheckpointer(path)
    app = graph.compile(checkpointer=store)
    with pytest.raises(RuntimeFailed, match=CURE), Runtime(store, graphs=[app]) as runtime:
        with pytest.raises(RuntimeStopped):
            runtime.thread("t").ask(Invoke({"n": 1}))
    store.close()
    with app:
        assert app.invoke(None, thread_id="t").state == {"n": 2}
    store.close()


class Unreadable:
    """An environment that takes no more readers, which says nothing of the disk."""

    def begin(self):
        raise lmdb.ReadersFullError


@pytest.mark.parametrize("readers", [True, False])
def test_a_disk_that_is_full_elsewhere_is_no_more_than_full(path, monkeypatch, readers):
    path.mkdir()
    kv, full = LmdbKv(path, sync=False), StoreFull("no room")
    with monkeypatch.context() as patch:
        if not readers:
            patch.setattr(kv, "_env", Unreadable())
        assert kv.refused(full) is full
    kv.close()


@pytest.mark.parametrize("error", [StoreBroken("no disk"), StoreFull("no room")])
def test_who_could_not_finish_what_the_last_owner_began_owns_no_broken_store(
    path, monkeypatch, error
):
    def fail(*_args):
        raise error

    store = LMDBCheckpointer(path, survives="process-kill")
    broken = isinstance(error, StoreBroken)
    with monkeypatch.context() as patch:
        patch.setattr(_shared, "finish_jobs", fail)
        if broken:
            with pytest.raises(StoreBroken, match="no disk"):
                store.acquire()
        else:
            store.acquire()
    assert lives(path, 1) is not broken
    store.close()


@pytest.mark.slow
@pytest.mark.timeout(60)
@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EDQUOT])
@pytest.mark.parametrize("survives", ["power-loss", "process-kill"])
@pytest.mark.parametrize("name", ["commit", "group", "set_head", "delete_runs"])
def test_each_operation_that_meets_it_breaks_the_store_and_nothing_is_lost(
    bench, name, survives, error
):
    anomaly = Anomaly(bench, name, survives)
    last = [
        nth for nth, (_, offset, data) in enumerate(anomaly.calls, 1) if data and offset < PAGES
    ]
    assert last
    for nth in last:
        assert anomaly.fail(nth, error=error, for_ever=0) == ""
        assert anomaly.errors == ["store_broken"] * 2
