"""The store of production on a simulated disk: LMDB's checkpointer without LMDB, files and locks."""

from __future__ import annotations

import contextlib
import os
import threading
from pathlib import Path
from typing import Any

from beamweaver.checkpoint import LMDBCheckpointer
from beamweaver.checkpoint._meta import read_epoch
from beamweaver.checkpoint._owner import Owner, owned
from beamweaver.checkpoint._retention import finish_jobs
from beamweaver.checkpoint._shared import Options, Shared
from beamweaver.errors import StoreFull
from tests.simulation.disk import Disk, Ends, SimKv

__all__ = ["SimCheckpointer"]


class _SimShared(Shared):
    """An open disk; who owns it is written nowhere but on it."""

    def __init__(self, path: Path, options: Options, kv: SimKv) -> None:
        super().__init__(path, options, kv)  # type: ignore[arg-type]  # the seam is all that it uses
        self._disk = kv.disk
        self._process = kv.process

    def acquire(self, holder: object, now: float, force: float | None = None) -> int:
        disk, me = self._disk, Owner(self._process.number, "simulated", now)
        if force is None and (self._holder is not None or disk.owner not in (None, self._process)):
            raise owned(self.path, me)
        if disk.writing is not None:  # the owner stands still inside a write: it never comes back
            disk.writing.abort()
        epoch = self.read(read_epoch, 0)
        if epoch == 0:
            self.writer.initialise()
        raised = self.writer.raise_epoch(epoch)
        assert raised, "somebody else took it in one turn"
        disk.owner = self._process
        self._holder, self._since = holder, now
        with contextlib.suppress(StoreFull):
            finish_jobs(self.writer, epoch + 1)
        return epoch + 1

    def release(self, holder: object) -> None:
        if self._holder is holder:
            self.writer.disown()
            self._holder = None
            if self._disk.owner is self._process:
                self._disk.owner = None


class SimCheckpointer(LMDBCheckpointer):
    """A checkpointer of one process on a disk.

    Args:
        disk: Where threads are kept.
        process: Whose it is.
        clock: Tells the time.
        sync: Whether a commit survives a power cut; else only a sync does.
    """

    def __init__(self, disk: Disk, process: Ends, clock: Any, *, sync: bool = True) -> None:
        self._path = Path(f"/simulated/{id(disk)}/{process.number}")
        self._options = Options("power-loss" if sync else "process-kill", None)
        self.gains_by_groups = True
        self.blocks = False
        self.now = clock.time
        self.monotonic = clock.monotonic
        self.pause = clock.advance
        self._token = object()
        self._opening = threading.RLock()
        self._finalizer = None
        self._shared = _SimShared(self._path, self._options, SimKv(disk, process, sync=sync))
        assert self._shared.pid == os.getpid()

    @property
    def spool(self) -> None:
        """No process but the simulated ones is there."""
        return

    def close(self) -> None:
        """Release ownership."""
        self._shared.release(self._token)  # type: ignore[union-attr]  # it is always there
