"""The graph of a simulated history: drawn as in the engine's tests, for the runtime and for the model.

What a node writes depends on its input alone, and where a router leads on the number of rounds alone; so a
history ends as the model says, whatever disturbs it. How often a node fails and asks is its mood.
"""

from __future__ import annotations

import copy
import functools
import inspect
import itertools
import operator
import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, TypedDict

from beamweaver import END, Command, Graph, RetryPolicy, Send
from beamweaver.types import PARENT
from tests.engine.generator import LOOPS, Flaky, Node, Plan, State
from tests.engine.modelled import model_guards, model_router, run_undisturbed
from tests.model import Return, Shape, Task, Thread
from tests.simulation.checkers import Hang
from tests.simulation.routers import Routers

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tests.simulation.checkers import Bodies

__all__ = ["OF_THE_MODEL", "SimPlan", "given_by"]

_NESTED, _DEEPER = 0.09, 0.4
"""The share of graphs with graphs inside, and of these with graphs inside of them."""
_KEYED = 0.1
"""The share of graphs whose worker is a persistent graph with a state for each `Send` that there is."""
_JOINS, _GOTOS = 0.5, 0.15
"""The share of graphs with a join of nodes that run in different steps, and of nodes that say where to go on
besides those of the plan."""
_UP = 0.3
"""The share of nodes inside of graphs that command the graph around."""
_WITH_ASYNC, _ASYNC = 0.2, 0.5
"""The share of graphs with async nodes, and of these nodes in them."""
OF_THE_MODEL = ("count", "kept")
"""Keys with which the model knows what persistent graphs keep."""
RETRY_DELAY = 1.0
QUESTIONS = {"asks": 2, "asks keyed": 1}


class SimPlan:
    """A drawn graph.

    In a share of the seeds some nodes are graphs, or functions that call one; in another some are async.

    Args:
        seed: What it is drawn from.
        within: How the nodes around it are called, where it is inside of one.
        depth: How many graphs may be in one another.
        alone: Whether no two tasks run in it at once, so that graphs inside may be persistent.
        later: The nodes of the graph around to which its nodes may command that one.
        keyed: Whether it is persistent, with a state for each value of `last`.
    """

    def __init__(
        self,
        seed: int,
        *,
        within: str = "",
        depth: int = 2,
        alone: bool = True,
        later: Sequence[str] = (),
        keyed: bool = False,
    ) -> None:
        self.plan = Plan(seed, small=bool(within))
        self.within = within
        self.nodes = {node.name: node for node in self.plan.nodes}
        rng = random.Random(f"sub-steps {seed}")
        self.steps = {name: rng.choice([0, 0, 1, 2]) for name in self.nodes}
        self.sleeps = {name: rng.choice([0, 0, 0, 0.5, 7]) for name in self.nodes}
        self.timeouts = {name: rng.choice([None, None, None, 5, 30]) for name in self.nodes}
        hangs = {name: rng.random() < 0.4 for name in self.nodes}
        self.hangs = _hangs(seed, {name: self.timeouts[name] for name in hangs if hangs[name]})
        self.alone = alone
        kept = bool(later) and random.Random(f"kept {seed}").random() < 0.5
        self.keyed, self.keeps = keyed, alone and (kept or keyed)
        """Whether it is persistent: it counts over all runs how often its first node ran."""
        self.rounds = f"turns{within.count('/')}" if within and not self.keeps else "rounds"
        """The key that its routers look at. A graph inside has one of its own: a task that a caller continues
        sees what its siblings have given, so what is in the one around depends on when the task begins."""
        self.inner: dict[str, SimPlan] = {}
        self.callers: set[str] = set()
        """Of those with a graph inside, the nodes that are functions which call it."""
        self._lead_apart(random.Random(f"apart {seed}"))
        rng = random.Random(f"nested {seed}")
        if depth and rng.random() < (_DEEPER if within else _NESTED):
            self._nest(rng, depth - 1)
        if not within:
            self._key(random.Random(f"keyed {seed}"))
        rng = random.Random(f"async {seed}")
        share = _ASYNC if rng.random() < _WITH_ASYNC else 0
        self.awaits = {name for name in self.nodes if rng.random() < share}
        """The async nodes."""
        self.routers = Routers(seed, always=bool(self.awaits))
        rng = random.Random(f"up {seed}")
        fit = [name for name in self.nodes if later and name not in self.inner]
        self.ups = {name: rng.choice(later) for name in fit if rng.random() < _UP}
        """The nodes that command the graph around, and where to."""

    def _lead_apart(self, rng: random.Random) -> None:
        """More of what a step must know of the steps before it, and of its finished tasks."""
        layers = self.plan.layers
        if len(layers) > 2 and rng.random() < _JOINS:
            first, second, third = (rng.choice(layer).name for layer in layers[:3])
            self.plan.joins.append(([first, second], third))
        for layer, after in itertools.pairwise(layers):
            for node in layer:
                if node.goto is None and rng.random() < _GOTOS:
                    node.goto = rng.choice(after).name

    def _nest(self, rng: random.Random, depth: int) -> None:
        names = list(self.nodes)
        fit = [node for node in self.nodes.values() if not node.loops]
        for node in rng.sample(fit, min(len(fit), rng.choice([1, 1, 2]))):
            node.goto, node.sends, node.silent = None, 0, False
            within, seed = f"{self.within}{node.name}/", rng.randrange(1 << 30)
            calls = rng.random() < 0.4
            self.inner[node.name] = SimPlan(
                seed,
                within=within,
                depth=0 if node.name == "worker" else depth,  # it runs most often
                alone=self.alone and not (self.keeps or calls or node.name == "worker"),
                later=() if calls else names[names.index(node.name) + 1 :],
            )
            if calls:
                self.callers.add(node.name)

    def _key(self, rng: random.Random) -> None:
        """Let the worker be a persistent graph with `key=`, if it is none: tasks of it run at once."""
        drawn, seed, deeper = rng.random() < _KEYED, rng.randrange(1 << 30), rng.random() < _DEEPER
        worker = self.nodes["worker"]
        sent = [node.sends for node in self.nodes.values()]
        sent += [sends for _source, _names, sends in self.plan.routers]
        if drawn and any(sent) and "worker" not in self.inner:
            worker.goto, worker.sends, worker.silent, worker.defer = None, 0, False, False
            self.inner["worker"] = SimPlan(seed, within="worker/", depth=int(deeper), keyed=True)

    @property
    def is_async(self) -> bool:
        """Whether a node of it is async, or of a graph inside."""
        return bool(self.awaits) or any(inner.is_async for inner in self.inner.values())

    def timeout_of(self, event: Any) -> float | None:
        """The timeout of the node that an event names."""
        return self._place_of(event).timeouts[event.node]

    def graph_in(self, event: Any) -> SimPlan | None:
        """The graph inside of that node; then a failure may be one of its nodes'."""
        return self._place_of(event).inner.get(event.node)

    def _place_of(self, event: Any) -> SimPlan:
        plan = self
        for name in event.namespace:  # where a function calls, its graph follows the node
            plan = plan.inner[name.partition(":")[0]]
        return plan

    # For the runtime ----------------------------------------------------------------------------

    def compile(self, bodies: Bodies, **options: Any) -> Any:
        """The graph; `bodies` hears what its nodes do."""
        name = f"in {self.within.strip('/').replace('/', ' ')}" if self.within else "g"
        schema = _Counting if self.keeps else _Turning if self.within else State
        graph = Graph(schema, name=name, output_schema=_Out if self.within else None)
        for node in self.nodes.values():
            retry, inner = None, self.inner.get(node.name)
            if node.mood == "retried":
                retry = RetryPolicy(max_attempts=50, retry_on="any", initial_delay=RETRY_DELAY)
            graph.add_node(
                node.name,
                self._runs(node, bodies),
                retry=retry,
                defer=node.defer,
                timeout=self.timeouts[node.name],
                persistent=inner is not None and inner.keeps,
                key=_key if inner is not None and inner.keyed else None,
            )
        for source, target in self.plan.edges:
            graph.add_edge(source, target)
        for sources, target in self.plan.joins:
            graph.add_edge(sources, target)
        self._add_routers(graph, bodies)
        return graph.compile(allow_unreachable=True, recursion_limit=200, **options)

    def _add_routers(self, graph: Any, bodies: Bodies) -> None:
        for source, names, sends in self.plan.routers:
            router = _router(source, names, self.rounds, sends=sends)
            graph.add_conditional_edges(source, self.routers.of(f"router_{source}", router, bodies))
        if self.plan.loop is not None:
            source, target = self.plan.loop
            looper = _looper(target, self.rounds)
            graph.add_conditional_edges(source, self.routers.of("looper", looper, bodies))
        for number, edge in enumerate(self.plan.guards):
            given = edge.options(_number(self.rounds), sync=True)
            if "when" in given:
                given["when"] = self.routers.of(f"guard{number}", given["when"], bodies)
            graph.add_edge(edge.source, edge.target, **given)

    def _runs(self, node: Node, bodies: Bodies) -> Any:
        """What a node is: a graph, an async function or a sync one."""
        inner = self.inner.get(node.name)
        graph = None if inner is None else inner.compile(bodies)
        if graph is not None and node.name not in self.callers:
            return graph
        does = self._body(node, bodies, graph)
        return does if node.name in self.awaits else _in_one_go(does)

    def _body(self, node: Node, bodies: Bodies, graph: Any) -> Any:
        """What a node does; where it ends without a result, it has changed its state in place before.

        Not where a graph may run at once, which shares that state, and keeps what it begins with.
        """
        awaits, spoils = node.name in self.awaits, not (self.inner or self.within)

        async def body(state: Any, ctx: Any) -> Any:
            try:
                return await gives(state, ctx)
            except BaseException:
                if spoils:
                    _spoil(state)
                raise

        async def gives(state: Any, ctx: Any) -> Any:
            bodies.started(ctx)
            for number in range(self.steps[node.name]):
                work = functools.partial(bodies.worked, ctx)
                bodies.kept(ctx, number, await given_by(ctx.step("work", work, number)))
                await bodies.sleeps(ctx, number, self.sleeps[node.name], awaits=awaits)
            how = self.hangs.get(node.name)
            if how is not None and await bodies.hang(ctx, how, awaits=awaits):
                return {"log": ["too late"]}
            if node.mood in ("fails", "retried") and bodies.first(ctx):
                raise Flaky(node.name)
            for number in range(QUESTIONS.get(node.mood, 0)):
                key = "k" if node.mood == "asks keyed" else None
                bodies.answered(ctx, number, ctx.interrupt(f"{node.name}{number}", key=key))
            if graph is not None:
                found = await given_by(ctx.call(graph, self._input_of(node, state)))
                return {key: found[key] for key in ("log", "sums")}
            return _returned(self.given(node, state))

        return body

    def _input_of(self, node: Node, state: Any) -> dict[str, Any]:
        """What a function gives to the graph that it calls."""
        return {"log": [f"{self.within}{node.name}("], "last": state.get("last", "")}

    # For the model ------------------------------------------------------------------------------

    def model(self) -> Thread:
        """A thread of the model."""
        own = _TURNS if self.within and not self.keeps else ()
        routers: list[Any] = [
            (source, model_router(_router(source, names, self.rounds, sends=sends)))
            for source, names, sends in self.plan.routers
        ]
        if self.plan.loop is not None:
            source, target = self.plan.loop
            routers.append((source, model_router(_looper(target, self.rounds))))
        return Thread(
            Shape(
                nodes=list(self.nodes),
                edges=[pair for pair in self.plan.edges if pair[1] != END],
                joins=[(tuple(sources), target) for sources, target in self.plan.joins],
                routers=routers,
                guards=model_guards(self.plan, _number(self.rounds)),
                deferred={node.name for node in self.nodes.values() if node.defer},
                reducers={
                    "log": list.__add__,
                    "sums": dict.__or__,
                    "rounds": int.__add__,
                    **dict.fromkeys(own, int.__add__),
                    "count": int.__add__,
                    "kept": dict.__or__,
                },
                initial={"log": [], "sums": {}, "rounds": 0, "count": 0, "kept": {}}
                | dict.fromkeys(own, 0),
            )
        )

    def body(self, task: Task, view: dict[str, Any]) -> Return:
        """What a task of the model gives."""
        node = self.nodes[task.node]
        inner = self.inner.get(node.name)
        return self.given(node, view) if inner is None else self._given_inside(node, inner, view)

    def _given_inside(self, node: Node, inner: SimPlan, view: dict[str, Any]) -> Return:
        """What a node gives that is a graph, or that calls one."""
        thread = inner.model()
        if node.name in self.callers:
            run_undisturbed(thread, self._input_of(node, view), inner.body)
            return Return([(key, thread.values[key], False) for key in ("log", "sums")])
        kept, before = view["kept"], len(view["log"])
        place = inner.within + _key(view)
        thread.values.update(copy.deepcopy(view), count=kept.get(place, 0))
        ups = _run_inside(thread, inner.body)
        new = {place: n for place, n in thread.values["kept"].items() if kept.get(place) != n}
        if inner.keeps:
            new[place] = thread.values["count"]
        given = Return([("log", thread.values["log"][before:], False)])
        given.writes += [("sums", thread.values["sums"], False), ("kept", new, False)]
        for label, goto in ups:
            given.writes.append(("log", [label], False))
            given.goto = [*(given.goto or []), goto]
        return given

    def given(self, node: Node, state: Any) -> Return:
        """What a node gives for what it sees."""
        goto = [node.goto] if node.goto else None
        if node.silent and node.name not in self.ups:
            return Return(goto=goto)
        label = f"{self.within}{node.name}"
        if node.name in self.ups:
            up = (f"{label} up", self.ups[node.name])
            return _Commands([("sums", {label: len(label)}, False)], up=up)
        counts = self.keeps and node.name == "n0"  # alone: whoever runs beside it may not see that
        counted = f"#{state.get('count', 0)}" if counts else ""
        writes = [("log", [f"{label}{counted}{state.get('last', '')}"], False)]
        writes.append(("sums", {label: len(label)}, False))
        if counts:
            writes.append(("count", 1, False))
        if node.loops:
            writes.append((self.rounds, 1, False))
        sends = [("worker", {"last": f"<{node.name}{i}"}) for i in range(node.sends)]
        return Return(writes, goto, sends)


def _hangs(seed: int, timeouts: dict[str, float | None]) -> dict[str, Hang]:
    """How nodes with these timeouts hang: some for as long as that, some also when they were ended."""
    rng = random.Random(f"hangs {seed}")
    found = {}
    for name, seconds in timeouts.items():
        ways = [Hang(), Hang(), Hang(seconds), Hang(outlives=0.5), Hang(outlives=3.0)]
        way = rng.choice(ways)
        if seconds is not None:
            found[name] = way
    return found


class _Turning(State, total=False):
    """The state of a graph inside of a node, and of one inside of that."""

    turns1: Annotated[int, operator.add]
    turns2: Annotated[int, operator.add]


_TURNS = ("turns1", "turns2")


class _Counting(State, total=False):
    """The state of a persistent graph."""

    count: Annotated[int, operator.add]


@dataclass
class _Commands(Return):
    """What a node gives that commands the graph around: a label, and where that goes on."""

    up: tuple[str, str] = ("", "")


def _run_inside(thread: Thread, body: Any) -> list[tuple[str, str]]:
    """Run a graph inside of a task to its end; the commands with which it ended, if it did."""
    thread.start({})
    while thread.step is not None:
        given = [body(task, thread.view(task)) for task in thread.step.tasks]
        for task, each in zip(thread.step.tasks, given, strict=True):
            thread.finish(task, each)
        ups = [each.up for each in given if isinstance(each, _Commands)]
        if ups:
            thread.values = thread.merged(thread.step.era + 1, whole=True)
            return ups
        thread.close()
    return []


class _Out(TypedDict):
    """What comes back from a graph inside of a node: not how often it went round."""

    log: Annotated[list[str], operator.add]
    sums: Annotated[dict[str, int], operator.or_]


async def given_by(call: Any) -> Any:
    """What a call of `ctx` gives, in an async node and in a sync one."""
    return await call if inspect.isawaitable(call) else call


def _in_one_go(does: Any) -> Any:
    """A sync node: the same coroutine function, run to its end where it never has to be waited for."""

    def body(state: Any, ctx: Any) -> Any:
        try:
            does(state, ctx).send(None)
        except StopIteration as end:
            return end.value
        raise AssertionError("a sync node cannot await")

    return body


def _returned(given: Return) -> Any:
    """The same in the words of the product."""
    update = {key: value for key, value, _overwrites in given.writes}
    sends = [Send(name, overlay) for name, overlay in given.sends]
    if isinstance(given, _Commands):
        label, goto = given.up
        return [update, Command(graph=PARENT, update={"log": [label]}, goto=goto)]
    if given.goto is not None:
        return Command(update=update, goto=[*given.goto, *sends])
    return [update, *sends] if update else sends or None


def _spoil(state: Any) -> None:
    """Change values in place, as no node should."""
    state.get("log", []).append("spoiled")
    state.get("sums", {})["spoiled"] = 1


def _key(state: Any) -> str:
    """Whose state a persistent graph goes on with: that of a `Send`, or the one of all others."""
    return state.get("last") or "nobody"


def _number(key: str) -> Callable[[Any], int]:
    """What guards look at."""
    return lambda state: int(state.get(key, 0))


def _router(source: str, names: list[str], key: str, *, sends: bool) -> Any:
    def router(state: Any) -> Any:
        pick = (state.get(key, 0) + len(source)) % (len(names) + 1)
        if pick == len(names):
            return END
        if sends:
            return [names[pick], Send("worker", {"last": f"<router {source}"})]
        return names[pick]

    return router


def _looper(target: str, key: str) -> Any:
    def looper(state: Any) -> Any:
        return target if state.get(key, 0) < LOOPS else END

    return looper
