"""The builder: what it takes, what it refuses at once, and what compile makes of it."""

from __future__ import annotations

import datetime as dt
import functools
import operator
from typing import Annotated, TypedDict

import pytest

from beamweaver.errors import InvalidGraph
from beamweaver.graph import CompiledGraph, Graph, Join, call_node, call_router
from beamweaver.types import END, START, RetryPolicy


class State(TypedDict):
    n: int
    log: Annotated[list[str], operator.add]


def nothing(state):
    return None


def line(*names, **options):
    graph = Graph(name="g")
    for name in names:
        graph.add_node(name, nothing, **options)
    for before, after in zip((START, *names), names, strict=False):
        graph.add_edge(before, after)
    return graph


class TestNodes:
    def test_methods_return_the_builder(self):
        graph = Graph(name="g")

        assert graph.add_node("a", nothing) is graph
        assert graph.add_edge(START, "a") is graph
        assert graph.add_edge(["a"], END) is graph
        assert graph.add_conditional_edges("a", nothing, [END]) is graph
        assert graph.add_sequence(["a"]) is graph
        assert graph.add_reducer("k", operator.add) is graph
        assert graph.set_node_defaults(timeout=1) is graph

    def test_nodes_keep_the_order_of_declaration(self):
        compiled = line("c", "a", "b").compile()

        assert [(node.name, node.index) for node in compiled.nodes.values()] == [
            ("c", 0),
            ("a", 1),
            ("b", 2),
        ]

    def test_a_decorator_with_a_name_returns_the_function(self):
        graph = Graph(name="g")

        @graph.add_node("load", retries=2)
        def f(state):
            return {"n": 1}

        assert f({}) == {"n": 1}
        node = graph.add_edge(START, "load").compile().nodes["load"]
        assert node.fn is f
        assert node.retry == RetryPolicy(max_attempts=3)

    def test_a_decorator_without_a_name_takes_the_functions(self):
        graph = Graph(name="g")

        @graph.add_node()
        def load(state):
            return None

        assert list(graph.add_edge(START, "load").compile().nodes) == ["load"]

    def test_a_function_alone_is_added_under_its_own_name(self):
        graph = Graph(name="g").add_node(nothing).add_edge(START, "nothing")

        assert list(graph.compile().nodes) == ["nothing"]

    def test_a_lambda_alone_needs_a_name(self):
        with pytest.raises(InvalidGraph, match="a lambda has no name of its own; give one"):
            Graph(name="g").add_node(lambda state: None)

    @pytest.mark.parametrize(
        ("name", "words"),
        [
            ("", "give a str that is not empty"),
            (7, "give a str that is not empty"),
            ("x" * 129, "has 129 characters; give at most 128"),
            ("a:b", "leave out NUL, ':' and '|'"),
            ("a|b", "leave out NUL, ':' and '|'"),
            ("a\0", "leave out NUL, ':' and '|'"),
            ("__a", "reserved"),
            (START, "reserved"),
            (END, "reserved"),
        ],
    )
    def test_an_unfit_name_is_refused_at_once(self, name, words):
        with pytest.raises(InvalidGraph, match=words) as caught:
            Graph(name="g").add_node(name, nothing)

        assert len(caught.value.faults) == 1

    def test_a_name_of_128_characters_is_fit(self):
        assert list(line("x" * 128).compile().nodes) == ["x" * 128]

    def test_a_graph_that_is_not_compiled_is_no_node(self):
        with pytest.raises(
            InvalidGraph, match=r"'a' is a graph that is not compiled; give graph\.compile"
        ):
            Graph(name="g").add_node("a", Graph(name="inner"))

    def test_a_node_that_cannot_be_called_is_refused(self):
        with pytest.raises(InvalidGraph, match=r"node 'a' is 5, which cannot be called"):
            Graph(name="g").add_node("a", 5)

    @pytest.mark.parametrize(
        ("given", "kept"),
        [
            ({}, None),
            ({"retries": 0}, RetryPolicy(max_attempts=1)),
            ({"retries": 2}, RetryPolicy(max_attempts=3)),
            ({"retry": RetryPolicy(max_attempts=9)}, RetryPolicy(max_attempts=9)),
            ({"retry": None}, None),
        ],
    )
    def test_retries_are_kept_as_a_policy(self, given, kept):
        assert line("a", **given).compile().nodes["a"].retry == kept

    @pytest.mark.parametrize(
        ("given", "words"),
        [
            ({"retries": -1}, "retries is -1; give an int of 0 or more"),
            ({"retries": True}, "retries is True"),
            ({"retry": 3}, r"retry is 3; give a RetryPolicy, or retries=2"),
            ({"retry": RetryPolicy(), "retries": 1}, "both given; keep one"),
            ({"timeout": 0}, "timeout is 0; give more than 0 seconds"),
            ({"timeout": "1s"}, "timeout is '1s'; give seconds"),
            ({"destinations": "b"}, "destinations is 'b'; give a list of node names"),
        ],
    )
    def test_an_unfit_option_is_refused_at_once(self, given, words):
        with pytest.raises(InvalidGraph, match=words):
            Graph(name="g").add_node("a", nothing, **given)

    def test_a_timeout_is_kept_in_seconds(self):
        node = line("a", timeout=dt.timedelta(minutes=1)).compile().nodes["a"]

        assert node.timeout == 60.0

    def test_metadata_is_a_copy_that_cannot_be_changed(self):
        notes = {"owner": "me"}
        node = line("a", metadata=notes).compile().nodes["a"]
        notes["owner"] = "you"

        assert node.metadata == {"owner": "me"}
        with pytest.raises(TypeError):
            node.metadata["owner"] = "them"


class TestDefaults:
    def test_defaults_apply_whatever_the_order_of_calls(self):
        graph = Graph(name="g").add_node("a", nothing).set_node_defaults(retries=1, timeout=5)
        compiled = graph.add_node("b", nothing).add_sequence([]).add_edge(START, "a")
        compiled = compiled.add_edge("a", "b").compile()

        for node in compiled.nodes.values():
            assert (node.retry, node.timeout) == (RetryPolicy(max_attempts=2), 5.0)

    def test_a_nodes_own_option_wins(self):
        graph = Graph(name="g").set_node_defaults(retries=1, timeout=5)
        graph.add_node("a", nothing, timeout=50).add_node("b", nothing, retries=7)
        nodes = graph.add_edge(START, "a").add_edge("a", "b").compile().nodes

        assert (nodes["a"].retry, nodes["a"].timeout) == (RetryPolicy(max_attempts=2), 50.0)
        assert (nodes["b"].retry, nodes["b"].timeout) == (RetryPolicy(max_attempts=8), 5.0)

    def test_none_at_a_node_turns_a_default_off(self):
        graph = Graph(name="g").set_node_defaults(retries=1, timeout=5)
        node = graph.add_node("a", nothing, timeout=None, retry=None).add_edge(START, "a")

        assert node.compile().nodes["a"].timeout is None
        assert node.compile().nodes["a"].retry is None

    def test_an_unfit_default_is_refused_at_once(self):
        with pytest.raises(InvalidGraph, match="set_node_defaults: timeout is -1"):
            Graph(name="g").set_node_defaults(timeout=-1)


class TestCalls:
    def test_a_function_of_the_state_gets_the_state(self):
        node = Graph(name="g").add_node("a", lambda s: s).add_edge(START, "a").compile().nodes["a"]

        assert not node.wants_ctx
        assert call_node(node, "state", "ctx") == "state"

    def test_every_way_to_ask_for_the_context_works(self):
        class Context: ...

        def by_name(state, ctx):
            return (state, ctx)

        def by_annotation(state, c: Context):
            return (state, c)

        def by_string(state, c: "beamweaver.Context[int]"):  # noqa: F821, UP037
            return (state, c)

        def keyword_only(state, *, ctx):
            return (state, ctx)

        def first(ctx, state):
            return (state, ctx)

        def with_default(state, flag=False, ctx=None):
            return (state, ctx)

        class Callable:
            def __call__(self, state, ctx):
                return (state, ctx)

        class Owner:
            def method(self, state, ctx):
                return (state, ctx)

        def bound(limit, state, ctx):
            return (state, ctx)

        ways = [by_name, by_annotation, by_string, keyword_only, first, with_default]
        ways += [Callable(), Owner().method, functools.partial(bound, 3)]
        graph = Graph(name="g")
        for index, way in enumerate(ways):
            graph.add_node(f"n{index}", way)
        nodes = graph.add_edge(START, "n0").compile(allow_unreachable=True).nodes

        assert [call_node(node, "s", "c") for node in nodes.values()] == [("s", "c")] * len(ways)
        assert all(node.wants_ctx for node in nodes.values())

    def test_a_function_may_take_the_context_alone(self):
        graph = Graph(name="g").add_node("a", lambda ctx: ctx).add_edge(START, "a")

        assert call_node(graph.compile().nodes["a"], "s", "c") == "c"

    def test_a_function_may_take_the_context_alone_by_keyword(self):
        def fn(*, ctx):
            return ctx

        graph = Graph(name="g").add_node("a", fn).add_edge(START, "a")

        assert call_node(graph.compile().nodes["a"], "s", "c") == "c"

    def test_a_router_may_ask_for_the_context(self):
        graph = Graph(name="g").add_node("a", nothing)
        graph.add_conditional_edges(START, lambda state, ctx: (state, ctx))
        graph.add_conditional_edges("a", lambda state: state)
        branches = graph.compile().branches

        assert call_router(branches[START][0], "s", "c") == ("s", "c")
        assert call_router(branches["a"][0], "s", "c") == "s"

    def test_builtins_without_a_signature_are_called_with_the_state(self):
        graph = Graph(name="g").add_node("a", dict).add_edge(START, "a")

        assert call_node(graph.compile().nodes["a"], {"n": 1}, None) == {"n": 1}

    @pytest.mark.parametrize(
        ("fn", "words"),
        [
            (lambda: None, r"has the parameters \(\); a node or router takes \(state\)"),
            (lambda state, more: None, r"has the parameters \(state, more\)"),
            (lambda state, ctx, more: None, r"has the parameters \(state, ctx, more\)"),
        ],
    )
    def test_other_parameters_are_refused_at_once(self, fn, words):
        with pytest.raises(InvalidGraph, match=words):
            Graph(name="g").add_node("a", fn)
        with pytest.raises(InvalidGraph, match=words):
            Graph(name="g").add_conditional_edges("a", fn)

    def test_a_keyword_only_state_is_refused(self):
        def fn(*, state):
            return None

        with pytest.raises(InvalidGraph, match="the parameters"):
            Graph(name="g").add_node("a", fn)

    def test_a_keyword_beside_the_state_is_refused(self):
        def fn(*states, limit):
            return None

        with pytest.raises(InvalidGraph, match="takes 'limit' by keyword only"):
            Graph(name="g").add_node("a", fn)

    def test_async_functions_partials_and_callables_are_async_nodes(self):
        async def fn(state):
            return None

        class Callable:
            async def __call__(self, state):
                return None

        for each in (fn, Callable(), functools.partial(fn)):
            graph = Graph(name="g").add_node("a", each).add_edge(START, "a").compile()
            assert graph.nodes["a"].is_async

    def test_generator_functions_are_refused_with_a_cure(self):
        def fn(state):
            yield {}

        with pytest.raises(InvalidGraph, match="return its update instead of yielding it"):
            Graph(name="g").add_node("a", fn)


class TestEdges:
    def test_edges_name_every_source_and_leave_end_out(self):
        compiled = line("a", "b").add_edge("b", END).compile()

        assert dict(compiled.edges) == {START: ("a",), "a": ("b",), "b": ()}

    def test_an_edge_twice_is_one_edge(self):
        assert line("a", "b").add_edge("a", "b").compile().edges["a"] == ("b",)

    def test_a_loop_to_itself_is_an_edge(self):
        assert line("a").add_edge("a", "a").compile().edges["a"] == ("a",)

    def test_a_list_of_sources_is_a_join(self):
        compiled = line("a", "b", "c").add_edge(["b", "a"], "c").compile()
        join = Join(key="a|b:c", sources=("b", "a"), target="c")

        assert dict(compiled.joins) == {"a": (join,), "b": (join,)}

    def test_the_key_of_a_join_does_not_depend_on_the_order_of_its_sources(self):
        one = line("a", "b", "c").add_edge(["a", "b"], "c").compile()
        two = line("a", "b", "c").add_edge(["b", "a"], "c").compile()

        assert one.joins["a"][0].key == two.joins["a"][0].key

    def test_a_join_twice_is_one_join(self):
        graph = line("a", "b", "c").add_edge(["a", "b"], "c").add_edge(["b", "a"], "c")

        assert len(graph.compile().joins["a"]) == 1

    def test_a_list_of_one_source_is_an_edge(self):
        compiled = line("a").add_node("b", nothing).add_edge(["a"], "b").compile()

        assert (dict(compiled.joins), compiled.edges["a"]) == ({}, ("b",))

    def test_a_join_into_end_leads_nowhere(self):
        assert dict(line("a", "b").add_edge(["a", "b"], END).compile().joins) == {}

    @pytest.mark.parametrize("sources", [[], ["a", "a"]])
    def test_a_join_needs_each_source_once(self, sources):
        with pytest.raises(InvalidGraph, match="give each once"):
            Graph(name="g").add_edge(sources, "b")

    def test_a_join_of_start_is_a_fault(self):
        with pytest.raises(InvalidGraph, match="START cannot be joined"):
            line("a", "b").add_edge([START, "a"], "b").compile()

    def test_a_function_in_place_of_a_name_is_refused_with_its_name(self):
        with pytest.raises(InvalidGraph, match="give its name: 'nothing'"):
            Graph(name="g").add_edge(START, nothing)

    def test_a_sequence_has_edges_among_its_steps_only(self):
        graph = Graph(name="g").add_node("c", nothing)
        graph.add_sequence([nothing, ("b", nothing), "c"]).add_edge(START, "nothing")
        compiled = graph.compile()

        assert list(compiled.nodes) == ["c", "nothing", "b"]
        assert dict(compiled.edges) == {
            START: ("nothing",),
            "c": (),
            "nothing": ("b",),
            "b": ("c",),
        }


class TestBranches:
    def test_targets_may_be_a_list_of_nodes(self):
        compiled = line("a", "b").add_conditional_edges("a", nothing, ["b", END]).compile()

        assert compiled.branches["a"][0].targets == {"b": "b", END: END}

    def test_targets_may_have_any_keys(self):
        targets = {True: "b", False: END}
        compiled = line("a", "b").add_conditional_edges("a", nothing, targets).compile()

        assert compiled.branches["a"][0].targets == targets

    def test_branches_of_one_source_are_numbered(self):
        graph = line("a", "b").add_conditional_edges("a", nothing, ["b"])
        graph.add_conditional_edges("b", nothing, [END]).add_conditional_edges("a", nothing)
        branches = graph.compile().branches

        assert [(b.source, b.index) for b in branches["a"]] == [("a", 0), ("a", 1)]
        assert [(b.source, b.index) for b in branches["b"]] == [("b", 0)]

    def test_a_branch_from_start_is_an_entry(self):
        graph = Graph(name="g").add_node("a", nothing)
        compiled = graph.add_conditional_edges(START, nothing, ["a"]).compile()

        assert compiled.edges[START] == ()
        assert compiled.branches[START][0].name == "nothing"

    def test_empty_targets_are_refused(self):
        with pytest.raises(InvalidGraph, match="targets is empty"):
            Graph(name="g").add_conditional_edges("a", nothing, {})

    def test_unknown_targets_are_a_fault_with_the_nearest_name(self):
        with pytest.raises(InvalidGraph, match=r"no node 'lod'. Did you mean 'load'"):
            line("load").add_conditional_edges("load", nothing, {"x": "lod"}).compile()


class TestReachability:
    def test_destinations_reach_a_node(self):
        graph = line("a", destinations=["b"]).add_node("b", nothing)

        assert list(graph.compile().nodes) == ["a", "b"]

    def test_unknown_destinations_are_a_fault(self):
        with pytest.raises(InvalidGraph, match=r"destinations= of node 'a' at .*no node 'x'"):
            line("a", destinations=["x"]).compile()

    def test_a_node_with_outgoing_edges_only_may_be_reached_by_goto(self):
        graph = line("a").add_node("b", nothing).add_edge("b", END)

        assert list(graph.compile().nodes) == ["a", "b"]

    def test_a_router_without_targets_may_reach_any_node(self):
        graph = line("a").add_node("b", nothing).add_conditional_edges("a", nothing)

        assert list(graph.compile().nodes) == ["a", "b"]

    def test_unreachable_nodes_can_be_allowed(self):
        compiled = line("a").add_node("b", nothing).compile(allow_unreachable=True)

        assert list(compiled.nodes) == ["a", "b"]

    def test_a_graph_without_nodes_is_a_fault(self):
        with pytest.raises(InvalidGraph, match="the graph has no nodes; add one"):
            Graph(name="g").compile()

    def test_an_edge_from_start_to_end_is_no_entry(self):
        with pytest.raises(InvalidGraph, match="nothing leads into the graph"):
            Graph(name="g").add_sequence([nothing]).add_edge(START, END).compile(
                allow_unreachable=True
            )


class TestReducers:
    def test_a_reducer_is_added_to_an_open_graph(self):
        compiled = line("a").add_reducer("total", operator.add).compile()

        assert compiled.channel("total").fold(1, [2, 3]) == 6

    def test_a_reducer_takes_the_place_of_the_schemas(self):
        graph = Graph(State, name="g").add_node("a", nothing).add_edge(START, "a")
        compiled = graph.add_reducer("n", max).compile()

        assert compiled.channels["n"].fold(3, [1, 5]) == 5
        assert compiled.channels["n"].type is int

    def test_a_reducer_for_an_unknown_key_is_refused(self):
        with pytest.raises(InvalidGraph, match=r"no such key. Did you mean 'log'"):
            Graph(State, name="g").add_reducer("logs", operator.add)

    @pytest.mark.parametrize(
        ("reducer", "words"),
        [
            (lambda one: one, r"the reducer has the parameters \(one\); a reducer takes two"),
            (lambda a, b, c: a, r"a reducer takes two"),
            (7, "the reducer is 7, which cannot be called"),
        ],
    )
    def test_a_reducer_must_take_two_arguments(self, reducer, words):
        with pytest.raises(InvalidGraph, match=words):
            Graph(name="g").add_reducer("k", reducer)

    def test_an_async_reducer_is_refused(self):
        async def reducer(a, b):
            return a

        with pytest.raises(InvalidGraph, match="reducers are sync"):
            Graph(name="g").add_reducer("k", reducer)

    @pytest.mark.parametrize("key", ["", "__k", 3])
    def test_an_unfit_key_is_refused(self, key):
        with pytest.raises(InvalidGraph, match="the key is"):
            Graph(name="g").add_reducer(key, operator.add)


class TestCompiled:
    def test_it_has_what_was_given(self):
        store = object()
        compiled = (
            Graph(State, name="orders", version=3, context_schema=dict)
            .add_node("a", nothing)
            .add_edge(START, "a")
            .compile(
                checkpointer=store,
                failure_policy="panic",
                step_timeout=1,
                run_timeout=dt.timedelta(seconds=2),
                max_concurrency=4,
                recursion_limit=7,
            )
        )

        assert (compiled.name, compiled.version, compiled.schema) == ("orders", 3, State)
        assert (compiled.context_schema, compiled.open) == (dict, False)
        assert (compiled.checkpointer, compiled.failure_policy) == (store, "panic")
        assert (compiled.step_timeout, compiled.run_timeout) == (1.0, 2.0)
        assert (compiled.max_concurrency, compiled.recursion_limit) == (4, 7)

    def test_its_defaults_are_those_of_the_semantics(self):
        compiled = line("a").compile()

        assert (compiled.failure_policy, compiled.recursion_limit) == ("proceed", 100)
        assert compiled.step_timeout is compiled.run_timeout is compiled.max_concurrency is None
        assert compiled.open

    def test_it_prints_its_name_version_and_nodes(self):
        text = repr(line("a", "b").compile())

        assert text == "CompiledGraph('g', version=1, nodes=['a', 'b'])"
        assert repr(line("a")) == "Graph('g', nodes=['a'])"

    def test_many_names_are_cut_in_a_message(self):
        names = [f"n{number}" for number in range(20)]

        with pytest.raises(InvalidGraph, match="'n11', and 8 more"):
            line(*names).add_edge("n0", "zzz").compile()

    def test_it_cannot_be_changed(self):
        compiled = line("a").compile()

        with pytest.raises(AttributeError, match="is compiled, so its name cannot be set"):
            compiled.name = "other"
        for mapping in (compiled.nodes, compiled.edges, compiled.joins, compiled.channels):
            with pytest.raises(TypeError):
                mapping["x"] = ()

    def test_the_builder_may_go_on_without_changing_it(self):
        graph = line("a")
        before = graph.compile()
        after = graph.add_node("b", nothing).add_edge("a", "b").compile()

        assert (list(before.nodes), list(after.nodes)) == (["a"], ["a", "b"])
        assert before.edges["a"] == ()

    def test_a_later_reducer_does_not_change_it(self):
        graph = line("a")
        before = graph.compile()
        graph.add_reducer("k", operator.add)

        assert before.channel("k").reducer is None

    def test_a_subclass_may_have_a_state_of_its_own(self):
        class App(CompiledGraph):
            calls = 0

        app = line("a")._build(App, recursion_limit=5)
        app.calls += 1

        assert isinstance(app, App)
        assert (app.calls, app.recursion_limit) == (1, 5)

    def test_an_unknown_option_is_a_type_error(self):
        with pytest.raises(TypeError, match="recursion"):
            line("a")._build(CompiledGraph, recursion=5)

    @pytest.mark.parametrize(
        ("options", "words"),
        [
            ({"recursion_limit": 0}, "recursion_limit is 0; give an int of 1 or more"),
            ({"recursion_limit": None}, "recursion_limit is None; give an int of 1 or more"),
            ({"recursion_limit": True}, "recursion_limit is True"),
            ({"max_concurrency": 0}, "max_concurrency is 0; .* or None for no limit"),
            ({"step_timeout": 0}, "step_timeout is 0; give more than 0 seconds"),
            ({"run_timeout": "1"}, "run_timeout is '1'; give seconds"),
            ({"failure_policy": "stop"}, "failure_policy is 'stop'; give 'proceed' or 'panic'"),
        ],
    )
    def test_an_unfit_option_is_a_fault(self, options, words):
        with pytest.raises(InvalidGraph, match=words):
            line("a").compile(**options)

    @pytest.mark.parametrize("name", ["", None, "__g", "a:b", "x" * 129])
    def test_a_graph_needs_a_fit_name(self, name):
        with pytest.raises(InvalidGraph, match="the graph's name"):
            Graph(name=name)

    @pytest.mark.parametrize("version", [0, -1, "1", True, 1.0])
    def test_a_version_is_an_int_of_1_or_more(self, version):
        with pytest.raises(InvalidGraph, match="version is"):
            Graph(name="g", version=version)
