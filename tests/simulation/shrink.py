"""A failing configuration made smaller: as few kinds of faults, threads, runs and faults as still fail."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator

from tests.simulation.config import Config
from tests.simulation.world import World

__all__ = ["failure_of", "shrink"]


def failure_of(config: Config) -> str | None:
    """What is wrong in the history of a configuration, or None."""
    world = World(config)
    try:
        world.run()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    finally:
        world.close()
    return None


def shrink(
    config: Config, fails: Callable[[Config], bool] = lambda c: failure_of(c) is not None
) -> Config:
    """The smallest configuration found, by taking things away one at a time as long as it still fails.

    Args:
        config: One that fails.
        fails: Whether a configuration does.
    """
    smaller = True
    while smaller:
        smaller = False
        for candidate in _smaller(config):
            if fails(candidate):
                config, smaller = candidate, True
                break
    return config


def _smaller(config: Config) -> Iterator[Config]:
    change = dataclasses.replace
    for kind in config.weights:
        yield change(config, weights={k: w for k, w in config.weights.items() if k != kind})
    for name in ("threads", "runs", "faults"):
        value = getattr(config, name)
        for less in sorted({1, value // 2, value - 1}):
            if 1 <= less < value:
                yield change(config, **{name: less})
    for name in config.limits:
        yield change(config, limits={k: v for k, v in config.limits.items() if k != name})
    if config.max_concurrency is not None:
        yield change(config, max_concurrency=None)
