"""The folder in which other processes leave messages for the owner of a store.

A message is a file of its own: written under a temporary name, synced, renamed to its id, and the folder
synced. So nobody waits for anybody: a sender that stands still or dies leaves at most a temporary file. Only
the owner removes messages.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import stat
from typing import TYPE_CHECKING, Final

import msgspec

from beamweaver.checkpoint._place import sync_folder
from beamweaver.errors import InboxFull, StoreFull, StoreUnavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from beamweaver.limits import Limits

__all__ = ["Found", "Spool"]

_TEMPORARY: Final = "tmp-"
ASIDE: Final = "aside"
REJECTED: Final = "rejected"
_FOLDERS: Final = (ASIDE, REJECTED)
_NO_ROOM: Final = (errno.ENOSPC, errno.EDQUOT)
_numbers = itertools.count(1)


class Found(msgspec.Struct, frozen=True, order=True):
    """A file that waits; those that came first are the smallest."""

    came_ns: int
    name: str
    size: int
    regular: bool


class Spool:
    """The folder of a store.

    Args:
        folder: Where it is; it is made when the first message comes.
        limits: How much may wait.
        sync: Whether what is written must survive a power cut.
        reached: Called with the name of each point that a sender reaches.
    """

    def __init__(
        self, folder: Path, limits: Limits, *, sync: bool, reached: Callable[[str], None]
    ) -> None:
        self.folder = folder
        self._limits = limits
        self._sync = sync
        self._reached = reached

    # Sending ------------------------------------------------------------------------------------

    def send(self, name: str, data: bytes, *, once: bool) -> bytes | None:
        """Leave a message; when this returns it is durable.

        Args:
            name: Its id.
            data: The file.
            once: Whether another may have left a message of that id.

        Returns:
            What waits under that name already, in place of which nothing was written; else None.

        Raises:
            InboxFull: Too many messages wait.
            StoreFull: The disk is full.
            StoreUnavailable: The folder cannot be written.
        """
        self._check_room(name, len(data))
        if not self._write(self.folder, name, data, once=once):
            return self._bytes(self.folder / name)
        return None

    def _check_room(self, name: str, size: int) -> None:
        limits, waiting = self._limits, [found for found in self.waiting() if found.name != name]
        held = sum(found.size for found in waiting)
        if len(waiting) < limits.spool_messages and held + size <= limits.spool_bytes:
            return
        raise InboxFull(
            f"{len(waiting)} messages of {held} bytes wait in {str(self.folder)!r} for the owner of the "
            f"store, and {size} bytes are to come; limits.spool_messages is {limits.spool_messages} and "
            f"limits.spool_bytes {limits.spool_bytes}. See that an owner runs, or send again later",
            path=str(self.folder),
        )

    def _write(self, folder: Path, name: str, data: bytes, *, once: bool = False) -> bool:
        try:
            self._make(folder)
            try:
                # A temporary file may be swept away under a sender that stood still for long.
                while not self._place(folder, name, data, once=once):
                    pass
            except FileExistsError:
                if self._sync:
                    sync_folder(folder)  # who left it may not have come to that
                return False
        except OSError as error:
            kind = StoreFull if error.errno in _NO_ROOM else StoreUnavailable
            raise kind(
                f"a message cannot be left in {str(folder)!r}: {error.strerror or error}. See that there is "
                "room, and that this user may write there",
                path=str(folder),
            ) from error
        return True

    def _make(self, folder: Path) -> None:
        if not folder.is_dir():
            folder.mkdir(exist_ok=True)
            if self._sync:
                sync_folder(folder.parent)

    def _place(self, folder: Path, name: str, data: bytes, *, once: bool) -> bool:
        """Write a file whole; False if it was swept away before it had its name.

        Raises:
            FileExistsError: There is one of that name, with `once`.
        """
        temporary = folder / f"{_TEMPORARY}{name}-{os.getpid()}-{next(_numbers)}"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        fd = os.open(temporary, flags, 0o644)
        try:
            try:
                self._reached("send.begun")
                with os.fdopen(fd, "wb", closefd=False) as file:
                    file.write(data)
                self._reached("send.written")
                if self._sync:
                    os.fsync(fd)
            finally:
                os.close(fd)
            self._reached("send.synced")
            if once:
                os.link(temporary, folder / name)
                temporary.unlink()
            else:
                temporary.rename(folder / name)
        except FileNotFoundError:
            return False
        except BaseException:  # whatever ends it, no half-written file is left
            temporary.unlink(missing_ok=True)
            raise
        self._reached("send.renamed")
        if self._sync:
            sync_folder(folder)
        self._reached("send.durable")
        return True

    # Reading ------------------------------------------------------------------------------------

    def changed_ns(self) -> int:
        """When a name in the folder changed last; 0 if there is none."""
        try:
            return self.folder.stat().st_mtime_ns
        except OSError:
            return 0

    def waiting(self) -> list[Found]:
        """What waits, in the order in which it came; foreign files too."""
        return sorted(
            Found(info.st_ctime_ns, name, info.st_size, stat.S_ISREG(info.st_mode))
            for name, info in _files(self.folder)
            if not name.startswith(_TEMPORARY) and name not in _FOLDERS
        )

    def has(self, name: str) -> bool:
        """Whether a message waits."""
        return (self.folder / name).exists()

    def read(self, found: Found) -> bytes | None:
        """A file's bytes; None if it is gone, or no regular file of a size that a message may have."""
        if not found.regular or found.size > self._limits.spool_bytes:
            return None
        return self._bytes(self.folder / found.name)

    def _bytes(self, path: Path) -> bytes | None:
        # Without following and waiting: whoever may write here may have put a link or a pipe in the place.
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        try:
            fd = os.open(path, flags)
        except OSError:
            return None
        with os.fdopen(fd, "rb") as file:
            return file.read(self._limits.spool_bytes + 1)

    # The owner's part ---------------------------------------------------------------------------

    def remove(self, name: str) -> None:
        """A message was taken."""
        (self.folder / name).unlink(missing_ok=True)

    def set_aside(self, name: str) -> None:
        """Put a file that is no message where it is in nobody's way; the oldest of those give way."""
        folder = self.folder / ASIDE
        folder.mkdir(exist_ok=True)
        self._make_room(folder, self._limits.spool_aside)
        with contextlib.suppress(FileNotFoundError):
            (self.folder / name).replace(folder / f"{next(_numbers)}-{os.getpid()}-{name}"[:200])

    def refuse(self, name: str, data: bytes) -> None:
        """Keep for its sender why a message was rejected, durably; the oldest give way."""
        folder = self.folder / REJECTED
        self._make(folder)
        self._make_room(folder, self._limits.spool_rejected)
        self._write(folder, name, data)

    def refusal(self, name: str) -> bytes | None:
        """Why a message was rejected, if that is kept here."""
        return self._bytes(self.folder / REJECTED / name)

    def forget_refusal(self, name: str) -> None:
        """A message is sent again under its key: why it was rejected before is past."""
        with contextlib.suppress(OSError):
            (self.folder / REJECTED / name).unlink()

    def refusals(self) -> list[bytes]:
        """All that is kept of rejected messages, the oldest first."""
        folder = self.folder / REJECTED
        names = sorted((info.st_mtime_ns, name) for name, info in _files(folder))
        found = [self._bytes(folder / name) for _, name in names]
        return [data for data in found if data is not None]

    def sweep(self, before: float) -> int:
        """Remove temporary files that nobody wrote to since `before` (UTC seconds); how many."""
        swept = 0
        for folder in (self.folder, self.folder / REJECTED):
            for name, info in _files(folder):
                if name.startswith(_TEMPORARY) and info.st_mtime < before:
                    with contextlib.suppress(OSError):
                        (folder / name).unlink()
                        swept += 1
        return swept

    def _make_room(self, folder: Path, most: int) -> None:
        names = sorted((info.st_mtime_ns, name) for name, info in _files(folder))
        for _, name in names[: max(len(names) - most + 1, 0)]:
            with contextlib.suppress(OSError):
                (folder / name).unlink()


def _files(folder: Path) -> Iterator[tuple[str, os.stat_result]]:
    """The files of a folder that are there when they are looked at."""
    try:
        with os.scandir(folder) as entries:
            names = [entry.name for entry in entries]
    except OSError:
        return
    for name in names:
        with contextlib.suppress(OSError):
            yield name, (folder / name).lstat()
