"""Answers as callers get them: waited for, and given out or raised."""

from __future__ import annotations

from typing import TYPE_CHECKING

from beamweaver.engine.calls import CallKind
from beamweaver.engine.effects import Updated
from beamweaver.errors import AskTimeout, BeamWeaverError, InvalidCall, RunFailed
from beamweaver.types import Failed, Receipt
from supervisors import CallTimeout

if TYPE_CHECKING:
    from beamweaver.engine.calls import Call
    from beamweaver.runtime.waiters import Answer, Waiters, Waiting
    from beamweaver.types import Outcome

__all__ = ["ask_timeout", "await_outcome", "check_on_disconnect", "given", "given_id", "goes_on"]


def await_outcome(
    waiters: Waiters, waiting: Waiting, thread_id: str, *, timeout: float | None, raises: bool
) -> Outcome:
    """Wait for a call's answer and give it out as users expect it."""
    try:
        answer = waiting.done.get(timeout=timeout)
    except BaseException as error:  # a Ctrl-C too ends only the wait
        waiters.leave(thread_id, waiting)
        if isinstance(error, CallTimeout):
            raise ask_timeout(waiters, waiting, thread_id, timeout) from None
        raise
    finally:
        waiters.let_go(waiting)
    return given(answer, raises=raises)


def check_on_disconnect(value: object) -> None:
    """Judge the option `on_disconnect`."""
    if value not in ("cancel", "continue"):
        raise InvalidCall(f"on_disconnect is {value!r}; give 'cancel' or 'continue'")


def ask_timeout(
    waiters: Waiters, waiting: Waiting, thread_id: str, timeout: float | None
) -> AskTimeout:
    """The error of a caller that waited long enough."""
    call = waiting.call
    stands = goes_on(call) if waiters.stands is None else waiters.stands(waiting)
    return AskTimeout(
        f"thread {thread_id!r} gave no outcome within {timeout:g} s; {stands}",
        thread_id=thread_id,
        receipt=Receipt(call.first_id or call.id, call.run_id),
    )


def goes_on(call: Call) -> str:
    """What happens with a message that its thread has, when nobody waits for its outcome any more."""
    if call.kind is CallKind.CANCEL:
        return "the run is being cancelled, and bodies of its nodes have not ended yet; cancel again to wait"
    return f"run {call.run_id!r} goes on, ask again with Continue()"


def given(answer: Answer, *, raises: bool) -> Outcome:
    """The outcome of an answer, or its error raised."""
    error = answer.error
    if error is None:
        assert answer.outcome is not None, "an answer has an outcome or an error"
        assert not isinstance(answer.outcome, Updated), "an edit is answered with its checkpoint"
        return answer.outcome
    if not raises and isinstance(answer.outcome, Failed):
        return answer.outcome
    raise _fresh(error)


def given_id(answer: Answer) -> str:
    """The checkpoint that an edit made, or its error raised."""
    if answer.error is not None:
        raise _fresh(answer.error)
    assert isinstance(answer.outcome, Updated), "an edit is answered with its checkpoint"
    return answer.outcome.checkpoint_id


def _fresh(error: Exception) -> Exception:
    """The error for one caller: several may wait for one run, and a traceback belongs to one raise."""
    if not isinstance(error, BeamWeaverError):
        return error
    copy = type(error).rebuilt(error.message, error.ids)
    copy.__cause__ = error.__cause__
    if isinstance(error, RunFailed):
        for name, value in error.__dict__.items():
            copy.__dict__.setdefault(name, value)
    return copy
