"""The postman: brings what other processes left in a store's folder to its threads."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal

from beamweaver.checkpoint.records import RejectedRow
from beamweaver.errors import (
    BeamWeaverError,
    Draining,
    InboxFull,
    Quarantined,
    RuntimeStopped,
    StoreError,
    StoreUnavailable,
)
from beamweaver.events import FileSetAside, MessageRejected, MessageWaits
from beamweaver.runtime.env import ThreadEnv
from beamweaver.runtime.hub import SET_ASIDE
from beamweaver.runtime.letters import NoLetter, Refusal, call_of, open_letter, seal
from beamweaver.runtime.rejections import rejected_rows
from beamweaver.runtime.requests import check_thread_id
from beamweaver.runtime.spool import Spool
from beamweaver.runtime.waiters import Waiting
from supervisors import Actor

if TYPE_CHECKING:
    from pathlib import Path

    from beamweaver.runtime.hub import Hub
    from beamweaver.runtime.letters import Letter
    from beamweaver.runtime.spool import Found
    from supervisors import Future

__all__ = ["Postman"]

_LOOK: Final = object()
_NEXT: Final = object()
_LOOK_SECONDS: Final = 0.1
_AGAIN_SECONDS: Final = 0.25
"""After how long messages are brought again for which there was no place; a millisecond more for each."""
_SWEEP_SECONDS: Final = 600.0
_TEMPORARY_SECONDS: Final = 3_600.0
"""How old a temporary file must be whose sender is taken for dead."""
_LETTERS: Final = 256
"""How many messages are read from the folder at once."""
_PASSING: Final = (StoreError, RuntimeStopped, Draining, InboxFull, *SET_ASIDE)
"""Errors that say nothing of the message: it is brought again later."""


class _Taken:
    """A thread has taken a message, or refused it."""

    __slots__ = ("future", "letter")

    def __init__(self, letter: Letter, future: Future[Any]) -> None:
        self.letter = letter
        self.future = future


class Postman(Actor):
    """Reads the folder in the order of arrival, has each thread commit its messages one after the other, each
    keyed by its id, and then removes the file. If the process dies in between, the message comes again, and
    the key tells that it is there.

    Every 0.1 s it asks for the folder's time of change, which costs one system call. What cannot be taken
    now (the thread's inbox is full, its graph is not here) waits, with what comes after it for that thread,
    and holds nobody else up. Files that are no messages are set aside. If this actor crashes, the next one
    reads the folder again. Nor does it look at the folder alone: if the store's files are gone from their
    place, so that all that is written is lost, the runtime ends.
    """

    lane: ClassVar[Literal["lo"]] = "lo"
    isolated: ClassVar[bool] = False

    def __init__(self, hub: Hub, folder: Path) -> None:
        self._hub = hub
        self._spool = Spool(folder, hub.limits, sync=hub.store.blocks, reached=hub.reached)
        self._lines: dict[str, deque[Letter]] = {}
        """By thread, what was read and not taken yet; the first of each is on its way."""
        self._stuck: dict[str, str] = {}
        """Files whose message cannot be taken now, and the graph that it lacks, or ""."""
        self._stuck_threads: dict[str, BeamWeaverError | None] = {}
        """Their threads, and why the first message of each could not be taken."""
        self._held: frozenset[str] = frozenset()
        """Of which it was said why they wait: the last ones."""
        self._lacking: frozenset[str] = frozenset()
        """Graphs of which it was said that messages wait for them: the last ones."""
        self._again = 0.0
        self._changed = -1
        self._racy = False
        self._fresh = False
        """Whether there may be names that were not looked at."""
        self._swept = -_SWEEP_SECONDS

    def on_start(self) -> None:
        """Look at once, and then on a timer. What fails there is no failure to start."""
        self._hub.unreached.clear()
        self.cell.put(_LOOK)

    def on_receive(self, message: Any) -> None:
        """Look, or go on with the thread that has taken its message."""
        if message is _LOOK:
            self._look()
        elif message is _NEXT:
            self._take_in()
        elif type(message) is _Taken:
            self._taken(message.letter, message.future)

    # Looking ------------------------------------------------------------------------------------

    def _look(self) -> None:
        lost = self._hub.store.lost()
        if lost is not None:
            self._hub.fail(lost, self)
            return
        now = self.system.clock.monotonic()
        if now - self._swept >= _SWEEP_SECONDS:
            self._swept = now
            self._spool.sweep(self.system.clock.time() - _TEMPORARY_SECONDS)
        if not self._hub.draining:
            self._unstick(now)
            self._fresh = self._has_changed() or self._fresh
            self._take_in()
        self.system.send_after(_LOOK_SECONDS, self.cell, _LOOK)

    def _has_changed(self) -> bool:
        """Whether there may be names that were not seen.

        Clocks of file systems are coarse: what comes right after a look may bear the same time as what that
        look saw. So after each change the folder is read once more, a look later.
        """
        changed = self._spool.changed_ns()
        if changed != self._changed:
            self._changed, self._racy = changed, True
            return True
        racy, self._racy = self._racy, False
        return racy

    def _unstick(self, now: float) -> None:
        """Try again what could not be taken, when that may be otherwise by now."""
        if not self._stuck or now < self._again:
            return
        self._again = self._later(now)
        graphs = self._hub.graphs
        if any(not graph or graph in graphs for graph in self._stuck.values()):
            self._stuck.clear()
            self._stuck_threads.clear()
            self._fresh = True

    def _later(self, now: float) -> float:
        return now + _AGAIN_SECONDS + len(self._stuck) / 1_000

    def _take_in(self) -> None:
        """Read the messages that came first, and bring each idle thread its first one."""
        on_way = {letter.id for line in self._lines.values() for letter in line}
        if not self._fresh or len(on_way) > _LETTERS // 2 or self._hub.draining:
            return
        known = on_way | self._stuck.keys()
        waiting = [found for found in self._spool.waiting() if found.name not in known]
        batch = waiting[:_LETTERS]
        # Those of one moment stay together: their order is that of their senders.
        batch += [found for found in waiting[_LETTERS:] if found.came_ns == batch[-1].came_ns]
        self._fresh = len(batch) < len(waiting)
        letters = [(found.came_ns, letter) for found in batch if (letter := self._open(found))]
        idle = {letter.thread_id for _, letter in letters} - self._lines.keys()
        for _, letter in sorted(letters, key=lambda each: (each[0], each[1].sent_us, each[1].id)):
            self._lines.setdefault(letter.thread_id, deque()).append(letter)
        for thread_id in idle:
            self._bring(thread_id)
        if not self._fresh:  # else not all was looked at; files may also go by other hands
            self._hub.unreached &= self._stuck_threads.keys() | self._lines.keys()

    def _open(self, found: Found) -> Letter | None:
        data = self._spool.read(found)
        if data is None and found.regular and not self._spool.has(found.name):
            return None  # it is gone
        try:
            if data is None:
                raise NoLetter("it is no file of a message's size")
            return open_letter(data, found.name)
        except NoLetter as error:
            self._put_aside(found.name, str(error))
            return None

    def _put_aside(self, name: str, reason: str) -> None:
        hub = self._hub
        try:
            self._spool.set_aside(name)
        except OSError as error:
            self._stuck[name] = "a file that cannot be moved"
            reason = f"{reason}; it cannot be moved: {error}"
        hub.log.warning("file_set_aside", name=name, folder=str(self._spool.folder), reason=reason)
        if hub.listeners:
            hub.publish(FileSetAside(thread_id="", name=name, reason=reason))

    # Bringing -----------------------------------------------------------------------------------

    def _bring(self, thread_id: str) -> None:
        """Give a thread the first message of its line."""
        hub = self._hub
        line = self._lines[thread_id]
        while line:
            letter = line[0]
            if thread_id in self._stuck_threads:
                self._not_now(letter, self._stuck_threads[thread_id])
            elif letter.graph not in hub.graphs:
                self._lack(letter)
            elif thread_id in hub.quarantined or hub.draining:
                self._stick(letter)
            else:
                hub.reached("inbox.read", thread_id)
                self._submit(letter)
                return
            line.popleft()
        del self._lines[thread_id]
        if self._fresh:
            self.cell.put(_NEXT)

    def _submit(self, letter: Letter) -> None:
        hub = self._hub
        receipt = self.system.future()
        receipt.add_done_callback(lambda future: self.cell.put(_Taken(letter, future)))
        try:
            env = ThreadEnv(hub, hub.codec_of(hub.graph(letter.graph)), letter.thread_id, 0)
            check_thread_id(letter.thread_id, hub.limits)
            call = call_of(letter, env)
            hub.waiters.add(letter.thread_id, Waiting(call, self.system.future(), receipt))
        except (BeamWeaverError, NoLetter) as error:
            receipt.offer_error(error)
        else:
            hub.ensure(letter.thread_id)

    def _taken(self, letter: Letter, future: Future[Any]) -> None:
        """A thread has the message, durably, or will not have it, or not now."""
        thread_id = letter.thread_id
        line = self._lines.get(thread_id)
        if line is None or line[0] is not letter:
            return  # it was brought by this actor's predecessor
        self._hub.unreached.discard(thread_id)
        try:
            future.get()
        except _PASSING as error:
            self._hold(letter, error)
        except Quarantined as error:
            self._not_now(letter, error)
        except NoLetter as error:
            self._put_aside(letter.id, str(error))
        except BeamWeaverError as error:
            self._turn_away(letter, error)
        else:
            self._remove(letter)
        line.popleft()
        self._bring(thread_id)

    def _not_now(self, letter: Letter, error: BeamWeaverError | None) -> None:
        """A message of a thread that takes none now. Who waits at one that is set aside hears so."""
        if letter.waits and isinstance(error, Quarantined):
            self._turn_away(letter, error)
        elif error is None:
            self._stick(letter)
        else:
            self._hold(letter, error)

    def _hold(self, letter: Letter, error: BeamWeaverError) -> None:
        """Leave a message where it is, until it can be taken."""
        hub = self._hub
        graph = letter.graph if letter.graph not in hub.graphs else ""
        if letter.id not in self._held:
            self._held = frozenset([letter.id, *list(self._held)[: _LETTERS - 1]])
            self._say(letter, error.message)
        self._stick(letter, graph, error)

    def _lack(self, letter: Letter) -> None:
        """Leave a message where it is until its graph is registered."""
        if letter.graph not in self._lacking:
            self._lacking = frozenset([letter.graph, *list(self._lacking)[: _LETTERS - 1]])
            self._say(
                letter,
                f"the owner has no graph {letter.graph!r}: give it to Runtime(graphs=…), or register() it",
            )
        self._stick(letter, letter.graph)

    def _say(self, letter: Letter, reason: str) -> None:
        hub, thread_id = self._hub, letter.thread_id
        hub.log.warning(
            "message_waits", thread_id=thread_id, id=letter.id, graph=letter.graph, reason=reason
        )
        if hub.listeners:
            hub.publish(
                MessageWaits(
                    thread_id=thread_id, message_id=letter.id, graph=letter.graph, reason=reason
                )
            )

    def _turn_away(self, letter: Letter, error: BeamWeaverError) -> None:
        """Reject a message, as soon as there is room to say why."""
        try:
            self._reject(letter, error)
        except StoreError as full:
            self._hold(letter, full)
        else:
            self._remove(letter)

    def _remove(self, letter: Letter) -> None:
        hub = self._hub
        hub.reached("inbox.committed", letter.thread_id)
        try:
            self._spool.remove(letter.id)
        except OSError as error:
            reason = f"it was taken, and its file cannot be removed: {error}"
            self._hold(letter, StoreUnavailable(reason, path=str(self._spool.folder)))
        hub.reached("inbox.removed", letter.thread_id)

    def _stick(self, letter: Letter, graph: str = "", error: BeamWeaverError | None = None) -> None:
        self._stuck[letter.id] = graph
        self._hub.unreached.add(letter.thread_id)
        self._stuck_threads.setdefault(letter.thread_id, error)
        if len(self._stuck) == 1:
            self._again = self._later(self.system.clock.monotonic())

    def _reject(self, letter: Letter, error: BeamWeaverError) -> None:
        """Keep why a message was rejected, where the thread does not."""
        hub, thread_id = self._hub, letter.thread_id
        if any(row.id == letter.id for row in rejected_rows(hub.store, thread_id)):
            return
        now = int(self.system.clock.time() * 1_000_000)
        row = RejectedRow(letter.id, letter.kind, letter.run_id, error.code, error.message, now)
        self._spool.refuse(letter.id, seal(Refusal(thread_id, row)))
        if hub.listeners:
            hub.publish(
                MessageRejected(
                    thread_id=thread_id,
                    message_id=letter.id,
                    code=error.code,
                    message=error.message,
                )
            )
