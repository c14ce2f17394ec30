"""What may wait where: a blocking call is refused where it would wait for itself, said where others wait."""

from __future__ import annotations

import sys
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
    if _on_a_loop():
        hub.held_loop(call, twin)


def _on_a_loop() -> bool:
    """Whether the caller holds an event loop that others need; a notebook's has nothing else to do."""
    asyncio = sys.modules.get("asyncio")
    return (
        asyncio is not None
        and "IPython" not in sys.modules
        and asyncio._get_running_loop() is not None  # noqa: SLF001 - public, and raises nothing
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
