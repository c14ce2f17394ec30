"""A commit that is written alone is answered as one that is written as a group, and leaves the same bytes."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from beamweaver.checkpoint._layout import RECORDS, read_number, tail, thread_key
from beamweaver.checkpoint._retention import delete
from beamweaver.checkpoint.base import no_faults
from beamweaver.checkpoint.records import Commit
from beamweaver.checkpoint.store import RecordWriter
from beamweaver.errors import StoreError, StoreFull
from tests.checkpoint.kit import codes, entry, message, step, thread_row
from tests.checkpoint.test_seam import DictKv

STEPS = 100
POINTS = ["put.before", "put.after", "sync.before", "sync.after"]
ERRORS = [StoreError("no"), StoreFull("no room"), ValueError("mine"), KeyboardInterrupt()]


class Pair:
    """Two stores with the same history: where it may, one writes alone; the other never does."""

    def __init__(self) -> None:
        self.kvs = [DictKv(), DictKv()]
        self.writers = [
            RecordWriter(self.kvs[0], "a dict"),
            RecordWriter(self.kvs[1], "a dict", max_bytes=1 << 60),  # room is judged for a group
        ]
        for writer in self.writers:
            writer.initialise()
            assert writer.raise_epoch(0)

    def next_seq(self, thread_id: str) -> int:
        records = RECORDS + thread_key(thread_id)
        last = self.kvs[0].begin(write=False).last(records, tail(records))
        return 0 if last is None else read_number(last) + 1

    def answers(self, call: Callable[[RecordWriter], Any], interruption: Any) -> list[object]:
        found: list[object] = []
        for kv, writer in zip(self.kvs, self.writers, strict=True):
            kv.interruption = interruption
            try:
                found.append(call(writer))
            except BaseException as error:
                found.append(type(error))
            kv.interruption = None
        return found


def some_commit(rng: random.Random, thread_id: str, following: int) -> Commit:
    """A commit of the thread, most often the one that follows."""
    seq = following if rng.random() < 0.85 else rng.randrange(following + 2)
    if rng.random() < 0.1:
        return entry(thread_id, seq)
    parent = seq - 1 if rng.random() < 0.9 else rng.randrange(-1, seq + 1)
    commit = step(thread_id, seq, parent=parent)
    if rng.random() < 0.1:
        commit = replace(commit, thread=None)
    if seq and rng.random() < 0.1:
        commit = replace(commit, thread=thread_row(thread_id, status="waiting"))
    if rng.random() < 0.1:
        commit = replace(commit, inbox_put=(message(rng.randrange(5)),))
    if rng.random() < 0.15:
        commit = replace(commit, record=replace(commit.record, at_us=object()))
    return commit


def some_call(rng: random.Random, thread_id: str, following: int) -> Callable[[RecordWriter], Any]:
    kind = rng.random()
    if kind < 0.05:
        return lambda writer: delete(writer, 1, thread_id)
    if kind < 0.1:
        return lambda writer: writer.adopt(1)
    commit, epoch = some_commit(rng, thread_id, following), 1 if rng.random() < 0.9 else 2
    point, error = rng.choice(POINTS), rng.choice(ERRORS)

    def fault(reached: str) -> None:
        if reached == point:
            raise error

    faults = fault if rng.random() < 0.1 else no_faults
    return lambda writer: codes(writer.commit(epoch, [commit], faults))


@pytest.mark.parametrize("seed", range(30))
def test_a_commit_is_answered_alone_as_in_a_group(seed: int):
    rng, pair = random.Random(seed), Pair()
    for number in range(STEPS):
        thread_id = rng.choice("ab")
        call = some_call(rng, thread_id, pair.next_seq(thread_id))
        interruption = KeyboardInterrupt() if rng.random() < 0.03 else None
        alone, together = pair.answers(call, interruption)

        assert (alone, pair.kvs[0].pairs) == (together, pair.kvs[1].pairs), (
            f"seed {seed}, step {number}"
        )
