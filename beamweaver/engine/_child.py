"""The machine of a graph that runs inside of a task."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

import msgspec

from beamweaver.checkpoint.entries import Continued, Finished, Inner
from beamweaver.checkpoint.records import Checkpoint, Record, encode_record
from beamweaver.engine._ahead import Loose
from beamweaver.engine._callers import Callers
from beamweaver.engine._core import Stop
from beamweaver.engine.failures import describe
from beamweaver.engine.kept import is_kept
from beamweaver.engine.merge import Merged
from beamweaver.engine.plan import Next
from beamweaver.engine.rows import continue_step, task_rows
from beamweaver.engine.state import Sleep
from beamweaver.errors import SerializationError
from beamweaver.events import StepCommitted
from beamweaver.types import START

if TYPE_CHECKING:
    from collections.abc import Callable

    from beamweaver.checkpoint.entries import Entry
    from beamweaver.checkpoint.records import ThreadRow
    from beamweaver.engine._children import Children, Handed
    from beamweaver.engine.calling import Calling
    from beamweaver.engine.effects import Attempt, Noted
    from beamweaver.engine.plan import Routes
    from beamweaver.engine.state import InnerState, Result, Task

__all__ = ["Child"]

_DEFAULT_LIMIT: Final = 100
"""The `recursion_limit` of a graph that was given none: a subgraph then has that of the graph around."""


class Child(Callers):
    """The machine of a graph that runs inside of a task.

    Args:
        outer: The machine of the graph around.
        attempt: The attempt that it is.
        state: What is known of it.
        birth: Tells it from those that ran in the task before.
        calling: The call that it is; None if the node is the graph.
    """

    state: InnerState
    grows = False  # its records are folded one by one, each with whole values

    def __init__(
        self,
        outer: Children,
        attempt: Attempt,
        state: InnerState,
        birth: int,
        calling: Calling | None = None,
    ) -> None:
        super().__init__(state.graph, outer.env.inside(state.graph), state)
        self.outer: Children = outer
        self.attempt = self.around = attempt
        self.birth = birth
        self.calling = calling
        self.place = attempt.place if calling is None else (*attempt.place, state.key)
        self.call_depth = outer.call_depth + (calling is not None)
        self.alive = True
        self.family = self.sorts = True
        self.frame: Any = None
        """For the driver: what the attempts of this run share."""
        self.commands: list[Result] = []
        """What its last step commands the graph around."""
        self.closing: Checkpoint | None = None
        """Its last step, which is no record, and `lefts`: what graphs in its tasks left in that step."""
        self.lefts: tuple[Entry, ...] = ()
        self._written: tuple[str, ...] | None = None
        self._late_written: tuple[str, ...] = ()
        """The keys that nodes wrote in steps that were left out."""

    def begin(self) -> None:
        """Begin, or go on where it was."""
        self.adopt_run()
        self._end_sleeps()
        state = self.state
        if not state.seq:
            state.seq = 1
            tasks = task_rows(state.step.tasks)
            noted = {"digest": state.digest} if state.digest else {}
            if state.part:
                noted["part"] = state.part.encode()
            try:
                writes = self._start_writes()
            except SerializationError:
                writes = {}  # its first record says so, if it comes to that
            checkpoint = Checkpoint(
                0, "input", "", -1, writes, None, tasks, 0, {}, 0, "", metadata=noted
            )
            state.opening = Record(0, 0, 0, checkpoint, (Finished(0),))
        self.activate()

    def _start_writes(self) -> dict[str, bytes]:
        """The values that it begins with, as they are before any code can have changed them in place.

        Raises:
            SerializationError: One of them cannot be stored.
        """
        encode = self.env.encode
        found = {name: encode(name, value) for name, value in self.state.start.items()}
        return {name: data for name, data in found.items() if data}

    def begin_again(self) -> None:
        """It has failed, and its caller calls it again: it goes on, with fresh counts."""
        continue_step(self.state, None)
        if self.state.opening is None:
            self.state.seq += 1
            at, entries = self.env.now_us(), (Continued(""),)
            self._hand(Record(self.state.seq - 1, 0, at, None, entries))

    def adopt_run(self) -> None:
        """It is part of the run around it, whose time it need not measure."""
        row = self.outer.state.row
        assert row is not None, "what runs has a run"
        run, options = row.run, row.run.options
        if options is not None:
            timeless = msgspec.structs.replace(
                options,
                run_timeout=None,
                metadata={},
                interrupt_before=None,
                interrupt_after=None,
            )
            run = msgspec.structs.replace(run, options=timeless)
        run = msgspec.structs.replace(run, used_us=0)
        self.state.row = msgspec.structs.replace(row, status="running", run=run)

    def adopt_options(self) -> None:
        """The options of the run hold at every depth; that a failure stops all others is one."""
        super().adopt_options()
        self._panics = self._panics or self.outer.panics

    def touch(self) -> None:
        """It was told something: all around it let it advance."""
        if self.attempt.idle is not None:
            self.attempt.beat_at = self.env.clock()
        self.outer.touched = self.outer.touched or {}
        self.outer.touched[self.birth] = self
        self.outer.touch()

    def wrapped(self, key: tuple[Any, ...]) -> tuple[Any, ...]:
        """The key under which the machine around knows one of its timers."""
        return ("in", self.attempt.position, self.birth, key)

    def outer_key(self, key: tuple[Any, ...]) -> tuple[Any, ...]:
        """The key under which the outermost machine asks for one of its timers."""
        return self.outer.outer_key(self.wrapped(key))

    def publish(self, event: Any) -> None:
        """Tell an event, and where it happened."""
        super().publish(msgspec.structs.replace(event, namespace=self.state.names))

    @property
    def step_limit(self) -> int:
        """Its own limit; where it was given none, that of the graph around."""
        own = self.graph.recursion_limit
        return self.outer.step_limit if own == _DEFAULT_LIMIT else own

    # Going on -----------------------------------------------------------------------------------

    def go(self) -> None:
        """Go as far as it goes without the world."""
        while self.alive and (
            (self.touched and self.advance_children())
            or (self.in_flight is None and self._go_once())
        ):
            pass
        if self.alive and self.active and (self.ready or self.ready_async) and self.stop is None:
            self.start_ready()

    def _go_once(self) -> bool:
        if not self.active or self.transition is not None:
            return False
        if (self.ready or self.ready_async) and self.stop is None:
            self.start_ready()
        starved = (self.ready or self.ready_async) and self.stop is None
        if self.running or self.sleeping or starved:
            if self.dirty and (not self.early or self.runs_ahead or self.must_flush()):
                self.flush()
            return False
        return self.close()

    def flush(self) -> None:
        """Hand on what happened; nothing waits for it but those who listen, and due times."""
        loose = self.early and not self.must_flush()
        self._hand_entries(self.take_dirty(), loose=loose)

    def hand_late(self) -> None:
        """Hand on what was left out: a record of the graph around brings it along."""
        for child in self.living():
            child.hand_late()
        if self.alive and (self.late is not None or self.dirty):
            self._hand_entries(self.take_dirty(), loose=self.early)

    def _hand_entries(self, entries: tuple[Entry, ...], *, loose: bool) -> None:
        saved, self._saving = self._saving, []
        acks, self.acking = self.acking or [], None
        if self._open_first(loose=loose):
            checkpoint = None if self.late is None else self._with_late(self.late, None)
            self.state.seq += 1
            record = Record(self.state.seq - 1, 0, self.env.now_us(), checkpoint, entries)
            self._hand(record, loose=loose)
            self._await(partial(self._saved, saved), acks)

    def _saved(self, saved: list[Task | Noted]) -> None:
        before, self._saving = self._saving, saved
        if saved:
            self.wake_saved()
            self.tell_saved()
        self._saving = before

    def doze(self) -> bool:
        """All that is unfinished of it sleeps: so does the task around it, until the first sleep is over."""
        row = self.new_row("sleeping")
        self.commit(self._stopped, entries=self.take_dirty(), row=row)
        return True

    def _drain_asleep(self) -> None:
        self.doze()

    def first_sleep(self) -> Sleep:
        """The sleep of it that is over first, as one of the task around."""
        tasks = [task for task in self.state.step.tasks if task.asleep]
        first = min(tasks, key=lambda task: task.due_us)
        return Sleep(-1, None, first.due_us, first.delay)

    def _end_sleeps(self) -> None:
        """The sleep of the task around is over, though the clock may have been set back: so is its own."""
        slept, now = self.attempt.task.sleeps, self.env.now_us()
        for task in self.state.step.tasks:
            if slept and task.asleep and task.due_us <= slept[-1].due_us:
                task.due_us = min(task.due_us, now)

    def cut_off(self) -> None:
        """It is given up at once: what it has so far is kept, and nobody hears of it again."""
        self.alive = False
        self.halt(Stop("failed"), wait=False)
        entries = self.take_dirty() if self.in_flight is None else ()
        if entries or self.late is not None:
            self._hand_entries(entries, loose=False)
        self.active = False
        self._drop_timers()

    # Committing ---------------------------------------------------------------------------------

    def commit(  # it has no names, no inbox and no place in an index
        self,
        then: Callable[[], None],
        *,
        checkpoint: Checkpoint | None = None,
        entries: tuple[Entry, ...] = (),
        row: ThreadRow | None = None,
        **_of_a_thread: Any,
    ) -> None:
        """Make a record an entry of the graph around; a step's successor waits until that is durable."""
        state = self.state
        acks, self.acking = self.acking or [], None
        status = "running"
        if self.late is not None:
            checkpoint = self._with_late(self.late, checkpoint)
        if row is not None:
            state.row, status = row, row.status
        if status == "complete":
            self.closing, self.lefts = checkpoint, entries
            self._await(then, acks)
            self._end(status)
            return
        record = Record(state.seq, 0, self.env.now_us(), checkpoint, entries)
        if checkpoint is not None and checkpoint.source == "input" and state.opening is not None:
            first = state.opening.checkpoint
            assert first is not None, "a run opens with a checkpoint"
            checkpoint = msgspec.structs.replace(
                checkpoint, metadata=first.metadata, writes=first.writes
            )
            state.opening = msgspec.structs.replace(record, seq=0, checkpoint=checkpoint)
            if status == "running":
                then()
                return
            if not self._open_first():
                return
        elif checkpoint is not None or entries:
            if not self._open_first():
                return
            state.seq += 1
            self._hand(record)
        if status != "running":
            self._await(then, acks)
            self._end(status)
        else:
            self.in_flight, self._then = record, then  # type: ignore[assignment]  # that there is one is all
            self._await(self._committed, acks)

    def goes_early(self, checkpoint: Checkpoint, entries: tuple[Entry, ...] = ()) -> bool:
        """Go on after a step that is not durable yet, if that may be; False if its commit is waited for."""
        if checkpoint.source == "input" and self.state.opening is not None:
            return False  # that is no record yet
        if not self.runs_ahead:
            return super().goes_early(checkpoint, entries)
        if self.root().crowded:
            return False
        if self._open_first(loose=True):
            state = self.state
            state.seq += 1
            record = Record(state.seq - 1, 0, self.env.now_us(), checkpoint, entries)
            self._hand(record, loose=True)
            saved, self._saving = self._saving, []
            acks, self.acking = self.acking or [], None
            if acks or self.env.publishing:
                self._await(partial(self._tell_step, saved, checkpoint.step), acks)
            self.go_on_early(checkpoint.step)
        return True

    def put_off(self, checkpoint: Checkpoint) -> None:
        """Go on at once: the next record brings this step along."""
        self._late_written = (*self._late_written, *self._names_in(checkpoint))
        super().put_off(checkpoint)

    def _with_late(self, late: Checkpoint, checkpoint: Checkpoint | None) -> Checkpoint:
        names = self._late_written if checkpoint is None else self._names_in(checkpoint)
        self._written = tuple(dict.fromkeys((*self._late_written, *names)))
        self._late_written = ()
        return super()._with_late(late, checkpoint)

    def _names_in(self, checkpoint: Checkpoint) -> tuple[str, ...]:
        """The keys that nodes wrote in the step that was just done."""
        if self._written is not None:
            return self._written
        return tuple([name for name in checkpoint.writes if not is_kept(name)])

    def _committed(self) -> None:
        then, self._then, self.in_flight = self._then, None, None
        if self.alive and then is not None:
            then()

    def _open_first(self, *, loose: bool = False) -> bool:
        """See that its first record goes before all others; if that cannot be stored, the run has failed."""
        opening, self.state.opening = self.state.opening, None
        if opening is None:
            return True
        checkpoint = opening.checkpoint
        assert checkpoint is not None, "a run opens with a checkpoint"
        try:
            writes = checkpoint.writes or self._start_writes()
        except SerializationError as error:
            self.state.opening = opening
            me = self.attempt
            self.state.step.failure = describe(error, me.node.name, me.task_id, me.number)
            self.state.row = self.new_row("failed")
            if self.alive:
                self._end("failed")
            return False
        checkpoint = msgspec.structs.replace(checkpoint, writes=writes)
        at = self.env.now_us()
        self._hand(msgspec.structs.replace(opening, checkpoint=checkpoint, at_us=at), loose=loose)
        return True

    def _hand(self, record: Record, *, loose: bool = False) -> None:
        written = self._written if record.checkpoint is not None else None
        entry = Inner(self.attempt.position, encode_record(record), self.state.key, written)
        self.outer.dirty.append(Loose(entry) if loose else entry)

    def _await(self, then: Callable[[], None], acks: list[Handed]) -> None:
        handed = self.outer.handed = self.outer.handed or []
        handed.append((self, then, acks))

    def confirm(self, then: Callable[[], None], deeper: list[Handed]) -> None:
        """A record of it is durable."""
        for child, inner, acks in deeper:
            child.confirm(inner, acks)
        then()
        if self.alive:
            self.touch()
            return
        for effect in self.asked_for():  # one that is no more has nothing but to tell
            self.outer.pass_event(effect)

    def run_stopped(self) -> None:
        """That was told to the machine around when it happened."""

    def _end(self, status: str) -> None:
        self.alive = self.active = False
        self.start_nothing()
        self._drop_timers()
        self.outer.child_ended(self, status)

    # Steps --------------------------------------------------------------------------------------

    def merge_step(self) -> Merged:
        """The state after the open step; what it begins with lasts for its first step too."""
        step = self.state.step
        if step.tasks[0].node != START or step.amendments:
            return super().merge_step()
        self.graph.check_state(self.state.values)
        return Merged(self.state.values, {})

    def planned(self, routes: Routes | None) -> Next:
        """What follows the step; nothing where the graph around was commanded."""
        tasks = self.state.step.tasks
        self.commands = [t.result.up for t in tasks if t.result is not None and t.result.up]
        return Next([], {}) if self.commands else super().planned(routes)

    def apply_step(
        self, merged: Merged, writes: dict[str, bytes], following: Next, executed: int
    ) -> None:
        """Move the state over a step, and note which keys its nodes wrote."""
        names = [name for name in writes if not is_kept(name)]
        self._written = None
        if self.state.step.amendments or self.graph.clearing:
            done = [t.result for t in self.state.step.tasks if t.result is not None]
            by_nodes = {write.channel for result in done for write in result.writes}
            names = [name for name in names if name in by_nodes]
            self._written = tuple(names)
        self.state.written.update(names)
        super().apply_step(merged, writes, following, executed)

    def checkpoint(self, *args: Any, **options: Any) -> Checkpoint:
        """The stored form of its state: what changed alone, for it is folded record by record."""
        made = super().checkpoint(*args, **options)
        return msgspec.structs.replace(
            made, branch="", parent=-1, versions=None, run_id="", metadata={}
        )

    def _tell_committed(self) -> None:
        self.tell_saved()
        number, thread_id = self.state.step.number - 1, self.state.thread_id
        self.publish(StepCommitted(thread_id=thread_id, step=number, checkpoint_id=""))

    def _tell_step(self, saved: list[Task | Noted], step: int) -> None:
        """A step that did not wait for it is durable."""
        before, self._saving = self._saving, saved
        self.tell_saved()
        self._saving = before
        self.publish(StepCommitted(thread_id=self.state.thread_id, step=step, checkpoint_id=""))

    def forget_view(self) -> None:
        """What its tasks see is worked out again, for values were read again."""
        self._view = None
        for child in self.living():
            child.forget_view()


Callers.child_class = Child
