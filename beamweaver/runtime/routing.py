"""The transition attempt: routers and guards of a merged step, asked in order by one body."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Literal

from beamweaver.engine.effects import Attempt
from beamweaver.engine.failures import describe
from beamweaver.engine.plan import Route, Routes
from beamweaver.errors import InvalidUpdate, RouterFailed, SerializationError, StateMutated
from beamweaver.graph._text import node_text
from beamweaver.graph.compiled import Guard, NodeSpec
from beamweaver.graph.guards import call_guard, guard_text, guards_to_ask, judge_guard
from beamweaver.graph.mutations import state_mutated
from beamweaver.graph.updates import call_router, normalize_routing
from beamweaver.runtime.context import Context
from beamweaver.runtime.current import running
from beamweaver.runtime.frames import Asks, Frame
from beamweaver.runtime.results import planned
from beamweaver.runtime.views import changes, give
from supervisors import TaskActor
from supervisors.kill import Killed

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from beamweaver.engine.effects import Transition
    from beamweaver.engine.plan import Exit
    from beamweaver.graph.compiled import Branch
    from beamweaver.runtime.views import Given
    from beamweaver.types import Failure

__all__ = ["RouterActor", "Routing"]


class Routing:
    """The routers and guards of a merged step, asked in order as one attempt."""

    __slots__ = ("_asked", "_frame", "_kind", "_node", "_transition", "_what")

    def __init__(self, frame: Frame, transition: Transition) -> None:
        self._frame = frame
        self._transition = transition
        self._asked: Branch | Guard | None = None
        """Who is asked now; the others say after which node, and how messages call it."""
        self._node = ""
        self._kind = self._what = "router"

    @property
    def is_async(self) -> bool:
        """Whether any of them is a coroutine function."""
        return any(
            any(branch.is_async for branch in exit_.branches)
            or any(guard.is_async for guard in exit_.guards)
            for exit_ in self._transition.exits
        )

    def ask(self) -> Routes | Failure:
        """Ask sync routers and guards."""
        routes = Routes(self._transition.spent)
        asking, returned = self._ask(routes), None
        try:
            while True:
                returned = asking.send(returned)
        except StopIteration:
            return routes
        except Killed:
            raise
        except BaseException as error:  # noqa: BLE001 - routers and guards are user code
            return self._failed(error)

    async def ask_async(self, gives_up: Callable[[BaseException], bool]) -> Routes | Failure:
        """Ask those of which some are async; `gives_up` is that of `run_async`."""
        routes = Routes(self._transition.spent)
        asking, returned = self._ask(routes), None
        try:
            while True:
                returned = asking.send(returned)
                if self._asked is not None and self._asked.is_async:
                    returned = await returned
        except StopIteration:
            return routes
        except BaseException as error:  # routers and guards are user code
            if gives_up(error):
                raise
            return self._failed(error)

    def _ask(self, routes: Routes) -> Generator[Any, Any, None]:
        """Each call, in order: what it returned goes out, and what it said in the end comes back."""
        for exit_ in self._transition.exits:
            for branch in exit_.branches:
                after = f"router {branch.name!r} after {node_text(branch.source)}"
                attempt, context, given = self._name(exit_, branch, "router", after)
                returned = yield call_router(branch, attempt.view, context)
                self._check_unchanged(attempt, given)
                targets, sends = normalize_routing(self._frame.graph, branch, returned)
                made = planned(self._frame.codec, sends, branch.name)
                routes.add(exit_.task, Route(targets, made))
            answers: dict[str, bool] = {}
            for guard in guards_to_ask(exit_.guards, routes.spent):
                attempt, context, given = self._name(exit_, guard, "guard", guard_text(guard))
                returned = yield call_guard(guard, attempt.view, context)
                self._check_unchanged(attempt, given)
                answers[guard.key] = judge_guard(guard, returned)
            if exit_.guards:
                routes.cross(exit_.task, exit_.guards, answers)

    def _name(
        self, exit_: Exit, asked: Branch | Guard, kind: str, what: str
    ) -> tuple[Attempt, Context, Given]:
        """What the next one is given; from now on what is raised is its failure."""
        self._asked, self._node = asked, exit_.task.node
        self._kind, self._what = kind, what
        transition, node = self._transition, self._frame.graph.nodes.get(exit_.task.node)
        # They see the whole state, in the form of the graph's own schema.
        seer = NodeSpec(name=self._node, index=-1 if node is None else node.index, fn=_no_body)
        attempt = Attempt.of(
            exit_.task,
            seer,
            transition.branch,
            transition.step,
            transition.view,
            transition.timeout,
        )
        attempt.owner = transition.owner
        context = Context(self._frame, attempt)
        given = give(self._frame, attempt)
        running.set(context)
        return attempt, context, given

    def _check_unchanged(self, attempt: Attempt, given: Given) -> None:
        changed = changes(attempt.view, given)
        if changed:
            raise state_mutated(self._node, changed, asked=self._what)

    def _failed(self, error: BaseException) -> Failure:
        """What was raised, as the failure of the step; what the framework itself says is told as it is."""
        if isinstance(error.__cause__, StopIteration):
            error = error.__cause__  # a generator turns it into another one
        if not isinstance(error, InvalidUpdate | SerializationError | StateMutated):
            error = self._wrapped(error)
        return describe(error, self._node, "", 1)

    def _wrapped(self, error: BaseException) -> RouterFailed:
        where: dict[str, str] = {"node": self._node}
        if isinstance(self._asked, Guard):
            where["target"] = self._asked.target
        if isinstance(error, Asks):
            return RouterFailed(
                f"the {self._what} called interrupt(); only nodes can ask: ask in a node, keep the answer in "
                "the state, and go by it",
                **where,
            )
        failure = RouterFailed(
            f"the {self._what} raised {type(error).__name__}: {error}; the step's results are kept, continue "
            f"the thread when the {self._kind} is mended",
            **where,
        )
        failure.__cause__ = error
        return failure


class RouterActor(TaskActor):
    """Asks the routers and guards of a merged step on a worker."""

    lane: ClassVar[Literal["lo"]] = "lo"
    isolated: ClassVar[bool] = False

    def __init__(self, routing: Routing) -> None:
        self._routing = routing

    def run(self) -> Routes | Failure:
        """Ask each of them."""
        return self._routing.ask()


def _no_body(_state: object) -> None:
    """The entry of a graph has no body."""
