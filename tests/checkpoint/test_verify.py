"""Looking through a store: a whole one is sound, and every damage is named or changes nothing."""

from __future__ import annotations

import random
import shutil

import lmdb
import msgspec
import pytest

from beamweaver.checkpoint import LMDBCheckpointer, _registry
from beamweaver.checkpoint._layout import describe, sealed
from beamweaver.checkpoint._pages import PageFile
from beamweaver.checkpoint.records import MessageKey
from beamweaver.checkpoint.verify import verify
from beamweaver.errors import NotAStore
from tests.checkpoint.damage import damaged, hurt
from tests.checkpoint.full_store import fill, full, pairs_of, used_pages
from tests.checkpoint.kit import begun, step


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return full(tmp_path_factory.mktemp("verify") / "s")


@pytest.fixture
def copy(whole, tmp_path):
    shutil.copytree(whole, tmp_path / "s")
    return tmp_path / "s"


def a_key(thread_id, stands, says):
    """A pair of an idempotency key that stands under one name and says another."""
    row = MessageKey(says, "m", "r", b"", 0)
    return sealed(b"K", f"{thread_id}\0{stands}".encode(), msgspec.msgpack.encode(row))


def edit(path, change):
    with lmdb.open(str(path), map_size=1 << 30) as env, env.begin(write=True) as txn:
        change(txn)


def test_a_whole_store_is_sound(whole):
    verdict = verify(whole)

    assert verdict.sound
    assert verdict.threads == 155
    assert verdict.keys == len(pairs_of(whole))


def test_an_open_store_that_is_written_is_sound(tmp_path):
    store = LMDBCheckpointer(tmp_path / "s", survives="process-kill")
    epoch = begun(store, "t")
    for seq in range(1, 20):
        store.commit(epoch, [step("t", seq)])
        assert verify(tmp_path / "s").sound
    store.close()


class TestWhileOthersOpen:
    """One process opens a path once, so those who look through a store make room for those who open it."""

    @pytest.fixture
    def path(self, tmp_path):
        store = LMDBCheckpointer(tmp_path / "s", survives="process-kill")
        store.commit(begun(store, "t"), [step("t", seq) for seq in range(1, 50)])
        store.close()
        return tmp_path / "s"

    @pytest.fixture
    def meanwhile(self, monkeypatch):
        """Do something in the middle of the first look at a page."""
        waiting = []

        def do(what):
            waiting.append(what)

        page = PageFile.page

        def looked_at(self, number):
            if waiting:
                waiting.pop()()
            return page(self, number)

        monkeypatch.setattr(PageFile, "page", looked_at)
        return do

    def test_the_store_can_be_acquired_and_written(self, path, meanwhile):
        store = LMDBCheckpointer(path, survives="process-kill")

        def write():
            epoch = store.acquire()
            for seq in range(50, 90):
                assert store.commit(epoch, [step("t", seq)]) == [None]

        meanwhile(write)
        assert verify(path).sound
        store.close()

    def test_two_look_at_once(self, path, meanwhile):
        seen = []
        meanwhile(lambda: seen.append(verify(path)))
        assert verify(path).sound
        assert seen[0].sound
        store = LMDBCheckpointer(path, survives="process-kill")
        assert store.acquire()
        store.close()

    def test_nothing_is_held_afterwards(self, path):
        verify(path)
        with pytest.raises(NotAStore):
            verify(path / "nowhere")
        assert _registry._registry.pins._pins == {}


@pytest.mark.parametrize("make", [False, True])
def test_what_is_no_store_is_refused(tmp_path, make):
    path = tmp_path / "s"
    if make:
        path.mkdir()
        (path / "data.mdb").touch()
    with pytest.raises(NotAStore):
        verify(path)


@pytest.mark.parametrize(
    ("change", "key", "reason"),
    [
        (lambda txn: hurt(txn, b"Revery\0" + bytes(8)), "record/every/0", "checksum"),
        (lambda txn: txn.delete(b"Rlog\0" + bytes(7) + b"\x05"), "record/log/6", "missing"),
        (lambda txn: txn.delete(b"Rpruned\0" + bytes(8)), "record/pruned/1", "missing"),
        (lambda txn: txn.delete(b"Tevery\0"), "record/every/0", "no thread"),
        (lambda txn: txn.delete(b"S\x04every\0"), "thread/every", "index of statuses"),
        (lambda txn: txn.put(*sealed(b"S\x09", b"nobody\0", b"")), "status/nobody", "no thread"),
        (lambda txn: txn.put(*sealed(b"N", b"nobody\0r", b"\x01")), "run_name/nobody/r", "no th"),
        (lambda txn: txn.put(*a_key("every", "x", "y")), "message_key/every/x", "the key 'y'"),
        (lambda txn: txn.put(*a_key("nobody", "x", "x")), "message_key/nobody/x", "no thread"),
        (
            lambda txn: txn.put(*sealed(b"Q", b"every\0" + bytes(8), b"\x01")),
            "key_order/every/0",
            "xpected `array`",
        ),
        (lambda txn: txn.put(b"?x\0", b""), "kind b'?'/x", "no version"),
        (lambda txn: txn.put(b"\0x", b""), "x", "no version"),
        (lambda txn: txn.delete(b"\0epoch"), "epoch", "missing"),
        (lambda txn: hurt(txn, b"\0meta"), "meta", "checksum"),
        (
            lambda txn: txn.put(*sealed(b"Rlarge\0", bytes(8), b"\x94\x05\x01\x00\xc0")),
            "record/large/0",
            "it is record 5",
        ),
        (lambda txn: txn.delete(b"Rlarge\0" + bytes(8)), "thread/large", "no records"),
    ],
)
def test_what_does_not_fit_is_named(copy, change, key, reason):
    edit(copy, change)
    verdict = verify(copy)

    assert not verdict.sound
    named = {damage.key: damage.reason for damage in verdict.damages}
    assert reason in named[key]
    assert key in "\n".join(map(str, verdict.damages))


def first_key(data, page):
    at = page * 4096
    node = at + int.from_bytes(data[at + 16 : at + 18], "little")
    size = int.from_bytes(data[node + 6 : node + 8], "little")
    return bytes(data[node + 8 : node + 8 + size])


def test_a_damaged_page_is_reported_with_the_keys_that_are_lost(copy):
    """The rest of the store is read, and what is lost is what is between the two keys."""
    before = pairs_of(copy)
    data = bytearray((copy / "data.mdb").read_bytes())
    leaves = [p for p in used_pages(copy) if data[p * 4096 + 10] == 2]
    page = next(p for p in leaves if first_key(data, p).startswith(b"Rthread "))
    at = page * 4096
    first = describe(first_key(data, page))
    data[at : at + 4096] = bytes(4096)
    (copy / "data.mdb").write_bytes(data)
    [damage] = [damage for damage in verify(copy).damages if damage.kind == "page"]
    left = pairs_of(copy)

    assert damage.page == page
    assert damage.start == first
    lost = {key for key, _ in before} - {key for key, _ in left}
    assert all(damage.start <= describe(key) < damage.stop for key in lost)
    assert len(lost) > 10
    assert [pair for pair in before if pair[0] not in lost] == left


def test_a_file_without_meta_pages_is_reported(copy):
    data = (copy / "data.mdb").read_bytes()
    (copy / "data.mdb").write_bytes(bytes(8192) + data[8192:])

    assert [damage.kind for damage in verify(copy).damages] == ["file", "file"]


def test_more_damages_than_can_be_named_are_counted(copy, monkeypatch):
    monkeypatch.setattr("beamweaver.checkpoint.verify._MOST", 3)

    def change(txn):
        for number in range(10):
            hurt(txn, b"Rthread %03d\0" % number + bytes(8))

    edit(copy, change)
    verdict = verify(copy)

    assert (len(verdict.damages), verdict.more) == (3, 7)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_every_mutation_of_the_file_is_reported_or_changes_nothing(whole, tmp_path, seed):
    """Never a wrong value: what a sound file says is what was written."""
    chance = random.Random(seed)
    before = pairs_of(whole)
    original = (whole / "data.mdb").read_bytes()
    reported = 0
    for number in range(150):
        target = tmp_path / str(number)
        target.mkdir()
        how = damaged(original, target / "data.mdb", chance)
        verdict = verify(target)
        reported += not verdict.sound
        assert not verdict.sound or pairs_of(target) == before, f"seed {seed}: {how}"
        shutil.rmtree(target)

    assert reported > 50


class TestCompact:
    def test_a_copy_has_the_same_content_and_no_free_pages(self, tmp_path):
        store = LMDBCheckpointer(tmp_path / "s", survives="process-kill")
        fill(store)
        epoch = begun(store, "big")
        store.commit(epoch, [step("big", 1, writes={"n": bytes(3_000_000)})])
        store.delete_thread(epoch, "big")
        store.compact(tmp_path / "copy")
        store.close()
        size = (tmp_path / "copy" / "data.mdb").stat().st_size

        assert size < (tmp_path / "s" / "data.mdb").stat().st_size - 2_900_000
        assert pairs_of(tmp_path / "copy") == pairs_of(tmp_path / "s")
        assert verify(tmp_path / "copy").sound

    def test_a_copy_is_a_store_of_its_own(self, tmp_path):
        store = LMDBCheckpointer(tmp_path / "s", survives="process-kill")
        epoch = begun(store, "t")
        store.compact(tmp_path / "copy")
        copy = LMDBCheckpointer(tmp_path / "copy", survives="process-kill")

        assert copy.acquire() == epoch + 1
        assert copy.commit(epoch + 1, [step("t", 1)]) == [None]
        assert store.load("t").next_seq == 1
        copy.close()
        store.close()

    def test_nothing_is_written_over(self, tmp_path):
        store = LMDBCheckpointer(tmp_path / "s", survives="process-kill")
        with pytest.raises(NotAStore):
            store.compact(tmp_path / "copy")
        begun(store, "t")
        store.compact(tmp_path / "copy")
        with pytest.raises(NotAStore):
            store.compact(tmp_path / "copy")
        store.close()
