"""What static and dynamic supervisors share: children, their runs, and the ways of ending them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import msgspec

from supervisors import death
from supervisors.actor import Actor, Reply
from supervisors.errors import ActorExit, AlreadyStarted, NotFound, StartError, SupervisorsError
from supervisors.events import Event, EventKind
from supervisors.exits import KILLED, NORMAL, SHUTDOWN, Abnormal, Crashed, ExitReason, is_quiet
from supervisors.hosted import Hosted
from supervisors.mailbox import Cell, Refuse
from supervisors.ref import ActorRef
from supervisors.requests import (
    ChildCounts,
    ChildInfo,
    ChildReply,
    CountChildren,
    GetChildSpec,
    Request,
    WhichChildren,
)
from supervisors.signals import Down, Exit
from supervisors.spec import BRUTAL_KILL, INFINITY, Backoff, ChildSpec

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Mapping

    from supervisors.requests import ChildState
    from supervisors.spec import ChildType
    from supervisors.timers import TimerRef

__all__ = ["Alarm", "Answer", "Child", "Family", "Run", "TryAgain"]


class _Entity(msgspec.Struct, eq=False):
    """Something that is itself and no value; a Struct, for those are made fast."""

    __repr__ = object.__repr__  # they refer to each other


class Child(_Entity, eq=False):
    """A child of a supervisor: its spec, and its present run if it has one.

    Attributes:
        restarting: the run that is to be replaced
        ran: the last run whose start succeeded: by it others know the child
        failures: in a row, for the backoff
    """

    id: Hashable
    spec: ChildSpec
    run: Run | None = None
    restarting: Run | None = None
    ran: Run | None = None
    restarts: int = 0
    failures: int = 0
    last: ExitReason = NORMAL
    timer: TimerRef | None = None

    @property
    def state(self) -> ChildState:
        """What it does."""
        run = self.run  # read once: whoever looks from outside looks while it changes
        if run is None:
            return "undefined" if self.restarting is None else "restarting"
        if run.ending:
            return "terminating"
        return "starting" if run.starting else "running"


class Run(_Entity, eq=False):
    """One incarnation of a child; the token of every message about it."""

    child: Child
    since: float
    cell: Cell | None = None
    starting: bool = True
    ending: bool = False
    ignored: bool = False
    ended: ExitReason | None = None


class Alarm:
    """A timer's message: the start or the end of a run may take too long."""

    __slots__ = ()


class TryAgain:
    """A message to oneself: restart a child whose restart failed, or whose delay is over."""

    __slots__ = ("child", "run")

    def __init__(self, child: Child, run: Run | None) -> None:
        """Name the child, and the run that is to be replaced."""
        self.child = child
        self.run = run


class _Urgent:
    """Makes timers' messages the system's, which are served while ordinary ones are held."""

    __slots__ = ("_cell",)

    def __init__(self, cell: Cell) -> None:
        self._cell = cell

    def put(self, message: object) -> None:
        self._cell.put_system(message)


_LOOKS = {WhichChildren, CountChildren, GetChildSpec}
"""The requests that change nothing, which it answers even while it ends."""
_OF_RUNS = {death.Started, Down, death.StartFailed, death.StartIgnored}


class Answer(msgspec.Struct, eq=False):
    """Where the answer to a request goes: to the cell of `reply_to`, or else to the asker of `reply`."""

    reply: Reply | None
    reply_to: tuple[Cell, object] | None

    def set(self, value: object = None) -> None:
        """Answer with `value`."""
        if self.reply_to is not None:
            cell, token = self.reply_to
            cell.put(ChildReply(token, value, None))
        elif self.reply is not None:
            self.reply.set(value)

    def set_exception(self, error: BaseException) -> None:
        """Answer with `error`."""
        if self.reply_to is not None:
            cell, token = self.reply_to
            cell.put(ChildReply(token, None, error))
        elif self.reply is not None:
            self.reply.set_exception(error)


class Family(Actor):
    """The base of supervisors. They never wait: every answer of a child is a message.

    A supervisor traps exits, ends when its parent does or when somebody stops it (`ActorRef.stop`),
    and ignores exit signals of others, as in OTP; without a parent, those from outside count.
    """

    isolated = False
    trap_exit = True
    child_type: ClassVar[ChildType] = "supervisor"
    serialises: ClassVar[bool] = True
    backoff: Backoff | None = None
    _ending: ExitReason | None = None
    _alarm: TimerRef | None = None
    _due: dict[Run, float]

    def _members(self) -> Iterable[Child]:
        raise NotImplementedError

    def snapshot(self) -> list[Child]:
        """Return the children in the order of their starts, from any thread."""
        raise NotImplementedError

    def _find(self, key: object) -> Child | None:
        raise NotImplementedError

    # Requests that need no child to answer

    def on_receive(self, message: Any) -> Any:
        """Serve the requests of `supervisors.requests`."""
        if isinstance(message, Request):
            to: Any = message.reply_to  # type: ignore[attr-defined]  # all have it
            answer = Answer(None if to and self.cell.reply is None else self.defer(), to)
            try:
                self._serve(message, answer)
            except SupervisorsError as error:
                answer.set_exception(error)
            return None
        if type(message) is TryAgain:
            self._try_again(message.child, message.run)
            return None
        return self.on_message(message)

    def on_message(self, message: Any) -> Any:
        """Handle a message that is no request to a supervisor; an override's return value answers."""
        super().on_receive(message)
        raise Refuse(TypeError(f"a supervisor does not understand {type(message).__name__}"))

    def _serve(self, request: Request, answer: Answer) -> None:
        if type(request) not in _LOOKS:
            if self._ending is not None:
                raise ActorExit(self, self._ending)
            self._manage(request, answer)
        elif type(request) is WhichChildren:
            answer.set([self._info(child) for child in self._members()])
        elif type(request) is CountChildren:
            answer.set(self._counts())
        elif type(request) is GetChildSpec:
            answer.set(self._get(request.id).spec)

    def _manage(self, request: Request, answer: Answer) -> None:
        raise NotImplementedError

    def _try_again(self, child: Child, run: Run | None) -> None:
        raise NotImplementedError

    def _get(self, key: object) -> Child:
        child = self._find(key)
        if child is None:
            raise NotFound(key)
        return child

    def _info(self, child: Child) -> ChildInfo:
        run = child.run
        state = child.state
        shown = run is not None and run.cell is not None and state in {"running", "terminating"}
        ref = run.cell.ref if shown and run is not None and run.cell is not None else None
        return ChildInfo(child.id, ref, state, child.spec.child_type, child.restarts)

    def _counts(self) -> ChildCounts:
        specs = active = supervisors = 0
        for child in self._members():
            specs += 1
            active += child.state in {"running", "terminating"}
            supervisors += child.spec.child_type == "supervisor"
        return ChildCounts(specs, active, supervisors, specs - supervisors)

    # Runs

    def _launch(self, child: Child, extra: tuple[Any, ...] = ()) -> Run:
        """Begin a run of `child`. Its start, or the failure of it, comes as a message.

        Raises:
            AlreadyStarted: another actor has the name
            WorkersExhausted: it was to have a thread of its own, and there is none
        """
        spec = child.spec
        system = self.system
        run = Run(child, system.clock.monotonic())
        actor: Any = spec.actor
        args = extra + spec.args
        kwargs: Any = spec.kwargs  # not copied: the call of `__init__` does that
        if Actor not in actor.__mro__:  # `issubclass` asks an ABC, in Python
            actor, args = Hosted, (actor, *args)
        me = self.cell
        cell = system.make(actor, args, kwargs, name=spec.name, parent=me)
        if spec.execution is not None:
            system.place(cell, spec.execution)
        run.cell = cell
        child.run = run
        child.restarting = None
        book = cell.book
        assert book is not None, "a child has one from the first"
        book.ack = (me, run)
        book.run = run
        me.nursery()[cell] = None
        seconds = spec.start_timeout
        if seconds is None:
            seconds = system.limits.start_timeout
        self._arm(run, seconds, run.since)
        try:
            system.launch(cell)
        except SupervisorsError:  # it has ended; what comes of this run concerns nobody
            child.run = None
            self._disarm(run)
            raise
        if me.stopped and me.actor is None:
            cell.parent_ended(KILLED)  # this supervisor was given up meanwhile
        return run

    def _arm(self, run: Run, seconds: float, now: float | None = None) -> None:
        """Have `_overdue(run)` called in `seconds`, in the place of what was armed before."""
        if seconds == INFINITY:
            self._due.pop(run, None)
            return
        when = (self.system.clock.monotonic() if now is None else now) + seconds
        self._due[run] = when
        if self._alarm is None or when < self._alarm.deadline:
            self._set_alarm(seconds)

    def _disarm(self, run: Run) -> None:
        self._due.pop(run, None)

    def _set_alarm(self, seconds: float) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
        self._alarm = self.system.scheduler.timers.add(
            seconds, _Urgent(self.cell), Alarm(), owners=self.cell.timer_set()
        )

    def _ring(self) -> None:
        """Look for runs whose time is over; one alarm serves all of them."""
        self._alarm = None
        now = self.system.clock.monotonic()
        for run in [run for run, when in self._due.items() if when <= now]:
            del self._due[run]
            self._overdue(run)
        if self._due:
            self._set_alarm(min(self._due.values()) - now)

    def _stop_run(self, run: Run) -> None:
        """Ask `run` to end; kill it when its time is over."""
        if run.ending or run.ended is not None or run.cell is None:
            return
        run.ending = True
        rule = run.child.spec.shutdown_rule
        if rule == BRUTAL_KILL:
            self._disarm(run)
            run.cell.kill(self.system.limits.kill_grace)
            return
        run.cell.put_system(death.ExitSignal(self.cell, SHUTDOWN))
        self._arm(run, float(rule))

    def _overdue(self, run: Run) -> None:
        """Kill a run that did not start, or end, in time."""
        if run.ended is None and run.cell is not None:
            what: EventKind = "killed"
            self._report(what, run.child, Abnormal("too slow to end" if run.ending else "start"))
            run.cell.kill(self.system.limits.kill_grace)

    # Messages about runs

    def _system(self, message: Any) -> bool:
        kind = type(message)
        if kind is Alarm:
            self._ring()
            return True
        run = message.token if kind in _OF_RUNS else None
        if type(run) is not Run:
            return False
        if kind is death.Started:
            run.starting = False
            self._adopt(run)
            if not run.ending:
                self._due.pop(run, None)
            if self.system.watched:
                self._report_started(run)
        elif kind is Down:
            if run.starting:
                return True  # StartFailed or StartIgnored says more
            self._settle(run, message.reason)
        elif kind is death.StartIgnored:
            run.ignored = True
            self._settle(run, NORMAL)
        else:
            self._settle(run, message.reason)
        self._changed(run)
        return True

    def _adopt(self, run: Run) -> None:
        """Know the child by `run` from now on."""
        run.child.ran = run

    def _settle(self, run: Run, reason: ExitReason) -> None:
        self._due.pop(run, None)
        run.ended = reason

    def _changed(self, run: Run) -> None:
        """Go on, now that `run` has started or ended."""
        raise NotImplementedError

    def _report_started(self, run: Run) -> None:
        self._report("child_restarted" if run.child.restarts else "child_started", run.child)

    # Ending

    def on_signal(self, signal: Exit | Down) -> None:
        """End at a signal from outside if there is no parent; ignore the rest (OTP)."""
        root = self.cell.parent is None and isinstance(signal, Exit) and signal.sender is None
        if root and signal.reason != NORMAL:
            self._end(signal.reason)
        else:
            super().on_signal(signal)

    def _end(self, reason: ExitReason) -> None:
        if self._ending is None:
            self._ending = reason
            self._shut_down()

    def _shut_down(self) -> None:
        """End the children, then die for the reason in `_ending`."""
        raise NotImplementedError

    # Reports

    def _report(
        self,
        kind: EventKind,
        child: Child,
        reason: ExitReason | None = None,
        more: Mapping[str, object] | None = None,
    ) -> None:
        detail = {"child_id": child.id, "restarts": child.restarts, **(more or {})}
        self.system.emit(Event(kind, repr(self.cell), reason, detail))

    def _report_end(self, child: Child, reason: ExitReason) -> None:
        if child.spec.restart == "permanent" or not is_quiet(reason):
            self._report("child_terminated", child, reason)

    def _report_shutdown(self, run: Run) -> None:
        """Report a child that was asked to end and ended otherwise than asked."""
        reason, spec = run.ended, run.child.spec
        if reason is None:
            return
        if is_quiet(reason) and (spec.restart != "permanent" or reason != NORMAL):
            return
        killed = reason == KILLED and spec.shutdown_rule == BRUTAL_KILL
        if not killed and not run.ignored:
            self._report("shutdown_error", run.child, reason)

    # The decision table

    def _wants_restart(self, child: Child, reason: ExitReason) -> bool:
        restart = child.spec.restart
        return restart == "permanent" or (restart == "transient" and not is_quiet(reason))

    def _delay(self, child: Child, run: Run | None) -> float:
        """Return the seconds to wait before the next restart of `child`."""
        if self.backoff is None:
            return 0.0
        if run is not None and not run.starting:
            lived = self.system.clock.monotonic() - run.since
            if lived >= self.backoff.stable_after:
                child.failures = 0
        child.failures += 1
        return self.backoff.delay(child.failures)

    def _schedule(self, child: Child, run: Run | None, delay: float) -> None:
        """Have `child` restarted by a message to oneself, in `delay` seconds."""
        child.run = None
        child.restarting = run
        message = TryAgain(child, run)
        if delay:
            child.timer = self.system.send_after(delay, self.cell, message)
        else:
            self.cell.put(message)

    def _forget_retry(self, child: Child) -> None:
        child.restarting = None
        if child.timer is not None:
            child.timer.cancel()
            child.timer = None

    def _failed_launch(self, child: Child, error: SupervisorsError) -> Run:
        """Return a run that ended before it began, for `error`."""
        run = Run(child, self.system.clock.monotonic())
        run.ended = Crashed(error)
        child.run = run
        return run


def matches(child: Child, key: object) -> bool:
    """Tell whether `key` is the reference of `child`: of its run, or of the last one that ran."""
    if not isinstance(key, ActorRef):
        return False
    run, ran = child.run, child.ran
    if run is not None and run.cell is key.cell:
        return True
    return ran is not None and ran.cell is key.cell and child.state != "running"


def start_failure(child: Child, reason: ExitReason) -> SupervisorsError:
    """Return the error for a child whose start ended with `reason`."""
    from_name = isinstance(reason, Crashed) and isinstance(reason.error, AlreadyStarted)
    if from_name:
        assert isinstance(reason, Crashed)
        assert isinstance(reason.error, AlreadyStarted)
        return reason.error
    return StartError(child.id, reason)
