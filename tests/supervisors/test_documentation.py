"""The documentation of `supervisors`: examples run, every public name has one, and types are right."""

from __future__ import annotations

import doctest
import importlib
import inspect
import pkgutil
import re
from pathlib import Path

import pytest

import supervisors

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "docs" / f"{name}.md" for name in ("supervision", "supervisors-by-example")]
MODULES = [
    module.name
    for module in pkgutil.walk_packages(supervisors.__path__, "supervisors.")
    if not module.name.endswith("_process_main")
]


@pytest.mark.parametrize("name", ["supervisors", *MODULES])
def test_the_examples_of_a_module_run(name):
    module = importlib.import_module(name)

    assert doctest.testmod(module, optionflags=doctest.ELLIPSIS).failed == 0


def _examples() -> str:
    pages = "".join(
        block
        for page in PAGES
        for block in re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)
    )
    docs = "".join(
        line
        for name in MODULES
        for line in (inspect.getsource(importlib.import_module(name)) or "").splitlines(
            keepends=True
        )
        if line.lstrip().startswith((">>> ", "... "))
    )
    return pages + docs


def test_every_public_name_is_in_an_example_that_runs():
    words = set(re.findall(r"\w+", _examples()))

    assert [name for name in supervisors.__all__ if name not in words] == []


@pytest.mark.parametrize("name", sorted(supervisors.__all__))
def test_every_public_class_and_function_is_documented(name):
    thing = getattr(supervisors, name)
    if inspect.isclass(thing) or inspect.isfunction(thing):
        assert thing.__doc__
