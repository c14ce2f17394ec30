"""Builders of records, and the places that the conformance suite runs on."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

from beamweaver.checkpoint import Checkpointer, LMDBCheckpointer, MemoryCheckpointer
from beamweaver.checkpoint.entries import Finished, TaskRow
from beamweaver.checkpoint.records import (
    Checkpoint,
    Commit,
    InboxMessage,
    Record,
    RunRow,
    ThreadRow,
)

KINDS = ("memory", "lmdb-power-loss", "lmdb-process-kill")


@dataclasses.dataclass
class Place:
    """One place where threads are kept, and how to open it again."""

    kind: str
    make: Callable[[], Checkpointer]
    opened: list[Checkpointer] = dataclasses.field(default_factory=list)

    def open(self) -> Checkpointer:
        store = self.make()
        self.opened.append(store)
        return store

    def reopened(self, store: Checkpointer) -> Checkpointer:
        store.faults = lambda _point: None
        store.close()
        return self.open()

    def close(self) -> None:
        for store in self.opened:
            store.close()


def place_of(kind: str, folder: Path) -> Place:
    if kind == "memory":
        memory = MemoryCheckpointer()
        return Place(kind, lambda: memory)
    survives = kind.removeprefix("lmdb-")
    return Place(kind, lambda: LMDBCheckpointer(folder / "state.lmdb", survives=survives))


def run_row(number=1, **changes):
    values = {"number": number, "names": (f"run-{number}",), "digest": b"d", "claimed_epoch": 1}
    return RunRow(**(values | changes))


def thread_row(thread_id="t", status="running", **changes):
    values = {
        "thread_id": thread_id,
        "graph": "g",
        "version": 1,
        "fingerprint": "f",
        "branch": "b",
        "status": status,
        "run": run_row(),
        "created_us": 0,
    }
    return ThreadRow(**(values | changes))


def checkpoint(seq, *, writes=None, parent=None, **changes):
    values = {
        "step": seq,
        "source": "loop",
        "branch": "b",
        "parent": seq - 1 if parent is None else parent,
        "writes": {"n": b"%d" % seq} if writes is None else writes,
        "versions": None,
        "tasks": (TaskRow("a"),),
        "next_step": seq + 1,
        "joins": {},
        "executed": seq,
        "run_id": "run-1",
    }
    return Checkpoint(**(values | changes))


_OF_CHECKPOINT = ("writes", "versions", "parent", "branch", "deltas", "run_id", "tasks")


def step(thread_id, seq, *, epoch=1, clears=(), **changes):
    """A commit with a checkpoint; the first one brings the thread's row."""
    extra = {key: changes.pop(key) for key in _OF_CHECKPOINT if key in changes}
    if seq == 0:
        extra.setdefault("parent", -1)
        changes.setdefault("thread", thread_row(thread_id))
    at_us = changes.pop("at_us", seq)
    entries = changes.pop("entries", ())
    record = Record(seq, epoch, at_us, checkpoint(seq, **extra), entries)
    return Commit(thread_id=thread_id, incarnation=1, record=record, clears=clears, **changes)


def entry(thread_id, seq, *, epoch=1, **changes):
    """A commit with entries only."""
    record = Record(seq=seq, epoch=epoch, at_us=seq, entries=(Finished(seq),))
    return Commit(thread_id=thread_id, incarnation=1, record=record, **changes)


def message(number, text=b"payload"):
    return InboxMessage(number=number, id=f"m{number}", kind="invoke", run_id="r", payload=text)


def begun(store, *thread_ids):
    """An epoch of the store, with these threads begun in it."""
    epoch = store.acquire()
    if thread_ids:
        assert store.commit(epoch, [step(name, 0) for name in thread_ids]) == [None] * len(
            thread_ids
        )
    return epoch


def codes(results):
    """What became of each commit of a group: None or an error's code."""
    return [None if error is None else error.code for error in results]


class Boom(Exception):
    """What a fault of a test raises."""


def failing_at(point, nth=1, error=None):
    """A fault at the nth time that a point is reached."""
    seen = [0]

    def faults(reached):
        if reached == point:
            seen[0] += 1
            if seen[0] == nth:
                raise Boom(point) if error is None else error

    return faults
