"""The registry: the table from thread id to actor, with an owner in the tree."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

from supervisors import Actor

if TYPE_CHECKING:
    from beamweaver.runtime.hub import Hub

__all__ = ["Registry"]


class Registry(Actor):
    """First in the tree: when it goes, the table's actors go with it, and a new table begins empty.

    Lookups do not pass through its mailbox: callers read the table under its own lock. A thread's
    actor enters itself when it starts; its successor takes the entry over.
    """

    lane: ClassVar[Literal["hi"]] = "hi"
    isolated: ClassVar[bool] = False

    def __init__(self, hub: Hub) -> None:
        self._hub = hub

    def on_start(self) -> None:
        """Begin with an empty table."""
        self._hub.table.begin(None)
