"""Everything that `supervisors` raises.

The tree::

    SupervisorsError
    ├── ActorExit (also pykka.ActorDeadError)   the actor ended before it answered
    │   └── NoProc                              there is no such actor
    ├── CallTimeout (also pykka.Timeout)        no answer in time
    ├── CallingSelf                             an actor waits for itself
    ├── StartError                              an actor or child failed to start
    ├── AlreadyStarted / AlreadyPresent / NotFound / Running / Restarting / MaxChildren
    ├── MailboxFull                             a bounded mailbox has no room
    ├── InvalidSpec                             a child specification or a flag is wrong
    ├── RestartsExceeded                        a supervisor gave up (carried by its exit reason)
    ├── WorkersExhausted                        too many workers wait or were abandoned
    ├── Cancelled                               a cancellation token says so
    ├── Forked                                  the actors are in the parent process
    ├── RemoteError / ProcessEnded              code in another process raised, or it ended
    ├── SystemStopped                           the actor system has been shut down
    ├── AlreadySet (also queue.Full)            a future has its result already
    └── StuckError                              a wait that can never end, seen by a simulation

Each class has a stable `code`; messages name the thing, the place, the value and the cure.
"""

from __future__ import annotations

import queue
from typing import ClassVar

import pykka

from supervisors.exits import NO_PROC, Crashed, ExitReason, Shutdown

__all__ = [
    "ActorExit",
    "AlreadyPresent",
    "AlreadySet",
    "AlreadyStarted",
    "CallTimeout",
    "CallingSelf",
    "Cancelled",
    "Forked",
    "InvalidSpec",
    "MailboxFull",
    "MaxChildren",
    "NoProc",
    "NotFound",
    "ProcessEnded",
    "RemoteError",
    "Restarting",
    "RestartsExceeded",
    "Running",
    "StartError",
    "StuckError",
    "SupervisorsError",
    "SystemStopped",
    "WorkersExhausted",
]


class SupervisorsError(Exception):
    """The base of every error here. `code` is stable: programs may compare it."""

    code: ClassVar[str] = "supervisors"


class ActorExit(SupervisorsError, pykka.ActorDeadError):
    """The actor ended before it answered; `reason` says why, `__cause__` is its own error."""

    code = "actor_exit"

    def __init__(self, actor: object, reason: ExitReason) -> None:
        """Make the error of `actor`, that ended with `reason`."""
        super().__init__(f"{actor} ended before it answered: {reason!r}")
        self.reason = reason
        if isinstance(reason, Crashed):
            self.__cause__ = reason.error


class NoProc(ActorExit):
    """There is no such actor: it has ended, or nothing has that name."""

    code = "no_proc"

    def __init__(self, actor: object) -> None:
        """Make the error for `actor`, a reference or a name."""
        super().__init__(actor, NO_PROC)
        self.args = (f"{actor} not found: it has ended, or was never started",)


class CallTimeout(SupervisorsError, pykka.Timeout):
    """No answer came in time. The request is dropped if its turn has not begun."""

    code = "call_timeout"


class CallingSelf(SupervisorsError):
    """An actor waits for an answer that only itself can give: it would wait for ever."""

    code = "calling_self"


class StartError(SupervisorsError):
    """`child_id` failed to start, for `reason`; when this is raised it is dead, its name free."""

    code = "start_error"

    def __init__(self, child_id: object, reason: ExitReason) -> None:
        """Make the error of `child_id`, whose start ended with `reason`."""
        super().__init__(f"{child_id} failed to start: {reason!r}")
        self.child_id = child_id
        self.reason = reason
        if isinstance(reason, Crashed):
            self.__cause__ = reason.error


class AlreadyStarted(SupervisorsError):
    """The name or child id belongs to a living actor, `ref`."""

    code = "already_started"

    def __init__(self, ref: object, name: object = None) -> None:
        """Make the error for `name`, which `ref` holds."""
        what = "" if name is None else f" as {name!r}"
        super().__init__(f"already started{what}: {ref}; use that one, or stop it first")
        self.ref = ref


class _ChildError(SupervisorsError):
    """An operation on a child of a supervisor was refused."""

    text: ClassVar[str] = "{}"

    def __init__(self, child_id: object) -> None:
        """Make the error about the child `child_id`."""
        super().__init__(self.text.format(repr(child_id)))
        self.child_id = child_id


class AlreadyPresent(_ChildError):
    """A child with that id is specified, and not running."""

    code = "already_present"
    text = "a child {} is specified already: restart it, or delete it first"


class NotFound(_ChildError):
    """The supervisor has no such child."""

    code = "not_found"
    text = "this supervisor has no child {}"


class Running(_ChildError):
    """The child runs, and the operation needs it stopped."""

    code = "running"
    text = "child {} is running: terminate it first"


class Restarting(_ChildError):
    """The child is being restarted, and the operation needs it settled."""

    code = "restarting"
    text = "child {} is being restarted: terminate it first, or try again later"


class MailboxFull(SupervisorsError):
    """The mailbox of an actor holds as many messages as its class allows."""

    code = "mailbox_full"

    def __init__(self, actor: object, limit: int) -> None:
        """Make the error of `actor`, which `limit` messages wait for."""
        super().__init__(
            f"{limit} messages wait for {actor}, its mailbox_limit: send less, wait for answers, "
            "or raise the limit"
        )
        self.limit = limit


class MaxChildren(SupervisorsError):
    """A dynamic supervisor has as many children as it may have; restarting ones count."""

    code = "max_children"

    def __init__(self, supervisor: object, limit: int) -> None:
        """Make the error of `supervisor`, which may have `limit` children."""
        super().__init__(
            f"{supervisor} has {limit} children, its limit: "
            "wait for some to end, or raise max_children"
        )
        self.limit = limit


class InvalidSpec(SupervisorsError):
    """A child specification, a flag or an argument: `field` has a wrong `value`; `cure` helps."""

    code = "invalid_spec"

    def __init__(self, field: str, value: object, cure: str) -> None:
        """Make the error for `field`."""
        super().__init__(f"{field} = {value!r} is not valid: {cure}")
        self.field = field
        self.value = value
        self.cure = cure


class RestartsExceeded(SupervisorsError):
    """More restarts than the budget allows: carried as `Shutdown(term)` by the exit reason."""

    code = "restarts_exceeded"

    def __init__(
        self,
        supervisor: object,
        child_id: object,
        *,
        intensity: int | None,
        period: float | None,
        last: ExitReason,
    ) -> None:
        """Make the account of `supervisor` that gave up on `child_id`, which ended with `last`."""
        budget = "its budget" if intensity is None else f"{intensity} restarts in {period} s"
        super().__init__(
            f"{supervisor} gave up: child {child_id!r} needed more than {budget}; "
            f"the last exit was {last!r}"
        )
        self.supervisor = supervisor
        self.child_id = child_id
        self.last = last
        self.__cause__ = self.last_crash

    @property
    def last_crash(self) -> BaseException | None:
        """The error at the root: of the deepest supervisor that gave up, if there is one."""
        reason = self.last
        if isinstance(reason, Crashed):
            return reason.error
        if isinstance(reason, Shutdown) and isinstance(reason.term, RestartsExceeded):
            return reason.term.last_crash
        return None


class WorkersExhausted(SupervisorsError):
    """No worker can be had: too many wait, or too many were abandoned in code that hangs."""

    code = "workers_exhausted"


class Cancelled(SupervisorsError):
    """A cancellation token was cancelled, or its deadline has passed: tidy up, and end."""

    code = "cancelled"


class Forked(SupervisorsError):
    """This process is a fork of the one whose actor system it is: the workers stayed there."""

    code = "forked"


class SystemStopped(SupervisorsError):
    """The actor system was shut down; make a new one."""

    code = "system_stopped"


class AlreadySet(SupervisorsError, queue.Full):
    """The future has a result already: only the first one counts."""

    code = "already_set"


class StuckError(SupervisorsError):
    """A wait that can never end: nothing is runnable and no timer is due."""

    code = "stuck"


class RemoteError(SupervisorsError):
    """Code in another process raised; what it raised crosses as text.

    Attributes:
        type: the class of what it raised, `"builtins.ValueError"` say
        message: its text
        traceback: its traceback there, as text
    """

    code = "remote_error"

    def __init__(self, type: str, message: str, traceback: str = "") -> None:  # noqa: A002 - as attribute
        """Tell what was raised."""
        super().__init__(f"{type}: {message}")
        self.type = type
        self.message = message
        self.traceback = traceback


class ProcessEnded(SupervisorsError):
    """A process ended before it answered.

    Attributes:
        pid: which
        how: `"exit"` or `"signal"`
        number: the exit code, or the signal
    """

    code = "process_ended"

    def __init__(self, pid: int, how: str, number: int) -> None:
        """Tell how it ended."""
        super().__init__(f"process {pid} ended by {how} {number} before it answered")
        self.pid = pid
        self.how = how
        self.number = number
