"""What an async node was given to await: `ctx.step()`, `ctx.call()`, `ctx.sleep()`; and that it did."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any, Final

from beamweaver.errors import InvalidUpdate

if TYPE_CHECKING:
    from collections.abc import Coroutine, Sequence

__all__ = ["Unawaited", "caught", "settle"]

_TURNS: Final = 3
"""Turns of the loop in which tasks that the node has cancelled may end, before it is judged."""
_ROOM: Final = 16


class Unawaited:
    """The coroutines of one attempt that have not ended.

    A coroutine that nobody starts does nothing, and one whose task is not awaited is cut off when the node
    has returned: in both cases its result would be lost in silence.
    """

    __slots__ = ("_left", "_room")

    def __init__(self) -> None:
        self._left: dict[Coroutine[Any, Any, Any], str] = {}
        self._room = _ROOM

    def watch(self, coroutine: Coroutine[Any, Any, Any], spelled: str) -> Coroutine[Any, Any, Any]:
        """Remember what the node is to await, and how its code spells it."""
        if len(self._left) >= self._room:
            self._left = self.left()
            self._room = 2 * len(self._left) + _ROOM
        self._left[coroutine] = spelled
        return coroutine

    def left(self) -> dict[Coroutine[Any, Any, Any], str]:
        """Those that have not ended."""
        closed = inspect.CORO_CLOSED
        return {
            coroutine: spelled
            for coroutine, spelled in self._left.items()
            if inspect.getcoroutinestate(coroutine) != closed
        }


async def settle(node: str, watched: Sequence[Unawaited]) -> None:
    """Judge that a node which returned has awaited what it was given to await.

    Raises:
        InvalidUpdate: It has not.
    """
    from asyncio import sleep  # noqa: PLC0415 - loaded already by whoever awaits

    for _turn in range(_TURNS):
        if not any(each.left() for each in watched):
            return
        await sleep(0)
    for each in watched:
        for coroutine, spelled in each.left().items():
            if inspect.getcoroutinestate(coroutine) == inspect.CORO_CREATED:
                coroutine.close()  # Python would warn of it at a later, unrelated place
                raise InvalidUpdate(
                    f"node {node!r} called {spelled} without await and returned, so it was never begun: "
                    "write await before it",
                    node=node,
                )
            raise InvalidUpdate(
                f"node {node!r} returned while {spelled} had not ended, and its result would be lost: await "
                "its task before the node returns, or cancel that",
                node=node,
            )


def caught(node: str, called: str) -> InvalidUpdate:
    """The error of a node that caught what parks it, and returned."""
    return InvalidUpdate(
        f"node {node!r} called {called} and returned all the same: a bare except, except BaseException, or "
        "return_exceptions=True of asyncio.gather, caught what parks the node. Let it pass, or raise it "
        "again",
        node=node,
    )
