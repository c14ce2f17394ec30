"""Checks that a place where threads are kept is a store: for whoever writes a `Checkpointer`.

One call runs them all and reports by capability. Each check gets a place of its own, opens it as often as
it likes, and judges only by the methods of `Checkpointer`.

Example:
    >>> from beamweaver.checkpoint import MemoryCheckpointer
    >>> stores = {}
    >>> report = run(lambda path: stores.setdefault(path, MemoryCheckpointer()), only=("ordering",))
    >>> report.passed, report.capabilities["ordering"].failed
    (True, ())
"""

from __future__ import annotations

from beamweaver.checkpoint.conformance import (
    _atomicity,
    _deltas,
    _forks,
    _message_keys,
    _owners,
    _reading,
    _retention,
    _sleeping,
    _values,
)
from beamweaver.checkpoint.conformance._check import (
    CHECKS,
    Capability,
    Check,
    Failure,
    Report,
    Unfulfilled,
    run,
)

__all__ = ["CHECKS", "Capability", "Check", "Failure", "Report", "Unfulfilled", "run"]

_PARTS = (
    _reading,
    _atomicity,
    _owners,
    _forks,
    _deltas,
    _retention,
    _values,
    _message_keys,
    _sleeping,
)  # they fill CHECKS
