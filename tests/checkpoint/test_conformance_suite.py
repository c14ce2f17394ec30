"""The suite for whoever writes a store: our stores pass it, and it finds what is wrong with others."""

from __future__ import annotations

import msgspec
import pytest

from beamweaver.checkpoint import LMDBCheckpointer, MemoryCheckpointer
from beamweaver.checkpoint.conformance import CHECKS, run
from beamweaver.checkpoint.conformance._check import Place
from beamweaver.checkpoint.records import Checkpoint, Record
from tests.checkpoint.kit import KINDS


def opener(kind):
    """Opens the store of a path."""
    if kind == "memory":
        stores: dict[object, MemoryCheckpointer] = {}
        return lambda path: stores.setdefault(path, MemoryCheckpointer())
    return lambda path: LMDBCheckpointer(path, survives=kind.removeprefix("lmdb-"))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("item", CHECKS, ids=lambda item: item.name)
def test_a_store_conforms(item, kind, tmp_path):
    place = Place(tmp_path / "store", opener(kind))
    try:
        item.call(place)
    finally:
        place.close()


def test_one_call_reports_by_capability():
    report = run(opener("memory"))

    assert report.passed
    assert list(report.capabilities) == list(dict.fromkeys(item.capability for item in CHECKS))
    assert sum(len(found.passed) for found in report.capabilities.values()) == len(CHECKS)


class Forgetful(MemoryCheckpointer):
    """Forgets what it was told to drop, and lists threads that have no messages."""

    def inbox_threads(self, *, after="", limit=1_000):
        return iter(sorted(self._threads)[:limit])


class Torn(MemoryCheckpointer):
    """Writes the first commit of a group before the others."""

    def commit(self, epoch, commits):
        first = super().commit(epoch, commits[:1])
        return first + (super().commit(epoch, commits[1:]) if commits[1:] else [])


class Unfenced(MemoryCheckpointer):
    """Takes writes of any epoch."""

    def _check(self, epoch):
        pass


class Greedy(MemoryCheckpointer):
    """Prunes what the head needs."""

    def prune(self, epoch, thread_ids=None, *, keep_last=1, older_than=None):
        rule = self._rule(keep_last, older_than)
        for thread in self._threads.values():
            doomed = [seq for seq in thread.records if seq < thread.next_seq - 2]
            rule([])
            for seq in doomed:
                del thread.records[seq]
            yield len(doomed)


@pytest.mark.parametrize(
    ("wrong", "capability"),
    [
        (Forgetful, "listing"),
        (Torn, "crash between writes"),
        (Unfenced, "owners"),
        (Greedy, "retention"),
    ],
)
def test_a_store_that_is_wrong_is_found(wrong, capability):
    stores: dict[object, MemoryCheckpointer] = {}
    report = run(lambda path: stores.setdefault(path, wrong()), only=[capability])

    assert not report.passed
    assert report.capabilities[capability].failed
    assert f"{capability}:" in str(report)


def test_a_record_of_the_first_form_is_read():
    """Records end before the fields that were added since."""
    checkpoint = Checkpoint(0, "loop", "b", -1, {"n": b"0"}, None, (), 1, {}, 0, "r")
    short = msgspec.structs.astuple(checkpoint)[:11]
    data = msgspec.msgpack.encode([0, 1, 0, short])

    assert msgspec.msgpack.decode(data, type=Record).checkpoint == checkpoint
