"""Running ahead: steps that go on before they are durable, in both modes in which they may.

Under `durability="async"` a commit that nobody has to wait for goes to a *window* of the thread: commits on
their way to the store, in their order. What follows it starts at once. Under `"exit"` such a commit is left
out, and the next one brings its step along. Everything else is one commit in flight, as ever: as a thread's
records are one ordered stream, it is durable only with all that was in the window before it.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

import msgspec

from beamweaver.checkpoint.entries import Answered, Asked, Edited, Finished, Inner, Left, Memo
from beamweaver.engine._dozing import Dozing
from beamweaver.engine.effects import Noted, WriteAhead
from beamweaver.engine.ids import checkpoint_id
from beamweaver.engine.state import Task
from beamweaver.events import StepCommitted

if TYPE_CHECKING:
    from beamweaver.checkpoint.entries import Entry, UpRow
    from beamweaver.checkpoint.records import Checkpoint, Commit
    from beamweaver.engine._children import Handed

__all__ = ["Ahead", "Flight", "Loose", "size_of"]

_UNHEARD = 64
"""How many graphs in tasks may wait, while records are left out, to hear that their ends are durable."""


class Loose(msgspec.Struct, eq=False):
    """A record of a graph in a task that nobody waits for, while it is in no commit."""

    entry: Inner


class Flight(msgspec.Struct, eq=False):
    """A commit in the window, and who hears that it is durable."""

    commit: Commit
    size: int
    saved: list[Task | Noted]
    acks: list[Handed] | None


class Ahead(Dozing):
    """The side of a machine that goes on before a step is durable.

    The window has a bound in commits and bytes, and that of all threads together one in bytes. A commit that
    finds no room is in flight as if it had to be waited for, and enters when there is room.
    """

    window: deque[Flight] | None = None
    """Commits on their way that nothing waits for, the oldest first."""
    _bytes = 0
    """The size of the commits in the window."""
    _all_full = False
    """Whether the windows of all threads together had no more room at the last look."""
    _outside: Commit | None = None
    """The commit in flight that enters the window when there is room."""
    _saved_last = -1
    """The last record of results that went into the window."""

    # Going on early -----------------------------------------------------------------------------

    def adopt_options(self) -> None:
        """The run's own options hold, or else those of the graph; the run's time begins anew."""
        super().adopt_options()
        options = self.state.run.options
        mode = "" if options is None else options.durability
        self.early, self.runs_ahead = mode in ("exit", "async"), mode == "async"

    def goes_early(self, checkpoint: Checkpoint, entries: tuple[Entry, ...] = ()) -> bool:
        """Go on after a step that is not durable yet, if that may be; False if its commit is waited for."""
        if self.runs_ahead:
            self.commit(self.step_committed, checkpoint=checkpoint, entries=entries)
            self._run_ahead()
            return True
        if len(self.acking or ()) >= _UNHEARD:
            return False
        self.put_off(checkpoint)
        return True

    def step_committed(self) -> None:
        """A step that was waited for is durable."""

    def put_off(self, checkpoint: Checkpoint) -> None:
        """Go on at once: the next record brings this step along."""
        assert not checkpoint.deltas, "a step that is left out has whole values"
        if self.late is not None:
            writes = {**self.late.writes, **checkpoint.writes}
            checkpoint = msgspec.structs.replace(checkpoint, writes=writes)
        self.late = checkpoint
        state = self.state
        # What has no record does not count as one after the last full map of versions.
        full = checkpoint.versions is not None
        state.since_full = self.env.limits.full_versions_every - 1 if full else state.since_full - 1
        self._saving = []
        self.go_on_early(checkpoint.step)

    def go_on_early(self, step: int) -> None:
        """The planned step begins; the one before is not durable."""
        if self.env.publishing:
            self.publish(
                StepCommitted(
                    thread_id=self.state.thread_id, step=step, checkpoint_id="", durable=False
                )
            )
        self.begin_planned()

    def flush(self) -> None:
        """Make what happened durable while other tasks still run."""
        loose = self.runs_ahead and not self.must_flush()
        self.commit(self.flushed, entries=self.take_dirty())
        if loose:
            self._saved_last = self.state.seq - 1
            self._run_ahead()

    def flushed(self) -> None:
        """What a commit took of what happened is durable."""
        if self._saving:
            self.wake_saved()
            self.tell_saved()

    def gather_early(self) -> None:
        """Bring along what graphs in tasks have left out, in a form that is stored."""
        self.dirty = [item.entry if type(item) is Loose else item for item in self.dirty]

    def must_flush(self) -> bool:
        """Whether what happened must be durable before it takes effect; a result need not."""
        told = any(type(item) is Noted for item in self._unsaved)
        return told or any(type(item) not in (Task, Loose, Left) for item in self.dirty)

    def may_flush(self) -> bool:
        """Whether results that need not be durable before they take effect are written now.

        One record of results is on its way at a time: those that arrive meanwhile go together, and not at all
        if the step is done before.
        """
        if not self.runs_ahead:
            return False
        if not self.window or self.window[0].commit.record.seq > self._saved_last:
            return True
        return self.has_loose()

    def has_loose(self) -> bool:
        """Whether graphs in tasks have records that are in no commit."""
        return any(type(item) is Loose for item in self.dirty)

    # The window ---------------------------------------------------------------------------------

    @property
    def crowded(self) -> bool:
        """Whether a commit that nobody has to wait for would have to wait."""
        limits = self.env.limits
        return self.in_flight is not None or (
            self.window is not None
            and len(self.window) > 0
            and (
                self._all_full
                or len(self.window) >= limits.ahead_commits
                or self._bytes >= limits.ahead_bytes
            )
        )

    def _run_ahead(self) -> None:
        """The commit that was just made need not be waited for."""
        commit = self._outside = self.in_flight
        assert commit is not None, "it was just made"
        self._effects[-1] = WriteAhead(commit)
        self._enter_window()

    def _enter_window(self) -> None:
        """Go on after the commit in flight, if it need not be waited for and there is room."""
        commit, window = self._outside, self.window
        if commit is None or commit is not self.in_flight:
            return
        size, limits = size_of(commit), self.env.limits
        if window and (
            self._all_full
            or len(window) >= limits.ahead_commits
            or self._bytes + size > limits.ahead_bytes
        ):
            return
        self.in_flight = self._outside = self._then = None
        flight = Flight(commit, size, self._saving, self.acking)
        self._saving, self.acking = [], None
        if window is None:
            window = self.window = deque()
        window.append(flight)
        self._measure(size)
        if commit.record.checkpoint is not None:
            self.go_on_early(commit.record.checkpoint.step)

    def _measure(self, change: int) -> None:
        self._bytes += change
        self._all_full = not self.env.ahead(self._bytes)

    def acknowledged_ahead(self, seq: int) -> None:
        """The commits in the window up to record `seq` are durable."""
        window, freed = self.window, 0
        while window and window[0].commit.record.seq <= seq:
            flight = window.popleft()
            freed += flight.size
            self._durable(flight)
        self._measure(-freed)
        self._enter_window()

    def _durable(self, flight: Flight) -> None:
        for child, then, deeper in flight.acks or ():
            child.confirm(then, deeper)
        record = flight.commit.record
        if not self.env.publishing:
            return
        before, self._saving = self._saving, flight.saved
        self.tell_saved()
        self._saving = before
        if record.checkpoint is not None:
            self.publish(
                StepCommitted(
                    thread_id=self.state.thread_id,
                    step=record.checkpoint.step,
                    checkpoint_id=checkpoint_id(record.checkpoint.branch, record.seq),
                )
            )


def size_of(commit: Commit) -> int:
    """About how many bytes the values of a commit have, wherever they are in it."""
    checkpoint, size = commit.record.checkpoint, 0
    if checkpoint is not None:
        size += sum(map(len, checkpoint.writes.values()))
        for row in checkpoint.tasks:
            if row.update is not None:
                size += sum(map(len, row.update.values()))
        if checkpoint.deltas or checkpoint.deferred or checkpoint.metadata:
            size += _rarer_size(checkpoint)
    for entry in commit.record.entries:
        size += _entry_size(entry)
    for message in commit.inbox_put:
        size += len(message.payload)
    return size


def _rarer_size(checkpoint: Checkpoint) -> int:
    size = sum(len(delta.data) for delta in checkpoint.deltas.values())
    size += sum(map(len, checkpoint.metadata.values()))
    for row in checkpoint.deferred:
        size += sum(map(len, (row.update or {}).values()))
    return size


def _entry_size(entry: Entry) -> int:
    match entry:
        case Finished():
            size = _result_size(entry) + sum(map(len, (entry.kept or {}).values()))
            return size if entry.up is None else size + _result_size(entry.up)
        case Edited():
            return _result_size(entry)
        case Inner():
            return len(entry.data)
        case Asked():
            return len(entry.value) + len(entry.schema)
        case Memo() | Answered():
            return len(entry.value)
        case Left():
            return _left_size(entry)
        case _:
            return 0  # its texts have bounds of their own


def _left_size(left: Left) -> int:
    size = sum(map(len, left.own.values())) + sum(len(row[1]) for row in left.back)
    return size + len(left.opening) + sum(map(_left_size, left.inside))


def _result_size(row: Finished | Edited | UpRow) -> int:
    size = sum(len(write[1]) for write in row.writes)
    for send in row.sends:
        size += sum(map(len, send.update.values()))
    return size
