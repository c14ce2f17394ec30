"""The harness alternates, checks before it reports, and survives a peer that is missing."""

import pytest

from benchmarks.harness import WrongResultError, measure
from benchmarks.session import InlineSession
from benchmarks.side import PeerMissingError
from tests.benchmarks.sides import comparison, side

ABSENT = "no-such-distribution-for-a-test"


class Scripted:
    """A session whose times are given; `log` gets its name at each run."""

    def __init__(self, name, log, times, answer=5):
        self._name = name
        self._log = log
        self._times = iter(times)
        self._answer = answer

    def warm_up(self):
        self._log.append(f"{self._name} warms up")
        return self._answer

    def run(self):
        self._log.append(self._name)
        return {"us": float(next(self._times)), "cpu_us": 1.0, "result": self._answer}

    def end(self):
        return {}

    def close(self):
        self._log.append(f"{self._name} closed")


def scripted(log, our_times, peer_times, **answers):
    """A launcher: our side has the label that the comparison gives it, the other is the peer."""

    def launch(one, folder, options):
        mine = one.label == "the ours side"
        name, times = ("ours", our_times) if mine else ("peer", peer_times)
        return Scripted(name, log, times, answers.get(name, 5))

    return launch


def two_sides(**changed):
    return comparison(ours=side("ours"), peer=side("peer"), **changed)


def test_the_sides_run_in_turn_after_a_warm_up_each():
    log = []
    measure(two_sides(), "tiny", launch=scripted(log, [1, 1, 1], [2, 2, 2]))
    assert log[:8] == ["peer warms up", "ours warms up", *["ours", "peer"] * 3]


def test_a_row_tells_the_medians_the_least_and_their_ratio():
    row = measure(two_sides(), "tiny", launch=scripted([], [3, 100, 2], [30, 20, 900]))
    told = row.as_json()
    assert (told["ours_us"], told["ours_min_us"]) == (3.0, 2.0)
    assert (told["peer_us"], told["peer_min_us"]) == (30.0, 20.0)
    assert told["ratio"] == 10.0
    assert told["runs"] == 3


def test_each_side_is_closed_when_one_computes_something_else():
    log = []
    with pytest.raises(WrongResultError, match="the peer side computed 6, the work asks for 5"):
        measure(two_sides(), "tiny", launch=scripted(log, [1], [1], peer=6))
    assert log == ["peer warms up", "peer closed"]


def test_no_row_is_made_when_our_side_computes_something_else():
    with pytest.raises(WrongResultError, match="the ours side computed 6"):
        measure(two_sides(), "tiny", launch=scripted([], [1], [1], ours=6))


def test_a_long_result_is_cut_in_the_message():
    with pytest.raises(WrongResultError, match=r"…, .*5|… \(") as caught:
        measure(two_sides(), "tiny", launch=scripted([], [1], [1], ours="x" * 5_000))
    assert len(str(caught.value)) < 400


def test_a_missing_peer_is_named_and_our_side_is_measured_all_the_same():
    lacking = comparison(peer=side(needs=[ABSENT]))
    row = measure(lacking, "tiny", launch=InlineSession)
    told = row.as_json()
    assert told["missing"] == f"{ABSENT} is not installed"
    assert told["peer_us"] is None
    assert told["ratio"] is None
    assert told["runs"] == 3


def test_our_own_missing_distribution_is_no_missing_peer():
    lacking = comparison(ours=side(needs=[ABSENT]))
    with pytest.raises(PeerMissingError, match=ABSENT):
        measure(lacking, "tiny", launch=InlineSession)


def test_our_side_is_checked_when_the_peer_is_missing():
    lacking = comparison(ours=side("raising"), peer=side(needs=[ABSENT]))
    with pytest.raises(RuntimeError, match="no 5"):
        measure(lacking, "tiny", launch=InlineSession)


def test_a_peer_left_out_is_never_started():
    log = []
    row = measure(two_sides(), "tiny", peers=False, launch=scripted(log, [1, 1, 1], []))
    assert not any("peer" in line for line in log)
    assert row.as_json()["missing"] == "left out"


def test_each_side_gets_an_empty_folder_and_its_facts_are_in_the_row():
    row = measure(comparison(), "tiny", launch=InlineSession)
    facts = row.as_json()["facts"]["ours"]
    assert facts == {"versions": {}, "folder was empty": True, "closed": True}


def test_a_time_is_told_per_unit():
    many = measure(comparison(ours=side(units=1_000_000)), "tiny", launch=InlineSession)
    assert many.ours.median < 1.0
