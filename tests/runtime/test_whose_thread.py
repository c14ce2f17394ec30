"""Threads of a runtime with several graphs, asked for by people who do not say whose they are."""

from __future__ import annotations

import pytest

from beamweaver import Continue, Invoke, Runtime
from beamweaver.errors import InvalidCall, Quarantined, RunFailed, UnknownGraph
from supervisors.testing import eventually
from tests.runtime.kit import failing_at, line, wrote


def fails(_state):
    raise OSError("boom")


def graphs():
    return [line("well", a=wrote("a")).compile(), line("ill", b=fails).compile()]


@pytest.fixture
def left(place):
    """A place with a complete thread of one graph and a failed one of the other."""
    with Runtime(place.open(), graphs=graphs()) as runtime:
        runtime.thread("w", "well").ask(Invoke({}))
        with pytest.raises(RunFailed):
            runtime.thread("i", "ill").ask(Invoke({}))
    return place


class TestAThreadThatExists:
    def test_it_is_found_with_its_graph(self, left):
        with Runtime(left.open(), graphs=graphs()) as runtime:
            assert runtime.thread("w").ask(Continue()).state["log"] == ["a"]
            with pytest.raises(RunFailed, match="'b'"):
                runtime.thread("i").ask(Continue())

    def test_it_is_looked_at_and_cancelled(self, left):
        with Runtime(left.open(), graphs=graphs()) as runtime:
            assert runtime.thread("i").get_state().status == "failed"
            assert runtime.thread("w").rejected() == ()
            assert runtime.thread("w").cancel().state["log"] == ["a"]

    def test_set_aside_it_is_released(self, left):
        fault = failing_at("thread.load", times=3)
        with Runtime(left.open(), graphs=graphs(), fault=fault) as runtime:
            with pytest.raises(Quarantined):
                runtime.thread("w").ask(Invoke({}))
            eventually(lambda: runtime.get_state("w").status == "quarantined")
        with Runtime(left.open(), graphs=graphs()) as runtime:
            runtime.thread("w").release()
            assert runtime.thread("w").ask(Continue(), timeout=10).state["log"] == ["a"]

    def test_of_a_graph_that_the_runtime_lacks_it_is_refused_by_that_name(self, left):
        well, _ill = graphs()
        others = [well, line("other", a=wrote("a")).compile()]
        with (
            Runtime(left.open(), graphs=others) as runtime,
            pytest.raises(UnknownGraph, match="'ill'"),
        ):
            runtime.thread("i")


class TestAThreadThatDoesNotExist:
    @pytest.mark.parametrize(
        "ask", [Runtime.thread, lambda r, t: r.update_state(t, {"log": ["x"]})]
    )
    def test_its_graph_must_be_said(self, memory, ask):
        with Runtime(memory, graphs=graphs()) as runtime, pytest.raises(InvalidCall) as caught:
            ask(runtime, "new")
        assert str(caught.value) == (
            "thread 'new' does not exist, and this runtime has 2 graphs ('well', 'ill'): say whose it is to "
            "be, as in runtime.thread('new', graph=…)"
        )

    def test_with_one_graph_it_is_of_that_one(self, memory):
        with Runtime(memory, graphs=graphs()[:1]) as runtime:
            assert runtime.thread("new").ask(Invoke({})).state["log"] == ["a"]
