"""The durable state of a thread: what a record changes, and nothing else.

`RunState` holds exactly what the store holds, decoded. The machine changes it only together with a record
that says the same, so that folding the records again gives the same state (`fold.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import msgspec

from beamweaver.checkpoint.entries import FailureRow
from beamweaver.engine._quiet import Quiet
from beamweaver.engine.ids import inner_key, task_id
from beamweaver.engine.kept import kept_inside, place_of
from beamweaver.types import Failure

if TYPE_CHECKING:
    from collections.abc import Mapping

    from beamweaver.checkpoint.entries import Memo, Paused
    from beamweaver.checkpoint.records import Chain, Record, RunRow, StatusName, ThreadRow
    from beamweaver.engine.calls import Prepared
    from beamweaver.graph.compiled import CompiledGraph

__all__ = [
    "Amendment",
    "Edit",
    "InnerState",
    "OpenStep",
    "Planned",
    "Question",
    "Result",
    "RunState",
    "Sleep",
    "Task",
    "Write",
]


class Write(Quiet, eq=False):
    """One write of a task or amendment: the value, and its encoding."""

    shown: ClassVar = ("channel", "overwrite")
    channel: str
    value: Any
    data: bytes
    overwrite: bool = False


class Planned(Quiet, eq=False):
    """A Send: the node, the overlay that its task sees, and the overlay's encoding."""

    shown: ClassVar = ("node",)
    node: str
    update: dict[str, Any]
    data: dict[str, bytes]
    timeout: float | None = None
    idle: float | None = None


class Result(Quiet, eq=False):
    """What a finished task gave.

    Attributes:
        era: Counts the continuations of its step before it finished.
        up: What it commands the graph around, in that graph's terms.
        kept: What persistent subgraphs in it keep: place -> encoded values.
    """

    shown: ClassVar = ("goto", "era")
    writes: tuple[Write, ...]
    goto: tuple[str, ...] | None = None
    sends: tuple[Planned, ...] = ()
    era: int = 0
    up: Result | None = None
    kept: dict[str, bytes] | None = None


class Amendment(Result, eq=False):
    """A caller's update to an unfinished step; its `era` is the one that it begins."""


class Edit(msgspec.Struct, eq=False):
    """One update by a caller: as which node (or task, by its id), None if it is to be found out, and what.

    `namespace` is the path to the graph inside of a task that it is of, if it is of one; `graphs` are those
    on the path.
    """

    as_node: str | None
    prepared: Prepared
    namespace: tuple[str, ...] = ()
    graphs: tuple[CompiledGraph, ...] = ()


class Question:
    """A question of a task: open until it has an answer.

    Attributes:
        data: The value, encoded.
        schema: What the answer must be, as an encoded JSON schema; empty if anything is taken.
        reason: Why the answer before was refused; empty if there was none.
        type: The type of which `schema` is, where the process that asked still lives.
    """

    __slots__ = (
        "answer", "data", "id", "key", "ordinal", "reason", "schema", "type", "value",
    )  # fmt: skip

    def __init__(
        self,
        id: str,  # noqa: A002 - the field's name
        ordinal: int,
        key: str | None,
        value: Any,
        data: bytes,
        *,
        schema: bytes = b"",
        reason: str = "",
        type: Any = None,  # noqa: A002 - the field's name
    ) -> None:
        self.id = id
        self.ordinal = ordinal
        self.key = key
        self.value = value
        self.data = data
        self.schema = schema
        self.reason = reason
        self.type = type
        self.answer: bytes | None = None
        """The answer, encoded: whoever reads it gets an object of their own."""


class Sleep(msgspec.Struct, eq=False):
    """A sleep of a task, told apart from its others by key, or else by its ordinal."""

    ordinal: int
    key: str | None
    due_us: int
    delay: float
    over: bool = False


class Task(Quiet, eq=False):
    """A task of the open step.

    Attributes:
        failures: Counted failed attempts since the caller's last call.
        due_us: When the next attempt is due, or 0.
        sleeps: Its sleeps, in order; only the last one may not be over.
        memos: What its durable sub-steps returned, by name, ordinal and key.
        inner: The graphs that began inside of it: `""` is the graph that its node is, else a call's key.
        id: Its id: worked out on first use (`RunState.id_of`), or kept with its row.
        handling: The failure of its node's last attempt, from when the node's error handler has the task.
    """

    shown: ClassVar = ("node", "position", "failures")
    node: str
    source: str | None = None
    index: int = 0
    update: dict[str, Any] | None = None
    update_data: dict[str, bytes] | None = None
    timeout: float | None = None
    position: int = 0
    failures: int = 0
    first_us: int = 0
    due_us: int = 0
    delay: float = 0.0
    result: Result | None = None
    failure: Failure | None = None
    questions: list[Question] | None = None
    sleeps: list[Sleep] | None = None
    memos: dict[tuple[str, int, str | None], Memo] | None = None
    inner: dict[str, InnerState] | None = None
    handling: Failure | None = None
    id: str | None = None
    idle: float | None = None

    @property
    def path(self) -> str:
        """The node, or for a Send its source task, index and node."""
        return self.node if self.source is None else f"{self.source}:{self.index}:{self.node}"

    @property
    def open_questions(self) -> list[Question]:
        """The questions that nobody answered yet, those inside of it included."""
        found = [q for q in self.questions or () if q.answer is None]
        if self.inner is not None:
            for state in self.inner.values():
                found.extend([q for task in state.step.tasks for q in task.open_questions])
        return found

    def remember(self, memo: Memo) -> None:
        """A sub-step of the task ended well."""
        if self.memos is None:
            self.memos = {}
        self.memos[memo.name, memo.ordinal, memo.key] = memo
        called = inner_key(memo.name, memo.ordinal, memo.key)
        if called and self.inner is not None:
            self.inner.pop(called, None)

    @property
    def asleep(self) -> bool:
        """Whether it waits for the end of a sleep."""
        return self.sleeps is not None and not self.sleeps[-1].over

    def fall_asleep(self, sleep: Sleep) -> None:
        """A sleep begins."""
        self.awake()
        self.sleeps = [*(self.sleeps or ()), sleep]
        self.due_us, self.delay = sleep.due_us, sleep.delay

    def awake(self) -> None:
        """The last sleep is over, if there was one."""
        if self.asleep:
            assert self.sleeps is not None, "who is asleep has a sleep"
            self.sleeps[-1].over = True
            self.due_us = 0

    @property
    def settled(self) -> bool:
        """Finished, failed, or waiting for an answer."""
        return (
            self.result is not None
            or self.failure is not None
            or (self.questions is not None and any(q.answer is None for q in self.questions))
            or (self.inner is not None and self._waits_inside())
        )

    def _waits_inside(self) -> bool:
        """Whether all that is unfinished inside of it stands still, and some of it waits for somebody."""
        inside = [state for state in (self.inner or {}).values() if state.step.tasks]
        waits = any(state.step.stands_at_breakpoint or state.step.asks for state in inside)
        fails = any(
            state.step.failing or state.has_failed for state in inside
        )  # the task is to fail
        return waits and not fails and all(state.stands_still for state in inside)

    def ask(self, question: Question) -> None:
        """A question more; one of an id that is there takes that one's place, for its answer was refused."""
        kept = [q for q in self.questions or () if q.id != question.id]
        self.questions = [*kept, question]

    def give_to_handler(self, failure: Failure) -> None:
        """The node has failed for good: its error handler has the task, with steps and sleeps of its own."""
        self.failure, self.handling = None, failure
        self.sleeps = self.memos = self.inner = None
        self.due_us = 0

    def begin_anew(self) -> None:
        """Its result is dropped: it runs again, and so do its sub-steps and its sleeps."""
        self.result = self.handling = self.sleeps = self.memos = self.inner = None

    def clear_failure(self) -> None:
        """Fresh attempt counts, as a caller's continuation gives them. A sleep goes on."""
        self.failure = None
        self.failures = 0
        self.first_us = 0
        if not self.asleep:
            self.due_us = 0


class OpenStep(Quiet, eq=False):
    """The step that is not committed yet.

    Attributes:
        failure: Why the step as a whole stopped: merge, router, timeout or limit.
        failing: Whether the run has failed, and `on_failure` is told before it stops.
        unheard: How `on_failure` failed.
        paused: The breakpoints before it at which the run stands.
    """

    shown: ClassVar = ("number", "tasks")
    number: int
    tasks: list[Task]
    era: int = 0
    amendments: list[Amendment] = msgspec.field(default_factory=list)
    failure: Failure | None = None
    failing: bool = False
    unheard: Failure | None = None
    paused: Paused | None = None

    def __post_init__(self) -> None:
        if len(self.tasks) > 1:
            for position, task in enumerate(self.tasks):
                task.position = position
        elif self.tasks:
            self.tasks[0].position = 0

    @property
    def asks(self) -> bool:
        """Whether any of its tasks waits for an answer."""
        return any(task.open_questions for task in self.tasks)

    @property
    def inside(self) -> list[OpenStep]:
        """The open steps of the graphs that have begun in its unfinished tasks."""
        unfinished = [task for task in self.tasks if task.result is None and task.inner is not None]
        return [inner.step for task in unfinished for inner in (task.inner or {}).values()]

    @property
    def stands_at_breakpoint(self) -> bool:
        """Whether it, or a graph inside of it, stands at a breakpoint."""
        return self.paused is not None or any(step.stands_at_breakpoint for step in self.inside)

    def pass_breakpoints(self) -> None:
        """The run goes on from where it stands, at all depths."""
        self.paused = None
        for step in self.inside:
            step.pass_breakpoints()


class RunState:
    """All that is durable of a thread's head."""

    __slots__ = (
        "branch",
        "chains",
        "checkpoint_seq",
        "deferred",
        "entry_seqs",
        "executed",
        "joins",
        "kept",
        "parent_seq",
        "progress_seq",
        "row",
        "seq",
        "since_full",
        "spent",
        "step",
        "thread_id",
        "tip",
        "values",
        "versions",
        "warnings",
    )

    def __init__(self, thread_id: str) -> None:
        self.thread_id = thread_id
        self.row: ThreadRow | None = None
        self.branch = ""
        self.values: dict[str, Any] = {}
        self.versions: dict[str, int] = {}
        self.chains: dict[str, Chain] = {}
        """How channels with reducers are stored: what a delta of the next step goes on top of."""
        self.since_full = 0
        self.seq = 0
        """The number of the next record."""
        self.checkpoint_seq = -1
        self.progress_seq = -1
        """The last record that showed progress: a commit, a result, a failed attempt, a question."""
        self.parent_seq = -1
        self.entry_seqs: list[int] = []
        """The records since the checkpoint, which the next one supersedes."""
        self.step = OpenStep(0, [])
        self.joins: dict[str, tuple[str, ...]] = {}
        self.spent: Mapping[str, int] = {}
        """Guarded edge with a budget -> how often the run took it."""
        self.deferred: tuple[Task, ...] = ()
        """Tasks that wait until the plan has no others."""
        self.executed = 0
        self.warnings: tuple[str, ...] = ()
        """What was noted when the run ended."""
        self.tip = True
        """Whether the head is the last checkpoint of its branch; if not, what goes on begins a new one."""
        self.kept: dict[str, bytes] | None = None
        """What persistent subgraphs keep: place -> encoded values. No node sees it."""

    @property
    def namespace(self) -> str:
        """What tells the ids of its tasks from those of other runs in the thread."""
        return ""

    @property
    def names(self) -> tuple[str, ...]:
        """The nodes around it, the outermost first."""
        return ()

    @property
    def status(self) -> StatusName | None:
        """The stored status, or None for a thread that does not exist."""
        return self.row.status if self.row is not None else None

    @property
    def run(self) -> RunRow:
        """The current run; only for a thread that exists."""
        assert self.row is not None, f"thread {self.thread_id!r} has no run yet"
        return self.row.run

    def id_of(self, task: Task) -> str:
        """The id of a task of the open step, worked out on first use."""
        if task.id is None:
            task.id = task_id(self.branch, self.namespace, self.step.number, task.path)
        return task.id


class InnerState(RunState):
    """The state of a graph that runs inside of a task.

    Attributes:
        graph: The graph.
        outer: The graph around it.
        start: The values that it began with.
        written: The keys that its nodes wrote.
        key: `""` for the graph that the node is, else that of the call.
        part: Of a persistent one with `key=`: which of its states it goes on with.
        digest: Of a call's input.
        opening: Its first record, while nothing follows it that must be durable.
        unread: Whether its graph is not known here yet, as that of a call is before its caller runs again:
            values are as they are stored, and `graph` is none of its own.
    """

    __slots__ = (
        "_names",
        "_namespace",
        "digest",
        "graph",
        "key",
        "opening",
        "outer",
        "part",
        "start",
        "unread",
        "written",
    )

    def __init__(
        self,
        around: RunState,
        task: Task,
        key: str,
        graph: CompiledGraph,
        outer: CompiledGraph,
        part: str = "",
    ) -> None:
        super().__init__(around.thread_id)
        self.branch = around.branch
        self._namespace = f"{around.id_of(task)}:{key}" if key else around.id_of(task)
        which = key or part
        self._names = (*around.names, f"{task.node}:{which}" if which else task.node)
        self.part = part
        self.graph = graph
        self.outer = outer
        self.key = key
        self.digest = b""
        self.opening: Record | None = None
        self.unread = False
        # What persistent graphs keep inside of a call lasts as long as the call.
        self.kept = None if key else kept_inside(around.kept, place_of(task.node, part))
        self.start: Mapping[str, Any] = {}
        self.written: set[str] = set()

    @property
    def namespace(self) -> str:
        """The id of the task around it, which no other run has."""
        return self._namespace

    @property
    def names(self) -> tuple[str, ...]:
        """The nodes around it, the outermost first; a key of a call or of `key=` follows after a colon."""
        return self._names

    @property
    def has_failed(self) -> bool:
        """Whether it stopped because something of it failed."""
        step = self.step
        return not step.failing and (
            step.failure is not None or any(task.failure is not None for task in step.tasks)
        )

    @property
    def stands_still(self) -> bool:
        """Whether nothing of it can go on by itself."""
        step = self.step
        if step.failure is not None or step.paused is not None:
            return True
        return all(task.settled for task in step.tasks) and any(
            task.result is None for task in step.tasks
        )


def failure_of(row: FailureRow, node: str, task: str, attempt: int) -> Failure:
    """A stored failure, as users see it."""
    return Failure(
        node=node,
        task_id=task,
        attempt=attempt,
        code=row.code,
        type_name=row.type_name,
        message=row.message,
        traceback=row.traceback,
    )


def row_of(failure: Failure) -> FailureRow:
    """A failure, as it is stored."""
    return FailureRow(failure.code, failure.type_name, failure.message, failure.traceback)
