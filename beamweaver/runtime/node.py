"""Node actors: one attempt each, on a worker of the pool, under the kill protocol."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Literal

from beamweaver.engine.failures import describe
from beamweaver.engine.state import Result
from beamweaver.graph.mutations import mutations, state_mutated
from beamweaver.graph.updates import call_node, judged, normalize
from beamweaver.runtime.context import Context
from beamweaver.runtime.current import running
from beamweaver.runtime.frames import Asks, Body, Frame
from beamweaver.runtime.results import encoded_writes, to_result
from beamweaver.runtime.unawaited import settle
from beamweaver.runtime.views import changes, give
from supervisors import TaskActor
from supervisors.kill import Killed, shield

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from beamweaver.engine.effects import Attempt
    from beamweaver.engine.state import Question, Sleep
    from beamweaver.graph.compiled import CompiledGraph, NodeSpec
    from beamweaver.runtime.env import GraphCodec
    from beamweaver.runtime.views import Given
    from beamweaver.types import Command, Failure

__all__ = ["NodeActor", "run_async"]


class NodeActor(TaskActor):
    """Runs one attempt of one task: the body, the judgement of what it returned, the encoding.

    Its value is a `Result`, the questions that the node asked, a `Sleep`, or the `Failure` that it raised;
    so a value that cannot be stored fails here, where the error can name the node.
    """

    lane: ClassVar[Literal["lo"]] = "lo"
    isolated: ClassVar[bool] = False
    _made: Context | None = None

    def __init__(self, frame: Frame, attempt: Attempt) -> None:
        self._frame = frame
        self._attempt = attempt

    def __repr__(self) -> str:
        return f"<node {self._attempt.task.node!r} of thread {self._frame.thread_id!r}>"

    def context(self) -> Context:
        """The context of the attempt, made when somebody asks for it: most nodes do without."""
        made = self._made
        if made is None:  # by one call, for the body may ask on several OS threads
            made = self.__dict__.setdefault("_made", Context(self._frame, self._attempt, self))
        return made

    def run(self) -> Result | tuple[Question, ...] | Sleep | Failure:
        """The attempt."""
        attempt, frame = self._attempt, self._frame
        running.set(self)  # a task has context variables of its own
        try:
            node = attempt.node
            if attempt.timeout is not None:
                self.context()  # it knows when the attempt began
            if not frame.plain or node.shape is not None or frame.outer is not None:
                given = give(frame, attempt)
                returned = call_node(node, attempt.view, self.context())
                return _judged(frame, attempt, self.context(), given, returned)
            before: dict[str, Any] = attempt.view  # as `give` and `_judged`, without their calls
            attempt.view = view = dict(before)
            caller = node.caller
            returned = node.fn(view) if caller is None else caller(node.fn, view, self.context())
            if self._made is not None:
                self._made.check_returned()
            changed = mutations(before, view)
            if changed:
                raise state_mutated(node.name, changed)
            if type(returned) is dict:
                writes = judged(frame.graph, node.name, returned)
                return Result(encoded_writes(frame.codec, writes, node.name))
            return to_result(frame.codec, normalize(frame.graph, node, returned), node.name)
        except Killed:
            raise
        except BaseException as error:  # noqa: BLE001 - a node is user code; SystemExit ends only itself
            return _ended_by(error, attempt, self.context())
        finally:
            if self._made is not None:
                del self._made  # no reference cycle outlives the body

    def shield(self) -> AbstractContextManager[None]:
        """Keep a kill away from a block of the body."""
        return shield()

    def tell(self, message: object) -> None:
        """Send a message to the actor of the thread, from the body."""
        with shield():
            self.owner.put(message)


def _judged(
    frame: Frame, attempt: Attempt, context: Context, given: Given, returned: object
) -> Result:
    """The result of a body that returned.

    Raises:
        InvalidUpdate and others: It is none.
    """
    context.check_returned()
    changed = changes(attempt.view, given)
    if changed:
        raise state_mutated(attempt.node.name, changed)
    outer = frame.outer
    answer = normalize(frame.graph, attempt.node, returned, nested=outer is not None)
    result = to_result(frame.codec, answer, attempt.node.name)
    if answer.parent and outer is not None:
        _command(result, answer.parent, outer)
    return result


def _command(
    result: Result,
    commands: tuple[Command, ...],
    outer: tuple[CompiledGraph, NodeSpec, GraphCodec],
) -> None:
    """Let a result command the graph around, which judges the commands as of the node that it is there."""
    graph, node, codec = outer
    result.up = to_result(codec, normalize(graph, node, list(commands)), node.name)
    result.goto = result.goto or ()  # the subgraph ends: none of its own edges is taken


def _ended_by(
    error: BaseException, attempt: Attempt, context: Context
) -> tuple[Question, ...] | Sleep | Failure:
    """What became of an attempt whose body raised: it asked, sleeps, or failed."""
    fault = context.fault
    if isinstance(error, BaseExceptionGroup):  # a TaskGroup's
        asked = error.split(lambda each: isinstance(each, Asks) or each is fault)[1] is None
    else:
        asked = isinstance(error, Asks)
    if asked and fault is None:
        return context.questions or context.asleep or ()
    failed = fault if asked and fault is not None else error
    return describe(failed, attempt.node.name, attempt.task_id, attempt.number)


async def run_async(
    frame: Frame, attempt: Attempt, body: Body, gives_up: Callable[[BaseException], bool]
) -> Result | tuple[Question, ...] | Sleep | Failure:
    """The attempt of an async node, as a coroutine on the node loop; the same values as `NodeActor.run`.

    `gives_up` tells a cancellation by the framework, which ends the coroutine, from one that user code
    raises, which is a failure.
    """
    context = Context(frame, attempt, body, awaits=True)
    running.set(context)  # a coroutine has context variables of its own
    try:
        given = give(frame, attempt)
        returned = await call_node(attempt.node, attempt.view, context)
        if watched := context.unawaited:
            await settle(attempt.node.name, watched)
        return _judged(frame, attempt, context, given, returned)
    except BaseException as error:  # a node is user code; SystemExit ends only itself
        if gives_up(error):
            raise
        return _ended_by(error, attempt, context)
