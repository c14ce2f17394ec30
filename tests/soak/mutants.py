"""Mutants of the decision table: each must be caught by a history beside the model.

Searches, for each, the first seed whose history fails, and prints it; CI replays the seeds in `FOUND`. A
failure is a mutant that no seed catches, or whose recorded seed no longer does.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from supervisors import Supervisor, family
from supervisors.budget import RestartWindow
from supervisors.exits import KILLED, NORMAL, Shutdown
from supervisors.family import Family
from tests.supervisors.model import history

LIMIT = 2_000

_wants = Family._wants_restart
_quiet = family.is_quiet


def _restart(kind: str, when: Callable[[Any], bool], answer: bool) -> Any:
    """Give another answer for children of `kind` whose reason is such."""

    def wants(self: Any, child: Any, reason: Any) -> bool:
        if child.spec.restart == kind and when(reason):
            return answer
        return _wants(self, child, reason)

    return patch.object(Family, "_wants_restart", wants)


def _add(window: Any, now: float) -> bool:
    """Allow one restart more than the intensity."""
    times = window._times
    times.append(now)
    while times[0] < now - window.period:
        times.popleft()
    return len(times) <= window.intensity + (window.intensity > 0) or len(times) == 1


def _strict(window: Any, now: float) -> bool:
    """Forget a restart at the very edge of the window."""
    times = window._times
    times.append(now)
    while times[0] <= now - window.period:
        times.popleft()
    return len(times) <= window.intensity


def _rest_after(self: Any, child: Any) -> list[Any]:
    """Leave the children after the failed one alone in `rest_for_one`."""
    members = self._members_in_order()
    return members if self.strategy == "one_for_all" else [child]


def _all_from_here(self: Any, child: Any) -> list[Any]:
    """Treat `one_for_all` as `rest_for_one`."""
    members = self._members_in_order()
    return [child] if self.strategy == "one_for_one" else members[members.index(child) :]


def _forwards(self: Any) -> Any:
    """End the children in the order of their starts."""
    for child in self._members_in_order():
        yield from self._take_down(child)


def _any_for_all(self: Any) -> None:
    """Treat `all_significant` as `any_significant`."""
    if self.auto_shutdown != "never":
        self._end(Shutdown())


def _keep_temporary(self: Any, child: Any) -> Any:
    """Keep temporary bystanders of a group restart."""
    for member in reversed(self._group(child)):
        if member is not child:
            yield from self._take_down(member)


MUTANTS: dict[str, Callable[[], Any]] = {
    "a permanent child that ends normally stays down": lambda: _restart(
        "permanent", lambda reason: reason == NORMAL, False
    ),
    "a permanent child that is shut down stays down": lambda: _restart(
        "permanent", lambda reason: isinstance(reason, Shutdown), False
    ),
    "a transient child that ends normally is restarted": lambda: _restart(
        "transient", lambda reason: reason == NORMAL, True
    ),
    "a transient child that is shut down is restarted": lambda: _restart(
        "transient", lambda reason: isinstance(reason, Shutdown), True
    ),
    "a transient child that is killed stays down": lambda: _restart(
        "transient", lambda reason: reason == KILLED, False
    ),
    "a temporary child that crashes is restarted": lambda: _restart(
        "temporary", lambda reason: not _quiet(reason), True
    ),
    "one restart more than the intensity is allowed": lambda: patch.object(
        RestartWindow, "add", _add
    ),
    "a restart at the edge of the window is forgotten": lambda: patch.object(
        RestartWindow, "add", _strict
    ),
    "rest_for_one restarts one": lambda: patch.object(Supervisor, "_group", _rest_after),
    "one_for_all leaves the earlier children alone": lambda: patch.object(
        Supervisor, "_group", _all_from_here
    ),
    "children end in the order of their starts": lambda: patch.object(
        Supervisor, "_take_down_all", _forwards
    ),
    "any significant child ends an all_significant supervisor": lambda: patch.object(
        Supervisor, "_maybe_auto_shutdown", _any_for_all
    ),
    "temporary bystanders of a group restart are kept": lambda: patch.object(
        Supervisor, "_take_down_group", _keep_temporary
    ),
}

FOUND = {
    "a permanent child that ends normally stays down": 1,
    "a permanent child that is shut down stays down": 1,
    "a transient child that ends normally is restarted": 4,
    "a transient child that is shut down is restarted": 1,
    "a transient child that is killed stays down": 8,
    "a temporary child that crashes is restarted": 5,
    "one restart more than the intensity is allowed": 1,
    "a restart at the edge of the window is forgotten": 9,
    "rest_for_one restarts one": 1,
    "one_for_all leaves the earlier children alone": 1,
    "children end in the order of their starts": 1,
    "any significant child ends an all_significant supervisor": 23,
    "temporary bystanders of a group restart are kept": 1,
}


@contextmanager
def mutated(name: str) -> Iterator[None]:
    with MUTANTS[name]():
        yield


def caught(name: str, seed: int) -> bool:
    """Tell whether the history of `seed` catches a mutant."""
    with mutated(name):
        try:
            history(seed)
        except Exception:
            return True
    return False


def find(name: str, ends: float, first: int, limit: int) -> int | None:
    for seed in range(first, first + limit):
        if time.monotonic() > ends:
            return None
        if caught(name, seed):
            return seed
    return None


def run(minutes: float, seed: int, count: int | None) -> int:
    ends = time.monotonic() + minutes * 60
    failures = 0
    for name in MUTANTS:
        found = find(name, ends, seed, count or LIMIT)
        replays = name in FOUND and caught(name, FOUND[name])
        failures += found is None or not replays
        print(f"{name}: seed {found}, recorded {FOUND.get(name)} {'holds' if replays else 'FAILS'}")
    return failures
