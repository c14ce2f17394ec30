"""Loggers, made when something is logged: structlog and what it loads are a sixth of an import's cost."""

from __future__ import annotations

from typing import Any

__all__ = ["logger"]


def logger(name: str, **bound: Any) -> Any:
    """A structlog logger.

    Args:
        name: Its name.
        **bound: What each of its entries carries.
    """
    import structlog  # noqa: PLC0415 - see the module

    return structlog.get_logger(name, **bound)
