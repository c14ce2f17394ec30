"""A sender that is stopped in the middle of its message delays neither the owner nor other senders."""

from __future__ import annotations

import contextlib
import os
import signal
import statistics
import time
from pathlib import Path

from beamweaver import Invoke, Runtime
from supervisors.testing import eventually
from tests.checkpoint.children import child
from tests.runtime.children import store_at
from tests.runtime.senders import adding, client, send_to_point

_ROUNDS = 5
_CALLS = 200
_SLOWER = 2.0
"""How many times its p99 alone, and 50 ms, a call may take: machines vary, and who waits waits for ever."""


def stopped_sender(path, share):
    """The p99 of an owner's calls and of another sender's messages, with a stopped sender and without."""
    calls = max(50, int(_CALLS * share))
    path.parent.mkdir(exist_ok=True)
    seen: dict[str, list[float]] = {}
    with Runtime(store_at(path), graphs=[adding().compile()]) as owner, client(path) as other:
        for turn in range(_ROUNDS):
            for stopped in (False, True):
                with _stopped(path) if stopped else contextlib.nullcontext():
                    what = "beside a stopped sender" if stopped else "alone"
                    asked = [
                        _timed(lambda n=n: _ask(owner, f"o{turn}-{stopped}-{n}"))
                        for n in range(calls)
                    ]
                    told = [
                        _timed(lambda n=n: _tell(other, f"t{turn}-{stopped}-{n}"))
                        for n in range(calls)
                    ]
                seen.setdefault(f"owner {what}", []).append(_p99(asked))
                seen.setdefault(f"sender {what}", []).append(_p99(told))
    figures = {
        f"p99 ms, {who}": round(statistics.median(times) * 1_000, 2) for who, times in seen.items()
    }
    wrong = []
    for who in ("owner", "sender"):
        alone, beside = (
            statistics.median(seen[f"{who} {w}"]) for w in ("alone", "beside a stopped sender")
        )
        if beside > alone * _SLOWER + 0.05:
            wrong.append(f"the {who}'s p99 went from {alone * 1e3:.1f} to {beside * 1e3:.1f} ms")
    return figures, wrong


@contextlib.contextmanager
def _stopped(path):
    """A sender that stands still with half of its message written."""
    with child(send_to_point, path, "send.written", True) as (_process, pipe):
        pid = pipe.recv()
        eventually(lambda: _state_of(pid) == "T")
        yield
        os.kill(pid, signal.SIGCONT)
        pipe.recv()


def _state_of(pid):
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def _ask(runtime, thread_id):
    assert runtime.thread(thread_id).ask(Invoke({"n": 1}), timeout=30).state["log"] == [1]


def _tell(runtime, thread_id):
    runtime.thread(thread_id).tell(Invoke({"n": 1}))


def _timed(call):
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


def _p99(times):
    return sorted(times)[int(len(times) * 0.99) - 1]
