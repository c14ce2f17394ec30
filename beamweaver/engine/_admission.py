"""Calls: what each does to the thread as it stands, in one commit."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import msgspec

from beamweaver.checkpoint.records import InboxMessage, RejectedRow, RunRow, ThreadRow, encode_call
from beamweaver.engine._continuing import Continuations, amendment_of
from beamweaver.engine._core import Stop
from beamweaver.engine.breakpoints import breaks_of, pause
from beamweaver.engine.calls import (
    UNFINISHED,
    Call,
    CallKind,
    Decision,
    decide,
    is_left,
)
from beamweaver.engine.effects import Admitted, ReplyRecorded
from beamweaver.engine.merge import Merged, merge
from beamweaver.engine.options import joined
from beamweaver.engine.plan import Next, exits_of, must_ask, plan, unasked
from beamweaver.engine.rows import call_row, continue_step, continued_row, finished_row
from beamweaver.engine.state import OpenStep, Result, Task
from beamweaver.errors import (
    BeamWeaverError,
    GraphChanged,
    IdempotencyKeyReused,
    InboxFull,
    Quarantined,
)
from beamweaver.events import MessageRejected, RunAdmitted
from beamweaver.types import START

if TYPE_CHECKING:
    from collections.abc import Callable

    from beamweaver.checkpoint.entries import Entry
    from beamweaver.checkpoint.records import Checkpoint, StatusName
    from beamweaver.engine.calls import Prepared
    from beamweaver.engine.plan import Routes

__all__ = ["Admissions"]

_TAKES_UP = (Decision.TAKE_UP, Decision.AMEND, Decision.ANSWER)
"""What takes up an unfinished run that does not execute here."""
_FINDS = (Decision.TAKE_UP, Decision.GO_ON, Decision.JOIN, Decision.REPORT)
"""What leaves the run as it is, whatever the call's input."""
_PASSING = (InboxFull, Quarantined, GraphChanged)
"""What says nothing of a message: who brought it brings it again, or tells its sender."""


class Admissions(Continuations):
    """The side of a machine that takes calls."""

    def take(self, call: Call) -> None:
        """Decide a call; refuse it, answer it, or put its commit on its way."""
        if call.withdrawn:
            return
        state, epoch = self.state, self.env.epoch
        stopping = self.stop is not None or self.state.step.failing
        try:
            if call.key and call.message is None and self.repeats(call):
                return
            decision = decide(
                state,
                call,
                active=self.active,
                epoch=epoch,
                stopping=stopping,
                behind=bool(self.queue),
            )
            self.check_fits(decision)
            if decision in _TAKES_UP and (
                self.one_death_too_many() or self._has_its_turn_later(call, decision)
            ):
                self.calls.appendleft(call)
                self.take_up()
            else:
                if self.graph.unstored and call.input is not None and decision in _FINDS:
                    self.take_lost(call.input.writes)
                self._acts[decision](self, call)
        except BeamWeaverError as error:
            self._turn_away(call, error)

    def _has_its_turn_later(self, call: Call, decision: Decision) -> bool:
        """An input for a run that was left, with messages behind it, which came first; or one with a key,
        which is a message of its own and never taken for the call that began the run.
        """
        if call.kind is not CallKind.INVOKE or self.state.status not in UNFINISHED:
            return False
        if call.key and call.input is not None:
            return not (call.again or call.rerun or call.on_unfinished == "reject")
        return decision is Decision.AMEND and bool(self.queue)

    def _turn_away(self, call: Call, error: BeamWeaverError) -> None:
        """Refuse a call; a durable message, whose sender has gone, is remembered as rejected.

        One that was brought and for which there is no place now is not judged.
        """
        row = self.state.row
        heard = call.message is None and (not call.lasting or type(error) in _PASSING)
        if row is None or heard:
            self.refuse(call, error)
            return
        if any(each.id == call.id for each in row.rejected):
            self._rejected(call, error)
            return
        kept = RejectedRow(
            call.id, call.kind.value, call.run_id, error.code, error.message, self.env.now_us()
        )
        rejected = (*row.rejected, kept)[-self.env.limits.rejected :]
        self.commit(
            lambda: self._rejected(call, error),
            row=msgspec.structs.replace(row, rejected=rejected),
            **({} if type(error) is IdempotencyKeyReused else self.about(call, call.run_id)),
        )

    def _rejected(self, call: Call, error: BeamWeaverError) -> None:
        if self.env.publishing:
            self.publish(
                MessageRejected(
                    thread_id=self.state.thread_id,
                    message_id=call.id,
                    code=error.code,
                    message=error.message,
                )
            )
        self.refuse(call, error)

    def _consume(self, call: Call, then: Callable[[], None], run_id: str = "") -> None:
        """Go on when the call's durable message is out of the inbox, and its key is kept."""
        kept = self.about(call, run_id)
        if kept:
            self.commit(then, **kept)
        else:
            then()

    # A new run ----------------------------------------------------------------------------------

    def _start_anew(self, call: Call) -> None:
        self._start_run(call, self.state.step.number)

    def _restart(self, call: Call) -> None:
        """A new run on the committed state; what is pending of the old one goes with the commit."""
        self._start_run(call, self.state.step.number + 1, "restart")

    def _start_run(self, call: Call, number: int, source: str = "input") -> None:
        """Admit an input: the entry's merge and plan in one record, or its routers first."""
        prepared = call.input
        assert prepared is not None, "a run starts with an input"
        state = self.state
        before = state.step, state.joins, state.deferred, state.spent, state.branch
        state.branch = state.branch or self.env.new_id()
        state.step = OpenStep(number, [_start_task(prepared)])
        state.joins, state.deferred, state.spent = {}, (), {}
        exits = exits_of(self.graph, state.step)
        try:
            if must_ask(exits, {}):
                # The entry is a step whose only task is the input: its routers run as its transition.
                self._merge_input()
                self._admit_entry(call, source)
            else:
                self._admit_run(call, source, unasked(exits, {}) if exits else None)
        except BeamWeaverError:
            state.step, state.joins, state.deferred, state.spent, state.branch = before
            raise
        self.unfit = None

    def _merge_input(self) -> Merged:
        """The state after an input.

        Raises:
            InvalidUpdate: It lacks what the schema requires, or the class of the schema refuses it.
            ReducerFailed: A reducer raised.
        """
        merged = merge(self.graph, self.state.values, self.state.step)
        if self.graph.required:
            self.graph.check_complete(merged.values)
        self.graph.check_state(merged.values)
        return merged

    def _admit_entry(self, call: Call, source: str) -> None:
        state = self.state
        start = state.step
        row = self._admitted_row(call, "running")
        self.apply_step(Merged(state.values, {}), {}, Next(start.tasks, {}), 0)
        state.step = start
        checkpoint = self.checkpoint(source, start.number, {}, run=row.run)
        self._commit_admission(call, checkpoint, row, (finished_row(start.tasks[0]),))

    def _admit_run(self, call: Call, source: str, routes: Routes | None) -> None:
        state = self.state
        number = state.step.number
        merged = self._merge_input()
        writes = self.encoded(merged, state)
        following = plan(self.graph, state, routes)
        self.check_size(following, merged.values)
        paused = pause(breaks_of(self.graph, call.options), (), following.tasks)
        status: StatusName = "running" if following.tasks else "complete"
        row = self._admitted_row(call, status if paused is None else "waiting")
        self.apply_step(merged, writes, following, 0)
        state.step.paused = paused
        checkpoint = self.checkpoint(source, number, writes, merged.growth, row.run)
        self._commit_admission(call, checkpoint, row, () if paused is None else (paused,))

    def _commit_admission(
        self, call: Call, checkpoint: Checkpoint, row: ThreadRow, entries: tuple[Entry, ...]
    ) -> None:
        ended = None
        if row.status == "complete":
            ended = (row.run.number, self.state.checkpoint_seq)
        self.commit(
            lambda: self._admitted(call),
            checkpoint=checkpoint,
            entries=entries,
            row=row,
            names=((call.run_id, row.run.number),),
            ended=ended,
            **self.about(call, call.run_id),
        )

    def _admitted(self, call: Call) -> None:
        self.admit(call)
        if self.env.publishing:
            self.publish(RunAdmitted(thread_id=self.state.thread_id, run_id=call.run_id))
        if self.state.status in ("complete", "waiting"):
            self.run_stopped()
        else:
            self.activate()

    def _admitted_row(self, call: Call, status: StatusName) -> ThreadRow:
        state = self.state
        now = self.env.now_us()
        old = state.row
        if old is not None:
            self._remember_names(old.run)
        run = RunRow(
            number=old.last_run + 1 if old is not None else 1,
            names=(call.run_id,),
            digest=b"" if call.input is None else call.input.digest,
            claimed_epoch=self.env.epoch,
            recursion_limit=call.recursion_limit,
            started_us=now,
            options=call.options,
            place=call.place,
        )
        return ThreadRow(
            thread_id=state.thread_id,
            graph=self.graph.name,
            version=self.graph.version,
            fingerprint=self.graph.fingerprint,
            branch=state.branch,
            status=status,
            run=run,
            created_us=old.created_us if old is not None else now,
            rejected=old.rejected if old is not None else (),
        )

    def _remember_names(self, run: RunRow) -> None:
        """A run gives way to the next: calls that wait here under one of its names are calls of that run."""
        for call in (*self.calls, *self.queue):
            if call.known_run is None and call.run_id in run.names:
                call.known_run = run.number

    # The run that is there: it executes here ----------------------------------------------------

    def _join(self, call: Call) -> None:
        """Wait for a run that executes here."""
        left = is_left(self.state, self.env.epoch)
        if left or self.in_row(call) or self.about(call):
            self._claim(call, then=lambda: self.admit(call))
        else:
            self.admit(call)

    def _amend_running(self, call: Call) -> None:
        """Another input for a run that a dead process left and that executes here already."""
        amendment = amendment_of(call.input)
        run = self.continuing_run(call, call.input)
        self.check_view(amendment)
        self.pause()
        entries = (*self.take_dirty(), continued_row(call.run_id, amendment))
        continue_step(self.state, amendment)
        self._view = None
        self.commit(
            lambda: self._amended_running(call),
            entries=entries,
            row=self.new_row("running", run),
            names=self.new_name(call),
            **self.about(call),
        )

    def _amended_running(self, call: Call) -> None:
        self.flushed()
        self.admit(call)
        if self.stop is None:
            self.adopt_options()
            self.end_doze()
        self.resume_step()

    def _cancel(self, call: Call) -> None:
        """Stop what runs; the call hears of it when the bodies have ended, whether it waits or not."""
        if self._means_another(call):
            self._report(call)
        else:
            self.attached.append(call)
            self._cancel_run()

    def _means_another(self, call: Call) -> bool:
        """Whether a cancel names a run, and not this one."""
        if not call.named or call.run_id in self.state.run.names:
            return False
        return all(call.run_id != each.run_id for each in self.attached)

    def _cancel_first(self, call: Call) -> None:
        """Stop what runs, whose place the call then takes."""
        self._enqueue(call)
        self._cancel_run()

    def _cancel_run(self) -> None:
        if self.stop is None or self.stop.status == "drained":
            self.halt(Stop("cancelled"), wait=True)

    def _cancel_left(self, call: Call) -> None:
        """The run is unfinished, and nobody executes it: it is not to be taken up."""
        if self._means_another(call):
            self._report(call)
        else:
            self.commit(lambda: self.report(call), row=self.new_row("cancelled"))

    # Taking up ----------------------------------------------------------------------------------

    def _taken_up_for(self, call: Call) -> None:
        self.admit(call)
        self.taken_up()

    def _take_up_for(self, call: Call) -> None:
        """The same for a caller, who stands behind the run from now on."""
        self.commit(
            lambda: self._taken_up_for(call),
            row=self.new_row(
                "running",
                self.run_row(
                    call,
                    options=joined(self.state.run.options, call.options),
                    **self.ownership(),
                ),
            ),
            names=self.new_name(call),
            **self.about(call),
        )

    def _release(self, call: Call) -> None:
        """A quarantined thread goes on, with no death counted."""
        complete = not self.state.step.tasks
        run = self.run_row(call, deaths=0, taken_up_epoch=self.env.epoch)
        self.commit(
            lambda: self.report(call) if complete else self._taken_up_for(call),
            row=self.new_row("complete" if complete else "running", run),
        )

    # Calls that change nothing ------------------------------------------------------------------

    def _report(self, call: Call) -> None:
        claims = is_left(self.state, self.env.epoch) and not call.again
        if call.kind is not CallKind.CANCEL and claims:
            self._claim(call, then=lambda: self.report(call))
        else:
            self._consume(call, lambda: self.report(call))

    def _tell_recorded(self, call: Call) -> None:
        number = call.known_run
        assert number is not None, "only a known run has a recorded outcome"
        self._consume(call, lambda: self._effects.append(ReplyRecorded(call, number)), call.run_id)

    def _claim(self, call: Call, then: Callable[[], None]) -> None:
        """Note that a caller of this process stands behind the run, and the caller's name for it."""
        status = self.state.status
        assert status is not None, "a thread that does not exist cannot be claimed"
        self.commit(
            then,
            row=self.new_row(status, self.run_row(call)),
            names=self.new_name(call),
            **self.about(call),
        )

    def _enqueue(self, call: Call) -> None:
        """Wait behind the run; a told message is kept first."""
        if call.message is not None:
            self.queue.append(call)
            return
        self._check_room(call)
        if call.waits:
            self.queue.append(call)
            return
        payload = encode_call(call_row(call, self.env))
        kept = self.about(call, call.run_id)
        call.message = self.state.seq
        message = InboxMessage(call.message, call.id, call.kind.value, call.run_id, payload)
        self.queue.append(call)
        self.commit(
            lambda: self._effects.append(Admitted(call, call.run_id)), inbox_put=(message,), **kept
        )

    def _check_room(self, call: Call) -> None:
        """See that one more may wait behind the run.

        Raises:
            InboxFull: Too many do.
        """
        limits, waiting = self.env.limits, len(self.queue)
        durable = not call.waits and limits.inbox < limits.queued_calls
        name, most = ("inbox", limits.inbox) if durable else ("queued_calls", limits.queued_calls)
        if waiting >= most:
            raise InboxFull(
                f"{waiting} calls wait behind the run of thread {self.state.thread_id!r}, which is "
                f"limits.{name}; wait for them, or raise the limit",
                thread_id=self.state.thread_id,
            )

    _acts: ClassVar[dict[Decision, Callable[[Admissions, Call], None]]] = {
        Decision.START: _start_anew,
        Decision.RESTART: _restart,
        Decision.TAKE_UP: _take_up_for,
        Decision.GO_ON: Continuations.go_on,
        Decision.AMEND: Continuations.amend,
        Decision.ANSWER: Continuations.answer,
        Decision.AMEND_RUNNING: _amend_running,
        Decision.JOIN: _join,
        Decision.REPORT: _report,
        Decision.QUEUE: _enqueue,
        Decision.RECORDED: _tell_recorded,
        Decision.CANCEL: _cancel,
        Decision.CANCEL_FIRST: _cancel_first,
        Decision.CANCEL_LEFT: _cancel_left,
        Decision.RELEASE: _release,
    }


def _start_task(prepared: Prepared) -> Task:
    task = Task(START)
    task.result = Result(prepared.writes, prepared.goto, prepared.sends)
    return task
