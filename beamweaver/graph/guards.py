"""Which guarded edges of a node are taken.

The rule: an edge whose budget is spent is not taken and its predicate is not asked. An edge with a
predicate is taken if that says True, one with a budget alone always. If none of these is taken, the
default edges are. The budget of an edge is one of the run: the engine keeps what was spent by `Guard.key`,
and drops it with the run.

Example:
    >>> from beamweaver.graph import Guard
    >>> from beamweaver.types import END
    >>> again = Guard(key="a:a:0", source="a", target="a", max_runs=2)
    >>> done = Guard(key="a:__end__:0", source="a", target=END, default=True)
    >>> choose([again, done], {}, {})
    Choice(targets=('a',), spent={'a:a:0': 1})
    >>> choose([again, done], {}, {"a:a:0": 2})
    Choice(targets=(), spent={'a:a:0': 2})
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from beamweaver.graph._text import described, node_text
from beamweaver.graph._unawaited import unawaited
from beamweaver.types import END

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from beamweaver.graph.specs import Guard

__all__ = ["Choice", "call_guard", "choose", "guard_text", "guards_to_ask", "judge_guard"]


class Choice(NamedTuple):
    """The nodes to run, each once and without `END`, and what is spent of each budget."""

    targets: tuple[str, ...]
    spent: Mapping[str, int]


def guards_to_ask(guards: Iterable[Guard], spent: Mapping[str, int]) -> list[Guard]:
    """The guarded edges whose predicates must be asked, in the order of declaration.

    Args:
        guards: `graph.guards[node]`.
        spent: How often each edge was taken in this run, by key.
    """
    return [guard for guard in guards if guard.when is not None and _may(guard, spent)]


def call_guard(guard: Guard, state: Any, ctx: Any) -> Any:
    """Call the predicate of a guarded edge, with the context if it wants one."""
    assert guard.when is not None, "only an edge with a predicate is asked"
    if guard.caller is None:
        return guard.when(state)
    return guard.caller(guard.when, state, ctx)


def judge_guard(guard: Guard, returned: object) -> bool:
    """What a predicate said.

    Raises:
        TypeError: It said neither True nor False.
    """
    if returned is True or returned is False:
        return returned
    hint = ""
    if unawaited(returned):
        hint = ". It is a coroutine: give the async function itself as when="
    raise TypeError(
        f"the {guard_text(guard)} returned {described(returned)}; expected True or False{hint}"
    )


def guard_text(guard: Guard) -> str:
    """How messages call a guard: its name, its edge, and where that was added."""
    ends = f"{node_text(guard.source)} -> {node_text(guard.target)}"
    return f"guard {guard.name!r} of the edge {ends}"


def choose(
    guards: Sequence[Guard], answers: Mapping[str, bool], spent: Mapping[str, int]
) -> Choice:
    """The edges that one task takes.

    Where several tasks of a step end at one node, they choose in task order, each with what the one before
    it left.

    Args:
        guards: `graph.guards[node]`.
        answers: What the predicates said, by `Guard.key`.
        spent: How often each edge was taken in this run, by key.
    """
    taken = [g for g in guards if not g.default and _may(g, spent) and answers.get(g.key, True)]
    if not taken:
        taken = [guard for guard in guards if guard.default and _may(guard, spent)]
    counted = {guard.key: spent.get(guard.key, 0) + 1 for guard in taken if guard.max_runs}
    targets = dict.fromkeys(guard.target for guard in taken if guard.target != END)
    return Choice(tuple(targets), {**spent, **counted})


def _may(guard: Guard, spent: Mapping[str, int]) -> bool:
    return guard.max_runs is None or spent.get(guard.key, 0) < guard.max_runs
