"""Checks, and how they are run and reported."""

from __future__ import annotations

import tempfile
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias

import msgspec

from beamweaver.checkpoint.base import no_faults

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from beamweaver.checkpoint.base import Checkpointer

__all__ = [
    "CHECKS",
    "Capability",
    "Check",
    "Failure",
    "Place",
    "Report",
    "Unfulfilled",
    "check",
    "expect",
    "raises",
    "run",
]

Open: TypeAlias = "Callable[[Path], Checkpointer]"


class Unfulfilled(AssertionError):
    """A store did something else than was expected of it."""


class Place:
    """A place of a check's own; opening it again opens the same store.

    Args:
        path: Where it is; nothing is there yet.
        make: Opens the store of a path.
    """

    def __init__(self, path: Path, make: Open) -> None:
        self._path = path
        self._make = make
        self._opened: list[Checkpointer] = []

    def open(self) -> Checkpointer:
        """Open the place once more."""
        store = self._make(self._path)
        self._opened.append(store)
        return store

    def reopened(self, store: Checkpointer) -> Checkpointer:
        """Close and open it, as the next process does."""
        store.faults = no_faults
        store.close()
        return self.open()

    def close(self) -> None:
        """Close all that was opened."""
        for store in self._opened:
            store.faults = no_faults
            store.close()


class Check(msgspec.Struct, frozen=True):
    """One check: what it is about, what is true of a store that passes it, and the code."""

    capability: str
    name: str
    call: Callable[[Place], None]


class Failure(msgspec.Struct, frozen=True):
    """A check that failed, and why: the error's text, and where it was raised."""

    check: str
    reason: str
    traceback: str


class Capability(msgspec.Struct, frozen=True):
    """What became of the checks of one capability."""

    passed: tuple[str, ...]
    failed: tuple[Failure, ...]


class Report(msgspec.Struct, frozen=True):
    """What became of all checks; `str()` gives a line for each capability and each failure."""

    capabilities: dict[str, Capability]

    @property
    def passed(self) -> bool:
        """Whether no check failed."""
        return not any(found.failed for found in self.capabilities.values())

    def __str__(self) -> str:
        lines: list[str] = []
        for name, found in self.capabilities.items():
            lines.append(f"{name}: {len(found.passed)} passed, {len(found.failed)} failed")
            lines += [f"  {failure.check}: {failure.reason}" for failure in found.failed]
        return "\n".join(lines)


CHECKS: Final[list[Check]] = []
"""All checks, in their order."""


def check(capability: str) -> Callable[[Callable[[Place], None]], Callable[[Place], None]]:
    """Make a function a check; its name is a sentence that is true of a store that passes it."""

    def add(call: Callable[[Place], None]) -> Callable[[Place], None]:
        CHECKS.append(Check(capability, call.__name__.replace("_", " "), call))
        return call

    return add


def expect(found: object, wanted: object, what: str = "the answer") -> None:
    """See that two things are equal.

    Raises:
        Unfulfilled: They are not.
    """
    if found != wanted:
        raise Unfulfilled(f"{what} is {_short(found)}, and {_short(wanted)} was expected")


def raises(error: type[BaseException], call: Callable[[], object], what: str) -> BaseException:
    """See that a call raises an error, and give it.

    Raises:
        Unfulfilled: It does not.
    """
    try:
        answer = call()
    except error as caught:
        return caught
    raise Unfulfilled(f"{what} gives {_short(answer)}, and {error.__name__} was expected")


def run(make: Open, *, only: Iterable[str] | None = None) -> Report:
    """Run the checks on a store.

    Args:
        make: Opens the store of a path, in a folder that exists; the path itself is free. The same path is
            opened several times: a store that lives in this process gives the same object.
        only: Names of capabilities; None for all.

    Returns:
        What passed and what failed; nothing is raised for a failure.

    Example:
        >>> from beamweaver.checkpoint import LMDBCheckpointer
        >>> report = run(lambda path: LMDBCheckpointer(path, survives="process-kill"), only=["owners"])
        >>> report.passed
        True
    """
    wanted = None if only is None else set(only)
    passed: dict[str, list[str]] = {}
    failed: dict[str, list[Failure]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for number, item in enumerate(CHECKS):
            if wanted is not None and item.capability not in wanted:
                continue
            passed.setdefault(item.capability, [])
            failed.setdefault(item.capability, [])
            failure = _run_one(item, Place(Path(folder) / str(number), make))
            if failure is None:
                passed[item.capability].append(item.name)
            else:
                failed[item.capability].append(failure)
    return Report({name: Capability(tuple(passed[name]), tuple(failed[name])) for name in passed})


def _run_one(item: Check, place: Place) -> Failure | None:
    try:
        item.call(place)
    except Exception as error:  # noqa: BLE001 whatever a store raises is a failure of the check
        reason = (
            str(error) if isinstance(error, Unfulfilled) else f"{type(error).__name__}: {error}"
        )
        return Failure(item.name, reason, traceback.format_exc())
    finally:
        place.close()
    return None


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 300 else text[:297] + "..."
