"""What a graph run means, in as few words as possible: the model against which the product is checked.

No code of the product is used. A `Thread` has committed values and one open step. A step's tasks finish,
fail, or ask; a caller may go on with an amendment, which begins a new era; an open step whose tasks have all
finished is closed: what they wrote is merged in order, and what comes next is planned.

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

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

__all__ = ["Amendment", "Conflict", "Guard", "Return", "Shape", "Step", "Task", "Thread"]

START = "__start__"


class Conflict(Exception):
    """Two tasks wrote a key that takes one write a step."""


@dataclass
class Return:
    """What a task gave: writes `(key, value, overwrites)`, a goto or None, Sends `(node, overlay)`."""

    writes: list[tuple[str, Any, bool]] = field(default_factory=list)
    goto: list[str] | None = None
    sends: list[tuple[str, dict[str, Any]]] = field(default_factory=list)


@dataclass
class Amendment(Return):
    """A caller's update to an open step."""

    era: int = 0


@dataclass
class Guard:
    """A guarded edge; `when` is asked about the merged values."""

    source: str
    target: str | None
    when: Callable[[dict[str, Any]], bool] | None = None
    budget: int | None = None
    default: bool = False


@dataclass
class Shape:
    """A graph: all that decides what comes next. A router gives `(targets, sends)` for the merged values."""

    nodes: list[str]
    edges: list[tuple[str, str]] = field(default_factory=list)
    joins: list[tuple[tuple[str, ...], str]] = field(default_factory=list)
    routers: list[
        tuple[str, Callable[[dict[str, Any]], tuple[list[str], list[tuple[str, dict[str, Any]]]]]]
    ] = field(default_factory=list)
    reducers: dict[str, Callable[[Any, Any], Any]] = field(default_factory=dict)
    initial: dict[str, Any] = field(default_factory=dict)
    guards: list[Guard] = field(default_factory=list)
    deferred: set[str] = field(default_factory=set)
    passing: set[str] = field(default_factory=set)
    counts: tuple[str, int] | None = None
    """The key that tells how many steps a run may still take, and the limit that it counts from."""


@dataclass
class Task:
    """A task of the open step."""

    node: str
    path: str
    overlay: dict[str, Any] = field(default_factory=dict)
    given: Return | None = None
    era: int = 0
    failed: bool = False
    answers: list[Any] = field(default_factory=list)
    asks: bool = False


@dataclass
class Step:
    """The open step."""

    number: int
    tasks: list[Task]
    era: int = 0
    amendments: list[Amendment] = field(default_factory=list)


class Thread:
    """A thread of the model.

    Args:
        shape: Its graph.

    Example:
        >>> import operator
        >>> shape = Shape(["a"], [(START, "a")], reducers={"log": operator.add}, initial={"log": []})
        >>> thread = Thread(shape)
        >>> thread.run({"log": ["in"]}, lambda task, view: Return([("log", [task.node], False)]))
        >>> thread.values["log"], thread.runs
        (['in', 'a'], 1)
    """

    def __init__(self, shape: Shape) -> None:
        self.shape = shape
        self.values: dict[str, Any] = dict(shape.initial)
        self.step: Step | None = None
        self.joins: dict[int, set[str]] = {}
        self.spent: dict[int, int] = {}
        self.waiting: list[Task] = []
        self.next_number = 0
        self.executed = 0
        """Steps since a caller went on last."""
        self.runs = 0

    # What happens -------------------------------------------------------------------------------

    def start(self, update: dict[str, Any]) -> None:
        """A new run: its first step is the input's own, and closed at once."""
        assert self.step is None, "the run before it is not complete"
        self.runs += 1
        self.joins, self.spent, self.waiting = {}, {}, []
        entry = Task(START, START, given=Return([(k, v, False) for k, v in update.items()]))
        self._open([entry])
        self.close()
        self.executed = 0

    def view(self, task: Task) -> dict[str, Any]:
        """What a task that starts now sees."""
        assert self.step is not None, "no step is open"
        seen = self.merged(self.step.era)
        if self.shape.counts is not None:
            key, limit = self.shape.counts
            seen[key] = limit - self.executed
        return {**seen, **task.overlay}

    def finish(self, task: Task, given: Return) -> None:
        """A task ended well."""
        assert self.step is not None, "no step is open"
        task.given, task.era, task.failed, task.asks = given, self.step.era, False, False

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

    def go_on(self, amendment: Amendment | None = None) -> None:
        """A caller goes on: a new era, in which what failed runs again."""
        assert self.step is not None, "no step is open"
        self.step.era += 1
        self.executed = 0
        for task in self.step.tasks:
            task.failed = False
        if amendment is not None and (amendment.writes or amendment.goto or amendment.sends):
            amendment.era = self.step.era
            self.step.amendments.append(amendment)

    def close(self) -> None:
        """All tasks finished: commit the step and open the next, or complete the run."""
        step = self.step
        assert step is not None, "no step is open"
        assert all(task.given is not None for task in step.tasks), "the step is not done"
        self.values = self.merged(step.era + 1, whole=True)
        self.executed += 1
        following = self._without_deferred(self._plan(step))
        self.step = None
        if following:
            self._open(following)

    def run(
        self,
        update: dict[str, Any],
        body: Callable[[Task, dict[str, Any]], Return],
        *,
        most: int = 1_000,
    ) -> None:
        """A whole run that nothing disturbs; `body` says what a task gives for what it sees."""
        self.start(update)
        for _step in range(most):
            if self.step is None:
                return
            for task in self.step.tasks:
                self.finish(task, body(task, self.view(task)))
            self.close()
        raise AssertionError("the run never ends")

    # What is asked ------------------------------------------------------------------------------

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

    def merged(self, before_era: int, *, whole: bool = False) -> dict[str, Any]:
        """The values with all of the open step that was finished before an era; `whole` closes the step."""
        step = self.step
        assert step is not None, "no step is open"
        writes: list[tuple[str | None, str, Any, bool]] = []
        low = 0
        for amendment in [*step.amendments, None]:
            high = before_era if amendment is None else amendment.era
            for task in step.tasks:
                if task.given is not None and low <= task.era < min(high, before_era):
                    writes += [(task.path, *write) for write in task.given.writes]
            if amendment is not None and amendment.era <= before_era:
                writes += [(None, *write) for write in amendment.writes]
                low = amendment.era
        values = dict(self.values)
        for key in self.shape.passing if whole else ():
            values.pop(key, None)
            if key in self.shape.initial:
                values[key] = self.shape.initial[key]
        return self._applied(values, writes)

    # How ----------------------------------------------------------------------------------------

    def _applied(
        self, values: dict[str, Any], writes: list[tuple[str | None, str, Any, bool]]
    ) -> dict[str, Any]:
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
                fold = reducer is not None and not overwrites
                values[key] = reducer(values[key], value) if fold and reducer else value
        return values

    def _open(self, tasks: list[Task]) -> None:
        self.step = Step(self.next_number, tasks)
        self.next_number += 1

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
                for source, router in self.shape.routers:
                    if source == task.node:
                        targets, routed = router(self.values)
                        pulled.update(targets)
                        sends += routed
                pulled.update(self._guarded(task.node))
            sent += _sent(f"{step.number}/{task.path}", sends)
        for amendment in step.amendments:
            pulled.update(amendment.goto or ())
            sent += _sent(f"{step.number}/amendment{amendment.era}", amendment.sends)
        return [Task(node, node) for node in self.shape.nodes if node in pulled] + sent

    def _guarded(self, node: str) -> list[str]:
        """Where the guarded edges of one task lead."""
        alive = [
            (number, guard)
            for number, guard in enumerate(self.shape.guards)
            if guard.source == node
            and (guard.budget is None or self.spent.get(number, 0) < guard.budget)
        ]
        taken = [
            (number, guard)
            for number, guard in alive
            if not guard.default and (guard.when is None or guard.when(self.values))
        ]
        taken = taken or [(number, guard) for number, guard in alive if guard.default]
        for number, _guard in taken:
            self.spent[number] = self.spent.get(number, 0) + 1
        return [guard.target for _number, guard in taken if guard.target is not None]

    def _without_deferred(self, planned: list[Task]) -> list[Task]:
        """What starts now; the deferred ones among them wait, unless there is nothing else."""
        now = [task for task in planned if task.node not in self.shape.deferred]
        self.waiting += [task for task in planned if task.node in self.shape.deferred]
        if now:
            return now
        started, self.waiting = self.waiting, []
        pulled = {task.node for task in started if task.path == task.node}
        sent = [task for task in started if task.path != task.node]
        return [Task(node, node) for node in self.shape.nodes if node in pulled] + sent

    def _arrive(self, node: str, pulled: set[str]) -> None:
        for number, (sources, target) in enumerate(self.shape.joins):
            if node in sources:
                arrived = self.joins.setdefault(number, set())
                arrived.add(node)
                if arrived == set(sources):
                    del self.joins[number]
                    pulled.add(target)


def _sent(source: str, sends: Iterable[tuple[str, dict[str, Any]]]) -> list[Task]:
    return [
        Task(node, f"{source}:{index}:{node}", dict(overlay))
        for index, (node, overlay) in enumerate(sends)
    ]
