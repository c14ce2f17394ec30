"""A line of nodes: the step that most steps are, in one function.

It decides nothing: what `Steps` does for any step is done here, without its calls, for a step of one task
that goes on to one node by its one plain edge. Whatever is more than that is left to `Steps`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from beamweaver.checkpoint.entries import TaskRow
from beamweaver.checkpoint.records import Checkpoint
from beamweaver.engine._steps import Steps
from beamweaver.engine.state import OpenStep, Task
from beamweaver.types import START

if TYPE_CHECKING:
    from beamweaver.checkpoint.records import DeltaRow, RunRow
    from beamweaver.engine.state import RunState
    from beamweaver.graph.compiled import CompiledGraph

__all__ = ["Line"]

_NO_DELTAS: Final[dict[str, DeltaRow]] = {}


class Line(Steps):
    """The side of a machine that goes along lines of nodes."""

    def take_graph(self, graph: CompiledGraph) -> None:
        """Run this graph."""
        super().take_graph(graph)
        more = graph.routed or graph.has_deferred or graph.clearing or graph.unstored
        self._lined = graph.plain and not more

    def _finish_step(self) -> None:
        if not self._lined or self.family or not self._go_along():
            super()._finish_step()

    def _go_along(self) -> bool:
        """Commit the open step and go on to the next node; do nothing if there is more to do."""
        state, graph = self.state, self.graph
        step, row = state.step, state.row
        task = step.tasks[0]
        node, result = task.node, task.result
        targets = graph.edges.get(node, ())
        if (
            len(step.tasks) > 1
            or len(targets) != 1
            or result is None
            or row is None
            or result.goto is not None
            or result.sends
            or node in graph.joins
            or node == START
            or step.amendments
            or state.executed + 1 >= (row.run.recursion_limit or self.step_limit)
            or self._asks_for_more(state, row.run)
        ):
            return False
        values, writes = dict(state.values), {}
        channels = graph.channels
        for write in result.writes:
            name = write.channel
            channel = channels.get(name)
            if channel is None or channel.reducer is not None or write.overwrite or name in writes:
                return False
            values[name] = write.value
            writes[name] = write.data
        self.drop_dirty()
        seq, versions = state.seq, state.versions
        for name in writes:
            versions[name] = seq
        state.values = values
        state.parent_seq, state.checkpoint_seq = state.checkpoint_seq, seq
        state.executed += 1
        state.step = OpenStep(step.number + 1, [Task(targets[0])])
        self._view = None
        full = state.since_full + 1 >= self.env.limits.full_versions_every
        state.since_full = 0 if full else state.since_full + 1
        checkpoint = Checkpoint(
            step.number,
            "loop",
            state.branch,
            state.parent_seq,
            writes,
            dict(versions) if full else None,
            (TaskRow(targets[0]),),
            step.number + 1,
            state.joins,
            state.executed,
            row.run.names[0],
            _NO_DELTAS,
            version=graph.version,
        )
        if not self.early or not self.goes_early(checkpoint):
            self.commit(self.step_committed, checkpoint=checkpoint)
        return True

    def _asks_for_more(self, state: RunState, run: RunRow) -> object:
        """Whether the run, or what it left before, needs more than a plain commit."""
        return (
            self.merged
            or self.routes
            or self.stop
            or self._breaks
            or self._step_timer
            or self.late
            or (self.early and not self.runs_ahead)
            or (run.options is not None and run.options.metadata)
            or state.spent
            or state.warnings
            or state.deferred
        )
