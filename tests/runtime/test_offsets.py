"""How far away a due time is, whatever became of the time of day."""

from __future__ import annotations

import pytest

from beamweaver.runtime.offsets import Offsets
from supervisors.testing import VirtualClock


@pytest.fixture
def clock():
    return VirtualClock()


@pytest.fixture
def offsets(clock):
    return Offsets(clock)


def begun(clock, offsets, delay):
    """A sleep that begins now."""
    offsets.note()
    return int((clock.time() + delay) * 1_000_000), delay


@pytest.mark.parametrize("set_by", [-7_200, -30, 0, 30, 7_200])
def test_a_sleep_goes_by_the_offset_at_which_it_began(clock, offsets, set_by):
    before = begun(clock, offsets, 1_000)
    clock.shift_time(set_by)
    clock.advance(100)
    after = begun(clock, offsets, 500)
    clock.advance(10)
    assert offsets.rest_of(*before) == pytest.approx(890)
    assert offsets.rest_of(*after) == pytest.approx(490)


def test_one_of_another_process_is_not_known(clock, offsets):
    assert offsets.rest_of(int((clock.time() - 50) * 1_000_000), 100) is None


def test_it_is_never_longer_than_it_was_to_be(clock, offsets):
    due_us, delay = begun(clock, offsets, 100)
    clock.shift_time(-0.9)
    offsets.note()
    assert offsets.rest_of(due_us, delay) == delay


def test_a_clock_that_drifts_makes_none_too_short(clock, offsets):
    sleeps = []
    for _ in range(50):
        clock.shift_time(0.3)
        sleeps.append((clock.monotonic() + 10_000, begun(clock, offsets, 10_000)))
        clock.advance(60)
    rests = [offsets.rest_of(*sleep) - (due - clock.monotonic()) for due, sleep in sleeps]
    assert all(-0.001 < each < 1.001 for each in rests)


def test_a_clock_that_is_set_again_and_again_takes_no_memory(clock, offsets):
    for _ in range(1_000):
        clock.shift_time(100)
        begun(clock, offsets, 10)
    assert len(offsets._spans) == 64


@pytest.mark.parametrize("set_by", [-7_200, 7_200])
def test_no_sleep_is_sooner_over_than_it_is_said_to_be_at_the_least(clock, offsets, set_by):
    sleeps = [begun(clock, offsets, 1_000)]
    clock.shift_time(set_by)
    sleeps.append(begun(clock, offsets, 1_000))
    for due_us, delay in sleeps:
        assert offsets.least_rest(due_us) <= offsets.rest_of(due_us, delay) + 0.001
