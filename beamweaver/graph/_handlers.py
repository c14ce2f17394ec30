"""How an error handler is called, found out once from its signature."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any, Final

from beamweaver.graph._signatures import (
    CannotCall,
    is_async,
    is_context,
    refuse_kinds,
    signature_of,
)
from beamweaver.graph.specs import Handler

if TYPE_CHECKING:
    from collections.abc import Callable

    from beamweaver.types import Failure

__all__ = ["NODE", "RUN", "call_handler", "call_on_failure", "handler_of"]

NODE: Final = ("failure", "state")
"""What a node's handler takes, in order, beside a context."""
RUN: Final = ("failures",)
"""What `on_failure` takes."""

_CONTEXT: Final = -1
_POSITIONAL: Final = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
_VARIADIC: Final = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


def handler_of(fn: object, what: str, takes: tuple[str, ...]) -> Handler:
    """A handler, ready to be called.

    Args:
        fn: The function.
        what: How the message calls it.
        takes: `NODE` or `RUN`.

    Raises:
        CannotCall: It is not callable, is a generator, or takes other parameters.
    """
    form = f"({', '.join(takes)}, ctx)"
    if not callable(fn):
        raise CannotCall(f"{what} is {fn!r}, which cannot be called; give a function of {form}")
    refuse_kinds(fn, what)
    signature = signature_of(fn)
    if signature is None:
        return Handler(fn=fn, caller=_caller([0], None), is_async=is_async(fn))
    places, keyword, fit = _plan(list(signature.parameters.values()), len(takes))
    if not fit:
        fewer = ", or fewer of these in that order" if len(takes) > 1 else ", or without ctx"
        raise CannotCall(
            f"{what} has the parameters {signature}; a handler takes {form}{fewer}, with a parameter "
            "named ctx or annotated Context; bind others by functools.partial"
        )
    return Handler(fn=fn, caller=_caller(places, keyword), is_async=is_async(fn))


def call_handler(handler: Handler, failure: Failure, state: Any, ctx: Any) -> Any:
    """Call a node's error handler with what it takes of failure, state and context."""
    return handler.caller(handler.fn, (failure, state), ctx)


def call_on_failure(handler: Handler, failures: tuple[Failure, ...], ctx: Any) -> Any:
    """Call the handler of a graph's failed runs with what it takes of failures and context."""
    return handler.caller(handler.fn, (failures,), ctx)


def _plan(parameters: list[inspect.Parameter], most: int) -> tuple[list[int], str | None, bool]:
    """What each position gets, the name of a context that is passed by keyword, and whether all fits."""
    places: list[int] = []
    keyword: str | None = None
    used = 0
    for each in parameters:
        positional = each.kind in _POSITIONAL
        optional = each.kind in _VARIADIC or each.default is not inspect.Parameter.empty
        if is_context(each):
            if positional:
                places.append(_CONTEXT)
            else:
                keyword = each.name
        elif positional and used < most and not (optional and used):
            places.append(used)
            used += 1
        elif not optional:
            return places, keyword, False
        elif positional:
            break
    return places, keyword, used > 0


def _caller(places: list[int], keyword: str | None) -> Callable[..., Any]:
    def call(fn: Callable[..., Any], given: tuple[Any, ...], ctx: Any) -> Any:
        args = [ctx if place == _CONTEXT else given[place] for place in places]
        return fn(*args) if keyword is None else fn(*args, **{keyword: ctx})

    return call
