"""A file of lines that are each written once: an effect outside of the store.

The store's own records cannot take part in it, so the file is made idempotent: a line carries the
key of the task that writes it, and a task that runs again finds its key and writes nothing.

Example:
    >>> import tempfile
    >>> from pathlib import Path
    >>> folder = tempfile.TemporaryDirectory()
    >>> ledger = Ledger(Path(folder.name) / "ledger.jsonl")
    >>> ledger.append("key-1", {"path": "a.py"}), ledger.append("key-1", {"path": "a.py"})
    (True, False)
    >>> [line["path"] for line in read_ledger(Path(folder.name) / "ledger.jsonl")]
    ['a.py']
    >>> ledger.close()
    >>> folder.cleanup()
"""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["Ledger", "read_ledger"]


class Ledger:
    """Appends lines, each durable before `append` returns. For one process at a time.

    Args:
        path: The file; made if it is not there. A line that a killed process left half written is
            cut off: its task was never acknowledged and runs again.
    """

    def __init__(self, path: Path) -> None:
        self._lock = threading.Lock()
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
        whole = path.read_bytes()
        end = whole.rfind(b"\n") + 1
        if end < len(whole):
            os.ftruncate(self._file, end)
        self._keys = {msgspec.json.decode(line)["key"] for line in whole[:end].splitlines()}

    def append(self, key: str, line: dict[str, Any]) -> bool:
        """Write a line, unless one with this key is there.

        Args:
            key: Names the effect, as `ctx.idempotency_key` does.
            line: What to write beside the key.

        Returns:
            Whether the line is new.

        Raises:
            OSError: The file cannot be written.
        """
        with self._lock:
            if key in self._keys:
                return False
            data = msgspec.json.encode({"key": key, **line}) + b"\n"
            written = os.write(self._file, data)
            if written != len(data):
                raise OSError(f"{written} of {len(data)} bytes of a line were written")
            os.fsync(self._file)
            self._keys.add(key)
            return True

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            os.close(self._file)


def read_ledger(path: Path) -> list[dict[str, Any]]:
    """All lines of a ledger, in order; none if there is no file."""
    if not path.exists():
        return []
    return [msgspec.json.decode(line) for line in path.read_bytes().splitlines()]
