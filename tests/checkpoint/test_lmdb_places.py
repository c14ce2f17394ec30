"""Paths that are no stores, damaged stores, newer stores, full stores: said at once and clearly."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import lmdb
import msgspec
import pytest

from beamweaver.checkpoint import LMDBCheckpointer, _owner, _place
from beamweaver.checkpoint._layout import META, describe, seal
from beamweaver.errors import (
    CorruptRecord,
    NotAStore,
    StoreBroken,
    StoreFull,
    StoreTooNew,
    StoreUnavailable,
)
from tests.checkpoint.kit import begun, message, step


def opened(path, **options):
    return LMDBCheckpointer(path, survives="process-kill", **options)


class TestPaths:
    def test_a_new_checkpointer_touches_no_disk(self, tmp_path):
        opened(tmp_path / "s")

        assert not (tmp_path / "s").exists()

    def test_a_file_is_no_store(self, tmp_path):
        (tmp_path / "s").write_text("notes")
        with pytest.raises(NotAStore, match="is a file"):
            opened(tmp_path / "s")

    def test_a_folder_with_other_content_is_no_store(self, tmp_path):
        (tmp_path / "notes.txt").write_text("notes")
        with pytest.raises(NotAStore, match=r"notes\.txt"):
            opened(tmp_path)

    def test_an_empty_folder_becomes_a_store(self, tmp_path):
        store = opened(tmp_path)

        assert store.acquire() == 1
        store.close()

    def test_a_folder_without_a_parent_is_unavailable(self, tmp_path):
        with pytest.raises(StoreUnavailable, match="Create that folder") as caught:
            opened(tmp_path / "no" / "s")

        assert caught.value.path == str(tmp_path / "no" / "s")

    def test_garbage_in_place_of_the_data_is_no_store(self, tmp_path):
        (tmp_path / "data.mdb").write_bytes(b"garbage" * 2000)
        with pytest.raises(NotAStore):
            opened(tmp_path).load("t")

    @pytest.mark.parametrize("use", [lambda store: store.load("t"), lambda store: store.acquire()])
    def test_the_data_of_another_program_is_no_store(self, tmp_path, use):
        with lmdb.open(str(tmp_path)) as env, env.begin(write=True) as txn:
            txn.put(b"other", b"data")
        store = opened(tmp_path)
        with pytest.raises(NotAStore, match="another program"):
            use(store)

    def test_an_empty_environment_becomes_a_store(self, tmp_path):
        """A process may die between making the file and its first commit."""
        lmdb.open(str(tmp_path)).close()
        store = opened(tmp_path)

        assert store.load("t") is None
        assert store.acquire() == 1
        store.close()

    def test_a_store_of_a_newer_version_is_too_new(self, tmp_path):
        opened(tmp_path).acquire()
        value = seal(META, msgspec.msgpack.encode(("beamweaver", 99)))
        store = opened(tmp_path)
        store.close()
        edit(tmp_path, lambda txn: txn.put(META, value))
        with pytest.raises(StoreTooNew, match="Upgrade beamweaver"):
            opened(tmp_path).load("t")

    def test_a_store_of_another_application_is_no_store(self, tmp_path):
        value = seal(META, msgspec.msgpack.encode(("other", 1)))
        edit(tmp_path, lambda txn: txn.put(META, value))
        with pytest.raises(NotAStore, match="'other'"):
            opened(tmp_path).load("t")

    def test_a_folder_on_a_network_is_refused(self, tmp_path, monkeypatch):
        mounts = tmp_path / "mountinfo"
        mounts.write_text(
            "22 1 8:1 / / rw - ext4 /dev/sda rw\n"
            f"23 22 0:5 / {tmp_path}/net rw - nfs4 server:/x rw\n"
        )
        (tmp_path / "net").mkdir()
        monkeypatch.setattr(_place, "_MOUNTS", mounts)
        with pytest.raises(StoreUnavailable, match=r"network file system \(nfs4\)"):
            opened(tmp_path / "net" / "s").acquire()

    def test_a_platform_without_locks_is_refused(self, tmp_path, monkeypatch):
        monkeypatch.setattr(_owner, "_fcntl", None)
        with pytest.raises(StoreUnavailable, match="no fcntl locks"):
            opened(tmp_path / "s")

    @pytest.mark.parametrize(
        ("options", "text"),
        [
            ({"survives": "all"}, "'power-loss' or 'process-kill'"),
            ({"max_bytes": 0}, "number of bytes"),
        ],
    )
    def test_a_wrong_option_is_refused(self, tmp_path, options, text):
        with pytest.raises(ValueError, match=text):
            LMDBCheckpointer(tmp_path / "s", **options)

    @pytest.mark.parametrize("path", ["", "a\x00b"])
    def test_a_path_that_no_folder_can_have_is_refused(self, path):
        with pytest.raises(ValueError, match="path of a folder"):
            LMDBCheckpointer(path)


@pytest.mark.skipif(os.geteuid() != 0, reason="drops the rights of root")
class TestRights:
    SCRIPT = """
import os, sys
sys.path.insert(0, {here!r})
from beamweaver.checkpoint import LMDBCheckpointer
from beamweaver.errors import StoreError
os.setgid(65534); os.setuid(65534)
store = LMDBCheckpointer({path!r}, survives="process-kill")
for use in (lambda: getattr(store.load("t"), "next_seq", None), store.acquire):
    try:
        print(use())
    except StoreError as error:
        print(error.code, error.path == {path!r}, "ritable" in str(error))
"""

    def run(self, path):
        script = self.SCRIPT.format(path=str(path), here=str(Path.cwd()))
        return subprocess.run(
            [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=15
        ).stdout.splitlines()

    @pytest.fixture
    def open_folder(self, tmp_path):
        for folder in (tmp_path, *list(tmp_path.parents)[:3]):
            folder.chmod(0o755)
        return tmp_path

    @pytest.mark.slow
    def test_a_write_protected_store_can_be_read_and_not_owned(self, open_folder):
        store = opened(open_folder / "s")
        begun(store, "t")
        store.close()

        assert self.run(open_folder / "s") == ["1", "store_unavailable True True"]

    @pytest.mark.slow
    def test_a_store_cannot_be_made_in_a_write_protected_folder(self, open_folder):
        assert self.run(open_folder / "new")[-1] == "store_unavailable True True"


def edit(path, change):
    """Change a closed store behind its back."""
    with lmdb.open(str(path), map_size=1 << 30) as env, env.begin(write=True) as txn:
        return change(txn)


class TestDamage:
    @pytest.fixture
    def path(self, tmp_path):
        store = opened(tmp_path / "s")
        epoch = begun(store)
        first = step("t", 0, run_names=(("r", 1),), run_ended=(1, 0), inbox_put=(message(1),))
        store.commit(epoch, [first, step("t", 1), step("u", 0)])
        store.close()
        return tmp_path / "s"

    def damage(self, path, key, change):
        def rewrite(txn):
            value = txn.get(key)
            assert value is not None
            txn.put(key, change(value))

        edit(path, rewrite)
        return opened(path)

    @pytest.mark.parametrize("kept", [0.3, 0.6, 0.9])
    def test_a_file_that_lost_its_end_is_refused_at_once(self, path, kept):
        """To touch a page beyond the end would kill the process."""
        file = path / "data.mdb"
        os.truncate(file, int(file.stat().st_size * kept) // 4096 * 4096)
        with pytest.raises(CorruptRecord, match="has lost|damaged"):
            opened(path).load("t")

    def test_a_file_that_lost_all_is_not_taken_for_a_new_store(self, path):
        os.truncate(path / "data.mdb", 0)
        with pytest.raises(CorruptRecord, match="it was owned before"):
            opened(path).load("t")

    def test_a_file_that_is_gone_is_not_made_anew(self, path):
        (path / "data.mdb").unlink()
        with pytest.raises(CorruptRecord, match=r"data\.mdb is missing, and it was owned before"):
            opened(path)
        assert not (path / "data.mdb").exists()

    @pytest.mark.parametrize("at", [0, 4, 5, -1])
    @pytest.mark.parametrize(
        ("key", "name", "use"),
        [
            (b"Rt\0" + bytes(7) + b"\1", "record/t/1", lambda store: store.load("t")),
            (b"Tt\0", "thread/t", lambda store: store.load("t")),
            (b"It\0" + bytes(7) + b"\1", "inbox/t/1", lambda store: store.load("t")),
            (b"Nt\0r", "run_name/t/r", lambda store: store.run_number("t", "r")),
            (b"Et\0" + bytes(7) + b"\1", "run_end/t/1", lambda store: store.run_end("t", 1)),
            (b"S\x02t\0", "status/t", lambda store: list(store.threads())),
            (b"Tt\0", "thread/t", lambda store: list(store.threads())),
            (b"\0epoch", "epoch", lambda store: store.acquire()),
            (b"\0meta", "meta", lambda store: store.load("t")),
        ],
    )
    def test_a_flipped_bit_is_found_and_its_record_named(self, path, key, name, use, at):
        def flip(value):
            changed = bytearray(value)
            changed[at if at < len(value) else -1] ^= 1
            return bytes(changed)

        store = self.damage(path, key, flip)
        with pytest.raises(CorruptRecord) as caught:
            use(store)

        assert caught.value.key == name
        assert name in str(caught.value)
        store.close()

    def test_a_value_that_is_cut_short_is_found(self, path):
        store = self.damage(path, b"Tt\0", lambda value: value[:3])
        with pytest.raises(CorruptRecord, match="cut short"):
            store.load("t")
        store.close()

    def test_a_record_under_the_key_of_another_is_found(self, path):
        def swap(txn):
            txn.put(b"Ru\0" + bytes(8), txn.get(b"Rt\0" + bytes(8)))

        edit(path, swap)
        store = opened(path)
        with pytest.raises(CorruptRecord, match="record/u/0"):
            store.load("u")
        store.close()

    def test_bytes_that_are_no_record_are_found_behind_a_right_checksum(self, path):
        key = b"Tt\0"
        store = self.damage(path, key, lambda _value: seal(key, b"\xc1"))
        with pytest.raises(CorruptRecord, match="thread/t"):
            store.load("t")
        store.close()

    def test_a_damaged_thread_does_not_harm_its_neighbours(self, path):
        key = b"Tt\0"
        store = self.damage(path, key, lambda value: value[:-1])
        epoch = store.acquire()

        assert store.load("u").next_seq == 1
        results = store.commit(epoch, [step("u", 1), step("t", 2)])
        assert [error and error.code for error in results] == [None, "corrupt_record"]
        assert store.delete_thread(epoch, "t")
        store.close()

    def test_a_thread_without_records_is_corrupt(self, path):
        def remove(txn):
            for seq in (0, 1):
                txn.delete(b"Rt\0" + bytes([0] * 7 + [seq]))

        edit(path, remove)
        store = opened(path)
        with pytest.raises(CorruptRecord, match="no record of it has a checkpoint"):
            store.load("t")
        store.close()

    def test_an_unknown_kind_of_key_is_described_as_it_is(self):
        assert describe(b"?t\0x") == "kind b'?'/t/x"


class TestRoom:
    def test_above_max_bytes_a_commit_is_refused_and_deleting_makes_room(self, tmp_path):
        store = opened(tmp_path / "s", max_bytes=400_000)
        epoch = begun(store, "a", "b")
        store.commit(epoch, [step("a", 1, writes={"n": bytes(300_000)})])
        with pytest.raises(StoreFull, match="max_bytes is 400000"):
            store.commit(epoch, [step("b", 1, writes={"n": bytes(200_000)})])
        assert store.load("b").next_seq == 1
        assert store.delete_thread(epoch, "a")

        assert store.commit(epoch, [step("b", 1, writes={"n": bytes(200_000)})]) == [None]
        store.close()

    @pytest.mark.parametrize(
        ("code", "expected"), [(28, StoreFull), (27, StoreFull), (122, StoreFull), (5, StoreBroken)]
    )
    def test_what_the_disk_says_at_a_commit_is_said_in_our_words(
        self, tmp_path, monkeypatch, code, expected
    ):
        store = opened(tmp_path / "s")
        epoch = begun(store, "t")

        class Failing:
            def __init__(self, txn):
                self.txn = txn

            def __getattr__(self, name):
                return getattr(self.txn, name)

            def commit(self):
                self.txn.abort()
                error = lmdb.Error("mdb_txn_commit", code)
                error.code = code
                raise error

        kv = store._shared._kv
        begin = kv.begin

        def failing(*, write):
            txn = begin(write=write)
            if write:
                txn._txn = Failing(txn._txn)
            return txn

        monkeypatch.setattr(kv, "begin", failing)
        with pytest.raises(expected) as caught:
            store.commit(epoch, [step("t", 1)])
        monkeypatch.undo()

        assert store.load("t").next_seq == 1
        assert str(tmp_path / "s") in str(caught.value)
        store.close()
