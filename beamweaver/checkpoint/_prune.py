"""Removing checkpoints without harm to those that stay.

A checkpoint that goes may hold values that others need: then a *rest* of it stays (its source is
`"pruned"`) with these values alone. A rest, of no value perhaps, also stays of one that followed on its
branch a checkpoint that stays: what goes on from there must not use the numbers of its steps again. A
checkpoint that stays and whose parent goes gets a full map of versions. As what a checkpoint needs of
older records is what its parent needs and the parent itself, only those whose parent goes have to be
looked at.

The plan is a list of small edits, and after each of them the thread is whole: first full maps, then
removals from the newest to the oldest. So it may be carried out in several transactions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol, TypeAlias

import msgspec

from beamweaver.checkpoint._image import Reader
from beamweaver.checkpoint._stream import PRUNED, Stream, find_head

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from beamweaver.checkpoint.records import Checkpoint, HeadRow, Record

CHUNK: Final = 256
"""How many records are changed in one transaction."""

__all__ = [
    "Editable",
    "Line",
    "Plan",
    "Pruning",
    "Rule",
    "all_rule",
    "make_plan",
    "older_rule",
    "runs_rule",
]


class Editable(Stream, Protocol):
    """A thread's records in a write transaction."""

    def put(self, record: Record) -> None:
        """Write a record over its old form."""

    def drop(self, seq: int) -> None:
        """Remove a record."""

    def mark(self, marks: HeadRow) -> None:
        """Write the head row."""


class Line(msgspec.Struct, frozen=True, gc=False):
    """What a rule knows of a checkpoint."""

    seq: int
    branch: str
    parent: int
    at_us: int
    run_id: str


Rule: TypeAlias = "Callable[[Sequence[Line]], set[int]]"
"""From all checkpoints, oldest first, to the numbers of those that are to go."""


class _Edit(msgspec.Struct, frozen=True, gc=False):
    """One edit of a record; with `versions` a full map, with `keep` a rest, else it is removed."""

    seq: int
    versions: dict[str, int] | None = None
    keep: frozenset[str] | None = None
    counts: bool = False


class Plan(msgspec.Struct, frozen=True):
    """What is to be done to a thread, for as long as it stands as it did."""

    next_seq: int
    marks: HeadRow
    edits: tuple[_Edit, ...]
    floor: bool

    def fits(self, stream: Stream, marks: HeadRow) -> bool:
        """Whether nothing but edits of this plan happened to the thread since it was made."""
        last = next(stream.back(), None)
        next_seq = max(marks.floor, 0 if last is None else last.seq + 1)
        return next_seq == self.next_seq and marks.moves == self.marks.moves


class _Scan:
    """All that a plan needs to know of a thread, without its values."""

    def __init__(self, stream: Stream, marks: HeadRow) -> None:
        self.lines: list[Line] = []
        self.rests: dict[int, frozenset[str]] = {}
        self.after: dict[tuple[int, str], list[int]] = {}
        """Parent and branch -> the checkpoints and rests that follow there."""
        self.entries: dict[int, list[int]] = {}
        self.last = -1
        moves = list(reversed(marks.moves))
        base = -1
        for record in stream.ahead(0):
            while moves and moves[-1].at <= record.seq:
                base = moves.pop().target
            self.last = record.seq
            checkpoint = record.checkpoint
            if checkpoint is None:
                self.entries.setdefault(base, []).append(record.seq)
                continue
            after = self.after.setdefault((checkpoint.parent, checkpoint.branch), [])
            after.append(record.seq)
            if checkpoint.source == PRUNED:
                self.rests[record.seq] = frozenset([*checkpoint.writes, *checkpoint.deltas])
            else:
                base = record.seq
                self.lines.append(
                    Line(
                        base,
                        checkpoint.branch,
                        checkpoint.parent,
                        record.at_us,
                        checkpoint.run_id,
                    )
                )


def make_plan(stream: Stream, marks: HeadRow, thread_id: str, rule: Rule) -> Plan | None:
    """What is to be done so that the checkpoints of a rule go; None if there is nothing to do.

    The head never goes.

    Raises:
        CorruptRecord: A record that a remaining checkpoint needs is missing or damaged.
    """
    head = find_head(stream, marks)
    if head is None:
        return None
    scan = _Scan(stream, marks)
    doomed = rule(scan.lines) - {head.checkpoint.seq}
    if not doomed and not scan.rests:
        return None
    staying = [line for line in scan.lines if line.seq not in doomed]
    edits: list[_Edit] = []
    needed = _needed(stream, thread_id, staying, edits)
    for line in staying:
        for seq in scan.after.get((line.seq, line.branch), ()):
            needed.setdefault(seq, set())
    going = {**dict.fromkeys(doomed), **scan.rests}
    for seq in sorted(going, reverse=True):
        edits += [_Edit(entry) for entry in scan.entries.get(seq, ()) if seq in doomed]
        keep = frozenset(needed[seq]) if seq in needed else None
        if seq in doomed or keep != going[seq]:
            edits.append(_Edit(seq, keep=keep, counts=seq in doomed))
    gone = {edit.seq for edit in edits if edit.versions is None and edit.keep is None}
    return Plan(head.next_seq, marks, tuple(edits), scan.last in gone) if edits else None


def _needed(
    stream: Stream, thread_id: str, staying: Sequence[Line], edits: list[_Edit]
) -> dict[int, set[str]]:
    """Which values of records that do not stay are needed; full maps go to `edits`."""
    kept = {line.seq for line in staying}
    needed: dict[int, set[str]] = {}
    for line in staying:
        if line.parent in kept:
            continue
        record = stream.get(line.seq)
        if record is None or record.checkpoint is None:
            continue  # it was there a moment ago, in the same snapshot
        reader = Reader(thread_id, stream.get, {line.seq: record})
        versions, _ = reader.versions(record)
        if record.checkpoint.versions is None:
            edits.append(_Edit(line.seq, versions=versions))
        for channel, version in versions.items():
            for seq in reader.chain(version, channel):
                if seq not in kept:
                    needed.setdefault(seq, set()).add(channel)
    return needed


def carry_out(stream: Editable, plan: Plan, edits: Sequence[_Edit]) -> int:
    """Do some of a plan's edits, in order; how many checkpoints went."""
    if plan.floor:
        stream.mark(msgspec.structs.replace(plan.marks, floor=plan.next_seq))
    for edit in edits:
        record = stream.get(edit.seq)
        checkpoint = None if record is None else record.checkpoint
        if record is None or checkpoint is None or (edit.versions is None and edit.keep is None):
            stream.drop(edit.seq)
            continue
        if edit.versions is not None:
            full = msgspec.structs.replace(checkpoint, versions=edit.versions)
            stream.put(msgspec.structs.replace(record, checkpoint=full))
        else:
            rest = _rest(checkpoint, edit.keep or frozenset())
            stream.put(msgspec.structs.replace(record, checkpoint=rest, entries=()))
    return sum(edit.counts for edit in edits)


def _rest(checkpoint: Checkpoint, keep: frozenset[str]) -> Checkpoint:
    """What is left of a checkpoint that is removed."""
    return msgspec.structs.replace(
        checkpoint,
        source=PRUNED,
        versions=None,
        tasks=(),
        joins={},
        writes={name: data for name, data in checkpoint.writes.items() if name in keep},
        deltas={name: row for name, row in checkpoint.deltas.items() if name in keep},
    )


class Pruning:
    """A plan that is carried out in several transactions of one thread.

    Args:
        thread_id: The thread.
        rule: What is to go.
        plan: A plan that was made in a read before, so that the first transaction need not look through
            the whole thread.
    """

    def __init__(self, thread_id: str, rule: Rule, plan: Plan | None) -> None:
        self._thread_id = thread_id
        self._rule = rule
        self._plan = plan
        self._next = 0

    def step(self, stream: Editable, marks: HeadRow) -> tuple[int, bool]:
        """Do a part of it in one transaction: how many checkpoints went, and whether there is more to do."""
        plan = self._plan
        if plan is None or not plan.fits(stream, marks):
            plan = self._plan = make_plan(stream, marks, self._thread_id, self._rule)
            self._next = 0
        if plan is None:
            return 0, False
        edits = plan.edits[self._next : self._next + CHUNK]
        self._next += len(edits)
        return carry_out(stream, plan, edits), self._next < len(plan.edits)


def older_rule(keep_last: int, before_us: int | None) -> Rule:
    """The rule of `prune`: all but the newest `keep_last` of each branch, if older than `before_us`."""

    def doomed(lines: Sequence[Line]) -> set[int]:
        left: dict[str, int] = {}
        found: set[int] = set()
        for line in reversed(lines):
            count = left.get(line.branch, 0)
            left[line.branch] = count + 1
            if count >= keep_last and (before_us is None or line.at_us < before_us):
                found.add(line.seq)
        return found

    return doomed


def runs_rule(run_ids: frozenset[str]) -> Rule:
    """The rule of `delete_runs`: the checkpoints of these runs, known by their first names."""
    return lambda lines: {line.seq for line in lines if line.run_id in run_ids}


def all_rule(lines: Sequence[Line]) -> set[int]:
    """The rule of a shallow store: nothing but the head stays."""
    return {line.seq for line in lines}
