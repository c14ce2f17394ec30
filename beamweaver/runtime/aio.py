"""The awaitable side of the runtime: from its futures to a caller's event loop.

Imported when something is awaited first (`blocking.aio`).
"""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import Future as OtherFuture
from contextvars import copy_context
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, ParamSpec, TypeVar

from beamweaver.runtime.answers import ask_timeout, given

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

    from beamweaver.graph.compiled import CompiledGraph
    from beamweaver.runtime.core import Core
    from beamweaver.runtime.waiters import Answer, Waiting
    from beamweaver.types import Outcome
    from supervisors import Future

__all__ = [
    "edited_by",
    "entered",
    "on_a_worker",
    "on_its_own",
    "outcome_of",
    "read_aside",
    "result_of",
    "running_loop",
]

P = ParamSpec("P")
T = TypeVar("T")
_PAGE: Final = 16
"""How many items are made before the caller gets the first of them."""

on_a_worker = asyncio.to_thread
running_loop = asyncio.get_running_loop


async def on_its_own(call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Make a call on an OS thread of its own: one that nodes must not hold up.

    What `on_a_worker` uses is the loop's, and nodes may use all of it.
    """
    made: OtherFuture[T] = OtherFuture()
    made.set_running_or_notify_cancel()
    context = copy_context()

    def run() -> None:
        try:
            made.set_result(context.run(call, *args, **kwargs))
        except BaseException as error:  # noqa: BLE001 - who awaits has it
            made.set_exception(error)

    threading.Thread(target=run, name="beamweaver-aside").start()
    return await asyncio.wrap_future(made)


async def entered(start: Callable[[], object], leave: Callable[[], object]) -> None:
    """Start something aside; what has started for one who went away meanwhile is left again."""
    # Taken by whoever is first: the start that has ended, or the caller that goes away.
    open_ = [True]

    def taken() -> bool:
        try:
            return open_.pop()
        except IndexError:
            return False

    def begin() -> None:
        start()
        if not taken():
            leave()

    try:
        await on_its_own(begin)
    except asyncio.CancelledError:
        if not taken():
            await on_its_own(leave)
        raise


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
