"""Pydantic's own judgement of a field, without importing pydantic."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from beamweaver.graph._fields import form_of
from beamweaver.graph._typecheck import Checker, Fault

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["judge_of"]


def judge_of(model: Any, key: str) -> Callable[[Checker], Checker] | None:
    """Lets constraints and validators of a model's field judge values too; None if it has none.

    They judge and convert nothing: a value that pydantic would have to convert is of the wrong type.
    Validators of the model as a whole are not asked, since an update has only some of its keys.
    """
    if form_of(model) != "pydantic" or not _judges(model, key):
        return None
    return lambda inner: _checker(model, key, inner)


def _judges(model: Any, key: str) -> bool:
    """Whether a field has more than a type: constraints, or a validator in the model's class."""
    decorators = model.__pydantic_decorators__.field_validators.values()
    constraints = [each for each in model.__pydantic_fields__[key].metadata if not callable(each)]
    return bool(constraints) or any(
        key in each.info.fields or "*" in each.info.fields for each in decorators
    )


def _checker(model: Any, key: str, inner: Checker) -> Checker:
    validator = model.__pydantic_validator__

    def look(value: object) -> Fault | None:
        fault = inner.fault(value)
        if fault is not None:
            return fault
        try:
            validator.validate_assignment(model.model_construct(), key, value)
        except ValueError as error:  # pydantic's ValidationError is one
            return _own(error, key, value)
        return None

    return Checker(inner.text, (), look)


def _own(error: Any, key: str, value: object) -> Fault | None:
    """What the field itself says; what the rest of a model lacks is no fault of an update."""
    for each in error.errors(include_url=False) if hasattr(error, "errors") else ():
        if each["loc"][:1] == (key,):
            path = "".join(f"[{part!r}]" for part in each["loc"][1:])
            said = str(each["msg"]).rstrip(".")
            return (path, f"what pydantic takes ({said})", each.get("input", value))
    return None
