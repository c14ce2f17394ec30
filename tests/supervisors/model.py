"""A simple model of supervision trees, and trees of ours that are driven beside it.

The model is sequential: what OTP's rules say happens at once. Ours runs in a simulation until nobody has
anything to do. After each step both must have the same children in the same states, and the same
starts and ends in the same order.
"""

from __future__ import annotations

import random
from typing import Any

from supervisors import (
    KILLED,
    NORMAL,
    SHUTDOWN,
    Abnormal,
    AlreadyPresent,
    AlreadyStarted,
    ChildSpec,
    NotFound,
    Running,
    StartError,
    Supervisor,
    SupervisorsError,
    count_children,
    delete_child,
    restart_child,
    start_child,
    terminate_child,
    which_children,
)
from supervisors.exits import is_quiet
from supervisors.testing import DeterministicScheduler, leaks
from tests.supervisors.world import Boom, Puppet, World, crash

RESTARTS = ("permanent", "transient", "temporary")
STRATEGIES = ("one_for_one", "one_for_all", "rest_for_one")
AUTO = ("never", "any_significant", "all_significant")
REASONS = ("normal", "shutdown", "abnormal", "crash", "kill")


class Plan:
    """How a child, or a supervisor with its children, is specified; and which starts are to fail."""

    def __init__(self, name: str, restart: str = "permanent", significant: bool = False) -> None:
        self.name = name
        self.restart = restart
        self.significant = significant
        self.fails = 0  # how many starts are to fail, for the model
        self.fails_here = 0  # and for ours
        self.kids: list[Plan] | None = None
        self.strategy = "one_for_one"
        self.auto = "never"
        self.intensity = 3
        self.period = 5.0


def plan(rng: random.Random, name: str, depth: int) -> Plan:
    """Draw a supervisor with its children."""
    made = Plan(name, rng.choice(RESTARTS))
    made.strategy, made.auto = rng.choice(STRATEGIES), rng.choice(AUTO)
    made.intensity, made.period = rng.choice([0, 1, 2, 3, 6]), rng.choice([1.0, 5.0])
    made.kids = []
    for number in range(rng.randrange(1, 5)):
        inner = f"{name}{number}"
        if depth and rng.random() < 0.3:
            made.kids.append(plan(rng, inner, depth - 1))
        else:
            made.kids.append(worker(rng, inner, made.auto))
    return made


def worker(rng: random.Random, name: str, auto: str) -> Plan:
    made = Plan(name, rng.choice(RESTARTS))
    made.significant = auto != "never" and made.restart != "permanent" and rng.random() < 0.5
    return made


class Node:
    """A child in the model."""

    def __init__(self, plan: Plan, parent: Node | None, model: Model) -> None:
        self.plan = plan
        self.parent = parent
        self.model = model
        self.running = False
        self.children: dict[str, Node] = {}
        self.window: list[float] = []

    def start(self) -> bool:
        if self.plan.kids is None:
            if self.plan.fails:
                self.plan.fails -= 1
                return False
            self.model.log.append(("start", self.plan.name))
            self.running = True
            return True
        self.window = []
        self.children = {kid.name: Node(kid, self, self.model) for kid in self.plan.kids}
        for child in self.children.values():
            if not child.start():
                self.end_children()
                return False
        self.running = True
        return True

    def end(self) -> None:
        """End in good order, if it runs."""
        if not self.running:
            return
        self.end_children()
        self.running = False
        if self.plan.kids is None:
            self.model.log.append(("stop", self.plan.name))

    def end_children(self) -> None:
        for child in reversed(self.children.values()):
            child.end()

    # As a supervisor

    def exited(self, child: Node, quiet: bool) -> None:
        """Hear that `child` has ended by itself."""
        if child.plan.restart == "permanent" or (child.plan.restart == "transient" and not quiet):
            self.restart(child)
            return
        if child.plan.restart == "temporary":
            del self.children[child.plan.name]
        if child.plan.significant:
            self.consider()

    def consider(self) -> None:
        left = any(c.plan.significant and c.running for c in self.children.values())
        if self.plan.auto == "any_significant" or (
            self.plan.auto == "all_significant" and not left
        ):
            self.give_up()

    def restart(self, child: Node) -> None:
        failed: Node | None = child
        while failed is not None:
            now = self.model.now
            self.window = [t for t in [*self.window, now] if t >= now - self.plan.period]
            if len(self.window) > self.plan.intensity:
                self.give_up()
                return
            failed = self.attempt(failed)

    def attempt(self, child: Node) -> Node | None:
        """Restart `child` and its group; return who failed to start."""
        for member in reversed(self.group(child)):
            if member is not child:
                member.end()
                if member.plan.restart == "temporary":
                    del self.children[member.plan.name]
        for member in self.group(child):
            if not member.start():
                return member
        return None

    def group(self, child: Node) -> list[Node]:
        members = list(self.children.values())
        if self.plan.strategy == "one_for_one":
            return [child]
        return members if self.plan.strategy == "one_for_all" else members[members.index(child) :]

    def give_up(self) -> None:
        self.end()
        if self.parent is None:
            self.model.over = True
        else:
            self.parent.exited(self, quiet=True)

    def shown(self) -> dict[str, str]:
        return {n: "running" if c.running else "undefined" for n, c in self.children.items()}


class Model:
    """The tree, as it ought to be."""

    def __init__(self, top: Plan) -> None:
        self.log: list[tuple[str, str]] = []
        self.now = 0.0
        self.over = False
        self.root = Node(top, None, self)
        self.over = not self.root.start()

    def nodes(self) -> list[Node]:
        found = [self.root]
        for node in found:
            found.extend(node.children.values())
        return found


class Pair:
    """A tree of ours beside the model; each method is one step, checked."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.steps = 0
        rng = random.Random(seed)
        self.world = World(DeterministicScheduler(seed))
        self.log: list[Any] = []
        self.plan = plan(rng, "t", 2)
        self.model = Model(self.plan)
        top = self.spec(self.plan)
        self.top = self.world.system.start(Supervisor, *top.args, **top.kwargs)
        self.settle()
        self.check(ordered=True)

    @property
    def over(self) -> bool:
        return self.model.over

    def spec(self, of: Plan) -> ChildSpec:
        flags: Any = {"restart": of.restart, "significant": of.significant}
        if of.kids is None:
            kwargs = {"fail": lambda _: self.fail(of)}
            return ChildSpec(of.name, Puppet, (of.name, self.log), kwargs, **flags)
        return ChildSpec(
            of.name,
            Supervisor,
            ([self.spec(kid) for kid in of.kids],),
            {
                "strategy": of.strategy,
                "intensity": of.intensity,
                "period": of.period,
                "auto_shutdown": of.auto,
            },
            **flags,
        )

    def fail(self, of: Plan) -> None:
        if of.fails_here:
            of.fails_here -= 1
            raise Boom(of.name)

    # Looking

    def settle(self) -> None:
        self.world.settle()

    def children(self, ref: Any) -> dict[str, Any]:
        return {child.id: child for child in reversed(which_children(ref, timeout=1e6))}

    def ref(self, node: Node) -> Any:
        """Return the reference of a node of the model."""
        if node.parent is None:
            return self.top
        return self.children(self.ref(node.parent))[node.plan.name].ref

    def check(self, *, ordered: bool) -> None:
        where = f"seed {self.seed}, step {self.steps}"
        ours, model = [entry[:2] for entry in self.log], list(self.model.log)
        if not ordered:
            ours, model = sorted(ours), sorted(model)
        assert ours == model, f"{where}: {ours[-12:]} and not {model[-12:]}"
        self.log[:] = self.model.log[:]
        alive = self.top.is_alive()
        assert alive is not self.model.over, where
        if alive:
            self._compare(self.model.root, self.top, where)

    def _compare(self, node: Node, ref: Any, where: str) -> None:
        found = self.children(ref)
        shown = {name: child.state for name, child in found.items()}
        assert list(shown.items()) == list(node.shown().items()), f"{where}: {node.plan.name}"
        counts = count_children(ref, timeout=1e6)
        active = sum(state == "running" for state in shown.values())
        assert (counts.specs, counts.active) == (len(shown), active), where
        for name, child in node.children.items():
            if child.plan.kids is not None and child.running:
                self._compare(child, found[name].ref, where)

    # Steps

    def step(self, rng: random.Random) -> None:
        """Do one thing, drawn by `rng`."""
        node = rng.choice(self.model.nodes())
        kind = rng.randrange(12)
        if kind < 5:
            self.exit(node, rng.choice(REASONS))
        elif kind == 5:
            self.fail_next(node, rng.randrange(1, 4))
        elif kind == 6:
            self.advance(rng.choice([0.5, 1.0, 2.0, 6.0]))
        elif kind == 7:
            self.start_child(node, worker(rng, f"x{self.steps}", "never"))
        elif kind < 10:
            self.manage(node, rng.choice(["terminate", "restart", "delete"]))
        else:
            self.signal(node, rng.choice(REASONS[:4]))

    def exit(self, node: Node, how: str) -> None:
        """Have a child end by itself, or be killed."""
        self.steps += 1
        if node.parent is None or not node.running:
            return
        supervisor = node.plan.kids is not None
        if supervisor and how != "kill":
            return
        ref = self.ref(node)
        if how == "kill":
            self.world.system.exit(ref, KILLED)
        elif how == "crash":
            ref.tell(crash)
        else:
            reason = {"normal": NORMAL, "shutdown": SHUTDOWN, "abnormal": Abnormal("own")}[how]
            ref.tell(lambda actor: actor.exit(reason))
        self.settle()
        if supervisor:  # its children end beside each other, and beside what is restarted
            self._model_killed(node)
        else:
            node.running = False
            if how == "kill":
                self.log.append(("stop", node.plan.name))  # a kill leaves no word: note it here
            self.model.log.append(("stop", node.plan.name))
            node.parent.exited(node, quiet=how in {"normal", "shutdown"})
        self.check(ordered=not supervisor and how != "kill")

    def _model_killed(self, node: Node) -> None:
        assert node.parent is not None
        node.end()
        node.parent.exited(node, quiet=False)

    def signal(self, node: Node, how: str) -> None:
        """Send an exit signal from outside: supervisors with a parent ignore it, as in OTP."""
        self.steps += 1
        if node.parent is None or not node.running or how == "crash":
            return
        reason = {"normal": NORMAL, "shutdown": SHUTDOWN, "abnormal": Abnormal("signal")}[how]
        self.world.system.exit(self.ref(node), reason)
        self.settle()
        if node.plan.kids is None and reason != NORMAL:
            node.running = False
            self.model.log.append(("stop", node.plan.name))
            node.parent.exited(node, quiet=is_quiet(reason))
        self.check(ordered=True)

    def fail_next(self, node: Node, times: int) -> None:
        """Have the next starts of a worker fail."""
        if node.plan.kids is None:
            node.plan.fails = node.plan.fails_here = times

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        self.world.scheduler.run_for(seconds)
        self.model.now = self.world.clock.monotonic()
        self.check(ordered=True)

    def manage(self, node: Node, verb: str) -> None:
        """Terminate, restart or delete a child by hand."""
        self.steps += 1
        parent = node.parent
        if parent is None or not parent.running:
            return
        ask = {"terminate": terminate_child, "restart": restart_child, "delete": delete_child}[verb]
        found = self._asked(ask, self.ref(parent), node.plan.name)
        self.settle()
        expected = getattr(self, f"_model_{verb}")(parent, node)
        assert found is expected, f"seed {self.seed}, step {self.steps}: {verb} {found} {expected}"
        self.check(ordered=True)

    def _asked(self, ask: Any, *args: Any) -> type | None:
        try:
            ask(*args, timeout=1e6)
        except SupervisorsError as error:
            return type(error)
        return None

    def _model_terminate(self, parent: Node, node: Node) -> type | None:
        node.end()
        if node.plan.restart == "temporary":
            del parent.children[node.plan.name]
        return None

    def _model_restart(self, _parent: Node, node: Node) -> type | None:
        if node.running:
            return Running
        return None if node.start() else StartError

    def _model_delete(self, parent: Node, node: Node) -> type | None:
        if node.running:
            return Running
        del parent.children[node.plan.name]
        return None

    def start_child(self, node: Node, new: Plan) -> None:
        """Start a child by hand: a new one, or one whose id is there already."""
        self.steps += 1
        if node.plan.kids is None or not node.running:
            return
        taken = next(iter(node.children.values()), None)
        if taken is not None and self.steps % 3 == 0:
            found = self._asked(start_child, self.ref(node), self.spec(Plan(taken.plan.name)))
            assert found is (AlreadyStarted if taken.running else AlreadyPresent)
        else:
            assert self._asked(start_child, self.ref(node), self.spec(new)) is None
            child = node.children[new.name] = Node(new, node, self.model)
            child.start()
        self.settle()
        assert self._asked(terminate_child, self.ref(node), "nobody") is NotFound
        self.check(ordered=True)

    def finish(self) -> None:
        """End the tree; nothing may be left."""
        if self.top.is_alive():
            self.top.stop(timeout=1e6)
            self.model.root.end()
            self.check_log()
        self.world.system.shutdown()
        assert leaks(self.world.system) == [], f"seed {self.seed}"

    def check_log(self) -> None:
        ours = [entry[:2] for entry in self.log]
        assert ours == self.model.log, f"seed {self.seed}: at the end"


def history(seed: int, steps: int = 30) -> int:
    """Drive one tree by `seed`; return how many steps it took."""
    rng = random.Random(seed)
    pair = Pair(seed)
    for _ in range(steps):
        if pair.over:
            break
        pair.step(rng)
    pair.finish()
    return pair.steps
