"""Probes: what a test looks at actors with."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, TypeVar

from supervisors.actor import Actor

if TYPE_CHECKING:
    from collections.abc import Callable

    from supervisors.exits import ExitReason
    from supervisors.mailbox import Cell
    from supervisors.ref import ActorRef
    from supervisors.signals import Down, Exit
    from supervisors.system import ActorSystem

__all__ = ["Recorder", "eventually", "exit_reason", "leaks"]

T = TypeVar("T")


class Recorder(Actor):
    """An actor that notes what it gets: messages in `seen`, exits and downs in `signals`.

    It traps exits. Ask it anything to know that all before has been noted.

    Args:
        seen: the list for messages
        signals: the list for signals
    """

    trap_exit = True

    def __init__(self, seen: list[Any], signals: list[Exit | Down]) -> None:
        """Note in these lists."""
        self._seen = seen
        self._signals = signals

    def on_receive(self, message: Any) -> Any:
        """Note `message`."""
        self._seen.append(message)

    def on_signal(self, signal: Exit | Down) -> None:
        """Note `signal`."""
        self._signals.append(signal)


def eventually(predicate: Callable[[], T], timeout: float = 5.0) -> T:
    """Return the first true value of `predicate()`, asked again and again in real time.

    Raises:
        AssertionError: it did not become true within `timeout` seconds
    """
    deadline = time.monotonic() + timeout
    while True:
        value = predicate()
        if value:
            return value
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {timeout} s: {predicate!r} gave {value!r}")
        time.sleep(0.001)


def exit_reason(
    system: ActorSystem, actor: ActorRef[Any] | Cell, timeout: float = 5.0
) -> ExitReason:
    """Wait for the end of `actor`; return why it ended."""
    return system.monitor_from_outside(actor).get(timeout=timeout)


def leaks(system: ActorSystem) -> list[str]:
    """Return what a system that was shut down still holds; an empty list is good."""
    found = [f"actor {ref}" for ref in system.roots()]
    found += [f"name {name!r}" for name in system.names()]
    statistics = system.statistics()
    timers = len(system.scheduler.timers)
    if timers:
        found.append(f"{timers} timers")
    if statistics.runnable:
        found.append(f"{statistics.runnable} runnable")
    if statistics.abandoned:
        found.append(f"{statistics.abandoned} abandoned workers")
    return found
