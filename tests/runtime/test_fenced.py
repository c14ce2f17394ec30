"""A body that was killed and goes on all the same: it is told nothing any more."""

from __future__ import annotations

import threading

from beamweaver import Runtime
from beamweaver.checkpoint import MemoryCheckpointer
from beamweaver.types import Invoke, Resume
from supervisors import Killed
from tests.runtime.kit import PATIENCE, Caller, line


def test_an_answer_that_its_task_has_is_kept_from_it():
    inside, killed, heard = threading.Event(), threading.Event(), []

    def node(_state, ctx):
        asked = ctx.interrupt("?", key="gate")
        try:
            inside.set()
            while not killed.wait(0.001):
                pass
        except Killed:
            killed.set()
        try:
            heard.append((asked, ctx.interrupt("?", key="gate")))
        except BaseException as error:
            heard.append((asked, type(error).__name__))
        return {}

    app = line("g", a=node).compile()
    with Runtime(MemoryCheckpointer(), graphs=[app]) as runtime:
        thread = runtime.thread("t")
        question = thread.ask(Invoke({"n": 1})).interrupts[0].id
        answered = Caller(thread.ask, Resume({question: "yes"}))
        assert inside.wait(PATIENCE)
        thread.cancel()
        answered.join()
    assert heard == [("yes", "Asks")]
