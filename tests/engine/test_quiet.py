"""What is logged of the engine's things has no values of users in it."""

from __future__ import annotations

import pytest

from beamweaver.engine.effects import Attempt
from beamweaver.engine.state import OpenStep, Planned, Result, Task, Write
from beamweaver.graph.compiled import NodeSpec

SECRET = "correct horse"
WRITE = Write("x", SECRET, SECRET.encode())
SEND = Planned("b", {"x": SECRET}, {"x": SECRET.encode()}, None)
RESULT = Result((WRITE,), ("b",), (SEND,))
TASK = Task("a", update={"x": SECRET}, result=RESULT)
NODE = NodeSpec(name="a", index=0, fn=lambda _state: None)
ATTEMPT = Attempt.of(TASK, NODE, "main", 3, {"x": SECRET}, None)


@pytest.mark.parametrize("thing", [WRITE, SEND, RESULT, TASK, ATTEMPT, OpenStep(1, [TASK])])
def test_a_repr_has_no_values(thing):
    assert SECRET not in repr(thing)


def test_an_attempt_says_which_one_it_is():
    task = "Task(node='a', position=0, failures=0)"
    assert repr(ATTEMPT) == f"Attempt(task={task}, number=1, step=3)"
