"""A scripted history of a store, the same for each seed, and what the store holds after each transaction."""

from __future__ import annotations

import contextlib
import hashlib
import random

from beamweaver.checkpoint import LMDBCheckpointer
from beamweaver.checkpoint._lmdb_kv import LmdbTxn
from beamweaver.checkpoint.base import no_faults
from beamweaver.checkpoint.deltas import appended, join
from beamweaver.checkpoint.records import DeltaRow
from beamweaver.errors import StoreFull
from tests.checkpoint.kit import entry, message, run_row, step, thread_row

THREADS = ("a", "b", "c", "d")
_ADDED = join([appended(b"\x91\x01")])


class Threads:
    """Makes commits of threads that are right."""

    def __init__(self, seed):
        self.chance = random.Random(seed)
        self.next: dict[str, int] = {}
        self.head: dict[str, int] = {}
        self.open: dict[str, list[int]] = {}

    def commit(self, name):
        chance = self.chance
        seq = self.next.get(name, 0)
        self.next[name] = seq + 1
        if seq and chance.random() < 0.4:
            self.open[name].append(seq)
            return entry(name, seq, inbox_put=(message(seq),))
        parent, self.head[name] = self.head.get(name, -1), seq
        clears, self.open[name] = tuple(self.open.get(name, ())), []
        size = chance.choice([0, 10, 300, 5_000])
        row = thread_row(name, chance.choice(["running", "waiting"]), run=run_row(seq + 1))
        changes = {"writes": {"n": bytes(size), "log": b"\x90"}, "deltas": {}}
        if seq:
            changes = {
                "writes": {"n": bytes(size)},
                "deltas": {"log": DeltaRow(parent, _ADDED)},
                "inbox_drop": clears,
            }
        if seq == 0 or chance.random() < 0.5:
            changes["thread"] = row
        return step(name, seq, parent=parent, clears=clears, **changes)

    def forget(self, name):
        for known in (self.next, self.head, self.open):
            known.pop(name, None)


def run(path, seed, after, *, count=25, survives="power-loss", tries=3, faults=no_faults):
    """Carry the history out.

    Args:
        path: Where the store is made.
        seed: Which history.
        after: Called with the open transaction's store after each transaction that was committed.
        count: How many calls.
        survives: The store's class.
        tries: How often a call is made that finds the store full.
        faults: What the store's points are told to.
    """
    store = LMDBCheckpointer(path, survives=survives)
    store.now = lambda: 0.0
    store.faults = faults
    with told(store, after):
        epoch = _again(store.acquire, tries)
        threads = Threads(seed)
        for _ in range(count):
            _one(store, epoch, threads, tries)
    store.close()


@contextlib.contextmanager
def told(store, after):
    """Within the block, `after(store)` is called after each transaction of the store that was committed."""
    commit = LmdbTxn.commit

    def committing(txn):
        commit(txn)
        if store._shared is not None:  # else it is being made
            after(store)

    LmdbTxn.commit = committing
    try:
        yield
    finally:
        LmdbTxn.commit = commit


def _again(call, tries):
    for left in range(tries, 0, -1):
        try:
            return call()
        except StoreFull:
            if left == 1:
                raise
    return None


def _one(store, epoch, threads, tries):
    chance = threads.chance
    kind = chance.choice(["commit"] * 6 + ["delete", "prune"])
    name = chance.choice(THREADS)
    if kind == "delete":
        threads.forget(name)
        _again(lambda: store.delete_thread(epoch, name), tries)
    elif kind == "prune":
        _again(lambda: list(store.prune(epoch, [name], keep_last=2)), tries)
    else:
        group = [threads.commit(chance.choice(THREADS)) for _ in range(chance.randint(1, 4))]
        results = _again(lambda: store.commit(epoch, group), tries)
        assert results == [None] * len(group), results


def content_of(store):
    """A digest of all that an open store holds."""
    txn = store._shared._kv.begin(write=False)
    try:
        return digest(list(txn.range(b"", b"\xff")))
    finally:
        txn.abort()


def digest(pairs):
    """A digest of the threads' keys and values: an owner that tries again raises the epoch again."""
    found = hashlib.blake2b(digest_size=16)
    for key, value in pairs:
        if key[:1] == b"\x00":
            continue
        found.update(b"%d %d " % (len(key), len(value)) + key + value)
    return found.hexdigest()
