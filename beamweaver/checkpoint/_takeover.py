"""Taking a store from a living owner: its epoch is raised by a child process, which can be killed.

Only LMDB's write lock can hold a forced takeover up: its owner may stand still inside a write. A worker that
waits for that lock cannot be stopped, so a child process waits for it.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from beamweaver.checkpoint._layout import EPOCH
from beamweaver.checkpoint._lmdb_kv import LmdbKv
from beamweaver.checkpoint._meta import fence_of, read_epoch
from beamweaver.errors import StoreError, TakeoverBlocked

if TYPE_CHECKING:
    from collections.abc import Sequence

    from beamweaver.checkpoint._owner import Owner

__all__ = ["main", "raise_elsewhere"]

_START_SECONDS: Final = 60.0
"""How long the child may take until it asks for the lock."""
_CHILD: Final = """
import json, sys
sys.path[:] = json.loads(sys.argv[4])
from beamweaver.checkpoint._takeover import main
main(sys.argv[1:4])
"""
_READY, _RAISED, _PASSED = b"ready", b"raised", b"passed"


def raise_elsewhere(path: Path, epoch: int, owner: Owner, seconds: float) -> bool:
    """Raise the epoch of a store by one, durably, whoever owns it.

    Args:
        path: The store's folder.
        epoch: The epoch that it has.
        owner: Who owns it, for the error.
        seconds: How long to wait for LMDB's write lock.

    Returns:
        Whether the epoch was this one and is raised.

    Raises:
        TakeoverBlocked: The lock did not come.
        StoreError: The child process failed.
    """
    command = [sys.executable, "-c", _CHILD, str(path), str(epoch), str(os.getpid())]
    with subprocess.Popen(  # noqa: S603 our own code, by a path of ours
        [*command, json.dumps(sys.path)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as child:
        try:
            answer = _word(child, _START_SECONDS)
            if answer == _READY:
                answer = _word(child, seconds)
        except TimeoutError:
            raise _blocked(path, owner, seconds) from None
        finally:
            child.kill()  # one that is done does not mind
        if answer not in (_RAISED, _PASSED):
            said = b"" if child.stderr is None else child.stderr.read()
            raise StoreError(
                f"store {str(path)!r} could not be taken over: the process that was to raise its epoch said "
                f"{said.decode(errors='replace')[-500:]!r}. Try again",
                path=str(path),
            )
        return answer == _RAISED


def _word(child: subprocess.Popen[bytes], seconds: float) -> bytes:
    """The next line that the child writes; empty at its end.

    Raises:
        TimeoutError: It does not come.
    """
    out = child.stdout
    if out is None:
        return b""
    ready, _, _ = select.select([out], [], [], seconds)
    if not ready:
        raise TimeoutError
    return out.readline().strip()


def _blocked(path: Path, owner: Owner, seconds: float) -> TakeoverBlocked:
    return TakeoverBlocked(
        f"store {str(path)!r} cannot be taken over: process {owner.pid} on {owner.host} holds the lock of a "
        f"write and did not give it up within {seconds} s. It may be stopped: end that process "
        f"(kill -9 {owner.pid}), then take the store again; no force is needed then",
        pid=owner.pid,
        host=owner.host,
    )


def main(arguments: Sequence[str]) -> None:
    """What the child does: path of the store, its epoch, the parent's process id."""
    path, epoch, parent = Path(arguments[0]), int(arguments[1]), int(arguments[2])
    kv = LmdbKv(path, sync=True)
    _say(_READY)
    txn = kv.begin(write=True)
    try:
        # A parent that died in the meantime will not own the store: its owner keeps it.
        raised = read_epoch(txn) == epoch and os.getppid() == parent
        if raised:
            txn.put(EPOCH, fence_of(epoch + 1))
            txn.commit()
    finally:
        txn.abort()
    if raised:
        kv.sync()
    _say(_RAISED if raised else _PASSED)
    kv.close()


def _say(word: bytes) -> None:
    os.write(1, word + b"\n")
