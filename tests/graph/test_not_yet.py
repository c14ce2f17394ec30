"""What nothing acts on yet is refused by compile(), never ignored."""

from __future__ import annotations

from typing import TypedDict

import pytest

from beamweaver.errors import InvalidGraph
from beamweaver.graph import Graph, _not_yet, not_supported_yet
from beamweaver.types import START


class State(TypedDict):
    n: int


def nothing(state):
    return None


def one(version=1, **options):
    return Graph(State, name="g", version=version).add_node("a", nothing, **options)


DECLARED = {
    "isolation": lambda: one(isolation="process"),
    "cache": lambda: one(cache=object()),
}
OTHER_WAYS = {
    "a default cache": lambda: one().set_node_defaults(cache=object()),
}
OPTIONS = {
    "cache": {"cache": object()},
}


def refused(builder, **options):
    with pytest.raises(InvalidGraph) as caught:
        builder.add_edge(START, "a").compile(**options)
    return caught.value.faults


@pytest.mark.parametrize("feature", DECLARED)
def test_a_declaration_that_nothing_acts_on_is_refused_with_a_cure(feature):
    (fault,) = refused(DECLARED[feature]())
    name, cure = _not_yet.NOT_YET[feature]

    assert fault.endswith(f"{name} is not supported yet; {cure}")


@pytest.mark.parametrize("what", OTHER_WAYS)
def test_every_way_to_declare_it_is_refused(what):
    (fault,) = refused(OTHER_WAYS[what]())

    assert "is not supported yet" in fault


@pytest.mark.parametrize("feature", OPTIONS)
def test_an_option_of_compile_that_nothing_acts_on_is_refused_with_a_cure(feature):
    (fault,) = refused(one(version=2), **OPTIONS[feature])
    name, cure = _not_yet.NOT_YET[feature]

    assert fault == f"{name} is not supported yet; {cure}"


def test_every_row_of_the_table_is_refused_by_one_of_these_tests():
    assert set(_not_yet.NOT_YET) <= {*DECLARED, *OPTIONS}


@pytest.mark.usefixtures("everything")
@pytest.mark.parametrize("feature", DECLARED)
def test_without_its_row_a_declaration_compiles(feature):
    assert DECLARED[feature]().add_edge(START, "a").compile().nodes


@pytest.mark.usefixtures("everything")
@pytest.mark.parametrize("feature", OPTIONS)
def test_without_its_row_an_option_of_compile_is_taken(feature):
    assert one(version=2).add_edge(START, "a").compile(**OPTIONS[feature]).nodes


def test_what_is_not_asked_for_is_not_refused():
    compiled = (
        one()
        .add_edge(START, "a")
        .compile(
            interrupt_before=(),
            interrupt_after=[],
            on_failure=None,
            migrations={},
            cache=None,
        )
    )

    assert compiled.interrupt_before == frozenset()


def test_it_comes_together_with_all_other_faults():
    faults = refused(one(cache=object()).add_edge("a", "x"), recursion_limit=0)

    assert len(faults) == 3


def test_a_page_may_list_what_is_refused():
    assert not_supported_yet() == dict(_not_yet.NOT_YET.values())
