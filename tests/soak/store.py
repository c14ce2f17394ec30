"""The checkpoint store at length: kills, power cuts, damage, failing calls, random histories, growth.

By default 10,000 kills between system calls, 5,000 images of power cuts, 2,000 failing calls, 100,000 damaged
values, 10,000 damaged files, and the growth of a store under readers and short threads.
`--count N` makes N kills and the others in proportion.
"""

from __future__ import annotations

import errno
import json
import random
import shutil
import tempfile
import time
from pathlib import Path

from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

from beamweaver.checkpoint.verify import verify
from tests.checkpoint.cuts import Bench, cut_off, failed, killed, recorded
from tests.checkpoint.damage import Pairs, damaged, judge_forgery, judge_mutation
from tests.checkpoint.full_store import full, pairs_of
from tests.checkpoint.test_store_model import Stores
from tests.soak import _store_growth

_KILLS = 10_000
_ROUND = 50


class _Soak:
    def __init__(self, minutes: float, seed: int, count: int | None) -> None:
        self.ends = time.monotonic() + minutes * 60
        self.seed = seed
        self.share = (count or _KILLS) / _KILLS
        self.failures = 0

    def left(self) -> bool:
        return time.monotonic() < self.ends

    def tell(self, what: str, done: int, wrong: list[str], **more: object) -> None:
        self.failures += len(wrong)
        line = {"what": what, "done": done, "wrong": len(wrong), "first": wrong[:5], **more}
        print(json.dumps(line), flush=True)

    def rounds(self, what: str, total: int, one) -> None:
        """`one(seed, chance)` gives a function that makes a case; a new seed each `_ROUND` cases."""
        total, done, wrong, seed = max(1, int(total * self.share)), 0, [], self.seed
        while done < total and self.left():
            case = one(seed, random.Random(seed))
            for _ in range(min(_ROUND, total - done)):
                wrong += [text for text in [case()] if text]
                done += 1
            seed += 1
        self.tell(what, done, wrong, asked=total, seeds=[self.seed, seed - 1])


def run(minutes: float, seed: int, count: int | None) -> int:
    soak = _Soak(minutes, seed, count)
    bench = Bench()
    folder = Path(tempfile.mkdtemp())
    try:
        _growth(soak, folder)
        _damage(soak, folder)
        _histories(soak)
        if bench.available:
            _faults(soak, bench)
        else:
            print(json.dumps({"what": "faults", "skipped": "no C compiler for the shim"}))
    finally:
        bench.close()
        shutil.rmtree(folder, ignore_errors=True)
    return soak.failures


def _faults(soak: _Soak, bench: Bench) -> None:
    def kills(seed, chance):
        history = bench.history(seed)
        return lambda: killed(bench, seed, history, chance)

    def cuts(seed, chance):
        recording = recorded(bench, seed)
        return lambda: cut_off(bench, recording, chance)

    def failures(seed, chance):
        history = bench.history(seed)
        return lambda: failed(
            bench,
            seed,
            history,
            chance.randint(1, history[1]),
            error=chance.choice([errno.EIO, errno.ENOSPC, errno.EDQUOT]),
            for_ever=chance.randint(0, 1),
            kinds=chance.choice([1 << 1, 1 << 2, 0xFF]),
        )

    soak.rounds("power cuts", 5_000, cuts)
    soak.rounds("failing calls", 2_000, failures)
    soak.rounds("kills", _KILLS, kills)


def _damage(soak: _Soak, folder: Path) -> None:
    whole = full(folder / "whole")
    pairs = pairs_of(whole)
    original = (whole / "data.mdb").read_bytes()
    expected: dict[bytes, object] = {}
    txn = Pairs(pairs)

    def file(seed, chance):
        def case() -> str:
            target = folder / "damaged"
            target.mkdir()
            try:
                how = damaged(original, target / "data.mdb", chance)
                sound = verify(target).sound
                return f"seed {seed}: {how}" if sound and pairs_of(target) != pairs else ""
            finally:
                shutil.rmtree(target)

        return case

    soak.rounds("damaged values", 100_000, lambda _, c: lambda: judge_mutation(txn, c, expected))
    soak.rounds("forged values", 10_000, lambda _, c: lambda: judge_forgery(txn, c))
    soak.rounds("damaged files", 10_000, file)


def _histories(soak: _Soak) -> None:
    examples = max(1, int(2_000 * soak.share))
    wrong = []
    try:
        run_state_machine_as_test(
            Stores,
            settings=settings(
                max_examples=examples,
                stateful_step_count=50,
                deadline=None,
                suppress_health_check=list(HealthCheck),
            ),
        )
    except Exception as error:  # whatever a history raises is what the soak looks for
        wrong.append(repr(error))
    soak.tell("random histories", examples, wrong)


def _growth(soak: _Soak, folder: Path) -> None:
    for name, measure in _store_growth.MEASURES.items():
        if soak.left():
            figures, wrong = measure(folder / name, soak.share)
            soak.tell(name, 1, wrong, **figures)
