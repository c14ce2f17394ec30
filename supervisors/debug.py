"""A look at a running system: what there is, what runs where, and where it hangs."""

from __future__ import annotations

import signal
import sys
import threading
import traceback
from _thread import start_new_thread
from typing import TYPE_CHECKING

import msgspec

from supervisors.tree import tree

if TYPE_CHECKING:
    from collections.abc import Callable

    from supervisors.system import ActorSystem

__all__ = ["dump", "dump_on_signal"]


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


def dump_on_signal(
    system: ActorSystem,
    number: int = signal.SIGUSR1,
    write: Callable[[str], object] = sys.stderr.write,
) -> Callable[[], None]:
    """Have `dump(system)` written whenever this process gets a signal. Call it in the main thread.

    The dump is made on a thread of its own, so it also tells where the main thread is. It needs that
    thread to run Python now and then; if it hangs in C, `faulthandler.register` still shows stacks.

    Args:
        system: which
        number: the signal
        write: what takes the text

    Returns:
        what undoes it
    """

    def on_signal(_number: int, _frame: object) -> None:
        # no lock may be taken here: the main thread may hold any
        start_new_thread(lambda: write(dump(system) + "\n"), ())

    before = signal.signal(number, on_signal)

    def undo() -> None:
        signal.signal(number, before)

    return undo
