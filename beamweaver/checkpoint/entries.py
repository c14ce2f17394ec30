"""What a record tells of a step that is not finished: the structs of its entries, and of tasks and writes.

All structs are arrays in msgpack, so a field is never removed or moved; new ones are appended with a
default, and an entry of a new kind takes the next tag.
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec

__all__ = [
    "Answered",
    "Asked",
    "Continued",
    "Edited",
    "Entry",
    "Failing",
    "FailureRow",
    "Finished",
    "Handled",
    "Inner",
    "Left",
    "Memo",
    "MergeFailed",
    "Paused",
    "Retrying",
    "SendRow",
    "Slept",
    "StepEntry",
    "StepFailed",
    "TaskFailed",
    "TaskRow",
    "UpRow",
    "WriteRow",
]

WriteRow: TypeAlias = tuple[str, bytes, bool]
"""A write: channel, encoded value, and whether it overwrites (bypasses the reducer)."""


class SendRow(msgspec.Struct, array_like=True, frozen=True):
    """A task planned by a `Send`: node, encoded overlay, seconds for an attempt, in all and idle."""

    node: str
    update: dict[str, bytes]
    timeout: float | None = None
    idle: float | None = None


class TaskRow(msgspec.Struct, array_like=True, frozen=True):
    """A task of the next step. Its id follows from branch, step and path, unless `id` says otherwise.

    `source` and `index` are set for a Send: the id of the task that sent it, and which of its Sends.
    """

    node: str
    source: str | None = None
    index: int = 0
    update: dict[str, bytes] | None = None
    timeout: float | None = None
    id: str | None = None
    idle: float | None = None


class FailureRow(msgspec.Struct, array_like=True, frozen=True):
    """An exception as data; never rebuilt by import."""

    code: str
    type_name: str
    message: str
    traceback: str = ""


class UpRow(msgspec.Struct, array_like=True, frozen=True):
    """What a task of a subgraph commands the graph around, as that graph stores it."""

    writes: tuple[WriteRow, ...] = ()
    goto: tuple[str, ...] | None = None
    sends: tuple[SendRow, ...] = ()


class Finished(msgspec.Struct, array_like=True, frozen=True, tag=1):
    """A task ended well: its writes in order, where it goes, what it sends.

    `task` is the task's position in its step. `goto` is None without a goto (static edges are taken). `up`
    is a command to the graph around. `kept` is what persistent subgraphs in the task keep: place -> values.
    """

    task: int
    writes: tuple[WriteRow, ...] = ()
    goto: tuple[str, ...] | None = None
    sends: tuple[SendRow, ...] = ()
    up: UpRow | None = None
    kept: dict[str, bytes] | None = None


class TaskFailed(msgspec.Struct, array_like=True, frozen=True, tag=2):
    """The last attempt of a task failed."""

    task: int
    attempt: int
    failure: FailureRow


class Retrying(msgspec.Struct, array_like=True, frozen=True, tag=3):
    """An attempt failed and another is due `due_us` (UTC, microseconds) after a delay of `delay` seconds."""

    task: int
    attempt: int
    due_us: int
    delay: float
    failure: FailureRow
    first_attempt_us: int = 0


class Asked(msgspec.Struct, array_like=True, frozen=True, tag=4):
    """A task asks a question: its ordinal in the task or its key, and the encoded value.

    `schema` is what the answer must be, as an encoded JSON schema, or empty. A question whose id the task
    has asked before is asked again, for `reason`: the answer that was kept does not fit.
    """

    task: int
    ordinal: int
    key: str | None
    value: bytes
    id: str
    schema: bytes = b""
    reason: str = ""


class Answered(msgspec.Struct, array_like=True, frozen=True, tag=5):
    """A question of a task is answered."""

    task: int
    ordinal: int
    key: str | None
    value: bytes
    id: str


class Continued(msgspec.Struct, array_like=True, frozen=True, tag=6):
    """A caller goes on with the step, perhaps with an amendment (encoded writes); begins a new era.

    `rerun` are the tasks whose results are dropped, so that they run again.
    """

    run_id: str
    writes: tuple[WriteRow, ...] = ()
    goto: tuple[str, ...] | None = None
    sends: tuple[SendRow, ...] = ()
    rerun: tuple[int, ...] = ()


class MergeFailed(msgspec.Struct, array_like=True, frozen=True, tag=7):
    """The results of the step did not merge, or a router failed after they did."""

    failure: FailureRow
    node: str = ""


class StepFailed(msgspec.Struct, array_like=True, frozen=True, tag=8):
    """The step or run was stopped by a limit (step_timeout, run_timeout, recursion_limit, cancel)."""

    failure: FailureRow
    cut: tuple[int, ...] = ()


class Memo(msgspec.Struct, array_like=True, frozen=True, tag=9):
    """What a durable sub-step of a task returned, encoded.

    It is the task's `ordinal`-th one of that name, or has a `key` (`ordinal` is -1 then). `digest` is that of
    its arguments' canonical encoding.
    """

    task: int
    name: str
    ordinal: int
    key: str | None
    digest: bytes
    value: bytes


class Slept(msgspec.Struct, array_like=True, frozen=True, tag=10):
    """A task sleeps until `due_us` (UTC, microseconds), which is `delay` seconds from when it began.

    It is the task's `ordinal`-th sleep, or has a `key` (`ordinal` is -1 then). Any later entry of the task
    shows that the sleep is over.
    """

    task: int
    ordinal: int
    key: str | None
    due_us: int
    delay: float


class Inner(msgspec.Struct, array_like=True, frozen=True, tag=11):
    """A record of a graph that runs inside of a task.

    Attributes:
        task: The task's position.
        data: The encoded `Record`, numbered within that graph's run from 0. The first one is a checkpoint
            of source `"input"` with all the values that the graph began with.
        key: Which of the graphs in the task: `""` is the graph that the node is, else a call's key.
        written: The keys that the record's step wrote, if those are not all of its checkpoint's `writes`.
    """

    task: int
    data: bytes
    key: str = ""
    written: tuple[str, ...] | None = None


class Edited(msgspec.Struct, array_like=True, frozen=True, tag=14):
    """A caller edited the step: the result of a task, or with `task` -1 an amendment in an era of its own.

    It belongs to the checkpoint in whose record it is: a branch from there has it too.
    """

    task: int
    writes: tuple[WriteRow, ...] = ()
    goto: tuple[str, ...] | None = None
    sends: tuple[SendRow, ...] = ()


class Paused(msgspec.Struct, array_like=True, frozen=True, tag=12):
    """The run stands at breakpoints, before and after these nodes; without any it has passed them."""

    before: tuple[str, ...] = ()
    after: tuple[str, ...] = ()


class Handled(msgspec.Struct, array_like=True, frozen=True, tag=13):
    """The last attempt of a task failed, and its node's error handler has the task from now on."""

    task: int
    attempt: int
    failure: FailureRow
    first_attempt_us: int = 0


class Failing(msgspec.Struct, array_like=True, frozen=True, tag=16):
    """The run has failed, and `on_failure` is told before it stops; with `failure`, how that one failed."""

    failure: FailureRow | None = None


class Left(msgspec.Struct, array_like=True, frozen=True, tag=17):
    """The last step of a graph inside of a task that has ended, for its history alone.

    Its result is that of the task, or of the call; this is what those lack. In a record with a checkpoint it
    is of the step that this checkpoint ends.

    Attributes:
        task: The task's position.
        step: The number of the step.
        own: What that graph wrote since the record before and what does not come back from it.
        back: What came back from it: key, encoded value, and whether that is the whole value; if not, it
            is what was added to the one that the graph began with.
        key: As in `Inner`.
        opening: The first record of that graph, where none is stored.
        as_seen: Whether that is without values, for they are what the node saw in the step around.
        inside: The same of graphs in the tasks of the step.
    """

    task: int
    step: int
    own: dict[str, bytes]
    back: tuple[WriteRow, ...] = ()
    key: str = ""
    opening: bytes = b""
    as_seen: bool = False
    inside: tuple[Left, ...] = ()


StepEntry: TypeAlias = (
    Finished
    | TaskFailed
    | Retrying
    | Asked
    | Answered
    | Continued
    | MergeFailed
    | StepFailed
    | Memo
    | Slept
    | Edited
    | Paused
    | Handled
    | Failing
    | Left
)
"""An entry of the open step itself."""

Entry: TypeAlias = StepEntry | Inner
