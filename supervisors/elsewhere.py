"""What actors have in common whose handlers run elsewhere: on an event loop, in a process, in a thread.

The actor that stands in the system, the *deputy*, waits for nothing: it passes one message on, serves
only the system's messages until the answer is there, and then goes on. So its mailbox, links, monitors,
names and calls are those of any actor, and at its end all that waits is answered as ever.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import msgspec

from supervisors import death
from supervisors.actor import Actor
from supervisors.exits import NORMAL, Crashed, ExitReason
from supervisors.mailbox import Ignore, Refuse
from supervisors.ref import StopRequest

if TYPE_CHECKING:
    from supervisors.actor import Reply

__all__ = ["Answered", "Begun", "Deputy", "Gone", "RaisedElsewhere"]


class Begun(msgspec.Struct, frozen=True):
    """It has started, elsewhere."""


class Answered(msgspec.Struct, frozen=True):
    """The handler returned `value`."""

    value: Any


class RaisedElsewhere(msgspec.Struct, frozen=True):
    """The handler, or the start, raised `error`."""

    error: BaseException


class Gone(msgspec.Struct, frozen=True):
    """It has ended, elsewhere, for `reason`."""

    reason: ExitReason


class Deputy(Actor):
    """The base of actors whose handlers run elsewhere. Subclasses say where, by four methods.

    `begin` starts it, `deliver` passes a message on, `wind_up` asks it to end, `let_go` gives it up.
    They do not wait; what comes of them is posted from any thread: `Begun`, `Answered`,
    `RaisedElsewhere`, `Gone`.
    """

    isolated: ClassVar[bool] = False
    _acknowledges = True
    _reply: Reply | None = None
    _wanted: ExitReason | None = None  # why it is to end, once that is known
    _up = False
    _busy = False

    def begin(self) -> None:
        """Start it, elsewhere."""
        raise NotImplementedError

    def deliver(self, message: Any) -> None:
        """Have `message` handled."""
        raise NotImplementedError

    def wind_up(self, reason: ExitReason) -> None:
        """Ask it to end in good order."""
        raise NotImplementedError

    def let_go(self) -> None:
        """End it whatever it does: the last thing, also after a kill and after a good end."""
        raise NotImplementedError

    def post(self, news: Begun | Answered | RaisedElsewhere | Gone) -> None:
        """Tell the deputy what happened, from any thread."""
        self.cell.put_system(news)

    def exit(self, reason: ExitReason = NORMAL) -> None:
        """End this actor, for `reason`, after the present handler; from anywhere."""
        self.cell.put_system(StopRequest(reason))

    # The deputy's own handlers

    def on_start(self) -> None:
        """Start it; the actor has started when it has."""
        self.cell.hold()
        self.cell.pages().names += (lambda _: self.let_go(),)
        self.begin()

    def on_receive(self, message: Any) -> None:
        """Pass a message on, and handle no other until it is answered."""
        self._reply = self.defer()
        self._busy = True
        self.cell.hold()
        self.deliver(message)

    def _system(self, message: Any) -> bool:
        kind = type(message)
        if kind is Begun:
            self._up = True
            death.acknowledge(self.cell)
        elif kind is Answered:
            self._settle(message.value, None)
        elif kind is RaisedElsewhere:
            self._raised(message.error)
        elif kind is Gone:
            death.die(self.cell, message.reason)
        else:
            return False
        return True

    def _raised(self, error: BaseException) -> None:
        if self._busy and isinstance(error, Refuse):
            self._settle(None, error.error)
        elif not self._up and isinstance(error, Ignore):
            death.ignore(self.cell)
        else:
            death.die(self.cell, Crashed(error))

    def _settle(self, value: Any, refusal: BaseException | None) -> None:
        reply, self._reply = self._reply, None
        self._busy = False
        if reply is not None:
            if refusal is None:
                reply.set(value)
            else:
                reply.set_exception(refusal)
        if self._wanted is not None:
            self.wind_up(self._wanted)
        else:
            self.cell.resume()

    def _end(self, reason: ExitReason) -> None:
        if self._wanted is not None:
            return
        self._wanted = reason
        if not self._up:
            death.die(self.cell, reason)
        elif not self._busy:
            self.cell.hold()
            self.wind_up(reason)
