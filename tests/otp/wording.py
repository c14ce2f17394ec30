"""Exit reasons, answers and errors as the words that traces have: only what both sides can say."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TypeAlias

from supervisors import (
    INFINITY,
    KILLED,
    NO_PROC,
    NORMAL,
    SHUTDOWN,
    Abnormal,
    ActorExit,
    AlreadyStarted,
    CallingSelf,
    CallTimeout,
    ChildSpec,
    Crashed,
    ExitReason,
    InvalidSpec,
    RestartsExceeded,
    Shutdown,
    StartError,
    SupervisorsError,
)

__all__ = ["Boom", "error_words", "reason", "reason_words", "spec_words", "start_words"]

Named: TypeAlias = Callable[[object], str]

_REASONS: dict[str, ExitReason] = {
    "normal": NORMAL,
    "shutdown": SHUTDOWN,
    "killed": KILLED,
    "noproc": NO_PROC,
}


class Boom(Exception):
    """What `raise` raises; its argument is a word."""


def reason(word: str) -> ExitReason:
    """Return a word of a scenario as an exit reason."""
    if word.startswith("shutdown:"):
        return Shutdown(word.removeprefix("shutdown:"))
    return _REASONS.get(word, Abnormal(word))


def reason_words(value: ExitReason, name: Named) -> str:
    """Return `value` in words; `name` gives the names of processes.

    A supervisor that gave up ends with `Shutdown(RestartsExceeded(...))`, OTP's with plain `shutdown`:
    here both are `shutdown`.
    """
    if isinstance(value, Crashed):
        return _crash_words(value.error, name)
    if isinstance(value, Abnormal):
        return str(value.term)
    if not isinstance(value, Shutdown):
        return {NORMAL: "normal", KILLED: "killed", NO_PROC: "noproc"}[value]
    if value.term is None or isinstance(value.term, RestartsExceeded):
        return "shutdown"
    if isinstance(value.term, StartError):
        why = reason_words(value.term.reason, name)
        return f"shutdown:failed_to_start({value.term.child_id},{why})"
    return f"shutdown:{value.term}"


def _crash_words(error: BaseException, name: Named) -> str:
    if isinstance(error, Boom):
        return f"error:{error.args[0]}"
    if isinstance(error, CallTimeout):
        return "timeout"
    if isinstance(error, CallingSelf):
        return "call:calling_self"
    if isinstance(error, ActorExit):
        return f"call:{reason_words(error.reason, name)}"
    if isinstance(error, AlreadyStarted):
        return f"already_started {name(error.ref)}"
    if isinstance(error, InvalidSpec):
        return "not_for_dynamic" if error.field == "request" else f"invalid {error.field}"
    unknown = re.search(r"unexpected keyword argument '(\w+)'", str(error))
    return f"invalid {unknown[1]}" if unknown else f"error:{error!r}"


def error_words(error: BaseException, name: Named) -> str:
    """Return what a supervisor refused, or how a call failed, in words."""
    if isinstance(error, ActorExit):
        return f"exit {reason_words(error.reason, name)}"
    if isinstance(error, StartError):
        return f"error start_error {reason_words(error.reason, name)}"
    if isinstance(error, AlreadyStarted | InvalidSpec):
        return f"error {_crash_words(error, name)}"
    if isinstance(error, CallTimeout):
        return "timeout"
    if isinstance(error, SupervisorsError):
        return f"error {error.code}"
    return f"error {error!r}"


def start_words(error: StartError, name: Named) -> str:
    """Return why a whole supervisor did not start, in words."""
    return f"error {reason_words(error.reason, name)}"


def spec_words(spec: ChildSpec) -> str:
    """Return `spec` in words, with its defaults."""
    rule = spec.shutdown_rule
    seconds = rule if isinstance(rule, float | int) else None
    shutdown = (
        rule if seconds is None else "infinity" if seconds == INFINITY else round(seconds * 1000)
    )
    significant = str(spec.significant).lower()
    child = "child" if spec.id is None else spec.id  # OTP's dynamic children share one id
    return f"{child} {spec.restart} {spec.child_type} shutdown={shutdown} significant={significant}"
