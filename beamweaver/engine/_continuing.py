"""Continuations: what a call does to an unfinished run that does not execute."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from beamweaver.checkpoint.entries import Answered
from beamweaver.engine._repeats import Repeats
from beamweaver.engine.answers import ANSWER, answers_for
from beamweaver.engine.breakpoints import PASSED
from beamweaver.engine.calls import CallKind, passes, reruns_of
from beamweaver.engine.options import continued
from beamweaver.engine.rows import continue_step, continued_row
from beamweaver.engine.state import Amendment, OpenStep
from beamweaver.errors import InvalidCall

if TYPE_CHECKING:
    from beamweaver.checkpoint.entries import Entry
    from beamweaver.checkpoint.records import RunRow
    from beamweaver.engine.calls import Call, Prepared

__all__ = ["Continuations", "amendment_of"]


class Continuations(Repeats):
    """The side of a machine that lets an unfinished run go on for a caller."""

    def go_on(self, call: Call) -> None:
        """The run goes on as it is."""
        self._continue(call, None)

    def amend(self, call: Call) -> None:
        """The run goes on with another input."""
        self._continue(call, call.input)

    def _continue(self, call: Call, prepared: Prepared | None) -> None:
        """A caller's continuation: its record first, then code. A waiting run only keeps the input.

        At a breakpoint it goes on, unless the call only brings an input.
        """
        amendment, dropped = amendment_of(prepared), reruns_of(self.state, call)
        state = self.state
        entries: tuple[Entry, ...] = (continued_row(call.run_id, amendment, dropped),)
        waits = state.status == "waiting" and not dropped and not passes(state, call)
        run = self.continuing_run(call, prepared)
        self.check_view(amendment, dropped)
        continue_step(state, amendment, dropped)
        if not waits and state.step.stands_at_breakpoint:
            state.step.pass_breakpoints()
            entries = (PASSED, *entries)
        self.commit(
            (lambda: self._amended(call)) if waits else (lambda: self.gone_on(call)),
            entries=entries,
            row=self.new_row("waiting" if waits else "running", run),
            names=self.new_name(call),
            **self.about(call),
        )

    def answer(self, call: Call) -> None:
        """Answers, perhaps with an amendment: only tasks whose answers are complete run again."""
        amendment, dropped = amendment_of(call.input), reruns_of(self.state, call)
        given = answers_for(self.state, call)
        entries = tuple(
            Answered(at, q.ordinal, q.key, self.env.encode_any(a, ANSWER), q.id)
            for at, q, a in given
        )
        answered = (*self.state.run.answered, *(entry.id for entry in entries))
        run = self.continuing_run(call, call.input, answered=answered, promised=None)
        self.check_view(amendment, dropped)
        for (_position, question, _answer), entry in zip(given, entries, strict=True):
            question.answer = entry.value
        continue_step(self.state, amendment, dropped)
        self.commit(
            lambda: self.gone_on(call),
            entries=(*entries, continued_row(call.run_id, amendment, dropped)),
            row=self.new_row("running", run),
            names=self.new_name(call),
            **self.about(call),
        )

    def continuing_run(self, call: Call, prepared: Prepared | None, **changes: Any) -> RunRow:
        """The run's row after a continuation, which begins new counts under the call's own limits."""
        if prepared is not None:
            changes["digest"] = prepared.digest
        changes["used_us"] = 0
        changes["options"] = continued(self.state.run.options, call.options)
        changes["recursion_limit"] = call.recursion_limit
        return self.run_row(call, **self.ownership(), **changes)

    def check_view(self, amendment: Amendment | None, dropped: tuple[int, ...] = ()) -> None:
        """What the tasks of a continued step will see must merge; a call that cannot go on changes nothing.

        Raises:
            InvalidUpdate, ReducerFailed: It does not, so nobody could go on.
        """
        step = self.state.step
        tasks = step.tasks
        if dropped:
            tasks = [
                msgspec.structs.replace(task, result=None) if task.position in dropped else task
                for task in tasks
            ]
        if all(task.result is not None for task in tasks):
            return
        trial = OpenStep(step.number, tasks)
        trial.era, trial.amendments = step.era + 1, step.amendments
        if amendment is not None:
            amendment.era = trial.era
            trial.amendments = [*step.amendments, amendment]
        self.view_of(trial)

    def gone_on(self, call: Call) -> None:
        """The continuation is durable: from now on code runs."""
        self.admit(call)
        self.activate()

    def _amended(self, call: Call) -> None:
        self.admit(call)
        self.run_stopped()

    # Rows ---------------------------------------------------------------------------------------

    def run_row(self, call: Call, **changes: Any) -> RunRow:
        """The current run's row after this call stands behind it.

        Raises:
            InvalidCall: The run has too many names already.
        """
        run = self.state.run
        names = run.names
        if self.new_name(call) and call.named and len(names) >= self.env.limits.run_names:
            raise InvalidCall(
                f"run {names[0]!r} is known by {len(names)} run ids, which is limits.run_names; "
                "use one of them",
                thread_id=self.state.thread_id,
            )
        if self.in_row(call):
            names = (*names, call.run_id)
        if call.recursion_limit:
            changes["recursion_limit"] = call.recursion_limit
        if call.place:
            changes["place"] = call.place
        return msgspec.structs.replace(run, names=names, claimed_epoch=self.env.epoch, **changes)

    def new_name(self, call: Call) -> tuple[tuple[str, int], ...]:
        """The call's id, for the store's index, if the run is not known by it yet.

        A call that is handed to the thread's next actor is told by it from one that was never admitted.
        """
        run = self.state.run
        known = call.run_id in run.names or call.known_run == run.number
        return () if known or call.kind is CallKind.RELEASE else ((call.run_id, run.number),)

    def in_row(self, call: Call) -> bool:
        """Whether the run's own row gets the call's id too: drawn ones only while there is room."""
        room = call.named or len(self.state.run.names) < self.env.limits.run_names // 2
        return room and bool(self.new_name(call))


def amendment_of(prepared: Prepared | None) -> Amendment | None:
    """The change of the unfinished step that an input is; None if it changes nothing."""
    if prepared is None or prepared.empty:
        return None
    return Amendment(prepared.writes, prepared.goto, prepared.sends)
