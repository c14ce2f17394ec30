"""What a graph run means, in as few words as possible: the model against which the product is checked.

No code of the product is used. A `Thread` has committed values and one open step. A step's tasks finish,
fail, or ask; a caller may go on with an amendment, which begins a new era; an open step whose tasks have all
finished is closed: what they wrote is merged in order, and what comes next is planned: a checkpoint.

The rules that it holds to:
- the tasks of a step see the values before it, and of the step what was finished before their era;
- tasks are ordered: nodes in the order of their declaration, then Sends by source task and index;
- a merge goes era by era: what was finished before an amendment, then that amendment;
- a key without a reducer takes one write of a task a step; an amendment never conflicts and wins over what
  was finished before it; `Overwrite` drops the other writes of its step;
- a goto replaces the edges of its own task; a join fires when all of its sources have arrived;
- a guarded edge is taken if its budget of the run is not spent and its predicate says so; a default one if no
  other of its source is; tasks choose in their order;
- a passing key holds what one step wrote for the step after it; nothing of it goes before its step is closed;
- a deferred node waits until nothing else is planned; then all that wait start, each node once, each Send.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeAlias

__all__ = ["Conflict", "Guard", "Point", "Return", "Shape", "Step", "Task", "Thread", "Values"]

START = "__start__"
Values: TypeAlias = dict[str, Any]
Sends: TypeAlias = list[tuple[str, Values]]
Router: TypeAlias = Callable[[Values], tuple[list[str], Sends]]


class Conflict(Exception):
    """Two tasks wrote a key that takes one write a step."""


@dataclass
class Return:
    """What a task gave in an era, or a caller as its amendment, which begins one."""

    writes: list[tuple[str, Any, bool]] = field(default_factory=list)  # key, value, overwrites
    goto: list[str] | None = None
    sends: Sends = field(default_factory=list)
    era: int = 0


@dataclass
class Guard:
    """A guarded edge; `when` is asked about the merged values."""

    source: str
    target: str | None
    when: Callable[[Values], bool] | None = None
    budget: int | None = None
    default: bool = False


@dataclass
class Shape:
    """A graph: all that decides what comes next. A router gives `(targets, sends)` for the merged values."""

    nodes: list[str]
    edges: list[tuple[str, str]] = field(default_factory=list)
    joins: list[tuple[tuple[str, ...], str]] = field(default_factory=list)
    routers: list[tuple[str, Router]] = field(default_factory=list)
    reducers: dict[str, Callable[[Any, Any], Any]] = field(default_factory=dict)
    initial: Values = field(default_factory=dict)
    guards: list[Guard] = field(default_factory=list)
    deferred: set[str] = field(default_factory=set)
    passing: set[str] = field(default_factory=set)
    counts: tuple[str, int] | None = (
        None  # the key of the steps that a run may still take, and their limit
    )


@dataclass
class Task:
    """A task of the open step."""

    node: str
    path: str
    overlay: Values = field(default_factory=dict)
    given: Return | None = None
    failed: bool = False
    answers: list[Any] = field(default_factory=list)
    asks: bool = False


@dataclass
class Step:
    """The open step."""

    number: int
    tasks: list[Task]
    era: int = 0
    amendments: list[Return] = field(default_factory=list)


Point: TypeAlias = tuple[Values, list[Task], dict[int, set[str]], dict[int, int], list[Task]]
"""A checkpoint: the values after a step, what was planned then, joins, budgets, what is deferred."""


class Thread:
    """A thread of the model, whose graph is `shape`."""

    def __init__(self, shape: Shape) -> None:
        self.shape = shape
        self.values: Values = dict(shape.initial)
        self.step: Step | None = None
        self.joins: dict[int, set[str]] = {}
        self.spent: dict[int, int] = {}
        self.waiting: list[Task] = []
        self.next_number = 0
        self.executed = 0  # steps since a caller went on last
        self.runs = 0
        self.points: list[Point] = []  # of all branches, the oldest first

    # What happens -------------------------------------------------------------------------------

    def start(self, update: Values) -> None:
        """A new run: its first step is the input's own, and closed at once."""
        assert self.step is None, "the run before it is not complete"
        self.runs += 1
        self.joins, self.spent, self.waiting = {}, {}, []
        self._open([Task(START, START, given=Return([(k, v, False) for k, v in update.items()]))])
        self.close()
        self.executed = 0

    def branch(self, point: Point) -> None:
        """A caller goes on from a checkpoint, raw: what came after it is on another branch."""
        self.values, tasks, self.joins, self.spent, self.waiting = point
        self.executed = 0
        self._open([Task(task.node, task.path, task.overlay) for task in tasks])

    def view(self, task: Task) -> Values:
        """What a task that starts now sees."""
        seen = self.merged(self.open.era)
        if self.shape.counts is not None:
            key, limit = self.shape.counts
            seen[key] = limit - self.executed
        return {**seen, **task.overlay}

    def finish(self, task: Task, given: Return) -> None:
        """A task ended well."""
        given.era = self.open.era
        task.given, task.failed, task.asks = given, False, False

    def fail(self, task: Task) -> None:
        """A task failed for good."""
        task.failed = True

    def ask(self, task: Task) -> None:
        """A task asks one more question."""
        task.asks = True

    def answer(self, task: Task, value: Any) -> None:
        """Its question is answered: it runs again from its top."""
        task.answers.append(value)
        task.asks = False

    def go_on(self, amendment: Return | None = None) -> None:
        """A caller goes on: a new era, in which what failed runs again."""
        step = self.open
        step.era += 1
        self.executed = 0
        for task in step.tasks:
            task.failed = False
        if amendment is not None and (amendment.writes or amendment.goto or amendment.sends):
            amendment.era = step.era
            step.amendments.append(amendment)

    def close(self) -> None:
        """All tasks finished: commit the step and open the next, or complete the run."""
        step = self.open
        assert all(task.given is not None for task in step.tasks), "the step is not done"
        self.values = self.merged(step.era + 1, whole=True)
        self.executed += 1
        following = self._without_deferred(self._plan(step))
        self.points.append((self.values, following, self.joins, self.spent, self.waiting))
        self._open(following)

    # What is asked ------------------------------------------------------------------------------

    @property
    def open(self) -> Step:
        """The open step."""
        assert self.step is not None, "no step is open"
        return self.step

    @property
    def status(self) -> str:
        """How the thread stands when nothing runs: `complete`, `failed`, `waiting` or `open`."""
        if self.step is None:
            return "complete"
        if any(task.failed for task in self.step.tasks):
            return "failed"
        return "waiting" if any(task.asks for task in self.step.tasks) else "open"

    @property
    def unfinished(self) -> list[Task]:
        """The tasks that are to run now."""
        tasks = self.step.tasks if self.step is not None else []
        return [task for task in tasks if task.given is None and not task.failed and not task.asks]

    def merged(self, before_era: int, *, whole: bool = False) -> Values:
        """The values with all of the open step that was finished before an era; `whole` closes the step."""
        step = self.open
        writes: list[tuple[str | None, str, Any, bool]] = []
        low = 0
        for amendment in [*step.amendments, None]:
            high = before_era if amendment is None else amendment.era
            for task in step.tasks:
                if task.given is not None and low <= task.given.era < min(high, before_era):
                    writes += [(task.path, *write) for write in task.given.writes]
            if amendment is not None and amendment.era <= before_era:
                writes += [(None, *write) for write in amendment.writes]
                low = amendment.era
        gone = self.shape.passing if whole else set()
        values = {key: value for key, value in self.values.items() if key not in gone}
        values |= {key: value for key, value in self.shape.initial.items() if key in gone}
        return self._applied(values, writes)

    def _applied(self, values: Values, writes: list[tuple[str | None, str, Any, bool]]) -> Values:
        for key in dict.fromkeys(write[1] for write in writes):
            mine = [write for write in writes if write[1] == key]
            forced_at = [i for i, w in enumerate(mine) if w[0] is None and w[3]]
            mine = mine[forced_at[-1] :] if forced_at else mine
            by_tasks = [write for write in mine if write[0] is not None]
            forced = [write for write in by_tasks if write[3]]
            reducer = self.shape.reducers.get(key)
            if len(forced) > 1 or (reducer is None and not forced and len(by_tasks) > 1):
                raise Conflict(key)
            if forced:
                mine = [write for write in mine if write[0] is None or write[3]]
            for _path, _key, value, overwrites in mine:
                values[key] = reducer(values[key], value) if reducer and not overwrites else value
        return values

    def _open(self, tasks: list[Task]) -> None:
        self.step = Step(self.next_number, tasks) if tasks else None
        self.next_number += bool(tasks)

    def _plan(self, step: Step) -> list[Task]:
        pulled: set[str] = set()
        sent: list[Task] = []
        for task in step.tasks:
            assert task.given is not None, "the step is not done"
            sends = list(task.given.sends)
            if task.given.goto is not None:
                pulled.update(task.given.goto)
            else:
                pulled.update(target for source, target in self.shape.edges if source == task.node)
                self._arrive(task.node, pulled)
                asked = [router for source, router in self.shape.routers if source == task.node]
                for targets, routed in [router(self.values) for router in asked]:
                    pulled.update(targets)
                    sends += routed
                pulled.update(self._guarded(task.node))
            sent += _sent(f"{step.number}/{task.path}", sends)
        for amendment in step.amendments:
            pulled.update(amendment.goto or ())
            sent += _sent(f"{step.number}/amendment{amendment.era}", amendment.sends)
        return self._ordered(pulled, sent)

    def _ordered(self, pulled: set[str], sent: list[Task]) -> list[Task]:
        return [Task(node, node) for node in self.shape.nodes if node in pulled] + sent

    def _guarded(self, node: str) -> list[str]:
        """Where the guarded edges of one task lead."""
        guards = [(n, guard) for n, guard in enumerate(self.shape.guards) if guard.source == node]
        alive = [(n, g) for n, g in guards if g.budget is None or self.spent.get(n, 0) < g.budget]
        taken = [
            (n, g) for n, g in alive if not g.default and (g.when is None or g.when(self.values))
        ]
        taken = taken or [(n, g) for n, g in alive if g.default]
        self.spent = {**self.spent, **{n: self.spent.get(n, 0) + 1 for n, _guard in taken}}
        return [guard.target for _n, guard in taken if guard.target is not None]

    def _without_deferred(self, planned: list[Task]) -> list[Task]:
        """What starts now; the deferred ones among them wait, unless there is nothing else."""
        now = [task for task in planned if task.node not in self.shape.deferred]
        self.waiting = self.waiting + [t for t in planned if t.node in self.shape.deferred]
        if now:
            return now
        started, self.waiting = self.waiting, []
        pulled = {task.node for task in started if task.path == task.node}
        sent = [Task(t.node, t.path, t.overlay) for t in started if t.path != t.node]
        return self._ordered(pulled, sent)

    def _arrive(self, node: str, pulled: set[str]) -> None:
        for number, (sources, target) in enumerate(self.shape.joins):
            if node in sources:
                arrived = {*self.joins.get(number, ()), node}
                self.joins = {**self.joins, number: arrived if arrived < {*sources} else set()}
                pulled |= {target} if arrived == {*sources} else set()


def _sent(source: str, sends: Sends) -> list[Task]:
    return [Task(node, f"{source}:{n}:{node}", dict(over)) for n, (node, over) in enumerate(sends)]
