"""The simulated engine answers as LMDB does."""

from __future__ import annotations

import random

import pytest

from beamweaver.checkpoint._lmdb_kv import LmdbKv
from beamweaver.errors import StoreBroken, StoreFull
from tests.simulation.disk import Disk, Ends, SimKv

KEYS = [bytes([a, b]) for a in b"abc" for b in b"012"]
BOUNDS = [b"a", b"a1", b"b", b"b2", b"c9", b"d"]


def sim(disk=None, *, sync=True):
    return SimKv(disk or Disk(), Ends(1), sync=sync)


def write(kv, **pairs):
    txn = kv.begin(write=True)
    for key, value in pairs.items():
        txn.put(key.encode(), value)
    txn.commit()


def change(rng, txn):
    """One change or look, drawn; what it gave."""
    key, (start, stop) = rng.choice(KEYS), sorted(rng.sample(BOUNDS, 2))
    match rng.randrange(7):
        case 0 | 1:
            return txn.put(key, rng.randbytes(3))
        case 2:
            return txn.delete(key)
        case 3:
            return txn.get(key)
        case 4:
            return list(txn.range(start, stop)), list(txn.keys(start, stop))
        case 5:
            return list(txn.back(start, stop))
        case _:
            return txn.last(start, stop)


@pytest.mark.parametrize("seed", range(40))
def test_a_drawn_trace_of_operations_gives_the_same_on_lmdb(seed, tmp_path):
    real, simulated = LmdbKv(tmp_path, sync=False), sim()
    try:
        for block in range(12):
            keeps = random.Random(f"{seed} {block}").random() < 0.7
            seen = []
            for kv in (real, simulated):
                txn = kv.begin(write=True)
                rng = random.Random(f"{seed} {block} changes")
                seen.append([change(rng, txn) for _ in range(15)])
                if keeps:
                    txn.commit()
                txn.abort()
            assert seen[0] == seen[1], f"seed {seed}, block {block}"
    finally:
        real.close()


def test_a_reader_sees_the_moment_at_which_it_began():
    kv = sim()
    write(kv, a=b"1")
    reader = kv.begin(write=False)
    write(kv, a=b"2", b=b"3")
    assert (reader.get(b"a"), reader.get(b"b")) == (b"1", None)


@pytest.mark.parametrize(("sync", "left"), [(True, b"1"), (False, None)])
def test_a_power_cut_takes_what_was_not_synced(sync, left):
    disk = Disk()
    write(sim(disk, sync=sync), a=b"1")
    disk.cut()
    assert sim(disk).begin(write=False).get(b"a") == left


def test_a_sync_saves_what_was_committed_before():
    disk = Disk()
    kv = sim(disk, sync=False)
    write(kv, a=b"1")
    kv.sync()
    disk.cut()
    assert sim(disk).begin(write=False).get(b"a") == b"1"


@pytest.mark.parametrize(("fault", "left"), [("dies before", None), ("dies after", b"1")])
def test_a_process_that_dies_in_a_commit_has_written_all_or_nothing(fault, left):
    disk = Disk(lambda operation: fault if operation == "commit" else "")
    kv = sim(disk)
    with pytest.raises(StoreBroken):
        write(kv, a=b"1")
    assert kv.process.dying
    assert SimKv(disk, Ends(2), sync=True).begin(write=False).get(b"a") == left


def test_the_dead_write_nothing():
    kv = sim()
    kv.process.dying = True
    with pytest.raises(StoreBroken):
        kv.begin(write=True)


def test_a_full_disk_takes_nothing():
    disk = Disk()
    disk.full = True
    with pytest.raises(StoreFull):
        write(sim(disk), a=b"1")
    assert disk.pairs == {}


def test_a_write_by_another_than_the_owner_is_noticed():
    disk = Disk()
    disk.owner = Ends(2)
    write(sim(disk), a=b"1")
    assert len(disk.stale) == 1
