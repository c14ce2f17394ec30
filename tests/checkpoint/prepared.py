"""A process that is prepared once, with the shim between it and its files, and forks a child for each case.

It reads requests and writes answers as lines of JSON.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

from beamweaver.errors import StoreError
from tests.checkpoint import workload
from tests.checkpoint.operations import OPERATIONS, in_small_pieces, opened

SHIM = Path(__file__).with_name("shim.c")


def compiled(folder):
    """The shim as a library, or None where there is no compiler."""
    library = folder / "shim.so"
    command = ["cc", "-shared", "-fPIC", "-O1", "-o", str(library), str(SHIM), "-ldl"]
    try:
        subprocess.run(command, check=True, capture_output=True, timeout=60)
    except (OSError, subprocess.SubprocessError):
        return None
    return library


class Prepared:
    """The prepared process, from outside."""

    def __init__(self, library):
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.checkpoint.prepared"],
            env={**os.environ, "LD_PRELOAD": str(library)},
            cwd=Path(__file__).parents[2],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def ask(self, **request):
        """What came of one case: transactions acknowledged, how the child ended, calls counted, states."""
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())

    def close(self):
        self._process.stdin.close()
        self._process.stdout.close()
        self._process.wait(20)


def main():
    shim = ctypes.CDLL(None)
    shim.shim_count.restype = ctypes.c_long
    for line in sys.stdin:
        request = json.loads(line)
        ours, theirs = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(ours)
            code = 1
            try:
                child = _Child(shim, request, theirs)  # kept: what it has opened is not closed
                code = child.run()
            finally:
                os._exit(code)
        os.close(theirs)
        with os.fdopen(ours, "rb") as pipe:
            said = pipe.read().decode().splitlines()
        _, status = os.waitpid(pid, 0)
        sys.stdout.write(json.dumps(_answer(said, status)) + "\n")
        sys.stdout.flush()


def _answer(said, status):
    counts = {item[0]: int(item[1:]) for item in said if item[0] in "#@"}
    return {
        "signal": os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0,
        "code": os.WEXITSTATUS(status) if os.WIFEXITED(status) else -1,
        "states": [item for item in said if item[0] not in "!#@"],
        "errors": [item[1:] for item in said if item[0] == "!"],
        "calls": counts.get("#", 0),
        "points": counts.get("@", 0),
    }


class _Child:
    """One case: a history, or an operation, with the fault that is asked for."""

    def __init__(self, shim, request, pipe):
        self._shim, self._request, self._pipe = shim, request, pipe
        self._done = self._points = 0
        self._store = None

    def run(self):
        """The exit code: 3 if it ended with an error of the store."""
        request, path = self._request, Path(self._request["path"])
        survives = request.get("survives", "power-loss")
        code = 0
        if "operation" in request:
            code = self._operate(path, request["operation"], survives)
        else:
            self._begin()
            code = self._attempt(
                lambda: workload.run(
                    path, request["seed"], self._after, survives=survives, faults=self._reached
                )
            )
        if not code:
            self._say(f"#{self._shim.shim_count()}")
            self._say(f"@{self._points}")
        return code

    def _operate(self, path, name, survives):
        """Make a call on a store that is there; if it fails, again, as a caller would."""
        in_small_pieces()
        operation = OPERATIONS[name]
        store = self._store = opened(path, survives)
        epoch = store.acquire() if operation.owned else 0
        with workload.told(store, self._after):
            self._begin()
            code = self._attempt(lambda: operation.call(store, epoch))
            if code and self._request.get("again"):
                self._attempt(lambda: operation.call(store, epoch))
        return code

    def _attempt(self, call):
        try:
            call()
        except StoreError as error:
            self._say("!" + error.code)
            return 3
        return 0

    def _begin(self):
        """From here on calls count."""
        shim, request = self._shim, self._request
        if "log" in request:
            shim.shim_record(request["log"].encode())
        shim.shim_kill(ctypes.c_long(request.get("kill", 0)), ctypes.c_int(request.get("after", 0)))
        if "fail" in request:
            shim.shim_fail(
                ctypes.c_long(request["fail"]),
                ctypes.c_int(request["error"]),
                ctypes.c_int(request.get("for_ever", 0)),
                ctypes.c_int(request.get("kinds", 0xFF)),
            )

    def _after(self, store):
        # The content is worked out while nothing is counted; the line says that it is acknowledged.
        self._done += 1
        self._shim.shim_mark(ctypes.c_long(self._done))
        self._say(workload.content_of(store) if self._request.get("states") else "+")

    def _reached(self, _point):
        self._points += 1
        if self._points == self._request.get("point"):
            os.kill(os.getpid(), signal.SIGKILL)

    def _say(self, text):
        os.write(self._pipe, text.encode() + b"\n")


if __name__ == "__main__":
    main()
