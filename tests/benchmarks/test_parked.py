"""The benchmark of parked threads fills a whole store and judges what its threads answer."""

from beamweaver.checkpoint import LMDBCheckpointer
from beamweaver.checkpoint.verify import verify
from benchmarks import parked


def test_a_store_of_parked_threads_is_whole_and_each_answers(tmp_path):
    path = str(tmp_path / "s")
    parked.fill(path, 40)
    assert verify(path).sound
    found = parked.look(path, 40, turn=1)
    assert found["activated"] == 4
    store = LMDBCheckpointer(path, survives="process-kill")
    assert len(list(store.sleepers())) == 20
    assert len(list(store.threads(statuses=["complete"]))) == 4
    store.close()
