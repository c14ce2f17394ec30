"""Generated plans for the model: the same graph, and the same bodies, in the words of `tests.model`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from beamweaver.types import END, Command, Send
from tests.engine.driver import Asks, Later
from tests.engine.generator import (
    LIMIT,
    Flaky,
    Node,
    Plan,
    body_of,
    handler_of,
    looper_of,
    router_of,
    size_of,
)
from tests.model import Guard, Return, Shape, Step, Task, Thread, Values

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = [
    "end_model",
    "model_guards",
    "model_router",
    "run_model",
    "run_undisturbed",
    "shape_of",
]


def run_undisturbed(
    thread: Thread,
    update: Values | None,
    body: Callable[[Task, Values], Return],
    *,
    most: int = 1_000,
) -> None:
    """A whole run that nothing disturbs, or without an update the rest of one.

    `body` says what a task gives for what it sees.

    Example:
        >>> import operator
        >>> shape = Shape(["a"], [("__start__", "a")], reducers={"log": operator.add}, initial={"log": []})
        >>> thread = Thread(shape)
        >>> run_undisturbed(thread, {"log": ["in"]}, lambda task, view: Return([("log", [task.node], False)]))
        >>> thread.values["log"], thread.runs, len(thread.points)
        (['in', 'a'], 1, 2)
    """
    if update is not None:
        thread.start(update)
    for _step in range(most):
        if thread.step is None:
            return
        for task in thread.step.tasks:
            thread.finish(task, body(task, thread.view(task)))
        thread.close()
    raise AssertionError("the run never ends")


def run_model(plan: Plan) -> Thread:
    """What becomes of a plan whose caller answers question after question, and goes on after failures."""
    thread = Thread(shape_of(plan))
    thread.start({"log": ["in"]})
    _stop_between(thread, plan, None)
    end_model(plan, thread)
    return thread


def end_model(plan: Plan, thread: Thread, *, most: int = 500) -> None:
    """The rest of a run, from wherever it stands."""
    bodies = {node.name: _does(node) for node in plan.nodes}
    moods = {node.name: node.mood for node in plan.nodes}
    for _turn in range(most):
        if thread.step is None:
            return
        for task in thread.unfinished:
            _attempt(thread, task, bodies[task.node], retried=moods[task.node] == "retried")
        before = thread.step
        _turn_of(thread)
        _stop_between(thread, plan, before)
    raise AssertionError("the run never ends")


def _does(node: Node) -> Any:
    """A body that does what becomes of a node, whoever does it: its error handler, if it has one."""
    if node.handler is None:
        return body_of(node)
    handler = handler_of(node)
    return lambda state, ctx: handler(None, state, ctx)


def _stop_between(thread: Thread, plan: Plan, before: Step | None) -> None:
    """A run that stops at a breakpoint is let go on by its caller, which begins another era."""
    step = thread.step
    if step is None or step is before:
        return
    done = [task.node for task in before.tasks] if before is not None else []
    planned = [task.node for task in step.tasks]
    if any(n in plan.before for n in planned) or any(n in plan.after for n in done):
        thread.go_on()


def _turn_of(thread: Thread) -> None:
    step = thread.step
    assert step is not None, "no step is open"
    if thread.status == "open":
        thread.close()
    elif thread.status == "failed":
        thread.go_on()
    else:
        first = next(task for task in step.tasks if task.asks)
        question = "again" if first.answers else first.node
        thread.answer(first, f"a{question}")
        thread.go_on()


def _attempt(thread: Thread, task: Task, body: Any, *, retried: bool) -> None:
    assert thread.step is not None, "no step is open"
    context = _Ctx(thread.step.era, task, attempt=2 if retried else 1)
    try:
        returned = body(thread.view(task), context)
    except Asks:
        thread.ask(task)
    except Flaky:
        thread.fail(task)
    else:
        thread.finish(task, _given(returned.value if isinstance(returned, Later) else returned))


class _Ctx:
    """What bodies may know: the era of their step, their attempt, and the answers to their questions."""

    def __init__(self, era: int, task: Task, *, attempt: int) -> None:
        self.era = era
        self.attempt = attempt
        self._answers = list(task.answers)

    def interrupt(self, _value: Any, *, key: str | None = None) -> Any:
        if self._answers:
            return self._answers.pop(0)
        raise Asks(None)  # type: ignore[arg-type] # nobody looks at the question


def _given(returned: Any) -> Return:
    given = Return()
    for part in returned if isinstance(returned, list) else [returned]:
        if isinstance(part, Send):
            given.sends.append((part.node, dict(part.update)))
        elif isinstance(part, Command):
            given.writes += [(key, value, False) for key, value in (part.update or {}).items()]
            ways = part.goto if isinstance(part.goto, list) else [part.goto]
            given.goto = [way for way in ways if isinstance(way, str)]
            given.sends += [(way.node, dict(way.update)) for way in ways if isinstance(way, Send)]
        elif part is not None:
            given.writes += [(key, value, False) for key, value in part.items()]
    return given


def shape_of(plan: Plan) -> Shape:
    """The graph of a plan."""
    routers: list[Any] = [
        (source, model_router(router_of(source, names, sends=sends)))
        for source, names, sends in plan.routers
    ]
    if plan.loop is not None:
        routers.append((plan.loop[0], model_router(looper_of(plan.loop[1]))))
    return Shape(
        nodes=[node.name for node in plan.nodes],
        edges=[pair for pair in plan.edges if pair[1] != END],
        joins=[(tuple(sources), target) for sources, target in plan.joins],
        routers=routers,
        reducers={
            "log": list.__add__,
            "sums": dict.__or__,
            "rounds": int.__add__,
            "found": _collected,
            "all_found": _collected,
            "hint": max,
            "calls": int.__add__,
        },
        initial={
            "log": [],
            "sums": {},
            "rounds": 0,
            "found": [],
            "all_found": [],
            "hint": "",
            "calls": 0,
        },
        passing={"found", "hint", "signal"},
        counts=("left", LIMIT),
        guards=model_guards(plan, size_of),
        deferred={node.name for node in plan.nodes if node.defer},
    )


def _collected(items: list[str], item: str) -> list[str]:
    return [*items, item]


def model_guards(plan: Plan, number_of: Any) -> list[Guard]:
    """The guarded edges of a plan; `number_of` is given the values that their predicates look at."""
    return [
        Guard(
            edge.source,
            None if edge.target == END else edge.target,
            (lambda values, edge=edge: edge.says(number_of(values))) if edge.asks else None,
            edge.budget,
            edge.default,
        )
        for edge in plan.guards
    ]


def model_router(router: Any) -> Any:
    """A router of a graph for the model."""

    def route(values: dict[str, Any]) -> tuple[list[str], list[tuple[str, dict[str, Any]]]]:
        chosen = router(values)
        parts = chosen if isinstance(chosen, list) else [chosen]
        targets = [part for part in parts if isinstance(part, str) and part != END]
        return targets, [(p.node, dict(p.update)) for p in parts if isinstance(p, Send)]

    return route
