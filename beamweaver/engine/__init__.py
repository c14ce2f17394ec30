"""The superstep engine: a pure state machine.

`Machine` takes events (a call arrived, an attempt succeeded, a commit was acknowledged, …) and returns
effects (start an attempt, commit this record, answer that call, …). It has no threads, clock, ids, random
numbers or storage inside: they come in with the events or through `Env`. Whoever drives it carries out
the effects and feeds the events.
"""

from beamweaver.engine.calls import Call, CallKind, Prepared
from beamweaver.engine.env import Env
from beamweaver.engine.machine import Machine
from beamweaver.engine.state import RunState, Task

__all__ = ["Call", "CallKind", "Env", "Machine", "Prepared", "RunState", "Task"]
