"""Traces: what was observed, step by step; as text, and the files that keep them."""

from __future__ import annotations

from typing import TypeAlias

from tests.otp.scenario import FOLDER

__all__ = ["Trace", "from_text", "golden", "release", "to_text"]

Trace: TypeAlias = list[tuple[str, list[str]]]
"""The steps, each with the lines that were observed after it: the step's own result (`= ...`), what
happened to supervised processes in order, and what each witness saw (`witness: ...`), in order."""


def to_text(trace: Trace) -> str:
    """Return `trace` as lines of text."""
    return "".join(
        f"> {step}\n" + "".join(f"  {line}\n" for line in observed) for step, observed in trace
    )


def from_text(text: str) -> dict[str, Trace]:
    """Return the traces of `text`, by title."""
    found: dict[str, Trace] = {}
    for line in text.splitlines():
        if line.startswith("# "):
            trace = found[line.removeprefix("# ")] = []
        elif line.startswith("> "):
            trace.append((line.removeprefix("> "), []))
        elif line.startswith("  "):
            trace[-1][1].append(line.removeprefix("  ").rstrip())
    return found


def golden() -> dict[str, Trace]:
    """Return the traces that were recorded from OTP, by title."""
    found: dict[str, Trace] = {}
    for path in sorted((FOLDER / "traces").glob("*.txt")):
        found.update(from_text(path.read_text()))
    return found


def release() -> str:
    """Return which OTP release was recorded."""
    return (FOLDER / "traces" / "RELEASE").read_text().strip()
