"""Actors whose handlers are coroutines on an asyncio event loop. Not for simulations.

    from supervisors.asynchronous import AsyncActor

One loop, in a thread of its own, serves a whole system; it starts with the first such actor and ends with
the system. A handler that waits holds no worker; one that blocks holds the loop, and all its actors.
"""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any

from supervisors.elsewhere import Answered, Begun, Deputy, Gone, RaisedElsewhere
from supervisors.exits import Crashed, ExitReason

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from supervisors.system import ActorSystem

__all__ = ["AsyncActor", "LoopThread"]


class LoopThread:
    """An event loop in a thread of its own. Get it by `system.resource(LoopThread)`."""

    def __init__(self, _system: ActorSystem | None = None) -> None:
        """Start the thread."""
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="event-loop", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        try:
            self.loop.run_forever()
            self.loop.run_until_complete(self.loop.shutdown_asyncgens())
        finally:
            self.loop.close()

    def close(self, timeout: float = 5.0) -> bool:
        """End the loop and its thread; return whether it ended within `timeout` seconds."""
        try:
            self.loop.call_soon_threadsafe(self.loop.stop)
        except RuntimeError:
            return True  # it is closed
        self._thread.join(timeout)
        return not self._thread.is_alive()


class AsyncActor(Deputy):
    """An actor whose handlers are coroutines; they run one at a time, on the system's event loop.

    Override `setup`, `handle` and `teardown`. A kill cancels the handler that runs; another end waits for
    it. In a handler await futures and `ref.ask_async(...)`: a blocking call would stop the loop.

    Example:
        >>> import asyncio
        >>> from supervisors import ActorSystem
        >>> class Echo(AsyncActor):
        ...     async def handle(self, message):
        ...         await asyncio.sleep(0)
        ...         return message
        >>> with ActorSystem() as system:
        ...     system.start(Echo).ask("hello", timeout=5)
        'hello'
    """

    _task: asyncio.Task[None] | None = None
    _over = False

    async def setup(self) -> None:
        """Prepare, as the first thing; who starts the actor waits for it. May raise `Ignore`."""

    async def handle(self, message: Any) -> Any:
        """Handle `message`; what is returned answers an ask. May raise `Refuse`."""
        raise NotImplementedError(f"{type(self).__name__} handles no messages: override handle()")

    async def teardown(self, reason: ExitReason) -> None:
        """Release what the actor holds; runs at every end but a kill, a crash and a failed start."""

    def begin(self) -> None:
        """Run `setup` on the loop."""
        self._loop = self.system.resource(LoopThread).loop
        self._call(self.setup, lambda _: Begun())

    def deliver(self, message: Any) -> None:
        """Run `handle` on the loop."""
        self._call(lambda: self.handle(message), Answered)

    def wind_up(self, reason: ExitReason) -> None:
        """Run `teardown` on the loop."""
        self._call(lambda: self.teardown(reason), lambda _: Gone(reason))

    def let_go(self) -> None:
        """Cancel what runs."""
        self._over = True
        if hasattr(self, "_loop"):  # else its loop could not be had, and nothing runs
            self._on_loop(self._cancel)

    def _call(
        self, make: Callable[[], Awaitable[Any]], news: Callable[[Any], Begun | Answered | Gone]
    ) -> None:
        self._on_loop(self._spawn, make, news)

    def _on_loop(self, call: Callable[..., object], *args: Any) -> None:
        try:
            self._loop.call_soon_threadsafe(call, *args)
        except RuntimeError as error:  # the loop is closed, with the system
            self.post(Gone(Crashed(error)))

    def _spawn(self, make: Callable[[], Awaitable[Any]], news: Callable[[Any], Any]) -> None:
        if not self._over:
            self._task = self._loop.create_task(self._perform(make, news))

    async def _perform(
        self, make: Callable[[], Awaitable[Any]], news: Callable[[Any], Any]
    ) -> None:
        try:
            value = await make()
        except BaseException as error:  # noqa: BLE001 - whatever a handler raises ends this actor only
            self.post(RaisedElsewhere(error))
        else:
            self.post(news(value))

    def _cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()
