"""What an actor system reports about itself, through one hook."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Literal, TypeAlias

import msgspec

from supervisors.exits import Crashed, ExitReason

__all__ = ["Event", "EventKind", "OnDeadLetter", "OnEvent", "log_event"]

EventKind: TypeAlias = Literal[
    "actor_crashed",
    "actor_ended",
    "stop_failed",
    "unhandled_signal",
    "unhandled_message",
    "child_started",
    "child_terminated",
    "child_restarted",
    "restart_failed",
    "restarts_exceeded",
    "child_given_up",
    "shutdown_error",
    "killed",
    "abandoned",
    "slow_handler",
    "mailbox_full",
    "dead_letter",
    "task_failed",
    "hook_failed",
]
"""The kinds of event; new ones may be added, a hook ignores those that it does not know."""


class Event(msgspec.Struct, frozen=True):
    """One thing that happened.

    Attributes:
        kind: what happened
        actor: the actor concerned, as text
        reason: why an actor ended, where the event is an end
        detail: more, by kind: `child_id`, `attempt`, `seconds` ...
    """

    kind: EventKind
    actor: str
    reason: ExitReason | None = None
    detail: Mapping[str, object] = {}


OnEvent: TypeAlias = Callable[[Event], None]
"""A hook for events: called on the worker where they happen, so it must be short."""

OnDeadLetter: TypeAlias = Callable[[str, object, ExitReason], None]
"""A hook for messages that nobody will handle: the actor as text, the message, why it ended."""

_LEVELS: dict[EventKind, int] = {
    "actor_ended": logging.DEBUG,
    "child_started": logging.DEBUG,
    "dead_letter": logging.DEBUG,
    "child_restarted": logging.INFO,
    "actor_crashed": logging.ERROR,
    "restarts_exceeded": logging.ERROR,
    "child_given_up": logging.ERROR,
    "abandoned": logging.ERROR,
}
_OF_CHILDREN: frozenset[EventKind] = frozenset(
    {"child_terminated", "child_given_up", "restart_failed", "restarts_exceeded"}
)
"""What a supervisor says of an end that the actor itself has told, with its traceback."""

_logger = logging.getLogger("supervisors")


def log_event(event: Event) -> None:
    """Write `event` to the logger `supervisors`: the hook of a system that is given none."""
    level = _LEVELS.get(event.kind, logging.WARNING)
    if not _logger.isEnabledFor(level):
        return
    told = event.kind in _OF_CHILDREN
    error = event.reason.error if isinstance(event.reason, Crashed) and not told else None
    _logger.log(
        level,
        "%s: %s reason=%r %s",
        event.kind,
        event.actor,
        event.reason,
        dict(event.detail) or "",
        exc_info=error,
    )
