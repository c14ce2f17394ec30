"""The demo: index the installed standard library in a process that is killed again and again.

`beamweaver demo` runs it. One durable thread a file; the child process is killed by SIGKILL at
moments that a seed draws, and started again; at the end the report is compared with that of a run that
nothing interrupted.
"""

from __future__ import annotations

from beamweaver.demo.parent import DemoFailed, Options, Progress, run_demo
from beamweaver.demo.verdict import Verdict

__all__ = ["DemoFailed", "Options", "Progress", "Verdict", "run_demo"]
