"""The checkpoint store at length, in parts.

    python -m tests.soak store --parts kills,cuts --seeds 0..5000 --json kills.json

| part | its full number |
|---|---|
| `kills` | 10,000 kills between system calls and at the points of commits |
| `cuts` | 5,000 images that a power cut may leave |
| `calls` | 2,000 failing calls of random histories |
| `operations` | each call of each operation, failing once, failing for ever, and as its process's last |
| `values`, `forged`, `files` | 100,000 damaged values, 10,000 behind a right checksum, 10,000 damaged files |
| `histories` | 2,000 random histories beside the memory store |
| `growth` | what a store takes: growing values, readers, short threads, long histories, a stopped sender |

`--seeds A..B` does the cases from A to B of each part, without B; `--seed A --count N` does N of them from A
on; without either a part does its full number from 1 on. The case of a number is the same wherever it
runs, so processes can share them: `--json FILE` keeps what was counted, and
`python -m tests.soak._store_counts FILE...` adds up. `operations` is always done whole, and `growth` with a
count below 10,000 in proportion.
"""

from __future__ import annotations

import errno
import itertools
import random
import shutil
import tempfile
import time
import traceback
from pathlib import Path

from hypothesis import HealthCheck, settings
from hypothesis import seed as seeded
from hypothesis.stateful import run_state_machine_as_test

from beamweaver.checkpoint.verify import verify
from tests.checkpoint.anomalies import Anomaly, loop
from tests.checkpoint.cuts import Bench, cut_off, failed, killed, recorded
from tests.checkpoint.damage import Pairs, damaged, judge_forgery, judge_mutation
from tests.checkpoint.full_store import full, pairs_of
from tests.checkpoint.operations import OPERATIONS
from tests.checkpoint.test_store_model import Stores
from tests.soak import _store_counts, _store_growth
from tests.soak._store_counts import Part
from tests.soak._store_senders import stopped_sender

_CASES = {
    "kills": 10_000,
    "cuts": 5_000,
    "calls": 2_000,
    "values": 100_000,
    "forged": 10_000,
    "files": 10_000,
    "histories": 2_000,
}
_MEASURES = {**_store_growth.MEASURES, "stopped sender": stopped_sender}
_FULL = 10_000
"""At which count the growth of a store is measured in full."""
_ROUND = 50
"""How many cases in a row share one history of a store."""


class _Soak:
    """The parts that run, on one bench and in one folder.

    Args:
        minutes: When to stop.
        seed: The number of the first case.
        count: How many cases each part has; None for its full number.
    """

    def __init__(self, minutes: float, seed: int, count: int | None) -> None:
        self.ends = time.monotonic() + minutes * 60
        self.first, self.count = seed, count
        self.bench = Bench()
        self.folder = Path(tempfile.mkdtemp(dir=self.bench.folder))

    def run(self, name: str) -> Part:
        began = time.monotonic()
        part = Part()
        if name == "growth":
            self._growth(part)
        elif name == "histories":
            self._histories(part)
        elif name == "operations":
            self._operations(part)
        else:
            self._numbered(name, part)
        part.seconds = time.monotonic() - began
        return part

    def left(self) -> bool:
        return time.monotonic() < self.ends

    def _range(self, name: str) -> tuple[int, int]:
        return self.first, self.first + (self.count or _CASES[name])

    def _numbered(self, name: str, part: Part) -> None:
        """The cases from the first on, each by its own number."""
        make = getattr(self, f"_{name}")
        first, last = self._range(name)
        part.asked = last - first
        for round_, numbers in itertools.groupby(range(first, last), lambda n: n // _ROUND):
            case = make(round_)
            for number in numbers:
                if not self.left():
                    return
                part.did(number, number + 1)
                try:
                    wrong = case(random.Random(f"{name} {number}"))
                except Exception as error:  # whatever a case raises is what the soak looks for
                    wrong = repr(error)
                if wrong:
                    part.found(f"case {number}: {wrong}")

    def _kills(self, seed):
        history = self.bench.history(seed)
        return lambda chance: killed(self.bench, seed, history, chance)

    def _cuts(self, seed):
        recording = recorded(self.bench, seed)
        return lambda chance: cut_off(self.bench, recording, chance)

    def _calls(self, seed):
        history = self.bench.history(seed)
        return lambda chance: failed(
            self.bench,
            seed,
            history,
            chance.randint(1, history.calls),
            error=chance.choice([errno.EIO, errno.ENOSPC, errno.EDQUOT]),
            for_ever=chance.randint(0, 1),
            kinds=chance.choice([1 << 1, 1 << 2, 0xFF]),
        )

    def _values(self, _seed):
        pairs, expected = self._whole()[1:]
        return lambda chance: judge_mutation(pairs, chance, expected)

    def _forged(self, _seed):
        pairs = self._whole()[1]
        return lambda chance: judge_forgery(pairs, chance)

    def _files(self, _seed):
        whole, pairs, _ = self._whole()
        original = (whole / "data.mdb").read_bytes()

        def case(chance):
            target = self.folder / "damaged"
            target.mkdir()
            try:
                how = damaged(original, target / "data.mdb", chance)
                return how if verify(target).sound and pairs_of(target) != pairs.pairs else ""
            finally:
                shutil.rmtree(target)

        return case

    def _whole(self):
        """A store with a record of every kind, its pairs, and what is read of each."""
        if not hasattr(self, "_made"):
            whole = full(self.folder / "whole")
            self._made = whole, Pairs(pairs_of(whole)), {}
        return self._made

    def _operations(self, part: Part) -> None:
        for survives in ("power-loss", "process-kill"):
            for name in OPERATIONS:
                wrong = list(loop(Anomaly(self.bench, name, survives)))
                part.figures[f"{name}, {survives}"] = len(wrong)
                part.asked += len(wrong)
                part.done += len(wrong)
                for text in filter(None, wrong):
                    part.found(text)

    def _histories(self, part: Part) -> None:
        first, last = self._range("histories")
        part.asked = last - first
        for start in range(first, last, _ROUND):
            if not self.left():
                return
            stop = min(start + _ROUND, last)
            try:
                run_state_machine_as_test(seeded(start)(Stores), settings=_hypothesis(stop - start))
            except Exception as error:  # whatever a history raises is what the soak looks for
                told = "".join(
                    traceback.format_exception_only(error)
                )  # with the calls that led to it
                part.found(f"histories {start}..{stop}: {told}")
            part.did(start, stop)

    def _growth(self, part: Part) -> None:
        share = min(1.0, (self.count or _FULL) / _FULL)
        part.asked = len(_MEASURES)
        with tempfile.TemporaryDirectory() as folder:  # on a disk: it takes tens of megabytes
            self._measure(part, Path(folder), share)

    def _measure(self, part: Part, folder: Path, share: float) -> None:
        for name, measure in _MEASURES.items():
            if not self.left():
                return
            figures, wrong = measure(folder / name, share)
            part.figures[name] = figures
            part.done += 1
            for text in wrong:
                part.found(f"{name}: {text}")


def _hypothesis(examples: int) -> settings:
    return settings(
        max_examples=examples,
        stateful_step_count=50,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
    )


_FAULTS = ("kills", "cuts", "calls", "operations")
_PARTS = (*_FAULTS, "values", "forged", "files", "histories", "growth")


def run(
    minutes: float,
    seed: int,
    count: int | None,
    json: Path | None = None,
    parts: list[str] | None = None,
) -> int:
    """Do the parts one after the other, and print what each counted."""
    names = list(_PARTS) if parts is None else parts
    unknown = [name for name in names if name not in _PARTS]
    if unknown:
        print(f"there is no part {unknown[0]!r}; there are {', '.join(_PARTS)}")
        return 1
    soak = _Soak(minutes, seed, count)
    counted: dict[str, Part] = {}
    try:
        for name in names:
            if name in _FAULTS and not soak.bench.available:
                print(f"{name}: not done, as there is no C compiler for the shim")
                continue
            counted[name] = soak.run(name)
            print(counted[name].line(name), flush=True)
            if json is not None:
                _store_counts.write(counted, json)
    finally:
        soak.bench.close()
    return sum(part.wrong for part in counted.values())
