"""BeamWeaver: durable graphs that run as supervised actors.

- `Graph` builds a graph, `compile()` makes it an `App` that can be called.
- `Runtime` owns a store, takes up what is unfinished in it, and runs its threads.
- `beamweaver.checkpoint` has the stores, `beamweaver.errors` every error, `beamweaver.types` every value.
"""

from beamweaver.runtime.app import App, Graph
from beamweaver.runtime.context import Context
from beamweaver.runtime.current import current_context, interrupt
from beamweaver.runtime.handle import ThreadHandle
from beamweaver.runtime.options import CallOptions
from beamweaver.runtime.runtime import Runtime
from beamweaver.types import (
    END,
    START,
    Breakpoint,
    Cancel,
    Cancelled,
    Command,
    Completed,
    Continue,
    Drained,
    Failed,
    Interrupt,
    Interrupted,
    Invoke,
    Outcome,
    Overwrite,
    Receipt,
    Rejected,
    Resume,
    RetryPolicy,
    Send,
    StateUpdate,
    ThreadState,
    TimeoutPolicy,
)

__all__ = [
    "END",
    "START",
    "App",
    "Breakpoint",
    "CallOptions",
    "Cancel",
    "Cancelled",
    "Command",
    "Completed",
    "Context",
    "Continue",
    "Drained",
    "Failed",
    "Graph",
    "Interrupt",
    "Interrupted",
    "Invoke",
    "Outcome",
    "Overwrite",
    "Receipt",
    "Rejected",
    "Resume",
    "RetryPolicy",
    "Runtime",
    "Send",
    "StateUpdate",
    "ThreadHandle",
    "ThreadState",
    "TimeoutPolicy",
    "current_context",
    "interrupt",
]

__version__ = "0.1.0"
