"""What a node may know and do while it runs: `ctx`, and `interrupt()`."""

from __future__ import annotations

import contextvars
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from beamweaver.engine.ids import idempotency_key, interrupt_id
from beamweaver.engine.state import Question
from beamweaver.errors import InterruptWithoutCheckpointer, InvalidCall
from beamweaver.runtime.log import logger
from beamweaver.runtime.substeps import SubSteps, refuse_inside

if TYPE_CHECKING:
    from collections.abc import Callable

    from beamweaver.engine.effects import Attempt
    from beamweaver.graph.compiled import CompiledGraph
    from beamweaver.runtime.env import GraphCodec
    from beamweaver.runtime.hub import Hub

__all__ = ["Context", "Frame", "current_context", "interrupt"]

_current: contextvars.ContextVar[Context | None] = contextvars.ContextVar(
    "beamweaver_context", default=None
)


class Body(Protocol):
    """What runs an attempt."""

    @property
    def live(self) -> bool:
        """Whether its outcome is still open."""

    def tell(self, message: object) -> None:
        """Send a message to the actor of the thread."""


class Frame(msgspec.Struct, eq=False):
    """What all attempts of one run share."""

    hub: Hub
    graph: CompiledGraph
    codec: GraphCodec
    thread_id: str
    run_id: str


class Asks(BaseException):
    """Control flow: the node asked a question that has no answer yet. User code must not catch it."""

    def __init__(self, question: Question) -> None:
        super().__init__(f"question {question.id} waits for an answer")
        self.question = question


class Context:
    """The context of one attempt; a node gets it by a parameter named `ctx` or annotated `Context`.

    Attributes:
        state: The state that the node was given.
        thread_id: The thread.
        run_id: The run.
        step_number: The superstep's number.
        node: The node's name.
        attempt: 1 for the first attempt since the caller's last call.
        namespace: `()` in a graph that is no subgraph.
    """

    __slots__ = (
        "_asked",
        "_attempt",
        "_awaits",
        "_began",
        "_body",
        "_frame",
        "_log",
        "_steps",
        "open_question",
    )

    def __init__(
        self, frame: Frame, attempt: Attempt, body: Body | None = None, *, awaits: bool = False
    ) -> None:
        self._frame = frame
        self._attempt = attempt
        self._body = body
        self.open_question: Question | None = None
        self._began = frame.hub.system.clock.time() if attempt.timeout is not None else 0.0
        self._asked = 0
        self._awaits = awaits
        self._log: Any = None
        self._steps: SubSteps | None = None

    @property
    def thread_id(self) -> str:
        """The thread."""
        return self._frame.thread_id

    @property
    def graph_name(self) -> str:
        """The graph that the node is part of."""
        return self._frame.graph.name

    @property
    def run_id(self) -> str:
        """The run."""
        return self._frame.run_id

    @property
    def namespace(self) -> tuple[str, ...]:
        """Where in the nesting of graphs the node is."""
        return ()

    def belongs_to(self, hub: Hub) -> bool:
        """Whether the node runs in that runtime."""
        return self._frame.hub is hub

    @property
    def state(self) -> dict[str, Any]:
        """The state that the node was given."""
        return self._attempt.view

    @property
    def step_number(self) -> int:
        """The number of the superstep."""
        return self._attempt.step

    @property
    def node(self) -> str:
        """The node's name."""
        return self._attempt.node.name

    @property
    def attempt(self) -> int:
        """1 for the first attempt."""
        return self._attempt.number

    @property
    def first_attempt_at(self) -> float:
        """When the task's first attempt began, in UTC seconds."""
        return self._attempt.first_us / 1_000_000

    @property
    def task_id(self) -> str:
        """The same in every attempt, in every process, after every crash."""
        return self._attempt.task_id

    @property
    def idempotency_key(self) -> str:
        """A key for outside effects of this task; the same whenever the task runs again."""
        return idempotency_key(self.thread_id, self._attempt.task_id)

    @property
    def deadline(self) -> float | None:
        """When this attempt times out, in UTC seconds; None without a timeout."""
        timeout = self._attempt.timeout
        return None if timeout is None else self._began + timeout

    @property
    def cancelled(self) -> bool:
        """Whether this attempt was given up: what it still does counts for nothing."""
        return self._body is not None and not self._body.live

    @property
    def drain_requested(self) -> bool:
        """Whether the runtime drains: what can wait should be left to the next one."""
        return self._frame.hub.draining

    @property
    def log(self) -> Any:
        """A structlog logger bound to thread, run, node and attempt."""
        if self._log is None:
            self._log = logger(
                "beamweaver.node",
                thread_id=self.thread_id,
                run_id=self.run_id,
                node=self.node,
                attempt=self.attempt,
            )
        return self._log

    def step(self, name: str, fn: Callable[..., Any], *args: Any, key: str | None = None) -> Any:
        """Call `fn(*args)` once for this task: a durable sub-step, to be awaited in async nodes.

        When this returns, the result is in the store. Whenever the node runs again (after a crash, a
        retry, an answer), the call returns that result and `fn` is not called. The results go when the task
        is done. An exception is not kept: the node may catch it and call the step again.

        A step is known by its name and `key`, or else by how many of that name ended well before it; so
        steps of different names may come in any order. `args` are not stored, only a digest of them: if the
        node comes to a step with other arguments than those of the recorded result, that is `StepChanged`.

        Args:
            name: The step's name.
            fn: A sync function; in async nodes also an async one. There, a sync function runs on the loop,
                as if the node called it: one that waits belongs in a sync node.
            *args: Its arguments, which follow from the state; any storable values.
            key: Tells steps of one name apart where their order is not always the same, and where two run
                at once.

        Returns:
            What `fn` returned, as it is read back from the store.

        Raises:
            StepChanged: The arguments are not those of the recorded result.
            KeyRequired: Another step of that name runs at once, and no key tells them apart.
            SerializationError: The arguments or the result cannot be stored, or are too large.
            InvalidCall: `name` or `key` is unfit, `fn` is async in a sync node, a step without a key is
                inside of another one, or `limits.memos_a_task` is reached.

        Example:
            >>> def pay(state, ctx):
            ...     invoice = ctx.step("invoice", create_invoice, state["order"])
            ...     return {"receipt": ctx.step("receipt", send_receipt, invoice)}
        """
        steps = self._steps
        if steps is None:
            if self._body is None:
                raise InvalidCall(
                    "only a node has steps; a router is quick, and may be asked again"
                )
            steps = self._steps = SubSteps(self._frame, self._attempt, self._body)
        if self._awaits:
            return steps.run_async(name, key, fn, args)
        return steps.run(name, key, fn, args)

    def interrupt(self, value: Any, *, key: str | None = None) -> Any:
        """Ask a question: the thread waits, and this returns the answer when the node runs again.

        The node's code runs again from its top; answers are matched by `key`, else by order.

        Args:
            value: What the person who answers is shown; any storable value.
            key: A name for the question, stable when the order of questions is not.

        Returns:
            The answer that `resume` gave.

        Raises:
            InterruptWithoutCheckpointer: The graph was compiled without a store.
            SerializationError: `value` cannot be stored.
        """
        if not self._frame.hub.keeps:
            raise InterruptWithoutCheckpointer(
                f"node {self.node!r} asked a question, and the graph has no checkpointer, so nobody "
                "could ever answer: compile(checkpointer=LMDBCheckpointer(path)) or MemoryCheckpointer()",
                node=self.node,
            )
        ordinal = self._asked
        if key is None:
            refuse_inside("an interrupt")
            self._asked += 1
        for question in self._attempt.questions:
            same = question.key == key if key is not None else question.ordinal == ordinal
            if same and question.answered and (key is not None or question.key is None):
                return question.answer
        data = self._frame.hub.codec.encode(value)
        id_ = interrupt_id(self.task_id, ordinal, key)
        question = Question(id_, ordinal if key is None else -1, key, value, data)
        self.open_question = question
        raise Asks(question)


def current_context() -> Context:
    """The context of the node that runs here.

    Raises:
        InvalidCall: No node runs here.
    """
    context = _current.get()
    if context is None:
        raise InvalidCall(
            "no node runs here: interrupt() and current_context() work only inside of a node, on the "
            "worker that runs it"
        )
    return context


def interrupt(value: Any, *, key: str | None = None) -> Any:
    """Ask a question from inside a node; see `Context.interrupt`.

    Example:
        >>> def review(state):
        ...     return {"decision": interrupt({"draft": state["draft"]})}
    """
    return current_context().interrupt(value, key=key)
