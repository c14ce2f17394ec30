"""How the routers and guards of a simulated history behave: some are async and wait, some fail at first."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING, Any

from tests.engine.generator import Flaky

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.simulation.checkers import Bodies

__all__ = ["Routers"]

_DISTURBED = 0.08
"""The share of graphs whose routers behave so, beside those with async nodes."""
_ASYNC, _FAILS = 0.6, 0.2
"""The share of these routers that are async, and of those that fail when a task's routers are asked first."""
_WAITS = (0.0, 0.0, 0.5, 3.0)
"""Seconds for which async ones wait before they choose, when a task's routers are asked first: a graph in a
node with a timeout may have many."""


class Routers:
    """What routers do beside choosing, which is the plan's matter; drawn apart from the plan.

    Args:
        seed: Of the plan.
        always: Whether they behave so whatever the seed says.
    """

    def __init__(self, seed: int, *, always: bool) -> None:
        self._seed = seed
        self.disturbed = always or random.Random(f"routers {seed}").random() < _DISTURBED
        """Whether any of them behaves so."""

    def drawn(self, name: str) -> tuple[bool, bool, float]:
        """Whether the router is async, whether it fails at first, and how long it waits."""
        rng = random.Random(f"router {name} {self._seed}")
        is_async = rng.random() < _ASYNC
        return is_async, rng.random() < _FAILS, rng.choice(_WAITS) if is_async else 0.0

    def of(self, name: str, choose: Callable[[Any], Any], bodies: Bodies) -> Any:
        """A router or a guard that chooses so; `name` tells it from others of its graph."""
        if not self.disturbed:
            return choose
        is_async, fails, seconds = self.drawn(name)

        def chosen(state: Any, ctx: Any) -> Any:
            if fails and bodies.first(ctx, name):
                raise Flaky(name)
            return choose(state)

        async def waiting(state: Any, ctx: Any) -> Any:
            await asyncio.sleep(seconds if bodies.first(ctx, f"{name} waits") else 0)
            return chosen(state, ctx)

        router = waiting if is_async else chosen
        router.__name__ = name
        return router
