"""The budget of a step is counted, not only timed."""

import contextlib
import io

import pytest

from benchmarks import budget

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def printed():
    text = io.StringIO()
    with contextlib.redirect_stdout(text):
        assert budget.main(["--nodes", "10", "--sends", "4", "--top", "3"]) == 0
    return text.getvalue()


@pytest.mark.parametrize(
    "shape",
    [
        "line, memory",
        "line, process-kill",
        "line, power-loss",
        "fan-out, memory",
        "fan-out, power-loss",
    ],
)
def test_each_shape_has_a_budget(printed, shape):
    assert f"\n{shape}: " in printed


def test_lmdb_operations_and_messages_are_counted(printed):
    line = printed[printed.index("line, process-kill") : printed.index("line, power-loss")]
    assert "LMDB: <method 'commit' of 'Transaction' objects>" in line
    assert "messages: put" in line
