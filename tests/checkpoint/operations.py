"""Each operation of a store, on a store that was filled for it: what is made to fail, call by call."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

from beamweaver.checkpoint import LMDBCheckpointer, _prune, _retention
from beamweaver.checkpoint.deltas import appended, join
from beamweaver.checkpoint.records import DeltaRow
from tests.checkpoint.kit import begun, entry, message, run_row, step, thread_row

LONG = 40
"""How many records a thread has whose removal takes several transactions, of few edits each."""
_ADDED = join([appended(b"\x91\x01")])


@dataclasses.dataclass(frozen=True)
class Operation:
    """A call, and whether the store is owned before it."""

    call: Callable[[LMDBCheckpointer, int], object]
    owned: bool = True


def filled(path):
    """A closed store with a long thread, and one of two runs with a message."""
    store = opened(path, "process-kill")
    epoch = begun(store, "long")
    commits = [step("runs", 0, run_names=(("run-1", 1),), run_ended=(1, 3))]
    commits += [step("runs", seq) for seq in (1, 2, 3)]
    last = thread_row("runs", run=run_row(2, names=("run-2",)))
    commits.append(step("runs", 4, run_id="run-2", thread=last, run_names=(("run-2", 2),)))
    commits.append(entry("runs", 5, inbox_put=(message(1),)))
    commits += [
        step("long", seq) if seq % 8 else step("long", seq, writes={}, deltas=_delta(seq))
        for seq in range(1, LONG)
    ]
    assert store.commit(epoch, commits) == [None] * len(commits)
    store.close()
    return path


def in_small_pieces():
    """Have this process do what is large in many transactions, though the threads here are short."""
    _prune.CHUNK = _retention.CHUNK = 16


def _delta(seq):
    return {"n": DeltaRow(seq - 1, _ADDED)}


def opened(path, survives):
    store = LMDBCheckpointer(path, survives=survives)
    store.now = lambda: 0.0
    return store


def _commit(store, epoch, *commits):
    assert store.commit(epoch, list(commits)) == [None] * len(commits)


def _next(store, name):
    return store.load(name).next_seq


def _group(store, epoch):
    done = thread_row("runs", "waiting", run=run_row(2, names=("run-2",)))
    _commit(
        store,
        epoch,
        step("long", LONG),
        step("runs", 6, parent=4, clears=(5,), inbox_drop=(1,), thread=done),
        step("new", 0, run_names=(("r", 1),), inbox_put=(message(1),)),
        entry("new", 1),
    )


def _let_go(store, _epoch):
    """A store that survives a process kill is synced when it is closed."""
    store.close()


OPERATIONS: dict[str, Operation] = {
    "open": Operation(lambda store, _epoch: store.load("runs"), owned=False),
    "acquire": Operation(lambda store, _epoch: store.acquire(), owned=False),
    "commit": Operation(lambda store, epoch: _commit(store, epoch, entry("runs", 6))),
    "group": Operation(_group),
    "large": Operation(
        lambda store, epoch: _commit(store, epoch, step("big", 0, writes={"n": bytes(300_000)}))
    ),
    "set_head": Operation(lambda store, epoch: store.set_head(epoch, "runs", 2)),
    "copy_thread": Operation(lambda store, epoch: store.copy_thread(epoch, "long", "copy")),
    "delete_thread": Operation(lambda store, epoch: store.delete_thread(epoch, "long")),
    "delete_runs": Operation(lambda store, epoch: store.delete_runs(epoch, "runs", ["run-1"])),
    "prune": Operation(lambda store, epoch: list(store.prune(epoch, keep_last=2))),
    "compact": Operation(lambda store, _epoch: store.compact(copy_of(store.identity))),
    "close": Operation(_let_go),
}


def copy_of(path):
    """Where `compact` puts the copy of a store."""
    return Path(path + ".copy")
