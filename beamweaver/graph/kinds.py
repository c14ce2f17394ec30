"""Kinds of channels, written into a schema as `Annotated[type, kind]`.

A key without a kind keeps its last value, or what its reducer makes of all writes.

Example:
    >>> from typing import Annotated, TypedDict
    >>> class State(TypedDict):
    ...     found: Annotated[list[str], Topic]
    ...     all_found: Annotated[list[str], Topic(accumulate=True)]
    ...     signal: Annotated[str, Ephemeral]
    ...     client: Annotated[object, Untracked]
    ...     steps_left: Annotated[int, RemainingSteps]
    ...     last: Annotated[bool, IsLastStep]
"""

from __future__ import annotations

from typing import Any, Final, TypeAlias

import msgspec

__all__ = [
    "Ephemeral",
    "IsLastStep",
    "Kind",
    "Managed",
    "RemainingSteps",
    "Topic",
    "Untracked",
    "managed_value",
]


class Topic(msgspec.Struct, frozen=True):
    """Collects what the tasks of a step write, in task order; the next step sees it, then it is empty again.

    The key's type is a list; a write is a list of items, or one item that is no list.

    Args:
        accumulate: Whether it keeps what earlier steps wrote.
    """

    accumulate: bool = False


class Ephemeral(msgspec.Struct, frozen=True):
    """Holds its value for the one step after the write; then the key is absent again."""


class Untracked(msgspec.Struct, frozen=True):
    """Is never stored: it holds its value while the process keeps the thread, and is back at its default
    after a recovery. For clients, handles and caches that cannot be stored.
    """


class RemainingSteps(msgspec.Struct, frozen=True):
    """How many steps the run may still take, this one included. Read only."""


class IsLastStep(msgspec.Struct, frozen=True):
    """Whether this is the last step that the run may take. Read only."""


Managed: TypeAlias = RemainingSteps | IsLastStep
Kind: TypeAlias = Topic | Ephemeral | Untracked | Managed

KINDS: Final = (Topic, Ephemeral, Untracked, RemainingSteps, IsLastStep)
MANAGED_TYPES: Final[dict[type, type]] = {RemainingSteps: int, IsLastStep: bool}


def kinds_in(metadata: tuple[Any, ...]) -> list[Kind]:
    """The kinds among the metadata of an `Annotated`; a class stands for its plain instance."""
    found: list[Kind] = [each for each in metadata if isinstance(each, KINDS)]
    found.extend(each() for each in metadata if isinstance(each, type) and each in KINDS)
    return found


def managed_value(kind: Managed, remaining: int) -> int | bool:
    """What a managed key is in a step.

    Args:
        kind: Which one.
        remaining: How many steps the run may still take, the one that sees the value included.

    Example:
        >>> managed_value(RemainingSteps(), 3), managed_value(IsLastStep(), 1)
        (3, True)
    """
    return remaining if isinstance(kind, RemainingSteps) else remaining <= 1
