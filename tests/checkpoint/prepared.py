"""A process that is prepared once, with the shim between it and its files, and forks a child for each case.

It reads requests and writes answers as lines of JSON.
"""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys
from pathlib import Path

from beamweaver.errors import StoreError
from tests.checkpoint import workload

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
    for line in sys.stdin:
        request = json.loads(line)
        ours, theirs = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(ours)
            code = 1
            try:
                _child(shim, request, theirs)
                code = 0
            except StoreError as error:
                os.write(theirs, b"!" + error.code.encode() + b"\n")
                code = 3
            finally:
                os._exit(code)
        os.close(theirs)
        with os.fdopen(ours, "rb") as pipe:
            said = pipe.read().decode().splitlines()
        _, status = os.waitpid(pid, 0)
        answer = {
            "signal": os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0,
            "code": os.WEXITSTATUS(status) if os.WIFEXITED(status) else -1,
            "states": [item for item in said if item[0] not in "!#"],
            "errors": [item[1:] for item in said if item[0] == "!"],
            "calls": next((int(item[1:]) for item in said if item[0] == "#"), 0),
        }
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


def _child(shim, request, pipe):
    count = [0]

    def after(store):
        # The content is worked out while nothing is counted; the line says that it is acknowledged.
        count[0] += 1
        shim.shim_mark(ctypes.c_long(count[0]))
        state = workload.content_of(store) if request.get("states") else "+"
        os.write(pipe, state.encode() + b"\n")

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
    workload.run(
        Path(request["path"]),
        request["seed"],
        after,
        survives=request.get("survives", "power-loss"),
    )
    shim.shim_count.restype = ctypes.c_long
    os.write(pipe, b"#%d\n" % shim.shim_count())


if __name__ == "__main__":
    main()
