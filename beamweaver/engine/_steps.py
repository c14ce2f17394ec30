"""The superstep: when its tasks are done merge, route, commit, go on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, cast

import msgspec

from beamweaver.checkpoint.entries import Failing, MergeFailed, StepFailed
from beamweaver.checkpoint.records import Checkpoint
from beamweaver.engine._ahead import Ahead
from beamweaver.engine._core import Stop
from beamweaver.engine.breakpoints import pause
from beamweaver.engine.effects import DropTimer, StartTransition, Transition
from beamweaver.engine.failures import describe
from beamweaver.engine.growth import encode_reduced
from beamweaver.engine.ids import checkpoint_id
from beamweaver.engine.left import lefts_in
from beamweaver.engine.merge import merge
from beamweaver.engine.plan import Next, exits_of, must_ask, plan, unasked
from beamweaver.engine.rows import task_rows
from beamweaver.engine.state import OpenStep, Task, row_of
from beamweaver.errors import (
    ConcurrentSubgraph,
    InvalidUpdate,
    RecursionLimit,
    ReducerFailed,
    SerializationError,
)
from beamweaver.events import StepCommitted
from beamweaver.types import START, Failure

if TYPE_CHECKING:
    from collections.abc import Mapping

    from beamweaver.checkpoint.entries import Entry
    from beamweaver.checkpoint.records import DeltaRow, RunRow, ThreadRow
    from beamweaver.engine.growth import Growth
    from beamweaver.engine.merge import Merged
    from beamweaver.engine.plan import Routes
    from beamweaver.engine.state import RunState
    from beamweaver.graph.compiled import CompiledGraph

__all__ = ["Steps"]


_NO_DELTAS: Final[dict[str, DeltaRow]] = {}


class Steps(Ahead):
    """Everything that happens between the end of a step's tasks and the next step, or the run's stop."""

    # Routers ------------------------------------------------------------------------------------

    def routed(self, transition: Transition, routes: Routes) -> None:
        """The routers and guards of the step chose."""
        if transition is self.transition:
            self.transition, self.routes = None, routes

    def routing_failed(self, transition: Transition, failure: Failure) -> None:
        """A router or guard failed; the step's results are kept."""
        if transition is self.transition:
            self.transition, self.routes = None, failure

    # Closing ------------------------------------------------------------------------------------

    def close(self) -> bool:
        """All tasks ended, parked or were cut: the step is over, the run stops, or it sleeps.

        Returns:
            False if there is nothing to do until a sleep is over.
        """
        stop, tasks = self.stop, self.state.step.tasks
        if self.state.step.failing:
            self._close_failing(stop)
        elif stop is None and len(tasks) == 1 and tasks[0].result is not None:
            self._finish_step()
        elif stop is not None and not (
            stop.status == "drained" and all(task.settled for task in tasks)
        ):
            if stop.status == "drained" and self.only_sleeps:
                self._drain_asleep()
            else:
                self._commit_stop(stop)
        elif any(task.failure is not None for task in tasks):
            self._commit_stop(Stop("failed"))
        elif any(task.result is None for task in tasks):
            if self.only_sleeps:
                return self.doze()
            self._commit_stop(Stop("waiting"))
        else:
            self._finish_step()
        return True

    def _drain_asleep(self) -> None:
        """What sleeps is left to the next runtime as it is."""
        if self.state.status == "sleeping" and not self.dirty:
            self.run_stopped()
        else:
            self.commit(self._stopped, entries=self.take_dirty(), row=self.sleeping_row())

    def _commit_stop(self, stop: Stop) -> None:
        if self.dozing:
            self.start_nothing()
        entries = self.take_dirty()
        if stop.failure is not None:
            self.state.step.failure = stop.failure
            cut = tuple([t.position for t in self.state.step.tasks if not t.settled])
            entries = (*entries, StepFailed(row_of(stop.failure), cut))
        if stop.status == "failed":
            self._fail(entries)
        else:
            self.commit(self._stopped, entries=entries, row=self._stopped_row(stop))

    def _fail(self, entries: tuple[Entry, ...], checkpoint: Checkpoint | None = None) -> None:
        """The run stops as failed; where the graph wants to be told of it, that comes first."""
        if self.graph.on_failure is None:
            row = self._stopped_row(Stop("failed"))
            then = self._stopped if checkpoint is None else self._run_ended
            self.commit(then, checkpoint=checkpoint, entries=entries, row=row)
        else:
            self.state.step.failing, self._heard = True, False
            entries = (*entries, Failing())
            committed = checkpoint is not None
            self.commit(lambda: self._fails(committed), checkpoint=checkpoint, entries=entries)

    def _fails(self, committed: bool) -> None:
        """The run has failed, durably, and has not stopped."""
        if committed and self.env.publishing:
            self._tell_committed()
        self.flushed()
        if self.stop is not None and self.stop.status == "failed":
            self.stop = None
        self._drop_timers()

    def _close_failing(self, stop: Stop | None) -> None:
        """`on_failure` has ended, or was cut, or is to be told."""
        if self._heard or stop is not None:
            stop = Stop("failed") if self._heard or stop is None else stop
            entries = self.take_dirty()
            self.commit(self._stopped, entries=entries, row=self._stopped_row(stop))
        else:
            self.tell_failure()

    def _stopped_row(self, stop: Stop) -> ThreadRow:
        """A run that got as far as this stop is no suspect any more; a drain proves nothing."""
        run = self.state.run
        if not run.deaths or stop.status == "drained":
            return self.new_row(stop.status)
        return self.new_row(stop.status, msgspec.structs.replace(run, deaths=0))

    def _stopped(self) -> None:
        self.flushed()
        self.run_stopped()

    def _finish_step(self) -> None:
        """Merge; then the routers and guards, if any; then commit."""
        state = self.state
        if self.merged is None:
            try:
                self.merged = self.merge_step()
            except (InvalidUpdate, ReducerFailed) as error:
                self._merge_failed(describe(error, "", "", 1))
                return
        routes = self.routes
        exits = exits_of(self.graph, state.step) if routes is None and self.graph.routed else ()
        if isinstance(routes, Failure):
            self._merge_failed(routes)
        elif not exits:
            self._commit_step(self.merged, routes)
        elif not must_ask(exits, state.spent):
            self._commit_step(self.merged, unasked(exits, state.spent))
        elif self.stop is not None:
            self._commit_stop(self.stop)
        elif self.dirty and (self.runs_ahead or not self.early):
            self.flush()
        else:
            self.transition = Transition(
                exits,
                state.branch,
                state.step.number,
                self.with_managed(self.merged.values),
                self._step_timeout,
                cast("Any", self),
                spent=state.spent,
            )
            self._effects.append(StartTransition(self.transition))

    def merge_step(self) -> Merged:
        """The state after the open step.

        Raises:
            InvalidUpdate: The results conflict, or the class of the schema refuses the state.
            ReducerFailed: A reducer raised.
        """
        merged = merge(self.graph, self.state.values, self.state.step)
        if not self.graph.plain:
            self.graph.check_state(merged.values)
        return merged

    def _merge_failed(self, failure: Failure) -> None:
        """Results are kept, the run stops; continuing tries the merge and the routers again."""
        self.state.step.failure = failure
        self._fail((*self.take_dirty(), MergeFailed(row_of(failure), failure.node)))

    # Committing ---------------------------------------------------------------------------------

    def _commit_step(self, merged: Merged, routes: Routes | None) -> None:
        if self.family and self.runs_ahead and self.has_loose():
            self.flush()  # steps of graphs in its tasks are history, which the commit does not bring
            return
        state = self.state
        step = state.step
        try:
            writes = self.encoded(merged, state)
            following = self.planned(routes)
            if len(following.tasks) > 1 or following.deferred:
                self.check_size(following, merged.values)
            if self.family:
                self.keep(writes, state)
        except (InvalidUpdate, ReducerFailed, ConcurrentSubgraph) as error:
            self._merge_failed(describe(error, "", "", 1))
            return
        if self._step_timer is not None:
            self._effects.append(DropTimer(self._step_timer))
            self._step_timer = None
        entry = step.tasks[0].node == START
        executed = state.executed + (not entry)
        lefts: tuple[Entry, ...] = lefts_in(self.dirty) if self.family else ()
        self.drop_dirty()
        self.apply_step(merged, writes, following, executed)
        source, growth = "input" if entry else "loop", merged.growth
        checkpoint = self.checkpoint(source, step.number, writes, growth)
        if self._breaks is not None:
            state.step.paused = pause(self._breaks, step.tasks, following.tasks)
        self._commit_planned(checkpoint, following.tasks, executed, lefts)

    def keep(self, writes: dict[str, bytes], state: RunState) -> None:
        """Let the commit of a step bring what subgraphs keep."""

    def planned(self, routes: Routes | None) -> Next:
        """What follows the open step."""
        return plan(self.graph, self.state, routes)

    def _commit_planned(
        self,
        checkpoint: Checkpoint,
        tasks: list[Task],
        executed: int,
        entries: tuple[Entry, ...],
    ) -> None:
        """The commit of a step, with what it means for the run."""
        state = self.state
        assert state.row is not None, "a step is committed by a run"
        run = state.row.run
        limit = run.recursion_limit or self.step_limit
        if not tasks:
            ended = (run.number, state.checkpoint_seq)
            row = self.new_row("complete")
            self.commit(
                self._run_ended, checkpoint=checkpoint, entries=entries, row=row, ended=ended
            )
        elif state.step.paused is not None:
            entries = (*entries, state.step.paused)
            row = self._stopped_row(Stop("waiting"))
            self.commit(self._run_ended, checkpoint=checkpoint, entries=entries, row=row)
        elif executed >= limit:
            failure = self._limit_failure(limit, tasks)
            state.step.failure = failure
            self._fail((*entries, StepFailed(row_of(failure))), checkpoint)
        elif not self.early or not self.goes_early(checkpoint, entries):
            self.commit(self.step_committed, checkpoint=checkpoint, entries=entries)

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
        self, merged: Merged, writes: dict[str, bytes], following: Next, executed: int
    ) -> None:
        """Move the state over a step that is about to be committed in record `state.seq`.

        Joins, budgets and what they leave to be said belong to the run, and end with it.
        """
        state = self.state
        state.values = merged.values
        for name in writes:
            state.versions[name] = state.seq
        growth = merged.growth
        if growth is not None:
            state.chains.update(growth.chains)
            for name in growth.deltas:
                state.versions[name] = state.seq
        if state.checkpoint_seq != state.seq:  # else the step before has no record of its own
            state.parent_seq = state.checkpoint_seq
            state.checkpoint_seq = state.seq
        tasks = following.tasks
        state.joins, state.deferred = following.joins, following.deferred
        state.spent, state.warnings = following.spent, ()
        if not tasks:
            state.warnings = _half_armed(self.graph, state.joins)
            state.joins, state.spent = {}, {}
        state.executed = executed
        state.step = OpenStep(state.step.number + 1, tasks)
        self._view = self.merged = self.routes = None

    def checkpoint(
        self,
        source: str,
        number: int,
        writes: dict[str, bytes],
        growth: Growth | None = None,
        run: RunRow | None = None,
    ) -> Checkpoint:
        """The stored form of the state as it stands after `apply_step`; `run` is one that begins with it."""
        state = self.state
        run = run or state.run
        full = state.since_full + 1 >= self.env.limits.full_versions_every or state.parent_seq < 0
        state.since_full = 0 if full else state.since_full + 1
        step = state.step
        checkpoint = Checkpoint(
            number,
            source,
            state.branch,
            state.parent_seq,
            writes,
            dict(state.versions) if full else None,
            task_rows(step.tasks),
            step.number,
            state.joins,
            state.executed,
            run.names[0],
            _NO_DELTAS if growth is None else growth.deltas,
            version=self.graph.version,
        )
        if state.spent or state.deferred or state.warnings or run.options is not None:
            return msgspec.structs.replace(
                checkpoint,
                spent=dict(state.spent),
                deferred=task_rows(state.deferred),
                warnings=state.warnings,
                metadata={} if run.options is None else run.options.metadata,
            )
        return checkpoint

    def encoded(self, merged: Merged, state: RunState) -> dict[str, bytes]:
        """Every value that changed from `state` and that a store keeps, encoded; without those that
        `merged.growth` has as deltas from then on.

        Raises:
            ReducerFailed: What a reducer made of the updates cannot be stored.
        """
        changed = merged.changed
        for name in self.graph.unstored:
            changed.pop(name, None)
        for name, data in changed.items():
            if data is None:
                # What is put off takes the place of what was put off before, so it has whole values.
                put_off = self.late is not None or (self.early and not self.runs_ahead)
                grows = self.grows and not put_off
                try:
                    encode_reduced(name, merged, state, self.env, grows=grows)
                except SerializationError as error:
                    raise ReducerFailed(
                        f"the value that the reducer of {name!r} made cannot be stored: {error.message}",
                        channel=name,
                    ) from error
        if merged.growth is not None:
            for name in merged.growth.deltas:
                changed.pop(name, None)
        return changed  # type: ignore[return-value] # every None was just replaced

    def check_size(self, following: Next, _values: Mapping[str, Any]) -> None:
        """Judge the number of tasks of the next step, and of those that wait for their turn.

        Args:
            following: The step, and what waits.
            _values: The state before it.

        Raises:
            InvalidUpdate: There are more than the limit.
        """
        most = self.env.limits.tasks_a_step
        for what, count in (
            ("the next step of", len(following.tasks)),
            ("deferred nodes of", len(following.deferred)),
        ):
            if count > most:
                raise InvalidUpdate(
                    f"{what} thread {self.state.thread_id!r} would have {count} tasks; "
                    f"limits.tasks_a_step is {most}: send in several steps, or raise the limit"
                )

    def step_committed(self) -> None:
        """A step that was waited for is durable: what follows it begins."""
        if self.env.publishing:
            self._tell_committed()
        self.begin_planned()

    def _run_ended(self) -> None:
        if self.env.publishing:
            self._tell_committed()
        self.run_stopped()

    def _tell_committed(self) -> None:
        self.tell_saved()
        state = self.state
        self.publish(
            StepCommitted(
                thread_id=state.thread_id,
                step=state.step.number - 1,
                checkpoint_id=checkpoint_id(state.branch, state.checkpoint_seq),
            )
        )


def _half_armed(graph: CompiledGraph, joins: dict[str, tuple[str, ...]]) -> tuple[str, ...]:
    """What is to be said of joins whose sources did not all arrive."""
    if not joins:
        return ()
    known = {join.key: join for each in graph.joins.values() for join in each}
    said = []
    for key, arrived in joins.items():
        ends = f"{list(known[key].sources)} -> {known[key].target!r}"
        said.append(
            f"the run ended with the join {ends} half armed: only {', '.join(arrived)} arrived"
        )
    return tuple(said)
