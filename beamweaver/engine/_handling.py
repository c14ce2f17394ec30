"""Failures that somebody handles: a node's error handler, and `on_failure` of the graph."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from beamweaver.checkpoint.entries import Failing
from beamweaver.engine._core import Core
from beamweaver.engine.effects import SetTimer, StartAttempt
from beamweaver.engine.failures import describe
from beamweaver.engine.handlers import (
    ON_FAILURE,
    handler_failure,
    handler_spec,
    no_result,
    on_failure_attempt,
)
from beamweaver.engine.rows import handled_row
from beamweaver.engine.state import row_of

if TYPE_CHECKING:
    from beamweaver.engine.effects import Attempt
    from beamweaver.engine.state import Result, Task
    from beamweaver.graph.compiled import NodeSpec
    from beamweaver.types import Failure

__all__ = ["Handling"]


class Handling(Core):
    """The side of a machine that hands failures over."""

    _heard = False
    """Whether `on_failure` has ended since the run failed."""

    # A node's error handler ---------------------------------------------------------------------

    def hand_over(self, task: Task, failure: Failure) -> None:
        """The node's error handler has the task from now on; it starts when that is durable."""
        task.give_to_handler(failure)
        self.dirty.append(handled_row(task))
        if self.stop is None:  # else the next process starts it
            self.sleeping[task.position] = task
            self._unsaved.append(task)

    def handler_of(self, task: Task, node: NodeSpec) -> NodeSpec:
        """What a task runs that its node's error handler has; the node again where the code has lost it."""
        if node.error_handler is None or task.handling is None:
            task.handling = None
            return node
        return handler_spec(node, task.handling)

    def handler_failed(self, attempt: Attempt, failure: Failure) -> Failure:
        """The failure of an error handler, as that of its task."""
        handler = self.graph.nodes[attempt.task.node].error_handler
        assert attempt.handles is not None, "a handler handles a failure"
        return handler_failure(failure, attempt.handles, handler.name if handler else "")

    def started_in_family(self, attempt: Attempt) -> None:
        """An attempt began, where graphs run inside of tasks: see `_children`."""

    # The graph's on_failure ---------------------------------------------------------------------

    def tell_failure(self) -> None:
        """Tell `on_failure` why the run fails."""
        handler = self.graph.on_failure
        if handler is None:  # the code has changed since the failure
            self._heard = True
            return
        attempt = on_failure_attempt(self.graph, handler, self.state, self._step_timeout)
        attempt.owner = cast("Any", self)
        self.running[attempt.position] = attempt
        self._async_running += handler.is_async
        self._effects.append(StartAttempt(attempt))
        if self.family:
            self.started_in_family(attempt)
        if attempt.timeout is not None:
            self._serial += 1
            attempt.timer = ("attempt", attempt.position, self._serial)
            self._effects.append(SetTimer(attempt.timer, attempt.timeout))

    def told(self, result: Result | None = None, failure: Failure | None = None) -> None:
        """`on_failure` has ended; how it failed is kept beside what it was told."""
        self._heard = True
        handler = self.graph.on_failure
        given = result is not None and (result.writes or result.sends or result.goto is not None)
        if given and handler is not None:
            failure = describe(no_result(handler), ON_FAILURE, "", 1)
        if failure is not None:
            self.state.step.unheard = failure
            self.dirty.append(Failing(row_of(failure)))
