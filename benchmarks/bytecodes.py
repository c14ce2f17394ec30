"""Python's own instructions a step, by function: `python -m benchmarks.bytecodes [--store memory]`.

Times vary with the machine and with who else is on it; this count does not. It is made by a trace
function on the worker between two nodes of a line, and leaves out what C code does. As a rule of
thumb a step's time without I/O goes with it.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import threading
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks import our_side, shapes

if TYPE_CHECKING:
    from types import CodeType, FrameType

__all__ = ["Steps", "count", "main"]

_STORES = ("memory", "process-kill")  # where a step waits for the disk, other workers take over
_ROOT = str(Path(__file__).resolve().parent.parent) + "/"


class Steps:
    """What ran on a worker between two nodes of a line.

    Attributes:
        steps: How many steps that were.
        bytecodes: How often each function executed an instruction.
        calls: How often each function was called.
    """

    def __init__(self, steps: int) -> None:
        self.steps = steps
        self.bytecodes: Counter[CodeType] = Counter()
        self.calls: Counter[CodeType] = Counter()
        self.worker = 0

    def trace(self, frame: FrameType, event: str, _arg: object) -> Any:
        """The trace function; only what the worker does counts, and not what its keeper does."""
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        if self.worker == threading.get_ident():
            if event == "opcode":
                self.bytecodes[frame.f_code] += 1
            elif event == "call":
                self.calls[frame.f_code] += 1
        return self.trace

    def lines(self, top: int) -> list[str]:
        """The report."""
        total, calls = sum(self.bytecodes.values()), sum(self.calls.values())
        found = [f"{total / self.steps:.0f} instructions and {calls / self.steps:.0f} calls a step"]
        for code, number in self.bytecodes.most_common(top):
            place = f"{code.co_filename.removeprefix(_ROOT)}:{code.co_firstlineno}"
            each = self.calls[code] / self.steps
            found.append(f"{number / self.steps:7.1f} {each:5.2f} calls  {place} {code.co_name}")
        return found


def count(store: str, nodes: int) -> Steps:
    """Run a line of nodes on a store of that name, and count between an early and a late one."""
    begin, end = nodes // 4, nodes - nodes // 4
    seen = Steps(end - begin)
    at = 0

    def body(state: shapes.Line) -> dict[str, int]:
        nonlocal at
        at += 1
        if at == begin:
            seen.worker = threading.get_ident()
        elif at == end:
            seen.worker = 0
        return shapes.increment(state)

    threading.settrace(seen.trace)
    try:
        with tempfile.TemporaryDirectory() as folder:
            graph = our_side.line_graph([body] * nodes)
            with graph.compile(checkpointer=our_side.checkpointer(store, folder)) as app:
                app.invoke({"n": 0}, thread_id="line", recursion_limit=nodes + 10)
    finally:
        threading.settrace(None)
    return seen


def main(argv: list[str]) -> int:
    """Print the counts; the exit code is 0."""
    parser = argparse.ArgumentParser(description="Python's instructions a step of ours.")
    parser.add_argument("--store", choices=_STORES)
    parser.add_argument("--nodes", type=int, default=100)
    parser.add_argument("--top", type=int, default=25, help="functions listed")
    options = parser.parse_args(argv)
    for store in [options.store] if options.store else _STORES:
        print(f"line, {store}:", *count(store, options.nodes).lines(options.top), sep="\n   ")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
