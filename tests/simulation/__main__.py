"""Print the history of a seed, one line an event.

python -m tests.simulation 3374
python -m tests.simulation 3374 --shrink
"""

from __future__ import annotations

import argparse
import sys

from tests.simulation.config import Config
from tests.simulation.shrink import failure_of, shrink
from tests.simulation.world import World


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("seed", type=int)
    parser.add_argument("--durability", choices=("sync", "async", "exit"), default="sync")
    parser.add_argument("--shrink", action="store_true", help="make it smaller first, if it fails")
    options = parser.parse_args()
    config = Config.drawn(options.seed)
    if options.durability != "sync":
        config = config.within(options.durability)
    if options.shrink and failure_of(config) is not None:
        config = shrink(config)
    world, wrong = World(config, keep=True), None
    try:
        world.run()
    except Exception as error:
        wrong = f"{type(error).__name__}: {error}"
    finally:
        world.close()
    print("\n".join(world.trace.lines or ()))
    print(f"hash {world.trace.digest}; {wrong or 'nothing is wrong'}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
