"""A look at a running system: what there is, what runs where, and where it hangs."""

from __future__ import annotations

import sys
import threading
import traceback
from typing import TYPE_CHECKING

import msgspec

from supervisors.tree import tree

if TYPE_CHECKING:
    from supervisors.system import ActorSystem

__all__ = ["dump"]


def dump(system: ActorSystem) -> str:
    """Return the tree, the statistics, and the stack of every OS thread, as text for people.

    For a log when something hangs. Takes milliseconds, and stops nobody.

    Args:
        system: which
    """
    statistics = msgspec.structs.asdict(system.statistics())
    numbers = ", ".join(f"{name}={value}" for name, value in statistics.items())
    parts = [tree(system).text(), "", numbers]
    for thread in threading.enumerate():
        frame = sys._current_frames().get(thread.ident or 0)  # noqa: SLF001 - the documented way
        if frame is not None:
            stack = "".join(traceback.format_stack(frame)).rstrip()
            parts += ["", f"{thread.name}:", stack]
    return "\n".join(parts)
