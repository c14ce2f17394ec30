"""One side of a comparison: loaded, warmed up, timed. As a program it serves its parent.

The parent writes `run` or `end` a line; the side answers each with one JSON object a line. A fresh
interpreter a side keeps one library's heap and threads away from the other's times.
"""

from __future__ import annotations

import gc
import importlib
import importlib.metadata
import json
import os
import sys
import time
import traceback
from contextlib import ExitStack
from typing import IO, TYPE_CHECKING

if TYPE_CHECKING:
    from benchmarks.comparison import Facts, Json, Open, Options, Workload

__all__ = ["LoadedSide", "PeerMissingError", "load", "serve", "versions"]


class PeerMissingError(Exception):
    """A distribution that a side needs is not installed."""


def versions(needs: tuple[str, ...]) -> Facts:
    """The versions of distributions.

    Raises:
        PeerMissingError: One is not installed.
    """
    found: Facts = {}
    for name in needs:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            raise PeerMissingError(name) from None
    return found


class LoadedSide:
    """A side that is open in this process; `run` times one repetition."""

    def __init__(self, opened: Workload, stack: ExitStack, facts: Facts, *, freeze: bool) -> None:
        self._workload = opened
        self._stack = stack
        self._facts = facts
        self._freeze = freeze

    def warm_up(self) -> Json:
        """One repetition that is not timed; then the heap is frozen. Returns what it computed."""
        self._workload.before()
        result = self._workload.work()
        if self._freeze:
            gc.collect()
            gc.freeze()
        return result

    def run(self) -> Facts:
        """One timed repetition: microseconds a unit, wall and CPU, and what it computed."""
        self._workload.before()
        gc.collect()
        cpu = time.process_time()
        begin = time.perf_counter()
        result = self._workload.work()
        wall = time.perf_counter() - begin
        cpu = time.process_time() - cpu
        scale = 1e6 / self._workload.units
        return {"us": wall * scale, "cpu_us": cpu * scale, "result": result}

    def end(self) -> Facts:
        """Close the side; returns the facts that it noted."""
        self._stack.close()
        return self._facts


def load(
    target: str, needs: tuple[str, ...], folder: str, options: Options, *, freeze: bool
) -> LoadedSide:
    """Open a side in this process.

    Args:
        target: `module:function`, an `Open`.
        needs: Distributions it cannot do without.
        folder: An empty folder for its files.
        options: Its options and sizes.
        freeze: Freeze the heap after the warm-up, as a process that is the side's own may.

    Raises:
        PeerMissingError: A distribution is not installed.
    """
    facts: Facts = {"versions": versions(needs)}
    module, _, function = target.partition(":")
    opener: Open = getattr(importlib.import_module(module), function)
    stack = ExitStack()
    workload = stack.enter_context(opener(facts, folder, **options))
    return LoadedSide(workload, stack, facts, freeze=freeze)


def serve(replies: IO[str], request: Facts) -> None:
    """Serve a parent as the side that it asks for, until it says `end`."""

    def reply(message: Facts) -> None:
        replies.write(json.dumps(message) + "\n")
        replies.flush()

    try:
        side = load(
            str(request["target"]),
            tuple(request["needs"]),  # type: ignore[arg-type]  # the parent sends a list of names
            str(request["folder"]),
            request["options"],  # type: ignore[arg-type]  # the parent sends an object
            freeze=True,
        )
        reply({"result": side.warm_up()})
        for line in sys.stdin:
            if line.strip() == "end":
                reply(side.end())
                return
            reply(side.run())
    except PeerMissingError as missing:
        reply({"missing": str(missing)})
    except Exception:  # whatever a side raises is told to the parent, which stops the comparison
        reply({"error": traceback.format_exc()})


if __name__ == "__main__":
    # What a library prints must not mix with the replies, so they go over a copy of the descriptor.
    with os.fdopen(os.dup(1), "w") as _replies:
        os.dup2(2, 1)
        # By its own name, as sides import it: what they raise is not of the class in `__main__`.
        importlib.import_module("benchmarks.side").serve(_replies, json.loads(sys.argv[1]))
