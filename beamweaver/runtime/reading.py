"""Reading threads: the head as people see it, and recorded outcomes. Needs no ownership of the store."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Any

from beamweaver.engine.answers import interrupts_of
from beamweaver.engine.breakpoints import breakpoints_of
from beamweaver.engine.fitting import check_version, graph_changed, version_of, why_unfit
from beamweaver.engine.fold import fold, progress_of
from beamweaver.engine.ids import checkpoint_id, parse_checkpoint_id
from beamweaver.engine.merge import head_values, with_initial
from beamweaver.engine.rows import values_of
from beamweaver.engine.unread import AsPlainData, Unread
from beamweaver.errors import DeserializationError, GraphTooOld, InvalidCall, InvalidUpdate
from beamweaver.graph._text import shown
from beamweaver.graph.migrations import migrations_from
from beamweaver.limits import DEFAULT_LIMITS
from beamweaver.runtime.env import GraphCodec
from beamweaver.runtime.namespaces import declared_call
from beamweaver.types import START, Completed, TaskView, ThreadState

if TYPE_CHECKING:
    from beamweaver.checkpoint.records import MessageKey, ThreadImage
    from beamweaver.engine.calls import Call
    from beamweaver.engine.env import Env
    from beamweaver.engine.state import RunState, Task
    from beamweaver.graph.compiled import CompiledGraph
    from beamweaver.runtime.hub import Hub

__all__ = [
    "ReadEnv",
    "folded",
    "is_checkpoint",
    "metadata_of",
    "pending_writes",
    "recorded_outcome",
    "seq_of",
    "snapshot",
    "values_and_fault",
    "view_of_task",
    "waiting_nodes",
    "why_not",
]


_NUMBERS = 1 << 63
_EPOCH = dt.datetime.fromtimestamp(0, dt.UTC)


class ReadEnv:
    """The engine's view of the world for folding only: it decodes, and does nothing else."""

    epoch = 0
    incarnation = 0
    limits = DEFAULT_LIMITS
    publishing = False
    keeps = True

    def __init__(
        self,
        codec: Any,
        plans: GraphCodec,
        around: Env | None = None,
        *,
        old: bool = False,
        deep: bool = False,
    ) -> None:
        self._codec = codec
        self._old = old
        self._deep = deep
        self.graph = plans.graph
        self.around: Env = around or self
        self._inside: dict[CompiledGraph, ReadEnv] = {}
        self.encode = plans.encode
        self.encode_sent = plans.encode_sent
        self.decode_old = plans.decode_old
        self.decode = plans.decode_old if old else plans.decode
        self.decode_sent = self._decode_old_sent if old else plans.decode_sent
        self.digest = codec.digest
        self.tell_large = codec.tell_large
        self.copy = plans.copy
        self.encode_any = codec.encode
        self.decode_any = codec.decode

    def _decode_old_sent(self, node: str, key: str, data: bytes) -> Any:
        return self.decode_old(key, data, node)

    def inside(self, graph: CompiledGraph) -> ReadEnv:
        """The same for a graph that runs inside of a task."""
        env = self._inside.get(graph)
        if env is None:
            plans = GraphCodec(self._codec, graph)
            env = ReadEnv(self._codec, plans, self, old=self._old, deep=self._deep)
            self._inside[graph] = env
        return env

    def called(self, node: str, key: str) -> tuple[CompiledGraph, Any]:
        """A graph that a function calls, if its node says so; it is looked into where that is asked."""
        if not self._deep:
            return self.graph, Unread(self)
        graph = declared_call(self.graph, node, key)
        return (self.graph, AsPlainData(self)) if graph is None else (graph, self.inside(graph))

    def encode_result(self, node: str, channel: str, value: Any) -> bytes:
        """Nothing runs here."""
        raise InvalidCall(
            f"a reader ends no calls of graphs ({node!r}, {channel!r}, {shown(value)})"
        )

    def ahead(self, size: int) -> bool:
        """Nothing is written here."""
        raise InvalidCall(f"a reader has no commits on their way ({size} bytes)")

    def now_us(self) -> int:
        """No clock here."""
        return 0

    def rest_of(self, due_us: int, delay: float) -> float:
        """No clock here, so all of it, unless it is over."""
        return delay if due_us else 0.0

    def clock(self) -> float:
        """No clock here."""
        return 0.0

    def random(self) -> float:
        """No chance here."""
        return 0.0

    def new_id(self) -> str:
        """No ids here."""
        raise InvalidCall("a reader makes no ids")

    def load(self, seq: int | None) -> ThreadImage | None:
        """No store here."""
        raise InvalidCall(f"a reader of one image does not load another ({seq})")

    def message_key(self, key: str) -> MessageKey | None:
        """No store here."""
        raise InvalidCall(f"a reader of one image knows no keys ({key!r})")

    def run_number(self, run_id: str) -> int | None:
        """No store here."""
        raise InvalidCall(f"a reader of one image knows no other runs ({run_id!r})")


def folded(
    image: ThreadImage, codec: Any, plans: GraphCodec, *, raw: bool, deep: bool = False
) -> tuple[RunState, str | None]:
    """An image as people see it; what cannot be read in the type that its key has now is plain data.

    Args:
        image: The image.
        codec: Decodes values.
        plans: The same, of the thread's graph.
        raw: Whether it is the checkpoint by itself.
        deep: Whether graphs that functions call are looked into.

    Returns:
        The state, and what could not be read, if anything.
    """
    try:
        return fold(image, ReadEnv(codec, plans, deep=deep), raw=raw), None
    except DeserializationError as error:
        state = fold(image, ReadEnv(codec, plans, old=True, deep=deep), raw=raw)
        return state, f"the stored value {error.message}; it is shown as plain data"


def why_not(image: ThreadImage, graph: CompiledGraph, unread: str | None) -> str | None:
    """Why the head cannot go on under this graph; None also where a migration is to see to it."""
    stored = version_of(image)
    if migrations_from(graph.migrations, stored, graph.version):
        return None
    try:
        check_version(image, graph)
    except GraphTooOld as error:
        return error.message
    unfit = why_unfit(image, graph, stored)
    if unfit is None and unread is not None:
        unfit = graph_changed(image, graph, stored, (unread,))
    return None if unfit is None else unfit.message


def is_checkpoint(image: ThreadImage, checkpoint: str | None) -> bool:
    """Whether it is the checkpoint asked for, not one of a thread that was made again under the id."""
    found = image.checkpoint.checkpoint
    if checkpoint is None or found is None:
        return True
    return checkpoint_id(found.branch, image.checkpoint.seq) == checkpoint


def seq_of(checkpoint: str | None, argument: str = "checkpoint_id") -> int | None:
    """The number of a checkpoint's record, from its id.

    Raises:
        InvalidCall: It is no checkpoint id.
    """
    if checkpoint is None:
        return None
    parsed = parse_checkpoint_id(checkpoint) if isinstance(checkpoint, str) else None
    if parsed is None or parsed[1] >= _NUMBERS:
        raise InvalidCall(
            f"{argument} is {shown(checkpoint)}, which is no checkpoint's id; take one from an outcome's "
            "checkpoint_id, or from state.config['configurable']['checkpoint_id']"
        )
    return parsed[1]


def metadata_of(image: ThreadImage, env: ReadEnv, *, raw: bool) -> dict[str, Any]:
    """The metadata of a state: where the checkpoint comes from, how its thread stands, what calls noted."""
    row, record = image.row, image.checkpoint
    step = record.checkpoint
    assert step is not None, "an image begins at a checkpoint"
    options = row.run.options
    noted = step.metadata if raw or options is None else options.metadata
    return {
        **{key: env.decode_any(data) for key, data in noted.items()},
        "graph": row.graph,
        "version": version_of(image),
        "source": step.source,
        "step": step.step,
        "run_id": step.run_id if raw else row.run.names[0],
        "reason": row.reason,
        "owner_deaths": row.run.deaths if progress_of(image) <= row.run.deaths_seq else 0,
    }


def snapshot(
    graph: CompiledGraph,
    image: ThreadImage,
    state: RunState,
    env: ReadEnv,
    *,
    raw: bool,
    graph_error: str | None = None,
) -> ThreadState:
    """A folded image as people see it; a raw one is an older checkpoint by itself."""
    whole = graph_error is not None or version_of(image) != graph.version
    values, merge_error = values_and_fault(graph, state, whole=whole)
    tasks = tuple(view_of_task(state, task) for task in state.step.tasks if task.node != START)
    row = image.row
    record = image.checkpoint
    step = record.checkpoint
    assert step is not None, "an image begins at a checkpoint"
    return ThreadState(
        values=values,
        next=waiting_nodes(state),
        tasks=tasks,
        interrupts=tuple(i for task in tasks for i in task.interrupts),
        pending_writes=pending_writes(state),
        metadata=metadata_of(image, env, raw=raw),
        created_at=_time(record.at_us),
        config=_config(row.thread_id, state.branch, record.seq),
        parent_config=(
            _config(row.thread_id, step.parent_branch or state.branch, step.parent)
            if step.parent >= 0
            else None
        ),
        step=step.step,
        status=row.status,
        merge_error=merge_error,
        graph_error=graph_error,
        breakpoints=breakpoints_of(state.step),
    )


def values_and_fault(
    graph: CompiledGraph, state: RunState, *, whole: bool = False
) -> tuple[Any, str | None]:
    """The state in the form of the schema, and why its results do not merge.

    What a class refuses, and what is of another version, is shown `whole`, as a dict: nothing keeps people
    from seeing what is there.
    """
    values, merge_error = head_values(graph, state.values, state.step)
    if whole:
        return dict(values), merge_error
    try:
        return graph.shape.make(values), merge_error
    except InvalidUpdate as error:
        return dict(values), merge_error or (error.message if state.values else None)


def waiting_nodes(state: RunState) -> tuple[str, ...]:
    """Each node of the unfinished step that is not finished; where all are, the step's own nodes.

    Deferred nodes come after them.
    """
    tasks = state.step.tasks
    unfinished = [task.node for task in tasks if task.result is None]
    waiting = [task.node for task in state.deferred]
    return tuple(dict.fromkeys([*(unfinished or [task.node for task in tasks]), *waiting]))


def pending_writes(state: RunState) -> tuple[tuple[str, str, Any], ...]:
    """What the finished tasks of the unfinished step write: task id, channel, value."""
    return tuple(
        (state.id_of(task), write.channel, write.value)
        for task in state.step.tasks
        if task.result is not None and task.node != START
        for write in task.result.writes
    )


def _config(thread_id: str, branch: str, seq: int) -> dict[str, Any]:
    return {"configurable": {"thread_id": thread_id, "checkpoint_id": checkpoint_id(branch, seq)}}


def view_of_task(state: RunState, task: Task) -> TaskView:
    """A task of an open step as people see it."""
    failure = task.failure or (task.handling if task.result is None else None)
    if task.result is not None:
        how = "finished"
    elif task.failure is not None:
        how = "failed"
    elif task.open_questions:
        how = "waiting"
    elif task.handling is not None:
        how = "handling"
    else:
        how = "sleeping" if task.asleep else "retrying" if task.due_us else "pending"
    return TaskView(
        id=state.id_of(task),
        node=task.node,
        state=how,
        attempt=max(task.failures, 1) if failure else task.failures + 1,
        failure=failure,
        interrupts=interrupts_of(state, task),
        due=_time(task.due_us) if task.due_us and how in ("retrying", "sleeping") else None,
        namespace=state.names,
    )


def _time(us: int) -> dt.datetime:
    return _EPOCH + dt.timedelta(microseconds=us)  # a float of seconds is less exact


def recorded_outcome(hub: Hub, thread_id: str, call: Call, number: int) -> Completed | None:
    """The outcome of an older run that was completed, from the checkpoint that completed it."""
    seq = hub.store.run_end(thread_id, number)
    if seq is None:
        return None
    image = hub.store.load(thread_id, seq)
    if image is None:
        return None
    graph = hub.graph(image.row.graph)
    plans = hub.codec_of(graph)
    values: Any = values_of(image.values, ReadEnv(hub.codec, plans, old=True))
    checkpoint = image.checkpoint.checkpoint
    assert checkpoint is not None, "an image begins at a checkpoint"
    if version_of(image) == graph.version:
        values = graph.output(with_initial(graph, values))
    return Completed(
        state=values,
        thread_id=thread_id,
        run_id=call.run_id,
        checkpoint_id=checkpoint_id(checkpoint.branch, seq),
        warnings=checkpoint.warnings,
    )
