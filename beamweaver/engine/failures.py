"""Failures as data, what may be retried, and the errors that a failed run raises."""

from __future__ import annotations

import re
import traceback
from typing import TYPE_CHECKING

from beamweaver.errors import (
    BeamWeaverError,
    ConcurrentSubgraph,
    ErrorHandlerFailed,
    InterruptWithoutCheckpointer,
    InvalidUpdate,
    KeyRequired,
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
    StateMutated,
    StepChanged,
    StepTimeout,
    UnknownChannel,
    UnknownTarget,
)
from beamweaver.types import Failure, RetryPolicy

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from beamweaver.types import Interrupt

__all__ = [
    "describe",
    "error_of",
    "exit_failure",
    "is_transient",
    "may_retry",
    "retry_delay",
    "timeout_failure",
]

_PROGRAMMING = (
    TypeError,
    AttributeError,
    NameError,
    ImportError,
    AssertionError,
    NotImplementedError,
)
_NEVER = (
    SerializationError,
    InvalidUpdate,
    StateMutated,
    InterruptWithoutCheckpointer,
    KeyRequired,
    StepChanged,
)
_TRANSIENT_STATUS = frozenset({408, 409, 425, 429, 500, 502, 503, 504})
_TRANSIENT_NAMES = frozenset(
    {
        # By name, so that no client library is imported.
        "ConnectionError",  # requests
        "Timeout",
        "ChunkedEncodingError",
        "TimeoutException",  # httpx
        "ConnectError",
        "ReadError",
        "WriteError",
        "CloseError",
        "RemoteProtocolError",
        "ClientConnectionError",  # aiohttp
        "ClientPayloadError",
        "NewConnectionError",  # urllib3
        "IncompleteRead",  # http.client
        "gaierror",  # socket
    }
)
_TRACEBACK_CHARS = 8_000
_MESSAGE_CHARS = 4_000
_LONGEST_DELAY = 366 * 86_400.0
"""Seconds; what a policy or a server asks for beyond it is taken as this."""

_NODE_FAILED = f"{NodeFailed.__module__}.{NodeFailed.__qualname__}"
_IN_A_CALL = ", in a graph that it called: "
_CALLED = re.compile(r"\Anode '[^'\n]*' failed in attempt \d+" + re.escape(_IN_A_CALL))

_STEP_ERRORS: dict[tuple[str, str], type[RunFailed]] = {
    (cls.code, f"{cls.__module__}.{cls.__qualname__}"): cls
    for cls in (
        InvalidUpdate,
        UnknownChannel,
        UnknownTarget,
        ReducerFailed,
        RouterFailed,
        StateMutated,
        StepTimeout,
        RunTimeout,
        RecursionLimit,
        ConcurrentSubgraph,
    )
}
_NODE_ERRORS: dict[tuple[str, str], type[NodeFailed]] = {
    (cls.code, f"{cls.__module__}.{cls.__qualname__}"): cls
    for cls in (NodeTimeout, NodeExit, ErrorHandlerFailed)
}


def describe(error: BaseException, node: str, task: str, attempt: int) -> Failure:
    """A raised exception as a failure: type, message, notes and traceback, bounded and storable."""
    lines = traceback.format_exception(type(error), error, error.__traceback__, limit=-20)
    return Failure(
        node=node,
        task_id=task,
        attempt=attempt,
        code=_storable(_code_of(error)),
        type_name=f"{type(error).__module__}.{type(error).__qualname__}".removeprefix("builtins."),
        message=_storable(_message_of(error)[:_MESSAGE_CHARS]),
        traceback=_storable("".join(lines)[-_TRACEBACK_CHARS:]),
        exception=error,
    )


def _code_of(error: BaseException) -> str:
    if isinstance(error, RunFailed) and "thread_id" in error.ids:
        return NodeFailed.code  # the failure of another run, which the node called
    if isinstance(error, NodeError | BeamWeaverError):
        return str(error.code)
    return NodeFailed.code


def _message_of(error: BaseException) -> str:
    try:
        return "\n".join([str(error), *map(str, getattr(error, "__notes__", ()))])
    except Exception as fault:  # noqa: BLE001 - the exception's own code is user code
        return f"<the message of {type(error).__name__} raised {type(fault).__name__}>"


def _storable(text: str) -> str:
    """The text without lone surrogates (undecodable file names have them), which no store takes."""
    return text.encode("utf-8", "backslashreplace").decode()


def timeout_failure(
    node: str, task: str, attempt: int, timeout: float, *, idle: bool = False
) -> Failure:
    """The failure of an attempt that took longer than `timeout` seconds, or was idle for so long."""
    message = f"node {node!r} took longer than its timeout of {timeout:g} s (attempt {attempt})"
    if idle:
        message = (
            f"node {node!r} gave no sign of life within its idle timeout of {timeout:g} s (attempt "
            f"{attempt}): no ctx.heartbeat(), no ctx.emit()"
        )
    error = NodeTimeout(message, node=node, task_id=task, attempt=attempt, timeout=timeout)
    return describe(error, node, task, attempt)


def exit_failure(node: str, task: str, attempt: int, reason: object) -> Failure:
    """The failure of an attempt whose actor was killed."""
    message = f"the actor of node {node!r} ended with {reason} (attempt {attempt})"
    error = NodeExit(message, node=node, task_id=task, attempt=attempt)
    return describe(error, node, task, attempt)


def may_retry(policy: RetryPolicy | None, failure: Failure, failures: int) -> bool:
    """Whether another attempt is allowed after `failures` counted ones.

    Serialization errors, invalid updates, state changed in place, cancellation, questions without a store,
    and sub-steps that changed or lack a key are never retried: they would fail again in the same way. Nor
    is a failure about which the policy's predicate itself raises.
    """
    if policy is None or failures >= policy.max_attempts:
        return False
    error = failure.exception
    if error is None or isinstance(error, _NEVER) or _is_cancellation(error):
        return False
    if isinstance(error, NodeError) and not error.retryable:
        return False
    try:
        return _matches(policy, error)
    except Exception as fault:  # noqa: BLE001 - the predicate is user code
        error.add_note(f"retry_on raised {type(fault).__name__}: {fault}; not tried again")
        return False


def retry_delay(
    policy: RetryPolicy, failure: Failure, failures: int, chance: Callable[[], float]
) -> float:
    """Seconds until the next attempt: what the error asks for, or the policy's delay with its jitter.

    Args:
        policy: Of the node.
        failure: The last one; a `retry_after` of its exception (seconds) is honoured.
        failures: Counted failed attempts, this one included.
        chance: Draws a number in [0, 1).
    """
    try:
        delay = policy.delay(failures)
    except OverflowError:
        delay = policy.max_delay
    delay = min(delay, _LONGEST_DELAY)
    after = _attribute(failure.exception, "retry_after")
    if isinstance(after, int | float) and not isinstance(after, bool) and after >= 0:
        return min(max(delay, after), _LONGEST_DELAY)
    return delay * (0.5 + chance() / 2) if policy.jitter else delay


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
        return isinstance(error, Exception) and is_transient(error)
    return _by_rule(rule, error)


def _by_rule(rule: object, error: BaseException) -> bool:
    if isinstance(rule, type | tuple):
        return isinstance(error, rule)
    return bool(rule(error)) if callable(rule) else False


def _is_cancellation(error: BaseException) -> bool:
    # asyncio's; by name, so that nothing here imports asyncio.
    return not isinstance(error, Exception) and type(error).__name__ == "CancelledError"


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
    if any(cls.__name__ in _TRANSIENT_NAMES for cls in type(error).__mro__):
        return True
    reason = _attribute(error, "reason")  # urllib's URLError
    return isinstance(reason, Exception) and reason is not error and is_transient(reason)


def _http_status(error: BaseException) -> int | None:
    response = _attribute(error, "response")
    for holder, name in (
        (response, "status_code"),  # httpx, requests
        (response, "status"),  # urllib3
        (error, "status"),  # aiohttp
        (error, "code"),  # urllib
    ):
        value = _attribute(holder, name)
        if isinstance(value, int) and not isinstance(value, bool):
            return value
    return None


def _attribute(holder: object, name: str) -> object:
    try:
        return getattr(holder, name, None)
    except Exception:  # noqa: BLE001 - a property of a user's exception is user code
        return None


def error_of(
    failures: Sequence[Failure],
    step_failure: Failure | None,
    *,
    thread_id: str,
    run_id: str,
    interrupts: tuple[Interrupt, ...] = (),
    unheard: Failure | None = None,
) -> RunFailed:
    """The error that a failed run raises: the step's own, else the first task's in task order.

    How `on_failure` failed, if it did, is a note of it and the last of its failures.
    """
    ids = {"thread_id": thread_id, "run_id": run_id}
    first = step_failure or failures[0]
    cls = _STEP_ERRORS.get((first.code, first.type_name))
    error = _node_error(first, ids) if cls is None else _step_error(cls, first, ids)
    error.failures = (*((step_failure,) if step_failure else ()), *failures)
    error.interrupts = interrupts
    if unheard is not None:
        error.failures = (*error.failures, unheard)
        error.add_note(f"on_failure failed too: {unheard.type_name}: {unheard.message}")
    return error


def _step_error(cls: type[RunFailed], failure: Failure, ids: dict[str, str]) -> RunFailed:
    """The error as it was raised, with the ids of the run; from its text where a dead process raised it."""
    original = failure.exception
    own = original.ids if isinstance(original, RunFailed) else {}
    message = original.message if isinstance(original, RunFailed) else failure.message
    error = cls.rebuilt(message, {"node": failure.node, **own, **ids})
    error.__cause__ = original.__cause__ if original is not None else None
    return error


def _node_error(failure: Failure, ids: dict[str, str]) -> NodeFailed:
    cls = _NODE_ERRORS.get((failure.code, failure.type_name), NodeFailed)
    message = failure.message
    if cls is NodeFailed and failure.type_name == _NODE_FAILED:
        cause = _CALLED.sub(
            "", failure.message
        )  # that of the innermost call alone: it is said once
        message = f"node {failure.node!r} failed in attempt {failure.attempt}{_IN_A_CALL}{cause}"
    elif cls is NodeFailed:
        message = (
            f"node {failure.node!r} failed in attempt {failure.attempt}: "
            f"{failure.type_name}: {failure.message}"
        )
    original = failure.exception
    own = original.ids if isinstance(original, RunFailed) and cls is not NodeFailed else {}
    named = {"node": failure.node, "task_id": failure.task_id, "attempt": failure.attempt}
    error = cls(message, **{**own, **named, **ids})
    error.code = failure.code  # type: ignore[misc] # the node's own code, where it declared one
    error.__cause__ = failure.exception
    return error
