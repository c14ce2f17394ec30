"""The dynamic supervisor: any number of children without order, each started on demand."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Literal

from supervisors import death
from supervisors.budget import Budget, ChildBudget, SupervisorBudget
from supervisors.errors import (
    ActorExit,
    AlreadyPresent,
    AlreadyStarted,
    InvalidSpec,
    MaxChildren,
    RestartsExceeded,
    SupervisorsError,
)
from supervisors.exits import ExitReason, Shutdown
from supervisors.family import Answer, Child, Family, Run, matches, start_failure
from supervisors.requests import Request, StartChild, TerminateChild
from supervisors.spec import Backoff, ChildSpec, check_flags, check_spec

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable

    from supervisors.mailbox import Cell

__all__ = ["DynamicSupervisor"]


class DynamicSupervisor(Family):
    """Starts children on demand and restarts each by itself (Elixir's `DynamicSupervisor`).

    Children start concurrently, without waiting for each other; at shutdown all are asked to end at
    once. A child that ends for good is forgotten, with its spec.

    Args:
        max_children: how many it may have; restarting ones count
        intensity: restarts that are allowed within the period
        period: seconds
        budget: `"supervisor"`: one budget for all, and more ends the supervisor (OTP);
            `"child"`: one for each child, and a child that exceeds its own is given up alone;
            or a policy with `allows(child_id, now)`, which gives up the child that it refuses
        extra_args: go before the arguments of each child
        backoff: a delay before restarts

    Example:
        >>> from supervisors import Actor, ActorSystem, ChildSpec, DynamicSupervisor, start_child
        >>> with ActorSystem() as system:
        ...     pool = system.start(DynamicSupervisor, max_children=100, budget="child")
        ...     start_child(pool, ChildSpec("job-1", Actor, restart="transient")).is_alive()
        True
    """

    serialises: ClassVar[bool] = False

    def __init__(
        self,
        *,
        max_children: int | None = None,
        intensity: int = 3,
        period: float = 5.0,
        budget: Literal["supervisor", "child"] | Budget = "supervisor",
        extra_args: tuple[Any, ...] = (),
        backoff: Backoff | None = None,
    ) -> None:
        """Check the flags."""
        check_flags("one_for_one", intensity, period, "never")
        if max_children is not None and max_children < 0:
            raise InvalidSpec("max_children", max_children, "give 0 or more, or None for no limit")
        self.max_children = max_children
        self.extra_args = extra_args
        self.backoff = backoff
        self._intensity = intensity
        self._period = period
        self._shared = budget == "supervisor"
        self._budget: Budget = self._make_budget(budget)
        self._children: dict[Hashable, Child] = {}
        self._runs: dict[Cell, Child] = {}
        self._due = {}
        self._starters: dict[Run, Answer] = {}
        self._enders: dict[Child, list[Answer]] = {}
        self._made = 0

    def _make_budget(self, budget: object) -> Budget:
        if budget == "supervisor":
            return SupervisorBudget(self._intensity, self._period)
        if budget == "child":
            return ChildBudget(self._intensity, self._period)
        if callable(getattr(budget, "allows", None)):
            policy: Any = budget
            given: Budget = policy
            return given
        raise InvalidSpec(
            "budget", budget, 'give "supervisor", "child", or an object with allows(child_id, now)'
        )

    def on_give_up(self, child_id: Hashable, reason: ExitReason) -> None:
        """Hear that a child was given up: it exceeded its own budget. Override at will.

        Args:
            child_id: which; it is forgotten already
            reason: its last end
        """

    # Starting

    def _manage(self, request: Request, answer: Answer) -> None:
        if type(request) is StartChild:
            self._start_child(request.spec, answer)
        elif type(request) is TerminateChild:
            self._terminate_child(request.id, answer)
        else:
            name = type(request).__name__
            raise InvalidSpec("request", name, "a dynamic supervisor keeps no stopped children")

    def _start_child(self, spec: ChildSpec, answer: Answer) -> None:
        check_spec(spec, "never")
        child_id = self._make_id() if spec.id is None else spec.id
        present = self._children.get(child_id)
        if present is not None:
            run = present.run
            if run is not None and run.cell is not None and run.ended is None:
                raise AlreadyStarted(run.cell.ref, child_id)
            raise AlreadyPresent(child_id)
        if self.max_children is not None and len(self._children) >= self.max_children:
            raise MaxChildren(self, self.max_children)
        child = Child(child_id, spec)
        run = self._launch(child, self.extra_args)
        self._children[child_id] = child
        self._starters[run] = answer
        self._track(run)

    def _make_id(self) -> int:
        self._made += 1
        while self._made in self._children:
            self._made += 1
        return self._made

    def _track(self, run: Run) -> None:
        assert run.cell is not None
        self._runs[run.cell] = run.child

    def _untrack(self, run: Run | None) -> None:
        if run is not None and run.cell is not None:
            self._runs.pop(run.cell, None)

    def _adopt(self, run: Run) -> None:
        """Know the child by `run`; until now it was known by the last run that had started (OTP)."""
        before = run.child.ran
        if before is not None:
            self._untrack(before)
        run.child.ran = run

    def _changed(self, run: Run) -> None:
        child = run.child
        if child.run is not run:
            return
        if run.ended is None:
            answer = self._starters.pop(run, None)
            if answer is not None:
                assert run.cell is not None
                answer.set(run.cell.ref)
        elif run.ending or self._ending is not None:
            self._answer_failed_start(run)
            self._report_shutdown(run)
            self._remove(child)
        elif run.ignored:
            self._ignored(run)
        elif run.starting:
            self._start_failed(run)
        else:
            self._exited(run)

    def _ignored(self, run: Run) -> None:
        answer = self._starters.pop(run, None)
        self._remove(run.child)
        if answer is not None:
            answer.set(None)

    def _answer_failed_start(self, run: Run) -> None:
        answer = self._starters.pop(run, None)
        if answer is not None and run.ended is not None:
            answer.set_exception(start_failure(run.child, run.ended))

    def _start_failed(self, run: Run) -> None:
        assert run.ended is not None
        child = run.child
        if run in self._starters:
            self._remove(child)
            self._answer_failed_start(run)
            return
        child.last = run.ended
        self._report("restart_failed", child, run.ended)
        self._untrack(run)
        self._schedule(child, run, 0.0)

    # Exits and restarts

    def _exited(self, run: Run) -> None:
        assert run.ended is not None
        child = run.child
        child.last = run.ended
        self._report_end(child, run.ended)
        if self._wants_restart(child, run.ended):
            self._restart(child, run)
        else:
            self._remove(child)

    def _restart(self, child: Child, run: Run) -> None:
        if not self._budget.allows(child.id, self.system.clock.monotonic()):
            self._exceed(child)
            return
        delay = self._delay(child, run)
        if delay:
            self._schedule(child, run, delay)
        else:
            self._relaunch(child, run)

    def _relaunch(self, child: Child, old: Run) -> None:
        del old  # the child stays known by it until its successor has started
        child.restarts += 1
        try:
            self._track(self._launch(child, self.extra_args))
        except SupervisorsError as error:
            run = self._failed_launch(child, error)
            child.last = run.ended if run.ended is not None else child.last
            self._report("restart_failed", child, run.ended)
            self._schedule(child, run, 0.0)

    def _try_again(self, child: Child, run: Run | None) -> None:
        known = self._children.get(child.id) is child
        if self._ending is not None or not known or child.restarting is not run or run is None:
            return  # ended, terminated, or replaced, meanwhile
        delayed = child.timer is not None
        self._forget_retry(child)
        if delayed:  # its budget was consumed when the delay began
            self._relaunch(child, run)
        else:
            self._restart(child, run)

    def _exceed(self, child: Child) -> None:
        last = child.last
        if not self._shared:
            self._report("child_given_up", child, last)
            self._remove(child)
            self.on_give_up(child.id, last)
            return
        error = RestartsExceeded(
            repr(self.cell), child.id, intensity=self._intensity, period=self._period, last=last
        )
        self._report("restarts_exceeded", child, last, {"error": str(error)})
        self._remove(child)
        self._end(Shutdown(error))

    # Ending

    def _terminate_child(self, key: Any, answer: Answer) -> None:
        child = self._get(key)
        if child.run is None or child.run.ended is not None:
            self._remove(child)
            answer.set(None)
            return
        self._enders.setdefault(child, []).append(answer)
        self._stop_run(child.run)

    def _remove(self, child: Child) -> None:
        if child.run is not child.ran:
            self._untrack(child.run)
        self._untrack(child.ran)
        if child.restarting is not None or child.timer is not None:
            self._forget_retry(child)
        child.run = child.ran = None  # no reference cycle with its runs stays behind
        self._children.pop(child.id, None)
        if isinstance(self._budget, ChildBudget):
            self._budget.forget(child.id)
        for answer in self._enders.pop(child, ()):
            answer.set(None)
        if self._ending is not None and not self._children:
            death.die(self.cell, self._ending)

    def _shut_down(self) -> None:
        reason = self._ending
        assert reason is not None
        starters, self._starters = self._starters, {}
        for answer in starters.values():
            answer.set_exception(ActorExit(self, reason))
        for child in list(self._children.values()):
            if child.run is None or child.run.ended is not None:
                self._remove(child)
            else:
                self._stop_run(child.run)
        if not self._children:
            death.die(self.cell, reason)

    # Looking

    def snapshot(self) -> list[Child]:
        """Return the children in the order of their starts, from any thread."""
        return list(self._children.values())

    def _members(self) -> Iterable[Child]:
        return self._children.values()

    def _find(self, key: Any) -> Child | None:
        cell: Any = getattr(key, "cell", None)
        if cell is None:
            return self._children.get(key)
        child = self._runs.get(cell)
        if child is None or (child.run is not None and child.run.cell is cell):
            return child
        return child if matches(child, key) else None
