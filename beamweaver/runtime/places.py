"""Which store is run by which core in this process.

One process has at most one runtime a store, and calls on a graph go through the one that owns the graph's
store; so there must be one table of them. It is empty until the first call and holds nothing else.
"""

from __future__ import annotations

import atexit
import os
import threading
from typing import TYPE_CHECKING

from beamweaver.errors import StoreOwned
from beamweaver.limits import DEFAULT_LIMITS
from beamweaver.runtime.core import CLOSE_SECONDS, Core

if TYPE_CHECKING:
    from collections.abc import Callable

    from beamweaver.checkpoint.base import Checkpointer

__all__ = ["core_of", "enter_client", "leave", "open_private", "open_public"]

PRIVATE_WORKERS = 128
_TRY_SECONDS = 0.05
"""How often one that waits for a store looks whether it is free, in seconds."""


class _Place:
    __slots__ = ("closed", "closing", "core", "pid", "since", "users")

    def __init__(self, core: Core, *, private: bool) -> None:
        self.core = core
        self.pid = os.getpid()
        self.since = core.store.now()
        self.closing = False
        self.closed = threading.Event()
        self.users: set[int] | None = set() if private else None
        """Ids of the graphs that use a private core; None for a public runtime's."""


_lock = threading.RLock()
_places: dict[str, _Place] = {}
_clients: dict[str, list[Core]] = {}
"""The clients of stores that another process owns: calls on graphs go through the newest."""
_exit_hook: list[bool] = []


def core_of(identity: str) -> Core | None:
    """The core that runs this store here, or None."""
    with _lock:
        place = _live(identity)
        return place.core if place is not None else None


def open_private(store: Checkpointer, user: object) -> Core:
    """The core of a store for a graph's own calls: the one that is there, or a new private one.

    Raises:
        StoreOwned: Another process owns the store.
    """
    with _lock:
        place = _settled(store.identity)
        if place is None:
            client = _client(store.identity)
            if client is not None:
                return client
            core = Core(
                store,
                limits=DEFAULT_LIMITS,
                recover="called",
                keeps=True,
                max_workers=PRIVATE_WORKERS,
            )
            core.start()
            place = _places[store.identity] = _Place(core, private=True)
            if not _exit_hook:
                _exit_hook.append(True)
                atexit.register(_close_all)
        if place.users is not None:
            place.users.add(id(user))
        return place.core


def open_public(
    store: Checkpointer, make: Callable[[bool], Core], *, wait: float = 0.0
) -> tuple[Core, bool]:
    """A runtime's core: the store's private one, taken over, or a new one made by `make`.

    Args:
        store: The store.
        make: Makes the core; it is told whether this is the last try.
        wait: How long to wait for the store's owner to give it up, in seconds.

    Returns:
        The core, and whether it was taken over.

    Raises:
        StoreOwned: Another runtime of this process, or another process, owns the store.
    """
    ends = store.monotonic() + wait
    while True:
        left = ends - store.monotonic()
        try:
            return _open_public(store, make, last=left <= 0)
        except StoreOwned:
            if left <= 0:
                raise
        # Not under the lock: the owner may be a runtime of this process that is about to close.
        store.pause(min(_TRY_SECONDS, left))


def _open_public(
    store: Checkpointer, make: Callable[[bool], Core], *, last: bool
) -> tuple[Core, bool]:
    with _lock:
        place = _settled(store.identity)
        if place is None:
            core = make(last)
            _places[store.identity] = _Place(core, private=False)
            return core, False
        if place.users is None:
            raise StoreOwned(
                f"a Runtime of this process (pid {os.getpid()}) owns the store {store.identity}; use "
                "that one, or close it first",
                pid=os.getpid(),
                host=os.uname().nodename if hasattr(os, "uname") else "",
                since=place.since,
            )
        place.users = None
        return place.core, True


def leave(core: Core, user: object | None = None) -> None:
    """A user of a private core, or the owner of a public one, is done; the last one closes it.

    Whoever comes while it is being closed waits for that: their next step may be to close the store.
    """
    closing: _Place | None = None
    if not core.owns:
        if user is None:
            _leave_client(core)
        return
    with _lock:
        found = next((p for p in _places.items() if p[1].core is core), None)
        if found is not None:
            place = found[1]
            if place.users is not None and user is not None:
                place.users.discard(id(user))
                if place.users:
                    return
            elif place.users is None and user is not None:
                return
            if place.closing and place.pid == os.getpid():
                closing = place
            place.closing = True
    if closing is not None:
        closing.closed.wait(CLOSE_SECONDS)
        return
    try:
        core.close()
    finally:
        if found is not None:
            _vacate(*found)


def enter_client(core: Core) -> None:
    """Have calls on graphs of the store go through this client, where nobody here owns the store."""
    with _lock:
        _clients.setdefault(core.store.identity, []).append(core)


def _leave_client(core: Core) -> None:
    with _lock:
        there = _clients.get(core.store.identity, [])
        if core in there:
            there.remove(core)
        if not there:
            _clients.pop(core.store.identity, None)
    core.close()


def _client(identity: str) -> Core | None:
    return next((c for c in reversed(_clients.get(identity, [])) if not c.closed), None)


def _vacate(identity: str, place: _Place) -> None:
    with _lock:
        if _places.get(identity) is place:
            del _places[identity]
    place.closed.set()


def _settled(identity: str) -> _Place | None:
    """The store's place; one that is being closed is waited for, its store is free then. Under the lock."""
    place = _live(identity)
    while place is not None and place.closing:
        _lock.release()
        try:
            place.closed.wait(_TRY_SECONDS)
        finally:
            _lock.acquire()
        place = _live(identity)
    return place


def _live(identity: str) -> _Place | None:
    place = _places.get(identity)
    if place is None:
        return None
    if place.pid != os.getpid():
        # After a fork the workers are gone: the child begins anew.
        del _places[identity]
        return None
    if place.core.closed and place.users is not None and not place.closing:
        del _places[identity]
        place.core.close()
        return None
    return place


def _close_all() -> None:
    with _lock:
        places = list(_places.values())
        clients = [client for there in _clients.values() for client in there]
        _places.clear()
        _clients.clear()
    for client in clients:
        client.close()
    for place in places:
        if place.pid == os.getpid():
            place.core.close()
