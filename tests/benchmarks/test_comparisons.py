"""Each comparison, at a tiny size: our side computes what the work asks for, and so does Pykka's."""

import shutil

import pytest

from benchmarks import actors, durable, fanout, growth, sequential
from benchmarks.harness import measure
from benchmarks.session import InlineSession

ALL = (
    *sequential.COMPARISONS,
    *durable.COMPARISONS,
    *fanout.COMPARISONS,
    *growth.COMPARISONS,
    *actors.COMPARISONS,
)
KEYS = {"id", "name", "ours_us", "peer_us", "ratio", "peer", "runs"}


def named(comparison):
    return f"{comparison.id} {comparison.name}"


@pytest.mark.parametrize("comparison", ALL, ids=named)
def test_our_side_alone_is_measured_and_checked(comparison, tmp_path):
    row = measure(comparison, "tiny", peers=False, folder=str(tmp_path), launch=InlineSession)
    told = row.as_json()
    assert told.keys() >= KEYS
    assert told["ours_us"] > 0
    assert told["ratio"] is None


@pytest.mark.parametrize("comparison", actors.WITH_PYKKA, ids=named)
def test_pykka_computes_the_same(comparison):
    row = measure(comparison, "tiny", launch=InlineSession)
    assert row.ratio > 0


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("erl") is None, reason="Erlang/OTP is not here")
@pytest.mark.parametrize("comparison", actors.WITH_ERLANG, ids=named)
def test_erlang_computes_the_same(comparison, tmp_path):
    row = measure(comparison, "tiny", folder=str(tmp_path), launch=InlineSession)
    assert row.ratio > 0


@pytest.mark.parametrize("comparison", actors.WITH_ERLANG, ids=named)
def test_an_erlang_that_is_missing_is_a_line(comparison, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    row = measure(comparison, "tiny", folder=str(tmp_path), launch=InlineSession)
    assert (row.ratio, row.missing) == (None, "erl is not installed")


@pytest.mark.parametrize("wanted", ["P1", "P2", "P3", "P5", "P6", "P7", "P8", "P11"])
def test_a_target_has_a_comparison(wanted):
    assert wanted in {comparison.id for comparison in ALL}


@pytest.mark.parametrize("comparison", ALL, ids=named)
def test_a_median_is_of_five_runs_or_more(comparison):
    assert min(comparison.runs["full"], comparison.runs["quick"]) >= 5


@pytest.mark.parametrize("store", ["process-kill", "power-loss"])
def test_the_transactions_of_a_durable_line_are_counted(store, tmp_path):
    durable_row = next(c for c in durable.COMPARISONS if c.ours.options["store"] == store)
    row = measure(durable_row, "tiny", peers=False, folder=str(tmp_path), launch=InlineSession)
    assert row.ours.facts["transactions a step"] >= 1
