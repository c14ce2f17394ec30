"""Each write, sync and map of each operation of a store fails in its turn, or is its process's last."""

from __future__ import annotations

import pytest

from tests.checkpoint.anomalies import Anomaly, loop
from tests.checkpoint.cuts import MAP, SYNC, WRITE
from tests.checkpoint.operations import OPERATIONS

pytestmark = [pytest.mark.slow, pytest.mark.timeout(60)]


@pytest.mark.parametrize("name", OPERATIONS)
def test_an_operation_is_done_or_not_whichever_of_its_calls_fails(bench, name):
    """Peers 2: once or for ever; and made again it ends where it would have ended."""
    wrong = list(loop(Anomaly(bench, name, "power-loss")))

    assert wrong
    assert not [text for text in wrong if text]


def test_the_operations_write_sync_and_map(bench):
    kinds = {
        kind
        for name in ("open", "commit")
        for kind, _, _ in Anomaly(bench, name, "process-kill").calls
    }
    synced = {kind for kind, _, _ in Anomaly(bench, "acquire", "process-kill").calls}

    assert {WRITE, MAP} <= kinds
    assert SYNC in synced
