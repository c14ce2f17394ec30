"""The demo over the whole standard library, killed at moments drawn by each seed; 20 seeds by default."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

_SEEDS = 20
_SECONDS_A_RUN = 300


def run(minutes: float, seed: int, count: int | None) -> int:
    ends = time.monotonic() + minutes * 60
    failures = 0
    for number in range(seed, seed + (count or _SEEDS)):
        if time.monotonic() > ends:
            print(f"time is over before seed {number}")
            break
        verdict = _once(number)
        failures += not verdict["held"]
        print(json.dumps(verdict), flush=True)
    return failures


def _once(seed: int) -> dict[str, object]:
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [
                *(sys.executable, "-m", "beamweaver.cli", "demo", "--json"),
                *("--seed", str(seed), "--store", str(Path(folder) / "demo.lmdb")),
                *("--report", str(Path(folder) / "report.json")),
            ],
            capture_output=True,
            text=True,
            timeout=_SECONDS_A_RUN,
            check=False,
        )
    try:
        said = json.loads(done.stdout)
    except json.JSONDecodeError:
        said = {"output": done.stdout[-500:], "errors": done.stderr[-2000:]}
    return {"seed": seed, "held": done.returncode == 0, "said": said}
