"""What runs in the process of a `ProcessActor` or a `ProcessPool`. Imports nothing of the package.

Frames both ways: a kind (one byte), a length (four), the payload. It ends with its parent: the kernel
signals it when the lifeline's other end is closed, whatever it does then (Linux), and a thread of its
own watches that end (elsewhere).
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import struct
import sys
import threading
import traceback
from typing import Any

__all__: list[str] = []  # a program, not a library

_HEAD = struct.Struct(">cI")


def _read(fd: int, count: int) -> bytes:
    parts = []
    while count:
        part = os.read(fd, min(count, 1 << 20))
        if not part:
            os._exit(0)  # the parent has gone, or wants no more
        parts.append(part)
        count -= len(part)
    return b"".join(parts)


def _write(fd: int, kind: bytes, payload: bytes) -> None:
    data = memoryview(_HEAD.pack(kind, len(payload)) + payload)
    while data:
        data = data[os.write(fd, data) :]


def _find(name: str) -> Any:
    module, _, path = name.partition(":")
    found: Any = importlib.import_module(module)
    for part in path.split("."):
        found = getattr(found, part)
    return found


def _hold_lifeline(fd: int) -> None:
    def watch() -> None:
        os.read(fd, 1)
        os.kill(os.getpid(), signal.SIGKILL)

    threading.Thread(target=watch, daemon=True).start()
    if sys.platform == "linux":
        import fcntl  # noqa: PLC0415 - not on every platform

        signal.signal(signal.SIGIO, signal.SIG_DFL)  # which ends the process
        fcntl.fcntl(fd, fcntl.F_SETOWN, os.getpid())
        fcntl.fcntl(fd, fcntl.F_SETFL, fcntl.fcntl(fd, fcntl.F_GETFL) | os.O_ASYNC)


class _Server:
    def __init__(self, read: int, write: int) -> None:
        self.read = read
        self.write = write
        self.object: Any = None
        self.encode: Any = None
        self.decode: Any = None

    def serve(self) -> None:
        while True:
            kind, length = _HEAD.unpack(_read(self.read, _HEAD.size))
            payload = _read(self.read, length)
            try:
                answer = self.perform(kind, payload)
            except Exception as error:  # noqa: BLE001 - it is the parent's to know
                told = {
                    "type": f"{type(error).__module__}.{type(error).__qualname__}",
                    "message": str(error),
                    "traceback": traceback.format_exc(),
                }
                _write(self.write, b"E", json.dumps(told).encode())
            else:
                _write(self.write, b"V", answer)
            if kind == b"S":
                return

    def perform(self, kind: bytes, payload: bytes) -> Any:
        if kind == b"P":
            self.prepare(json.loads(payload))
        elif kind == b"C":
            value = self.call(payload)
            return self.encode(value)
        elif kind == b"O":
            self.object = self.call(payload)
        elif kind == b"M":
            return self.encode(self.object.on_receive(self.decode(payload)))
        elif kind == b"S" and hasattr(self.object, "on_stop"):
            self.object.on_stop(payload.decode())
        return b""

    def prepare(self, wanted: dict[str, list[str]]) -> None:
        sys.path[:] = wanted["path"]
        for name in wanted["preload"]:
            importlib.import_module(name)

    def call(self, payload: bytes) -> Any:
        head, args = payload.split(b"\n", 1)
        target, encode, decode = json.loads(head)
        self.encode, self.decode = _find(encode), _find(decode)
        return _find(target)(*self.decode(args))


if __name__ == "__main__":
    _hold_lifeline(int(sys.argv[3]))
    _Server(int(sys.argv[1]), int(sys.argv[2])).serve()
