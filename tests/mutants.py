"""Deliberate faults in the product: how one is brought about, and the seeds that find them."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, TypeAlias
from unittest.mock import patch

__all__ = ["Mutant", "around", "instead", "read_found"]

Mutant: TypeAlias = Callable[[], AbstractContextManager[Any]]


def around(owner: Any, name: str, change: Callable[..., Any]) -> Mutant:
    """The function of that name, as `change(original, *args)`."""
    original = getattr(owner, name)

    def mutated(*args: Any, **options: Any) -> Any:
        return change(original, *args, **options)

    return lambda: patch.object(owner, name, mutated)


def instead(owner: Any, name: str, answer: Callable[..., Any]) -> Mutant:
    """Another function of that name."""
    return lambda: patch.object(owner, name, answer)


def read_found(path: Path) -> dict[str, int]:
    """The seed that finds each mutant, as far as it is known."""
    if not path.exists():
        return {}
    lines = [line.rpartition(" ") for line in path.read_text().splitlines() if line]
    return {name: int(seed) for name, _, seed in lines}
