"""Told calls that wait in the store, as calls again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from beamweaver.checkpoint.records import decode_call
from beamweaver.engine.calls import Call, CallKind, Prepared
from beamweaver.engine.rows import sends_of, writes_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from beamweaver.checkpoint.records import InboxMessage
    from beamweaver.engine.env import Env

__all__ = ["calls_of"]


def calls_of(inbox: Iterable[InboxMessage], env: Env, graph: str = "") -> list[Call]:
    """The calls that the messages keep, oldest first."""
    return [_call_of(message, env, graph) for message in inbox]


def _call_of(message: InboxMessage, env: Env, graph: str) -> Call:
    row = decode_call(message.payload)
    prepared = None
    if row.has_input:
        prepared = Prepared(
            writes_of(row.writes, env), row.digest, row.goto, sends_of(row.sends, env)
        )
    answers = {key: env.decode_any(data) for key, data in (row.answers or {}).items()}
    single = "" in answers
    call = Call(
        message.id,
        CallKind(row.kind),
        graph,
        row.run_id,
        input=prepared,
        answer=answers.get("") if single else None,
        answers=None if single or row.answers is None else answers,
        named=row.named,
        waits=False,
        on_busy=row.on_busy,
        on_unfinished=row.on_unfinished,
        recursion_limit=row.recursion_limit,
        options=row.options,
        rerun=row.rerun,
        checkpoint=row.checkpoint,
        fork=row.fork,
        place=row.place,
    )
    call.message = message.number
    return call
