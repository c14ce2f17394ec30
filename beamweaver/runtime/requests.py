"""From a user's words to a call: everything that can be judged without the thread is judged here, at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from beamweaver.engine.breakpoints import breaks_of
from beamweaver.engine.calls import Call, CallKind
from beamweaver.engine.state import Edit
from beamweaver.errors import (
    InterruptWithoutCheckpointer,
    InvalidCall,
    InvalidThreadId,
)
from beamweaver.graph._text import shown
from beamweaver.graph.edits import normalize_update
from beamweaver.runtime.inputs import encoded, prepare, told
from beamweaver.runtime.namespaces import check_namespace, graphs_at, unknown_call
from beamweaver.runtime.options import choice, rerun_of, run_options
from beamweaver.runtime.reading import seq_of
from beamweaver.types import END, Cancel, Command, Continue, Invoke, Resume, StateUpdate

if TYPE_CHECKING:
    from beamweaver.graph.compiled import CompiledGraph
    from beamweaver.limits import Limits
    from beamweaver.runtime.hub import Hub
    from beamweaver.runtime.options import CallOptions

__all__ = [
    "CancelRun",
    "Message",
    "Release",
    "Update",
    "check_thread_id",
    "make_call",
    "merge_place",
    "message_name",
    "place_of",
]


class Release(msgspec.Struct, frozen=True):
    """Lets a quarantined thread go on; users say it by `release()`."""


class CancelRun(msgspec.Struct, frozen=True):
    """Cancels what runs if it is the run of that name: for a caller who went away."""

    run_id: str


class Update(msgspec.Struct, frozen=True):
    """Edits the state; users say it by `update_state()` and `bulk_update_state()`."""

    supersteps: Sequence[Sequence[StateUpdate]]
    checkpoint_id: str | None = None
    on_busy: str = "queue"
    namespace: tuple[str, ...] = ()


Message = Invoke | Resume | Continue | Cancel | CancelRun | Release | Update

_MESSAGES = (Invoke, Resume, Continue, Cancel, CancelRun, Release, Update)


def check_thread_id(thread_id: object, limits: Limits) -> str:
    """The thread id, judged.

    Raises:
        InvalidThreadId: It is empty, no text, too long, or has a NUL character.
    """
    if not isinstance(thread_id, str) or not thread_id:
        raise InvalidThreadId(
            f"thread_id is {thread_id!r}; give a text that names the thread, such as 'order-17'"
        )
    if _bytes_of(thread_id) > limits.thread_id_bytes:
        raise InvalidThreadId(
            f"thread_id {thread_id[:40]!r}… has {_bytes_of(thread_id)} bytes; "
            f"limits.thread_id_bytes is {limits.thread_id_bytes}: give a shorter one"
        )
    if _unfit(thread_id):
        raise InvalidThreadId(
            f"thread_id {thread_id!r} has a NUL or surrogate character; use another one"
        )
    return thread_id


def _bytes_of(text: str) -> int:
    """How long a text is that may hold anything."""
    return len(text.encode("utf-8", "surrogatepass"))


def _unfit(text: str) -> bool:
    """Whether a store could not keep it, or not tell where it ends."""
    return "\0" in text or any("\ud800" <= char <= "\udfff" for char in text)


def place_of(
    thread_id: str | None, config: Mapping[str, Any] | None, checkpoint_id: str | None = None
) -> tuple[str | None, str | None]:
    """Thread and checkpoint, given by keyword or in LangGraph's `config`.

    Raises:
        InvalidCall: `config` has another shape, keys that would be ignored, or says something else than
            the keywords.
    """
    if config is None:
        return thread_id, checkpoint_id
    shape = "{'configurable': {'thread_id': …, 'checkpoint_id': …}}"
    inner = config.get("configurable") if isinstance(config, Mapping) else None
    if not isinstance(inner, Mapping) or not inner:
        raise InvalidCall(f"config is {config!r}; give thread_id=, or config={shape}")
    strange = [key for key in config if key != "configurable"]
    strange += [f"configurable.{key}" for key in inner if key not in ("thread_id", "checkpoint_id")]
    if strange:
        raise InvalidCall(
            f"config has {', '.join(map(repr, strange))}, which nothing here reads; it may have {shape}, "
            "and the rest are keywords of the call, such as recursion_limit="
        )
    given = inner.get("thread_id")
    if thread_id is not None and given is not None and thread_id != given:
        raise InvalidCall(f"thread_id is {thread_id!r} and config names {given!r}; give one")
    named = inner.get("checkpoint_id")
    if checkpoint_id is not None and named is not None and checkpoint_id != named:
        raise InvalidCall(
            f"checkpoint_id is {checkpoint_id!r} and config names {named!r}; give one"
        )
    return (
        thread_id if given is None else given,
        checkpoint_id if named is None else named,
    )


def merge_place(
    options: CallOptions, thread_id: str | None, config: Mapping[str, Any] | None
) -> str | None:
    """The thread of a call; the checkpoint that `config` names goes to the options.

    Raises:
        InvalidCall: As `place_of`.
    """
    thread_id, checkpoint = place_of(thread_id, config, options.get("checkpoint_id"))
    if checkpoint is not None:
        options["checkpoint_id"] = checkpoint
    return thread_id


def make_call(
    hub: Hub,
    graph: CompiledGraph,
    message: Message,
    *,
    waits: bool,
) -> Call:
    """A call from a message.

    Raises:
        InvalidCall, InvalidUpdate, UnknownChannel, SerializationError: What is wrong with it.
    """
    if not isinstance(message, _MESSAGES):
        raise InvalidCall(
            f"{message!r} is no message for a thread; send Invoke(input), Resume(answer), Continue() "
            "or Cancel()"
        )
    given = getattr(message, "run_id", None)
    call = Call(
        hub.new_id(),
        _kind(message),
        graph.name,
        hub.new_id() if given is None else _run_id(given, hub.limits),
        named=given is not None,
        waits=waits,
    )
    if isinstance(message, Invoke | Resume | Continue):
        _give_options(hub, graph, call, message)
    if isinstance(message, Invoke):
        _give_input(hub, graph, call, message)
    elif isinstance(message, Resume):
        _give_answers(call, message.answer, message.answers)
    elif isinstance(message, Update):
        call.on_busy = choice("on_busy", message.on_busy, ("queue", "reject", "cancel"))
        call.updates = _edits(hub, graph, message.supersteps, message.namespace)
    _give_place(hub, call, message)
    return call


def _give_options(
    hub: Hub, graph: CompiledGraph, call: Call, message: Invoke | Resume | Continue
) -> None:
    call.recursion_limit = _recursion_limit(message.recursion_limit)
    call.on_busy = choice("on_busy", message.on_busy, ("queue", "reject", "cancel"))
    call.options = run_options(message, graph, hub.codec, hub.limits)
    if not hub.keeps and breaks_of(graph, call.options) is not None:
        raise InterruptWithoutCheckpointer(
            f"graph {graph.name!r} has breakpoints and no checkpointer, so nobody could ever pass them: "
            "compile(checkpointer=LMDBCheckpointer(path)) or MemoryCheckpointer()"
        )
    if message.rerun:
        call.rerun = rerun_of(message.rerun)


def _give_input(hub: Hub, graph: CompiledGraph, call: Call, message: Invoke) -> None:
    value = message.input
    call.on_unfinished = choice(
        "on_unfinished", message.on_unfinished, ("continue", "reject", "restart")
    )
    if value is None:
        return
    call.input = prepare(hub, graph, hub.codec_of(graph), value)
    if isinstance(value, Command) and value.resume is not msgspec.UNSET:
        _give_answers(call, value.resume, None)
    if message.on_unfinished == "restart" and (call.rerun or call.kind is CallKind.RESUME):
        raise InvalidCall(
            "on_unfinished='restart' drops results and questions, so there is nothing to "
            f"{'rerun' if call.rerun else 'resume'}; leave one of the two out"
        )


def _give_place(hub: Hub, call: Call, message: Message) -> None:
    """From which checkpoint the call goes on, where it says so."""
    call.checkpoint = getattr(message, "checkpoint_id", None)
    call.fork = getattr(message, "fork", False)
    if not isinstance(call.fork, bool):
        raise InvalidCall(f"fork is {call.fork!r}; give True or False")
    seq_of(call.checkpoint)  # refuses what is none
    if call.checkpoint is None and not call.fork:
        return
    asked = call.answers if call.answers is not None else [call.answer]
    call.place = hub.codec.digest(
        {
            "checkpoint": call.checkpoint or "",
            "fork": call.fork,
            "kind": call.kind.value,
            "input": call.input.digest if call.input is not None else b"",
            "asked": asked if call.kind is CallKind.RESUME else [],
        },
        "the call",
    )


def message_name(message: Message) -> str:
    """The verb by which users call what the message asks."""
    if isinstance(message, Update):
        return "update_state"
    return "resume" if isinstance(message, Resume) else "invoke"


def _kind(message: Message) -> CallKind:
    match message:
        case Invoke(input=None) | Continue():
            return CallKind.CONTINUE
        case Resume(answer=msgspec.UNSET, answers=None):
            return CallKind.CONTINUE
        case Invoke(input=Command(resume=answer)) if answer is not msgspec.UNSET:
            return CallKind.RESUME
        case Invoke():
            return CallKind.INVOKE
        case Resume():
            return CallKind.RESUME
        case Release():
            return CallKind.RELEASE
        case Update():
            return CallKind.UPDATE
        case _:
            return CallKind.CANCEL


def _give_answers(call: Call, answer: Any, answers: Mapping[str, Any] | None) -> None:
    if answers is not None:
        if not isinstance(answers, Mapping):
            raise InvalidCall(
                f"answers is {shown(answers)}; give a dict from question id to answer"
            )
        call.answers = dict(answers)
    elif isinstance(answer, dict) and _is_map(answer):
        call.answers = answer
    else:
        call.answer = answer


def _is_map(answer: dict[Any, Any]) -> bool:
    return bool(answer) and all(isinstance(k, str) and k.startswith("int_") for k in answer)


def _edits(
    hub: Hub, graph: CompiledGraph, given: object, namespace: tuple[str, ...]
) -> tuple[tuple[Edit, ...], ...]:
    """The updates of each superstep, judged.

    Raises:
        InvalidCall: There are none, or they do not fit together.
        InvalidUpdate and others: What is wrong with one of them.
    """
    example = "[[StateUpdate(values, as_node=…), …], …]"
    supersteps = list(given) if isinstance(given, (list, tuple)) else []
    if not supersteps:
        raise InvalidCall(f"the supersteps are {given!r}; give at least one: {example}")
    made = []
    names = check_namespace(graph, namespace)
    graphs = graphs_at(graph, names)
    if len(graphs) < len(names):
        raise unknown_call(names[: len(graphs) + 1])
    for updates in supersteps:
        if not isinstance(updates, (list, tuple)) or not updates:
            raise InvalidCall(f"a superstep is {updates!r}; give a list of updates: {example}")
        for update in updates:
            if not isinstance(update, StateUpdate):
                raise InvalidCall(f"an update is {update!r}; give StateUpdate(values, as_node=…)")
        nodes = [update.as_node for update in updates]
        if len(nodes) > 1 and (None in nodes or END in nodes or len({*nodes}) < len(nodes)):
            raise InvalidCall(
                f"a superstep has {len(nodes)} updates, as_node= {nodes}; several in one superstep each need "
                "a node of their own, and none of them END"
            )
        if names and len(nodes) > 1:
            raise InvalidCall(
                f"a superstep has {len(nodes)} updates of the graph at {names!r}; give one in each superstep"
            )
        made.append(tuple([_edit(hub, (graph, *graphs), update, names) for update in updates]))
    return tuple(made)


def _edit(
    hub: Hub,
    graphs: tuple[CompiledGraph, ...],
    update: StateUpdate,
    namespace: tuple[str, ...],
) -> Edit:
    graph = graphs[-1]
    at = f" at namespace {namespace!r}" if namespace else ""
    with told(f"update_state of graph {graph.name!r}{at}", "the update"):
        answer = normalize_update(graph, update.as_node, update.values)
        prepared = encoded(
            hub, hub.codec_of(graph), answer, "the update", update.as_node or "START"
        )
    return Edit(update.as_node, prepared, namespace, graphs[1:])


def _run_id(run_id: object, limits: Limits) -> str:
    if not isinstance(run_id, str) or not run_id or _unfit(run_id):
        raise InvalidCall(
            f"run_id is {run_id!r}; give a text without NUL and surrogates, or leave it out"
        )
    if _bytes_of(run_id) > limits.run_id_bytes:
        raise InvalidCall(
            f"run_id {run_id[:40]!r}… has {_bytes_of(run_id)} bytes; "
            f"limits.run_id_bytes is {limits.run_id_bytes}: give a shorter one, or leave it out"
        )
    return run_id


def _recursion_limit(value: object) -> int:
    if value is None:
        return 0
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise InvalidCall(f"recursion_limit is {value!r}; give a number of steps, 1 or more")
    return value
