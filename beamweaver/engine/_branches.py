"""Calls that leave the head: branches from older checkpoints, and edits of the state."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import msgspec

from beamweaver.checkpoint.entries import Answered
from beamweaver.checkpoint.records import Commit
from beamweaver.engine._admission import Admissions
from beamweaver.engine._editing import Editing, origin_of
from beamweaver.engine.answers import ANSWER, judged
from beamweaver.engine.calls import CallKind, Decision
from beamweaver.engine.effects import (
    CancelTransition,
    DropTimer,
    Reply,
    SetTimer,
    StartTransition,
    Updated,
    WriteCommits,
)
from beamweaver.engine.ids import checkpoint_id
from beamweaver.engine.rows import continue_step, continued_row
from beamweaver.engine.state import Amendment
from beamweaver.errors import (
    AmbiguousResume,
    BeamWeaverError,
    CallRefused,
    InvalidAnswer,
    InvalidCall,
    NothingToResume,
    StepTimeout,
    UnfinishedRun,
)
from beamweaver.events import StateUpdated

if TYPE_CHECKING:
    from collections.abc import Callable

    from beamweaver.checkpoint.entries import Entry
    from beamweaver.checkpoint.records import Checkpoint, ThreadRow
    from beamweaver.engine._core import Stop
    from beamweaver.engine.calls import Call
    from beamweaver.engine.effects import Transition
    from beamweaver.engine.plan import Routes
    from beamweaver.engine.state import Question
    from beamweaver.types import Failure

__all__ = ["Branches"]


class Branches(Admissions):
    """The side of a machine that goes on elsewhere: from an older checkpoint, or from an edited one."""

    editing: Editing | None = None
    """An edit that waits for routers; every other call waits for it."""
    _leaves = ""
    """The branch that a commit on its way leaves."""

    # Branches -----------------------------------------------------------------------------------

    def _fork(self, call: Call) -> None:
        """Begin a branch where the call says, and go on there: a run of its own, with nothing pending."""
        before = self.state
        if call.rerun:
            raise InvalidCall(
                "a branch begins without results, so rerun= has none to drop; leave it out",
                thread_id=before.thread_id,
            )
        head = checkpoint_id(before.branch, before.checkpoint_seq)
        place = None if call.checkpoint in (None, head) else call.checkpoint
        entries, origin = origin_of(self.env, self.graph, before.thread_id, place)
        origin.row, origin.seq, origin.tip = before.row, before.seq, True
        self._leaves, origin.branch, origin.executed = origin.branch, self.env.new_id(), 0
        for task in origin.step.tasks:
            task.id = None  # the id follows from the branch
        self.take_state(origin)
        try:
            self._branch_off(call, entries)
        except BeamWeaverError:
            self.state = before
            raise
        finally:
            self._leaves = ""

    def _branch_off(self, call: Call, entries: tuple[Entry, ...]) -> None:
        state = self.state
        tasks = state.step.tasks
        if call.kind is CallKind.INVOKE:
            if tasks and call.on_unfinished == "reject":
                raise UnfinishedRun(
                    f"the checkpoint of thread {state.thread_id!r} is amid a run and the call said "
                    "on_unfinished='reject'; go on from it with invoke(None), or use 'restart'",
                    thread_id=state.thread_id,
                    status="cancelled",
                )
            if not tasks or call.on_unfinished == "restart":
                self._start_run(call, state.step.number)
                return
        elif call.kind is CallKind.RESUME:
            self._check_promise(call)
        self._go_on_apart(call, entries)

    def _check_promise(self, call: Call) -> None:
        """Judge an answer to what the branch is going to ask."""
        state = self.state
        if not state.step.tasks:
            raise NothingToResume(
                f"that checkpoint of thread {state.thread_id!r} is complete, so nothing will be asked",
                thread_id=state.thread_id,
            )
        if call.answers is not None:
            raise InvalidCall(
                "a branch asks its questions anew, under new ids, so it takes one answer and no map; go on "
                "with invoke(None, checkpoint_id=…), then answer what it asks",
                thread_id=state.thread_id,
            )

    def _go_on_apart(self, call: Call, entries: tuple[Entry, ...]) -> None:
        """The first checkpoint of a branch: what its origin says, and the call's input beside it."""
        state = self.state
        prepared = call.input
        if prepared is not None and not prepared.empty:
            amendment = Amendment(prepared.writes, prepared.goto, prepared.sends)
            self.check_view(amendment)
            continue_step(state, amendment)
            entries = (*entries, continued_row(call.run_id, amendment))
        row = self._admitted_row(call, "running" if state.step.tasks else "complete")
        if call.kind is CallKind.RESUME:
            run = msgspec.structs.replace(
                row.run, promised=self.env.encode_any(call.answer, ANSWER)
            )
            row = msgspec.structs.replace(row, run=run)
        number = state.step.number
        state.step.number += 1
        state.parent_seq, state.checkpoint_seq = state.checkpoint_seq, state.seq
        self._view = self.merged = self.routes = None
        checkpoint = self.checkpoint("fork", number, {}, run=row.run)
        self._commit_admission(call, checkpoint, row, entries)

    def _commit_admission(
        self, call: Call, checkpoint: Checkpoint, row: ThreadRow, entries: tuple[Entry, ...]
    ) -> None:
        if self._leaves:
            checkpoint = msgspec.structs.replace(checkpoint, parent_branch=self._leaves)
        super()._commit_admission(call, checkpoint, row, entries)

    # The answer that a branch was promised --------------------------------------------------------

    def _commit_stop(self, stop: Stop) -> None:
        promised = self.state.run.promised
        if stop.status == "waiting" and promised is not None:
            tasks = self.state.step.tasks
            asked = [
                (task.position, question) for task in tasks for question in task.open_questions
            ]
            assert asked, "a run that waits has asked"
            self._keep_promise(asked, self.env.decode_any(promised), stop)
            return
        super()._commit_stop(stop)

    def _keep_promise(self, asked: list[tuple[int, Question]], answer: Any, stop: Stop) -> None:
        """The branch has asked; if it is one question, the answer came with the call that began it."""
        position, question = asked[0]
        if len(asked) > 1:
            self._break_promise(_many(self.state.thread_id, [q.id for _at, q in asked]), stop)
            return
        try:
            data = self.env.encode_any(judged(self.state, question, answer), ANSWER)
        except InvalidAnswer as error:
            self._break_promise(error, stop)
            return
        run = self.state.run
        question.answer = data
        answered = Answered(position, question.ordinal, question.key, data, question.id)
        entries = (*self.take_dirty(), answered, continued_row(run.names[0], None))
        run = msgspec.structs.replace(
            run, promised=None, deaths=0, answered=(*run.answered, question.id)
        )
        continue_step(self.state, None)
        self._view = None
        self.commit(self._promise_kept, entries=entries, row=self.new_row("running", run))

    def _promise_kept(self) -> None:
        self.flushed()
        if self.stop is None:
            self.begin_step()

    def _break_promise(self, error: CallRefused, stop: Stop) -> None:
        """The answer is for no question here: the branch waits, and who gave the answer hears why."""
        run = msgspec.structs.replace(self.state.run, promised=None, deaths=0)
        row = self.new_row(stop.status, run)
        self.commit(lambda: self._broken(error), entries=self.take_dirty(), row=row)

    def _broken(self, error: CallRefused) -> None:
        promising = [call for call in self.attached if call.kind is CallKind.RESUME and call.place]
        self.attached = [call for call in self.attached if call not in promising]
        for call in promising:
            self.refuse(call, error)
        self._stopped()

    # Edits --------------------------------------------------------------------------------------

    def _edit(self, call: Call) -> None:
        """Make an edit, or ask the routers that it needs."""
        row = self.state.row
        known = call.known_run is not None or (row is not None and call.run_id in row.run.names)
        if call.again and known:
            self._updated(call)  # it was durable before the actor died that had it first
            return
        self.editing = Editing(self, call)
        self._edit_on(self.editing)

    def go_on_editing(self, editing: Editing) -> bool:
        """Take an edit as far as it goes; whether that was a step."""
        if editing.answer is not None:
            self._edit_on(editing)
        elif any(call.kind is CallKind.CANCEL for call in self.calls):
            self.stop_editing("was cancelled while its routers ran")
        else:
            return False
        return True

    def _edit_on(self, editing: Editing) -> None:
        try:
            transition = editing.advance()
        except BeamWeaverError as error:
            self._end_editing(editing)
            self.refuse(editing.call, error)
            return
        self._end_editing(editing)
        if transition is None:
            self._commit_edit(editing)
            return
        self.editing = editing
        self._effects.append(StartTransition(transition))
        if transition.timeout is not None:
            editing.timer = ("edit", self.state.seq, len(editing.records))
            self._effects.append(SetTimer(editing.timer, transition.timeout))

    def _end_editing(self, editing: Editing) -> None:
        self.editing = None
        if editing.timer is not None:
            self._effects.append(DropTimer(editing.timer))
            editing.timer = None

    def stop_editing(self, why: str, error: type[BeamWeaverError] = CallRefused) -> None:
        """Give an edit up; it has changed nothing."""
        editing = self.editing
        assert editing is not None, "an edit that is stopped was begun"
        assert editing.asked is not None, "an edit that waits has asked routers"
        self._end_editing(editing)
        self._effects.append(CancelTransition(editing.asked))
        thread_id = self.state.thread_id
        self.refuse(
            editing.call,
            error(
                f"the update of thread {thread_id!r} {why}; nothing was changed",
                thread_id=thread_id,
            ),
        )

    def _commit_edit(self, editing: Editing) -> None:
        """All checkpoints of an edit in one group, so that there are all of them or none."""
        call, draft, row = editing.call, editing.draft, editing.row
        self.take_state(draft)
        self._view = self.merged = self.routes = None
        number = self.state.run.number
        ended = None
        if row is not None and row.status == "complete":
            ended = (number, draft.checkpoint_seq)
        commits = [
            Commit(
                thread_id=draft.thread_id,
                incarnation=self.env.incarnation,
                record=record,
                thread=row,
            )
            for record in editing.records
        ]
        names = ((call.run_id, number),)
        commits[0] = msgspec.structs.replace(commits[0], clears=editing.clears)
        commits[-1] = msgspec.structs.replace(commits[-1], run_names=names, run_ended=ended)
        draft.progress_seq = draft.checkpoint_seq
        self.in_flight = commits[-1]
        self._then = lambda: self._updated(call)
        self._effects.append(WriteCommits(commits))

    def _updated(self, call: Call) -> None:
        state = self.state
        made = checkpoint_id(state.branch, state.checkpoint_seq)
        if self.env.publishing:
            self.publish(StateUpdated(thread_id=state.thread_id, checkpoint_id=made))
        self._effects.append(Reply(call, Updated(made)))

    # Events -------------------------------------------------------------------------------------

    def routed(self, transition: Transition, routes: Routes) -> None:
        """The routers of a step, or of an edit, chose."""
        if self.editing is not None and transition is self.editing.asked:
            self.editing.answer = routes
        else:
            super().routed(transition, routes)

    def routing_failed(self, transition: Transition, failure: Failure) -> None:
        """A router failed; so does the edit that asked it."""
        if self.editing is not None and transition is self.editing.asked:
            self.editing.answer = failure
        else:
            super().routing_failed(transition, failure)

    def fired(self, key: tuple[Any, ...]) -> None:
        """A timer is due; one that no longer matters is ignored."""
        if self.editing is not None and key == self.editing.timer:
            limit = self.graph.step_timeout
            self.stop_editing(
                f"waited for its routers longer than the step_timeout of {limit:g} s", StepTimeout
            )
        else:
            super().fired(key)

    _acts: ClassVar[dict[Decision, Callable[[Any, Call], None]]] = {
        **Admissions._acts,  # noqa: SLF001 - the table of the base
        Decision.FORK: _fork,
        Decision.EDIT: _edit,
    }


def _many(thread_id: str, ids: list[str]) -> AmbiguousResume:
    return AmbiguousResume(
        f"the branch of thread {thread_id!r} asked {len(ids)} questions at once and one answer was given; "
        f"it waits: answer by id: {', '.join(ids)}",
        thread_id=thread_id,
        interrupts=tuple(ids),
    )
