"""The static supervisor: an ordered list of children, and OTP's restart strategies.

It never blocks a worker. What OTP's supervisor does in one go (start the children, restart a group,
end them in reverse order) is an *operation*: a generator that yields the run whose message it waits
for. One operation runs at a time, others queue, as OTP's mailbox would make them; but questions
(`which_children`, `count_children`) are answered at once, and a shutdown cuts in.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from pykka._envelope import Envelope

from supervisors import death
from supervisors.budget import SupervisorBudget
from supervisors.errors import (
    ActorExit,
    AlreadyPresent,
    AlreadyStarted,
    InvalidSpec,
    NotFound,
    Restarting,
    RestartsExceeded,
    Running,
    StartError,
    SupervisorsError,
)
from supervisors.exits import ExitReason, Shutdown
from supervisors.family import Answer, Child, Family, Run, matches, start_failure
from supervisors.inbox import STARTING
from supervisors.ref import ActorRef
from supervisors.requests import (
    QUESTIONS,
    DeleteChild,
    Request,
    RestartChild,
    StartChild,
    TerminateChild,
)
from supervisors.spec import (
    AutoShutdown,
    Backoff,
    ChildSpec,
    Strategy,
    check_flags,
    check_specs,
)

if TYPE_CHECKING:
    from collections.abc import Hashable

__all__ = ["Supervisor"]

Operation: TypeAlias = Generator[Run, None, None]


class Supervisor(Family):
    """Starts its children in order, restarts them by a strategy, ends them in reverse order.

    Start it by `system.start(Supervisor, [ChildSpec(...), ...], strategy=...)`, or as a child of
    another. If a child fails to start at first, those before it are ended and the start fails.
    More than `intensity` restarts within `period` seconds (of all children together; each attempt
    counts, failed ones too, a group restart once) and it ends its children and exits with
    `Shutdown(RestartsExceeded(...))`: quiet, so that only a permanent supervisor is restarted.

    Args:
        children: the specs, in the order of starts; or override `children()`
        strategy: `one_for_one` restarts the child that ended, `one_for_all` all of them,
            `rest_for_one` it and those started after it
        intensity: restarts that are allowed within the period (OTP's default is 1, Elixir's 3)
        period: seconds
        auto_shutdown: whether the end of `any_significant` or of `all_significant` children ends
            the supervisor (with SHUTDOWN)
        backoff: a delay before restarts; none by default, as in OTP

    Raises (from the start):
        StartError: a child failed; `reason` is `Shutdown(StartError(child_id, ...))`
        InvalidSpec: (as the crash reason) a flag or spec is wrong

    Example:
        >>> from supervisors import Actor, ActorSystem, ChildSpec, Supervisor, count_children
        >>> with ActorSystem() as system:
        ...     root = system.start(Supervisor, [ChildSpec("a", Actor), ChildSpec("b", Actor)])
        ...     count_children(root).active
        2
    """

    _acknowledges = True

    def __init__(
        self,
        children: Iterable[ChildSpec] = (),
        *,
        strategy: Strategy = "one_for_one",
        intensity: int = 3,
        period: float = 5.0,
        auto_shutdown: AutoShutdown = "never",
        backoff: Backoff | None = None,
    ) -> None:
        """Check the flags and specs."""
        check_flags(strategy, intensity, period, auto_shutdown)
        self.strategy = strategy
        self.auto_shutdown = auto_shutdown
        self.backoff = backoff
        self._given = tuple(children)
        self._intensity = intensity
        self._period = period
        self._budget = SupervisorBudget(intensity, period)
        self._children: dict[Hashable, Child] = {}
        self._operations: deque[tuple[Operation, Answer | None]] = deque()
        self._now: tuple[Operation, Answer | None] | None = None
        self._due = {}
        self._awaited: Run | None = None
        self._stepping = False
        self._early: list[tuple[Any, Any]] = []

    def children(self) -> Sequence[ChildSpec]:
        """Return the specs to start with; computed anew at each start. Override it at will."""
        return self._given

    def on_start(self) -> None:
        """Start the children; the supervisor has started when all have."""
        specs = check_specs(self.children(), self.auto_shutdown)
        self._children = {spec.id: Child(spec.id, spec) for spec in specs}
        self._enqueue(self._boot())

    def on_receive(self, message: Any) -> Any:
        """Serve requests; before all children have started only questions, the rest waits until then."""
        if self.cell.phase == STARTING and type(message) not in QUESTIONS:
            future, self.cell.reply = self.cell.reply, None
            if future is not None:
                death.promise(self.cell, future)
            self._early.append((message, future))
            return None
        return super().on_receive(message)

    def _serve_early(self) -> None:
        """Have what waited handled now, ahead of what came later."""
        early, self._early = self._early, []
        deferred = self.cell.pages().deferred or set()
        for message, future in reversed(early):
            deferred.discard(future)
            self.cell.q.appendleft(message if future is None else Envelope(message, future))

    # Operations

    def _enqueue(self, operation: Operation, answer: Answer | None = None) -> None:
        self._operations.append((operation, answer))
        if self._now is None:
            self._drive()

    def _drive(self) -> None:
        while True:
            if self._now is None:
                if not self._operations:
                    return
                self._now = self._operations.popleft()
            self._stepping = True
            try:
                self._awaited = next(self._now[0])
            except StopIteration:
                self._now = None
                self._awaited = None
                continue
            finally:
                self._stepping = False
            return

    def _changed(self, run: Run) -> None:
        if self._awaited is run:
            self._drive()
        elif run.ended is not None and run.child.run is run:
            self._enqueue(self._exited(run))

    def _boot(self) -> Operation:
        for child in self._members_in_order():
            yield from self._bring_up(child)
            run = child.run
            if run is not None and run.ended is not None and not run.ignored:
                child.run = None
                yield from self._take_down_all()
                reason = Shutdown(StartError(child.id, run.ended))
                death.die(self.cell, reason)
                return
            self._drop_ignored(child)
        death.acknowledge(self.cell)
        self._serve_early()

    def _bring_up(self, child: Child) -> Operation:
        """Start `child` and wait: afterwards its run lives, or `ended` says why not."""
        self._forget_retry(child)
        try:
            run = self._launch(child)
        except SupervisorsError as error:
            self._failed_launch(child, error)
            return
        while run.starting and run.ended is None:
            yield run

    def _drop_ignored(self, child: Child) -> bool:
        """Settle a child that ignored its start: its spec stays, unless it is temporary."""
        run = child.run
        if run is None or not run.ignored:
            return False
        child.run = None
        if child.spec.restart == "temporary":
            self._children.pop(child.id, None)
        return True

    def _take_down(self, child: Child) -> Operation:
        """End `child` and wait for it; a retry that is due is cancelled."""
        self._forget_retry(child)
        run = child.run
        if run is None:
            return
        self._stop_run(run)
        while run.ended is None:
            yield run
        if child.run is run:
            child.run = None
        self._report_shutdown(run)

    def _take_down_all(self) -> Operation:
        for child in reversed(self._members_in_order()):
            yield from self._take_down(child)

    # Exits and restarts

    def _exited(self, run: Run) -> Operation:
        child = run.child
        if child.run is not run or run.ended is None:
            return  # replaced, or ended by an operation, meanwhile
        child.run = None
        child.last = run.ended
        self._report_end(child, run.ended)
        if self._wants_restart(child, run.ended):
            yield from self._restart(child, run)
            return
        if child.spec.restart == "temporary":
            self._children.pop(child.id, None)
        if child.spec.significant:
            self._maybe_auto_shutdown()

    def _maybe_auto_shutdown(self) -> None:
        if self.auto_shutdown == "any_significant" or (
            self.auto_shutdown == "all_significant"
            and not any(
                child.spec.significant and child.state != "undefined"
                for child in self._children.values()
            )
        ):
            self._end(Shutdown())

    def _restart(self, child: Child, run: Run | None) -> Operation:
        """Restart `child` and whom the strategy adds, if the budget allows."""
        if not self._budget.allows(child.id, self.system.clock.monotonic()):
            self._exceed(child)
            return
        delay = self._delay(child, run)
        if delay:
            if self.strategy != "one_for_one":
                yield from self._take_down_group(child)
            self._schedule(child, run, delay)
            return
        yield from self._attempt(child)

    def _attempt(self, child: Child) -> Operation:
        child.restarts += 1
        if self.strategy == "one_for_one":
            yield from self._start_again(child)
            return
        yield from self._take_down_group(child)
        for member in self._group(child):
            yield from self._start_again(member)
            if member.restarting is not None:
                return  # it failed; the later ones wait for its retry

    def _start_again(self, child: Child) -> Operation:
        yield from self._bring_up(child)
        run = child.run
        if run is None or self._drop_ignored(child) or run.ended is None:
            return
        if run.starting:
            child.last = run.ended
            self._report("restart_failed", child, run.ended)
            self._schedule(child, run, 0.0)
        # else it started and ended since: that is an exit of its own, which is queued

    def _group(self, child: Child) -> list[Child]:
        members = self._members_in_order()
        if self.strategy == "one_for_one":
            return [child]
        return members if self.strategy == "one_for_all" else members[members.index(child) :]

    def _take_down_group(self, child: Child) -> Operation:
        for member in reversed(self._group(child)):
            if member is not child:
                yield from self._take_down(member)
                if member.spec.restart == "temporary":
                    self._children.pop(member.id, None)

    def _try_again(self, child: Child, run: Run | None) -> None:
        if self._ending is None:
            self._enqueue(self._retry(child, run))

    def _retry(self, child: Child, run: Run | None) -> Operation:
        known = self._children.get(child.id) is child
        if not known or child.restarting is not run or run is None:
            return  # terminated, or replaced, meanwhile
        delayed = child.timer is not None
        self._forget_retry(child)
        if delayed:  # its budget was consumed when the delay began
            yield from self._attempt(child)
        else:
            yield from self._restart(child, run)

    def _exceed(self, child: Child) -> None:
        error = RestartsExceeded(
            repr(self.cell),
            child.id,
            intensity=self._intensity,
            period=self._period,
            last=child.last,
        )
        self._report("restarts_exceeded", child, child.last, {"error": str(error)})
        if child.spec.restart == "temporary":
            self._children.pop(child.id, None)
        self._end(Shutdown(error))

    # Ending

    def _shut_down(self) -> None:
        """Cut in: what runs or waits is dropped, its askers told; the children end in reverse."""
        reason = self._ending
        assert reason is not None
        waiting = list(self._operations)
        self._operations.clear()
        if self._now is not None and not self._stepping:
            waiting.insert(0, self._now)
            self._now = None
        self._awaited = None
        for operation, answer in waiting:
            operation.close()
            if answer is not None:
                answer.set_exception(ActorExit(self, reason))
        self._operations.append((self._finish(reason), None))
        if not self._stepping:  # else the operation that brought this about is at its end
            self._drive()

    def _finish(self, reason: ExitReason) -> Operation:
        yield from self._take_down_all()
        death.die(self.cell, reason)

    # Requests

    def _members(self) -> Iterable[Child]:
        return reversed(self._members_in_order())

    def snapshot(self) -> list[Child]:
        """Return the children in the order of their starts, from any thread."""
        return self._members_in_order()

    def _members_in_order(self) -> list[Child]:
        return list(self._children.values())

    def _find(self, key: Any) -> Child | None:
        child = self._children.get(key)
        if child is None and isinstance(key, ActorRef):
            return next((kid for kid in self._children.values() if matches(kid, key)), None)
        return child

    def _get_by_id(self, child_id: Any) -> Child:
        child = self._children.get(child_id)
        if child is None:  # a reference, which a successor does not have, is no id (OTP)
            raise NotFound(child_id)
        return child

    def _get_stopped(self, child_id: Any) -> Child:
        child = self._get_by_id(child_id)
        if child.restarting is not None:
            raise Restarting(child.id)
        if child.run is not None:
            raise Running(child.id)
        return child

    def _manage(self, request: Request, answer: Answer) -> None:
        operation: Operation
        if type(request) is StartChild:
            operation = self._start_child(request.spec, answer)
        elif type(request) is RestartChild:
            operation = self._restart_child(request.id, answer)
        elif type(request) is TerminateChild:
            operation = self._terminate_child(request.id, answer)
        elif type(request) is DeleteChild:
            operation = self._delete_child(request.id, answer)
        else:
            raise InvalidSpec("request", request, "a static supervisor does not know it")
        self._enqueue(self._answering(operation, answer), answer)

    def _answering(self, operation: Operation, answer: Answer) -> Operation:
        try:
            yield from operation
        except Exception as error:  # noqa: BLE001 - every refusal goes to the asker
            answer.set_exception(error)

    def _start_child(self, spec: ChildSpec, answer: Answer) -> Operation:
        check_specs([spec], self.auto_shutdown)
        present = self._children.get(spec.id)
        if present is not None:
            run = present.run
            if run is not None and run.cell is not None and run.ended is None:
                raise AlreadyStarted(run.cell.ref, spec.id)
            raise AlreadyPresent(spec.id)
        child = self._children[spec.id] = Child(spec.id, spec)
        yield from self._bring_up(child)
        self._answer_start(child, answer, keep=False)

    def _answer_start(self, child: Child, answer: Answer, *, keep: bool) -> None:
        run = child.run
        assert run is not None
        if self._drop_ignored(child):
            answer.set(None)
        elif run.ended is not None and run.starting:
            child.run = None
            if not keep:
                self._children.pop(child.id, None)
            answer.set_exception(start_failure(child, run.ended))
        else:
            assert run.cell is not None
            answer.set(run.cell.ref)

    def _restart_child(self, key: Any, answer: Answer) -> Operation:
        child = self._get_stopped(key)
        yield from self._bring_up(child)
        self._answer_start(child, answer, keep=True)

    def _terminate_child(self, key: Any, answer: Answer) -> Operation:
        child = self._get_by_id(key)
        yield from self._take_down(child)
        if child.spec.restart == "temporary":
            self._children.pop(child.id, None)
        answer.set(None)

    def _delete_child(self, key: Any, answer: Answer) -> Operation:
        child = self._get_stopped(key)
        del self._children[child.id]
        answer.set(None)
        yield from ()
