"""The work of the demo: what it says of source files."""

from __future__ import annotations

from beamweaver.demo.index import (
    KINDS,
    direct_report,
    entry,
    find_sources,
    measure,
    parse,
    read_source,
    thinned,
)

SOURCE = '''"""A module."""
import os, os.path
from collections import abc
from . import sibling

class A(abc.Sized, Exception):
    """A class."""
    def f(self, a, /, b, *, c): pass
    async def g(self): pass

def h():
    """A function."""
    def inner(x):
        return x
    return inner
'''


def of(text, path="m.py"):
    return entry(path, text, parse(text), [measure(kind, text) for kind in KINDS])


def test_a_file_is_counted_by_functions_classes_and_docstrings():
    found = of(SOURCE)

    assert (found["functions"], found["classes"], found["methods"]) == (4, 1, 1)
    assert found["arguments"] == 6
    assert found["documented"] == [3, 6]


def test_only_absolute_imports_are_listed_once_by_their_first_name():
    assert of(SOURCE)["imports"] == ["collections", "os"]


def test_the_longest_function_has_its_name_with_that_of_its_class():
    assert of("class A:\n def f(self):\n  x\n  y\ndef g(): z\n")["longest"] == [[3, "A.f", 2]]


def test_an_empty_file_is_counted_too():
    assert of("") == of("", "m.py")
    assert of("")["longest"] == []


def test_the_order_of_measures_does_not_matter():
    measures = [measure(kind, SOURCE) for kind in reversed(KINDS)]

    assert entry("m.py", SOURCE, parse(SOURCE), measures) == of(SOURCE)


def test_tests_and_installed_packages_are_left_out(tmp_path):
    for name in ("b.py", "a/c.py", "a/test/t.py", "site-packages/p.py", "a/data.txt"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("")

    assert find_sources(tmp_path) == ["a/c.py", "b.py"]


def test_a_file_is_read_in_the_encoding_that_it_declares(tmp_path):
    (tmp_path / "m.py").write_bytes("# coding: latin-1\nx = 'é'\n".encode("latin-1"))

    assert "é" in read_source(tmp_path, "m.py")


def test_fewer_files_are_spread_evenly():
    paths = [f"{number:02}" for number in range(10)]

    assert thinned(paths, 3) == ["00", "03", "06"]
    assert thinned(paths, None) == thinned(paths, 10) == thinned(paths, 99) == paths


def test_the_report_adds_up_its_files(tmp_path):
    (tmp_path / "a.py").write_text(SOURCE)
    (tmp_path / "b.py").write_text("import os\ndef f(): pass\n")
    found = direct_report(tmp_path, ["b.py", "a.py"])

    assert (found["files"], found["functions"], found["classes"]) == (2, 5, 1)
    assert found["imports"] == [("os", 2), ("collections", 1)]
    assert list(found["index"]) == ["a.py", "b.py"]
