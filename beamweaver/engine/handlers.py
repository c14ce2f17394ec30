"""Handlers of failures: how one is run as an attempt, and what becomes of its own failure.

An error handler takes a task over when the node's last attempt has failed. That is an entry of its own
(`Handled`), durable before the handler starts, so after a crash only the handler runs again. What it returns
is the task's result. `on_failure` is told once that a run has failed, before the run stops: that is an entry
too (`Failing`), so a process that dies meanwhile leaves it to the next one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from beamweaver.engine.effects import Attempt
from beamweaver.engine.ids import task_id
from beamweaver.engine.merge import head_values
from beamweaver.engine.nested import failures_of as of_tasks
from beamweaver.engine.state import Task
from beamweaver.errors import ErrorHandlerFailed, InvalidUpdate
from beamweaver.graph import call_handler, call_on_failure
from beamweaver.graph.compiled import NodeSpec

if TYPE_CHECKING:
    from collections.abc import Callable

    from beamweaver.engine.state import RunState
    from beamweaver.graph.compiled import CompiledGraph
    from beamweaver.graph.specs import Handler
    from beamweaver.types import Failure

__all__ = [
    "ON_FAILURE",
    "failures_of",
    "handler_failure",
    "handler_spec",
    "no_result",
    "on_failure_attempt",
]

ON_FAILURE = "on_failure"
"""How the handler of failed runs is called where nodes have their names."""
_MESSAGE_CHARS = 4_000


def handler_spec(node: NodeSpec, failure: Failure) -> NodeSpec:
    """A node's error handler in the form of a node: what its attempt calls."""
    handler = node.error_handler
    assert handler is not None, f"node {node.name!r} has an error handler"

    def call(_fn: Callable[..., Any], state: Any, ctx: Any) -> Any:
        return call_handler(handler, failure, state, ctx)

    return msgspec.structs.replace(
        node,
        fn=handler.fn,
        caller=call,
        is_async=handler.is_async,
        retry=None,
        error_handler=None,
        subgraph=None,
    )


def handler_failure(failure: Failure, handled: Failure, handler: str) -> Failure:
    """The failure of an error handler, with the node's own in its message."""
    message = (
        f"the error handler {handler!r} of node {handled.node!r} failed: {failure.type_name}: "
        f"{failure.message}\nthe node had failed in attempt {handled.attempt}: {handled.type_name}: "
        f"{handled.message}"
    )
    return msgspec.structs.replace(
        failure,
        code=ErrorHandlerFailed.code,
        type_name=f"{ErrorHandlerFailed.__module__}.{ErrorHandlerFailed.__qualname__}",
        message=message[:_MESSAGE_CHARS],
    )


def failures_of(state: RunState) -> tuple[Failure, ...]:
    """Why the run fails: the step's own failure, then those of its tasks in their order."""
    step = state.step
    own = () if step.failure is None else (step.failure,)
    return (*own, *of_tasks(state))


def on_failure_attempt(
    graph: CompiledGraph, handler: Handler, state: RunState, timeout: float | None
) -> Attempt:
    """The attempt that tells `on_failure` why the run fails; its task is none of the step's."""
    failures = failures_of(state)

    def call(_fn: Callable[..., Any], _state: Any, ctx: Any) -> Any:
        return call_on_failure(handler, failures, ctx)

    spec = NodeSpec(
        name=ON_FAILURE, index=-1, fn=handler.fn, caller=call, is_async=handler.is_async
    )
    step = state.step
    task = Task(ON_FAILURE, position=-1)
    # The same for this failure of the run in every process, and another one for the next.
    path = f"__{ON_FAILURE}__:{step.era}"
    task.id = task_id(state.branch, state.namespace, step.number, path)
    view = dict(head_values(graph, state.values, step)[0])
    return Attempt.of(task, spec, state.branch, step.number, view, timeout)


def no_result(handler: Handler) -> InvalidUpdate:
    """The error of an `on_failure` that returned something or asked a question."""
    return InvalidUpdate(
        f"on_failure {handler.name!r} gave an update, a goto or a question; it is told of a failure and "
        "changes nothing: return None, and use error_handler= of a node to go on after its failure",
        node=ON_FAILURE,
    )
