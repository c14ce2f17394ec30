"""What the machine asks its driver to do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

import msgspec

from beamweaver.engine._quiet import Quiet
from beamweaver.engine.ids import task_id

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from beamweaver.checkpoint.records import Commit
    from beamweaver.engine._child import Child
    from beamweaver.engine._children import Children
    from beamweaver.engine.calls import Call
    from beamweaver.engine.plan import Exit
    from beamweaver.engine.state import Question, Task
    from beamweaver.errors import RunFailed
    from beamweaver.events import Event
    from beamweaver.graph.compiled import NodeSpec
    from beamweaver.types import Failure, Outcome

__all__ = [
    "Admitted",
    "Attempt",
    "CancelAttempt",
    "CancelTransition",
    "DropTimer",
    "Effect",
    "LogFailure",
    "Noted",
    "Publish",
    "Reply",
    "ReplyRecorded",
    "SetTimer",
    "StartAttempt",
    "StartTransition",
    "Transition",
    "Updated",
    "WriteAhead",
    "WriteCommit",
    "WriteCommits",
]


class Attempt(Quiet, eq=False):
    """One try of a task; it is its own token: a result of any other attempt is refused.

    `view` has the values that the node sees, which it shares with others; what runs the attempt puts the
    node's own form of them in its place: a new dict or instance. `owner` is the machine that hears of it,
    `child` that of the graph that its node is.

    Attributes:
        id: The task's id, once somebody asked.
        timer: The key of the timer that ends it, while one is set.
        idle_timer: The key of the timer that looks whether it gave a sign of life.
        beat_at: When it gave the last sign of life, on the env's clock: set by its body.
        handles: The failure that it handles, of an error handler.
    """

    shown: ClassVar = ("task", "number", "step")

    task: Task
    node: NodeSpec
    branch: str
    step: int
    view: Any
    timeout: float | None
    idle: float | None
    owner: Children | None
    position: int
    number: int
    first_us: int
    handles: Failure | None = None
    child: Child | None = None
    id: str | None = None
    timer: tuple[str, int, int] | None = None
    idle_timer: tuple[str, int, int] | None = None
    beat_at: float = 0.0

    @classmethod
    def of(
        cls,
        task: Task,
        node: NodeSpec,
        branch: str,
        step: int,
        view: Any,
        timeout: float | None,
    ) -> Attempt:
        """One without an idle timeout; whoever starts it is its owner."""
        tries, first = task.failures + 1, task.first_us
        made = cls(task, node, branch, step, view, timeout, None, None, task.position, tries, first)
        if task.handling is not None:
            made.handle(task.handling)
        return made

    def handle(self, failure: Failure) -> None:
        """It is one of the error handler, for this failure."""
        self.handles, self.number = failure, failure.attempt

    @property
    def questions(self) -> Sequence[Question]:
        """Those of earlier attempts, with their answers."""
        return self.task.questions or ()

    @property
    def task_id(self) -> str:
        """The task's id; worked out only when somebody asks."""
        if self.id is None:
            namespace = "" if self.owner is None else self.owner.state.namespace
            path = self.task.path
            self.id = self.task.id or task_id(self.branch, namespace, self.step, path)
        return self.id

    def beat(self, now: float) -> None:
        """It lives, and so does all around it."""
        self.beat_at = now
        around = None if self.owner is None else self.owner.around
        if around is not None:
            around.beat(now)

    @property
    def place(self) -> tuple[int | str, ...]:
        """What it has in common with earlier attempts of its task, and with nothing else of the thread."""
        around = () if self.owner is None else self.owner.place
        return (*around, self.step, self.position)

    @property
    def scope(self) -> str:
        """Whose its questions and outside effects are: the task's, or its error handler's."""
        return self.task_id if self.handles is None else f"handler:{self.task_id}"


class Transition:
    """The routers and guards of a merged step, to be run as one attempt; its own token.

    `view` has the values that they see, which they share with others; `spent` is what the run spent of the
    budgets of guarded edges before.
    """

    __slots__ = ("branch", "exits", "owner", "spent", "step", "timeout", "view")

    def __init__(
        self,
        exits: Sequence[Exit],
        branch: str,
        step: int,
        view: dict[str, Any],
        timeout: float | None,
        owner: Children | None = None,
        *,
        spent: Mapping[str, int],
    ) -> None:
        self.owner = owner
        self.exits = exits
        self.spent = spent
        self.branch = branch
        self.step = step
        self.view = view
        self.timeout = timeout


class StartAttempt(msgspec.Struct, eq=False):
    """Run a node; answer with `succeeded`, `failed`, `asked` or `lost`."""

    attempt: Attempt


class CancelAttempt:
    """Stop an attempt: fence it, kill its body. With `wait`, tell `lost` when the body has ended."""

    __slots__ = ("attempt", "wait")

    def __init__(self, attempt: Attempt, *, wait: bool) -> None:
        self.attempt = attempt
        self.wait = wait


class StartTransition:
    """Run the routers and guards; answer with `routed` or `routing_failed`."""

    __slots__ = ("transition",)

    def __init__(self, transition: Transition) -> None:
        self.transition = transition


class CancelTransition:
    """Stop the routers."""

    __slots__ = ("transition",)

    def __init__(self, transition: Transition) -> None:
        self.transition = transition


class WriteCommit(msgspec.Struct, eq=False):
    """Make this durable; answer with `acknowledged`. Where that fails, the machine is of no use any more:
    the thread stands as the store has it.
    """

    commit: Commit


class WriteAhead(msgspec.Struct, eq=False):
    """The same, while the machine goes on; answer with `acknowledged_ahead`, or as to any other commit while
    it is the one in flight.

    The commits of a thread are written in the order in which they were asked for.
    """

    commit: Commit


class Noted:
    """What an attempt told by `noted` under this token is durable."""

    __slots__ = ("token",)

    def __init__(self, token: Any) -> None:
        self.token = token


class WriteCommits:
    """The same for several commits of the thread at once; only the last one is acknowledged."""

    __slots__ = ("commits",)

    def __init__(self, commits: list[Commit]) -> None:
        self.commits = commits


class SetTimer(msgspec.Struct, eq=False):
    """Call `fired(key)` after `delay` seconds."""

    key: tuple[Any, ...]
    delay: float


class DropTimer(msgspec.Struct, eq=False):
    """The timer `key` is not needed any more."""

    key: tuple[Any, ...]


class Admitted:
    """The call is durable: it acts on the run named `run_id`, or waits in the inbox."""

    __slots__ = ("call", "run_id")

    def __init__(self, call: Call, run_id: str) -> None:
        self.call = call
        self.run_id = run_id


class Updated:
    """The outcome of an edit: the checkpoint that it made."""

    __slots__ = ("checkpoint_id",)

    def __init__(self, checkpoint_id: str) -> None:
        self.checkpoint_id = checkpoint_id


class Reply:
    """The call's outcome, or the error that refuses it or that its run failed with."""

    __slots__ = ("call", "error", "outcome")

    def __init__(
        self, call: Call, outcome: Outcome | Updated | None = None, error: Exception | None = None
    ) -> None:
        self.call = call
        self.outcome = outcome
        self.error = error


class ReplyRecorded:
    """Answer the call with the recorded outcome of an older run, or the error that there is none."""

    __slots__ = ("call", "number")

    def __init__(self, call: Call, number: int) -> None:
        self.call = call
        self.number = number


class LogFailure:
    """The run failed, durably: say it in the log, unless one of `calls` has a caller who hears it."""

    __slots__ = ("calls", "error")

    def __init__(self, error: RunFailed, calls: list[Call]) -> None:
        self.error = error
        self.calls = calls


class Publish:
    """Tell an event to those who listen."""

    __slots__ = ("event",)

    def __init__(self, event: Event) -> None:
        self.event = event


Effect: TypeAlias = (
    StartAttempt
    | CancelAttempt
    | StartTransition
    | CancelTransition
    | WriteCommit
    | WriteAhead
    | Noted
    | WriteCommits
    | SetTimer
    | DropTimer
    | Admitted
    | Reply
    | ReplyRecorded
    | LogFailure
    | Publish
)
