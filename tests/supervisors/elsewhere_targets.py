"""What the tests run in processes of their own. Imports nothing of the package."""

from __future__ import annotations

import os
import signal
from pathlib import Path


class Counter:
    def __init__(self, start: int = 0) -> None:
        if start < 0:
            raise ValueError("a counter starts at 0")
        self.n = start
        self.path = ""

    def on_receive(self, message):
        if isinstance(message, int):
            self.n += message
            return self.n
        word, *rest = message
        return getattr(self, word)(*rest)

    def pid(self) -> int:
        return os.getpid()

    def note(self, path: str) -> None:
        self.path = path

    def crash(self) -> None:
        raise KeyError("crashed")

    def leave(self, code: int) -> None:
        raise SystemExit(code)

    def hang(self, path: str) -> None:
        Path(path).touch()
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGINT})
        while True:
            try:
                signal.pause()
            except BaseException:
                continue

    def on_stop(self, reason: str) -> None:
        if self.path:
            Path(self.path).write_text(reason)


def double(n: int) -> int:
    return 2 * n


def fail(text: str) -> None:
    raise ValueError(text)


def hang(path: str) -> None:
    Counter().hang(path)


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)
