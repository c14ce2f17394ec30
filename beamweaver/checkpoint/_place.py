"""The folder of a store on a disk: what may stand there, and what is said when it cannot."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Final

from beamweaver.checkpoint._lmdb_kv import DATA_FILE, cut_short
from beamweaver.checkpoint._owner import PREFIX
from beamweaver.errors import CorruptRecord, NotAStore, StoreUnavailable

__all__ = ["check_kind", "make_folder", "sync_folder", "unavailable"]

_OURS: Final = re.compile(
    rf"{re.escape(PREFIX)}\d+|inbox|lock\.mdb|data\.mdb|\.nfs.*|tmp[a-z0-9_]+"
)
_NETWORK: Final = frozenset(
    {"nfs", "nfs4", "cifs", "smb2", "smb3", "smbfs", "ncpfs", "afs", "ceph", "glusterfs", "lustre"}
    | {"fuse.sshfs", "fuse.glusterfs", "fuse.s3fs", "fuse.rclone", "fuse.gcsfuse"}
)
_MOUNTS: Final = Path("/proc/self/mountinfo")


def check_kind(path: Path) -> None:
    """See that a path is free, or a folder that can be a store's.

    Raises:
        NotAStore: It is a file, or a folder with other content.
        CorruptRecord: It is the folder of a store that was owned, without its file.
        StoreUnavailable: The folder that is to hold it is missing, or it cannot be looked at.
    """
    try:
        if not path.exists():
            if not path.parent.is_dir():
                raise unavailable(path, f"{str(path.parent)!r} is no folder", "Create that folder")
            return
        if not path.is_dir():
            raise NotAStore(
                f"{str(path)!r} is a file; a store is a folder. Give another path", path=str(path)
            )
        names = os.listdir(path)  # noqa: PTH208 the names are all that is wanted
    except OSError as error:
        raise unavailable(path, error.strerror or str(error), "Check the path") from error
    if any(re.fullmatch(rf"{re.escape(PREFIX)}\d+", name) for name in names):
        _check_owned(path)
    strange = [name for name in names if not _OURS.fullmatch(name)]
    if DATA_FILE not in names and strange:
        raise NotAStore(
            f"{str(path)!r} is a folder with other content ({min(strange)!r}). Give a path of the "
            "store's own",
            path=str(path),
        )


def _check_owned(path: Path) -> None:
    """See that a store that somebody has owned still has its file: an empty one would lose all in silence.

    Raises:
        CorruptRecord: It has not.
    """
    try:  # asked now: who makes a store links its file before it owns it, a listing may miss that
        size = (path / DATA_FILE).stat().st_size
    except FileNotFoundError:
        raise CorruptRecord(
            f"store {str(path)!r} is damaged: its file {DATA_FILE} is missing, and it was owned "
            "before. Bring the file back from a copy; to begin with an empty store, remove the folder's "
            f"files {PREFIX}*",
            key=DATA_FILE,
            path=str(path),
        ) from None
    if size == 0:
        raise cut_short(path, 0, "it was owned before")


def make_folder(path: Path) -> None:
    """Make a store's folder, durably, if it is not there.

    Raises:
        NotAStore: Something else is there.
        StoreUnavailable: It cannot be made, or lies on a network file system.
    """
    check_kind(path)
    kind = _file_system(path)
    if kind in _NETWORK:
        raise unavailable(
            path, f"it lies on a network file system ({kind})", "Give a path on a local disk"
        )
    try:
        if not path.exists():
            path.mkdir(exist_ok=True)
            sync_folder(path.parent)
    except OSError as error:
        cure = "Make the folder writable for this user, or give another path"
        raise unavailable(path, error.strerror or str(error), cure) from error


def unavailable(path: Path, reason: str, cure: str) -> StoreUnavailable:
    """The error of a path that cannot be opened or written."""
    return StoreUnavailable(
        f"store {str(path)!r} cannot be opened: {reason}. {cure}", path=str(path), reason=reason
    )


def sync_folder(path: Path) -> None:
    """Make the names in a folder survive a power loss."""
    try:
        fd = os.open(path, os.O_RDONLY)
    except OSError:  # a folder that may be entered but not read: nothing more can be done
        return
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _file_system(path: Path) -> str:
    """The kind of file system that holds a path, or "" where the platform does not tell."""
    try:
        lines = _MOUNTS.read_text("utf-8", "replace").splitlines()
    except OSError:
        return ""
    best, kind = "", ""
    for line in lines:
        left, _, right = line.partition(" - ")
        fields = left.split(" ")
        point = fields[4].replace("\\040", " ") if len(fields) > 4 else ""
        inside = f"{path}/".startswith(point.rstrip("/") + "/")
        if point and inside and len(point) >= len(best):
            best, kind = point, right.split(" ")[0]
    return kind
