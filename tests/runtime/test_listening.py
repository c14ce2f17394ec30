"""Listeners of a runtime."""

from __future__ import annotations

import pytest

from beamweaver import Runtime
from beamweaver.events import TaskStarted, ThreadTakenUp
from beamweaver.types import Invoke
from tests.runtime.kit import Events, Gate, line


def left_behind(place, app, gate):
    """A store with a thread that was closed amid its node."""
    with Runtime(place.open(), graphs=[app]) as runtime:
        events = Events(runtime)
        runtime.thread("t").tell(Invoke({"n": 1}))
        events.wait(TaskStarted)
    gate.open()


@pytest.mark.parametrize("stops", [False, True])
def test_one_that_is_there_before_the_start_hears_from_the_first_event_on(place, stops):
    gate = Gate()
    app = line("g", a=gate).compile()
    left_behind(place, app, gate)
    runtime = Runtime(place.open(), graphs=[app])
    events = Events()
    stop = runtime.subscribe(events)
    if stops:
        stop()
    with runtime:
        runtime.thread("t").ask(Invoke({"n": 1}))
    assert bool(events.of(ThreadTakenUp)) is not stops
    assert bool(events.of(TaskStarted)) is not stops
