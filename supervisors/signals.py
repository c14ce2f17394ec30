"""What actors are told about each other: trapped exits, ends of monitored actors, task results."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from supervisors.exits import ExitReason

__all__ = ["Down", "Exit", "TaskDone", "TaskEnded", "TaskFailed"]


class Exit(msgspec.Struct, frozen=True):
    """A linked actor ended, or somebody sent an exit signal, and this actor traps exits.

    Attributes:
        sender: the cell of the actor that ended or sent, or None if it came from outside
        reason: why
    """

    sender: object
    reason: ExitReason


class Down(msgspec.Struct, frozen=True):
    """A monitored actor has ended: exactly one for each monitor, ahead of ordinary messages.

    Attributes:
        token: what was given to, or came from, the call that made the monitor
        reason: why it ended; `NO_PROC` if it had ended before the monitor was made
    """

    token: object
    reason: ExitReason


class TaskDone(msgspec.Struct, frozen=True):
    """The body of the task with `token` returned `value`."""

    token: object
    value: object


class TaskFailed(msgspec.Struct, frozen=True):
    """The body of the task with `token` raised `error`, of any class."""

    token: object
    error: BaseException


class TaskEnded(msgspec.Struct, frozen=True):
    """After a kill: the body has left its worker, or (`abandoned`) is taken to stay for ever."""

    token: object
    abandoned: bool
