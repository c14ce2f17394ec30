"""What a node may know and do while it runs: `ctx`."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, NoReturn

from beamweaver.engine.ids import idempotency_key, interrupt_id
from beamweaver.engine.state import Question
from beamweaver.errors import InterruptWithoutCheckpointer, InvalidCall, KeyRequired
from beamweaver.events import Emitted
from beamweaver.graph._text import shown
from beamweaver.graph.answers import AnswerFault, description_of, take
from beamweaver.runtime.calls import GraphCalls
from beamweaver.runtime.frames import Asks, Naps, Waits
from beamweaver.runtime.given import MISSING
from beamweaver.runtime.log import logger
from beamweaver.runtime.pauses import Pauses
from beamweaver.runtime.substeps import GivenUp, SubSteps, check_key, refuse_inside
from beamweaver.runtime.unawaited import caught

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextlib import AbstractContextManager
    from datetime import datetime

    from beamweaver.engine.effects import Attempt
    from beamweaver.engine.state import Sleep
    from beamweaver.graph.compiled import CompiledGraph
    from beamweaver.runtime.frames import Body, Frame
    from beamweaver.runtime.hub import Hub
    from beamweaver.runtime.unawaited import Unawaited
    from beamweaver.types import Duration

__all__ = ["Context"]


class Context:
    """The context of one attempt; a node gets it by a parameter named `ctx` or annotated `Context`.

    Attributes:
        state: The state that the node was given.
        thread_id: The thread.
        run_id: The run.
        step_number: The superstep's number.
        node: The node's name.
        attempt: 1 for the first attempt since the caller's last call.
        namespace: The nodes around, the outermost first: those that are graphs. `()` in a graph that is none.
    """

    __slots__ = (
        "_attempt",
        "_awaits",
        "_began",
        "_body",
        "_frame",
        "_log",
        "_open",
        "_pauses",
        "_steps",
        "_unkeyed",
        "_waits",
        "asleep",
        "fault",
    )

    def __init__(
        self, frame: Frame, attempt: Attempt, body: Body | None = None, *, awaits: bool = False
    ) -> None:
        self._frame = frame
        self._attempt = attempt
        self._body = body
        self._open: Sequence[Question] = ()
        """The questions that this attempt asked and that have no answer."""
        self.fault: KeyRequired | None = None
        """That questions were asked side by side, and cannot be told apart."""
        self.asleep: Sleep | None = None
        """The sleep that ended the attempt."""
        self._began = frame.hub.system.clock.time() if attempt.timeout is not None else 0.0
        self._unkeyed = 0
        """How many questions without a key were asked, answered ones included."""
        self._awaits = awaits
        self._waits = False
        self._log: Any = None
        self._steps: SubSteps | None = None
        self._pauses: Pauses | None = None

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
        """The nodes around this one, the outermost first; empty in a graph that is no subgraph."""
        return self._frame.namespace

    def belongs_to(self, hub: Hub) -> bool:
        """Whether the node runs in that runtime."""
        return self._frame.hub is hub

    @property
    def state(self) -> Any:
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
        """A key for outside effects of this task; the same whenever the task runs again.

        An error handler has one of its own, so that what it undoes is not taken for what the node did.
        """
        return idempotency_key(self.thread_id, self._attempt.scope)

    @property
    def context(self) -> Any:
        """What the run's last caller gave by `context=`, or the runtime by `contexts=`; None without both.

        Raises:
            InvalidCall: The graph declares a `context_schema`, and the run goes on without a context: a
                dead process left it, and nobody has given one in this process.
        """
        context = self._frame.context
        if context is MISSING:
            raise InvalidCall(
                f"node {self.node!r} reads ctx.context, and run {self.run_id!r} of thread {self.thread_id!r} "
                "has none: a context is not stored. Give context=… to the call that continues the run, or "
                f"Runtime(contexts={{{self.graph_name!r}: …}}) for runs that are taken up"
            )
        return context

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
        steps = self._sub_steps()
        if self._awaits:
            return steps.run_async(name, key, fn, args)
        return steps.run(name, key, fn, args)

    def _sub_steps(self) -> SubSteps:
        steps = self._steps
        if steps is None:
            if self._body is None or self._attempt.position < 0:
                raise InvalidCall(
                    "only a node and its error handler have steps and call graphs; a router is quick, and "
                    "may be asked again, and on_failure has ctx.idempotency_key"
                )
            steps = self._steps = SubSteps(self._frame, self._attempt, self._body)
        return steps

    def sleep(self, duration: Duration, *, key: str | None = None) -> Any:
        """Sleep durably: the task is parked, and its node runs again from its top when the time is over.

        To be awaited in async nodes. Nothing runs meanwhile, no worker is held, timeouts stand still, and the
        process may end: the rest is slept in the next one. When the node comes to the sleep again, it returns
        at once; so what goes before it belongs in `ctx.step`. Up to a second is slept in place.

        Args:
            duration: Seconds, or a `timedelta`.
            key: Tells sleeps apart where their order is not always the same.

        Raises:
            InvalidCall: It is no such time, or a router or the function of a step calls.

        Example:
            >>> def remind(state, ctx):
            ...     ctx.step("first", send, state["user"], "hello")
            ...     ctx.sleep(timedelta(days=3))
            ...     ctx.step("second", send, state["user"], "still there?")
        """
        return self._paused().sleep(duration, key)

    def sleep_until(self, when: datetime, *, key: str | None = None) -> Any:
        """Sleep as `sleep` does, until a time; one that is over returns at once.

        Args:
            when: The time, with a time zone.
            key: As in `sleep`.
        """
        return self._paused().sleep_until(when, key)

    def _paused(self) -> Pauses:
        if self._body is None or self._attempt.position < 0:
            raise InvalidCall(
                "only a node and its error handler sleep; a router and on_failure are quick, and may be "
                "called again"
            )
        if self._pauses is None:
            self._pauses = Pauses(self, self._frame.hub, self._attempt, awaits=self._awaits)
        return self._pauses

    def park(self, sleep: Sleep) -> NoReturn:
        """End the attempt: its task sleeps."""
        self.asleep = sleep
        raise Naps

    def wait(self) -> NoReturn:
        """End the attempt: its task waits for what a graph that it called asks."""
        self._waits = True
        raise Waits

    def heartbeat(self) -> None:
        """Give a sign of life: the attempt's idle timeout begins anew. Cheap; call it as often as you like.

        In an attempt that was given up it ends the body.
        """
        self._attempt.beat(self._frame.hub.system.clock.monotonic())
        if self.cancelled:
            raise GivenUp

    def emit(self, value: Any) -> None:
        """Tell the listeners of the runtime something, as an `Emitted` event; it is a sign of life too.

        Nothing is stored or kept for later: who does not listen now misses it. Listeners are called before
        this returns, on this worker. In an attempt that was given up it ends the body, and nothing is told.

        Args:
            value: Anything; listeners get the object itself.

        Example:
            >>> def load(state, ctx):
            ...     for n, url in enumerate(state["urls"]):
            ...         ctx.emit({"loading": url, "done": n})
        """
        self.heartbeat()
        hub = self._frame.hub
        if hub.listeners:
            event = Emitted(
                thread_id=self.thread_id,
                namespace=self.namespace,
                run_id=self.run_id,
                task_id=self.task_id,
                node=self.node,
                attempt=self.attempt,
                value=value,
            )
            with self.shield():
                hub.publish(event)

    def shield(self) -> AbstractContextManager[None]:
        """Keep a kill (a timeout, a cancel) away from a block that must not be torn apart.

        It arrives when the block ends; in an async node at the first `await` after it. The block must be
        short: a body that has not ended a second after the kill is abandoned.

        Example:
            >>> def move(state, ctx):
            ...     with ctx.shield():
            ...         account.take(state["amount"])
            ...         other.give(state["amount"])
        """
        return nullcontext() if self._body is None else self._body.shield()

    def call(self, graph: CompiledGraph, input: Any = None, *, key: str | None = None) -> Any:  # noqa: A002 - as in `invoke`
        """Run a graph durably inside of this task, to be awaited in async nodes.

        The graph runs as one that is a node does, in the same thread: its steps are kept one by one, its
        questions, sleeps and breakpoints are the thread's, and limits, cancels and drains reach it. When
        this returns, the result is in the store. Whenever the node runs again (after a crash, a retry, an
        answer), a graph that was done is not run again, and one that was not goes on where it was. All of it
        goes when the task is done.

        A failure of the graph is raised here and not kept: the node may catch it and call again, and then
        the graph goes on from what is done, with fresh counts. If the graph asks or sleeps, the task is
        parked, and the node runs again from its top; so what goes before the call belongs in `ctx.step`.

        Args:
            graph: A compiled graph without a checkpointer; `add_node(calls=)` makes it known to others.
            input: An update, as for `invoke`. It must follow from the state.
            key: Tells calls of one graph apart where their order is not always the same, and where two run
                at once. Without it a call is known by how many of that graph ended well before it.

        Returns:
            Its state when it was complete, in the form of its output schema, as read back from the store.

        Raises:
            RunFailed: What an `invoke` of the graph would raise: `NodeFailed`, `RecursionLimit`, …
            StepChanged: The input is not that with which the call began.
            KeyRequired: Another call of that graph runs at once, and no key tells them apart.
            InvalidUpdate, UnknownChannel, SerializationError: The input does not fit the graph.
            InvalidCall: `graph` or `key` is unfit, or `limits.call_depth` or `memos_a_task` is reached.

        Example:
            >>> def answer(state, ctx):
            ...     found = ctx.call(research, {"question": state["question"]})
            ...     return {"answer": found["summary"]}
        """
        steps = self._sub_steps()
        return GraphCalls(self, self._frame, steps, awaits=self._awaits).call(graph, input, key)

    def interrupt(self, value: Any, *, key: str | None = None, schema: Any = None) -> Any:
        """Ask a question: the thread waits, and this returns the answer when the node runs again.

        The node's code runs again from its top; answers are matched by `key`, else by order. Questions
        that are asked side by side (in `asyncio.gather`) are all open at once, and each needs a key.

        Args:
            value: What the person who answers is shown; any storable value.
            key: A name for the question, stable when the order of questions is not.
            schema: What the answer must be: a type such as `bool`, `Literal["yes", "no"]`, a dataclass, a
                `Struct`, a `TypedDict`, a pydantic model; None takes anything. Another answer is refused
                with `InvalidAnswer` when it comes; one that only the node can judge, in a process that
                never asked, is refused here: the question is asked again, and `Interrupt.reason` says why.

        Returns:
            The answer that `resume` gave; with a schema, as a value of that type.

        Raises:
            InterruptWithoutCheckpointer: The graph was compiled without a store.
            KeyRequired: Another question of this attempt is open, and one of the two has no key.
            SerializationError: `value` cannot be stored.
            InvalidCall: `key` is unfit, or `schema` is no type that answers can be judged by.
        """
        if not self._frame.hub.keeps:
            raise InterruptWithoutCheckpointer(
                f"node {self.node!r} asked a question, and the graph has no checkpointer, so nobody "
                "could ever answer: compile(checkpointer=LMDBCheckpointer(path)) or MemoryCheckpointer()",
                node=self.node,
            )
        codec = self._frame.hub.codec
        ordinal = -1
        check_key(key, "the key of an interrupt")
        if key is None:
            refuse_inside("an interrupt")
            ordinal = self._unkeyed
            self._unkeyed += 1
        id_ = interrupt_id(self._attempt.scope, ordinal, key)
        reason = ""
        fenced = self._body is not None and not self._body.live  # it is told nothing any more
        for question in () if fenced else self._attempt.questions:
            if question.id == id_ and question.answer is not None:
                answer = codec.decode(question.answer)  # each attempt has an object of its own
                try:
                    return answer if schema is None else take(schema, answer)
                except AnswerFault as fault:
                    reason = f"the answer {shown(answer)} was refused: {fault}"
        described = b"" if schema is None else description_of(schema)
        data = codec.encode(value, "the question")
        raise self._asks(
            Question(id_, ordinal, key, value, data, schema=described, reason=reason, type=schema)
        )

    def _asks(self, question: Question) -> BaseException:
        """What carries a question out of the body; the error, if it may not be asked now."""
        for other in self._open:
            if other.id != question.id and (other.key is None or question.key is None):
                self.fault = KeyRequired(
                    f"node {self.node!r} asked {shown(question.value)} while its question "
                    f"{shown(other.value)} was open: questions that are asked side by side are told apart "
                    "by keys only: interrupt(value, key='…'). (If they are not: something caught what "
                    "carries the first one, such as a bare except or return_exceptions=True; let it pass)",
                    node=self.node,
                )
                return self.fault
        if all(other.id != question.id for other in self._open):
            self._open = [*self._open, question]
        return Asks(question)

    @property
    def questions(self) -> tuple[Question, ...]:
        """What the attempt asked and has no answer to."""
        return tuple(self._open)

    def check_returned(self) -> None:
        """Judge that the body returned.

        Raises:
            KeyRequired, InvalidUpdate: It asked or slept, and returned all the same.
        """
        if self._open or self.asleep is not None or self._waits:
            called = "interrupt()" if self._open else "ctx.call()" if self._waits else "ctx.sleep()"
            raise self.fault or caught(self.node, called)

    @property
    def unawaited(self) -> list[Unawaited]:
        """What the attempt was given to await."""
        return [each.unawaited for each in (self._steps, self._pauses) if each is not None]
