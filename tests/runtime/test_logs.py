"""What the log says, and where it goes."""

from __future__ import annotations

import asyncio
import logging
import sys

import pytest
import structlog
from structlog.testing import capture_logs

from beamweaver import Invoke, Runtime
from beamweaver.errors import AskTimeout, NodeFailed
from beamweaver.runtime.current import running
from beamweaver.runtime.log import logger
from supervisors.testing import eventually
from tests.runtime.kit import Gate, line, wrote


def broken(_state):
    raise ValueError("the mail server is away")


def failures(said):
    return [entry for entry in said if entry["event"] == "run_failed"]


class TestRunsThatFail:
    def test_one_that_nobody_waits_for_is_said_with_its_cause(self, store):
        with (
            capture_logs() as said,
            Runtime(store, graphs=[line("g", a=broken).compile()]) as runtime,
        ):
            receipt = runtime.thread("t").tell(Invoke({"n": 1}))
            (entry,) = eventually(lambda: failures(said))

        assert (entry["log_level"], entry["thread_id"]) == ("error", "t")
        assert (entry["run_id"], entry["code"]) == (receipt.run_id, "node_failed")
        assert entry["error"] == "node 'a' failed in attempt 1: ValueError: the mail server is away"
        assert isinstance(entry["exc_info"], ValueError)

    def test_one_that_its_caller_hears_of_is_not_said(self, store):
        with (
            capture_logs() as said,
            Runtime(store, graphs=[line("g", a=broken).compile()]) as runtime,
        ):
            with pytest.raises(NodeFailed):
                runtime.thread("t").ask(Invoke({"n": 1}))

        assert failures(said) == []

    def test_one_whose_caller_went_away_is_said(self, store):
        gate = Gate()
        app = line("g", a=lambda state: broken(gate(state))).compile()
        with capture_logs() as said, Runtime(store, graphs=[app]) as runtime:
            with pytest.raises(AskTimeout):
                runtime.thread("t").ask(Invoke({"n": 1}), timeout=0)
            gate.open()
            (entry,) = eventually(lambda: failures(said))

        assert entry["thread_id"] == "t"


def test_a_body_is_named_by_its_node_and_thread(memory):
    named = []

    def node(_state):
        named.append(repr(running.get()))

    with line("g", a=node).compile(checkpointer=memory) as app:
        app.invoke({"n": 1}, thread_id="t")
    assert named == ["<node 'a' of thread 't'>"]


class TestCallsThatHoldALoop:
    @pytest.fixture
    def said(self, memory):
        def invoke_twice():
            async def serve(app):
                app.invoke({"n": 1}, thread_id="t")
                app.invoke({"n": 2}, thread_id="t")

            with capture_logs() as said:
                with line("g", a=wrote("a")).compile(checkpointer=memory) as app:
                    asyncio.run(serve(app))
            return [entry for entry in said if entry["event"] == "call_blocks_a_loop"]

        return invoke_twice

    def test_the_first_one_is_named_with_its_twin(self, said):
        (entry,) = said()
        assert (entry["call"], entry["cure"]) == ("invoke", "await ainvoke()")

    def test_in_a_notebook_nobody_else_needs_the_loop(self, said, monkeypatch):
        monkeypatch.setitem(sys.modules, "IPython", object())
        assert said() == []


class TestWhereItGoes:
    @pytest.fixture
    def plain(self, monkeypatch, caplog):
        """A program that has not configured structlog."""
        monkeypatch.setattr(structlog, "is_configured", lambda: False)
        logging.disable(logging.NOTSET)
        caplog.set_level(logging.INFO)
        return caplog

    def test_it_goes_to_logging_with_all_that_it_carries(self, plain):
        logger("beamweaver.node", thread_id="t").info("paid", amount=5)

        (record,) = plain.records
        assert (record.name, record.levelname) == ("beamweaver.node", "INFO")
        assert record.getMessage() == "paid thread_id='t' amount=5"

    def test_a_percent_sign_is_no_format(self, plain):
        logger("beamweaver").warning("100 %s", share="5 %d")

        assert plain.records[0].getMessage() == "100 %s share='5 %d'"

    def test_an_exception_comes_with_its_traceback(self, plain):
        try:
            broken({})
        except ValueError as error:
            logger("beamweaver").error("run_failed", exc_info=error)

        assert plain.records[0].exc_info[0] is ValueError
        assert "in broken" in plain.text

    def test_what_logging_does_not_want_is_not_made(self, plain):
        plain.set_level(logging.ERROR)
        logger("beamweaver").warning("unwanted")

        assert plain.records == []

    def test_nothing_is_printed_on_standard_output(self, plain, capsys):
        logger("beamweaver").error("run_failed")

        assert capsys.readouterr().out == ""

    def test_it_goes_where_a_program_has_configured_structlog_to_write(self, plain, monkeypatch):
        monkeypatch.setattr(structlog, "is_configured", lambda: True)
        with capture_logs() as said:
            logger("beamweaver", thread_id="t").info("paid")

        assert said == [{"event": "paid", "thread_id": "t", "log_level": "info"}]
        assert plain.records == []
