"""Exit reasons: why an actor ended, as small frozen values that compare by value."""

from __future__ import annotations

from typing import TypeAlias

import msgspec

__all__ = [
    "KILLED",
    "NORMAL",
    "NO_PROC",
    "SHUTDOWN",
    "Abnormal",
    "Crashed",
    "ExitReason",
    "Reason",
    "Shutdown",
    "is_quiet",
]


class Reason(msgspec.Struct, frozen=True):
    """A reason without data: one of `NORMAL`, `KILLED`, `NO_PROC`."""

    name: str

    def __repr__(self) -> str:
        return self.name.upper()


class Shutdown(msgspec.Struct, frozen=True):
    """An orderly end that somebody asked for; `term` says more, as OTP's `{shutdown, Term}`."""

    term: object = None

    def __repr__(self) -> str:
        return "SHUTDOWN" if self.term is None else f"Shutdown({self.term!r})"


class Crashed(msgspec.Struct, frozen=True):
    """A handler raised `error`, of any class: `SystemExit` too ends only its own actor."""

    error: BaseException


class Abnormal(msgspec.Struct, frozen=True):
    """An actor ended itself, or was ended, for a reason of the program's own: `term`."""

    term: object


ExitReason: TypeAlias = Reason | Shutdown | Crashed | Abnormal
"""Any exit reason."""

NORMAL = Reason("normal")
"""The actor had nothing more to do."""

KILLED = Reason("killed")
"""The actor was killed: it could not refuse, and `on_stop` did not run.

Actors linked to it that do not trap exits end for the same reason, in good order: their `on_stop` runs.
"""

NO_PROC = Reason("no_proc")
"""There was no such actor, or it had ended before the link, monitor or call was made."""

SHUTDOWN = Shutdown()
"""The actor was asked to end, by its supervisor or the system."""


def is_quiet(reason: ExitReason) -> bool:
    """Tell whether `reason` is an expected end: normal or any shutdown (OTP: no crash report).

    Example:
        >>> is_quiet(Shutdown("drained")), is_quiet(KILLED)
        (True, False)
    """
    return reason is NORMAL or type(reason) is Shutdown or reason == NORMAL
