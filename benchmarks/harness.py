"""Measuring: alternate the two sides, check that they computed the same, take medians."""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TypeAlias

from benchmarks.comparison import Comparison, Facts, Json, Options, Side, Size
from benchmarks.session import ProcessSession, Session
from benchmarks.side import PeerMissingError

__all__ = ["Measured", "Row", "WrongResultError", "measure"]

Launch: TypeAlias = Callable[[Side, str, Options], Session]


class WrongResultError(Exception):
    """A side computed something else than the work asks for, so its times mean nothing."""


@dataclass(frozen=True, slots=True)
class Measured:
    """The times of one side, microseconds a unit."""

    times: tuple[float, ...]
    cpu: tuple[float, ...]
    facts: Facts

    @property
    def median(self) -> float:
        return statistics.median(self.times)

    @property
    def least(self) -> float:
        return min(self.times)


@dataclass(frozen=True, slots=True)
class Row:
    """The outcome of one comparison; where `peer` is None, `missing` says why."""

    comparison: Comparison
    ours: Measured
    peer: Measured | None
    missing: str = ""
    size: Size = field(default="full")

    @property
    def ratio(self) -> float | None:
        """The peer's median time to ours: how many times as fast we are."""
        return None if self.peer is None else self.peer.median / self.ours.median

    def as_json(self) -> Facts:
        """The row as it stands in the file that `--json` names."""
        ratio = self.ratio
        return {
            "id": self.comparison.id,
            "name": self.comparison.name,
            "ours_us": round(self.ours.median, 3),
            "peer_us": None if self.peer is None else round(self.peer.median, 3),
            "ratio": None if ratio is None else round(ratio, 3),
            "peer": self.comparison.peer.label,
            "runs": len(self.ours.times),
            "unit": self.comparison.unit,
            "size": self.size,
            "ours": self.comparison.ours.label,
            "ours_min_us": round(self.ours.least, 3),
            "peer_min_us": None if self.peer is None else round(self.peer.least, 3),
            "missing": self.missing or None,
            "facts": {"ours": self.ours.facts, "peer": self.peer.facts if self.peer else None},
        }


class _Running:
    """One side on its way: checked at each repetition, times kept."""

    def __init__(self, side: Side, session: Session, expected: Json) -> None:
        self._side = side
        self._session = session
        self._expected = expected
        self._times: list[float] = []
        self._cpu: list[float] = []
        self._check(session.warm_up())

    def run(self) -> None:
        reply = self._session.run()
        self._check(reply["result"])
        wall, cpu = reply["us"], reply["cpu_us"]
        assert isinstance(wall, float)
        assert isinstance(cpu, float)
        self._times.append(wall)
        self._cpu.append(cpu)

    def end(self) -> Measured:
        return Measured(tuple(self._times), tuple(self._cpu), self._session.end())

    def _check(self, result: Json) -> None:
        if result != self._expected:
            raise WrongResultError(
                f"{self._side.label} computed {_short(result)}, the work asks for "
                f"{_short(self._expected)}; no time is reported"
            )


def _short(value: Json) -> str:
    text = repr(value)
    return text if len(text) <= 200 else f"{text[:200]}… ({len(text)} characters)"


def measure(
    comparison: Comparison,
    size: Size,
    *,
    peers: bool = True,
    folder: str | None = None,
    launch: Launch = ProcessSession,
) -> Row:
    """Run one comparison: a warm-up each, then the sides in turn, A B A B.

    Args:
        comparison: What to compare.
        size: Which of its sizes.
        peers: False leaves the peer out: our side alone is run and checked.
        folder: Where each side gets a temporary folder for its store; None: the system's.
        launch: How a side is opened: in a process of its own by default.

    Returns:
        The row. A peer that is not installed is named in it, and our side is measured all the same.

    Raises:
        WrongResultError: A side computed something else than the work asks for.
        SideFailedError: A side raised or gave no answer in time.
    """
    options = dict(comparison.sizes[size])
    expected = comparison.expected(options)
    with ExitStack() as stack:

        def start(side: Side) -> _Running:
            place = stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-", dir=folder))
            session = launch(side, place, options)
            stack.callback(session.close)
            return _Running(side, session, expected)

        missing = "" if peers else "left out"
        peer: _Running | None = None
        if peers:
            try:
                peer = start(comparison.peer)
            except PeerMissingError as gone:
                missing = f"{gone} is not installed"
        ours = start(comparison.ours)
        for _ in range(comparison.runs[size]):
            ours.run()
            if peer is not None:
                peer.run()
        return Row(comparison, ours.end(), peer.end() if peer else None, missing, size)
