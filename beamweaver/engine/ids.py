"""Deterministic ids: functions of branch, namespace, step and path alone.

Nothing of run, epoch, attempt or clock goes in, so a task that runs again has the same id, and so have
its questions and its idempotency key.
"""

from __future__ import annotations

from hashlib import blake2b

__all__ = ["checkpoint_id", "idempotency_key", "interrupt_id", "parse_checkpoint_id", "task_id"]

_ID_BYTES = 12


def _digest(*parts: str) -> str:
    return blake2b("\0".join(parts).encode(), digest_size=_ID_BYTES).hexdigest()


def task_id(branch: str, namespace: str, step: int, path: str) -> str:
    """The id of the task at `path` (a node, or source task and index of a Send) of a step.

    Example:
        >>> task_id("b1", "", 3, "load") == task_id("b1", "", 3, "load")
        True
    """
    return _digest(branch, namespace, str(step), path)


def interrupt_id(task: str, ordinal: int, key: str | None) -> str:
    """The id of a task's question: by its key, or else by its ordinal in the task."""
    return "int_" + _digest(task, f"k:{key}" if key is not None else f"o:{ordinal}")


def idempotency_key(thread_id: str, task: str) -> str:
    """The key under which a task's outside effects may be made idempotent."""
    return _digest(thread_id, task)


def checkpoint_id(branch: str, seq: int) -> str:
    """The public id of the checkpoint in record `seq`."""
    return f"{branch}-{seq}"


def parse_checkpoint_id(text: str) -> tuple[str, int] | None:
    """Branch and `seq` of a checkpoint id, or None if it is none."""
    branch, dash, seq = text.rpartition("-")
    return (branch, int(seq)) if dash and branch and seq.isdecimal() else None
