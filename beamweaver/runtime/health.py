"""How a runtime is: counts, and whether it is ready."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from beamweaver.errors import StoreError
from beamweaver.runtime.core import FORKED

if TYPE_CHECKING:
    from beamweaver.runtime.core import Core

_SHOWN: Final = 100

__all__ = ["RuntimeHealth", "RuntimeStatistics", "health_of", "statistics_of"]


class RuntimeStatistics(msgspec.Struct, frozen=True, kw_only=True):
    """Counts of a runtime, at one moment.

    Attributes:
        epoch: The store epoch of this owner.
        actors: Thread actors in memory.
        running: Threads that hold one of the places that `limits.threads_running` gives.
        waiting_threads: Threads that wait for such a place; all that Recovery has still to take up
            count as one.
        waiting_calls: Calls without an answer.
        taken_up: Threads that Recovery took up since its start.
        commits: Commits that the present writer wrote.
        groups: In how many groups.
        workers: OS threads of the pool.
        runnable: Actors and nodes that wait for a worker.
        abandoned: Workers held by killed nodes that never returned.
        quarantined: Threads that were set aside and could not be marked so in the store.
        set_aside: Threads that cannot go on under the code that is here: see `RuntimeHealth.set_aside`.
    """

    epoch: int
    actors: int
    running: int
    waiting_threads: int
    waiting_calls: int
    taken_up: int
    commits: int
    groups: int
    workers: int
    runnable: int
    abandoned: int
    quarantined: int
    set_aside: int = 0


class RuntimeHealth(msgspec.Struct, frozen=True, kw_only=True):
    """Whether a runtime takes calls and can make them durable, at one moment.

    Attributes:
        ready: Whether it does.
        reasons: Why not, each a sentence; empty if it does.
        waits: What waits for which limit: the limit's name -> how many threads wait for it. And `"messages"`:
            for how many threads other processes left messages that cannot be taken now.
        abandoned: Workers held by killed nodes that never returned; at `limits.abandoned` new attempts of
            sync nodes fail.
        set_aside: Threads that cannot go on under the code that is here, for their graph is unknown, older
            than they are, or has lost what they need: id -> why, for at most 100 of them. They are untouched.
    """

    ready: bool
    reasons: tuple[str, ...] = ()
    waits: dict[str, int] = {}
    abandoned: int = 0
    set_aside: dict[str, str] = {}


def statistics_of(core: Core) -> RuntimeStatistics:
    """The counts of a runtime."""
    hub = core.hub
    pool = core.system.statistics()
    writer = hub.writer.actor if hub.writer is not None else None
    recovery = hub.recovery.actor if hub.recovery is not None else None
    return RuntimeStatistics(
        epoch=hub.epoch,
        actors=len(hub.actors),
        running=hub.table.running,
        waiting_threads=hub.table.waiting,
        waiting_calls=len(hub.waiters),
        taken_up=getattr(recovery, "taken_up", 0),
        commits=getattr(writer, "commits", 0),
        groups=getattr(writer, "groups", 0),
        workers=pool.workers,
        runnable=pool.runnable,
        abandoned=pool.abandoned,
        quarantined=len(hub.quarantined),
        set_aside=len(hub.aside),
    )


def health_of(core: Core | None) -> RuntimeHealth:
    """The health of a runtime; of one that was not started it says so."""
    if core is None:
        return RuntimeHealth(ready=False, reasons=("the runtime is not started",))
    reasons = tuple(_reasons(core))
    hub = core.hub
    waits = {"threads_running": hub.table.waiting, "messages": len(hub.unreached)}
    return RuntimeHealth(
        ready=not reasons,
        reasons=reasons,
        waits={name: count for name, count in waits.items() if count},
        abandoned=core.system.statistics().abandoned,
        set_aside=dict(list(core.hub.aside.items())[:_SHOWN]),
    )


def _reasons(core: Core) -> list[str]:
    hub = core.hub
    reasons: list[str] = []
    if core.forked:
        return [FORKED]
    if core.failure is not None:
        return [f"the runtime failed: {core.failure.message}"]
    if core.closed:
        return ["the runtime was closed"]
    if hub.fatal is not None:
        reasons.append(f"the runtime is about to fail: {hub.fatal}")
    if hub.draining:
        reasons.append("the runtime drains: tell() is kept, other calls are refused")
    if hub.full is not None:
        reasons.append(f"the store is full: {hub.full.message}")
    try:
        reasons += core.reasons()
    except StoreError as error:
        reasons.append(f"the store cannot be read: {error.message}")
    abandoned = core.system.statistics().abandoned
    if abandoned >= core.system.limits.max_abandoned:
        reasons.append(
            f"{abandoned} workers hang in killed nodes, so no sync node can start; restart the process"
        )
    return reasons
