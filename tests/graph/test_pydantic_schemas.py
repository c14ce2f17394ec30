"""Pydantic models as schemas: their own constraints and validators judge updates, and convert nothing."""

from __future__ import annotations

import sys
from typing import Annotated

import pytest

from beamweaver.errors import InvalidGraph, InvalidUpdate
from beamweaver.graph import Graph, append, normalize_input
from beamweaver.types import START

pydantic = pytest.importorskip("pydantic")
pytestmark = pytest.mark.usefixtures("everything")


class Model(pydantic.BaseModel):
    url: str
    pages: int = pydantic.Field(default=0, ge=0)


def build(schema):
    return Graph(schema, name="g").add_node("a", lambda state: None).add_edge(START, "a")


def test_the_models_module_is_found_without_importing_pydantic():
    for name, module in list(sys.modules.items()):
        if name.startswith("beamweaver.graph"):
            assert getattr(module, "pydantic", None) is None


def test_constraints_of_a_field_judge_its_updates():
    with pytest.raises(InvalidUpdate) as caught:
        normalize_input(build(Model).compile(), {"pages": -1})

    assert str(caught.value) == (
        "the input has -1 (int) for the key 'pages'; expected what pydantic takes (Input should be "
        "greater than or equal to 0). Give a value of type int, or change the type of 'pages'"
    )


def test_validators_of_a_field_judge_its_updates():
    class Even(pydantic.BaseModel):
        n: int = 0

        @pydantic.field_validator("n")
        @classmethod
        def even(cls, n: int) -> int:
            if n % 2:
                raise ValueError("n is odd")
            return n

    compiled = build(Even).compile()

    assert normalize_input(compiled, {"n": 2}).writes == (("n", 2, False),)
    with pytest.raises(InvalidUpdate, match=r"pydantic takes \(Value error, n is odd\)"):
        normalize_input(compiled, {"n": 3})


def test_what_the_rest_of_a_model_lacks_is_no_fault_of_an_update():
    assert normalize_input(build(Model).compile(), {"pages": 1}).writes == (("pages", 1, False),)


def test_an_alias_is_refused():
    class Aliased(pydantic.BaseModel):
        url: str = pydantic.Field(alias="URL")

    with pytest.raises(InvalidGraph, match="Aliased.url has the alias 'URL'"):
        build(Aliased)


def test_a_factory_makes_the_start_of_a_reducers_key():
    class Started(pydantic.BaseModel):
        log: Annotated[list[str], append] = pydantic.Field(default_factory=lambda: ["start"])

    assert build(Started).compile().channels["log"].initial() == ["start"]


def test_a_wrong_type_is_told_before_pydantic_is_asked():
    with pytest.raises(InvalidUpdate, match=r"'1' \(str\) for the key 'pages'; expected int"):
        normalize_input(build(Model).compile(), {"pages": "1"})


def test_an_error_of_another_field_is_no_fault_of_an_update():
    class Checked(pydantic.BaseModel):
        low: int = pydantic.Field(default=0, ge=0)
        high: int = 0

        @pydantic.model_validator(mode="after")
        def ordered(self):
            raise ValueError("low is above high")

    assert normalize_input(build(Checked).compile(), {"low": 1}).writes == (("low", 1, False),)


def test_an_item_of_a_list_is_named():
    class Listed(pydantic.BaseModel):
        marks: list[Annotated[int, pydantic.Field(ge=0)]] = pydantic.Field(default=[], max_length=9)

    with pytest.raises(
        InvalidUpdate, match=r"-1 \(int\) for the key 'marks' at marks\[1\]; expected what"
    ):
        normalize_input(build(Listed).compile(), {"marks": [1, -1]})
