"""The command line that all benchmark modules share."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks import report
from benchmarks.harness import Row, WrongResultError, measure
from benchmarks.session import SideFailedError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.comparison import Comparison, Size

__all__ = ["main"]


def main(comparisons: Sequence[Comparison], argv: Sequence[str] | None = None) -> int:
    """Run comparisons and print the table.

    Args:
        comparisons: What to run, in this order.
        argv: Arguments; None: the process's.

    Returns:
        The exit code: 0, or 1 if a side failed or computed a wrong result.
    """
    options = _parser().parse_args(argv)
    size: Size = "quick" if options.quick else "full"
    folder = options.dir or tempfile.gettempdir()
    rows: list[Row] = []
    failures: list[str] = []
    for comparison in _chosen(comparisons, options.only):
        print(f"{comparison.id} {comparison.name} …", file=sys.stderr, flush=True)
        try:
            rows.append(measure(comparison, size, peers=not options.ours_only, folder=options.dir))
        except (SideFailedError, WrongResultError) as failure:
            failures.append(f"{comparison.id} {comparison.name}: FAILED: {failure}")
    text = "\n".join([report.machine(folder), "", report.table(rows), *failures])
    print(text)
    if options.json:
        listed = json.dumps([row.as_json() for row in rows], indent=1)
        Path(options.json).write_text(listed + "\n", encoding="utf-8")
    if options.report:
        Path(options.report).write_text(text + "\n", encoding="utf-8")
    return 1 if failures else 0


def _chosen(comparisons: Sequence[Comparison], only: str | None) -> list[Comparison]:
    if only is None:
        return list(comparisons)
    wanted = {word.strip().upper() for word in only.split(",")}
    chosen = [comparison for comparison in comparisons if comparison.id in wanted]
    if not chosen:
        known = ", ".join(dict.fromkeys(comparison.id for comparison in comparisons))
        raise SystemExit(f"--only {only} names no comparison; there are {known}")
    return chosen


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="Compare with peers; times are per unit.")
    parser.add_argument("--quick", action="store_true", help="small sizes; all under a minute")
    parser.add_argument("--json", metavar="FILE", help="write the rows as a JSON list")
    parser.add_argument("--report", metavar="FILE", help="write the printed text")
    parser.add_argument("--only", metavar="IDS", help="for example P1,P5")
    parser.add_argument("--ours-only", action="store_true", help="leave the peers out")
    parser.add_argument("--dir", metavar="FOLDER", help="where the stores are made")
    return parser
