"""Which stores this process has open, and for how many users each.

The lock of the registry is held for long: who closes a store waits for the calls in it. So what the garbage
collector finds is put aside (`forget`), and given back by an OS thread of its own, or by the next caller.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import threading
from _thread import start_new_thread
from collections import deque
from typing import TYPE_CHECKING, Final

import msgspec

from beamweaver.checkpoint._lmdb_kv import DATA_FILE
from beamweaver.checkpoint._pins import Pin, Pins
from beamweaver.checkpoint._shared import Options, Shared, open_shared
from beamweaver.errors import StoreOptionsDiffer

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = ["attach", "check_options", "detach", "forget", "settle", "snapshot_of"]


class _Registry:
    """The open environments of this process."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.open: dict[str, Shared] = {}
        self.inherited: dict[str, Shared] = {}
        self.pins = Pins()
        self.forgotten: deque[tuple[Shared, object]] = deque()
        """What the collector found, and is not given back yet."""
        self.hooked = False

    def hook(self) -> None:
        if not self.hooked:
            self.hooked = True
            os.register_at_fork(after_in_child=self.after_fork)

    def after_fork(self) -> None:
        # An inherited environment must not be used. It is kept, and closed if its path is opened here.
        self.lock = threading.RLock()
        for shared in self.open.values():
            shared.after_fork()
        self.inherited |= self.open
        self.open = {}
        self.pins = Pins()
        self.forgotten = deque()

    def at_exit(self) -> None:
        settle()
        with self.lock:
            for shared in self.open.values():
                if shared.pid == os.getpid():
                    shared.rest()


_registry: Final = _Registry()
# Now, so that it comes after whatever ends runtimes then: it is registered later.
atexit.register(_registry.at_exit)


def attach(path: Path, options: Options, *, create: bool) -> Shared | None:
    """The environment of a path, opened if need be; None if it does not exist and is not to be made.

    Raises:
        StoreOptionsDiffer: It is open with other options.
        NotAStore, StoreTooNew: It cannot be opened.
        StoreUnavailable: It cannot be opened, or its files were replaced under somebody who uses it here.
    """
    key = str(path)
    settle()
    with _registry.lock:
        shared = _opened_here(path)
        _compare(path, options)
        if shared is None:
            if not create and not (path / DATA_FILE).exists():
                return None
            _registry.hook()
            if key in _registry.inherited:
                _registry.inherited[key].shut_inherited()
                del _registry.inherited[key]
            _registry.pins.end(path)
            shared = open_shared(path, options)
            _registry.open[key] = shared
        shared.references += 1
        return shared


def _opened_here(path: Path) -> Shared | None:
    """The open environment of a path, if its file is still the one at the path. Under the registry's lock.

    Raises:
        StoreUnavailable: The files were replaced under somebody who uses it.
    """
    shared = _registry.open.get(str(path))
    if shared is None or shared.pid != os.getpid():
        return None
    if not shared.in_place():
        shared.retire()
        del _registry.open[str(path)]
        return None
    return shared


def detach(shared: Shared, holder: object) -> None:
    """Release what `holder` owns and give its reference back; the last one closes the environment."""
    with _registry.lock:
        if shared.pid != os.getpid():
            return
        shared.release(holder)
        shared.references -= 1
        if shared.references == 0 and _registry.open.get(str(shared.path)) is shared:
            del _registry.open[str(shared.path)]
            shared.shut()


def forget(shared: Shared, holder: object) -> None:
    """`detach` for the garbage collector, which may call under any lock: it waits for nothing."""
    if shared.pid != os.getpid():
        return
    _registry.forgotten.append((shared, holder))
    if len(_registry.forgotten) == 1:  # if there are more, who takes those takes this one too
        with contextlib.suppress(RuntimeError):  # there is no thread to be had
            start_new_thread(settle, ())


def settle() -> None:
    """Detach all that was forgotten; it is done when this returns."""
    while _registry.forgotten:
        with _registry.lock:
            if _registry.forgotten:
                try:
                    detach(*_registry.forgotten[0])
                finally:  # only now: others wait as long as it is there
                    _registry.forgotten.popleft()


@contextlib.contextmanager
def snapshot_of(path: Path) -> Iterator[Pin]:
    """Hold the newest moment of a store as long as the block runs, or until somebody opens the store.

    Raises:
        lmdb.Error: It cannot be opened.
        StoreUnavailable: Its files were replaced under somebody who uses it here.
    """
    with _registry.lock:
        shared = _opened_here(path)
        if shared is not None:
            shared.references += 1
            pin = None
        else:
            shared, pin = None, _registry.pins.take(path)
    try:
        if pin is not None:
            yield pin
        else:
            assert shared is not None, "a store that is not pinned is open"
            with shared.busy(), shared.pinned() as txnid:
                yield Pin(txnid)
    finally:
        if shared is not None:
            detach(shared, None)
        elif pin is not None:
            with _registry.lock:
                _registry.pins.give_back(path, pin)


def check_options(path: Path, options: Options) -> None:
    """Refuse options other than those with which the path is open in this process.

    Raises:
        StoreOptionsDiffer: They differ.
    """
    settle()
    _compare(path, options)


def _compare(path: Path, options: Options) -> None:
    shared = _registry.open.get(str(path))
    if shared is None or shared.pid != os.getpid() or shared.options == options:
        return
    if shared.in_place():
        raise StoreOptionsDiffer(
            f"store {str(path)!r} is open in this process with {_text(shared.options)}; it cannot also be "
            f"opened with {_text(options)}. Give the same options",
            path=str(path),
        )


def _text(options: Options) -> str:
    return ", ".join(f"{name}={value!r}" for name, value in msgspec.structs.asdict(options).items())
