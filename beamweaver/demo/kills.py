"""When the demo kills its child: a seed draws it, over progress and not over time.

Example:
    >>> kill_points(total=100, kills=3, seed=1)
    [9, 18, 73]
"""

from __future__ import annotations

import random

__all__ = ["kill_points"]


def kill_points(*, total: int, kills: int, seed: int) -> list[int]:
    """How many tasks have begun when each kill comes.

    Args:
        total: How many tasks there are.
        kills: How many kills; at most one a task.
        seed: What draws them.

    Returns:
        Ascending different numbers from 1 to nine tenths of `total`: a kill after that may find the
        work done.

    Raises:
        ValueError: There are not enough tasks for so many kills.
    """
    last = total * 9 // 10
    if kills > last:
        raise ValueError(
            f"kills is {kills}, and {total} tasks allow {last}; give fewer kills or more files"
        )
    drawn = random.Random(seed).sample(range(1, last + 1), kills)  # noqa: S311  # a seed, not a secret
    return sorted(drawn)
