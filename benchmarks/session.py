"""The harness's hold on a side: a process of its own, or this one for tests of the harness."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import time
from pathlib import Path
from typing import Protocol, TypeAlias

from benchmarks.comparison import Facts, Json, Options, Side
from benchmarks.side import LoadedSide, PeerMissingError, load

__all__ = ["InlineSession", "ProcessSession", "Session", "SideFailedError"]

_ROOT = Path(__file__).resolve().parent.parent
_Reply: TypeAlias = Facts


class SideFailedError(Exception):
    """A side raised, died, or did not answer in time."""


class Session(Protocol):
    """A side that is open: `warm_up`, then `run` any number of times, then `end`."""

    def warm_up(self) -> Json: ...
    def run(self) -> Facts: ...
    def end(self) -> Facts: ...
    def close(self) -> None: ...


class InlineSession:
    """A side in this process: quick, for tests; its times are not comparable."""

    def __init__(self, side: Side, folder: str, options: Options) -> None:
        self._side: LoadedSide = load(
            side.target, side.needs, folder, {**side.options, **options}, freeze=False
        )

    def warm_up(self) -> Json:
        return self._side.warm_up()

    def run(self) -> Facts:
        return self._side.run()

    def end(self) -> Facts:
        return self._side.end()

    def close(self) -> None:
        """Nothing more to free."""


class ProcessSession:
    """A side in a fresh interpreter.

    Args:
        side: What to run.
        folder: An empty folder for its files.
        options: Sizes.
        timeout: Seconds that one answer may take; a side that takes longer is killed.
    """

    def __init__(self, side: Side, folder: str, options: Options, timeout: float = 180.0) -> None:
        request: Facts = {
            "target": side.target,
            "needs": list(side.needs),
            "folder": folder,
            "options": {**side.options, **options},
        }
        self._label = side.label
        self._timeout = timeout
        self._rest = b""
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.side", json.dumps(request)],
            cwd=_ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )

    def warm_up(self) -> Json:
        """Waits for the side's first, untimed repetition.

        Raises:
            PeerMissingError: A distribution is not installed.
            SideFailedError: The side raised, died, or took longer than the timeout.
        """
        return self._answer()["result"]

    def run(self) -> Facts:
        self._ask("run")
        return self._answer()

    def end(self) -> Facts:
        self._ask("end")
        facts = self._answer()
        self._process.wait(self._timeout)
        return facts

    def close(self) -> None:
        """Ends the process if it still runs."""
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()

    def _ask(self, verb: str) -> None:
        stdin = self._process.stdin
        assert stdin is not None
        stdin.write(verb.encode() + b"\n")
        stdin.flush()

    def _answer(self) -> _Reply:
        reply: _Reply = json.loads(self._line())
        if "missing" in reply:
            raise PeerMissingError(reply["missing"])
        if "error" in reply:
            raise SideFailedError(f"{self._label} raised:\n{reply['error']}")
        return reply

    def _line(self) -> bytes:
        stdout = self._process.stdout
        assert stdout is not None
        deadline = time.monotonic() + self._timeout
        while b"\n" not in self._rest:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([stdout], [], [], left)[0]:
                raise SideFailedError(
                    f"{self._label} gave no answer within {self._timeout:g} s; "
                    "it is ended. Run it by itself with --quick to see what it does"
                )
            chunk = os.read(stdout.fileno(), 65536)
            if not chunk:
                raise SideFailedError(f"{self._label} died, exit code {self._process.wait()}")
            self._rest += chunk
        line, _, self._rest = self._rest.partition(b"\n")
        return line
