"""Loggers, made when something is logged: structlog and what it loads are a sixth of an import's cost."""

from __future__ import annotations

import logging
from typing import Any

__all__ = ["logger"]


def logger(name: str, **bound: Any) -> Any:
    """A structlog logger: as the program has configured structlog, else one that writes to `logging`.

    So a program that has configured neither gets warnings and errors on its standard error, as from any
    library, and nothing on its standard output.

    Args:
        name: Its name.
        **bound: What each of its entries carries.
    """
    import structlog  # noqa: PLC0415 - see the module

    if structlog.is_configured():
        return structlog.get_logger(name, **bound)
    return structlog.wrap_logger(
        logging.getLogger(name),
        processors=[structlog.stdlib.filter_by_level, _as_a_line],
        wrapper_class=structlog.stdlib.BoundLogger,
        **bound,
    )


def _as_a_line(_logger: Any, _method: str, entry: Any) -> tuple[tuple[str], dict[str, Any]]:
    """The last processor: an entry as `logging` takes it."""
    given = {key: entry.pop(key) for key in ("exc_info", "stack_info") if key in entry}
    event = entry.pop("event", "")
    return (" ".join([str(event), *(f"{key}={value!r}" for key, value in entry.items())]),), given
