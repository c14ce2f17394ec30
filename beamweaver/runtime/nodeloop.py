"""The node loop's owner in the tree."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Literal

from supervisors import SHUTDOWN, Actor

if TYPE_CHECKING:
    from beamweaver.runtime.hub import Hub
    from supervisors import ExitReason

__all__ = ["LoopEnded", "NodeLoop"]


class LoopEnded(Exception):
    """The event loop of the async nodes ended under them."""


class NodeLoop(Actor):
    """Owns the node loop: the user's own under `async with Runtime`, else one in a worker of its own.

    The loop is made when the first async node needs it. When this actor restarts, the threads after it in
    the tree restart too, and their async attempts count as lost in a crash. A loop of its own that ends is
    replaced so; with the user's loop the runtime ends.
    """

    lane: ClassVar[Literal["hi"]] = "hi"
    isolated: ClassVar[bool] = False

    def __init__(self, hub: Hub) -> None:
        self._hub = hub

    def on_start(self) -> None:
        """End a loop that an earlier incarnation left; if that was the user's, all ends."""
        if self._hub.fatal is not None:
            self.exit(SHUTDOWN)
        self._hub.loop_owner = self.cell
        self._end_loop()

    def on_receive(self, message: Any) -> None:
        """The loop ended, unless another one has taken its place."""
        if message is not self._hub.loop:
            return
        if self._hub.fatal is None:
            raise LoopEnded("the event loop of the async nodes ended under them")
        self._hub.fail(self._hub.fatal, self)

    def on_stop(self, reason: ExitReason) -> None:  # type: ignore[override]  # pykka gives no reason
        """End the loop with its owner."""
        del reason
        self._end_loop()

    def _end_loop(self) -> None:
        worker, self._hub.loop = self._hub.loop, None
        if worker is not None:
            worker.stop()
