"""The context of the node that runs here, for whom nobody handed it: `current_context()`, `interrupt()`."""

from __future__ import annotations

import contextvars
from typing import Any, Protocol

from beamweaver.errors import InvalidCall
from beamweaver.runtime.context import Context

__all__ = ["context_here", "current_context", "interrupt", "running"]


class _Maker(Protocol):
    """What runs a node, and makes its context when that is asked for."""

    def context(self) -> Context:
        """The context."""


running: contextvars.ContextVar[Context | _Maker | None] = contextvars.ContextVar(
    "beamweaver_context", default=None
)


def context_here() -> Context | None:
    """The context of the node that runs here, if one does."""
    current = running.get()
    return current if current is None or isinstance(current, Context) else current.context()


def current_context() -> Context:
    """The context of the node that runs here.

    Raises:
        InvalidCall: No node runs here.
    """
    context = context_here()
    if context is None:
        raise InvalidCall(
            "no node runs here: interrupt() and current_context() work only inside of a node, on the "
            "worker that runs it"
        )
    return context


def interrupt(value: Any, *, key: str | None = None, schema: Any = None) -> Any:
    """Ask a question from inside a node; see `Context.interrupt`.

    Example:
        >>> def review(state):
        ...     return {"decision": interrupt({"draft": state["draft"]})}
    """
    return current_context().interrupt(value, key=key, schema=schema)
