"""Calls: what each does to the thread as it stands, in one commit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from beamweaver.checkpoint.records import (
    Answered,
    CallRow,
    Continued,
    InboxMessage,
    RunRow,
    ThreadRow,
    encode_call,
)
from beamweaver.engine._core import Stop
from beamweaver.engine._steps import Steps
from beamweaver.engine.calls import (
    UNFINISHED,
    Call,
    CallKind,
    Decision,
    answers_for,
    decide,
    is_left,
    quarantined,
)
from beamweaver.engine.effects import Admitted, CancelTransition, ReplyRecorded
from beamweaver.engine.merge import Merged, merge
from beamweaver.engine.plan import branches_to_take, plan
from beamweaver.engine.rows import (
    continue_step,
    finished_row,
    send_rows,
    write_rows,
)
from beamweaver.engine.state import Amendment, OpenStep, Result, Task
from beamweaver.errors import BeamWeaverError, CallRefused, InvalidCall
from beamweaver.events import RunAdmitted, ThreadQuarantined, ThreadTakenUp
from beamweaver.types import START

if TYPE_CHECKING:
    from beamweaver.engine.calls import Prepared

__all__ = ["Admissions"]

_GOES_ON = (Decision.TAKE_UP, Decision.GO_ON, Decision.ANSWER)


class Admissions(Steps):
    """The side of a machine that takes calls."""

    def take(self, call: Call) -> None:
        """Decide a call; refuse it, answer it, or put its commit on its way."""
        try:
            decision = decide(self.state, call, active=self.active, epoch=self.env.epoch)
            if decision in _GOES_ON and self.state.status in UNFINISHED and not self.active:
                self.calls.appendleft(call)
                self.take_up()
            else:
                self._carry_out(decision, call)
        except BeamWeaverError as error:
            self.refuse(call, error)

    def _carry_out(self, decision: Decision, call: Call) -> None:
        match decision:
            case Decision.START:
                self._start_run(call, self.state.step.number)
            case Decision.RESTART:
                self._start_run(call, self.state.step.number + 1)
            case Decision.GO_ON | Decision.AMEND:
                self._go_on(call, amend=decision is Decision.AMEND)
            case Decision.ANSWER:
                self._answer(call)
            case Decision.AMEND_RUNNING:
                self._amend_running(call)
            case Decision.JOIN:
                self._join(call)
            case Decision.REPORT:
                self._report(call)
            case Decision.QUEUE:
                self._enqueue(call)
            case Decision.RECORDED:
                assert call.known_run is not None, "only a known run has a recorded outcome"
                self._effects.append(ReplyRecorded(call, call.known_run))
            case Decision.CANCEL:
                self.admit(call)
                self.halt(Stop("cancelled"), wait=True)
            case Decision.RELEASE:
                self.commit(
                    lambda: self.report(call),
                    row=self.new_row("drained", self._run(call, deaths=0)),
                )

    # A new run ----------------------------------------------------------------------------------

    def _start_run(self, call: Call, number: int) -> None:
        """Admit an input: the entry's merge and plan in one record, or its routers first."""
        prepared = call.input
        assert prepared is not None, "a run starts with an input"
        state = self.state
        old_step, old_joins, old_branch = state.step, state.joins, state.branch
        state.branch = state.branch or self.env.new_id()
        state.step, state.joins = OpenStep(number, [_start_task(prepared)]), {}
        try:
            merged = merge(self.graph, state.values, state.step)
            routed = bool(branches_to_take(self.graph, state.step))
            self._admit_run(call, merged, routed=routed)
        except BeamWeaverError:
            state.step, state.joins, state.branch = old_step, old_joins, old_branch
            raise

    def _admit_run(self, call: Call, merged: Merged, *, routed: bool) -> None:
        state = self.state
        start = state.step
        self._limits_of(call)
        if routed:
            # The entry is a step whose only task is the input: its routers run as its transition.
            row = self._admitted_row(call, "running")
            entries = (finished_row(start.tasks[0]),)
            self.apply_step(Merged(state.values, {}), {}, start.tasks, {}, 0)
            state.step = start
            checkpoint = self.checkpoint("input", start.number, {}, call.run_id)
            self._commit_admission(call, checkpoint, row, entries)
            return
        writes = self.encoded(merged)
        tasks, joins = plan(self.graph, state, {})
        self.check_size(tasks)
        row = self._admitted_row(call, "running" if tasks else "complete")
        self.apply_step(merged, writes, tasks, joins, 0)
        checkpoint = self.checkpoint("input", start.number, writes, call.run_id)
        self._commit_admission(call, checkpoint, row, ())

    def _commit_admission(self, call: Call, checkpoint: Any, row: ThreadRow, entries: Any) -> None:
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
            inbox_drop=_consumed(call),
        )

    def _admitted(self, call: Call) -> None:
        self.admit(call)
        if self.env.publishing:
            self.publish(RunAdmitted(thread_id=self.state.thread_id, run_id=call.run_id))
        if self.state.status == "complete":
            self.run_stopped()
        else:
            self.activate()

    def _admitted_row(self, call: Call, status: Any) -> ThreadRow:
        state = self.state
        assert call.input is not None, "a run starts with an input"
        now = self.env.now_us()
        old = state.row
        run = RunRow(
            number=old.run.number + 1 if old is not None else 1,
            names=(call.run_id,),
            digest=call.input.digest,
            claimed_epoch=self.env.epoch,
            recursion_limit=call.recursion_limit,
            started_us=now,
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
        )

    # The run that is there ----------------------------------------------------------------------

    def _go_on(self, call: Call, *, amend: bool) -> None:
        """A caller's continuation: its record first, then code."""
        prepared = call.input
        amendment = _amendment(prepared)
        self._check_view(amendment)
        continue_step(self.state, amendment)
        row = self.new_row(
            "waiting" if amend else "running",
            self._run(call, digest=prepared.digest if prepared else None),
        )
        self.commit(
            (lambda: self._amended(call)) if amend else (lambda: self._gone_on(call)),
            entries=(_continued(call, amendment),),
            row=row,
            names=self._new_name(call),
            inbox_drop=_consumed(call),
        )

    def _check_view(self, amendment: Amendment | None) -> None:
        """What the continued tasks will see must merge; a call that cannot go on changes nothing."""
        step = self.state.step
        if all(task.result is not None for task in step.tasks):
            return
        step.era += 1
        if amendment is not None:
            amendment.era = step.era
            step.amendments.append(amendment)
        try:
            merge(self.graph, self.state.values, step, step.era)
        finally:
            step.era -= 1
            if amendment is not None:
                step.amendments.pop()

    def _gone_on(self, call: Call) -> None:
        self.admit(call)
        self._limits_of(call)
        self.activate()

    def _amended(self, call: Call) -> None:
        self.admit(call)
        self.run_stopped()

    def _answer(self, call: Call) -> None:
        """Answers to questions: only tasks whose answers are complete run again."""
        given = answers_for(self.state, call)
        entries = [
            Answered(
                position, question.ordinal, question.key, self.env.encode_any(answer), question.id
            )
            for position, question, answer in given
        ]
        self._check_view(None)
        for _position, question, answer in given:
            question.answer = answer
            question.answered = True
        continue_step(self.state, None)
        answered = (*self.state.run.answered, *(row.id for row in entries))
        row = self.new_row("running", self._run(call, answered=answered))
        self.commit(
            lambda: self._gone_on(call),
            entries=(*entries, _continued(call, None)),
            row=row,
            names=self._new_name(call),
            inbox_drop=_consumed(call),
        )

    def _join(self, call: Call) -> None:
        """Wait for a run that executes here."""
        if is_left(self.state, self.env.epoch) or self._new_name(call):
            self._claim(call, then=lambda: self.admit(call))
        else:
            self.admit(call)

    def _amend_running(self, call: Call) -> None:
        """Another input for a run that a dead process left and that executes here already."""
        amendment = _amendment(call.input)
        assert amendment is not None, "an empty input is no amendment"
        step = self.state.step
        if self.transition is not None:
            self._effects.append(CancelTransition(self.transition))
            self.transition = self.merged = None
        entries = (*self.take_dirty(), _continued(call, amendment))
        step.era += 1
        step.failure = None
        amendment.era = step.era
        step.amendments.append(amendment)
        self._view = None
        self.state.executed = 0
        assert call.input is not None, "an amendment has an input"
        self.commit(
            lambda: self._amended_running(call),
            entries=entries,
            row=self.new_row("running", self._run(call, digest=call.input.digest)),
            names=self._new_name(call),
            inbox_drop=_consumed(call),
        )

    def _amended_running(self, call: Call) -> None:
        self.tell_acknowledged()
        self.admit(call)
        for task in self.state.step.tasks:
            if task.failure is not None:
                task.clear_failure()
                self.ready.append(task)

    def take_up(self) -> None:
        """Go on with a run whose owner is gone; the record counts the owner's death first."""
        state = self.state
        run, epoch = state.run, self.env.epoch
        died = state.status != "drained" and max(run.claimed_epoch, run.taken_up_epoch) < epoch
        counted = run.deaths if state.checkpoint_seq <= run.deaths_seq else 0
        deaths = counted + died
        row = msgspec.structs.replace(
            run,
            taken_up_epoch=epoch,
            deaths=deaths,
            deaths_seq=state.seq if died else run.deaths_seq,
        )
        if deaths > self.env.limits.owner_deaths:
            self.quarantine(f"the process died {deaths} times in {self._where()}", row)
            return
        self.commit(lambda: self._taken_up(deaths), row=self.new_row("running", row))

    def _taken_up(self, deaths: int) -> None:
        if self.env.publishing:
            self.publish(
                ThreadTakenUp(
                    thread_id=self.state.thread_id,
                    run_id=self.state.run.names[0],
                    deaths=deaths,
                )
            )
        self.activate()

    def quarantine(self, reason: str, run: RunRow | None = None) -> None:
        """Set the thread aside: calls are refused until it is released."""
        self.commit(lambda: self._quarantined(reason), row=self.new_row("quarantined", run, reason))

    def _quarantined(self, reason: str) -> None:
        if self.env.publishing:
            self.publish(ThreadQuarantined(thread_id=self.state.thread_id, reason=reason))
        for call in (*self.attached, *self.queue):
            if call.waits:
                self.refuse(call, quarantined(self.state.thread_id, reason))
        self.attached = []
        self.run_stopped()

    def _where(self) -> str:
        step = self.state.step
        nodes = dict.fromkeys(t.node for t in step.tasks if t.result is None)
        return f"step {step.number} (nodes {', '.join(nodes) or 'none'}) without a commit"

    def _report(self, call: Call) -> None:
        if (
            call.kind is not CallKind.CANCEL
            and is_left(self.state, self.env.epoch)
            and not call.again
        ):
            self._claim(call, then=lambda: self.report(call))
        elif call.message is not None:
            self.commit(lambda: self.report(call), inbox_drop=_consumed(call))
        else:
            self.report(call)

    def _claim(self, call: Call, then: Any) -> None:
        """Note that a caller of this process stands behind the run, and the caller's name for it."""
        status = self.state.status
        assert status is not None, "a thread that does not exist cannot be claimed"
        self.commit(
            then,
            row=self.new_row(status, self._run(call)),
            names=self._new_name(call),
            inbox_drop=_consumed(call),
        )

    def _enqueue(self, call: Call) -> None:
        """Wait behind the run; a told message is kept first."""
        if len(self.queue) >= self.env.limits.queued_calls:
            raise CallRefused(
                f"{len(self.queue)} calls wait behind the run of thread {self.state.thread_id!r}, which "
                "is limits.queued_calls; wait for them, or raise the limit",
                thread_id=self.state.thread_id,
            )
        if call.waits or call.message is not None:
            self.queue.append(call)
            return
        call.message = self.state.seq
        message = InboxMessage(
            call.message,
            call.id,
            call.kind.value,
            call.run_id,
            encode_call(_call_row(call, self.env.encode_any)),
        )
        self.queue.append(call)
        self.commit(lambda: self._kept(call), inbox_put=(message,))

    def _kept(self, call: Call) -> None:
        self.tell_acknowledged()
        self._effects.append(Admitted(call, call.run_id))

    # Rows ---------------------------------------------------------------------------------------

    def _run(self, call: Call, **changes: Any) -> RunRow:
        """The current run's row after this call stands behind it."""
        run = self.state.run
        names = run.names
        if call.kind is not CallKind.RELEASE and call.run_id not in names and self._nameable(call):
            if len(names) >= self.env.limits.run_names:
                raise InvalidCall(
                    f"run {names[0]!r} is known by {len(names)} run ids, which is limits.run_names; "
                    "use one of them",
                    thread_id=self.state.thread_id,
                )
            names = (*names, call.run_id)
        if changes.get("digest") is None:
            changes.pop("digest", None)
        if call.recursion_limit:
            changes["recursion_limit"] = call.recursion_limit
        return msgspec.structs.replace(run, names=names, claimed_epoch=self.env.epoch, **changes)

    def _new_name(self, call: Call) -> tuple[tuple[str, int], ...]:
        run = self.state.run
        if call.run_id in run.names or not self._nameable(call):
            return ()
        return ((call.run_id, run.number),)

    def _nameable(self, call: Call) -> bool:
        """Whether the run is to be known by the call's id too; drawn ones only while there is room."""
        return call.named or len(self.state.run.names) < self.env.limits.run_names // 2

    def _limits_of(self, call: Call) -> None:
        self._run_timeout = call.run_timeout or self.graph.run_timeout
        self._step_timeout = call.step_timeout or self.graph.step_timeout


def _start_task(prepared: Prepared) -> Task:
    task = Task(START)
    task.result = Result(prepared.writes, prepared.goto, prepared.sends)
    return task


def _amendment(prepared: Prepared | None) -> Amendment | None:
    if prepared is None or prepared.empty:
        return None
    return Amendment(prepared.writes, prepared.goto, prepared.sends)


def _continued(call: Call, amendment: Amendment | None) -> Continued:
    if amendment is None:
        return Continued(call.run_id)
    return Continued(
        call.run_id, write_rows(amendment.writes), amendment.goto, send_rows(amendment.sends)
    )


def _consumed(call: Call) -> tuple[int, ...]:
    return () if call.message is None else (call.message,)


def _call_row(call: Call, encode: Any) -> CallRow:
    prepared = call.input
    answers = None
    if call.kind is CallKind.RESUME:
        given = {"": call.answer} if call.answers is None else dict(call.answers)
        answers = {key: encode(value) for key, value in given.items()}
    return CallRow(
        kind=call.kind.value,
        run_id=call.run_id,
        named=call.named,
        recursion_limit=call.recursion_limit,
        has_input=prepared is not None,
        digest=prepared.digest if prepared else b"",
        writes=write_rows(prepared.writes) if prepared else (),
        goto=prepared.goto if prepared else None,
        sends=send_rows(prepared.sends) if prepared else (),
        answers=answers,
        on_unfinished=call.on_unfinished,
    )
