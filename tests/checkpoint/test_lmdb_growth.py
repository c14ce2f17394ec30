"""How large a store gets: a tenth of what the soak measures, sizes only."""

from __future__ import annotations

import pytest

from beamweaver.checkpoint import LMDBCheckpointer
from beamweaver.checkpoint._history import Ask
from beamweaver.checkpoint._reads import read_history
from tests.checkpoint.damage import Pairs
from tests.checkpoint.full_store import pairs_of
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


@pytest.mark.slow
def test_a_step_of_a_graph_of_many_channels_stores_what_it_changed(tmp_path):
    _, wrong = growth.many_channels(tmp_path / "s", 0.1)

    assert not wrong


class Counted(Pairs):
    """Pairs of which is counted how often one is read."""

    reads = 0

    def get(self, key):
        self.reads += 1
        return super().get(key)


@pytest.mark.parametrize("before", [None, 200])
def test_a_page_of_the_history_of_a_long_thread_reads_no_more_than_of_a_short_one(tmp_path, before):
    """Reads are counted here; the soak measures how long a page takes."""
    reads = []
    for count in (250, 1_000):
        store = LMDBCheckpointer(tmp_path / str(count), survives="process-kill")
        growth.lengthen(store, store.acquire(), count)
        store.close()
        pairs = Counted(pairs_of(tmp_path / str(count)))
        page = read_history(pairs, "t", before, Ask(16, values=True))
        assert len(page.recipes) == 16
        reads.append(pairs.reads)

    assert reads[1] <= reads[0] + 16
    assert 16 <= reads[1] < 500
