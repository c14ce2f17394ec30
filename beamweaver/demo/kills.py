"""When the demo kills its child: a seed draws it, over progress and not over time.

Example:
    >>> kill_points(total=100, kills=3, seed=1)
    [18, 73, 98]
"""

from __future__ import annotations

import random

__all__ = ["kill_points"]


def kill_points(*, total: int, kills: int, seed: int) -> list[int]:
    """After how many acknowledged tasks each kill comes.

    Args:
        total: How many tasks there are.
        kills: How many kills; at most one a task.
        seed: What draws them.

    Returns:
        Ascending different numbers from 1 to `total - 1`.

    Raises:
        ValueError: There are not enough tasks for so many kills.
    """
    if kills >= total:
        raise ValueError(f"kills is {kills} and there are {total} tasks; give fewer kills")
    drawn = random.Random(seed).sample(range(1, total), kills)  # noqa: S311  # a seed, not a secret
    return sorted(drawn)
