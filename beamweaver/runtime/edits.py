"""Changes of the store that people ask for, and how they reach the checkpoint writer.

An edit that waits is kept here, outside of the supervision tree, as calls are: a writer that crashes loses
its mailbox, and its successor finds in this table what nobody began.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from beamweaver.errors import RuntimeStopped, StoreError

if TYPE_CHECKING:
    from collections.abc import Callable

    from supervisors import Future

__all__ = ["Apply", "Edits"]


class Apply:
    """To the writer: run `fn(store, epoch)` between two groups, and give its result to `done`.

    Args:
        fn: What is to be done. If it raises a `CallRefused`, it has changed nothing.
        done: Gets what `fn` returns or raises.
        changes: The thread that is another one afterwards, or None. Commits that its actor has on their way
            are dropped, and the actor reads the store again.
    """

    __slots__ = ("begun", "changes", "done", "fn")

    def __init__(
        self, fn: Callable[[Any, int], Any], done: Future[Any], changes: str | None = None
    ) -> None:
        self.fn = fn
        self.done = done
        self.changes = changes
        self.begun = False


class Edits:
    """The edits whose askers wait."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: dict[Apply, None] = {}
        self._stopped: RuntimeStopped | None = None

    def add(self, edit: Apply) -> None:
        """Keep an edit until its asker goes.

        Raises:
            RuntimeStopped: The runtime has ended.
        """
        with self._lock:
            if self._stopped is not None:
                raise self._stopped
            self._waiting[edit] = None

    def drop(self, edit: Apply) -> None:
        """Its asker has its answer, or went away."""
        with self._lock:
            self._waiting.pop(edit, None)

    def left(self) -> list[Apply]:
        """For a new writer: what nobody began. Who waits for an edit that was cut short hears so."""
        with self._lock:
            edits = list(self._waiting)
        for edit in edits:
            if edit.begun:
                edit.done.offer_error(
                    StoreError(
                        "the checkpoint writer ended while it changed the store for this call; look how "
                        "far it came, and call again"
                    )
                )
        return [edit for edit in edits if not edit.begun]

    def stop(self, error: RuntimeStopped) -> None:
        """The runtime ends: who still waits hears so."""
        with self._lock:
            self._stopped = error
            edits = list(self._waiting)
        for edit in edits:
            edit.done.offer_error(error)
