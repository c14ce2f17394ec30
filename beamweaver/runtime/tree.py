"""The supervision tree of a runtime."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from beamweaver.runtime.nodeloop import NodeLoop
from beamweaver.runtime.postman import Postman
from beamweaver.runtime.recovery import Recovery
from beamweaver.runtime.registry import Registry
from beamweaver.runtime.threads import ThreadSupervisor
from beamweaver.runtime.timers import Timers
from beamweaver.runtime.writer import CheckpointWriter
from supervisors import ChildSpec, Supervisor

if TYPE_CHECKING:
    from collections.abc import Callable

    from beamweaver.runtime.hub import Hub
    from supervisors import ActorRef, ExitReason

__all__ = ["children", "start_tree"]


def children(hub: Hub) -> list[ChildSpec]:
    """The tree's children in their order: each depends on those before it, so rest_for_one."""
    specs = [
        ChildSpec("registry", Registry, args=(hub,)),
        ChildSpec("timers", Timers, args=(hub,)),
        # What is significant ends for good when the runtime cannot go on (`Hub.fatal`), and the tree with it.
        ChildSpec("writer", CheckpointWriter, args=(hub,), restart="transient", significant=True),
        ChildSpec("loop", NodeLoop, args=(hub,), restart="transient", significant=True),
        ChildSpec("threads", ThreadSupervisor, args=(hub,)),
        ChildSpec("recovery", Recovery, args=(hub,)),
    ]
    if hub.store.spool is not None:
        given = (hub, hub.store.spool)
        specs.append(
            ChildSpec("postman", Postman, args=given, restart="transient", significant=True)
        )
    return specs


def start_tree(
    hub: Hub,
    specs: list[ChildSpec],
    *,
    max_restarts: int,
    max_seconds: float,
    on_end: Callable[[ExitReason], None],
) -> ActorRef[Any]:
    """Start the tree of these parts; `on_end` hears how its root ended.

    Raises:
        StartError: A child could not start.
    """
    root = hub.system.start(
        Supervisor,
        specs,
        strategy="rest_for_one",
        intensity=max_restarts,
        period=max_seconds,
        auto_shutdown="any_significant",
    )
    ended = hub.system.monitor_from_outside(root)
    ended.add_done_callback(lambda future: on_end(future.get()))
    return root
