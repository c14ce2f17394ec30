"""The values that users and graphs exchange: updates, sends, commands, policies, messages, outcomes."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Final, Literal, TypeAlias

import msgspec

__all__ = [
    "END",
    "PARENT",
    "START",
    "Breakpoint",
    "Cancel",
    "Cancelled",
    "Command",
    "Completed",
    "Continue",
    "Drained",
    "Failed",
    "Failure",
    "Interrupt",
    "Interrupted",
    "Invoke",
    "Outcome",
    "Overwrite",
    "Receipt",
    "Rejected",
    "Resume",
    "RetryPolicy",
    "Send",
    "StateUpdate",
    "Status",
    "TaskView",
    "ThreadState",
    "TimeoutPolicy",
    "seconds",
    "timeouts",
]

START: Final = "__start__"
"""The source of a graph's entry edges."""
END: Final = "__end__"
"""The target of an edge after which nothing follows."""
PARENT: Final = "__parent__"
"""In `Command(graph=PARENT)`: the graph of which the node's own graph is a subgraph."""

Status: TypeAlias = Literal[
    "accepted",
    "running",
    "sleeping",
    "waiting",
    "failed",
    "cancelled",
    "drained",
    "quarantined",
    "complete",
]
Duration: TypeAlias = float | int | dt.timedelta


def seconds(value: Duration | None, what: str) -> float | None:
    """A duration as seconds, or None.

    Args:
        value: Seconds, a `timedelta`, or None for no limit.
        what: How the message calls it.

    Returns:
        The seconds, or None.

    Raises:
        ValueError: It is not a positive number of seconds.

    Example:
        >>> seconds(dt.timedelta(minutes=1), "timeout")
        60.0
    """
    if value is None:
        return None
    if isinstance(value, dt.timedelta):
        number = value.total_seconds()
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        number = float(value)
    else:
        raise ValueError(  # noqa: TRY004  # callers catch one class
            f"{what} is {value!r}; give seconds (int or float), a timedelta, or None"
        )
    if not 0 < number < float("inf"):
        raise ValueError(f"{what} is {value!r}; give more than 0 seconds, or None for no limit")
    return number


class TimeoutPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """How long one attempt may take, and how long it may give no sign of life.

    Args:
        total: Seconds (or a `timedelta`) for the whole attempt; None for no limit.
        idle: Seconds without `ctx.heartbeat()` and `ctx.emit()`; None for no limit.

    Raises:
        ValueError: Neither is given, or one is no positive number of seconds.

    Example:
        >>> TimeoutPolicy(total=3600, idle=dt.timedelta(seconds=30)).idle
        30.0
    """

    total: Duration | None = None
    idle: Duration | None = None

    def __post_init__(self) -> None:
        if self.total is None and self.idle is None:
            raise ValueError("TimeoutPolicy() limits nothing; give total=, idle=, or both")
        msgspec.structs.force_setattr(self, "total", seconds(self.total, "TimeoutPolicy total"))
        msgspec.structs.force_setattr(self, "idle", seconds(self.idle, "TimeoutPolicy idle"))


def timeouts(
    value: Duration | TimeoutPolicy | None, what: str
) -> tuple[float | None, float | None]:
    """A timeout as seconds in all, and seconds without a sign of life.

    Args:
        value: A duration, a policy, or None for no limit.
        what: How the message calls it.

    Raises:
        ValueError: It is none of these.

    Example:
        >>> timeouts(5, "timeout"), timeouts(TimeoutPolicy(idle=2), "timeout")
        ((5.0, None), (None, 2.0))
    """
    if isinstance(value, TimeoutPolicy):
        return seconds(value.total, what), seconds(value.idle, what)
    return seconds(value, what), None


class Overwrite(msgspec.Struct, frozen=True):
    """A write that bypasses the channel's reducer and drops the step's plain writes to it."""

    value: Any


class Send(msgspec.Struct, frozen=True):
    """One task of `node` in the next step, which sees the state with `update` laid over it.

    Args:
        node: The node to run.
        update: Keys that this task sees beside the state; never stored in channels.
        timeout: Seconds for one attempt, or a `TimeoutPolicy`, in place of the node's own.

    Example:
        >>> Send("measure", {"item": 3}).node
        'measure'
    """

    node: str
    update: Mapping[str, Any] = msgspec.field(default_factory=dict)
    timeout: Duration | TimeoutPolicy | None = None


class Command(msgspec.Struct, frozen=True, kw_only=True):
    """An update together with where to go.

    Args:
        update: What a node would otherwise return as its update.
        goto: Node names or `Send`s; they replace the static edges of the node that returns it.
        graph: `PARENT` for a command to the graph around a subgraph: its update and goto are those of the
            node that is the subgraph. None for the node's own graph.
        resume: In a call: the answer (or map of answers) to the open questions.

    Example:
        >>> Command(update={"n": 1}, goto="next").goto
        'next'
    """

    PARENT: ClassVar[str] = PARENT
    """The same as `beamweaver.types.PARENT`."""

    update: Mapping[str, Any] | None = None
    goto: str | Send | Sequence[str | Send] = ()
    graph: str | None = None
    resume: Any = msgspec.UNSET


RetryOn: TypeAlias = (
    Literal["error", "any", "transient"]
    | type[BaseException]
    | tuple[type[BaseException], ...]
    | Callable[[BaseException], bool]
)


class RetryPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """How often, how soon and after which failures an attempt is made again.

    Args:
        max_attempts: All attempts, the first included.
        initial_delay: Seconds before the second attempt.
        backoff: By what the delay grows from attempt to attempt.
        max_delay: The longest delay, in seconds.
        jitter: Whether a delay is drawn between half and the whole of it.
        retry_on: `"error"` (any `Exception` but programming errors), `"any"`, `"transient"` (connections,
            timeouts, HTTP 408, 409, 425, 429, 5xx), exception classes, or a predicate.

    Raises:
        ValueError: A number is out of its range.

    Example:
        >>> RetryPolicy(max_attempts=5, initial_delay=0.5).delay(3)
        2.0
    """

    max_attempts: int = 3
    initial_delay: float = 0.1
    backoff: float = 2.0
    max_delay: float = 5.0
    jitter: bool = True
    retry_on: RetryOn = "error"

    def __post_init__(self) -> None:
        if not isinstance(self.max_attempts, int) or self.max_attempts < 1:
            raise ValueError(f"RetryPolicy max_attempts is {self.max_attempts!r}; give 1 or more")
        for name, low in (("initial_delay", 0), ("backoff", 1), ("max_delay", 0)):
            if not getattr(self, name) >= low:
                raise ValueError(
                    f"RetryPolicy {name} is {getattr(self, name)!r}; give {low} or more"
                )
        if isinstance(self.retry_on, str) and self.retry_on not in ("error", "any", "transient"):
            raise ValueError(
                f"RetryPolicy retry_on is {self.retry_on!r}; give 'error', 'any', 'transient', "
                "exception classes, or a predicate"
            )

    def delay(self, attempt: int) -> float:
        """Seconds to wait after the failed attempt number `attempt` (1 is the first), before jitter."""
        return min(self.initial_delay * self.backoff ** (attempt - 1), self.max_delay)


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """A failure as data: what a store keeps of an exception.

    `exception` is the original while the process that raised it lives; it is never stored. `namespace` has
    the nodes around `node`, the outermost first: those that are graphs.
    """

    node: str
    task_id: str
    attempt: int
    code: str
    type_name: str
    message: str
    traceback: str = ""
    exception: BaseException | None = None
    namespace: tuple[str, ...] = ()


class Interrupt(msgspec.Struct, frozen=True, kw_only=True):
    """An open question: answer it with `resume(answer)` or `resume({id: answer})`.

    Attributes:
        id: Its name, the same in every process and after every crash.
        value: What the node shows to who answers.
        node: The node that asks.
        task_id: Its task.
        schema: What the answer must be, as a JSON schema; None if anything is taken.
        reason: Why the answer before was refused; empty if there was none.
        namespace: The nodes around `node`, the outermost first: those that are graphs.
    """

    id: str
    value: Any
    node: str
    task_id: str
    schema: Mapping[str, Any] | None = None
    reason: str = ""
    namespace: tuple[str, ...] = ()


class Breakpoint(msgspec.Struct, frozen=True, kw_only=True):
    """Where a run stands that `interrupt_before` or `interrupt_after` stopped.

    `when` is `"before"` or `"after"` the node `node`; `namespace` has the nodes around that one.
    """

    node: str
    when: str
    namespace: tuple[str, ...] = ()


class TaskView(msgspec.Struct, frozen=True, kw_only=True):
    """A task of the unfinished step, as `get_state` shows it.

    Attributes:
        state: `"pending"`, `"finished"`, `"failed"`, `"waiting"`, `"retrying"`, `"sleeping"` or
            `"handling"`: its node has failed for good, with `failure`, and the node's error handler has it.
        due: When it goes on, while it is retrying or sleeping.
        namespace: The nodes around it, the outermost first: those that are graphs.
        subgraph: How the graph stands that the node is, where `get_state(subgraphs=True)` was asked and it
            has begun.
        calls: The same of the graphs that its function calls, those that have begun and not ended.
    """

    id: str
    node: str
    state: str
    attempt: int = 1
    failure: Failure | None = None
    interrupts: tuple[Interrupt, ...] = ()
    due: dt.datetime | None = None
    namespace: tuple[str, ...] = ()
    subgraph: ThreadState | None = None
    calls: tuple[ThreadState, ...] = ()


class ThreadState(msgspec.Struct, frozen=True, kw_only=True):
    """What `get_state` returns.

    Attributes:
        values: The state, with finished results and amendments of the unfinished step applied.
        next: The nodes of the unfinished step that are not finished; empty only if the run is complete.
        tasks: Each task of the unfinished step.
        interrupts: The open questions.
        pending_writes: `(task_id, channel, value)` of each finished result that no commit holds yet.
        status: See `Status`.
        merge_error: Why finished results do not merge; `values` are then the committed ones.
        graph_error: Why the thread cannot go on, or be shown in its types, under the graph that is here;
            `values` are then as they are stored, what has no type any more as plain data.
        breakpoints: The breakpoints at which the run stands, if it does.
    """

    values: Any
    next: tuple[str, ...]
    tasks: tuple[TaskView, ...]
    interrupts: tuple[Interrupt, ...]
    pending_writes: tuple[tuple[str, str, Any], ...]
    metadata: Mapping[str, Any]
    created_at: dt.datetime
    config: Mapping[str, Any]
    parent_config: Mapping[str, Any] | None
    step: int
    status: Status
    merge_error: str | None = None
    graph_error: str | None = None
    breakpoints: tuple[Breakpoint, ...] = ()


# Outcomes ---------------------------------------------------------------------------------------


class _Outcome(msgspec.Struct, frozen=True, kw_only=True):
    state: Any
    thread_id: str
    run_id: str
    checkpoint_id: str
    interrupts: tuple[Interrupt, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def interrupt(self) -> Interrupt | None:
        """The open question, if there is exactly one."""
        return self.interrupts[0] if len(self.interrupts) == 1 else None


class Completed(_Outcome, frozen=True, kw_only=True):
    """The run is complete; `state` is its result."""


class Interrupted(_Outcome, frozen=True, kw_only=True):
    """The run waits: for answers to `interrupts`, or at `breakpoints`, which `invoke(None)` passes."""

    breakpoints: tuple[Breakpoint, ...] = ()


class Drained(_Outcome, frozen=True, kw_only=True):
    """The runtime drained before the run was complete; the next runtime goes on."""


class Cancelled(_Outcome, frozen=True, kw_only=True):
    """The run was cancelled; it can be continued."""


class Failed(_Outcome, frozen=True, kw_only=True):
    """The run failed; returned in place of raising `error` where the call said `raises=False`."""

    error: Exception


Outcome: TypeAlias = Completed | Interrupted | Drained | Cancelled | Failed


# Messages ---------------------------------------------------------------------------------------


class _Options(msgspec.Struct, frozen=True, kw_only=True):
    """What each call may give in place of the graph's own; see `beamweaver.CallOptions`."""

    on_busy: str = "queue"
    run_timeout: Duration | None = None
    step_timeout: Duration | None = None
    failure_policy: Literal["proceed", "panic"] | None = None
    max_concurrency: int | None = None
    metadata: Mapping[str, Any] | None = None
    tags: Sequence[str] = ()
    rerun: Sequence[str] = ()
    durability: Literal["sync", "async", "exit"] = "sync"
    checkpoint_id: str | None = None
    fork: bool = False
    context: Any = msgspec.UNSET
    interrupt_before: Sequence[str] | None = None
    interrupt_after: Sequence[str] | None = None


class Invoke(_Options, frozen=True):
    """Starts a run with an input, joins the same call, or amends an unfinished run.

    Its other options are those of `beamweaver.CallOptions`, by name.

    Args:
        input: The update of the state that begins the run.
        run_id: A name for the run; the same one again never starts a second run.
        on_unfinished: What to do with an unfinished run: `"continue"`, `"reject"` or `"restart"`.
        recursion_limit: Steps before the run is stopped; None is the graph's own.

    Example:
        >>> Invoke({"n": 1}, run_id="order-17", on_busy="reject").on_busy
        'reject'
    """

    input: Any
    run_id: str | None = None
    on_unfinished: str = "continue"
    recursion_limit: int | None = None


class Resume(_Options, frozen=True):
    """Answers open questions: one answer, or `answers` by question id.

    With an older `checkpoint_id` (or `fork`), the one answer is for the question that the branch is going
    to ask.
    """

    answer: Any = msgspec.UNSET
    answers: Mapping[str, Any] | None = None
    run_id: str | None = None
    recursion_limit: int | None = None


class Continue(_Options, frozen=True):
    """Goes on with an unfinished run, waits for a running one, or returns a complete one's state."""

    run_id: str | None = None
    recursion_limit: int | None = None


class Cancel(msgspec.Struct, frozen=True):
    """Cancels the running run; it stays resumable."""


class StateUpdate(msgspec.Struct, frozen=True):
    """One update of `bulk_update_state`.

    Args:
        values: What a node would return: an update, a `Command`, …
        as_node: The node that the values count as written by, or the id of a task of the open step.
    """

    values: Any
    as_node: str | None = None


class Rejected(msgspec.Struct, frozen=True, kw_only=True):
    """A message that was durable, and that the thread could not take when its turn came.

    Attributes:
        id: Of its receipt.
        kind: `"invoke"`, `"resume"`, `"continue"` or `"cancel"`.
        run_id: The run id that it brought, or got.
        code: Of the error, such as `"already_answered"`.
        message: What the error says.
        at: When its turn was.
    """

    id: str
    kind: str
    run_id: str
    code: str
    message: str
    at: dt.datetime


class Receipt(msgspec.Struct, frozen=True):
    """Proof that a message is durable: its id, and the run that it starts, joins or continues."""

    id: str
    run_id: str
