"""What the parts of the machine share: its fields, and how it commits and answers."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

import msgspec

from beamweaver.checkpoint.records import Commit, Record
from beamweaver.engine.answers import interrupts_of
from beamweaver.engine.breakpoints import breakpoints_of, breaks_of
from beamweaver.engine.calls import CallKind
from beamweaver.engine.effects import (
    Admitted,
    DropTimer,
    LogFailure,
    Noted,
    Publish,
    Reply,
    WriteCommit,
)
from beamweaver.engine.failures import error_of
from beamweaver.engine.ids import checkpoint_id
from beamweaver.engine.merge import head_values, with_initial
from beamweaver.engine.nested import failures_of
from beamweaver.engine.rows import finished_row, holds_steps, shows_progress
from beamweaver.engine.state import Task
from beamweaver.errors import InvalidUpdate, SerializationError
from beamweaver.events import RunEnded, TaskAcknowledged
from beamweaver.graph.copies import unshared
from beamweaver.types import Cancelled, Completed, Drained, Failed, Interrupted

if TYPE_CHECKING:
    from collections.abc import Callable

    from beamweaver.checkpoint.entries import Entry
    from beamweaver.checkpoint.records import Checkpoint, RunRow, StatusName, ThreadRow
    from beamweaver.engine._ahead import Loose
    from beamweaver.engine.calls import Call
    from beamweaver.engine.effects import Attempt, Effect, Transition
    from beamweaver.engine.env import Env
    from beamweaver.engine.merge import Merged
    from beamweaver.engine.plan import Routes
    from beamweaver.engine.state import RunState
    from beamweaver.errors import GraphChanged, RunFailed
    from beamweaver.graph.compiled import CompiledGraph
    from beamweaver.types import Failure, Interrupt, Outcome

__all__ = ["Core", "Stop"]


_UNUSED = "the answer that was given with the call was not used: the branch asked no question"


class Stop:
    """Why a step is being closed before its tasks are done, and the status that follows."""

    __slots__ = ("failure", "status")

    def __init__(self, status: StatusName, failure: Failure | None = None) -> None:
        self.status = status
        self.failure = failure


class Core:
    """The fields of a machine. At most one commit is in flight; what follows it waits for its end."""

    early = False
    """Whether a plain step goes on before it is durable: see `_ahead`."""
    runs_ahead = False
    """Whether its commit is on its way then (`durability="async"`), and not left out."""
    late: Checkpoint | None = None
    """The step that was left out last, with all values that changed since the last record. It has the number
    of the next record, which brings it along."""
    grows = True
    """Whether a step may be stored as what it added to channels."""
    dozes = False
    """Whether the run is stored as one that sleeps, and waits for the first sleep that is over."""
    _run_since = 0.0
    """When the run began to execute here, or went on after a sleep, on `env.clock()`."""
    _step_until = 0.0
    """When the step is out of time, while `_step_timer` is set."""
    _serial = 0
    _async_running = 0
    handed: list[Any] | None = None
    """Records of graphs in tasks that are in no commit yet: see `_children`."""
    acking: list[Any] | None = None
    """Those of the commit in flight."""

    def __init__(self, graph: CompiledGraph, env: Env, state: RunState) -> None:
        self.take_graph(graph)
        self.env = env
        self.take_state(state)
        self.active = False
        """Whether the run executes here now."""
        self.calls: deque[Call] = deque()
        """Arrived and not decided."""
        self.queue: deque[Call] = deque()
        """Decided to wait behind the run."""
        self.attached: list[Call] = []
        """Waiting for the run to stop."""
        self.running: dict[int, Attempt] = {}
        self.ready: deque[Task] = deque()
        """Tasks of sync nodes that may start; as many at once as the limits allow."""
        self.ready_async: deque[Task] = deque()
        """Tasks of async nodes that may start; they hold no worker."""
        self.sleeping: dict[int, Task] = {}
        """Waiting for their next attempt, by position."""
        self.dozing: dict[int, Task] = {}
        """Parked by a sleep, by position."""
        self.dirty: list[Task | Entry | Loose] = []
        """What happened and is in no commit yet; a task stands for its result."""
        self.in_flight: Commit | None = None
        self.stop: Stop | None = None
        self.transition: Transition | None = None
        self.merged: Merged | None = None
        """The merged state of a step that is done, while it is not committed."""
        self.routes: Routes | Failure | None = None
        """What the routers and guards of that step chose, or how they failed."""
        self.unfit: GraphChanged | None = None
        """Why the open step cannot go on under this graph; a new run may begin in its place."""
        self._unsaved: list[Task | Noted] = []
        """Tasks with a result or a due time that is in no commit yet, and notes of attempts."""
        self._saving: list[Task | Noted] = []
        """Those of the commit in flight."""
        self._then: Callable[[], None] | None = None
        self._effects: list[Effect] = []
        self._view: dict[str, Any] | None = None
        """What tasks of the open step see; None: not worked out yet."""
        self._run_timeout: float | None = None
        self._step_timeout: float | None = None
        self._panics = False
        self._most = 0
        """Tasks of a step at once; these four are those of the run, or else of the graph."""
        self._run_timer: tuple[Any, ...] | None = None
        self._step_timer: tuple[Any, ...] | None = None

    def take_graph(self, graph: CompiledGraph) -> None:
        """Run this graph."""
        self.graph = graph
        self._breaks = breaks_of(graph, None)
        """The breakpoints of the run that executes, or None."""
        self.family = graph.has_subgraphs
        """Whether graphs may run inside of this machine's tasks, or it runs in a task itself."""
        self.sorts = graph.has_async or self.family
        """Whether tasks that hold no worker have a queue of their own."""

    def take_state(self, state: RunState) -> None:
        """Stand where this state says, as the store has it."""
        self.state = state
        state.values = with_initial(self.graph, state.values)
        if any(task.inner for task in state.step.tasks):
            self.family = self.sorts = True  # functions have called graphs

    # Committing ---------------------------------------------------------------------------------

    def commit(
        self,
        then: Callable[[], None],
        *,
        checkpoint: Checkpoint | None = None,
        entries: tuple[Entry, ...] = (),
        row: ThreadRow | None = None,
        names: tuple[tuple[str, int], ...] = (),
        ended: tuple[int, int] | None = None,
        **inbox: Any,
    ) -> None:
        """Put a record on its way; `then` runs when it is durable."""
        assert self.in_flight is None, f"two commits of thread {self.state.thread_id!r} in flight"
        if self.late is not None:
            checkpoint = self._with_late(self.late, checkpoint)
        state = self.state
        seq = state.seq
        record = Record(seq, self.env.epoch, self.env.now_us(), checkpoint, entries)
        clears: tuple[int, ...] = ()
        if checkpoint is None:
            if not (self.family and holds_steps(entries)):
                state.entry_seqs.append(seq)
        elif state.entry_seqs:
            clears = tuple(state.entry_seqs)
            state.entry_seqs = []
        if checkpoint is not None or (entries and shows_progress(entries)):
            state.progress_seq = seq
        if row is not None:
            state.row = row
        state.seq = seq + 1
        self.in_flight = Commit(
            thread_id=state.thread_id,
            incarnation=self.env.incarnation,
            record=record,
            clears=clears,
            thread=row,
            run_names=names,
            run_ended=ended,
            **inbox,
        )
        self._then = then
        self._effects.append(WriteCommit(self.in_flight))

    def _with_late(self, late: Checkpoint, checkpoint: Checkpoint | None) -> Checkpoint:
        """The checkpoint of the next record, which holds the steps that were left out."""
        self.late = None
        if checkpoint is not None:
            return msgspec.structs.replace(checkpoint, writes={**late.writes, **checkpoint.writes})
        full = late.versions is not None
        self.state.since_full = 0 if full else self.state.since_full + 1
        return late

    def asked_for(self) -> list[Effect]:
        """What it asks of the world since the last time."""
        effects, self._effects = self._effects, []
        return effects

    def acknowledged(self) -> None:
        """The commit in flight is durable."""
        then, self._then, self.in_flight = self._then, None, None
        assert then is not None, "an acknowledgement without a commit"
        if self.acking is not None:
            self.acknowledge_inside()
        then()

    def acknowledge_inside(self) -> None:
        """What graphs in tasks have in the commit is durable."""

    def take_dirty(self) -> tuple[Entry, ...]:
        """The entries that no commit holds yet, for the next one."""
        if self.early:
            self.gather_early()
        rows = tuple([finished_row(x) if type(x) is Task else x for x in self.dirty])
        self.drop_dirty()
        return rows  # type: ignore[return-value] # tasks were replaced by their rows

    def gather_early(self) -> None:
        """Bring along what graphs in tasks have left out, in a form that is stored."""

    def drop_dirty(self) -> None:
        """The next commit holds, or overtakes, all that happened so far."""
        self.dirty = []
        self._saving, self._unsaved = self._unsaved, []
        if self.env.publishing:
            for task in self._saving:
                if type(task) is Task:
                    self.state.id_of(task)  # now: it is told when its step is over
        if self.handed is not None:
            self.acking, self.handed = [*(self.acking or ()), *self.handed], None

    def tell_saved(self) -> None:
        """What the acknowledged commit took of `dirty` is safe for ever."""
        saved, self._saving = self._saving, []
        if self.env.publishing:
            for task in saved:
                if type(task) is Task and task.result is not None:
                    self.publish(
                        TaskAcknowledged(
                            thread_id=self.state.thread_id,
                            task_id=self.state.id_of(task),
                            node=task.node,
                        )
                    )

    def new_row(self, status: StatusName, run: RunRow | None = None, reason: str = "") -> ThreadRow:
        """The thread's row with another status."""
        row = self.state.row
        assert row is not None, "a thread that does not exist has no status"
        changes: dict[str, Any] = {"status": status, "reason": reason}
        if run is not None:
            changes["run"] = run
        if row.fingerprint != self.graph.fingerprint:
            changes["fingerprint"] = self.graph.fingerprint
        return msgspec.structs.replace(row, **changes)

    def publish(self, event: Any) -> None:
        """Tell an event; only made where somebody listens."""
        self._effects.append(Publish(event))

    # Answering ----------------------------------------------------------------------------------

    def refuse(self, call: Call, error: Exception) -> None:
        """The call cannot be taken."""
        self._effects.append(Reply(call, error=error))

    def admit(self, call: Call) -> None:
        """The call is durable; it waits for the run's end if anyone waits."""
        self._effects.append(Admitted(call, self.state.run.names[0]))
        if call.waits:
            self.attached.append(call)

    def report(self, call: Call) -> None:
        """Tell a call how the run stands."""
        if not call.waits:
            self._effects.append(Admitted(call, self.state.run.names[0]))
        else:
            try:
                error = self.error()
                reply = Reply(call, self._outcome(call, error), error)
            except InvalidUpdate as unfit:  # the class of the output schema is user code
                reply = Reply(call, error=unfit)
            self._effects.append(reply)

    def run_stopped(self) -> None:
        """The run stopped, durably: all who wait for it hear how."""
        self.active = False
        self.dozes = False
        self.stop = self._view = self.merged = self.routes = None
        self.ready.clear()
        self.ready_async.clear()
        self._drop_timers()
        if self.env.publishing:
            self.publish(
                RunEnded(
                    thread_id=self.state.thread_id,
                    run_id=self.state.run.names[0],
                    status=str(self.state.status),
                )
            )
        error = self.error()
        if error is not None:
            self._effects.append(LogFailure(error, [*self.attached, *self.queue]))
        for call in self.attached:
            self.report(call)
        self.attached = []
        self.settle_queue()

    def settle_queue(self) -> None:
        """What waited behind the run: its turn now, or the run's failure.

        A start waits on behind a run that did not end well, if it was told. An answer has its turn
        wherever a question may be open, and so have a call that drops results, the call for which the run
        was cancelled, and one that goes on from an older checkpoint. An edit needs no run at all.
        """
        status = self.state.status
        turns: list[Call] = []
        held: deque[Call] = deque()
        for call in self.queue:
            insists = (
                call.kind is CallKind.RESUME
                or call.on_busy == "cancel"
                or call.rerun
                or call.place != b""
            )
            if (
                status in ("complete", "waiting")
                or call.kind is CallKind.UPDATE
                or (status in ("failed", "cancelled") and insists)
            ):
                turns.append(call)
            elif call.waits:
                self.report(call)
            else:
                held.append(call)
        self.calls.extendleft(reversed(turns))
        self.queue = held

    def open_interrupts(self) -> tuple[Interrupt, ...]:
        """The open questions, in task order."""
        return tuple(
            msgspec.structs.replace(question, value=self._own(question.value))
            for task in self.state.step.tasks
            if task.questions or task.inner
            for question in interrupts_of(self.state, task)
        )

    def error(self) -> RunFailed | None:
        """Why the run failed, as its callers hear it; None if it did not."""
        if self.state.status != "failed":
            return None
        step = self.state.step
        return error_of(
            failures_of(self.state),
            step.failure,
            thread_id=self.state.thread_id,
            run_id=self.state.run.names[0],
            interrupts=self.open_interrupts(),
            unheard=step.unheard,
        )

    def _outcome(self, call: Call, error: Exception | None) -> Outcome:
        state = self.state
        names = state.run.names
        shared: dict[str, Any] = {
            "state": self._shown_state(complete=state.status == "complete"),
            "thread_id": state.thread_id,
            "run_id": call.run_id if call.named and call.run_id in names else names[0],
            "checkpoint_id": checkpoint_id(state.branch, state.checkpoint_seq),
            "interrupts": self.open_interrupts(),
            "warnings": state.warnings,
        }
        if state.status == "complete" and state.run.promised is not None:
            shared["warnings"] = (*state.warnings, _UNUSED)
        if error is not None:
            return Failed(error=error, **shared)
        match state.status:
            case "complete":
                return Completed(**shared)
            case "cancelled":
                return Cancelled(**shared)
            case "waiting":
                return Interrupted(breakpoints=breakpoints_of(state.step), **shared)
            case _:
                return Drained(**shared)

    def _shown_state(self, *, complete: bool) -> Any:
        """The state in the form of outcomes; the caller may do with it what he likes.

        In the middle of a run, where a class may refuse it, it may be a dict.

        Raises:
            InvalidUpdate: The class of the output schema refuses the state of a complete run.
        """
        values = head_values(self.graph, self.state.values, self.state.step)[0]
        kept = self.graph.unstored  # live objects, which cannot be copied
        values = {key: v if key in kept else self._own(v) for key, v in values.items()}
        try:
            return self.graph.output(values)
        except InvalidUpdate:
            if complete:
                raise
            return values

    def _own(self, value: Any) -> Any:
        """A value for a caller, who must not change the state by it."""
        try:
            return unshared(value, self.env.copy)
        except (SerializationError, RecursionError):
            return value  # a node has changed it in place to what no store takes

    def _drop_timers(self) -> None:
        for key in (self._run_timer, self._step_timer):
            if key is not None:
                self._effects.append(DropTimer(key))
        self._run_timer = self._step_timer = None
