"""What the command line shows."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from rich.console import Console

    from beamweaver.checkpoint.records import ThreadSummary
    from beamweaver.demo import Progress as DemoProgress
    from beamweaver.demo import Verdict

__all__ = ["threads", "verdict", "watching"]


@contextlib.contextmanager
def watching(console: Console, *, silent: bool) -> Iterator[Callable[[DemoProgress], None]]:
    """A live bar for the demo's progress; nothing when silent or when nobody looks at a terminal."""
    if silent or not console.is_terminal:
        yield lambda _progress: None
        return
    columns = [
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.completed}/{task.total} tasks"),
        TimeElapsedColumn(),
    ]
    with Progress(*columns, console=console) as bar:
        task = bar.add_task("starting", total=None)

        def watch(progress: DemoProgress) -> None:
            killed = len(progress.kills)
            text = f"{progress.phase}, killed {killed} time{'' if killed == 1 else 's'}"
            bar.update(task, description=text, completed=progress.done, total=progress.total)

        yield watch


def verdict(console: Console, found: Verdict) -> None:
    """The demo's verdict as a table."""
    table = Table(show_header=False, box=None)
    table.add_column(style="bold")
    table.add_column(overflow="fold")
    reran = ", ".join(f"{count} {node}" for node, count in found.reran.items())
    rows = {
        "files indexed": f"{found.indexed} of {found.files}",
        "killed": _killed(found),
        "tasks": f"{found.tasks}; started more than once: {sum(found.reran.values())}"
        + (f" ({reran})" if reran else ""),
        "ledger": f"{found.ledger_lines} lines",
        "report": "equal to that of an uninterrupted run" if found.report_equal else "DIFFERENT",
        "seconds": f"{found.seconds:.1f} (direct, without a store: {found.direct_seconds:.1f})",
        "written to": found.report,
        **({"store": found.store} if found.store else {}),
    }
    for what, text in rows.items():
        table.add_row(what, text)
    console.print(table)
    for fault in found.faults:
        console.print(f"FAULT: {fault}", style="bold red", markup=False, highlight=False)
    words = "Every claim held." if found.ok else "The claims did not hold."
    console.print(words, style="bold green" if found.ok else "bold red")


def _killed(found: Verdict) -> str:
    wanted = found.kills_wanted
    times = (
        f"{len(found.kills)} times"
        if len(found.kills) == wanted
        else (
            f"{len(found.kills)} of {wanted} times (the work was done before the others were due)"
        )
    )
    when = f", when {', '.join(map(str, found.kills))} tasks had begun" if found.kills else ""
    return f"{times}{when} (seed {found.seed})"


def threads(console: Console, found: Sequence[ThreadSummary], limit: int) -> None:
    """Threads with their status."""
    table = Table("thread", "status", "graph")
    for each in found:
        table.add_row(each.thread_id, each.status, each.graph)
    console.print(table)
    if len(found) == limit:
        console.print(f"These are the first {limit}; --limit shows more.")
