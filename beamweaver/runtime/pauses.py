"""Durable sleeps, seen from the attempt that sleeps: `ctx.sleep()` and `ctx.sleep_until()`."""

from __future__ import annotations

import datetime as dt
import math
from typing import TYPE_CHECKING, Any, NoReturn

from beamweaver.engine.state import Sleep
from beamweaver.errors import InvalidCall
from beamweaver.runtime.substeps import check_key, refuse_inside
from beamweaver.runtime.unawaited import Unawaited
from supervisors import CallTimeout

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from beamweaver.engine.effects import Attempt
    from beamweaver.runtime.context import Context
    from beamweaver.runtime.hub import Hub

__all__ = ["Pauses"]

_IN_PLACE = 1.0
"""Seconds up to which a sleep parks nothing."""
_LONGEST = 100 * 366 * 86_400.0
_SECOND_US = 1_000_000
_LATEST_US = 253_402_300_799_999_999
"""The last microsecond that a `datetime` can tell; as a float of seconds that is more."""


class Pauses:
    """The sleeps of one attempt; each is known by its key, or by how many came before it."""

    __slots__ = ("_attempt", "_awaits", "_context", "_count", "_hub", "unawaited")

    def __init__(self, context: Context, hub: Hub, attempt: Attempt, *, awaits: bool) -> None:
        self._context = context
        self._hub = hub
        self._attempt = attempt
        self._awaits = awaits
        self._count = 0
        self.unawaited = Unawaited()

    def sleep(self, duration: Any, key: str | None) -> Coroutine[Any, Any, None] | None:
        """Sleep that long."""
        if isinstance(duration, dt.timedelta):
            duration = duration.total_seconds()
        fit = isinstance(duration, int | float) and not isinstance(duration, bool)
        if not fit or not 0 <= duration <= _LONGEST:
            raise InvalidCall(
                f"node {self._attempt.node.name!r}: ctx.sleep({duration!r}); give seconds from 0 up to 100 "
                "years, or a timedelta"
            )
        now = self._hub.system.clock.time()
        return self._begin(now + duration, float(duration), key)

    def sleep_until(self, when: Any, key: str | None) -> Coroutine[Any, Any, None] | None:
        """Sleep until then."""
        if not isinstance(when, dt.datetime) or when.tzinfo is None:
            raise InvalidCall(
                f"node {self._attempt.node.name!r}: ctx.sleep_until({when!r}); give a datetime with a time "
                "zone, such as datetime.now(UTC) + timedelta(hours=1)"
            )
        due = when.timestamp()
        return self._begin(due, due - self._hub.system.clock.time(), key)

    def _begin(self, due: float, rest: float, key: str | None) -> Coroutine[Any, Any, None] | None:
        """What is left to do of a sleep: nothing, a wait in place, or to park the task."""
        check_key(key, "the key of a sleep")
        ordinal = -1
        if key is None:
            refuse_inside("ctx.sleep()")
            ordinal, self._count = self._count, self._count + 1
        if any(s.ordinal == ordinal and s.key == key for s in self._attempt.task.sleeps or ()):
            rest = 0.0
        sleep = Sleep(ordinal, key, min(math.ceil(due * _SECOND_US), _LATEST_US), rest)
        if 0 < rest <= _IN_PLACE:  # who sleeps in place is not idle
            self._attempt.beat_at = self._hub.system.clock.monotonic() + rest
        if self._awaits:
            return self.unawaited.watch(self._wait_async(sleep), "ctx.sleep()")
        if rest > _IN_PLACE:
            self._park(sleep)
        if rest > 0:
            self._wait(rest)
        return None

    def _park(self, sleep: Sleep) -> NoReturn:
        self._hub.offsets.note()
        self._context.park(sleep)

    def _wait(self, seconds: float) -> None:
        """Wait in place, where a kill can reach it."""
        never = self._hub.system.future()
        try:
            never.get(timeout=seconds)
        except CallTimeout:
            return

    async def _wait_async(self, sleep: Sleep) -> None:
        if sleep.delay > _IN_PLACE:
            self._park(sleep)
        from asyncio import sleep as wait  # noqa: PLC0415 - loaded already by whoever awaits

        await wait(max(sleep.delay, 0.0))
