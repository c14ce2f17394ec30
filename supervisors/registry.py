"""Registries: names of any kind for actors, freed before anybody hears of their end.

A registry has unique keys (a name for one actor) or duplicate ones (a topic for many). Reading is a
look into a dictionary, from any thread. As in Elixir an actor registers only itself; an actor that is
started with `name=Via(registry, key)` has the name before it runs, and a second one gets
`AlreadyStarted`.
"""

from __future__ import annotations

import threading
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from supervisors.actor import Actor
from supervisors.death import ExitSignal
from supervisors.errors import AlreadyStarted, InvalidSpec, NoProc, SupervisorsError
from supervisors.exits import KILLED, NORMAL, ExitReason
from supervisors.future import Future
from supervisors.inbox import ENDED, Inbox
from supervisors.kill import Aside, shield
from supervisors.ref import ActorRef, ref_of
from supervisors.scheduler import here
from supervisors.spec import ChildSpec

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable
    from contextlib import AbstractContextManager

    from supervisors.system import ActorSystem
    from supervisors.tasks import Tasks

__all__ = ["AlreadyRegistered", "Entry", "Registered", "Registry", "Unregistered", "Via"]


class AlreadyRegistered(SupervisorsError):
    """A unique key belongs to another living actor, `ref`."""

    code = "already_registered"

    def __init__(self, registry: str, key: Hashable, ref: ActorRef[Any]) -> None:
        """Make the error for `key`, which `ref` holds."""
        super().__init__(f"{key!r} is registered in {registry} already, by {ref}")
        self.ref = ref


class Entry(msgspec.Struct, frozen=True):
    """One registration: an actor, and the value that it gave."""

    ref: ActorRef[Any]
    value: object


class Registered(msgspec.Struct, frozen=True):
    """A message to listeners: an actor has registered."""

    registry: str
    key: Hashable
    ref: ActorRef[Any]
    value: object


class Unregistered(msgspec.Struct, frozen=True):
    """A message to listeners: a registration is gone."""

    registry: str
    key: Hashable
    ref: ActorRef[Any]


class Registry:
    """A table of names. It works while its keeper runs, which belongs into a supervision tree.

    If the keeper ends abnormally, all registered actors get its exit signal, as their
    names are gone (OTP links them).

    Args:
        name: what messages call it
        keys: `"unique"` or `"duplicate"`
        listeners: actors that get `Registered` and `Unregistered` messages

    Example:
        >>> from supervisors import Actor, ActorSystem, Registry, Supervisor, Via
        >>> names = Registry("names")
        >>> with ActorSystem() as system:
        ...     root = system.start(Supervisor, [names.child_spec()])
        ...     ref = system.start(Actor, name=Via(names, ("order", 17)))
        ...     names.whereis(("order", 17)) == ref
        True
    """

    def __init__(
        self,
        name: str,
        *,
        keys: Literal["unique", "duplicate"] = "unique",
        listeners: tuple[ActorRef[Any], ...] = (),
    ) -> None:
        """Make an empty table that is not kept yet."""
        if keys not in {"unique", "duplicate"}:
            raise InvalidSpec("keys", keys, 'give "unique" or "duplicate"')
        self.name = name
        self.unique = keys == "unique"
        self.listeners = listeners
        self._lock = threading.Lock()
        # memory counts, as each actor of millions may have a name: no table for what is one
        self._entries: dict[Hashable, Entry | dict[Inbox, Entry]] = {}
        self._owners: dict[Inbox, tuple[Hashable, ...] | set[Hashable]] = {}
        self._frees = (self._release,)
        self._queues: dict[Hashable, deque[Future[None]]] = {}
        self._open = False

    def __repr__(self) -> str:
        return f"<Registry {self.name}>"

    def child_spec(self) -> ChildSpec:
        """Return the spec of the keeper, for a supervisor; before those who register."""
        return ChildSpec(("registry", self.name), _Keeper, (self,))

    def start(self, system: ActorSystem) -> ActorRef[_Keeper]:
        """Start the keeper without a supervisor."""
        return system.start(_Keeper, self)

    # Writing

    def register(self, key: Hashable, value: object = None) -> None:
        """Register the calling actor under `key`, with `value`; freed when it ends.

        Raises:
            AlreadyRegistered: a unique key belongs to another living actor
            InvalidSpec: the caller is no actor: only an actor registers, and only itself
            NoProc: the registry is not kept
        """
        with shield():
            holder = self._put(self._caller(), key, value)
        if holder is not None:
            raise AlreadyRegistered(self.name, key, ref_of(holder))

    def claim(self, cell: Inbox, key: Hashable) -> None:
        """Register an actor that is not launched yet: for `Via`.

        Raises:
            AlreadyStarted: the key belongs to another living actor
            InvalidSpec: the keys are not unique
        """
        if not self.unique:
            raise InvalidSpec("name", key, f"{self.name} has duplicate keys: they name no one")
        holder = self._put(cell, key, None)
        if holder is not None:
            raise AlreadyStarted(ref_of(holder), key)

    def _caller(self) -> Inbox:
        worker = here.worker
        cell = None if worker is None else worker.cell
        if not isinstance(cell, Inbox):
            raise InvalidSpec(
                "caller", cell, "an actor registers itself; use name=Via(...) to name one at start"
            )
        return cell

    def _put(self, cell: Inbox, key: Hashable, value: object) -> Inbox | None:
        with self._lock:
            if not self._open:
                raise NoProc(self)
            found = self._entries.get(key)
            if isinstance(found, Entry):
                holder = found.ref.cell
                if holder is not cell and holder.phase != ENDED:
                    return holder
                if holder is not cell:
                    self._forget(holder, key)
            entry = Entry(ref_of(cell), value)
            if self.unique:
                self._entries[key] = entry
            elif isinstance(found, dict):
                found[cell] = entry
            else:
                self._entries[key] = {cell: entry}
            known = self._owners.get(cell)
            if known is None:
                self._owners[cell] = (key,)
                cell.pages().names += self._frees
            elif isinstance(known, tuple):
                self._owners[cell] = {*known, key}
            else:
                known.add(key)
        self._tell(Registered(self.name, key, ref_of(cell), value))
        if cell.phase == ENDED:
            self._release(cell)
        return None

    def unregister(self, key: Hashable) -> bool:
        """Take back the calling actor's registration of `key`; return whether there was one."""
        cell = self._caller()
        with shield(), self._lock:
            found = self._forget(cell, key)
        if found:
            self._tell(Unregistered(self.name, key, ref_of(cell)))
        return found

    def update_value(self, key: Hashable, change: Callable[[Any], object]) -> object:
        """Replace the calling actor's value of a unique `key` by `change(value)`; return it.

        Raises:
            NoProc: the caller has not registered `key`
        """
        if not self.unique:
            raise InvalidSpec("keys", "duplicate", "only values of unique keys can be updated")
        cell = self._caller()
        with shield(), self._lock:
            entry = self._entries.get(key)
            if not isinstance(entry, Entry) or entry.ref.cell is not cell:
                raise NoProc(key)
            value = change(entry.value)
            self._entries[key] = Entry(entry.ref, value)
        return value

    def _forget(self, cell: Inbox, key: Hashable) -> bool:
        holders = self._entries.get(key)
        if isinstance(holders, Entry):
            if holders.ref.cell is not cell:
                return False
            del self._entries[key]
        elif holders is None or holders.pop(cell, None) is None:
            return False
        elif not holders:
            del self._entries[key]
        known = self._owners.get(cell)
        if isinstance(known, tuple):
            self._owners[cell] = ()
        elif known is not None:
            known.discard(key)
        return True

    def _release(self, cell: Inbox) -> None:
        with self._lock:
            keys = self._owners.pop(cell, ())
            for key in keys:
                self._forget(cell, key)
        for key in keys:
            self._tell(Unregistered(self.name, key, ref_of(cell)))

    def _tell(self, message: object) -> None:
        for listener in self.listeners:
            listener.cell.put(message)

    # Reading

    def lookup(self, key: Hashable) -> list[Entry]:
        """Return the registrations of `key` by living actors."""
        found = self._read().get(key)
        if found is None:
            return []
        holders = [found] if isinstance(found, Entry) else list(found.values())
        return [entry for entry in holders if entry.ref.cell.phase != ENDED]

    def whereis(self, key: Hashable) -> ActorRef[Any] | None:
        """Return the living actor that has the unique `key`, or None."""
        for entry in self.lookup(key):
            return entry.ref
        return None

    def keys(self, actor: ActorRef[Any]) -> set[Hashable]:
        """Return the keys of `actor`."""
        self._read()
        with self._lock:
            return set(self._owners.get(actor.cell, ()))

    def __len__(self) -> int:
        """Return how many registrations there are."""
        with self._lock:
            found = self._entries.values()
            return sum(1 if isinstance(one, Entry) else len(one) for one in found)

    def _read(self) -> dict[Hashable, Entry | dict[Inbox, Entry]]:
        if not self._open:
            raise NoProc(self)
        return self._entries

    def dispatch(
        self, key: Hashable, call: Callable[[Entry], object], *, parallel: Tasks | None = None
    ) -> int:
        """Call `call(entry)` for each registration of `key`; return how many.

        Args:
            key: which
            call: is called in the caller, one after the other
            parallel: call them at once instead, in tasks of these, and wait for all

        Raises:
            BaseException: what a call raised; in parallel, of the earliest registration
        """
        entries = self.lookup(key)
        if parallel is None:
            for entry in entries:
                call(entry)
        else:
            running = [parallel.run(call, entry) for entry in entries]
            for task in running:
                task.yield_(None)
            for task in running:
                task.await_(None)
        return len(entries)

    def lock(self, key: Hashable) -> AbstractContextManager[None]:
        """Hold the lock of `key`, whoever has registered it; others wait their turn meanwhile."""
        worker = here.worker
        turn: Future[None] = Future(None if worker is None else worker.scheduler)
        return _Held(partial(self._queue, key, turn), partial(self._pass_on, key, turn), turn)

    def _queue(self, key: Hashable, turn: Future[None]) -> None:
        with self._lock:
            queue = self._queues.setdefault(key, deque())
            queue.append(turn)
            first = len(queue) == 1
        if first:
            turn.offer(None)

    def _pass_on(self, key: Hashable, turn: Future[None]) -> None:
        """Take `turn` out of the queue, once: it has had the lock, or its wait was given up."""
        with self._lock:
            queue = self._queues.get(key)
            if queue is None or turn not in queue:
                return
            first = queue[0] is turn
            queue.remove(turn)
            following = queue[0] if queue else None
            if following is None:
                del self._queues[key]
        if first and following is not None:
            following.offer(None)

    # Keeping

    def _begin(self) -> None:
        with self._lock:
            if self._open:
                raise InvalidSpec("registry", self.name, "it has a keeper already")
            self._open = True

    def _end(self, sender: Inbox, reason: ExitReason) -> None:
        with self._lock:
            self._open = False
            owners = list(self._owners)
            self._entries.clear()
            self._owners.clear()
        for cell in owners:
            if cell is not sender:
                cell.put_system(ExitSignal(sender, reason))


class _Held(Aside):
    """The lock of a key: entered when its turn has come."""

    __slots__ = ("_turn",)

    def __init__(
        self, queue: Callable[[], object], pass_on: Callable[[], object], turn: Future[None]
    ) -> None:
        super().__init__(queue, pass_on)
        self._turn = turn

    def __enter__(self) -> None:
        try:
            super().__enter__()
            self._turn.get()
        except BaseException:  # killed while it waited: those behind it must not wait for ever
            self.come_back()
            raise


class Via(msgspec.Struct, frozen=True):
    """A name in a registry: `name=Via(registry, key)` in `ActorSystem.start` or a `ChildSpec`."""

    registry: Registry
    key: Hashable

    def claim(self, cell: Inbox) -> None:
        """Register `cell`, before it runs."""
        self.registry.claim(cell, self.key)


class _Keeper(Actor):
    """Keeps a registry open while it runs."""

    isolated = False

    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    def on_start(self) -> None:
        self._registry._begin()  # noqa: SLF001 - two halves of one thing
        self.cell.pages().names += (self._release,)  # also at a kill, when on_stop does not run

    def _release(self, cell: Inbox) -> None:
        self._registry._end(cell, KILLED)  # noqa: SLF001

    def on_stop(self, reason: ExitReason = NORMAL) -> None:
        self._registry._end(self.cell, reason)  # noqa: SLF001
