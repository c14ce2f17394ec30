"""What happens in a runtime, as typed events; logs, metrics and streams are subscribers.

Example:
    >>> event = TaskStarted(thread_id="t", task_id="a1", node="load", attempt=1)
    >>> event.node
    'load'
"""

from __future__ import annotations

from typing import Any, TypeAlias

import msgspec

__all__ = [
    "AttemptFailed",
    "AttemptKilled",
    "Emitted",
    "Event",
    "FileSetAside",
    "MessageRejected",
    "MessageWaits",
    "RunAdmitted",
    "RunEnded",
    "RunSleeps",
    "StateUpdated",
    "StepCommitted",
    "StoreTrouble",
    "TaskAcknowledged",
    "TaskStarted",
    "ThreadMigrated",
    "ThreadQuarantined",
    "ThreadRestarted",
    "ThreadSetAside",
    "ThreadTakenUp",
]


class _Event(msgspec.Struct, frozen=True, kw_only=True):
    thread_id: str
    namespace: tuple[str, ...] = ()
    """The nodes around what happened, the outermost first: those that are graphs."""


class RunAdmitted(_Event, frozen=True, kw_only=True):
    """A run's input is durable."""

    run_id: str


class ThreadTakenUp(_Event, frozen=True, kw_only=True):
    """An unfinished thread that a dead process left goes on here; `deaths` counts its lost owners."""

    run_id: str
    deaths: int


class ThreadRestarted(_Event, frozen=True, kw_only=True):
    """A thread's actor crashed and was started again from the last commit."""

    reason: str


class ThreadQuarantined(_Event, frozen=True, kw_only=True):
    """A thread was set aside; `reason` tells why."""

    reason: str


class ThreadSetAside(_Event, frozen=True, kw_only=True):
    """A thread cannot go on under the code that is here; it is untouched, and goes on under the right code.

    `code` is that of the error which its callers get: `"graph_too_old"`, `"graph_changed"`,
    `"migration_failed"` or `"unknown_graph"`.
    """

    code: str
    reason: str


class ThreadMigrated(_Event, frozen=True, kw_only=True):
    """A thread of an older version of its graph is one of this version, durably."""

    from_version: int
    to_version: int


class TaskStarted(_Event, frozen=True, kw_only=True):
    """An attempt of a task begins."""

    task_id: str
    node: str
    attempt: int


class TaskAcknowledged(_Event, frozen=True, kw_only=True):
    """A task's result is durable: the task never runs again."""

    task_id: str
    node: str


class AttemptFailed(_Event, frozen=True, kw_only=True):
    """An attempt failed; `retry_in` is seconds to the next one, or None when there is none."""

    task_id: str
    node: str
    attempt: int
    failure_code: str
    message: str
    retry_in: float | None


class AttemptKilled(_Event, frozen=True, kw_only=True):
    """A timed out or cancelled attempt has ended (`abandoned=False`), or was given up."""

    task_id: str
    abandoned: bool


class Emitted(_Event, frozen=True, kw_only=True):
    """A node told something by `ctx.emit(value)`; it is not stored."""

    run_id: str
    task_id: str
    node: str
    attempt: int
    value: Any


class StepCommitted(_Event, frozen=True, kw_only=True):
    """A step is durable. One of a subgraph has no `checkpoint_id`, for it is kept with its parent's step.

    A step that goes on early is told when it is over, as not `durable` and without a checkpoint; under
    `durability="async"` it is told again when it is durable.
    """

    step: int
    checkpoint_id: str
    durable: bool = True


class StateUpdated(_Event, frozen=True, kw_only=True):
    """An edit of the state by a caller is durable."""

    checkpoint_id: str


class RunEnded(_Event, frozen=True, kw_only=True):
    """A run completed, failed, waits, was cancelled or drained, durably."""

    run_id: str
    status: str


class RunSleeps(_Event, frozen=True, kw_only=True):
    """All that is unfinished of a run sleeps, durably; the first task is due at `due` (UTC seconds)."""

    run_id: str
    due: float


class MessageRejected(_Event, frozen=True, kw_only=True):
    """A durable message could not be taken when its turn came; `thread.rejected()` has it too."""

    message_id: str
    code: str
    message: str


class FileSetAside(_Event, frozen=True, kw_only=True):
    """A file in the folder for messages of other processes is none, or damaged: it is in `inbox/aside` now.

    It is of no thread: `thread_id` is empty.
    """

    name: str
    reason: str


class MessageWaits(_Event, frozen=True, kw_only=True):
    """A message of another process cannot be taken now, and stays in the store's folder with those behind it.

    Where its graph is not registered with the owner, this is said once a graph, else once a message.
    """

    message_id: str
    graph: str
    reason: str


class StoreTrouble(_Event, frozen=True, kw_only=True):
    """The store refused a commit; `message` tells."""

    message: str


Event: TypeAlias = (
    RunAdmitted
    | ThreadTakenUp
    | ThreadRestarted
    | ThreadQuarantined
    | ThreadSetAside
    | ThreadMigrated
    | TaskStarted
    | TaskAcknowledged
    | AttemptFailed
    | MessageRejected
    | FileSetAside
    | AttemptKilled
    | Emitted
    | StepCommitted
    | StateUpdated
    | RunEnded
    | RunSleeps
    | MessageWaits
    | StoreTrouble
)
