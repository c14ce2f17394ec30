"""The test kit: a simulation on a virtual clock, probes, and a check for leaks.

Example:
    >>> from supervisors import Actor, ActorSystem
    >>> from supervisors.testing import DeterministicScheduler
    >>> class Echo(Actor):
    ...     def on_receive(self, message):
    ...         return message
    >>> with ActorSystem(DeterministicScheduler(seed=7)) as system:
    ...     system.start(Echo).ask("hello")
    'hello'
"""

from supervisors.testing.clock import VirtualClock
from supervisors.testing.deterministic import DeterministicScheduler
from supervisors.testing.probes import Recorder, eventually, exit_reason, leaks

__all__ = [
    "DeterministicScheduler",
    "Recorder",
    "VirtualClock",
    "eventually",
    "exit_reason",
    "leaks",
]
