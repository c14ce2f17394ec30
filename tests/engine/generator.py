"""Random graphs, and runs of them that a plan of failures and crashes disturbs.

A `Plan` is drawn from a seed: layers of nodes with edges, joins, routers, Sends, gotos, guarded edges with
budgets, deferred nodes and loops, and for some nodes a mood: to fail at first and be retried, to fail until a
caller continues the run, to ask.
What a node does depends only on what it sees and on what is durable of its task, so that all runs of one
plan end alike.
"""

from __future__ import annotations

import operator
import random
from typing import Annotated, Any, TypedDict

from beamweaver.errors import NodeFailed
from beamweaver.graph import Ephemeral, Graph, RemainingSteps, Topic, Untracked
from beamweaver.limits import DEFAULT_LIMITS, Limits
from beamweaver.types import (
    END,
    PARENT,
    START,
    Command,
    Completed,
    Interrupted,
    RetryPolicy,
    Send,
)
from tests.engine.driver import Crashed, Driver, Later

__all__ = [
    "GuardEdge",
    "Plan",
    "body_of",
    "finish",
    "looper_of",
    "plan_of",
    "router_of",
    "run_plan",
    "size_of",
]

LOOPS = 2
LIMIT = 200
"""Steps after which a run is stopped."""


class State(TypedDict, total=False):
    """What the generated nodes read and write."""

    log: Annotated[list[str], operator.add]
    sums: Annotated[dict[str, int], operator.or_]
    last: str
    rounds: Annotated[int, operator.add]
    found: Annotated[list[str], Topic]
    all_found: Annotated[list[str], Topic(accumulate=True)]
    hint: Annotated[str, max, Ephemeral]
    signal: Annotated[str, Ephemeral]
    calls: Annotated[int, operator.add, Untracked]
    left: Annotated[int, RemainingSteps]


KINDS = ("found", "all_found", "hint", "signal", "left")
"""Keys of other kinds whose values a run may depend on; what is untracked is lost with a process."""


class Flaky(Exception):
    """A failure that passes."""


class Node:
    """One node of a plan."""

    def __init__(self, name: str, rng: random.Random, *, disturbed: bool) -> None:
        self.name = name
        self.mood = rng.choice(
            ["fine", "fine", "fine", "slow", "retried", "fails", "asks", "asks keyed"]
        )
        if not disturbed:
            self.mood = "fine"
        self.sends = rng.choice([0, 0, 0, 1, 2])
        self.goto: str | None = None
        self.silent = rng.random() < 0.15
        """Whether it returns no update at all."""
        self.loops = False
        self.is_async = rng.random() < 0.3
        self.defer = False
        self.handler: str | None = None
        """How its error handler behaves, if it fails for good and has one."""
        self.reads: list[str] = []
        """Of the keys of other kinds, what it logs."""
        self.writes: list[str] = []
        """Of these keys, what it writes."""
        self.inner: Plan | None = None
        """The graph that it is, or that it calls."""
        self.calls = False
        self.persistent = False
        self.sleeps = False
        self.up: tuple[str, ...] | None = None
        """Where it sends the graph around, if it commands that one at all."""


class GuardEdge:
    """A guarded edge of a plan; what its predicate says depends on one number of the state."""

    def __init__(self, source: str, target: str, rng: random.Random, *, back: bool) -> None:
        self.source = source
        self.target = target
        self.budget = rng.choice([1, 2]) if back or rng.random() < 0.4 else None
        self.asks = self.budget is None or rng.random() < 0.6
        self.refuses = rng.randrange(3)
        self.default = False
        self.is_async = rng.random() < 0.3

    def says(self, number: int) -> bool:
        """What the predicate says of that number."""
        return number % 3 != self.refuses

    def options(self, number_of: Any, *, sync: bool = False) -> dict[str, Any]:
        """The options of `add_edge`; `number_of` is given the state, `sync` is for worlds without a loop."""
        given: dict[str, Any] = {"max_runs": self.budget, "default": self.default}

        async def asynchronous(state: Any) -> bool:
            return self.says(number_of(state))

        if self.asks:
            quick = lambda state: self.says(number_of(state))
            given["when"] = asynchronous if self.is_async and not sync else quick
        return given


class Plan:
    """A graph that a seed drew, and how its nodes behave.

    Attributes:
        seed: That drew it; every failure message should name it.
    """

    def __init__(
        self,
        seed: int,
        *,
        disturbed: bool = True,
        depth: int = 0,
        small: bool = False,
        calls: bool = False,
    ) -> None:
        self.seed = seed
        self.name = "g"
        rng = random.Random(seed)
        count = 0
        self.layers: list[list[Node]] = []
        most = 2 if small else 3
        for _layer in range(rng.randint(1, most)):
            layer = [
                Node(f"n{count + i}", rng, disturbed=disturbed) for i in range(rng.randint(1, most))
            ]
            count += len(layer)
            self.layers.append(layer)
        self.edges: list[tuple[str, str]] = []
        self.joins: list[tuple[list[str], str]] = []
        self.routers: list[tuple[str, list[str], bool]] = []
        self.loop: tuple[str, str] | None = None
        self.worker = Node("worker", rng, disturbed=disturbed)
        self.worker.sends = 0
        self._connect(rng)
        self.guards: list[GuardEdge] = []
        own = random.Random(f"guards {seed}")
        if own.random() < 0.6:
            self._guard(own)
        if own.random() < 0.4:
            for node in self.nodes:
                node.defer = own.random() < 0.3
        self.before: list[str] = []
        self.after: list[str] = []
        self.tells = False
        if disturbed:
            self._disturb(random.Random(f"more of {seed}"))
        if depth:
            self._nest(
                random.Random(f"{seed} nested"), disturbed=disturbed, depth=depth, calls=calls
            )
        self._draw_kinds(random.Random(f"kinds {seed}"))

    def _draw_kinds(self, rng: random.Random) -> None:
        """Which keys of other kinds the nodes read and write."""
        for node in self.nodes:
            node.reads = [key for key in KINDS if rng.random() < 0.3]
            node.writes = [key for key in (*KINDS[:3], "calls") if rng.random() < 0.3]
        rng.choice(self.nodes[:-1]).writes.append("signal")  # it takes one write a step

    def _disturb(self, rng: random.Random) -> None:
        """What was thought of later; drawn apart, so that the rest of a seed's plan stays."""
        for node in self.nodes:
            if rng.random() < 0.2:
                node.handler = rng.choice(["fine", "slow", "fails", "asks"])
        names = [node.name for node in self.nodes]
        if rng.random() < 0.25:
            self.before = rng.sample(names, 1)
        if rng.random() < 0.25:
            self.after = rng.sample(names, 1)
        self.tells = rng.random() < 0.3

    def _nest(self, rng: random.Random, *, disturbed: bool, depth: int, calls: bool) -> None:
        """Let some nodes be graphs, of which some nodes command this one."""
        for number, node in enumerate(self.nodes):
            if not node.loops and rng.random() < 0.35:
                seed = rng.randrange(1 << 30)
                inner = Plan(seed, disturbed=disturbed, depth=depth - 1, small=True, calls=calls)
                inner.name = f"g{depth}{number}"
                node.inner = inner
                sent = node is self.worker or inner.worker.inner is not None
                node.persistent = not sent and rng.random() < 0.4
                if node is self.worker:
                    inner.forget()
                own = random.Random(f"{seed} calls")
                node.calls = calls and own.random() < 0.6
                node.persistent = node.persistent and not node.calls
                if (
                    node.handler is not None
                ):  # whether it is called must not depend on who died when
                    inner.steady("broken")
                elif node.calls:  # what fails of it begins again whenever its function does
                    inner.steady("retried")
                later = [n.name for n in self.nodes[number + 1 :]]
                for deeper in inner.nodes:
                    deeper.sleeps = disturbed and rng.random() < 0.2
                    deeper.writes = [key for key in deeper.writes if key != "signal"]
                    if rng.random() < 0.15 and deeper.inner is None:
                        up = rng.choice([(), (), tuple(rng.sample(later, min(1, len(later))))])
                        deeper.up = None if node.calls else up

    def steady(self, mood: str) -> None:
        """No node of it fails in one era and not in another; those that would have that mood."""
        for node in self.nodes:
            if node.handler == "fails":
                node.handler = "fine"
            if node.inner is not None:
                node.inner.steady(mood)
            elif node.mood == "fails":
                node.mood = mood

    def stay_awake(self) -> None:
        """None of its nodes sleeps.

        After a death a thread that waits for its caller does not wake for those that sleep, so what the
        caller's continuation finds done would depend on who died when.
        """
        for node in self.nodes:
            node.sleeps = False
            if node.inner is not None:
                node.inner.stay_awake()

    def forget(self) -> None:
        """Tasks that run at once in one graph: none of the graphs in it is persistent."""
        for node in self.nodes:
            node.persistent = False
            if node.inner is not None:
                node.inner.forget()

    def _connect(self, rng: random.Random) -> None:
        for node in self.layers[0]:
            if rng.random() < 0.8 or node is self.layers[0][0]:
                self.edges.append((START, node.name))
        for here, after in zip(self.layers, self.layers[1:], strict=False):
            names = [node.name for node in after]
            for node in here:
                self._lead_on(rng, node, names)
            if len(here) > 1 and rng.random() < 0.6:
                self.joins.append(([node.name for node in here], rng.choice(names)))
        if rng.random() < 0.4:
            last = self.layers[-1][0]
            last.silent, last.loops = False, True
            self.loop = (last.name, rng.choice(rng.choice(self.layers)).name)
        if rng.random() < 0.3:
            self.routers.append((START, [node.name for node in self.layers[0]], False))

    def _lead_on(self, rng: random.Random, node: Node, names: list[str]) -> None:
        way = rng.random()
        if way < 0.45:
            self.edges.extend((node.name, name) for name in names if rng.random() < 0.7)
        elif way < 0.75:
            self.routers.append((node.name, names, rng.random() < 0.4))
        elif way < 0.9:
            node.goto = rng.choice(names)
            self.edges.append((node.name, rng.choice(names)))

    def _guard(self, rng: random.Random) -> None:
        """Guarded edges between any nodes, some with a default beside them."""
        places = {START: -1, self.worker.name: -2, END: len(self.layers)}
        places |= {n.name: at for at, layer in enumerate(self.layers) for n in layer}
        for _edge in range(rng.randint(1, 3)):
            source = rng.choice([name for name in places if name != END])
            edge = self._guard_edge(rng, source, places)
            other = self._guard_edge(rng, source, places) if rng.random() < 0.5 else None
            if edge is not None and other is not None:
                other.default, other.asks = True, False
            self.guards += [each for each in (edge, other) if each is not None]

    def _guard_edge(
        self, rng: random.Random, source: str, places: dict[str, int]
    ) -> GuardEdge | None:
        """One of them; if it does not lead on it has a budget, so that a run ends."""
        target = rng.choice([name for name in places if name != START])
        if (source, target) in self.edges:
            return None
        leads_on = 0 <= places[target] > places[source] != -2
        return GuardEdge(source, target, rng, back=not leads_on)

    @property
    def is_flat(self) -> bool:
        """Whether no node of it is a graph, or calls one."""
        return all(node.inner is None for node in self.nodes)

    @property
    def nodes(self) -> list[Node]:
        """All nodes."""
        return [*(node for layer in self.layers for node in layer), self.worker]

    def compile(self, **options: Any) -> Any:
        """The graph, with these options of `compile()`."""
        graph = Graph(State, name=self.name)
        for node in self.nodes:
            retry = RetryPolicy(max_attempts=2, retry_on=Flaky) if node.mood == "retried" else None
            handler = None if node.handler is None else handler_of(node)
            runs = _runs(node)
            graph.add_node(
                node.name,
                runs,
                retry=retry,
                defer=node.defer,
                error_handler=handler,
                persistent=node.persistent,
                calls=getattr(runs, "called", ()),
            )
        for source, target in self.edges:
            graph.add_edge(source, target)
        for sources, target in self.joins:
            graph.add_edge(sources, target)
        for source, names, sends in self.routers:
            graph.add_conditional_edges(source, router_of(source, names, sends=sends))
        if self.loop is not None:
            graph.add_conditional_edges(self.loop[0], looper_of(self.loop[1]))
        for edge in self.guards:
            graph.add_edge(edge.source, edge.target, **edge.options(size_of))
        told = {"on_failure": lambda failures, ctx: None} if self.tells else {}
        return graph.compile(
            allow_unreachable=True,
            recursion_limit=LIMIT,
            interrupt_before=self.before,
            interrupt_after=self.after,
            **told,
            **options,
        )


def size_of(state: Any) -> int:
    """What guards look at: it is the same in every run of a plan."""
    return len(state.get("log", ()))


def _runs(node: Node) -> Any:
    """What a node is: a function, a graph, or a function that calls one."""
    if node.inner is None:
        return _wrapped(node)
    graph = node.inner.compile()
    if not node.calls:
        return graph

    def calls(_state: Any, ctx: Any) -> Any:
        found = ctx.call(graph, {"log": [node.name]})  # nothing that a continuation may change
        if node.sends:
            found = ctx.call(graph, {"log": found["log"]}, key="again")
        return {"log": found["log"], "sums": found["sums"]}

    async def asynchronous(state: Any, ctx: Any) -> Any:
        return calls(state, ctx)

    chosen = asynchronous if node.is_async else calls
    chosen.called = [graph]  # type: ignore[attr-defined] # what the node is to say of it
    return chosen


def _wrapped(node: Node) -> Any:
    quick = body_of(node) if node.handler is None else _fails_for_good(node)

    def slow(state: Any, ctx: Any) -> Any:
        return Later(0.05, quick(state, ctx))

    chosen = slow if node.mood == "slow" else quick

    async def asynchronous(state: Any, ctx: Any) -> Any:
        return chosen(state, ctx)

    return asynchronous if node.is_async else chosen


def _fails_for_good(node: Node) -> Any:
    def body(state: Any, ctx: Any) -> Any:
        raise Flaky(node.name)

    return body


def handler_of(node: Node) -> Any:
    """What is called when the node has failed for good; it does what the node would have done."""
    quick = body_of(node, handles=True)

    def handler(_failure: Any, state: Any, ctx: Any) -> Any:
        if node.handler == "fails" and ctx.era == 0:
            raise Flaky(f"handler of {node.name}")
        if node.handler == "asks" and "asks" not in node.mood:
            ctx.interrupt(node.name)
        given = quick(state, ctx)
        return Later(0.05, given) if node.handler == "slow" else given

    return handler


def body_of(node: Node, *, handles: bool = False) -> Any:
    """What a node does, or what its error handler does in its place, apart from taking its time."""

    def body(state: Any, ctx: Any) -> Any:
        answer = ""
        if node.sleeps and not handles:
            ctx.sleep(5)
        fails = node.mood == "broken" or (node.mood == "fails" and ctx.era == 0)
        if fails and not handles:
            raise Flaky(node.name)
        if node.mood == "retried" and ctx.attempt == 1 and not handles:
            raise Flaky(node.name)
        if node.mood == "asks":
            answer = f"={ctx.interrupt(node.name)}{ctx.interrupt('again')}"
        elif node.mood == "asks keyed":
            answer = f"={ctx.interrupt(node.name, key='k')}"
        if node.up is not None:
            command = Command(graph=PARENT, update={"log": [f"{node.name} up"]}, goto=node.up)
            return [{"sums": {node.name: -1}}, command]
        if node.silent:
            return Command(goto=node.goto) if node.goto else None
        seen = len(state.get("log", ()))
        read = "".join(f" {key}={state.get(key)}" for key in node.reads)
        update = {
            "log": [f"{node.name}@{seen}{answer}{state.get('last', '')}{read}"],
            "sums": {node.name: seen},
            **{key: 1 if key == "calls" else node.name for key in node.writes},
        }
        if node.loops:
            update["rounds"] = 1
        sends = [Send("worker", {"last": f"<{node.name}{i}"}) for i in range(node.sends)]
        if node.goto:
            return Command(update=update, goto=[node.goto, *sends])
        return [update, *sends]

    return body


def router_of(source: str, names: list[str], *, sends: bool) -> Any:
    """A router of a plan."""

    def router(state: Any) -> Any:
        pick = (len(state.get("log", ())) + len(source)) % (len(names) + 1)
        if pick == len(names):
            return END
        if sends:
            return [names[pick], Send("worker", {"last": f"<router {source}"})]
        return names[pick]

    return router


def looper_of(target: str) -> Any:
    """The router of a plan's loop."""

    def looper(state: Any) -> Any:
        return target if state.get("rounds", 0) < LOOPS else END

    return looper


def plan_of(seed: int, *, disturbed: bool = True, depth: int = 0, calls: bool = False) -> Plan:
    """The plan of a seed; with a depth some nodes are graphs, or call them, and so on for so many levels."""
    return Plan(seed, disturbed=disturbed, depth=depth, calls=calls)


def finish(driver: Driver, *, patience: int = 400) -> Any:
    """Answer and continue until the run is complete; a crash begins the next process."""
    started = driver.status is not None
    for _turn in range(patience):
        try:
            outcome = _turn_of(driver, started=started)
        except Crashed:
            driver.crash()
            outcome = None
        except NodeFailed as error:
            if "Flaky" not in str(error):
                raise
            outcome = None
        if type(outcome) is Completed:
            return outcome
        started = driver.status is not None
    raise AssertionError("the run never ends")


def _turn_of(driver: Driver, *, started: bool) -> Any:
    driver.run()
    if not started:
        return driver.invoke({"log": ["in"]}, run_id="the-run")
    if driver.status == "waiting":
        answers = {i.id: f"a{i.value}" for i in driver.machine.open_interrupts()}
        if answers:
            return driver.resume(answers=dict(list(answers.items())[:1]))
    outcome = driver.go_on()
    return outcome if not isinstance(outcome, Interrupted) else None


def run_plan(
    plan: Plan,
    *,
    order: int | None = None,
    crash_at: int | None = None,
    written: bool = True,
    options: Any = None,
    limits: Limits = DEFAULT_LIMITS,
) -> Driver:
    """Run a plan to its end, once with a crash at that commit."""
    driver = Driver(plan.compile(), seed=order, crash_at=crash_at, written=written, limits=limits)
    driver.options = options
    driver.checks = True
    finish(driver)
    return driver
