"""What a run prints: a plain table, then lines about versions, stores and the machine."""

from __future__ import annotations

import os
import platform
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from benchmarks.comparison import Facts
    from benchmarks.harness import Measured, Row

__all__ = ["machine", "table", "verdict"]


def verdict(row: Row) -> str:
    """How the ratio stands to what is needed and aimed at, in words."""
    wanted = row.comparison
    ratio = row.ratio
    if ratio is None:
        return f"peer missing: {row.missing}"
    parts = [
        f"{name} {bound:g}x {'met' if ratio >= bound else 'MISSED'}"
        for name, bound in (("needed", wanted.needed), ("aim", wanted.aim))
        if bound is not None
    ]
    return ", ".join(parts)


def table(rows: Sequence[Row]) -> str:
    """The rows as a plain table, each followed by who was compared."""
    head = ("id", "what", "unit", "ours µs", "(min)", "peer µs", "(min)", "ratio", "verdict")
    cells = [head, *(_cells(row) for row in rows)]
    widths = [max(len(line[i]) for line in cells) for i in range(len(head))]
    lines = [_line(line, widths) for line in cells]
    lines.insert(1, "  ".join("-" * width for width in widths))
    lines.append("")
    for row in rows:
        lines.extend(_details(row))
    return "\n".join(lines)


def _cells(row: Row) -> tuple[str, ...]:
    wanted = row.comparison
    ratio = row.ratio
    return (
        wanted.id,
        wanted.name,
        wanted.unit,
        *_times(row.ours),
        *(_times(row.peer) if row.peer else ("-", "-")),
        "-" if ratio is None else f"{ratio:.2f}x",
        verdict(row),
    )


def _times(side: Measured) -> tuple[str, str]:
    return _microseconds(side.median), _microseconds(side.least)


def _microseconds(value: float) -> str:
    return f"{value:,.1f}" if value >= 10 else f"{value:.2f}"


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    left = {1, 2, 8}
    return "  ".join(
        cell.ljust(width) if i in left or i == 0 else cell.rjust(width)
        for i, (cell, width) in enumerate(zip(cells, widths, strict=True))
    ).rstrip()


def _details(row: Row) -> Iterator[str]:
    wanted = row.comparison
    sizes = ", ".join(f"{key}={value}" for key, value in wanted.sizes[row.size].items())
    yield f"{wanted.id} {wanted.name}: {sizes}; medians of {len(row.ours.times)} runs, in turn"
    yield f"   ours: {wanted.ours.label}{_facts(row.ours.facts)}"
    if row.peer is None:
        yield f"   peer missing: {wanted.peer.label} ({row.missing})"
    else:
        yield f"   peer: {wanted.peer.label}{_facts(row.peer.facts)}"
    if wanted.note:
        yield f"   note: {wanted.note}"


def _facts(facts: Facts) -> str:
    words: list[str] = []
    for key, value in facts.items():
        if isinstance(value, dict):
            words.extend(f"{name} {version}" for name, version in value.items())
        else:
            words.append(f"{key} {value:.3f}" if isinstance(value, float) else f"{key} {value}")
    return f" [{'; '.join(words)}]" if words else ""


def machine(folder: str) -> str:
    """One line: cores, processor, Python, load, and the file system that the stores lie on."""
    load = ", ".join(f"{value:.1f}" for value in os.getloadavg())
    return (
        f"machine: {os.cpu_count()} cores ({_processor()}), "
        f"{platform.system()} {platform.release()}, Python {platform.python_version()}, "
        f"load {load}, stores on {_file_system(folder)}"
    )


def _processor() -> str:
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return platform.machine()
    for line in text.splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def _file_system(folder: str) -> str:
    """The type of the file system that holds a folder; the longest mount point above it decides."""
    place = str(Path(folder).resolve())
    best, kind = "", "an unknown file system"
    try:
        mounts = Path("/proc/mounts").read_text(encoding="utf-8")
    except OSError:
        return kind
    for line in mounts.splitlines():
        _, point, name, *_ = line.split()
        above = place == point or place.startswith(point.rstrip("/") + "/")
        if above and len(point) >= len(best):
            best, kind = point, name
    return kind
