"""How the demo judges itself: it must notice each thing that it claims not to happen."""

from __future__ import annotations

import select

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from beamweaver.demo.journal import Journal
from beamweaver.demo.kills import kill_points
from beamweaver.demo.verdict import ledger_faults, report_faults
from beamweaver.demo.wire import Acknowledged, Finished, Ready, Started, decode_line, encode_line

REPORT = {"files": 2, "index": {"a": {"digest": "x"}, "b": {"digest": "y"}}}
LINES = [{"key": "1", "path": "a", "digest": "x"}, {"key": "2", "path": "b", "digest": "y"}]


def started(task, node="read"):
    return Started("t", task, node, 1)


def acknowledged(task, node="read"):
    return Acknowledged("t", task, node)


def journal(*lives):
    folded = Journal()
    for number, lines in enumerate(lives):
        if number:
            folded.begin_life()
        for line in lines:
            folded.take(line)
    return folded


class TestJournal:
    def test_a_task_without_an_acknowledged_result_may_run_again(self):
        found = journal([started("1")], [started("1"), acknowledged("1")])

        assert (found.faults, found.reran, found.tasks, found.starts) == ([], {"read": 1}, 1, 2)

    def test_a_start_after_an_acknowledgement_is_a_fault(self):
        found = journal([started("1"), acknowledged("1")], [], [started("1")])

        assert found.faults == [
            (
                "task '1' (node 'read' of thread 't') started in life 3, after life 1 acknowledged its "
                "result"
            )
        ]

    def test_a_start_after_an_acknowledgement_in_the_same_life_is_a_fault(self):
        assert len(journal([started("1"), acknowledged("1"), started("1")]).faults) == 1

    def test_equal_task_ids_of_two_threads_are_two_tasks(self):
        found = journal([acknowledged("1"), Started("other", "1", "read", 1)])

        assert (found.faults, found.tasks) == ([], 1)

    def test_a_task_acknowledged_twice_counts_once(self):
        assert journal([acknowledged("1")], [acknowledged("1")]).acknowledged == 1

    def test_reruns_are_counted_by_node(self):
        lives = [[started("1"), started("2", "parse"), started("3")]] * 2

        assert journal(*lives).reran == {"parse": 1, "read": 2}

    def test_other_lines_change_nothing(self):
        found = journal([Ready(), Finished()])

        assert (found.tasks, found.acknowledged) == (0, 0)


class TestReport:
    def test_an_equal_report_has_no_faults(self):
        assert report_faults(REPORT, REPORT) == []

    @pytest.mark.parametrize(
        ("found", "fault"),
        [
            ({}, "2 files are not indexed: a, b"),
            ({"files": 2, "index": {"a": {"digest": "x"}}}, "1 file is not indexed: b"),
            (
                {"files": 2, "index": {**REPORT["index"], "c": {}}},
                "1 file was not asked for: c",
            ),
            (
                {"files": 2, "index": {**REPORT["index"], "b": {"digest": "z"}}},
                "1 file differs from the direct run: b",
            ),
            ({**REPORT, "files": 3}, "1 total differs from the direct run: files"),
        ],
    )
    def test_each_difference_is_a_fault(self, found, fault):
        assert report_faults(found, REPORT) == [fault]

    def test_many_names_are_cut(self):
        expected = {"index": {str(number): {} for number in range(9)}}

        assert report_faults({}, expected) == ["9 files are not indexed: 0, 1, 2, 3, 4 and 4 more"]


class TestLedger:
    def test_each_file_once_has_no_faults(self):
        assert ledger_faults(LINES, REPORT) == []

    @pytest.mark.parametrize(
        ("lines", "fault"),
        [
            (LINES[:1], "1 file is not in the ledger: b"),
            (
                [*LINES, {"key": "3", "path": "b", "digest": "y"}],
                "1 ledger file is there more than once: b",
            ),
            (
                [LINES[0], {"key": "1", "path": "b", "digest": "y"}],
                "1 ledger key is there more than once: 1",
            ),
            (
                [LINES[0], {"key": "2", "path": "b", "digest": "z"}],
                "1 ledger line has another content: b",
            ),
            (
                [*LINES, {"key": "3", "path": "c", "digest": "z"}],
                "1 ledger line has another content: c",
            ),
        ],
    )
    def test_each_wrong_line_is_a_fault(self, lines, fault):
        assert ledger_faults(lines, REPORT) == [fault]


class TestKills:
    @given(st.integers(2, 5000), st.integers(0, 20), st.integers())
    def test_points_are_different_ascending_and_inside(self, total, kills, seed):
        kills = min(kills, total * 9 // 10)
        points = kill_points(total=total, kills=kills, seed=seed)

        assert points == sorted(set(points))
        assert len(points) == kills
        assert all(0 < point <= 0.9 * total for point in points)

    def test_a_seed_draws_the_same_points_again(self):
        first = kill_points(total=1000, kills=5, seed=3)

        assert first == kill_points(total=1000, kills=5, seed=3)
        assert first != kill_points(total=1000, kills=5, seed=4)

    def test_more_kills_than_tasks_are_refused(self):
        with pytest.raises(ValueError, match="kills is 6, and 6 tasks allow 5; give fewer kills"):
            kill_points(total=6, kills=6, seed=0)


class TestWire:
    @pytest.mark.parametrize("line", [Ready(), started("1"), acknowledged("1"), Finished()])
    def test_a_line_comes_back_as_it_went(self, line):
        assert decode_line(encode_line(line)) == line

    def test_the_longest_line_is_written_to_a_pipe_whole(self):
        line = Started("é" * 128, "f" * 64, "n" * 128, 10**9)

        assert len(encode_line(line)) < select.PIPE_BUF

    def test_another_line_is_refused(self):
        with pytest.raises(msgspec.ValidationError):
            decode_line(b'["x"]')
