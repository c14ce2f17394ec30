"""Traces: what was observed, step by step; as text, and the files that keep them.

`traces/` has what OTP did. `differences.txt` has the scenarios in which ours is to differ: the rule that
says so, why, and the whole trace that is expected. `open.txt` has those in which ours must not differ,
and does: each line of it is a fault to mend.
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from tests.otp.scenario import FOLDER

__all__ = [
    "Difference",
    "Trace",
    "differences",
    "faults",
    "from_text",
    "golden",
    "release",
    "to_text",
    "write_differences",
]

Trace: TypeAlias = list[tuple[str, list[str]]]
"""The steps, each with the lines that were observed after it: the step's own result (`= ...`), what
happened to supervised processes in order, and what each witness saw (`witness: ...`), in order."""

_DIFFERENCES = FOLDER / "differences.txt"


class Difference(msgspec.Struct, frozen=True):
    """A scenario in which ours is to differ from the release that was recorded."""

    rule: str
    why: str
    trace: list[tuple[str, list[str]]]


def to_text(trace: Trace) -> str:
    """Return `trace` as lines of text."""
    return "".join(
        f"> {step}\n" + "".join(f"  {line}\n" for line in observed) for step, observed in trace
    )


def from_text(text: str) -> dict[str, Trace]:
    """Return the traces of `text`, by title."""
    found: dict[str, Trace] = {}
    for title, lines in _blocks(text):
        trace = found[title] = []
        for line in lines:
            if line.startswith("> "):
                trace.append((line.removeprefix("> "), []))
            elif line.startswith("  "):
                trace[-1][1].append(line.strip())
    return found


def _blocks(text: str) -> list[tuple[str, list[str]]]:
    blocks = [block.splitlines() for block in text.split("\n\n") if block.strip()]
    return [(lines[0].removeprefix("# "), lines[1:]) for lines in blocks]


def golden() -> dict[str, Trace]:
    """Return the traces that were recorded from OTP, by title."""
    found: dict[str, Trace] = {}
    for path in sorted((FOLDER / "traces").glob("*.txt")):
        found.update(from_text(path.read_text()))
    return found


def release() -> str:
    """Return which OTP release was recorded."""
    return (FOLDER / "traces" / "RELEASE").read_text().strip()


def differences() -> dict[str, Difference]:
    """Return the scenarios in which ours is to differ, by title."""
    text = _DIFFERENCES.read_text()
    traces = from_text(text)
    found = {}
    for title, lines in _blocks(text):
        rule, why = lines[0].removeprefix("by ").split(": ", 1)
        found[title] = Difference(rule, why, traces[title])
    return found


def write_differences(found: dict[str, Difference]) -> None:
    """Keep `found` as what is expected from now on."""
    _DIFFERENCES.write_text(
        "\n".join(
            f"# {title}\nby {difference.rule}: {difference.why}\n{to_text(difference.trace)}"
            for title, difference in found.items()
        )
    )


def faults() -> dict[str, str]:
    """Return the scenarios in which ours differs and must not, each with what is wrong."""
    return {title: " ".join(lines) for title, lines in _blocks((FOLDER / "open.txt").read_text())}
