"""From the runtime's futures to a caller's event loop."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from beamweaver.errors import WouldBlock

if TYPE_CHECKING:
    from beamweaver.runtime.core import Core
    from supervisors import Future

__all__ = ["refuse_blocking", "result_of"]


async def result_of(future: Future[Any], timeout: float | None = None) -> Any:
    """Await a future of the runtime on the running loop.

    Args:
        future: Of an actor, a waiter or a drain.
        timeout: Seconds; `TimeoutError` after them.
    """
    loop = asyncio.get_running_loop()
    waiter: asyncio.Future[None] = loop.create_future()

    def wake() -> None:
        if not waiter.done():
            waiter.set_result(None)

    def done(_future: object) -> None:
        try:
            loop.call_soon_threadsafe(wake)
        except RuntimeError:
            return  # the loop was closed: nobody waits there any more

    future.add_done_callback(done)
    async with asyncio.timeout(timeout):
        await waiter
    return future.get()


def refuse_blocking(core: Core, call: str, twin: str) -> None:
    """A sync call on the loop that runs this runtime's nodes would wait for itself.

    Raises:
        WouldBlock: The caller is on that loop.
    """
    loop = core.hub.loop
    if loop is not None and loop.runs_here:
        raise WouldBlock(
            f"{call}() would block the event loop that runs this runtime's nodes, which it waits for; "
            f"use: await {twin}()",
            call=call,
            twin=twin,
        )
