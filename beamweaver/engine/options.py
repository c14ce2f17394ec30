"""The options of a run, from call to call."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from beamweaver.checkpoint.records import RunOptions

__all__ = ["continued", "joined"]


def continued(old: RunOptions | None, new: RunOptions | None) -> RunOptions | None:
    """The options after a caller's continuation: the call's own; only what was noted stays.

    Example:
        >>> from beamweaver.checkpoint.records import RunOptions
        >>> continued(RunOptions(run_timeout=9.0), None) is None
        True
        >>> continued(RunOptions(metadata={"a": b"1"}), RunOptions(run_timeout=5.0)).metadata
        {'a': b'1'}
    """
    if old is None or not old.metadata:
        return new
    noted = old.metadata if new is None else {**old.metadata, **new.metadata}
    return msgspec.structs.replace(new or type(old)(), metadata=noted)


def joined(old: RunOptions | None, new: RunOptions | None) -> RunOptions | None:
    """The options after a call took up a run as it is: those that the call gives, else the run's.

    Example:
        >>> from beamweaver.checkpoint.records import RunOptions
        >>> joined(RunOptions(run_timeout=9.0), RunOptions(max_concurrency=2)).run_timeout
        9.0
    """
    if old is None or new is None:
        return new or old
    return type(old)(
        new.run_timeout or old.run_timeout,
        new.step_timeout or old.step_timeout,
        new.failure_policy or old.failure_policy,
        new.max_concurrency or old.max_concurrency,
        {**old.metadata, **new.metadata},
        old.interrupt_before if new.interrupt_before is None else new.interrupt_before,
        old.interrupt_after if new.interrupt_after is None else new.interrupt_after,
        new.durability or old.durability,
    )
