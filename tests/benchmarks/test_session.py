"""A side runs in an interpreter of its own; its end, its death and its silence are told apart."""

import pytest

from benchmarks.harness import measure
from benchmarks.session import ProcessSession, SideFailedError
from benchmarks.side import PeerMissingError
from tests.benchmarks.sides import comparison, side

pytestmark = pytest.mark.slow


@pytest.fixture
def opened(tmp_path):
    sessions = []

    def open_side(*args, timeout=15.0, **options):
        session = ProcessSession(side(*args, **options), str(tmp_path), {"answer": 5}, timeout)
        sessions.append(session)
        return session

    yield open_side
    for session in sessions:
        session.close()


def test_a_side_in_its_own_process_is_timed_and_ended():
    row = measure(comparison(), "tiny")
    assert row.as_json()["facts"]["peer"]["closed"] is True
    assert row.ours.median > 0


def test_what_a_library_prints_does_not_mix_with_the_answers(opened):
    session = opened("printing")
    assert session.warm_up() == 5
    assert session.run()["result"] == 5


def test_a_side_that_raises_tells_its_traceback(opened):
    with pytest.raises(SideFailedError, match="RuntimeError: no 5"):
        opened("raising").warm_up()


def test_a_side_that_dies_is_told_by_its_exit_code(opened):
    with pytest.raises(SideFailedError, match="died, exit code 7"):
        opened("dying").warm_up()


def test_a_side_that_hangs_is_given_up_after_its_timeout(opened):
    with pytest.raises(SideFailedError, match=r"gave no answer within 0\.3 s"):
        opened("hanging", timeout=0.3).warm_up()


def test_a_distribution_that_is_not_installed_is_named(opened):
    with pytest.raises(PeerMissingError, match="no-such-distribution"):
        opened(needs=["no-such-distribution-for-a-test"]).warm_up()


def test_a_program_that_a_side_misses_is_named(opened):
    with pytest.raises(PeerMissingError, match="a program"):
        opened("absent").warm_up()
