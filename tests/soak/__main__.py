"""Run one soak: its name, for how long, from which seed.

    python -m tests.soak demo --minutes 20 --seed 1

Each soak is a module of this package with `run(minutes, seed, count) -> int`, which prints a line a
result, and the number of failures at the end.
"""

from __future__ import annotations

import argparse
import importlib
import inspect
import pkgutil
import sys
from pathlib import Path

import tests.soak


def names() -> list[str]:
    return sorted(m.name for m in pkgutil.iter_modules(tests.soak.__path__) if m.name[0] != "_")


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("name", choices=names())
    parser.add_argument("--minutes", type=float, default=10.0, help="stop after so many minutes")
    parser.add_argument("--seed", type=int, default=1, help="the first seed")
    parser.add_argument("--count", type=int, default=None, help="stop after so many cases")
    parser.add_argument("--seeds", metavar="A..B", help="the seeds from A to B, without B")
    parser.add_argument("--json", type=Path, metavar="FILE", help="keep what was counted, if it is")
    parser.add_argument("--parts", metavar="A,B", help="only these parts of a soak that has parts")
    parser.add_argument("--jobs", type=int, metavar="N", help="so many processes at once")
    options = parser.parse_args(argv)
    if options.seeds:
        first, _, last = options.seeds.partition("..")
        options.seed, options.count = int(first), int(last) - int(first)
    soak = importlib.import_module(f"tests.soak.{options.name}")
    more = {"json": options.json} if options.json else {}
    if options.jobs:
        more["jobs"] = options.jobs
    if options.parts:
        more["parts"] = options.parts.split(",")
    for name in more:
        if name not in inspect.signature(soak.run).parameters:
            parser.error(f"the soak {options.name} has no --{name}; leave it out")
    failures = soak.run(options.minutes, options.seed, options.count, **more)
    print(f"{options.name}: {failures} failures")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
