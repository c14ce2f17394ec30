"""How a node, router or reducer is called, found out once from its signature."""

from __future__ import annotations

import functools
import inspect
import typing
from collections.abc import Callable
from typing import Any, Final, TypeAlias

__all__ = [
    "Caller",
    "CannotCall",
    "HandlerCaller",
    "call_plan",
    "is_async",
    "is_context",
    "reducer_fault",
    "refuse_kinds",
    "second_annotation",
    "signature_of",
]

Caller: TypeAlias = Callable[[Callable[..., Any], Any, Any], Any]
"""Calls a function with a state and a context."""
HandlerCaller: TypeAlias = Callable[[Callable[..., Any], tuple[Any, ...], Any], Any]
"""Calls a handler with what it takes of the given values, and a context."""

_POSITIONAL: Final = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


class CannotCall(Exception):  # never leaves the package; the builder turns it into InvalidGraph
    """The function cannot be a node or router; the text says why and what to do."""


def call_plan(fn: object, what: str) -> Caller | None:
    """How to call `fn`: None for `fn(state)`, else a function that also passes the context.

    Args:
        fn: A node or router.
        what: How the message calls it.

    Returns:
        None if `fn` takes the state only, else the caller.

    Raises:
        CannotCall: It is not callable, is a generator, or takes other parameters.
    """
    if not callable(fn):
        raise CannotCall(f"{what} is {fn!r}, which cannot be called; give a function of (state)")
    refuse_kinds(fn, what)
    signature = signature_of(fn)
    if signature is None:
        return None
    parameters = list(signature.parameters.values())
    context = [each for each in parameters if is_context(each)]
    others = [each for each in parameters if each not in context and not _is_optional(each)]
    states = [each for each in parameters if each not in context and _takes_position(each)]
    if len(context) > 1 or len(others) > 1 or (not states and not context):
        raise CannotCall(
            f"{what} has the parameters {signature}; a node or router takes (state), or (state, "
            "ctx) with a parameter named ctx or annotated Context; bind others by functools.partial"
        )
    if others and others[0] not in states:
        raise CannotCall(
            f"{what} takes {others[0].name!r} by keyword only; the state is passed by position"
        )
    return _caller(context[0], states, parameters) if context else None


def _caller(
    context: inspect.Parameter, states: list[inspect.Parameter], all_: list[inspect.Parameter]
) -> Caller:
    positional = [each for each in all_ if each.kind in _POSITIONAL]
    if not states:
        return _by_keyword_alone(context.name) if context not in positional else _ctx
    if context in positional[:2] and len(positional) >= 2:
        return _ctx_state if positional[0] is context else _state_ctx
    return _by_keyword(context.name)


def _ctx(fn: Callable[..., Any], _state: Any, ctx: Any) -> Any:
    return fn(ctx)


def _state_ctx(fn: Callable[..., Any], state: Any, ctx: Any) -> Any:
    return fn(state, ctx)


def _ctx_state(fn: Callable[..., Any], state: Any, ctx: Any) -> Any:
    return fn(ctx, state)


def _by_keyword(name: str) -> Caller:
    def call(fn: Callable[..., Any], state: Any, ctx: Any) -> Any:
        return fn(state, **{name: ctx})

    return call


def _by_keyword_alone(name: str) -> Caller:
    def call(fn: Callable[..., Any], _state: Any, ctx: Any) -> Any:
        return fn(**{name: ctx})

    return call


def refuse_kinds(fn: Callable[..., Any], what: str) -> None:
    """Refuses generator functions.

    Raises:
        CannotCall: It is one.
    """
    for each in _bodies(fn):
        if inspect.isgeneratorfunction(each) or inspect.isasyncgenfunction(each):
            raise CannotCall(
                f"{what} is a generator function; return its update instead of yielding it"
            )


def is_async(fn: object) -> bool:
    """Whether `fn` is a coroutine function, a partial of one, or an object with such a call."""
    return any(inspect.iscoroutinefunction(each) for each in _bodies(fn))


def _bodies(fn: object) -> tuple[Any, Any]:
    """The function behind partials, and the `__call__` of its class."""
    inner: Any = fn
    while isinstance(inner, functools.partial):
        inner = inner.func
    return inner, getattr(type(inner), "__call__", None)  # noqa: B004  # the method itself is looked at


def signature_of(fn: Callable[..., Any]) -> inspect.Signature | None:
    """The signature of a function, or None if it has none that can be seen."""
    try:
        return inspect.signature(fn)
    except (TypeError, ValueError):  # some builtins have none
        return None


def is_context(parameter: inspect.Parameter) -> bool:
    """Whether a parameter is for the context: by its name or its annotation."""
    if parameter.kind in (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD):
        return False
    annotation = parameter.annotation
    text = annotation if isinstance(annotation, str) else getattr(annotation, "__name__", "")
    return parameter.name == "ctx" or str(text).split("[")[0].split(".")[-1] == "Context"


def _is_optional(parameter: inspect.Parameter) -> bool:
    variadic = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return parameter.kind in variadic or parameter.default is not inspect.Parameter.empty


def _takes_position(parameter: inspect.Parameter) -> bool:
    return parameter.kind in (*_POSITIONAL, inspect.Parameter.VAR_POSITIONAL)


def reducer_fault(fn: object, what: str) -> str | None:
    """Why `fn` cannot be a reducer, or None."""
    if not callable(fn):
        return f"{what} is {fn!r}, which cannot be called; give a function of (current, update)"
    if inspect.iscoroutinefunction(fn):
        return f"{what} is an async function; reducers are sync: write it with def"
    signature = signature_of(fn)
    if signature is None:
        return None
    try:
        signature.bind(None, None)
    except TypeError:
        return f"{what} has the parameters {signature}; a reducer takes two: (current, update)"
    return None


def second_annotation(fn: Callable[..., Any]) -> Any:
    """The annotation of a reducer's second parameter, or Any where it is not known."""
    try:
        hints = typing.get_type_hints(fn, include_extras=True)
        names = list(inspect.signature(fn).parameters)
    except Exception:  # noqa: BLE001  # annotations can raise anything; then updates stay unchecked
        return Any
    return hints.get(names[1], Any) if len(names) > 1 else Any
