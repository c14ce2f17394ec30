"""Builders of what the checks write."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from beamweaver.checkpoint.conformance._check import expect
from beamweaver.checkpoint.entries import Finished, TaskRow
from beamweaver.checkpoint.records import (
    Checkpoint,
    Commit,
    InboxMessage,
    Record,
    RunRow,
    ThreadRow,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from beamweaver.checkpoint.base import Checkpointer
    from beamweaver.checkpoint.records import StatusName
    from beamweaver.errors import StoreError

__all__ = [
    "Crash",
    "begun",
    "codes",
    "crash_at",
    "entry",
    "message",
    "run_row",
    "seqs",
    "step",
    "thread_row",
    "values",
    "write",
]

_OF_CHECKPOINT = ("writes", "versions", "parent", "branch", "deltas", "run_id", "tasks")


class Crash(Exception):
    """What a check raises at a point, to stand for the end of the process."""


def run_row(number: int = 1) -> RunRow:
    """The row of a run."""
    return RunRow(number=number, names=(f"run-{number}",), digest=b"d", claimed_epoch=1)


def thread_row(thread_id: str, status: StatusName = "running", run: int = 1) -> ThreadRow:
    """The row of a thread."""
    return ThreadRow(thread_id, "g", 1, "f", "b", status, run_row(run), 0)


def step(thread_id: str, seq: int, **changes: Any) -> Commit:
    """A commit with a checkpoint; the first one brings the thread's row."""
    made: dict[str, Any] = {
        "step": seq,
        "source": "loop",
        "branch": "b",
        "parent": seq - 1,
        "writes": {"n": b"%d" % seq},
        "versions": None,
        "tasks": (TaskRow("a"),),
        "next_step": seq + 1,
        "joins": {},
        "executed": seq,
        "run_id": "run-1",
    }
    made.update({name: changes.pop(name) for name in _OF_CHECKPOINT if name in changes})
    if seq == 0:
        changes.setdefault("thread", thread_row(thread_id))
    at_us = changes.pop("at_us", seq)
    record = Record(seq, 1, at_us, Checkpoint(**made))
    return Commit(thread_id=thread_id, incarnation=1, record=record, **changes)


def entry(thread_id: str, seq: int, **changes: Any) -> Commit:
    """A commit with an entry only."""
    record = Record(seq, 1, seq, entries=(Finished(seq),))
    return Commit(thread_id=thread_id, incarnation=1, record=record, **changes)


def message(number: int) -> InboxMessage:
    """A message of an inbox."""
    return InboxMessage(number, f"m{number}", "invoke", "r", b"payload")


def begun(store: Checkpointer, *thread_ids: str) -> int:
    """An epoch of the store, with these threads begun in it."""
    epoch = store.acquire()
    write(store, epoch, *[step(name, 0) for name in thread_ids])
    return epoch


def write(store: Checkpointer, epoch: int, *commits: Commit) -> None:
    """Write commits, and see that the store took them."""
    expect(codes(store.commit(epoch, commits)), [None] * len(commits), "what became of the commits")


def codes(results: Sequence[StoreError | None]) -> list[str | None]:
    """What became of each commit of a group: None or an error's code."""
    return [None if error is None else error.code for error in results]


def crash_at(point: str, nth: int = 1) -> Callable[[str], None]:
    """Faults that end the process at the nth time that a point is reached."""
    seen = [0]

    def faults(reached: str) -> None:
        seen[0] += reached == point
        if reached == point and seen[0] == nth:
            raise Crash(point)

    return faults


def values(store: Checkpointer, thread_id: str, seq: int | None = None) -> dict[str, bytes] | None:
    """The values of a checkpoint, or None."""
    image = store.load(thread_id, seq)
    return None if image is None else image.values


def seqs(store: Checkpointer, thread_id: str, **options: Any) -> list[int]:
    """The numbers of a thread's checkpoints, newest first."""
    return [image.checkpoint.seq for image in store.history(thread_id, **options)]
