"""How large a store gets: a tenth of what the soak measures, sizes only."""

from __future__ import annotations

import pytest

from tests.soak import _store_growth as growth


@pytest.mark.slow
@pytest.mark.timeout(60)
def test_appended_values_are_stored_at_most_three_times(tmp_path):
    """Performance P6, peers 45."""
    figures, wrong = growth.appending(tmp_path / "s", 0.1)

    assert not wrong
    assert figures["ratio"] <= 3


@pytest.mark.slow
def test_a_large_value_that_nobody_writes_is_stored_once(tmp_path):
    """Performance P7, peers 45."""
    figures, wrong = growth.untouched(tmp_path / "s", 1)

    assert not wrong
    assert figures["megabytes"] <= 11


@pytest.mark.slow
def test_threads_that_come_and_go_leave_the_size_where_it_was(tmp_path):
    _, wrong = growth.short_threads(tmp_path / "s", 0.1)

    assert not wrong


@pytest.mark.slow
@pytest.mark.timeout(90)
def test_readers_of_other_processes_do_not_make_the_file_grow(tmp_path):
    _, wrong = growth.readers(tmp_path / "s", 0.1)

    assert not wrong
