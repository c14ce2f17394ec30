"""Attempts: what starts, what becomes of it, and the timers of both."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

from beamweaver.checkpoint.entries import TaskFailed
from beamweaver.engine._core import Stop
from beamweaver.engine._handling import Handling
from beamweaver.engine.breakpoints import breaks_of
from beamweaver.engine.effects import (
    Attempt,
    CancelAttempt,
    CancelTransition,
    DropTimer,
    Noted,
    SetTimer,
    StartAttempt,
)
from beamweaver.engine.failures import describe, may_retry, retry_delay, timeout_failure
from beamweaver.engine.handlers import ON_FAILURE, no_result
from beamweaver.engine.merge import merge, with_lost
from beamweaver.engine.nested import reopen
from beamweaver.engine.refusals import lost_node
from beamweaver.engine.rows import asked_row, retry_row
from beamweaver.engine.state import Task, row_of
from beamweaver.errors import InvalidUpdate, ReducerFailed, RunTimeout, StepTimeout
from beamweaver.events import AttemptFailed, TaskStarted

if TYPE_CHECKING:
    from beamweaver.checkpoint.entries import Memo
    from beamweaver.engine.state import OpenStep, Question, Result, Write
    from beamweaver.types import Failure

__all__ = ["Attempts"]

_SECOND_US = 1_000_000


class Attempts(Handling):
    """The side of a machine that runs the tasks of the open step."""

    # Events -------------------------------------------------------------------------------------

    def succeeded(self, attempt: Attempt, result: Result) -> None:
        """An attempt ended well. A result of an attempt that was given up is refused."""
        if not self._ended(attempt):
            return
        if attempt.position < 0:
            self.told(result)
            return
        result.era, task = self.state.step.era, attempt.task
        task.result = result
        if self.family:
            task.inner = None
        self.dirty.append(task)
        self._unsaved.append(task)

    def failed(self, attempt: Attempt, failure: Failure) -> None:
        """An attempt failed: another one follows by the node's policy, or the task has failed."""
        if not self._ended(attempt):
            return
        if attempt.position < 0:
            self.told(failure=failure)
            return
        task = attempt.task
        task.failures = attempt.number
        task.failure = failure
        task.first_us = attempt.first_us
        delay = None
        goes_on = self.stop is None or self.stop.status == "drained"
        if attempt.handles is not None:
            self._give_up(task, self.handler_failed(attempt, failure))
        elif goes_on and may_retry(attempt.node.retry, failure, task.failures):
            delay = self._retry_later(task, attempt)
        elif goes_on and attempt.node.error_handler is not None:
            self.hand_over(task, failure)
        else:
            self._give_up(task, failure)
        if self.env.publishing:
            self._tell_failed(attempt, failure, delay)

    def asked(self, attempt: Attempt, *questions: Question) -> None:
        """An attempt asked questions: its task waits for the answers."""
        if not self._ended(attempt):
            return
        if attempt.position < 0 and self.graph.on_failure is not None:
            self.told(failure=describe(no_result(self.graph.on_failure), ON_FAILURE, "", 1))
            return
        for question in questions:
            attempt.task.ask(question)
            self.dirty.append(asked_row(attempt.task, question))

    def noted(self, attempt: Attempt, memo: Memo, token: Any) -> bool:
        """A durable sub-step of an attempt ended well; the effect `Noted(token)` tells when it is kept.

        Returns:
            False if the attempt was given up: what it still does counts for nothing.
        """
        if self.running.get(attempt.position) is not attempt:
            return False
        attempt.task.remember(memo)
        self.dirty.append(memo)
        self._unsaved.append(Noted(token))
        return True

    def lost(self, attempt: Attempt) -> None:
        """An attempt ended without a result that counts; it starts again unless the step stops."""
        if self._ended(attempt) and self.stop is None:
            self.add_ready(attempt.task)

    def fired(self, key: tuple[Any, ...]) -> None:
        """A timer is due; one that no longer matters is ignored."""
        match key:
            case ("retry", int(position), int(due_us)):
                task = self.sleeping.get(position)
                if task is not None and task.due_us == due_us:
                    del self.sleeping[position]
                    task.due_us = 0
                    self.add_ready(task)
            case ("attempt", int(position), _):
                attempt = self.running.get(position)
                if attempt is not None and attempt.timer == key:
                    assert attempt.timeout is not None, "only a timeout sets this timer"
                    attempt.timer = None
                    self._timed_out(attempt, attempt.timeout)
            case ("idle", int(position), _):
                attempt = self.running.get(position)
                if attempt is not None and attempt.idle_timer == key:
                    self._look_at(attempt)
            case ("step", _) if key == self._step_timer:
                self._step_timer = None
                self._out_of_time(StepTimeout, "step", self.state.step.number, self._step_timeout)
            case ("run", _) if key == self._run_timer:
                self._run_timer = None
                self._out_of_time(RunTimeout, "run", self.state.run.number, self._run_timeout)

    # Starting -----------------------------------------------------------------------------------

    def activate(self) -> None:
        """Begin to execute the open step: after an admission, a continuation or a take-up."""
        self.active = True
        self.stop = None
        self.adopt_options()
        self.begin_step()

    def adopt_options(self) -> None:
        """The run's own options hold, or else those of the graph; the run's time begins anew."""
        graph, options = self.graph, self.state.run.options
        self._run_timeout, self._step_timeout = graph.run_timeout, graph.step_timeout
        policy: str = graph.failure_policy
        self._most = graph.max_concurrency or self.env.limits.tasks_a_step
        if options is not None:
            self._run_timeout = options.run_timeout or graph.run_timeout
            self._step_timeout = options.step_timeout or graph.step_timeout
            policy = options.failure_policy or policy
            self._most = options.max_concurrency or self._most
        self._panics = policy == "panic"
        self._breaks = breaks_of(graph, options)
        if self._run_timer is not None:
            self._effects.append(DropTimer(self._run_timer))
            self._run_timer = None
        self._run_since = self.env.clock()
        if self._run_timeout is not None:
            used = self.state.run.used_us / _SECOND_US
            self.arm_run(max(self._run_timeout - used, 0.0))

    def arm_run(self, seconds: float) -> None:
        """The run has that much time from now on."""
        self._run_timer = ("run", self.state.seq)
        self._effects.append(SetTimer(self._run_timer, seconds))

    def arm_step(self, seconds: float) -> None:
        """The step has that much time from now on."""
        self._step_timer = ("step", self.state.seq)
        self._step_until = self.env.clock() + seconds
        self._effects.append(SetTimer(self._step_timer, seconds))

    def begin_step(self) -> None:
        """Make the unfinished tasks of the open step ready, or let them sleep until they are due."""
        tasks = self.state.step.tasks
        if self.state.step.failing:
            self._drop_timers()
            self.start_nothing()
            return  # nothing of it runs again before a caller goes on
        self.make_ready([task for task in tasks if not task.settled and not task.due_us])
        for task in tasks:
            if task.due_us and not task.settled and not task.asleep:
                self.sleeping[task.position] = task
                self._wake_when_due(task)
        if self._step_timeout is not None:
            self.arm_step(self._step_timeout)

    def begin_planned(self) -> None:
        """The same for a step that was just planned: all of its tasks are fresh."""
        state = self.state
        if self.sorts:
            self.make_ready(state.step.tasks)
        else:
            self.ready = deque(state.step.tasks)
        self._view = self.with_managed(state.values) if self.graph.managed else state.values
        if self._step_timeout is not None:
            self.arm_step(self._step_timeout)

    def start_ready(self) -> None:
        """Start as many tasks as may run at once."""
        if not (self.ready or self.ready_async) or (self._view is None and not self._find_view()):
            return
        if self.family:
            self.start_in_family()
            return
        running, most = self.running, self._most
        while self.ready_async and len(running) < most:
            self._start(self.ready_async.popleft())
        most = min(most, self._async_running + self.env.limits.sync_nodes_a_thread)
        while self.ready and len(running) < most:
            self._start(self.ready.popleft())

    def make_ready(self, tasks: list[Task]) -> None:
        """These tasks, and no others, may start."""
        if not self.sorts:
            self.ready = deque(tasks)
            return
        self.ready.clear()
        self.ready_async.clear()
        for task in tasks:
            self.add_ready(task)

    def add_ready(self, task: Task) -> None:
        """This task may start too."""
        node = self.graph.nodes.get(task.node)
        runs = node if node is None or task.handling is None else node.error_handler
        free = runs is not None and runs.is_async
        if node is not None and node.subgraph is not None and task.handling is None:
            free = True  # a graph holds no worker
        (self.ready_async if free else self.ready).append(task)

    def _find_view(self) -> bool:
        """Work out what the step's tasks see; False where they cannot go on, and the step stops."""
        try:
            self._view = self.with_managed(self.view_of(self.state.step))
        except (InvalidUpdate, ReducerFailed) as error:
            self.halt(Stop("failed", describe(error, "", "", 1)), wait=False)
            return False
        return True

    def view_of(self, step: OpenStep) -> dict[str, Any]:
        """What the unfinished tasks of a step see: the state before it, and what came before its era.

        Raises:
            InvalidUpdate, ReducerFailed: That does not merge.
            UnknownTarget: The graph has lost the node of a task.
        """
        for task in step.tasks:
            if task.node not in self.graph.nodes and task.result is None:
                raise lost_node(task.node, self.state.thread_id)
        if not step.era:
            return self.state.values
        return merge(self.graph, self.state.values, step, step.era).values

    def take_lost(self, writes: tuple[Write, ...]) -> None:
        """Take from a call that finds its run here what was lost with the process before, as a client.

        Raises:
            ReducerFailed: A reducer raised.
        """
        self.state.values = with_lost(self.graph, self.state.values, writes)
        self._view = None
        if self.merged is not None:
            self.merged.values = with_lost(self.graph, self.merged.values, writes)

    @property
    def step_limit(self) -> int:
        """How many steps may follow a call that gives no limit."""
        return self.graph.recursion_limit

    def with_managed(self, values: dict[str, Any]) -> dict[str, Any]:
        """Values with the keys that are computed for the open step."""
        if not self.graph.managed:
            return values
        limit = self.state.run.recursion_limit or self.step_limit
        return {**values, **self.graph.managed_values(limit - self.state.executed)}

    def _start(self, task: Task) -> None:
        state = self.state
        node = self.graph.nodes[task.node]
        if task.handling is not None:
            node = self.handler_of(task, node)
        if not task.first_us:
            task.first_us = self.env.now_us()
        assert self._view is not None, "a task starts when it is known what it sees"
        view = self._view if task.update is None else {**self._view, **task.update}
        timeout, idle = task.timeout, task.idle
        if timeout is None and idle is None:
            timeout, idle = node.timeout, node.idle
        me: Any = self  # no `cast`, which is a call; the arguments by their places are quicker too
        attempt = Attempt(
            task, node, state.branch, state.step.number, view, timeout, idle, me,
            task.position, task.failures + 1, task.first_us,
        )  # fmt: skip
        if task.handling is not None:
            attempt.handle(task.handling)
        self.running[task.position] = attempt
        if node.is_async:
            self._async_running += 1
        if node.subgraph is None:
            self._effects.append(StartAttempt(attempt))
        if timeout is not None:
            self._serial += 1
            attempt.timer = ("attempt", task.position, self._serial)
            self._effects.append(SetTimer(attempt.timer, timeout))
        if idle is not None:
            self._serial += 1
            attempt.beat_at = self.env.clock()
            attempt.idle_timer = ("idle", task.position, self._serial)
            self._effects.append(SetTimer(attempt.idle_timer, idle))
        if self.env.publishing:
            self.publish(
                TaskStarted(
                    thread_id=state.thread_id,
                    task_id=attempt.task_id,
                    node=task.node,
                    attempt=attempt.number,
                )
            )
        if self.family:
            self.started_in_family(attempt)

    def start_in_family(self) -> None:
        """The same where graphs run inside of tasks: see `_children`."""

    def ended_in_family(self, attempt: Attempt) -> None:
        """An attempt ended."""

    def cleared_in_family(self) -> None:
        """All attempts were given up."""

    # Ending -------------------------------------------------------------------------------------

    def _ended(self, attempt: Attempt) -> bool:
        """Whether the attempt was running; it is not any more."""
        if self.running.get(attempt.position) is not attempt:
            return False
        del self.running[attempt.position]
        if attempt.node.is_async:
            self._async_running -= 1
        if self.family:
            self.ended_in_family(attempt)
        if attempt.timer is not None or attempt.idle_timer is not None:
            self._disarm(attempt)
        return True

    def _disarm(self, attempt: Attempt) -> None:
        if attempt.timer is not None:
            self._effects.append(DropTimer(attempt.timer))
            attempt.timer = None
        if attempt.idle_timer is not None:
            self._effects.append(DropTimer(attempt.idle_timer))
            attempt.idle_timer = None

    def _look_at(self, attempt: Attempt) -> None:
        """See whether an attempt gave a sign of life; wait on, or end it."""
        assert attempt.idle is not None, "an attempt without an idle timeout is not looked at"
        rest = attempt.beat_at + attempt.idle - self.env.clock()
        if rest > 0 and attempt.idle_timer is not None:
            self._effects.append(SetTimer(attempt.idle_timer, rest))
        else:
            attempt.idle_timer = None
            self._timed_out(attempt, attempt.idle, idle=True)

    def _retry_later(self, task: Task, attempt: Attempt) -> float:
        policy, failure = attempt.node.retry, task.failure
        assert policy is not None, "only a policy asks for another attempt"
        assert failure is not None, "only a failure is followed by another attempt"
        task.delay = retry_delay(policy, failure, task.failures, self.env.random)
        task.due_us = self.env.now_us() + int(task.delay * _SECOND_US)
        self.dirty.append(retry_row(task))
        task.failure = None
        reopen(task)
        if self.stop is None:  # else the next process waits for the rest
            self.sleeping[task.position] = task
            self._unsaved.append(task)
        return task.delay

    def wake_saved(self) -> None:
        """The due times and notes in the commit that was acknowledged are durable."""
        if not (self.dozing or self.sleeping):
            self._effects += [each for each in self._saving if type(each) is Noted]
            return
        for each in self._saving:
            if type(each) is not Task:
                self._effects += [each] if type(each) is Noted else []
            elif self.dozing.get(each.position) is each:
                self._wake_when_due(each)  # from now on it counts
            elif self.sleeping.get(each.position) is each:
                if each.due_us:
                    self._wake_when_due(each)
                else:
                    del self.sleeping[each.position]
                    self.add_ready(each)  # its error handler has it, durably

    def _wake_when_due(self, task: Task) -> None:
        self._effects.append(SetTimer(_alarm(task), self.rest_of(task)))

    def rest_of(self, task: Task) -> float:
        """Seconds until the task is due; whatever the clocks say, no more than it has to wait in all."""
        return self.env.rest_of(task.due_us, task.delay)

    def _give_up(self, task: Task, failure: Failure) -> None:
        task.failure = failure
        self.dirty.append(TaskFailed(task.position, task.failures, row_of(failure)))
        if self._panics and self.stop is None:
            self.halt(Stop("failed"), wait=False)

    def _timed_out(self, attempt: Attempt, limit: float, *, idle: bool = False) -> None:
        self.give_up_on(attempt, wait=False)
        failure = timeout_failure(
            attempt.task.node, attempt.task_id, attempt.number, limit, idle=idle
        )
        self.failed(attempt, failure)

    def _out_of_time(
        self, cls: type[Exception], what: str, number: int, limit: float | None
    ) -> None:
        if self.stop is not None:
            return
        unfinished = [task.node for task in self.state.step.tasks if task.result is None]
        error = cls(
            f"{what} {number} of thread {self.state.thread_id!r} took longer than "
            f"its {what}_timeout of {limit:g} s; unfinished: {_listed(unfinished) or 'routers and guards'}"
        )
        self.halt(Stop("failed", describe(error, "", "", 1)), wait=False)

    def _tell_failed(self, attempt: Attempt, failure: Failure, delay: float | None) -> None:
        self.publish(
            AttemptFailed(
                thread_id=self.state.thread_id,
                task_id=attempt.task_id,
                node=attempt.task.node,
                attempt=attempt.number,
                failure_code=failure.code,
                message=failure.message,
                retry_in=delay,
            )
        )

    # Stopping -----------------------------------------------------------------------------------

    def halt(self, stop: Stop, *, wait: bool) -> None:
        """Close the step before its tasks are done.

        Args:
            stop: The status and failure that follow.
            wait: Whether to close only when the bodies of running attempts have ended.
        """
        self.stop = stop
        self.start_nothing()
        self.drop_transition()
        for attempt in list(self.running.values()):
            self._disarm(attempt)
            self.give_up_on(attempt, wait=wait)
        if not wait:
            if self.family:
                self.cleared_in_family()
            self.running.clear()
            self._async_running = 0

    def give_up_on(self, attempt: Attempt, *, wait: bool) -> None:
        """Stop what runs of an attempt."""
        self._effects.append(CancelAttempt(attempt, wait=wait))

    def start_nothing(self) -> None:
        """Nothing that waits to start does."""
        self.ready.clear()
        self.ready_async.clear()
        for waiting in (self.sleeping, self.dozing):
            for task in waiting.values():
                self._effects.append(DropTimer(_alarm(task)))
            waiting.clear()

    def drop_transition(self) -> None:
        """The step is not as its routers see it any more."""
        self.merged = self.routes = None
        if self.transition is not None:
            self._effects.append(CancelTransition(self.transition))
            self.transition = None


def _alarm(task: Task) -> tuple[str, int, int]:
    """The key of the timer that wakes a task."""
    return "sleep" if task.asleep else "retry", task.position, task.due_us


def _listed(nodes: list[str]) -> str:
    names = list(dict.fromkeys(nodes))
    return ", ".join(names[:10]) + (f" and {len(names) - 10} more" if names[10:] else "")
