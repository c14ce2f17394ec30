"""What ended leaves nothing behind that only the garbage collector would free."""

from __future__ import annotations

import gc
from collections import Counter

from supervisors import ChildSpec, DynamicSupervisor, start_child, terminate_child
from tests.supervisors.world import Puppet, World

CHILDREN = 10


def test_children_that_ended_are_no_part_of_reference_cycles(simulated: World):
    supervisor = simulated.system.start(DynamicSupervisor)

    def live() -> None:
        spec = ChildSpec(None, Puppet, restart="temporary")
        refs = [start_child(supervisor, spec, timeout=5) for _ in range(CHILDREN)]
        for ref in refs:
            terminate_child(supervisor, ref, timeout=5)

    live()
    gc.collect()
    gc.freeze()  # what was there before is not looked at
    gc.disable()
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        live()
        gc.collect()
        found = Counter(type(each).__name__ for each in gc.garbage)
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.unfreeze()
        gc.enable()

    assert {name: count for name, count in found.items() if count >= CHILDREN} == {}
