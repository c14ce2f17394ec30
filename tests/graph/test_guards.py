"""Guarded edges: which are taken, budgets, defaults, and how they are declared."""

from __future__ import annotations

import functools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from beamweaver.errors import InvalidGraph
from beamweaver.graph import Graph, Guard, call_guard, choose, guards_to_ask, judge_guard
from beamweaver.types import END, START


def nothing(state):
    return None


def yes(state):
    return True


def build(*edges, nodes="abc"):
    graph = Graph(name="g")
    for name in nodes:
        graph.add_node(name, nothing)
    graph.add_edge(START, "a")
    for source, target, options in edges:
        graph.add_edge(source, target, **options)
    return graph


def guards(*edges, source="a"):
    return build(*edges).compile(allow_unreachable=True).guards[source]


def answers(guards, **says):
    return {guard.key: says[guard.target] for guard in guards if guard.target in says}


class TestChoose:
    """`graph 118`, `graph 127`, `graph 128`, `graph 129`: guards, defaults and budgets."""

    def test_an_edge_is_taken_if_its_predicate_says_so(self):
        found = guards(("a", "b", {"when": yes}), ("a", "c", {"when": yes}))

        assert choose(found, answers(found, b=True, c=False), {}).targets == ("b",)

    def test_several_may_be_taken_in_the_order_of_declaration(self):
        found = guards(("a", "c", {"when": yes}), ("a", "b", {"when": yes}))

        assert choose(found, answers(found, b=True, c=True), {}).targets == ("c", "b")

    def test_a_default_is_taken_if_no_other_is(self):
        found = guards(("a", "b", {"when": yes}), ("a", "c", {"default": True}))

        assert choose(found, answers(found, b=True), {}).targets == ("b",)
        assert choose(found, answers(found, b=False), {}).targets == ("c",)

    def test_a_budget_alone_is_taken_until_it_is_spent(self):
        found = guards(("a", "a", {"max_runs": 2}), ("a", "b", {"default": True}))

        first = choose(found, {}, {})
        second = choose(found, {}, first.spent)
        third = choose(found, {}, second.spent)

        assert [each.targets for each in (first, second, third)] == [("a",), ("a",), ("b",)]

    def test_a_spent_edge_is_not_asked(self):
        found = guards(("a", "b", {"when": yes, "max_runs": 1}), ("a", "c", {"when": yes}))

        assert [guard.target for guard in guards_to_ask(found, {})] == ["b", "c"]
        assert [guard.target for guard in guards_to_ask(found, {found[0].key: 1})] == ["c"]

    def test_an_edge_that_says_no_spends_nothing(self):
        found = guards(("a", "b", {"when": yes, "max_runs": 1}))

        assert choose(found, answers(found, b=False), {}) == ((), {})

    def test_an_edge_to_end_goes_nowhere_and_yet_counts_as_taken(self):
        found = guards(("a", END, {"when": yes}), ("a", "b", {"default": True}))

        assert choose(found, {found[0].key: True}, {}).targets == ()

    def test_two_edges_to_one_node_run_it_once(self):
        found = guards(("a", "b", {"when": yes}), ("a", "b", {"when": yes}))

        assert choose(found, {guard.key: True for guard in found}, {}).targets == ("b",)
        assert len({guard.key for guard in found}) == 2

    def test_what_was_spent_before_is_never_changed(self):
        found = guards(("a", "b", {"max_runs": 3}))
        spent = {"x": 1}

        assert choose(found, {}, spent).spent == {"x": 1, found[0].key: 1}
        assert spent == {"x": 1}

    @settings(max_examples=40, deadline=None)
    @given(st.lists(st.booleans(), max_size=12), st.integers(1, 4))
    def test_no_edge_is_taken_more_often_than_its_budget(self, says, most):
        found = (
            Guard(key="a:b:0", source="a", target="b", when=yes, max_runs=most),
            Guard(key="a:c:0", source="a", target="c", default=True, max_runs=most),
        )
        spent, taken = {}, []
        for said in says:
            targets, spent = choose(found, {"a:b:0": said}, spent)
            taken.extend(targets)

        assert max(taken.count("b"), taken.count("c")) <= most
        assert taken.count("b") == min(most, says.count(True))


class TestAsking:
    def test_a_predicate_may_take_the_context(self):
        (guard,) = guards(("a", "b", {"when": lambda state, ctx: ctx == state}))

        assert guard.wants_ctx
        assert call_guard(guard, 1, 1) is True
        assert call_guard(guard, 1, 2) is False

    def test_a_predicate_of_the_state_gets_the_state(self):
        (guard,) = guards(("a", "b", {"when": lambda state: state["n"] > 1}))

        assert call_guard(guard, {"n": 2}, None) is True

    def test_an_async_predicate_is_known(self):
        async def later(state):
            return True

        (guard,) = guards(("a", "b", {"when": functools.partial(later)}))

        assert guard.is_async

    @pytest.mark.parametrize("said", [True, False])
    def test_true_and_false_are_answers(self, said):
        assert judge_guard(Guard(key="k", source="a", target="b", when=yes), said) is said

    @pytest.mark.parametrize("said", [None, 1, "yes", []])
    def test_anything_else_is_refused(self, said):
        with pytest.raises(TypeError, match="the guard 'yes' of the edge 'a' -> END returned"):
            judge_guard(Guard(key="k", source="a", target=END, when=yes), said)

    def test_a_coroutine_of_a_sync_predicate_is_closed_and_explained(self):
        async def later():
            return True

        with pytest.raises(TypeError, match="give the async function itself as when="):
            judge_guard(Guard(key="k", source="a", target="b", when=yes), later())


UNFIT = {
    "when is no function": ({"when": True}, r"when is True; give a function of \(state\)"),
    "max_runs is 0": ({"max_runs": 0}, "max_runs is 0; give an int of 1 or more"),
    "max_runs is True": ({"max_runs": True}, "max_runs is True"),
    "default is no bool": ({"default": 1}, "default is 1; give True or False"),
    "when and default": ({"when": yes, "default": True}, "when and default are both given"),
    "a predicate of two": (
        {"when": lambda state, other: True},
        r"the guard after 'a' has the parameters \(state, other\)",
    ),
}


class TestDeclaring:
    def test_guarded_edges_are_not_among_the_plain_ones(self):
        compiled = build(("a", "b", {"when": yes}), ("a", "c", {})).compile()

        assert compiled.edges["a"] == ("c",)
        assert [guard.target for guard in compiled.guards["a"]] == ["b"]

    def test_the_key_of_an_edge_does_not_depend_on_other_edges(self):
        one = guards(("a", "b", {"when": yes}))
        two = guards(("a", "c", {"when": yes}), ("a", "b", {"when": yes}))

        assert one[0].key == two[1].key == "a:b:0"

    def test_an_entry_may_be_guarded(self):
        graph = Graph(name="g").add_node("a", nothing).add_edge(START, "a", when=yes).compile()

        assert [guard.name for guard in graph.guards[START]] == ["yes"]

    @pytest.mark.parametrize("what", UNFIT)
    def test_an_unfit_option_is_refused_at_once(self, what):
        options, words = UNFIT[what]

        with pytest.raises(InvalidGraph, match=words):
            Graph(name="g").add_edge("a", "b", **options)

    def test_a_join_takes_no_guard(self):
        with pytest.raises(InvalidGraph, match="a join takes no when="):
            Graph(name="g").add_edge(["a", "b"], "c", when=yes)

    def test_a_default_alone_is_a_fault(self):
        with pytest.raises(InvalidGraph, match=r"default=True, and no edge after 'a' has when="):
            build(("a", "b", {"default": True}), nodes="ab").compile()

    def test_a_guard_beside_a_plain_edge_is_a_fault(self):
        with pytest.raises(InvalidGraph, match="a plain edge between the two is always taken"):
            build(("a", "b", {"when": yes}), ("a", "b", {}), nodes="ab").compile()

    def test_the_target_of_a_guard_must_be_there(self):
        with pytest.raises(InvalidGraph, match="there is no node 'x'"):
            build(("a", "x", {"when": yes}), nodes="a").compile()
