"""The superstep: start tasks, take their results, merge, route, commit, go on."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

from beamweaver.checkpoint.records import Asked, Checkpoint, MergeFailed, StepFailed, TaskFailed
from beamweaver.engine._core import Core, Stop
from beamweaver.engine.effects import (
    Attempt,
    CancelAttempt,
    DropTimer,
    SetTimer,
    StartAttempt,
    StartTransition,
    Transition,
)
from beamweaver.engine.failures import describe, may_retry, timeout_failure
from beamweaver.engine.ids import checkpoint_id
from beamweaver.engine.merge import Merged, merge
from beamweaver.engine.plan import branches_to_take, plan
from beamweaver.engine.rows import retry_row, task_row
from beamweaver.engine.state import OpenStep, row_of
from beamweaver.errors import (
    InvalidUpdate,
    RecursionLimit,
    ReducerFailed,
    RunTimeout,
    SerializationError,
    StepTimeout,
)
from beamweaver.events import AttemptFailed, StepCommitted, TaskStarted
from beamweaver.types import START

if TYPE_CHECKING:
    from beamweaver.checkpoint.records import ThreadRow
    from beamweaver.engine.plan import Routes
    from beamweaver.engine.state import Question, Result, Task
    from beamweaver.types import Failure

__all__ = ["Steps"]

_SECOND_US = 1_000_000


class Steps(Core):
    """Everything that happens between an admission and the run's stop."""

    # Events -------------------------------------------------------------------------------------

    def succeeded(self, attempt: Attempt, result: Result) -> None:
        """An attempt ended well. A result of an attempt that was given up is refused."""
        if not self._ended(attempt):
            return
        task = attempt.task
        result.era = self.state.step.era
        task.result = result
        self.dirty.append(task)
        self.unacked.append(task)

    def failed(self, attempt: Attempt, failure: Failure) -> None:
        """An attempt failed: another one follows by the node's policy, or the task has failed."""
        if not self._ended(attempt):
            return
        task = attempt.task
        task.failures = attempt.number
        task.failure = failure
        task.first_us = attempt.first_us
        delay = None
        if self.stop is None and may_retry(attempt.node.retry, failure, task.failures):
            delay = self._retry_later(task, attempt)
        else:
            self._give_up(task, failure)
        if self.env.publishing:
            self._tell_failed(attempt, failure, delay)

    def asked(self, attempt: Attempt, question: Question) -> None:
        """An attempt asked a question: its task waits for the answer."""
        if not self._ended(attempt):
            return
        task = attempt.task
        task.questions = [*(task.questions or ()), question]
        self.dirty.append(
            Asked(task.position, question.ordinal, question.key, question.data, question.id)
        )

    def lost(self, attempt: Attempt) -> None:
        """An attempt ended without a result that counts; it starts again unless the step stops."""
        if self._ended(attempt) and self.stop is None:
            self.ready.append(attempt.task)

    def routed(self, transition: Transition, routes: Routes) -> None:
        """The routers of the step chose."""
        if transition is not self.transition:
            return
        merged, self.merged, self.transition = self.merged, None, None
        assert merged is not None, "routers ran on a merged state"
        self._commit_step(merged, routes)

    def routing_failed(self, transition: Transition, failure: Failure) -> None:
        """A router failed; the step's results are kept."""
        if transition is not self.transition:
            return
        self.merged = self.transition = None
        self._merge_failed(failure)

    def fired(self, key: tuple[Any, ...]) -> None:
        """A timer is due; one that no longer matters is ignored."""
        match key:
            case ("retry", int(position), int(failures)):
                task = self.sleeping.get(position)
                if task is not None and task.failures == failures:
                    del self.sleeping[position]
                    task.due_us = 0
                    self.ready.append(task)
            case ("attempt", int(position), int(number), int(step)):
                attempt = self.running.get(position)
                if attempt is not None and (attempt.number, attempt.step) == (number, step):
                    self._timed_out(attempt)
            case ("step", _, _) if key == self._step_timer:
                self._step_timer = None
                self._out_of_time(StepTimeout, "step", self._step_timeout)
            case ("run", _, _) if key == self._run_timer:
                self._run_timer = None
                self._out_of_time(RunTimeout, "run", self._run_timeout)

    # Starting -----------------------------------------------------------------------------------

    def activate(self) -> None:
        """Begin to execute the open step: after an admission, a continuation or a take-up."""
        self.active = True
        self.stop = None
        if self._run_timeout is not None:
            self._run_timer = ("run", self.state.run.number, self.state.seq)
            self._effects.append(SetTimer(self._run_timer, self._run_timeout))
        self._begin_step()

    def _begin_step(self) -> None:
        state = self.state
        step = state.step
        self._view = None
        self.ready = deque(t for t in step.tasks if not t.settled and not t.due_us)
        now = self.env.now_us()
        for task in step.tasks:
            if task.due_us and not task.settled:
                self._sleep(task, min(max((task.due_us - now) / _SECOND_US, 0.0), task.delay))
        if self._step_timer is not None:
            self._effects.append(DropTimer(self._step_timer))
            self._step_timer = None
        if self._step_timeout is not None:
            self._step_timer = ("step", step.number, state.seq)
            self._effects.append(SetTimer(self._step_timer, self._step_timeout))

    def start_ready(self) -> None:
        """Start as many tasks as may run at once."""
        most = self.graph.max_concurrency or self.env.limits.sync_nodes_a_thread
        while self.ready and len(self.running) < most:
            self._start(self.ready.popleft())

    def _start(self, task: Task) -> None:
        state = self.state
        node = self.graph.nodes[task.node]
        if not task.first_us:
            task.first_us = self.env.now_us()
        view = dict(self._seen())
        if task.update is not None:
            view.update(task.update)
        timeout = task.timeout if task.timeout is not None else node.timeout
        attempt = Attempt(task, node, state.branch, state.step.number, view, timeout)
        self.running[task.position] = attempt
        self._effects.append(StartAttempt(attempt))
        if timeout is not None:
            self._effects.append(SetTimer(_attempt_key(attempt), timeout))
        if self.env.publishing:
            self.publish(
                TaskStarted(
                    thread_id=state.thread_id,
                    task_id=attempt.task_id,
                    node=task.node,
                    attempt=attempt.number,
                )
            )

    def _seen(self) -> dict[str, Any]:
        """The state that a task of this step starts from."""
        step = self.state.step
        if step.era == 0:
            return self.state.values
        if self._view is None:
            self._view = merge(self.graph, self.state.values, step, step.era).values
        return self._view

    # Ending attempts ----------------------------------------------------------------------------

    def _ended(self, attempt: Attempt) -> bool:
        """Whether the attempt was running; it is not any more."""
        if self.running.get(attempt.position) is not attempt:
            return False
        del self.running[attempt.position]
        if attempt.timeout is not None:
            self._effects.append(DropTimer(_attempt_key(attempt)))
        return True

    def _retry_later(self, task: Task, attempt: Attempt) -> float:
        policy = attempt.node.retry
        assert policy is not None, "only a policy asks for another attempt"
        delay = policy.delay(task.failures)
        after = getattr(task.failure and task.failure.exception, "retry_after", None)
        if isinstance(after, int | float) and not isinstance(after, bool):
            delay = max(delay, float(after))
        elif policy.jitter:
            delay *= 0.5 + self.env.random() / 2
        task.delay = delay
        task.due_us = self.env.now_us() + int(delay * _SECOND_US)
        self.dirty.append(retry_row(task))
        task.failure = None
        self.sleeping[task.position] = task
        self._retried.append(task)
        return delay

    def _sleep(self, task: Task, delay: float) -> None:
        self.sleeping[task.position] = task
        self._effects.append(SetTimer(("retry", task.position, task.failures), delay))

    def _give_up(self, task: Task, failure: Failure) -> None:
        task.failure = failure
        self.dirty.append(TaskFailed(task.position, task.failures, row_of(failure)))
        if self.graph.failure_policy == "panic" and self.stop is None:
            self.halt(Stop("failed"), wait=False)

    def _timed_out(self, attempt: Attempt) -> None:
        assert attempt.timeout is not None, "an attempt without a timeout timed out"
        self._effects.append(CancelAttempt(attempt, wait=False))
        failure = timeout_failure(
            attempt.task.node, attempt.task_id, attempt.number, attempt.timeout
        )
        self.failed(attempt, failure)

    def _out_of_time(self, cls: type[Exception], what: str, limit: float | None) -> None:
        if not self.active or self.stop is not None:
            return
        unfinished = [t.node for t in self.state.step.tasks if t.result is None]
        error = cls(
            f"{what} {self.state.step.number} of thread {self.state.thread_id!r} took longer than "
            f"its {what}_timeout of {limit:g} s; unfinished: {', '.join(unfinished) or 'routers'}"
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

    # Closing ------------------------------------------------------------------------------------

    def flush(self) -> None:
        """Make what happened durable while other tasks still run."""
        retried, self._retried = self._retried, []
        self.commit(lambda: self._flushed(retried), entries=self.take_dirty())

    def _flushed(self, retried: list[Task]) -> None:
        self.tell_acknowledged()
        for task in retried:
            if self.sleeping.get(task.position) is task:
                self._sleep(task, task.delay)

    def close(self) -> None:
        """All tasks ended, parked or were cut: the step is over, or the run stops."""
        tasks = self.state.step.tasks
        if self.stop is not None:
            self._commit_stop(self.stop)
        elif any(task.failure is not None for task in tasks):
            self._commit_stop(Stop("failed"))
        elif any(task.result is None for task in tasks):
            self._commit_stop(Stop("waiting"))
        else:
            self._finish_step()

    def _commit_stop(self, stop: Stop) -> None:
        entries = self.take_dirty()
        if stop.failure is not None:
            self.state.step.failure = stop.failure
            cut = tuple(t.position for t in self.state.step.tasks if not t.settled)
            entries = (*entries, StepFailed(row_of(stop.failure), cut))
        self.commit(self._stopped, entries=entries, row=self.new_row(stop.status))

    def _stopped(self) -> None:
        self.tell_acknowledged()
        self.run_stopped()

    def _finish_step(self) -> None:
        """Merge; then the routers, if any; then commit."""
        try:
            merged = merge(self.graph, self.state.values, self.state.step)
        except (InvalidUpdate, ReducerFailed) as error:
            self._merge_failed(describe(error, "", "", 1))
            return
        routers = branches_to_take(self.graph, self.state.step)
        if not routers:
            self._commit_step(merged, {})
        elif self.dirty:
            self.flush()
        else:
            self.merged = merged
            self.transition = Transition(
                routers,
                self.state.branch,
                self.state.step.number,
                merged.values,
                self._step_timeout,
            )
            self._effects.append(StartTransition(self.transition))

    def _merge_failed(self, failure: Failure) -> None:
        """Results are kept, the run stops; continuing tries the merge and the routers again."""
        self.state.step.failure = failure
        entries = (*self.take_dirty(), MergeFailed(row_of(failure), failure.node))
        self.commit(self._stopped, entries=entries, row=self.new_row("failed"))

    def _commit_step(self, merged: Merged, routes: Routes) -> None:
        state = self.state
        step = state.step
        try:
            writes = self.encoded(merged)
            tasks, joins = plan(self.graph, state, routes)
            self.check_size(tasks)
        except (SerializationError, InvalidUpdate) as error:
            self._merge_failed(describe(error, "", "", 1))
            return
        executed = state.executed + (step.tasks[0].node != START)
        source = "loop" if step.tasks[0].node != START else "input"
        self.dirty = []
        self.warnings = () if tasks else _half_armed(joins)
        self.apply_step(merged, writes, tasks, joins if tasks else {}, executed)
        checkpoint = self.checkpoint(source, step.number, writes)
        self._commit_planned(checkpoint, tasks, executed)

    def _commit_planned(self, checkpoint: Checkpoint, tasks: list[Task], executed: int) -> None:
        """The commit of a step, with what it means for the run."""
        state = self.state
        limit = state.run.recursion_limit or self.graph.recursion_limit
        row: ThreadRow | None = None
        if not tasks:
            ended = (state.run.number, state.checkpoint_seq)
            self.commit(
                self._completed, checkpoint=checkpoint, row=self.new_row("complete"), ended=ended
            )
        elif executed >= limit:
            failure = self._limit_failure(limit, tasks)
            state.step.failure = failure
            row = self.new_row("failed")
            entries = (StepFailed(row_of(failure)),)
            self.commit(self._stopped, checkpoint=checkpoint, entries=entries, row=row)
        else:
            self.commit(self._step_committed, checkpoint=checkpoint)

    def _limit_failure(self, limit: int, tasks: list[Task]) -> Failure:
        names = ", ".join(dict.fromkeys(task.node for task in tasks[:5]))
        error = RecursionLimit(
            f"thread {self.state.thread_id!r} took {limit} steps since the last call and is not done "
            f"(next: {names}); its recursion_limit is {limit}: raise it, or look for an endless loop. "
            "The thread stays resumable",
            limit=limit,
        )
        return describe(error, "", "", 1)

    def apply_step(
        self,
        merged: Merged,
        writes: dict[str, bytes],
        tasks: list[Task],
        joins: dict[str, tuple[str, ...]],
        executed: int,
    ) -> None:
        """Move the state over a step that is about to be committed in record `state.seq`."""
        state = self.state
        state.values = merged.values
        for name in writes:
            state.versions[name] = state.seq
        state.parent_seq = state.checkpoint_seq
        state.checkpoint_seq = state.seq
        state.joins = joins
        state.executed = executed
        state.step = OpenStep(state.step.number + 1, tasks)

    def checkpoint(
        self, source: str, number: int, writes: dict[str, bytes], run_id: str | None = None
    ) -> Checkpoint:
        """The stored form of the state as it stands after `apply_step`."""
        state = self.state
        full = state.since_full + 1 >= self.env.limits.full_versions_every or state.parent_seq < 0
        state.since_full = 0 if full else state.since_full + 1
        step = state.step
        return Checkpoint(
            number,
            source,
            state.branch,
            state.parent_seq,
            writes,
            dict(state.versions) if full else None,
            tuple([task_row(task) for task in step.tasks]),
            step.number,
            state.joins,
            state.executed,
            run_id or state.run.names[0],
        )

    def encoded(self, merged: Merged) -> dict[str, bytes]:
        changed = merged.changed
        for name, data in changed.items():
            if data is None:
                changed[name] = self.env.encode(name, merged.values[name])
        return changed  # type: ignore[return-value] # every None was just replaced

    def check_size(self, tasks: list[Task]) -> None:
        most = self.env.limits.tasks_a_step
        if len(tasks) > most:
            raise InvalidUpdate(
                f"the next step of thread {self.state.thread_id!r} would have {len(tasks)} tasks; "
                f"limits.tasks_a_step is {most}: send in several steps, or raise the limit"
            )

    def _step_committed(self) -> None:
        self._tell_committed()
        self._begin_step()

    def _completed(self) -> None:
        self._tell_committed()
        self.run_stopped()

    def _tell_committed(self) -> None:
        self.tell_acknowledged()
        if self.env.publishing:
            state = self.state
            self.publish(
                StepCommitted(
                    thread_id=state.thread_id,
                    step=state.step.number - 1,
                    checkpoint_id=checkpoint_id(state.branch, state.checkpoint_seq),
                )
            )


def _attempt_key(attempt: Attempt) -> tuple[Any, ...]:
    return ("attempt", attempt.position, attempt.number, attempt.step)


def _half_armed(joins: dict[str, tuple[str, ...]]) -> tuple[str, ...]:
    return tuple(
        f"the run ended with the join {key} half armed: only {', '.join(arrived)} arrived"
        for key, arrived in joins.items()
    )
