"""The graph of a simulated history: drawn as in the engine's tests, for the runtime and for the model.

What a node writes depends on its input alone, and where a router leads on the number of rounds alone; so a
history ends as the model says, whatever disturbs it. How often a node fails and asks is its mood.
"""

from __future__ import annotations

import functools
import random
from typing import TYPE_CHECKING, Any

from beamweaver import END, Command, Graph, RetryPolicy, Send
from tests.engine.generator import LOOPS, Flaky, Node, Plan, State
from tests.engine.modelled import model_guards, model_router
from tests.model import Return, Shape, Task, Thread

if TYPE_CHECKING:
    from tests.simulation.checkers import Bodies

__all__ = ["SimPlan"]

RETRY_DELAY = 1.0
QUESTIONS = {"asks": 2, "asks keyed": 1}


class SimPlan:
    """A drawn graph.

    Args:
        seed: What it is drawn from.
    """

    def __init__(self, seed: int) -> None:
        self.plan = Plan(seed)
        self.nodes = {node.name: node for node in self.plan.nodes}
        rng = random.Random(f"sub-steps {seed}")
        self.steps = {name: rng.choice([0, 0, 1, 2]) for name in self.nodes}
        self.sleeps = {name: rng.choice([0, 0, 0, 0.5, 7]) for name in self.nodes}
        self.timeouts = {name: rng.choice([None, None, None, 5, 30]) for name in self.nodes}
        self.hangs = {name: rng.random() < 0.4 for name in self.nodes}

    # For the runtime ----------------------------------------------------------------------------

    def compile(self, bodies: Bodies, **options: Any) -> Any:
        """The graph; `bodies` hears what its nodes do."""
        graph = Graph(State, name="g")
        for node in self.nodes.values():
            retry = None
            if node.mood == "retried":
                retry = RetryPolicy(max_attempts=50, retry_on="any", initial_delay=RETRY_DELAY)
            graph.add_node(
                node.name,
                self._body(node, bodies),
                retry=retry,
                defer=node.defer,
                timeout=self.timeouts[node.name],
            )
        for source, target in self.plan.edges:
            graph.add_edge(source, target)
        for sources, target in self.plan.joins:
            graph.add_edge(sources, target)
        for source, names, sends in self.plan.routers:
            graph.add_conditional_edges(source, _router(source, names, sends=sends))
        if self.plan.loop is not None:
            graph.add_conditional_edges(self.plan.loop[0], _looper(self.plan.loop[1]))
        for edge in self.plan.guards:
            graph.add_edge(edge.source, edge.target, **edge.options(_rounds, sync=True))
        return graph.compile(allow_unreachable=True, recursion_limit=200, **options)

    def _body(self, node: Node, bodies: Bodies) -> Any:
        """What a node does; where it ends without a result, it has changed its state in place before."""

        def body(state: Any, ctx: Any) -> Any:
            try:
                return gives(state, ctx)
            except BaseException:
                _spoil(state)
                raise

        def gives(state: Any, ctx: Any) -> Any:
            bodies.started(ctx)
            for number in range(self.steps[node.name]):
                work = functools.partial(bodies.worked, ctx)
                bodies.kept(ctx, number, ctx.step("work", work, number))
                bodies.sleeps(ctx, number, self.sleeps[node.name])
            if self.hangs[node.name] and self.timeouts[node.name] is not None:
                bodies.hang(ctx)
            if node.mood in ("fails", "retried") and bodies.first(ctx):
                raise Flaky(node.name)
            for number in range(QUESTIONS.get(node.mood, 0)):
                key = "k" if node.mood == "asks keyed" else None
                bodies.answered(ctx, number, ctx.interrupt(f"{node.name}{number}", key=key))
            given = self.given(node, state)
            update = {key: value for key, value, _overwrites in given.writes}
            sends = [Send(name, overlay) for name, overlay in given.sends]
            if given.goto is not None:
                return Command(update=update, goto=[*given.goto, *sends])
            return [update, *sends] if update else sends or None

        return body

    # For the model ------------------------------------------------------------------------------

    def model(self) -> Thread:
        """A thread of the model."""
        routers: list[Any] = [
            (source, model_router(_router(source, names, sends=sends)))
            for source, names, sends in self.plan.routers
        ]
        if self.plan.loop is not None:
            routers.append((self.plan.loop[0], model_router(_looper(self.plan.loop[1]))))
        return Thread(
            Shape(
                nodes=list(self.nodes),
                edges=[pair for pair in self.plan.edges if pair[1] != END],
                joins=[(tuple(sources), target) for sources, target in self.plan.joins],
                routers=routers,
                guards=model_guards(self.plan, _rounds),
                deferred={node.name for node in self.nodes.values() if node.defer},
                reducers={"log": list.__add__, "sums": dict.__or__, "rounds": int.__add__},
                initial={"log": [], "sums": {}, "rounds": 0},
            )
        )

    def body(self, task: Task, view: dict[str, Any]) -> Return:
        """What a task of the model gives."""
        return self.given(self.nodes[task.node], view)

    def given(self, node: Node, state: Any) -> Return:
        """What a node gives for what it sees."""
        goto = [node.goto] if node.goto else None
        if node.silent:
            return Return(goto=goto)
        writes = [("log", [f"{node.name}{state.get('last', '')}"], False)]
        writes.append(("sums", {node.name: len(node.name)}, False))
        if node.loops:
            writes.append(("rounds", 1, False))
        sends = [("worker", {"last": f"<{node.name}{i}"}) for i in range(node.sends)]
        return Return(writes, goto, sends)


def _spoil(state: Any) -> None:
    """Change values in place, as no node should."""
    state.get("log", []).append("spoiled")
    state.get("sums", {})["spoiled"] = 1


def _rounds(state: Any) -> int:
    """What guards look at."""
    return int(state.get("rounds", 0))


def _router(source: str, names: list[str], *, sends: bool) -> Any:
    def router(state: Any) -> Any:
        pick = (state.get("rounds", 0) + len(source)) % (len(names) + 1)
        if pick == len(names):
            return END
        if sends:
            return [names[pick], Send("worker", {"last": f"<router {source}"})]
        return names[pick]

    return router


def _looper(target: str) -> Any:
    def looper(state: Any) -> Any:
        return target if state.get("rounds", 0) < LOOPS else END

    return looper
