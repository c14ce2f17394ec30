"""The demo's child process: runs the threads until they are complete, or until it is killed.

Not for people: `beamweaver demo` starts it, as `python -m beamweaver.demo.child`.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from beamweaver import Graph, Invoke, Runtime
from beamweaver.checkpoint import LMDBCheckpointer
from beamweaver.demo.graph import FileState, declare
from beamweaver.demo.index import report
from beamweaver.demo.ledger import Ledger
from beamweaver.demo.wire import Acknowledged, Finished, Line, Ready, Started, encode_line
from beamweaver.events import TaskAcknowledged, TaskStarted

if TYPE_CHECKING:
    from collections.abc import Callable

    from beamweaver.events import Event

__all__ = ["main"]

_RUN: Final = "index"


def main(arguments: list[str]) -> int:
    """Run the demo's child with its command line; returns the exit code."""
    options = _parse(arguments)
    tell = _teller(options.events)
    ledger = Ledger(options.ledger)
    paths: list[str] = msgspec.json.decode(options.files.read_bytes(), type=list[str])
    builder = declare(Graph(FileState, name="index-file"), options.root, ledger)
    app = builder.compile(checkpointer=LMDBCheckpointer(options.store))
    runtime = Runtime(app.checkpointer, graphs=[app])
    runtime.subscribe(
        lambda event: _forward(event, tell)
    )  # Recovery begins before the start returns
    with runtime:
        tell(Ready())
        entries = _run(runtime, app, paths)
    ledger.close()
    _write(options.report, msgspec.json.encode(report(entries)))
    tell(Finished())
    return 0


def _run(runtime: Runtime, app: Any, paths: list[str]) -> list[dict[str, Any]]:
    threads = [runtime.thread(path, graph=app) for path in paths]
    calls = [Invoke({"path": path}, run_id=_RUN) for path in paths]
    for thread, call in zip(threads, calls, strict=True):
        thread.tell(call)
    # The same call again, under the same run id: it joins, continues, or reads what is recorded.
    outcomes = [thread.ask(call) for thread, call in zip(threads, calls, strict=True)]
    return [outcome.state["entry"] for outcome in outcomes]


def _forward(event: Event, tell: Callable[[Line], None]) -> None:
    if isinstance(event, TaskStarted):
        tell(Started(event.thread_id, event.task_id, event.node, event.attempt))
    elif isinstance(event, TaskAcknowledged):
        tell(Acknowledged(event.thread_id, event.task_id, event.node))


def _teller(descriptor: int) -> Callable[[Line], None]:
    def tell(line: Line) -> None:
        os.write(descriptor, encode_line(line))

    return tell


def _write(path: Path, data: bytes) -> None:
    beside = path.with_name(path.name + ".part")
    beside.write_bytes(data)
    beside.replace(path)


def _parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m beamweaver.demo.child", description=__doc__)
    for name in ("store", "root", "ledger", "files", "report"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    parser.add_argument("--events", type=int, required=True, help="a file descriptor")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
