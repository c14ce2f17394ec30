"""Stores that earlier versions wrote open for ever. A new format gets a new folder beside the others.

The stores of formats 1 and 2, and the one with an entry of each kind, were written by
`python -m tests.checkpoint.test_kept_stores`, which writes those that are not there.
"""

from __future__ import annotations

import gzip
import json
import sys
import tempfile
import typing
from pathlib import Path

import msgspec
import pytest

from beamweaver.checkpoint import LMDBCheckpointer
from beamweaver.checkpoint._layout import ASLEEP, DUE, FORMAT_VERSION, META, seal, tail
from beamweaver.checkpoint._upgrade import _Filling
from beamweaver.checkpoint.conformance._values import EVERY
from beamweaver.checkpoint.entries import Entry
from beamweaver.checkpoint.verify import verify
from beamweaver.errors import StoreFull
from tests.checkpoint.full_store import CODEC, ENTRIES, KINDS, fill, fill_kinds, full
from tests.checkpoint.kit import run_row, step, thread_row

DATA = Path(__file__).parents[1] / "data"
FORMATS = range(1, FORMAT_VERSION + 1)
KINDS_FOLDER = "store-format-2-entries"


@pytest.fixture(params=FORMATS, ids=lambda number: f"format {number}")
def path(request, tmp_path):
    """A copy of the store that was kept of a format."""
    (tmp_path / "s").mkdir()
    kept = DATA / f"store-format-{request.param}" / "data.mdb.gz"
    (tmp_path / "s" / "data.mdb").write_bytes(gzip.decompress(kept.read_bytes()))
    return tmp_path / "s"


@pytest.fixture
def store(path):
    found = LMDBCheckpointer(path, survives="process-kill")
    yield found
    found.close()


def told(store):
    """All that a store tells, as text."""
    threads = list(store.threads())
    return {
        "threads": [repr(row) for row in threads],
        "heads": {row.thread_id: repr(store.load(row.thread_id)) for row in threads},
        "histories": {
            row.thread_id: [repr(image) for image in store.history(row.thread_id)]
            for row in threads
        },
        "inbox": list(store.inbox_threads()),
        "sleepers": [repr(row) for row in store.sleepers()],
        "runs": [store.run_number("every", name) for name in ("r", "alias", "unknown")],
        "ends": [store.run_end("every", number) for number in (1, 2)],
    }


def test_it_is_sound(path):
    assert verify(path).sound


def test_every_value_comes_back(store):
    values = store.load("every").values

    assert {name: repr(CODEC.decode(data)) for name, data in values.items() if name in EVERY} == {
        name: repr(value) for name, value in EVERY.items()
    }


def test_a_moved_head_has_its_entries_and_its_deltas(store):
    image = store.load("log")

    assert image.checkpoint.seq == 79
    assert image.entries[0].entries == ENTRIES
    assert CODEC.decode(image.values["log"]) == list(range(80))
    assert [CODEC.decode(i.values["log"])[-1] for i in store.history("log", limit=3)] == [
        40,
        79,
        78,
    ]


def test_a_pruned_thread_has_what_its_head_needs(store):
    assert store.load("pruned").values == store.load("log").values


def test_a_compressed_record_is_read(store):
    assert CODEC.decode(store.load("large").values["text"]) == "text " * 3_000


def test_it_is_owned_and_goes_on(store):
    epoch = store.acquire()

    assert epoch == 2
    assert store.commit(epoch, [step("every", 2)]) == [None]


def test_it_tells_the_same_as_a_store_that_is_written_now(store, tmp_path, request):
    version = request.node.callspec.params["path"]
    fresh = LMDBCheckpointer(full(tmp_path / "fresh", version), survives="process-kill")
    try:
        assert json.dumps(told(store)) == json.dumps(told(fresh))
    finally:
        fresh.close()


def test_an_entry_of_each_kind_is_read_for_ever(tmp_path):
    (tmp_path / "s").mkdir()
    data = gzip.decompress((DATA / KINDS_FOLDER / "data.mdb.gz").read_bytes())
    (tmp_path / "s" / "data.mdb").write_bytes(data)
    store = LMDBCheckpointer(tmp_path / "s", survives="process-kill")
    try:
        assert store.load("kinds").entries[0].entries == KINDS
        assert store.message_key("kinds", "told once").id == "m1"
        assert verify(tmp_path / "s").sound
    finally:
        store.close()


def test_the_kept_entries_are_of_all_kinds():
    """A new kind of entry needs a kept store with one of it: another folder, beside this one."""
    kinds = set(typing.get_args(Entry))

    assert {type(entry) for entry in KINDS} == kinds


class TestOlderFormats:
    """A store of format 1 has no index of due times; its owner makes one."""

    @pytest.fixture
    def asleep(self, tmp_path):
        """A store of format 1 in which threads sleep."""
        store = LMDBCheckpointer(tmp_path / "s", survives="process-kill")
        epoch = store.acquire()
        rows = [
            thread_row(f"t{n:04}", "sleeping", run=run_row(due_us=5_000 - n, delay=0.001))
            for n in range(2_500)
        ]
        store.commit(epoch, [step(row.thread_id, 0, thread=row) for row in rows])
        make_old(store, epoch)
        store.close()
        return tmp_path / "s"

    def test_what_sleeps_is_found_before_and_after_an_owner_came(self, asleep):
        store = LMDBCheckpointer(asleep, survives="process-kill")
        before = [row.thread_id for row in store.sleepers(limit=10_000)]
        assert before == [f"t{n:04}" for n in range(2_499, -1, -1)]
        assert verify(asleep).sound
        store.acquire()
        assert [row.thread_id for row in store.sleepers(limit=10_000)] == before
        assert store.asleep_us() == 4_000
        store.close()
        assert verify(asleep).sound

    def test_an_owner_that_dies_on_the_way_leaves_the_rest_to_the_next(self, asleep, monkeypatch):
        store = LMDBCheckpointer(asleep, survives="process-kill")
        steps = []

        def dies(self, txn, step=_Filling.step):
            steps.append(1)
            if len(steps) == 2:
                raise StoreFull("no room", used=1, max_bytes=1)
            return step(self, txn)

        monkeypatch.setattr(_Filling, "step", dies)
        store.acquire()
        assert len(list(store.sleepers(limit=10_000))) == 2_500
        store.release()
        store.acquire()
        assert len(list(store.sleepers(limit=10_000))) == 2_500
        store.close()
        assert verify(asleep).sound


def make_old(store, epoch):
    """Make a store one of format 1."""

    def change(txn):
        for key in [*txn.keys(DUE, tail(DUE)), ASLEEP]:
            txn.delete(key)
        txn.put(META, seal(META, msgspec.msgpack.encode(["beamweaver", 1])))

    store._shared.writer.transact(epoch, change)


def test_a_thread_that_sleeps_and_is_not_in_the_index_is_found(tmp_path):
    store = LMDBCheckpointer(full(tmp_path / "s"), survives="process-kill")
    epoch = store.acquire()
    for key in list(store._shared.writer.snapshot(lambda txn: list(txn.keys(DUE, tail(DUE))))):
        store._shared.writer.transact(epoch, lambda txn, key=key: txn.delete(key))
    store.close()

    (damage,) = verify(tmp_path / "s").damages
    assert "index of due times" in str(damage)


def keep(name, write):
    """Keep what `write` writes into a store, unless a store of that name is kept."""
    place = DATA / name
    if place.exists():
        return
    with tempfile.TemporaryDirectory() as folder:
        new = LMDBCheckpointer(f"{folder}/s", survives="process-kill", compress_above=2_000)
        write(new)
        new.compact(f"{folder}/c")
        new.close()
        place.mkdir(parents=True)
        data = (Path(folder) / "c" / "data.mdb").read_bytes()
        (place / "data.mdb.gz").write_bytes(gzip.compress(data, mtime=0))
        sys.stdout.write(f"{place} written\n")


if __name__ == "__main__":
    keep(f"store-format-{FORMAT_VERSION}", fill)
    keep(KINDS_FOLDER, fill_kinds)
