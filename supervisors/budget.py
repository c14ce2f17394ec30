"""Restart budgets: how many restarts within how much time are too many."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Hashable

__all__ = ["Budget", "ChildBudget", "RestartWindow", "SupervisorBudget"]


class Budget(Protocol):
    """A policy that allows restarts, or does not."""

    def allows(self, child_id: Hashable, now: float, /) -> bool:
        """Count one restart attempt of `child_id` at `now` (monotonic); return whether it may."""
        ...


class RestartWindow:
    """Counts restarts in a sliding window (OTP's restart intensity, with exact seconds).

    More than `intensity` restarts within `period` seconds are too many. OTP truncates times to whole
    seconds, so that its windows last up to a second longer; these do not.

    Example:
        >>> window = RestartWindow(1, 5.0)
        >>> window.add(0.0), window.add(5.0), window.add(10.1)
        (True, False, True)
    """

    __slots__ = ("_times", "intensity", "period")

    def __init__(self, intensity: int, period: float) -> None:
        """Allow `intensity` restarts in `period` seconds."""
        self.intensity = intensity
        self.period = period
        self._times: deque[float] = deque(maxlen=intensity + 1)

    def add(self, now: float) -> bool:
        """Count a restart at `now`; return whether the window still allows it."""
        times = self._times
        times.append(now)
        while times[0] < now - self.period:
            times.popleft()
        return len(times) <= self.intensity

    def __len__(self) -> int:
        """Return how many restarts are remembered; never more than `intensity + 1`."""
        return len(self._times)


class SupervisorBudget:
    """One window that all children of a supervisor share, as in OTP."""

    def __init__(self, intensity: int, period: float) -> None:
        """Allow `intensity` restarts in `period` seconds in all."""
        self.window = RestartWindow(intensity, period)

    def allows(self, child_id: Hashable, now: float, /) -> bool:
        """Count one restart attempt of any child."""
        del child_id
        return self.window.add(now)


class ChildBudget:
    """A window for each child, so that one that keeps crashing takes none of its siblings along."""

    def __init__(self, intensity: int, period: float) -> None:
        """Allow each child `intensity` restarts in `period` seconds."""
        self._intensity = intensity
        self._period = period
        self._windows: dict[Hashable, RestartWindow] = {}

    def allows(self, child_id: Hashable, now: float, /) -> bool:
        """Count one restart attempt of `child_id`."""
        window = self._windows.get(child_id)
        if window is None:
            window = self._windows[child_id] = RestartWindow(self._intensity, self._period)
        return window.add(now)

    def forget(self, child_id: Hashable) -> None:
        """Drop the window of a child that is gone for good."""
        self._windows.pop(child_id, None)
