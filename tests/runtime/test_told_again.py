"""A told message whose commit went with its actor is kept anew, and its sender hears so."""

from __future__ import annotations

from beamweaver import Continue, Invoke, Runtime
from beamweaver.checkpoint import MemoryCheckpointer
from supervisors.testing import eventually
from tests.runtime.kit import PATIENCE, Boom, Caller, Gate, line, wrote


def test_a_message_behind_a_run_is_kept_anew_when_the_writer_dies_before_it_is_durable():
    gate, armed = Gate({"log": ["gate"]}), []

    def fault(point, _thread):
        if point == "writer.group" and armed:
            armed.clear()
            raise Boom(point)

    app = line("g", a=gate, b=wrote("b")).compile()
    with Runtime(MemoryCheckpointer(), graphs=[app], fault=fault) as runtime:
        thread = runtime.thread("t")
        thread.tell(Invoke({"n": 1}, run_id="first"))
        gate.wait()
        armed.append(True)
        told = Caller(thread.tell, Invoke({"n": 2}, run_id="second"))
        eventually(lambda: not armed)
        receipt = told.join()
        gate.open()
        assert receipt.run_id == "second"
        eventually(lambda: thread.get_state().values["n"] == 2)
        assert thread.ask(Continue(), timeout=PATIENCE).state["n"] == 2
