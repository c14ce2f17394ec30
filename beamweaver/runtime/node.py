"""Node actors: one attempt each, on a worker of the pool, under the kill protocol."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

from beamweaver.engine.effects import Attempt
from beamweaver.engine.failures import describe
from beamweaver.engine.plan import Route
from beamweaver.engine.state import Planned, Result, Write
from beamweaver.errors import RouterFailed, SerializationError, UnknownTarget
from beamweaver.graph.compiled import NodeSpec
from beamweaver.graph.updates import call_node, call_router, normalize, normalize_routing
from beamweaver.runtime.context import Asks, Context, _current
from beamweaver.types import seconds
from supervisors import TaskActor
from supervisors.kill import Killed

if TYPE_CHECKING:
    from beamweaver.engine.effects import Transition
    from beamweaver.engine.plan import Routes
    from beamweaver.engine.state import Question, Task
    from beamweaver.graph.compiled import Branch, CompiledGraph
    from beamweaver.graph.updates import NodeReturn
    from beamweaver.runtime.env import GraphCodec
    from beamweaver.runtime.hub import Hub
    from beamweaver.types import Failure, Send

__all__ = ["NodeActor", "RouterActor", "to_result"]


class NodeActor(TaskActor):
    """Runs one attempt of one task: the body, the judgement of what it returned, the encoding.

    Its value is a `Result`, a `Question` that the node asked, or the `Failure` that it raised; so a
    value that cannot be stored fails here, where the error can name the node.
    """

    lane: ClassVar[Literal["lo"]] = "lo"
    isolated: ClassVar[bool] = False

    def __init__(
        self,
        hub: Hub,
        graph: CompiledGraph,
        codec: GraphCodec,
        attempt: Attempt,
        thread_id: str,
        run_id: str,
    ) -> None:
        self._hub = hub
        self._graph = graph
        self._codec = codec
        self._attempt = attempt
        self._thread_id = thread_id
        self._run_id = run_id

    def run(self) -> Result | Question | Failure:
        """The attempt."""
        attempt = self._attempt
        context = Context(self._hub, attempt, self._thread_id, self._run_id)
        token = _current.set(context)
        try:
            returned = call_node(attempt.node, attempt.view, context)
            answer = normalize(self._graph, attempt.node, returned)
            return to_result(self._codec, answer, attempt.node.name)
        except Asks as asks:
            return asks.question
        except Killed:
            raise
        except BaseException as error:  # noqa: BLE001 - a node is user code; SystemExit ends only itself
            return describe(error, attempt.node.name, attempt.task_id, attempt.number)
        finally:
            _current.reset(token)


class RouterActor(TaskActor):
    """Runs the routers of a merged step, in order, as one attempt."""

    lane: ClassVar[Literal["lo"]] = "lo"
    isolated: ClassVar[bool] = False

    def __init__(
        self,
        hub: Hub,
        graph: CompiledGraph,
        codec: GraphCodec,
        transition: Transition,
        thread_id: str,
        run_id: str,
    ) -> None:
        self._hub = hub
        self._graph = graph
        self._codec = codec
        self._transition = transition
        self._thread_id = thread_id
        self._run_id = run_id

    def run(self) -> Routes | Failure:
        """Ask each router."""
        routes: dict[int, list[Route]] = {}
        node = ""
        try:
            for task, branch in self._transition.routers:
                node = task.node
                chosen = self._ask(task, branch)
                routes.setdefault(task.position, []).append(chosen)
        except Killed:
            raise
        except BaseException as error:  # noqa: BLE001 - a router is user code
            return describe(_as_router_failure(error, node), node, "", 1)
        return routes

    def _ask(self, task: Task, branch: Branch) -> Route:
        view = dict(self._transition.view)
        node = self._graph.nodes.get(task.node) or NodeSpec(name=task.node, index=-1, fn=_no_body)
        transition = self._transition
        attempt = Attempt(task, node, transition.branch, transition.step, view, transition.timeout)
        context = Context(self._hub, attempt, self._thread_id, self._run_id)
        returned = call_router(branch, view, context)
        targets, sends = normalize_routing(self._graph, branch, returned)
        return Route(targets, planned(self._codec, sends, branch.name))


def _no_body(_state: object) -> None:
    """The entry of a graph has no body."""


def _as_router_failure(error: BaseException, node: str) -> BaseException:
    if isinstance(error, UnknownTarget | SerializationError):
        return error
    failure = RouterFailed(
        f"a router after {node!r} raised {type(error).__name__}: {error}; the step's results are "
        "kept, continue the thread when the router is mended",
        node=node,
    )
    failure.__cause__ = error
    return failure


def to_result(codec: GraphCodec, answer: NodeReturn, node: str) -> Result:
    """A judged return with its values encoded.

    Raises:
        SerializationError: A value cannot be stored; it names the node, the key and the path.
    """
    encode = codec.encode
    writes = []
    for channel, value, overwrite in answer.writes:
        try:
            writes.append(Write(channel, value, encode(channel, value), overwrite))
        except SerializationError as error:
            raise _named(error, node, channel) from error.__cause__
    sends = planned(codec, answer.sends, node) if answer.sends else ()
    return Result(tuple(writes), answer.goto, sends)


def planned(codec: GraphCodec, sends: tuple[Send, ...], node: str) -> tuple[Planned, ...]:
    """Sends with their overlays encoded."""
    made = []
    for send in sends:
        update = dict(send.update)
        try:
            data = {key: codec.encode(key, value) for key, value in update.items()}
        except SerializationError as error:
            raise _named(error, node, f"Send to {send.node}") from error.__cause__
        made.append(Planned(send.node, update, data, seconds(send.timeout, "Send timeout")))
    return tuple(made)


def _named(error: SerializationError, node: str, where: str) -> SerializationError:
    return SerializationError(
        f"node {node!r}, {where}: {error.message}", **{**error.ids, "node": node, "channel": where}
    )
