"""P10: opening a store of parked threads, and activating one of them.

`python -m benchmarks.parked [--quick] [--threads N] [--json FILE]` fills a store, half with threads that wait
for an answer and half with threads that sleep for a year, then opens runtimes on it, each in a process of its
own. A thread that does not end as it was to ends it with an error. To activate is to ask a thread for its
run's end: it is loaded, takes the answer, and runs to its end, in three commits.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict

from benchmarks.report import machine

if TYPE_CHECKING:
    from beamweaver.checkpoint import LMDBCheckpointer

__all__ = ["main"]

_OPEN_S = 0.5
_ACTIVATE_MS = 1.0
_FULL, _QUICK = 1_000_000, 10_000
_GROUP = 2_000
_ACTIVATED = 200
_LOOKS = 5
"""How many processes open the store; each activates threads of its own."""
_YEAR = 365 * 86_400.0
_ROOT = Path(__file__).resolve().parent.parent


class _State(TypedDict, total=False):
    asked: str
    said: str


def _app() -> Any:
    from beamweaver import END, START, Graph, interrupt  # noqa: PLC0415  # only where it is measured

    def park(state: _State, ctx: Any) -> dict[str, str]:
        if state["asked"] == "sleep":
            ctx.sleep(_YEAR)
        return {"said": interrupt(state["asked"])}

    graph = Graph(_State, name="parked").add_node("park", park)
    return graph.add_edge(START, "park").add_edge("park", END).compile()


def _name(number: int) -> str:
    return f"thread-{number:07}"


def fill(path: str, count: int) -> None:
    """Park threads: two by running them, the others as copies of what these left, under their own ids."""
    from beamweaver import Invoke, Runtime  # noqa: PLC0415  # only where it is measured
    from beamweaver.checkpoint import LMDBCheckpointer  # noqa: PLC0415  # only where it is measured

    store = LMDBCheckpointer(path, survives="process-kill")
    with Runtime(store, graphs=[_app()]) as runtime:
        for number, asked in ((0, "yes or no?"), (1, "sleep")):
            runtime.thread(_name(number)).tell(Invoke({"asked": asked}))
            while runtime.get_state(_name(number)).status not in ("waiting", "sleeping"):
                time.sleep(0.01)
    _multiply(store, count)
    store.close()


def _multiply(store: LMDBCheckpointer, count: int) -> None:
    import msgspec  # noqa: PLC0415  # only where it is measured

    from beamweaver.checkpoint.records import Commit, Record  # noqa: PLC0415

    images = [store.load(_name(number)) for number in (0, 1)]
    epoch = store.acquire()
    batch: list[Commit] = []
    for number in range(2, count):
        image = images[number % 2]
        assert image is not None, "the first two threads are parked"
        name, run = _name(number), image.row.run
        row = msgspec.structs.replace(
            image.row,
            thread_id=name,
            run=msgspec.structs.replace(run, names=(f"run-{number}",), due_us=run.due_us + number),
        )
        checkpoint = msgspec.structs.replace(
            image.checkpoint.checkpoint, parent=-1, writes=image.values, versions=None
        )
        entries = tuple([entry for record in image.entries for entry in record.entries])
        record = Record(0, epoch, image.checkpoint.at_us, checkpoint, entries)
        names = ((f"run-{number}", 1),)
        batch.append(
            Commit(thread_id=name, incarnation=1, record=record, thread=row, run_names=names)
        )
        if len(batch) == _GROUP or number == count - 1:
            refused = [error for error in store.commit(epoch, batch) if error is not None]
            if refused:
                raise refused[0]
            batch = []
    store.release()


def look(path: str, count: int, turn: int) -> dict[str, Any]:
    """Open a runtime on the store, and activate threads all over it; milliseconds."""
    from beamweaver import Resume, Runtime  # noqa: PLC0415  # only where it is measured
    from beamweaver.checkpoint import LMDBCheckpointer  # noqa: PLC0415  # only where it is measured

    app = _app()
    began = time.perf_counter()
    store = LMDBCheckpointer(path, survives="process-kill")
    with Runtime(store, graphs=[app]) as runtime:
        opened = time.perf_counter() - began
        step = max(count // _ACTIVATED // 2, _LOOKS) * 2
        chosen = [_name(number) for number in range(2 * turn, count, step)][:_ACTIVATED]
        handles = [runtime.thread(name, app) for name in chosen]
        times = []
        for handle in handles:
            begin = time.perf_counter()
            outcome = handle.ask(Resume("yes"), timeout=30)
            times.append(time.perf_counter() - begin)
            if outcome.state != {"asked": "yes or no?", "said": "yes"}:
                raise ValueError(f"{handle} ended with {outcome}")
    return {
        "open_ms": opened * 1e3,
        "activate_ms": statistics.median(times) * 1e3,
        "activated": len(times),
    }


def _in_a_process(what: str, path: str, count: int, *more: str) -> str:
    command = [
        sys.executable,
        "-m",
        "benchmarks.parked",
        f"--{what}",
        path,
        "--threads",
        str(count),
    ]
    command += more
    done = subprocess.run(command, cwd=_ROOT, check=True, stdout=subprocess.PIPE, text=True)
    return done.stdout


def _measure(count: int, folder: str | None) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="bench-", dir=folder) as place:
        path = str(Path(place) / "s")
        began = time.perf_counter()
        _in_a_process("fill", path, count)
        filled = time.perf_counter() - began
        found = []
        for turn in range(_LOOKS):
            told = _in_a_process("look", path, count, "--turn", str(turn))
            found.append(json.loads(told.splitlines()[-1]))
        size = (Path(path) / "data.mdb").stat().st_size
    return {
        "threads": count,
        "open_ms": round(statistics.median([each["open_ms"] for each in found]), 2),
        "activate_ms": round(statistics.median([each["activate_ms"] for each in found]), 3),
        "activated": sum(each["activated"] for each in found),
        "store_mb": round(size / 1e6, 1),
        "filled_s": round(filled, 1),
    }


def _verdict(row: dict[str, Any]) -> str:
    opened = "met" if row["open_ms"] <= _OPEN_S * 1e3 else "MISSED"
    activated = "met" if row["activate_ms"] <= _ACTIVATE_MS else "MISSED"
    return (
        f"P10 {row['threads']:,} parked threads ({row['store_mb']} MB): open {row['open_ms']} ms "
        f"(at most {_OPEN_S * 1e3:g}: {opened}), activate one {row['activate_ms']} ms "
        f"(at most {_ACTIVATE_MS:g}: {activated}), medians of {row['activated']} activations"
    )


def main(argv: list[str] | None = None) -> int:
    """Measure, and print what was found."""
    parser = argparse.ArgumentParser(description="Opening a store of parked threads.")
    parser.add_argument("--quick", action="store_true", help=f"{_QUICK:,} threads")
    parser.add_argument("--threads", type=int, help=f"how many threads; {_FULL:,} if not given")
    parser.add_argument("--json", metavar="FILE", help="write the rows as a JSON list")
    parser.add_argument("--dir", metavar="FOLDER", help="where the store is made")
    parser.add_argument("--fill", help=argparse.SUPPRESS)
    parser.add_argument("--look", help=argparse.SUPPRESS)
    parser.add_argument("--turn", type=int, default=0, help=argparse.SUPPRESS)
    options = parser.parse_args(argv)
    count = options.threads or (_QUICK if options.quick else _FULL)
    if options.fill:
        fill(options.fill, count)
        return 0
    if options.look:
        print(json.dumps(look(options.look, count, options.turn)))
        return 0
    print(machine(options.dir or tempfile.gettempdir()), "", sep="\n")
    sizes = [count] if options.threads or options.quick else [count // 100, count]
    rows = []
    for size in sizes:
        rows.append(_measure(size, options.dir))
        print(_verdict(rows[-1]), flush=True)
    if options.json:
        Path(options.json).write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
