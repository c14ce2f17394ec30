"""What callers give, judged where it comes in: the error names the thing, the value and the cure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from supervisors.errors import InvalidSpec
from supervisors.exits import Abnormal, Crashed, ExitReason, Reason, Shutdown
from supervisors.inbox import Inbox

if TYPE_CHECKING:
    from supervisors.inbox import Name
    from supervisors.mailbox import Cell
    from supervisors.ref import ActorRef
    from supervisors.scheduler import Lane

__all__ = ["cell_of", "delay_of", "lane_of", "name_of", "reason_of"]

_REASONS = (Reason, Shutdown, Crashed, Abnormal)


def cell_of(actor: ActorRef[Any] | Cell) -> Inbox:
    """The cell of an actor that is given by its reference or its cell.

    Raises:
        InvalidSpec: it is neither
    """
    cell = getattr(actor, "cell", actor)
    if not isinstance(cell, Inbox):
        cure = "give the ActorRef that start() or whereis() returned"
        raise InvalidSpec("actor", actor, cure)
    return cell


def lane_of(actor_class: Any) -> Lane:
    """The lane in which actors of a class run.

    Raises:
        InvalidSpec: it is no class of actors
    """
    try:
        lane: Lane = actor_class.lane
    except AttributeError:
        cure = "give a subclass of supervisors.Actor"
        raise InvalidSpec("actor_class", actor_class, cure) from None
    return lane


def name_of(name: Name) -> Name:
    """A name that is no text.

    Raises:
        InvalidSpec: it is no `Via` either
    """
    if not hasattr(name, "claim"):
        raise InvalidSpec("name", name, "give a text, or a Via of a Registry")
    return name


def reason_of(reason: object) -> ExitReason:
    """An exit reason.

    Raises:
        InvalidSpec: it is something else, such as the name of one
    """
    if isinstance(reason, _REASONS):
        return reason
    cure = "give NORMAL, SHUTDOWN, KILLED, or a reason of your own as Abnormal(it)"
    raise InvalidSpec("reason", reason, cure)


def delay_of(delay: float) -> float:
    """Seconds for a timer.

    Raises:
        InvalidSpec: it is no number
    """
    number = isinstance(delay, int | float) and not isinstance(delay, bool)
    if not number or delay != delay:  # noqa: PLR0124 - NaN
        raise InvalidSpec("delay", delay, "give seconds")
    return delay
