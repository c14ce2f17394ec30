"""What may wait where: blocking calls are refused where they would wait for themselves."""

from __future__ import annotations

from typing import TYPE_CHECKING

from beamweaver.errors import CallingSelf, WouldBlock

if TYPE_CHECKING:
    from beamweaver.runtime.core import Core

__all__ = ["refuse_blocking", "refuse_in_node"]


def refuse_blocking(core: Core, call: str, twin: str) -> None:
    """A sync call on the loop that runs this runtime's nodes would wait for itself; so would a listener's.

    Raises:
        WouldBlock: The caller is on that loop, or in a listener.
    """
    hub = core.hub
    loop = hub.loop
    if loop is not None and loop.runs_here:
        raise WouldBlock(
            f"{call}() would block the event loop that runs this runtime's nodes, which it waits for; "
            f"use: await {twin}()",
            call=call,
            twin=twin,
        )
    if hub.telling is not None:
        raise WouldBlock(
            f"{call}() in a listener would wait for the actor that tells it {hub.telling!r}; hand the "
            "event to a thread or queue of your own, and call there",
            call=call,
            twin=twin,
        )


def refuse_in_node(core: Core, call: str) -> None:
    """A node cannot wait for the end of the runtime that runs it.

    Raises:
        CallingSelf: The caller is a node of this runtime.
    """
    node = core.calling_node()
    if node is not None:
        raise CallingSelf(
            f"node {node.node!r} of thread {node.thread_id!r} calls {call}() of the runtime that runs it, "
            "and would wait for itself; call it from the program that opened the runtime",
            thread_id=node.thread_id,
            node=node.node,
        )
