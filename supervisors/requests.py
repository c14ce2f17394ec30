"""What supervisors can be asked, as messages and as functions.

Plain code calls the functions, which wait. An actor sends the message, with `reply_to=(cell, token)`,
and gets a `ChildReply(token, value, error)` without waiting; or it asks and takes the future.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import msgspec

from supervisors.errors import CallingSelf
from supervisors.given import cell_of
from supervisors.inbox import RUNNING
from supervisors.mailbox import Cell
from supervisors.ref import ref_of
from supervisors.scheduler import here

if TYPE_CHECKING:
    from collections.abc import Hashable

    from supervisors.inbox import Inbox
    from supervisors.ref import ActorRef
    from supervisors.spec import ChildSpec, ChildType

__all__ = [
    "ChildCounts",
    "ChildInfo",
    "ChildReply",
    "ChildState",
    "CountChildren",
    "DeleteChild",
    "GetChildSpec",
    "RestartChild",
    "StartChild",
    "TerminateChild",
    "WhichChildren",
    "count_children",
    "delete_child",
    "get_child_spec",
    "restart_child",
    "start_child",
    "terminate_child",
    "which_children",
]

ReplyTo: TypeAlias = tuple[Cell, object] | None
ChildState: TypeAlias = Literal["starting", "running", "restarting", "terminating", "undefined"]


class Request(msgspec.Struct, frozen=True):
    """The base of what supervisors can be asked."""


class StartChild(Request, frozen=True):
    """Start a child by `spec`; the answer is its reference, or None if it ignores the start."""

    spec: ChildSpec
    reply_to: ReplyTo = None


class RestartChild(Request, frozen=True):
    """Start a child that is specified and stopped; the answer is as for `StartChild`."""

    id: Hashable
    reply_to: ReplyTo = None


class TerminateChild(Request, frozen=True):
    """End a child, by id, or a dynamic one by its reference; the answer is None."""

    id: Hashable
    reply_to: ReplyTo = None


class DeleteChild(Request, frozen=True):
    """Forget the specification of a stopped child; the answer is None."""

    id: Hashable
    reply_to: ReplyTo = None


class GetChildSpec(Request, frozen=True):
    """The answer is the `ChildSpec` of a child, by id or reference."""

    id: Hashable
    reply_to: ReplyTo = None


class WhichChildren(Request, frozen=True):
    """The answer is a list of `ChildInfo`; of a static supervisor, the newest first."""

    reply_to: ReplyTo = None


class CountChildren(Request, frozen=True):
    """The answer is a `ChildCounts`."""

    reply_to: ReplyTo = None


QUESTIONS = frozenset({GetChildSpec, WhichChildren, CountChildren})
"""The requests that change nothing, and are answered at any time."""


class ChildReply(msgspec.Struct, frozen=True):
    """The answer to a request that had `reply_to=(cell, token)`: a value, or an error."""

    token: object
    value: object
    error: BaseException | None


class ChildInfo(msgspec.Struct, frozen=True):
    """What a supervisor knows of a child.

    Attributes:
        id: its id
        ref: its reference while it runs, else None
        state: what it does
        type: worker or supervisor
        restarts: how many times it was restarted
    """

    id: Hashable
    ref: ActorRef[Any] | None
    state: ChildState
    type: ChildType
    restarts: int


class ChildCounts(msgspec.Struct, frozen=True):
    """How many children a supervisor has.

    Attributes:
        specs: children that are specified, in whatever state
        active: those that run
        supervisors: those that are supervisors
        workers: those that are workers
    """

    specs: int
    active: int
    supervisors: int
    workers: int


def _ask(supervisor: ActorRef[Any], request: Request, timeout: float | None) -> Any:
    _refuse_own_child(cell_of(supervisor), request)
    return _question(supervisor, request, timeout)


def _question(supervisor: ActorRef[Any], request: Request, timeout: float | None) -> Any:
    return ref_of(cell_of(supervisor)).ask(request, timeout=timeout)


def _refuse_own_child(cell: Inbox, request: Request) -> None:
    """Raise where a static supervisor would wait for a child that waits for it (OTP deadlocks)."""
    worker = here.worker
    caller: Any = None if worker is None else worker.cell
    if (
        isinstance(caller, Cell)
        and caller.parent is cell
        and caller.phase != RUNNING
        and cell.actor_class.serialises
    ):
        raise CallingSelf(
            f"{caller} asks its own supervisor for {type(request).__name__} while that waits for "
            "its start or end: do it in on_continue, or from another actor"
        )


def start_child(
    supervisor: ActorRef[Any], spec: ChildSpec, *, timeout: float | None = None
) -> ActorRef[Any] | None:
    """Have `supervisor` start a child.

    Args:
        supervisor: a `Supervisor` or `DynamicSupervisor`
        spec: how
        timeout: seconds to wait for the answer

    Returns:
        its reference, or None if it ignored the start

    Raises:
        StartError: it failed to start; its spec is discarded
        AlreadyStarted: a child with that id runs, or an actor has its name
        AlreadyPresent: a child with that id is specified, and does not run
        MaxChildren: the supervisor has as many as it may
        InvalidSpec: the spec does not suit the supervisor
        ActorExit: the supervisor is ending, or has ended
        CallTimeout: no answer in time
        CallingSelf: a child asks for it in its own start or end
    """
    found: ActorRef[Any] | None = _ask(supervisor, StartChild(spec), timeout)
    return found


def restart_child(
    supervisor: ActorRef[Any], child_id: Hashable, *, timeout: float | None = None
) -> ActorRef[Any] | None:
    """Have `supervisor` start a stopped child again.

    Raises:
        NotFound: it has no such child
        Running: the child runs
        Restarting: the child is being restarted already
        StartError: it failed to start; the spec is kept
    """
    found: ActorRef[Any] | None = _ask(supervisor, RestartChild(child_id), timeout)
    return found


def terminate_child(
    supervisor: ActorRef[Any], child: Hashable, *, timeout: float | None = None
) -> None:
    """Have `supervisor` end a child and wait for it.

    A dynamic supervisor knows its children by id and by reference, a static one by id alone; it keeps
    the spec, unless it is temporary, and ending a stopped child does nothing.

    Raises:
        NotFound: it has no such child
    """
    _ask(supervisor, TerminateChild(child), timeout)


def delete_child(
    supervisor: ActorRef[Any], child_id: Hashable, *, timeout: float | None = None
) -> None:
    """Have a static `supervisor` forget a stopped child.

    Raises:
        NotFound: it has no such child
        Running: the child runs
        Restarting: the child is being restarted
    """
    _ask(supervisor, DeleteChild(child_id), timeout)


def get_child_spec(
    supervisor: ActorRef[Any], child: Hashable, *, timeout: float | None = None
) -> ChildSpec:
    """Return the spec of a child, by id or reference.

    Raises:
        NotFound: `supervisor` has no such child
    """
    found: ChildSpec = _question(supervisor, GetChildSpec(child), timeout)
    return found


def which_children(supervisor: ActorRef[Any], *, timeout: float | None = None) -> list[ChildInfo]:
    """Return the children of `supervisor`; answered also while it starts or ends children."""
    found: list[ChildInfo] = _question(supervisor, WhichChildren(), timeout)
    return found


def count_children(supervisor: ActorRef[Any], *, timeout: float | None = None) -> ChildCounts:
    """Return how many children `supervisor` has, without asking them."""
    found: ChildCounts = _question(supervisor, CountChildren(), timeout)
    return found
