"""Calls on a thread, and the table that says what each does (semantics 5)."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Any

from beamweaver.engine.answers import refuse_answered
from beamweaver.engine.ids import checkpoint_id
from beamweaver.engine.refusals import (
    busy,
    no_checkpoint,
    nothing_to_rerun,
    quarantined,
    unfinished,
    wrong_graph,
)
from beamweaver.errors import (
    NothingToContinue,
    NothingToResume,
)
from beamweaver.types import START

if TYPE_CHECKING:
    from collections.abc import Mapping

    from beamweaver.checkpoint.records import RunOptions
    from beamweaver.engine.state import Edit, Planned, RunState, Write

__all__ = [
    "UNFINISHED",
    "Call",
    "CallKind",
    "Decision",
    "Prepared",
    "decide",
    "is_left",
    "passes",
    "reruns_of",
]

UNFINISHED = ("accepted", "running", "sleeping", "drained")
"""Stored statuses of a run that goes on by itself."""


class CallKind(enum.Enum):
    """The verbs of a thread."""

    INVOKE = "invoke"
    RESUME = "resume"
    CONTINUE = "continue"
    CANCEL = "cancel"
    RELEASE = "release"
    UPDATE = "update"


class Prepared:
    """An input, checked and encoded where it was given, so that its errors are raised there.

    Attributes:
        writes: Its update, in order.
        goto: Nodes to run beside the step (an amendment), or in place of the entry edges (a start).
        sends: The same for Sends.
        digest: Of the canonical encoding; equal inputs have equal digests.
    """

    __slots__ = ("digest", "goto", "sends", "writes")

    def __init__(
        self,
        writes: tuple[Write, ...],
        digest: bytes,
        goto: tuple[str, ...] | None = None,
        sends: tuple[Planned, ...] = (),
    ) -> None:
        self.writes = writes
        self.digest = digest
        self.goto = goto
        self.sends = sends

    @property
    def empty(self) -> bool:
        """Whether it changes nothing, so that it is no amendment."""
        return not self.writes and not self.sends and self.goto is None


class Call:
    """One call of a thread: what is asked, under which name, and who waits.

    Attributes:
        id: Unique; answers name it.
        kind: The verb.
        graph: The name of the graph that the caller means.
        input: For INVOKE, and for RESUME where a `Command` both amends and answers.
        answer: For RESUME without a map: the encoded-and-decoded answer, else `NO_ANSWER`.
        answers: For RESUME with a map: question id -> answer.
        run_id: The name of the run that it starts, joins or continues.
        named: Whether the caller gave `run_id` (else it was drawn). A named cancel is of that run alone.
        waits: Whether somebody waits for the run's end; a told message does not.
        on_busy: `"queue"`, `"reject"` or `"cancel"`.
        on_unfinished: `"continue"`, `"reject"` or `"restart"`.
        recursion_limit: Steps, or 0 for the graph's own.
        again: It was handed to an earlier incarnation of the thread's actor, so it may have been admitted.
        known_run: The number of an older run that has this name, where the store knows one.
        message: Its number in the inbox, where it is a durable message.
        options: What else it gives in place of the graph's own; None if nothing.
        rerun: Nodes, or ids of tasks, whose finished results it drops.
        withdrawn: Its caller went away before it was decided: it does nothing.
        checkpoint: The id of the checkpoint from which it goes on; None for the head.
        fork: Whether it begins a branch even at the head.
        place: Digest of checkpoint and fork with what is asked; empty if neither is given.
        updates: For UPDATE: the edits, superstep by superstep.
        key: Its idempotency key; empty if it has none.
        key_digest: Of what it asks, where it has a key.
        first_id: Id of the message that brought the key first, where this one repeats it.
        lasting: Whether nobody hears a refusal, so that it is kept as rejected.
    """

    __slots__ = (
        "again",
        "answer",
        "answers",
        "checkpoint",
        "first_id",
        "fork",
        "graph",
        "id",
        "input",
        "key",
        "key_digest",
        "kind",
        "known_run",
        "lasting",
        "message",
        "named",
        "on_busy",
        "on_unfinished",
        "options",
        "place",
        "recursion_limit",
        "rerun",
        "run_id",
        "updates",
        "waits",
        "withdrawn",
    )

    def __init__(
        self,
        id: str,  # noqa: A002 - the field's name
        kind: CallKind,
        graph: str,
        run_id: str,
        *,
        input: Prepared | None = None,  # noqa: A002 - the field's name
        answer: Any = None,
        answers: Mapping[str, Any] | None = None,
        named: bool = False,
        waits: bool = True,
        on_busy: str = "queue",
        on_unfinished: str = "continue",
        recursion_limit: int = 0,
        options: RunOptions | None = None,
        rerun: tuple[str, ...] = (),
        checkpoint: str | None = None,
        fork: bool = False,
        place: bytes = b"",
        updates: tuple[tuple[Edit, ...], ...] = (),
    ) -> None:
        self.id = id
        self.kind = kind
        self.graph = graph
        self.run_id = run_id
        self.input = input
        self.answer = answer
        self.answers = answers
        self.named = named
        self.waits = waits
        self.on_busy = on_busy
        self.on_unfinished = on_unfinished
        self.recursion_limit = recursion_limit
        self.options = options
        self.rerun = rerun
        self.again = False
        self.known_run: int | None = None
        self.message: int | None = None
        self.withdrawn = False
        self.checkpoint = checkpoint
        self.fork = fork
        self.place = place
        self.updates = updates
        self.key = ""
        self.key_digest = b""
        self.first_id = ""
        self.lasting = False


class Decision(enum.Enum):
    """What a call does to a thread as it stands."""

    START = "start"
    """A new run."""
    RESTART = "restart"
    """A new run in place of the unfinished one."""
    JOIN = "join"
    """It waits for the run as it is."""
    GO_ON = "go on"
    """A caller's continuation; its input, if any, is the run's own, so it changes nothing."""
    AMEND = "amend"
    """The input is kept with the unfinished run, which goes on unless it waits for an answer."""
    TAKE_UP = "take up"
    """The run of a dead process goes on; its counts hold."""
    ANSWER = "answer"
    """Answers to open questions, and a continuation."""
    QUEUE = "queue"
    """It waits until the run stops."""
    REPORT = "report"
    """It is told how the run stands; nothing runs."""
    RECORDED = "recorded"
    """It is told the recorded outcome of an older run."""
    AMEND_RUNNING = "amend running"
    """The input amends a run that a dead process left and that executes here already."""
    CANCEL = "cancel"
    """The running run is cancelled."""
    CANCEL_FIRST = "cancel first"
    """The running run is cancelled, then the call has its turn on the cancelled thread."""
    CANCEL_LEFT = "cancel left"
    """The run is unfinished and does not execute here: it is not to be taken up any more."""
    RELEASE = "release"
    """A quarantined thread goes on."""
    FORK = "fork"
    """A branch begins at an older checkpoint, or at the head because the call says so."""
    EDIT = "edit"
    """The state is edited; nothing runs but routers."""


_GOES_ON = frozenset({Decision.START, Decision.RESTART, Decision.GO_ON, Decision.AMEND})
"""What writes on where the thread stands; amid a branch, that begins a new one."""


def decide(
    state: RunState,
    call: Call,
    *,
    active: bool,
    epoch: int,
    stopping: bool = False,
    behind: bool = False,
) -> Decision:
    """What `call` does, by the table of calls on an existing thread.

    Args:
        state: The thread.
        call: The call.
        active: Whether the run executes in this actor now.
        epoch: The store epoch of this owner.
        stopping: Whether what executes is being stopped.
        behind: Whether calls wait behind the run, which came before this one.

    Raises:
        CallRefused: The call cannot be taken; nothing has changed.
    """
    row = state.row
    if row is None:
        return _on_new(state, call)
    if row.graph != call.graph:
        raise wrong_graph(state.thread_id, row.graph, call.graph)
    if row.status == "quarantined":
        if call.kind is CallKind.RELEASE:
            return Decision.RELEASE
        raise quarantined(state.thread_id, row.reason)
    if call.kind is CallKind.RELEASE:
        return Decision.REPORT
    if call.kind is CallKind.CANCEL:
        if active:
            return Decision.CANCEL
        return Decision.CANCEL_LEFT if row.status in UNFINISHED else Decision.REPORT
    if call.kind is CallKind.UPDATE:
        return _behind(state, call) if active else Decision.EDIT
    amends = not (stopping or behind)
    return _on_run(state, call, active=active, epoch=epoch, amends=amends)


def _on_run(state: RunState, call: Call, *, active: bool, epoch: int, amends: bool) -> Decision:
    run = state.run
    same_run = call.run_id in run.names or call.known_run == run.number
    if not same_run and call.known_run is not None:
        return Decision.RECORDED
    if call.place:
        placed = _on_place(state, call, active=active, same_run=same_run, epoch=epoch)
        if placed is not None:
            return placed
    if active:
        return _on_running(state, call, same_run=same_run, epoch=epoch, amends=amends)
    if call.rerun and not (call.again and same_run):
        return _on_rerun(state, call)
    decision = _on_stopped(state, call, same_run=same_run, epoch=epoch)
    return Decision.FORK if not state.tip and decision in _GOES_ON else decision


def _on_new(state: RunState, call: Call) -> Decision:
    thread_id = state.thread_id
    if call.rerun:
        reruns_of(state, call)
    if call.place:
        raise no_checkpoint(thread_id, call.checkpoint)
    if call.kind is CallKind.UPDATE:
        return Decision.EDIT
    if call.kind is CallKind.INVOKE and call.input is not None:
        return Decision.START
    if call.kind is CallKind.RESUME:
        raise NothingToResume(
            f"thread {thread_id!r} does not exist, so no question is open; invoke it with an input",
            thread_id=thread_id,
        )
    raise NothingToContinue(
        f"thread {thread_id!r} does not exist, so there is nothing to continue; give an input",
        thread_id=thread_id,
    )


def _on_running(
    state: RunState, call: Call, *, same_run: bool, epoch: int, amends: bool
) -> Decision:
    if (call.kind is CallKind.CONTINUE or same_run) and (not call.rerun or call.again):
        return Decision.JOIN
    if call.kind is CallKind.RESUME and state.status == "sleeping":
        refuse_answered(state, call)
        raise NothingToResume(
            f"thread {state.thread_id!r} sleeps and no question is open; wait for it with invoke(None)",
            thread_id=state.thread_id,
            status=state.status,
        )
    if call.kind is CallKind.INVOKE and is_left(state, epoch) and not (call.rerun or call.key):
        if _changes_nothing(state, call):
            return Decision.JOIN
        if call.on_unfinished == "reject":
            raise unfinished(state)
        if call.on_unfinished == "continue" and amends:
            return Decision.AMEND_RUNNING
    return _behind(state, call)


def _behind(state: RunState, call: Call) -> Decision:
    """What a call does that cannot have its turn while the run executes."""
    if call.on_busy == "reject":
        raise busy(
            state, "the call said on_busy='reject'; wait for the run, or use on_busy='queue'"
        )
    return Decision.CANCEL_FIRST if call.on_busy == "cancel" else Decision.QUEUE


def _on_rerun(state: RunState, call: Call) -> Decision:
    """A call that drops results of the unfinished step is a continuation wherever there is one."""
    reruns_of(state, call)
    if call.kind is CallKind.RESUME:
        return _on_answer(state, call)
    if call.kind is CallKind.INVOKE and call.on_unfinished == "reject":
        raise unfinished(state)
    return Decision.AMEND


def reruns_of(state: RunState, call: Call) -> tuple[int, ...]:
    """Which tasks' results the call drops, by position; those that have none run anyway.

    Raises:
        InvalidCall: There is no unfinished step, or no such task in it.
    """
    found: list[int] = []
    tasks = [] if state.status in (None, "complete") else state.step.tasks
    for name in call.rerun:
        named = [t for t in tasks if t.node != START and name in (t.node, state.id_of(t))]
        if not named:
            raise nothing_to_rerun(state, name, tasks)
        found.extend(task.position for task in named if task.result is not None)
    return tuple(sorted(set(found)))


def _on_place(
    state: RunState, call: Call, *, active: bool, same_run: bool, epoch: int
) -> Decision | None:
    """What a call does that names a checkpoint; None where that says no more than to name none."""
    head = checkpoint_id(state.branch, state.checkpoint_seq)
    if not call.fork and call.checkpoint == head:
        return None
    run = state.run
    complete = state.status == "complete"
    if not same_run and not (call.named or call.key) and call.place == run.place:
        # The call of a dead process, made again: its branch is there.
        same_run = is_left(state, epoch) if active or complete else run.claimed_epoch < epoch
    if not same_run:
        return _behind(state, call) if active else Decision.FORK
    if active:
        return Decision.JOIN
    return Decision.REPORT if complete else _go_on(state, call)


def _on_stopped(state: RunState, call: Call, *, same_run: bool, epoch: int) -> Decision:
    if call.again and (same_run or _answered_before(state, call)):
        # Admitted before its actor died: it is owed the outcome, not another try.
        return Decision.TAKE_UP if state.status in UNFINISHED else Decision.REPORT
    if state.status == "complete":
        return _on_complete(state, call, same_run=same_run, epoch=epoch)
    if call.kind is CallKind.RESUME:
        return _on_answer(state, call)
    if call.kind is CallKind.CONTINUE or same_run:
        return _go_on(state, call)
    if not (state.run.claimed_epoch < epoch and _same_digest(state, call)):
        # The call of a dead process, made again, goes on whatever it says of unfinished runs.
        if call.on_unfinished == "reject":
            raise unfinished(state)
        if call.on_unfinished == "restart":
            return Decision.RESTART
    return _go_on(state, call) if _changes_nothing(state, call) else Decision.AMEND


def _go_on(state: RunState, call: Call) -> Decision:
    if state.status == "waiting":
        return Decision.GO_ON if passes(state, call) else Decision.REPORT
    return Decision.TAKE_UP if state.status in UNFINISHED else Decision.GO_ON


def passes(state: RunState, call: Call) -> bool:
    """Whether the call lets a waiting run go on that stands at a breakpoint, not at a question.

    An input does not, however often it comes: it may be the same call, made again by a client that lost
    the answer. With a `goto` it does, for that asks for tasks to run.
    """
    if state.step.asks:
        return False
    given = call.input
    return call.kind is not CallKind.INVOKE or (
        given is not None and (given.goto is not None or bool(given.sends))
    )


def _on_complete(state: RunState, call: Call, *, same_run: bool, epoch: int) -> Decision:
    if same_run or call.kind is CallKind.CONTINUE:
        return Decision.REPORT
    if call.kind is CallKind.RESUME:
        refuse_answered(state, call)
        raise NothingToResume(
            f"thread {state.thread_id!r} is complete and no question is open; invoke it with an "
            "input to begin a new run",
            thread_id=state.thread_id,
        )
    # An equal input on a run that a dead process left is the same call, made again; of one with a key,
    # the key tells.
    told = call.message is not None or call.key != ""
    repeated = not told and is_left(state, epoch) and _same_digest(state, call)
    return Decision.REPORT if repeated else Decision.START


def _on_answer(state: RunState, call: Call) -> Decision:
    refuse_answered(state, call)
    if state.step.asks:
        return Decision.ANSWER
    if state.status == "waiting" and call.answers is None:
        # A breakpoint asks nothing, so whatever is said to it only lets the run go on.
        return Decision.GO_ON if _changes_nothing(state, call) else Decision.AMEND
    if state.status in UNFINISHED:
        amends = bool(call.rerun) or not _changes_nothing(state, call)
        return Decision.AMEND if amends else Decision.TAKE_UP
    raise NothingToResume(
        f"thread {state.thread_id!r} is {state.status} and no question is open; go on with invoke(None)",
        thread_id=state.thread_id,
        status=state.status,
    )


def is_left(state: RunState, epoch: int) -> bool:
    """Whether a dead process left the run and no caller of this one has claimed it."""
    run = state.run
    if run.claimed_epoch >= epoch:
        return False
    return state.status in UNFINISHED or run.taken_up_epoch == epoch


def _same_digest(state: RunState, call: Call) -> bool:
    return call.input is not None and not call.named and call.input.digest == state.run.digest


def _changes_nothing(state: RunState, call: Call) -> bool:
    """Whether the call's input is none, empty, or the last input of the run."""
    return call.input is None or call.input.empty or _same_digest(state, call)


def _answered_before(state: RunState, call: Call) -> bool:
    return bool(call.answers) and all(id_ in state.run.answered for id_ in call.answers or ())
