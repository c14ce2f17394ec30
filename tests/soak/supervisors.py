"""Trees beside their model, storms, and kills: all counts by default, or `--count` per cent of them.

- 100,000 steps of a Hypothesis state machine, each compared with the model;
- 10,000 storms in the simulation: deaths during starts and ends, together, and races for names;
- 100 storms over an event loop, threads and processes, which take real time;
- 20,000 tight races of kills with the ends of bodies, on real workers, with and without a trace function.
"""

from __future__ import annotations

import sys
import threading
import time
import traceback
from collections.abc import Callable
from typing import Any

from tests.supervisors.machine import drive
from tests.supervisors.storms import storm
from tests.supervisors.storms_elsewhere import storm as storm_elsewhere
from tests.supervisors.test_tasks_and_kills import _storm as kills

STEPS = 100_000
STORMS = 10_000
ELSEWHERE = 100
RACES = 20_000


def run(minutes: float, seed: int, count: int | None) -> int:
    ends = time.monotonic() + minutes * 60
    share = 1.0 if count is None else count / 100
    failures = 0
    parts = {"steps": _steps, "storms": _storms, "elsewhere": _elsewhere, "races": _races}
    for name, part in parts.items():
        began = time.monotonic()
        done, wrong = part(share, seed, ends)
        failures += wrong
        print(f"{name}: {done}, {wrong} wrong, {time.monotonic() - began:.0f} s", flush=True)
    return failures


def _steps(share: float, seed: int, ends: float) -> tuple[int, int]:
    done = 0
    while done < STEPS * share and time.monotonic() < ends:
        try:
            done += drive(examples=200, seed=seed + done)
        except Exception:
            traceback.print_exc()
            return done, 1
    return done, 0


def _storms(share: float, seed: int, ends: float) -> tuple[int, int]:
    return _each(storm, range(seed, seed + int(STORMS * share)), ends)


def _elsewhere(share: float, seed: int, ends: float) -> tuple[int, int]:
    return _each(storm_elsewhere, range(seed, seed + int(ELSEWHERE * share)), ends)


def _each(part: Callable[[int], object], seeds: range, ends: float) -> tuple[int, int]:
    done = wrong = 0
    for number in seeds:
        if time.monotonic() > ends:
            break
        done += 1
        wrong += _fails(part, number)
    return done, wrong


def _races(share: float, seed: int, ends: float) -> tuple[int, int]:
    done = wrong = 0
    traced = False
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    before = sys.gettrace()
    try:
        while done < RACES * share and time.monotonic() < ends:
            _trace(_tracer if traced else before)
            wrong += _fails(lambda number: kills(jobs=500, seed=number), seed + done)
            traced = not traced
            done += 500
    finally:
        _trace(before)
        sys.setswitchinterval(interval)
    return done, wrong


def _trace(function: Any) -> None:
    threading.settrace(function)
    sys.settrace(function)


def _tracer(_frame: Any, _event: str, _arg: Any) -> Any:
    return _tracer


def _fails(part: Callable[[int], object], number: int) -> int:
    try:
        part(number)
    except Exception:
        print(f"seed {number}:")
        traceback.print_exc()
        return 1
    return 0
