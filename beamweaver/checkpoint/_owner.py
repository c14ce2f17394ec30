"""Who owns a store: the file `owner.<epoch>`, locked by the owner of that epoch.

To take a store whose epoch is E: lock `owner.E` (its owner is then gone, or there never was one); see
that the epoch is still E; lock `owner.<E+1>` and write who we are; raise the epoch; let `owner.E` go. Whoever
locks `owner.E` later finds another epoch and looks again. A process that is killed at any point leaves
files without locks, and the next one goes the same way. A lock is never broken by time.

Whether an owner lives is asked without taking its lock, as a client that stood still with it would hold up
the next owner. `flock` has no such question, so an owner also holds an open file description lock where the
platform has those.

The lock is `flock`: a child made by `fork` inherits it, so children close their copy (`after_fork`).
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import struct
import sys
from typing import TYPE_CHECKING, Final

import msgspec

from beamweaver.errors import StoreOwned, StoreUnavailable

if TYPE_CHECKING:
    from pathlib import Path
    from types import ModuleType

__all__ = ["PREFIX", "Owner", "OwnerFile", "has_locks", "lives", "sweep"]

_fcntl: ModuleType | None
try:
    import fcntl as _fcntl
except ImportError:  # Windows
    _fcntl = None

PREFIX: Final = "owner."
_BYTES: Final = 512
_UNKNOWN: Final = 0
_SET: Final[int | None] = getattr(_fcntl, "F_OFD_SETLK", None) if sys.platform == "linux" else None
_ASK: Final[int | None] = getattr(_fcntl, "F_OFD_GETLK", None) if sys.platform == "linux" else None
_FLOCK: Final = struct.Struct("hhqqi4x")
"""Linux: l_type, l_whence, l_start, l_len (0: all of the file), l_pid (0)."""


class Owner(msgspec.Struct, frozen=True):
    """Who holds a lock: process id, host name, since when (UTC seconds)."""

    pid: int
    host: str
    since: float


def has_locks() -> bool:
    """Whether this platform has the locks that ownership needs."""
    return _fcntl is not None


class OwnerFile:
    """The lock on one `owner.<epoch>`, held until `close`."""

    def __init__(self, path: Path, fd: int) -> None:
        self.path = path
        self._fd = fd

    @classmethod
    def lock(cls, folder: Path, epoch: int, owner: Owner) -> OwnerFile:
        """Lock the file of an epoch and write the owner into it.

        Raises:
            StoreOwned: Somebody holds it.
            StoreUnavailable: The folder cannot be written.
        """
        if _fcntl is None:
            raise StoreUnavailable(
                f"store {str(folder)!r}: this platform has no fcntl locks", path=str(folder)
            )
        path = folder / f"{PREFIX}{epoch}"
        try:
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            gone = isinstance(error, FileNotFoundError | NotADirectoryError)
            cure = "Bring the folder back" if gone else "Make the folder writable for this user"
            raise StoreUnavailable(
                f"store {str(folder)!r} cannot be owned: {error.strerror} on {path.name!r}. {cure}",
                path=str(folder),
                reason=str(error.strerror),
            ) from error
        try:
            _fcntl.flock(fd, _fcntl.LOCK_EX | _fcntl.LOCK_NB)
            _write(fd, owner)
            if _SET is not None:
                with contextlib.suppress(OSError):  # only those who ask would miss it
                    _fcntl.fcntl(fd, _SET, _FLOCK.pack(_fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0))
        except BlockingIOError:
            os.close(fd)
            raise owned(folder, _holder(folder, epoch)) from None
        except BaseException:  # whatever it is: give back what was taken, and let it pass
            os.close(fd)
            raise
        return cls(path, fd)

    def close(self) -> None:
        """Let the lock go. The file stays; `sweep` removes it when its epoch has passed."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            with contextlib.suppress(OSError):
                os.close(fd)

    after_fork = close


def lives(folder: Path, epoch: int) -> bool | None:
    """Whether somebody holds the file of an epoch; None if that cannot be asked without taking it."""
    if _fcntl is None or _ASK is None:
        return None
    try:
        fd = os.open(folder / f"{PREFIX}{epoch}", os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    except OSError:
        return None
    try:
        asked = _FLOCK.pack(_fcntl.F_RDLCK, os.SEEK_SET, 0, 0, 0)
        kind, *_rest = _FLOCK.unpack(_fcntl.fcntl(fd, _ASK, asked))
    except OSError:
        return None
    finally:
        os.close(fd)
    return bool(kind != _fcntl.F_UNLCK)


def owned(folder: Path, owner: Owner) -> StoreOwned:
    """The error of a store that somebody else holds."""
    who = "a process that is just starting" if owner.pid == _UNKNOWN else f"process {owner.pid}"
    mine = " (this one)" if owner.pid == os.getpid() and owner.host == socket.gethostname() else ""
    where = f" on {owner.host}" if owner.host else ""
    return StoreOwned(
        f"store {str(folder)!r} is owned by {who}{mine}{where}. Close that runtime, or end that process; "
        "until then the store can be read",
        pid=owner.pid,
        host=owner.host,
        since=owner.since,
    )


def sweep(folder: Path, epoch: int) -> None:
    """Remove the files of epochs before `epoch`, and what processes left that died making the store."""
    for path in folder.glob("tmp*/"):
        shutil.rmtree(path, ignore_errors=True)
    for path in folder.glob(f"{PREFIX}*"):
        number = path.name.removeprefix(PREFIX)
        if number.isdigit() and int(number) < epoch:
            with contextlib.suppress(OSError):
                path.unlink()


def _write(fd: int, owner: Owner) -> None:
    # One write of a fixed length, so that a reader sees the old owner or the new one.
    text = msgspec.json.encode(owner)
    os.pwrite(fd, text.ljust(_BYTES), 0)


def _holder(folder: Path, epoch: int) -> Owner:
    """Who holds an epoch, or is about to hold the next one."""
    for number in (epoch, epoch + 1):
        with contextlib.suppress(OSError, msgspec.DecodeError):
            return msgspec.json.decode((folder / f"{PREFIX}{number}").read_bytes(), type=Owner)
    return Owner(_UNKNOWN, "", 0.0)
