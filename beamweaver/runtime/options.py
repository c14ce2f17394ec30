"""What a call may give in place of the graph's own, judged at once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, Literal, TypedDict

from beamweaver.checkpoint.records import RunOptions
from beamweaver.errors import InvalidCall
from beamweaver.graph._text import listed, nearest, shown
from beamweaver.graph._validate import breakpoint_faults
from beamweaver.types import seconds

if TYPE_CHECKING:
    from collections.abc import Sequence

    from beamweaver.graph.compiled import CompiledGraph
    from beamweaver.limits import Limits
    from beamweaver.types import Continue, Duration, Invoke, Resume

__all__ = [
    "METADATA",
    "TAGS",
    "CallOptions",
    "check_options",
    "choice",
    "drain_time",
    "rerun_of",
    "run_options",
    "waiting_time",
]

METADATA: Final = ("graph", "version", "source", "step", "run_id", "reason", "owner_deaths")
"""What the metadata of every state has."""
TAGS: Final = "tags"
"""Where the tags of a run are in its metadata."""


class CallOptions(TypedDict, total=False):
    """What every call may give beside its input and its thread. None is the graph's own.

    An option holds for the run from this call on, in other processes too, until the next caller's call
    gives its own or leaves it out; `metadata` and `tags` stay.

    Attributes:
        run_id: A name for the run: the same one again joins, continues, or returns what is recorded.
        recursion_limit: Steps before the run is stopped.
        run_timeout: Seconds (or a `timedelta`) for the run.
        step_timeout: Seconds (or a `timedelta`) for each step.
        failure_policy: `"proceed"`: the siblings of a failed task finish; `"panic"`: they are stopped.
        max_concurrency: How many tasks of a step run at once.
        on_busy: When the thread runs: `"queue"` waits for it, `"reject"` raises `ThreadBusy`, `"cancel"`
            cancels the run, waits until it has stopped, and then finds a cancelled thread.
        metadata: What you want to note of the run; each of its checkpoints shows it in
            `get_state().metadata`, and `get_state_history(filter=)` finds it. A later call of the run adds
            to it.
        tags: Words to find the run by; in the metadata under `"tags"`.
        rerun: Nodes (or ids of tasks) whose finished results in the unfinished step are dropped, so that
            they run again.
        durability: `"sync"`: the next step starts when the one before is durable. `"async"`: it starts when
            the commit of the one before is on its way, of which a thread has 64 at most; after a kill at most
            these steps run again. `"exit"`: it starts at once, and steps are written with the next record
            that must be durable; after a kill the run goes on from its last record. A question, a failure, a
            sub-step, a sleep, the due time of a retry and the end of the run are durable, with all before
            them, in each mode.
        checkpoint_id: The checkpoint to go on from. The head is the same as None; an older one starts a
            branch, which has nothing of what happened after it, and becomes the head.
        fork: Whether a branch starts even at the head.
        context: What nodes find in `ctx.context`, of the graph's `context_schema`: clients, settings, who
            the user is. It is not stored: where the run goes on in another process, it has the one of the
            call that continues it, or that of `Runtime(contexts=…)`.
        interrupt_before: Nodes before which the run stops once, `"*"` for all; `[]` for none.
        interrupt_after: Nodes after which the run stops once, `"*"` for all; `[]` for none.

    Example:
        >>> from beamweaver import END, START, Graph
        >>> graph = Graph(name="one").add_node("a", lambda state: None).add_edge(START, "a")
        >>> with graph.compile() as app:
        ...     app.invoke({}, run_timeout=10, tags=["nightly"]).warnings
        ()
    """

    run_id: str | None
    recursion_limit: int | None
    run_timeout: Duration | None
    step_timeout: Duration | None
    failure_policy: Literal["proceed", "panic"] | None
    max_concurrency: int | None
    on_busy: str
    metadata: Mapping[str, Any] | None
    tags: Sequence[str]
    rerun: Sequence[str]
    durability: Literal["sync", "async", "exit"]
    checkpoint_id: str | None
    fork: bool
    context: Any
    interrupt_before: Sequence[str] | None
    interrupt_after: Sequence[str] | None


_OTHERS: Final = ("thread_id", "config", "on_unfinished", "on_disconnect", "raises", "timeout")


def check_options(given: Mapping[str, Any], what: str) -> None:
    """Refuse keywords that calls do not have.

    Raises:
        TypeError: There is one.
    """
    for name in given:
        if name not in CallOptions.__annotations__:
            every = [*CallOptions.__annotations__, *_OTHERS]
            raise TypeError(
                f"{what}: there is no option {name!r}.{nearest(name, every)} Options: {listed(every)}"
            )


def run_options(
    message: Invoke | Resume | Continue, graph: CompiledGraph, codec: Any, limits: Limits
) -> RunOptions | None:
    """The options of a message to a thread of the graph as they are stored; None if it gives none.

    Raises:
        InvalidCall: One is unfit.
        SerializationError: A value of the metadata cannot be stored.
    """
    policy, most = message.failure_policy, message.max_concurrency
    if policy is not None:
        choice("failure_policy", policy, ("proceed", "panic"))
    if most is not None and (type(most) is not int or most < 1):
        raise InvalidCall(f"max_concurrency is {most!r}; give a number of tasks, 1 or more")
    choice("durability", message.durability, ("sync", "async", "exit"))
    options = RunOptions(
        _seconds(message.run_timeout, "run_timeout"),
        _seconds(message.step_timeout, "step_timeout"),
        policy or "",
        most or 0,
        _metadata(message, codec, limits),
        _breakpoints("interrupt_before", message.interrupt_before, graph),
        _breakpoints("interrupt_after", message.interrupt_after, graph),
        "" if message.durability == "sync" else message.durability,
    )
    return None if options == _NONE else options


_NONE: Final = RunOptions()


def waiting_time(value: float | None) -> float | None:
    """How long to wait, judged before anything is done: seconds, 0 for not at all, None for ever.

    Raises:
        InvalidCall: It is neither.
    """
    return None if value is None else drain_time(value, " or None to wait for ever")


def drain_time(value: float, others: str = "") -> float:
    """How long to wait where somebody has to give up at last, in seconds.

    Raises:
        InvalidCall: It is no number of seconds.
    """
    if type(value) in (int, float) and value >= 0:
        return value
    raise InvalidCall(f"timeout is {shown(value)}; give seconds from 0 on{others}")


def _seconds(value: Duration | None, name: str) -> float | None:
    try:
        return seconds(value, name)
    except ValueError as error:
        raise InvalidCall(str(error)) from None


def _metadata(message: Invoke | Resume | Continue, codec: Any, limits: Limits) -> dict[str, bytes]:
    noted, tags = message.metadata, message.tags
    if noted is None and tags == ():
        return {}
    if noted is not None and not isinstance(noted, Mapping):
        raise InvalidCall(f"metadata is {shown(noted)}; give a dict such as {{'user': 'ann'}}")
    if isinstance(tags, str) or not all(isinstance(tag, str) and tag for tag in tags):
        raise InvalidCall(f"tags is {shown(tags)}; give a list of texts such as ['nightly']")
    for key in noted or ():
        if not isinstance(key, str) or not key or key == TAGS or key in METADATA:
            raise InvalidCall(
                f"metadata has the key {key!r}; give texts other than {listed([*METADATA, TAGS])}, which "
                "every state has of its own"
            )
    data = {key: codec.encode(value, f"metadata[{key!r}]") for key, value in (noted or {}).items()}
    if tags:
        data[TAGS] = codec.encode(list(tags))
    size = sum(len(key) + len(value) for key, value in data.items())
    if size > limits.metadata_bytes:
        raise InvalidCall(
            f"metadata and tags have {size} bytes, and go into every checkpoint of the run; "
            f"limits.metadata_bytes is {limits.metadata_bytes}: keep what is larger in the state"
        )
    return data


def _breakpoints(
    name: str, given: Sequence[str] | None, graph: CompiledGraph
) -> tuple[str, ...] | None:
    if given is None:
        return None
    faults = list(breakpoint_faults(name, given, graph.nodes))
    if faults:
        raise InvalidCall("; ".join(faults))
    return tuple(given)  # "*" is one name


def rerun_of(names: Sequence[str]) -> tuple[str, ...]:
    """The option `rerun`, judged.

    Raises:
        InvalidCall: It is no list of texts.
    """
    if isinstance(names, str) or not all(isinstance(name, str) and name for name in names):
        raise InvalidCall(f"rerun is {shown(names)}; give a list of nodes such as ['load']")
    return tuple(dict.fromkeys(names))


def choice(name: str, value: object, allowed: tuple[str, ...]) -> str:
    """A value that must be one of a few texts, judged.

    Raises:
        InvalidCall: It is none of them.
    """
    if value not in allowed:
        raise InvalidCall(f"{name} is {value!r}; give {' or '.join(map(repr, allowed))}")
    return str(value)
