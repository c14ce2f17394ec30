"""Failures as data, what may be retried, and the errors that a failed run raises."""

from __future__ import annotations

import traceback
from typing import TYPE_CHECKING

from beamweaver.errors import (
    BeamWeaverError,
    InterruptWithoutCheckpointer,
    InvalidUpdate,
    NodeError,
    NodeExit,
    NodeFailed,
    NodeTimeout,
    RecursionLimit,
    ReducerFailed,
    RouterFailed,
    RunFailed,
    RunTimeout,
    SerializationError,
    StepTimeout,
    UnknownChannel,
    UnknownTarget,
)
from beamweaver.types import Failure, RetryPolicy

if TYPE_CHECKING:
    from collections.abc import Sequence

    from beamweaver.types import Interrupt

__all__ = ["describe", "error_of", "exit_failure", "may_retry", "timeout_failure"]

_PROGRAMMING = (
    TypeError,
    AttributeError,
    NameError,
    ImportError,
    AssertionError,
    NotImplementedError,
)
_NEVER = (SerializationError, InvalidUpdate, InterruptWithoutCheckpointer)
_TRANSIENT_STATUS = frozenset({408, 409, 425, 429, 500, 502, 503, 504})
_TRANSIENT_NAMES = frozenset(
    {
        # By name, so that no client library is imported: requests, httpx, aiohttp, urllib3.
        "ConnectTimeout",
        "ReadTimeout",
        "WriteTimeout",
        "PoolTimeout",
        "Timeout",
        "ConnectError",
        "ReadError",
        "WriteError",
        "RemoteProtocolError",
        "ClientConnectionError",
        "ClientConnectorError",
        "ServerDisconnectedError",
        "ServerTimeoutError",
        "NewConnectionError",
        "IncompleteRead",
    }
)
_TRACEBACK_CHARS = 8_000
_MESSAGE_CHARS = 4_000

_STEP_ERRORS: dict[str, type[RunFailed]] = {
    cls.code: cls
    for cls in (
        InvalidUpdate,
        UnknownChannel,
        UnknownTarget,
        ReducerFailed,
        RouterFailed,
        StepTimeout,
        RunTimeout,
        RecursionLimit,
    )
}
_NODE_ERRORS: dict[str, type[NodeFailed]] = {cls.code: cls for cls in (NodeTimeout, NodeExit)}


def describe(error: BaseException, node: str, task: str, attempt: int) -> Failure:
    """A raised exception as a failure: type, message, notes and traceback, bounded."""
    code = error.code if isinstance(error, NodeError | BeamWeaverError) else NodeFailed.code
    lines = traceback.format_exception(type(error), error, error.__traceback__, limit=-20)
    message = str(error)
    for note in getattr(error, "__notes__", ()):
        message += f"\n{note}"
    return Failure(
        node=node,
        task_id=task,
        attempt=attempt,
        code=code,
        type_name=f"{type(error).__module__}.{type(error).__qualname__}".removeprefix("builtins."),
        message=message[:_MESSAGE_CHARS],
        traceback="".join(lines)[-_TRACEBACK_CHARS:],
        exception=error,
    )


def timeout_failure(node: str, task: str, attempt: int, timeout: float) -> Failure:
    """The failure of an attempt that took longer than `timeout` seconds."""
    message = f"node {node!r} took longer than its timeout of {timeout:g} s (attempt {attempt})"
    error = NodeTimeout(message, node=node, task_id=task, attempt=attempt, timeout=timeout)
    return describe(error, node, task, attempt)


def exit_failure(node: str, task: str, attempt: int, reason: object) -> Failure:
    """The failure of an attempt whose actor was killed."""
    message = f"the actor of node {node!r} ended with {reason} (attempt {attempt})"
    error = NodeExit(message, node=node, task_id=task, attempt=attempt)
    return describe(error, node, task, attempt)


def may_retry(policy: RetryPolicy | None, failure: Failure, failures: int) -> bool:
    """Whether another attempt is allowed after `failures` counted ones.

    Serialization errors, invalid updates and questions without a store are never retried: they would
    fail again in the same way.
    """
    if policy is None or failures >= policy.max_attempts:
        return False
    error = failure.exception
    if error is None or isinstance(error, _NEVER):
        return False
    if isinstance(error, NodeError) and not error.retryable:
        return False
    return _matches(policy, error)


def _matches(policy: RetryPolicy, error: BaseException) -> bool:
    rule = policy.retry_on
    if rule == "any":
        return True
    if isinstance(error, NodeTimeout | NodeExit):
        # Both are transient errors, and match their own classes.
        return rule in ("error", "transient") or _by_rule(rule, error)
    if rule == "error":
        return isinstance(error, Exception) and not isinstance(error, _PROGRAMMING)
    if rule == "transient":
        return is_transient(error)
    return _by_rule(rule, error)


def _by_rule(rule: object, error: BaseException) -> bool:
    if isinstance(rule, type | tuple):
        return isinstance(error, rule)
    return bool(rule(error)) if callable(rule) else False


def is_transient(error: BaseException) -> bool:
    """Whether an error is a connection failure, a timeout, or an HTTP answer that may pass.

    Knows the errors of the standard library, and by their shape those of httpx, requests and aiohttp.

    Example:
        >>> is_transient(ConnectionResetError()), is_transient(ValueError())
        (True, False)
    """
    status = _http_status(error)
    if status is not None:
        return status in _TRANSIENT_STATUS
    if isinstance(error, ConnectionError | TimeoutError | InterruptedError):
        return True
    return any(
        cls.__name__ in _TRANSIENT_NAMES or cls.__name__ == "ConnectionError"
        for cls in type(error).__mro__
    )


def _http_status(error: BaseException) -> int | None:
    response = getattr(error, "response", None)
    for holder, name in (
        (response, "status_code"),  # httpx, requests
        (response, "status"),  # urllib3
        (error, "status"),  # aiohttp
        (error, "code"),  # urllib
    ):
        value = getattr(holder, name, None)
        if isinstance(value, int) and not isinstance(value, bool):
            return value
    return None


def error_of(
    failures: Sequence[Failure],
    step_failure: Failure | None,
    *,
    thread_id: str,
    run_id: str,
    interrupts: tuple[Interrupt, ...] = (),
) -> RunFailed:
    """The error that a failed run raises: the step's own, else the first task's in task order."""
    ids = {"thread_id": thread_id, "run_id": run_id}
    first = step_failure or failures[0]
    original = first.exception
    if isinstance(original, RunFailed):
        error = type(original).rebuilt(original.message, {**original.ids, **ids})
        error.__cause__ = original.__cause__
    elif first.code in _STEP_ERRORS:
        error = _STEP_ERRORS[first.code](first.message, **ids)
    else:
        error = _node_error(first, ids)
    if isinstance(error, NodeFailed) or not hasattr(error, "node"):
        error.node = first.node  # type: ignore[attr-defined] # every run failure says which node it met
    error.failures = (*((step_failure,) if step_failure else ()), *failures)
    error.interrupts = interrupts
    return error


def _node_error(failure: Failure, ids: dict[str, str]) -> NodeFailed:
    cls = _NODE_ERRORS.get(failure.code, NodeFailed)
    message = failure.message
    if cls is NodeFailed:
        message = (
            f"node {failure.node!r} failed in attempt {failure.attempt}: "
            f"{failure.type_name}: {failure.message}"
        )
    error = cls(message, node=failure.node, task_id=failure.task_id, attempt=failure.attempt, **ids)
    error.code = failure.code  # type: ignore[misc] # the node's own code, where it declared one
    error.__cause__ = failure.exception
    return error
