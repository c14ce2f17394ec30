"""A store's folder is replaced or removed while the process has it open."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from beamweaver import END, START, Graph, Runtime
from beamweaver.checkpoint import LMDBCheckpointer
from beamweaver.checkpoint.verify import verify
from beamweaver.errors import RuntimeStopped, StoreUnavailable
from supervisors.testing import eventually


def store_of(path, **options):
    return LMDBCheckpointer(path, survives="process-kill", **options)


def counting(store):
    graph = Graph(name="g").add_node("x", lambda state: {"n": state["n"]})
    return graph.add_edge(START, "x").add_edge("x", END).compile(checkpointer=store)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "s"


@pytest.fixture
def left(path):
    """A checkpointer that was used, released and not closed; the path holds the backup of an older moment."""
    store = store_of(path)
    with counting(store) as app:
        app.invoke({"n": 1}, thread_id="t")
    shutil.copytree(path, f"{path}.bak")
    with app:
        app.invoke({"n": 2}, thread_id="t")
    yield store
    store.close()


def restore(path):
    shutil.rmtree(path)
    shutil.copytree(f"{path}.bak", path)


def remove(path):
    shutil.rmtree(path)


def empty(path):
    shutil.rmtree(path)
    path.mkdir()


def put_in_place(path):
    """Only the data file is another one."""
    Path(f"{path}.bak/data.mdb").replace(path / "data.mdb")


def value(store, thread_id="t"):
    state = counting(store).get_state(thread_id)
    return None if state is None else state.values["n"]


CHANGES = [(restore, 1), (put_in_place, 1), (remove, None), (empty, None)]


@pytest.mark.parametrize(("change", "expected"), CHANGES)
class TestNobodyOwnsIt:
    def test_a_new_checkpointer_reads_what_is_there(self, path, left, change, expected):
        change(path)
        other = store_of(path)
        assert value(other) == expected
        other.close()

    def test_the_old_checkpointer_reads_what_is_there(self, path, left, change, expected):
        change(path)
        assert value(left) == expected

    @pytest.mark.parametrize("old", [True, False])
    def test_an_acknowledged_run_is_at_the_path(self, path, left, change, expected, old):
        change(path)
        store = left if old else store_of(path)
        with counting(store) as app:
            app.invoke({"n": 3}, thread_id="new")
        store.close()
        left.close()  # the last reference: whoever reads now opens the files anew
        after = store_of(path)
        assert (value(after), value(after, "new")) == (expected, 3)
        after.close()


def test_other_options_are_no_fault_for_a_store_that_was_replaced(path, left):
    restore(path)
    other = store_of(path, shallow=True)
    assert value(other) == 1
    other.close()


def test_a_store_that_was_replaced_is_verified_as_it_is(path, left):
    restore(path)
    assert verify(path).damages == ()


def test_a_checkpointer_that_was_replaced_closes_without_harm_to_its_successor(path, left):
    restore(path)
    other = store_of(path)
    assert value(other) == 1
    left.close()
    assert value(other) == 1
    other.close()


class TestSomebodyOwnsIt:
    @pytest.mark.parametrize("use", [lambda store: store.load("t"), lambda store: store.acquire()])
    def test_others_are_told_that_the_files_were_replaced(self, path, left, use):
        left.acquire()
        restore(path)
        other = store_of(path)
        with pytest.raises(StoreUnavailable, match=r"replaced while this process .*\.close\(\)"):
            use(other)
        left.release()
        assert value(other) == 1
        other.close()

    def test_a_takeover_of_replaced_files_is_refused(self, path, left):
        other = store_of(path)
        assert other.load("t") is not None
        left.acquire()
        restore(path)
        with pytest.raises(StoreUnavailable, match="replaced while this process"):
            other.acquire(takeover="force")
        other.close()


@pytest.mark.parametrize("change", [restore, put_in_place, remove, empty])
class TestARuntimeOwnsIt:
    def test_it_ends_and_says_why(self, path, left, change):
        runtime = Runtime(left, graphs=[counting(left)]).start()
        change(path)
        eventually(lambda: runtime.failure is not None)
        with pytest.raises(RuntimeStopped):
            runtime.thread("t")
        assert "its files were removed or replaced" in str(runtime.failure)
        assert isinstance(runtime.failure.__cause__, StoreUnavailable)
        runtime.close()

    def test_the_next_call_of_a_graph_opens_what_is_there(self, path, left, change):
        with counting(left) as app:
            app.invoke({"n": 5}, thread_id="lost")
            change(path)
            eventually(lambda: app._core.closed)
            assert app.invoke({"n": 6}, thread_id="new").state == {"n": 6}
            assert app.get_state("lost") is None
        assert verify(path).sound


def test_files_that_cannot_be_looked_at_are_not_lost(left, monkeypatch):
    """As where the rights of a folder above were changed: what is open is still what is there."""
    kv = left._opened()._kv
    monkeypatch.setattr(kv, "path", Path("x" * 5_000))
    assert not kv.lost()
    monkeypatch.setattr(kv, "path", Path(__file__))
    assert kv.lost()


def test_a_folder_that_goes_while_it_is_taken_is_said_to_be_gone(path, left, monkeypatch):
    shared = left._opened()
    monkeypatch.setattr(shared, "_check_place", lambda: shutil.rmtree(path))
    with pytest.raises(StoreUnavailable, match=r"No such file.*Bring the folder back"):
        shared.acquire(object(), 0.0)


def test_files_replaced_during_a_call_are_refused_until_it_ends(path, left):
    shared = left._opened()
    with shared.busy():
        restore(path)
        with pytest.raises(StoreUnavailable, match="replaced while this process"):
            left.load("t")
    assert value(left) == 1
