"""Compression, shallow stores, and work on large threads that was not finished."""

from __future__ import annotations

import os

import pytest

from beamweaver.checkpoint import LMDBCheckpointer, MemoryCheckpointer
from beamweaver.checkpoint._layout import seal_small, unseal
from beamweaver.checkpoint.verify import verify
from beamweaver.errors import CorruptRecord, StoreError
from tests.checkpoint.kit import begun, step


def opened(path, **options):
    return LMDBCheckpointer(path, survives="process-kill", **options)


class TestCompression:
    def test_large_records_are_compressed_and_read_with_any_option(self, tmp_path):
        store = opened(tmp_path / "s", compress_above=1_000)
        epoch = begun(store, "t")
        store.commit(epoch, [step("t", 1, writes={"n": b"text " * 50_000})])
        used = store._shared._kv.begin(write=False).used()
        store.close()
        store = opened(tmp_path / "s")

        assert used < 60_000
        assert store.load("t").values["n"] == b"text " * 50_000
        store.close()

    def test_what_does_not_get_smaller_is_stored_as_it_is(self, tmp_path):
        noise = os.urandom(5_000)
        store = opened(tmp_path / "s", compress_above=1)
        epoch = begun(store)
        store.commit(epoch, [step("t", 0, writes={"n": noise})])

        assert store.load("t").values["n"] == noise
        assert noise in (tmp_path / "s" / "data.mdb").read_bytes()
        store.close()

    def test_a_compressed_value_that_is_damaged_is_found(self):
        key = b"Rt\0" + bytes(8)
        value = bytearray(seal_small(key, b"text " * 100))
        value[9] ^= 1
        with pytest.raises(CorruptRecord, match="checksum"):
            unseal(key, bytes(value))

    def test_a_wrong_size_is_refused(self, tmp_path):
        with pytest.raises(ValueError, match="compress_above"):
            opened(tmp_path / "s", compress_above=0)


class TestUnfinishedWork:
    @pytest.mark.parametrize("nth", [1, 2, 3])
    def test_what_a_dead_owner_was_deleting_is_removed_by_the_next(self, tmp_path, nth):
        store, epoch = self.long(tmp_path)
        self.stop_at(store, nth)
        with pytest.raises(StoreError, match="stopped"):
            store.delete_thread(epoch, "t")
        store = self.again(store, tmp_path)
        gone = nth > 1

        assert (store.load("t") is None) is gone
        assert verify(tmp_path / "s").sound
        if gone:
            assert store.commit(2, [step("t", 0)]) == [None]
        store.close()

    @pytest.mark.parametrize("nth", [1, 2, 3])
    def test_what_a_dead_owner_was_copying_is_not_there(self, tmp_path, nth):
        store, epoch = self.long(tmp_path)
        self.stop_at(store, nth, stay=True)
        with pytest.raises(StoreError, match="stopped"):
            store.copy_thread(epoch, "t", "u")
        store = self.again(store, tmp_path)

        assert store.load("u") is None
        assert store.copy_thread(2, "t", "u")
        assert store.load("u").values == store.load("t").values
        assert verify(tmp_path / "s").sound
        store.close()

    def test_a_copy_that_fails_is_removed_at_once(self, tmp_path):
        store, epoch = self.long(tmp_path)
        self.stop_at(store, 2)
        with pytest.raises(StoreError, match="stopped"):
            store.copy_thread(epoch, "t", "u")

        assert verify(tmp_path / "s").sound
        assert store.copy_thread(epoch, "t", "u")
        store.close()

    def long(self, tmp_path):
        store = opened(tmp_path / "s")
        epoch = begun(store, "t")
        store.commit(epoch, [step("t", seq) for seq in range(1, 600)])
        return store, epoch

    def stop_at(self, store, nth, *, stay=False):
        """The nth transaction fails, and with `stay` all after it."""
        kv = store._shared._kv
        begin = kv.begin
        count = [0]

        def failing(*, write):
            count[0] += write
            if write and (count[0] == nth or (stay and count[0] > nth)):
                raise StoreError("stopped")
            return begin(write=write)

        kv.begin = failing

    def again(self, store, tmp_path):
        store.close()
        store = opened(tmp_path / "s")
        store.acquire()
        return store


class TestShallow:
    @pytest.mark.parametrize("make", [MemoryCheckpointer, None])
    def test_nothing_but_the_head_is_kept(self, tmp_path, make):
        path = tmp_path / "s"
        store = opened(path, shallow=True) if make is None else make(shallow=True)
        epoch = store.acquire()
        store.commit(epoch, [step("t", 0, writes={"still": b"s", "n": b"0"})])
        for seq in range(1, 30):
            versions = {"still": 0, "n": seq} if seq % 8 == 0 else None
            assert store.commit(epoch, [step("t", seq, versions=versions)]) == [None]
        image = store.load("t")

        assert image.values == {"still": b"s", "n": b"29"}
        assert [found.checkpoint.seq for found in store.history("t")] == [29]
        assert store.load("t", 28) is None
        store.close()

    def test_it_takes_no_more_room_after_more_steps(self, tmp_path):
        store = opened(tmp_path / "s", shallow=True)
        epoch = store.acquire()
        store.commit(epoch, [step("t", 0, writes={"still": bytes(1_000)})])
        sizes = []
        for seq in range(1, 60):
            store.commit(epoch, [step("t", seq, writes={"n": bytes(1_000)})])
            sizes.append(store._shared._kv.begin(write=False).used())

        assert max(sizes[10:]) == sizes[10]
        store.close()


def test_a_history_that_waits_for_its_reader_holds_no_old_page(tmp_path):
    """Semantics 10: bounded page pinning."""
    store = opened(tmp_path / "s")
    epoch = begun(store, "t")
    store.commit(epoch, [step("t", seq) for seq in range(1, 100)])
    images = store.history("t")
    next(images)
    holding = store._shared._kv._env.readers()

    assert "no active readers" in holding
    assert len(list(images)) == 99
    store.close()


class TestReaders:
    def test_many_more_read_at_once_than_lmdb_has_slots_for_by_itself(self, tmp_path):
        store = opened(tmp_path / "s")
        begun(store, "t")
        kv = store._shared._kv
        reads = [kv.begin(write=False) for _ in range(500)]

        assert store.load("t") is not None
        for read in reads:
            read.abort()
        store.close()

    def test_one_for_whom_there_is_no_slot_is_told_so_and_reads_when_there_is(
        self, tmp_path, monkeypatch
    ):
        monkeypatch.setattr("beamweaver.checkpoint._lmdb_kv.MAX_READERS", 4)
        store = opened(tmp_path / "s")
        begun(store, "t")
        kv = store._shared._kv
        reads = [kv.begin(write=False) for _ in range(4)]

        with pytest.raises(StoreError, match="READERS"):
            store.load("t")
        assert store.commit(1, [step("t", 1)]) == [None]
        reads.pop().abort()
        assert store.load("t").next_seq == 2
        for read in reads:
            read.abort()
        store.close()


def test_the_map_has_room_for_a_tebibyte_and_the_file_takes_what_is_written(tmp_path):
    store = opened(tmp_path / "s")
    begun(store, "t")

    assert store._shared._kv._env.info()["map_size"] == 1 << 40
    assert (tmp_path / "s" / "data.mdb").stat().st_size < 1 << 20
    store.close()
