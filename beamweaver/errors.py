"""Every error that BeamWeaver raises.

```
BeamWeaverError
├── InvalidGraph            compile() found faults; all of them are in .faults
├── CallRefused             a call that this thread, runtime or graph cannot take
│   ├── InvalidCall         a wrong argument of a call
│   ├── InvalidThreadId
│   ├── NoCheckpointer      thread_id, resume or get_state without a store
│   ├── ThreadBusy          on_busy="reject" and the thread runs
│   ├── NothingToContinue   invoke(None) on a thread that does not exist
│   ├── NothingToResume     resume() and no question is open
│   ├── UnknownInterrupt    an answer to a question that is not open
│   ├── AmbiguousResume     one answer, several open questions
│   ├── AlreadyAnswered     the question was answered before
│   ├── UnfinishedRun       on_unfinished="reject" and the thread has an unfinished run
│   ├── Quarantined         the thread was set aside; only release() goes on
│   ├── InvalidAnswer       an answer that the question's schema refuses; the question stays
│   ├── AmbiguousUpdate     update_state() cannot tell which node the values are of
│   ├── GraphTooOld         the thread was written by a newer version of its graph
│   ├── GraphChanged        the graph has lost what the thread needs, and no migration says how
│   ├── MigrationFailed     a migration raised, or made values that do not fit the graph
│   ├── WrongGraph          the thread belongs to another graph
│   ├── UnknownGraph        the runtime lacks the graph of the thread
│   ├── UnknownRun          a run id that nothing recorded
│   ├── IdempotencyKeyReused  the key came with another message before
│   ├── NotOwner            a client asks for what only the owner of the store can do
│   ├── InboxFull           too many messages wait for the thread, or for the owner of the store
│   ├── CallingSelf         a node waits for its own thread
│   ├── WouldBlock          a sync call on the loop that runs the nodes it waits for
│   └── Draining            the runtime takes no new calls
├── RunFailed               what a failed run raises
│   ├── NodeFailed          a node raised in its last attempt; the original is __cause__
│   │   ├── NodeTimeout
│   │   ├── ErrorHandlerFailed  so did its error handler; the message has both failures
│   │   └── NodeExit        the node's actor, worker or process was killed
│   ├── StepTimeout
│   ├── RunTimeout
│   ├── RecursionLimit
│   ├── InvalidUpdate       a node's return that is no update, or two writers of a key
│   │   ├── UnknownChannel
│   │   └── UnknownTarget   goto, Send or router names a node that is not there
│   ├── StateMutated        a node changed the state in place of returning an update
│   ├── ReducerFailed
│   ├── RouterFailed
│   └── ConcurrentSubgraph  two tasks at once in one persistent subgraph
├── InterruptWithoutCheckpointer
├── KeyRequired             two questions or sub-steps of one task at once, told apart by nothing
├── StepChanged             ctx.step() is called with other arguments than were recorded
├── SerializationError      a value that cannot be stored exactly
├── DeserializationError    a stored value that cannot be read
├── StoreError
│   ├── StoreUnavailable    the path cannot be opened or written
│   ├── NotAStore           another program's file
│   ├── StoreTooNew         written by a newer version
│   ├── StoreOwned          another process or runtime owns the store
│   ├── TakeoverBlocked     the old owner stands still inside a write
│   ├── OwnershipLost       a stale owner's write was refused
│   ├── StoreConflict       a record's sequence is not the next one
│   ├── StoreDiffers        graph and runtime are bound to different stores
│   ├── StoreOptionsDiffer  one path, two sets of options
│   ├── StoreFull
│   ├── StoreBroken         what the disk holds is unknown: the runtime ends
│   └── CorruptRecord
├── AskTimeout              ask(timeout=) ran out; the run goes on
├── RuntimeStopped          the runtime ended while the call waited; the run is kept
│   └── Forked              the runtime is of the process that this one was forked from
├── RuntimeFailed           the supervision tree gave up; carries the tree
├── WorkersExhausted        too many abandoned workers
└── MissingExtra            an optional dependency is not installed

NodeError                   raised by user code: a failure with a code of its own
```
Each class has a stable `code`; the ids that an error concerns are attributes and survive pickling.
"""

from __future__ import annotations

from typing import Any

from beamweaver._error_base import BeamWeaverError
from beamweaver._store_errors import (
    CorruptRecord,
    NotAStore,
    OwnershipLost,
    StoreBroken,
    StoreConflict,
    StoreDiffers,
    StoreError,
    StoreFull,
    StoreOptionsDiffer,
    StoreOwned,
    StoreTooNew,
    StoreUnavailable,
    TakeoverBlocked,
)

__all__ = [
    "AlreadyAnswered", "AmbiguousResume", "AmbiguousUpdate", "AskTimeout", "BeamWeaverError",
    "CallRefused", "CallingSelf", "ConcurrentSubgraph", "CorruptRecord", "DeserializationError",
    "Draining", "ErrorHandlerFailed", "Forked", "GraphChanged", "GraphTooOld", "IdempotencyKeyReused",
    "InboxFull", "InterruptWithoutCheckpointer", "InvalidAnswer", "InvalidCall", "InvalidGraph",
    "InvalidThreadId", "InvalidUpdate", "KeyRequired", "MigrationFailed",
    "MissingExtra", "NoCheckpointer", "NodeError", "NodeExit", "NodeFailed", "NodeTimeout",
    "NotAStore", "NotOwner", "NothingToContinue", "NothingToResume", "OwnershipLost", "Quarantined",
    "RecursionLimit", "ReducerFailed", "RouterFailed", "RunFailed", "RunTimeout",
    "RuntimeFailed", "RuntimeStopped", "SerializationError", "StateMutated", "StepChanged",
    "StepTimeout", "StoreBroken", "StoreConflict", "StoreDiffers", "StoreError", "StoreFull",
    "StoreOptionsDiffer", "StoreOwned", "StoreTooNew", "StoreUnavailable", "TakeoverBlocked",
    "ThreadBusy", "UnfinishedRun", "UnknownChannel", "UnknownGraph", "UnknownInterrupt",
    "UnknownRun", "UnknownTarget", "WorkersExhausted", "WouldBlock", "WrongGraph",
]  # fmt: skip


class InvalidGraph(BeamWeaverError):
    """`compile()` found faults; the message lists all of them and `.faults` has one text each."""

    code = "invalid_graph"
    faults: tuple[str, ...]


class CallRefused(BeamWeaverError):
    """The call cannot be taken as it stands; nothing was changed. Always raised, whatever `raises=`."""

    code = "call_refused"


class InvalidCall(CallRefused):
    """A wrong argument of a call; the message names it."""

    code = "invalid_call"


class InvalidThreadId(CallRefused):
    """A thread id that is empty, not text, over 256 bytes, or has a NUL character."""

    code = "invalid_thread_id"


class NoCheckpointer(CallRefused):
    """The graph was compiled without a checkpointer, so it keeps no threads."""

    code = "no_checkpointer"


class ThreadBusy(CallRefused):
    """The thread runs and the call said `on_busy="reject"`."""

    code = "thread_busy"


class UnfinishedRun(CallRefused):
    """The thread has an unfinished run and the call said `on_unfinished="reject"`."""

    code = "unfinished_run"


class NothingToContinue(CallRefused):
    """`invoke(None)` on a thread that does not exist: give an input."""

    code = "nothing_to_continue"


class NothingToResume(CallRefused):
    """An answer was given and no question is open."""

    code = "nothing_to_resume"


class UnknownInterrupt(CallRefused):
    """An answer names a question that is not open; the message lists the open ones."""

    code = "unknown_interrupt"


class AmbiguousResume(CallRefused):
    """One answer and several open questions: give a map from question id to answer."""

    code = "ambiguous_resume"


class AlreadyAnswered(CallRefused):
    """The question was answered before, in the thread's last run. An answer is not replaced."""

    code = "already_answered"


class Quarantined(CallRefused):
    """The thread was set aside after crashes without progress; `.reason` tells."""

    code = "quarantined"
    reason: str


class InvalidAnswer(CallRefused):
    """The question's schema refuses the answer. The question stays open."""

    code = "invalid_answer"


class AmbiguousUpdate(CallRefused):
    """`update_state()` cannot tell as which node the values count; `.candidates` names those it may be."""

    code = "ambiguous_update"
    candidates: tuple[str, ...]


class GraphTooOld(CallRefused):
    """The thread was written by a newer `version` of its graph. Its record is untouched."""

    code = "graph_too_old"


class GraphChanged(CallRefused):
    """The graph has lost a key or a node that the thread needs, and no migration says what becomes of it.

    The thread is untouched. `.differences` has what is gone, in words.
    """

    code = "graph_changed"
    differences: tuple[str, ...] = ()


class MigrationFailed(CallRefused):
    """A migration raised, or what it made does not fit the graph. The thread is untouched."""

    code = "migration_failed"


class WrongGraph(CallRefused):
    """The thread was begun by a graph of another name."""

    code = "wrong_graph"


class UnknownGraph(CallRefused):
    """The runtime has no graph of the thread's name: pass it in `graphs=`."""

    code = "unknown_graph"


class UnknownRun(CallRefused):
    """No run of that id is recorded in the thread."""

    code = "unknown_run"


class IdempotencyKeyReused(CallRefused):
    """The idempotency key came with a message before that asked something else; `.key`, `.message_id`."""

    code = "idempotency_key_reused"
    key: str
    message_id: str


class NotOwner(CallRefused):
    """This runtime is a client of its store, and only the owner can do what the call asks."""

    code = "not_owner"


class InboxFull(CallRefused):
    """Too many durable messages wait; send again when some have had their turn."""

    code = "inbox_full"


class CallingSelf(CallRefused):
    """A node waits for its own thread, which waits for the node: that would never end."""

    code = "calling_self"


class WouldBlock(CallRefused):
    """A sync call on the event loop that runs the runtime's nodes; `.twin` names the awaitable one."""

    code = "would_block"
    twin: str


class Draining(CallRefused):
    """The runtime drains: it takes no new calls. Messages by `tell` are still kept."""

    code = "draining"


def refusal_of_code(code: str, message: str) -> CallRefused:
    """A refusal again from what was stored of it."""
    return _refusals(CallRefused).get(code, CallRefused)(message)


def _refusals(root: type[CallRefused]) -> dict[str, type[CallRefused]]:
    found = {root.code: root}
    for kind in root.__subclasses__():
        found |= _refusals(kind)
    return found


class RunFailed(BeamWeaverError):
    """A run failed and is kept: the same call, or `invoke(None)`, goes on from what is done."""

    code = "run_failed"
    failures: tuple[Any, ...] = ()
    interrupts: tuple[Any, ...] = ()


class NodeFailed(RunFailed):
    """A node raised in its last attempt; `__cause__` is the original if it was raised in this process."""

    code = "node_failed"
    node: str
    attempt: int


class NodeTimeout(NodeFailed):
    """An attempt took longer than the node's `timeout`."""

    code = "node_timeout"
    timeout: float


class NodeExit(NodeFailed):
    """The actor, worker or process that ran the node was killed from outside."""

    code = "node_exit"


class ErrorHandlerFailed(NodeFailed):
    """A node failed for good, and then its error handler did; the message has both failures.

    `__cause__` is what the handler raised, if that was in this process. Continuing runs the handler again,
    not the node.
    """

    code = "error_handler_failed"


class StepTimeout(RunFailed):
    """A step took longer than `step_timeout`."""

    code = "step_timeout"


class RunTimeout(RunFailed):
    """A run took longer than `run_timeout`."""

    code = "run_timeout"


class RecursionLimit(RunFailed):
    """The run took `recursion_limit` steps since the last call. The thread stays resumable."""

    code = "recursion_limit"
    limit: int


class InvalidUpdate(RunFailed):
    """A return that is no update, or two writers of a key that takes one value a step."""

    code = "invalid_update"


class UnknownChannel(InvalidUpdate):
    """An update or input has a key that the schema lacks."""

    code = "unknown_channel"


class UnknownTarget(InvalidUpdate):
    """A `goto`, `Send` or router names a node that the graph lacks."""

    code = "unknown_target"


class StateMutated(RunFailed):
    """A node changed the state that it was given, in place of returning an update; `.keys` says where."""

    code = "state_mutated"
    node: str
    keys: tuple[str, ...]


class ReducerFailed(RunFailed):
    """A reducer raised while a step was merged; the step's results are kept."""

    code = "reducer_failed"


class RouterFailed(RunFailed):
    """A router or guard raised after a step was merged; the step's results are kept."""

    code = "router_failed"


class ConcurrentSubgraph(RunFailed):
    """Two tasks run at once in one persistent subgraph; `key=` keeps their states apart."""

    code = "concurrent_subgraph"


class InterruptWithoutCheckpointer(BeamWeaverError):
    """`interrupt()` in a graph without a checkpointer: nobody could ever answer."""

    code = "interrupt_without_checkpointer"


class KeyRequired(BeamWeaverError):
    """A task asks two questions, or runs two sub-steps of one name, at once: only keys tell them apart."""

    code = "key_required"


class StepChanged(BeamWeaverError):
    """`ctx.step()` is called with other arguments than those of the result that was recorded for it."""

    code = "step_changed"


class SerializationError(BeamWeaverError):
    """A value that cannot be stored and read back exactly; `.path` and `.type_name` say where and what."""

    code = "serialization_error"
    path: str
    type_name: str


class DeserializationError(BeamWeaverError):
    """A stored value that cannot be read back; `.path` and `.type_name` say where and what."""

    code = "deserialization_error"
    path: str


class AskTimeout(BeamWeaverError):
    """`ask(timeout=)` ran out. The run goes on; `.receipt` names it."""

    code = "ask_timeout"


class RuntimeStopped(BeamWeaverError):
    """The runtime ended while the call waited. The run is kept: `.run_id` names it."""

    code = "runtime_stopped"


class Forked(RuntimeStopped):
    """This process was forked from the one that opened the runtime; open one in each worker."""

    code = "forked"


class RuntimeFailed(BeamWeaverError):
    """The runtime's supervision tree exceeded its restart budget; `.tree` shows what was up."""

    code = "runtime_failed"


class WorkersExhausted(BeamWeaverError):
    """Too many workers are held by killed nodes that never returned."""

    code = "workers_exhausted"


class MissingExtra(BeamWeaverError):
    """An optional dependency is missing; the message has the command that installs it."""

    code = "missing_extra"


class NodeError(Exception):
    """A failure that a node declares, with a code of its own.

    Args:
        code: A short stable name, such as `"card_declined"`.
        message: What happened.
        retryable: Whether a retry policy may try again.

    Example:
        >>> NodeError("notification_unavailable", "the service is down", retryable=False).code
        'notification_unavailable'
    """

    def __init__(self, code: str, message: str = "", *, retryable: bool = True) -> None:
        super().__init__(f"{code}: {message}" if message else code)
        self.code = code
        self.detail = message
        self.retryable = retryable

    def __reduce__(self) -> tuple[Any, ...]:
        return (_rebuild_node_error, (self.code, self.detail, self.retryable))


def _rebuild_node_error(code: str, message: str, retryable: bool) -> NodeError:
    return NodeError(code, message, retryable=retryable)
