"""The awaitable side of the runtime: from its futures to a caller's event loop.

Imported when something is awaited first (`blocking.aio`).
"""

from __future__ import annotations

import asyncio
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, TypeVar

from beamweaver.runtime.answers import ask_timeout, given

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from beamweaver.graph.compiled import CompiledGraph
    from beamweaver.runtime.core import Core
    from beamweaver.runtime.waiters import Answer, Waiting
    from beamweaver.types import Outcome
    from supervisors import Future

__all__ = ["edited_by", "on_a_worker", "outcome_of", "read_aside", "result_of", "running_loop"]

T = TypeVar("T")
_PAGE: Final = 16
"""How many items are made before the caller gets the first of them."""

on_a_worker = asyncio.to_thread
running_loop = asyncio.get_running_loop


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


async def read_aside(items: Iterator[T]) -> AsyncIterator[T]:
    """Each of some items, made on another worker, some at a time; what goes wrong is raised in its place."""

    def page() -> tuple[list[T], Exception | None]:
        made: list[T] = []
        try:
            made += islice(items, _PAGE)
        except Exception as error:  # noqa: BLE001 - it is raised behind what came before it
            return made, error
        return made, None

    while True:
        made, error = await on_a_worker(page)
        for item in made:
            yield item
        if error is not None:
            raise error
        if len(made) < _PAGE:
            return


async def outcome_of(
    core: Core,
    graph: CompiledGraph,
    thread_id: str,
    waiting: Waiting,
    *,
    timeout: float | None,
    raises: bool,
    on_disconnect: str,
) -> Outcome:
    """Await a call's answer; a caller that goes away may take the run with it."""
    try:
        answer = await result_of(waiting.done, timeout)
    except TimeoutError:
        core.hub.waiters.leave(thread_id, waiting)
        raise ask_timeout(core.hub.waiters, waiting, thread_id, timeout) from None
    except asyncio.CancelledError:
        core.disconnect(graph, thread_id, waiting, cancel=on_disconnect == "cancel")
        raise
    finally:
        core.hub.waiters.let_go(waiting)
    return given(answer, raises=raises)


async def edited_by(core: Core, graph: CompiledGraph, thread_id: str, waiting: Waiting) -> Answer:
    """Await the answer of an edit; a caller that goes away withdraws it, unless it has begun."""
    try:
        return await result_of(waiting.done)  # type: ignore[no-any-return] # a waiter's future has an answer
    except asyncio.CancelledError:
        core.disconnect(graph, thread_id, waiting, cancel=False)
        raise
    finally:
        core.hub.waiters.let_go(waiting)
