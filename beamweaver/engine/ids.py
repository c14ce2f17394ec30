"""Deterministic ids: functions of branch, namespace, step and path alone.

Nothing of run, epoch, attempt or clock goes in, so a task that runs again has the same id, and so have
its questions and its idempotency key.
"""

from __future__ import annotations

from hashlib import blake2b

__all__ = [
    "call_ordinal",
    "checkpoint_id",
    "idempotency_key",
    "inner_key",
    "interrupt_id",
    "name_in",
    "parse_checkpoint_id",
    "task_id",
]

_ID_BYTES = 12
_KEYED_CALL = -2
"""The ordinal of a call that has a key; those without have smaller ones, and sub-steps have larger ones."""


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


def call_ordinal(number: int | None) -> int:
    """The ordinal under which a call is remembered among the sub-steps of its task.

    Args:
        number: How many calls of the same graph ended well before it; None if it has a key.
    """
    return _KEYED_CALL if number is None else _KEYED_CALL - 1 - number


def name_in(key: str) -> str:
    """The name of the called graph that a key of `inner_key` tells from others.

    Example:
        >>> [name_in(key) for key in ("child", "child|2", "child:a", "|handler:child:a")]
        ['child', 'child', 'child', 'child']
    """
    rest = key.partition(":")[2] if key.startswith("|") else key
    return rest.partition(":")[0].partition("|")[0]


def inner_key(name: str, ordinal: int, key: str | None) -> str:
    """What tells a called graph from the others of its task; `""` for what is no call.

    Args:
        name: The graph's name; within an error handler `"handler:"` comes before it.
        ordinal: See `call_ordinal`.
        key: The call's key.

    Example:
        >>> [inner_key("child", call_ordinal(n), None) for n in (0, 1)]
        ['child', 'child|2']
        >>> inner_key("child", call_ordinal(None), "a")
        'child:a'
        >>> inner_key("a sub-step", 0, None)
        ''
    """
    if ordinal > _KEYED_CALL:
        return ""
    handler, _, graph = name.rpartition(":")
    where = f"|{handler}:{graph}" if handler else graph  # no name of a graph begins like that
    if key is not None:
        return f"{where}:{key}"
    number = _KEYED_CALL - ordinal
    return where if number == 1 else f"{where}|{number}"
