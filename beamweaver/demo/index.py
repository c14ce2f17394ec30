r"""The work of the demo as pure functions: index a Python source file.

The durable graph and the uninterrupted run that it is compared with both call these.

Example:
    >>> text = 'def f(a):\n    "Says f."\n    return a\n'
    >>> parsed = parse(text)
    >>> entry("f.py", text, parsed, [measure(kind, text) for kind in KINDS])["functions"]
    1
"""

from __future__ import annotations

import ast
import hashlib
import io
import os
import tokenize
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

__all__ = [
    "KINDS",
    "Entry",
    "Measure",
    "digest",
    "direct_report",
    "entry",
    "find_sources",
    "measure",
    "parse",
    "read_source",
    "report",
    "thinned",
]

Measure: TypeAlias = dict[str, Any]
Entry: TypeAlias = dict[str, Any]

_SKIPPED: Final = frozenset({"site-packages", "dist-packages", "test", "tests", "idle_test"})
_LONGEST: Final = 10
_Documented: TypeAlias = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def find_sources(root: Path) -> list[str]:
    """Source files under a folder, as sorted relative paths; tests and installed packages left out."""
    found: list[str] = []
    for folder, folders, files in os.walk(root):
        folders[:] = [name for name in folders if name not in _SKIPPED]
        below = Path(folder).relative_to(root)
        found.extend((below / name).as_posix() for name in files if name.endswith(".py"))
    return sorted(found)


def thinned(paths: list[str], count: int | None) -> list[str]:
    """`count` of the paths, evenly spread; all if it is None.

    Example:
        >>> thinned(["a", "b", "c", "d"], 2)
        ['a', 'c']
    """
    if count is None or count >= len(paths):
        return paths
    return [paths[index * len(paths) // count] for index in range(count)]


def read_source(root: Path, path: str) -> str:
    """A file's text, in the encoding that it declares."""
    data = (root / path).read_bytes()
    encoding, _ = tokenize.detect_encoding(io.BytesIO(data).readline)
    return io.TextIOWrapper(io.BytesIO(data), encoding).read()


def digest(text: str) -> str:
    """A short name of a text's content."""
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


def parse(text: str) -> Measure:
    """Sizes of a source text and what it imports."""
    tree = ast.parse(text)
    imports: set[str] = set()
    nodes = 0
    for node in ast.walk(tree):
        nodes += 1
        if isinstance(node, ast.Import):
            imports.update(alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            imports.add(node.module.partition(".")[0])
    return {"lines": text.count("\n"), "nodes": nodes, "imports": sorted(imports)}


def measure(kind: str, text: str) -> Measure:
    """One kind of measure of a source text: one of `KINDS`."""
    return {"kind": kind, **_MEASURES[kind](ast.parse(text))}


def _functions(tree: ast.Module) -> Measure:
    found = [(name, node) for name, node in _walk(tree) if not isinstance(node, ast.ClassDef)]
    lengths = sorted(
        ((_length(node), name, node.lineno) for name, node in found), key=lambda each: -each[0]
    )
    return {
        "count": len(found),
        "async": sum(isinstance(node, ast.AsyncFunctionDef) for _, node in found),
        "arguments": sum(_arguments(node) for _, node in found),
        "longest": [list(each) for each in lengths[:1]],
    }


def _classes(tree: ast.Module) -> Measure:
    found = [node for _, node in _walk(tree) if isinstance(node, ast.ClassDef)]
    methods = [part for node in found for part in node.body if isinstance(part, ast.FunctionDef)]
    bases = Counter(ast.unparse(base) for node in found for base in node.bases)
    ranked = sorted(bases.items(), key=lambda each: (-each[1], each[0]))
    return {"count": len(found), "methods": len(methods), "bases": [list(each) for each in ranked]}


def _docstrings(tree: ast.Module) -> Measure:
    places: list[_Documented] = [tree, *(node for _, node in _walk(tree))]
    texts = [text for text in map(ast.get_docstring, places) if text is not None]
    return {"places": len(places), "count": len(texts), "characters": sum(map(len, texts))}


_MEASURES: Final[dict[str, Callable[[ast.Module], Measure]]] = {
    "functions": _functions,
    "classes": _classes,
    "docstrings": _docstrings,
}
KINDS: Final = tuple(_MEASURES)
"""The kinds of measures; each is a task of its own."""


def _walk(
    tree: ast.AST, prefix: str = ""
) -> Iterator[tuple[str, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef]]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            name = f"{prefix}{node.name}"
            yield name, node
            yield from _walk(node, f"{name}.")
        else:
            yield from _walk(node, prefix)


def _length(node: ast.stmt) -> int:
    return (node.end_lineno or node.lineno) - node.lineno + 1


def _arguments(node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> int:
    if isinstance(node, ast.ClassDef):
        return 0
    args = node.args
    return len(args.posonlyargs) + len(args.args) + len(args.kwonlyargs)


def entry(path: str, text: str, parsed: Measure, measures: Iterable[Measure]) -> Entry:
    """All that the index says of one file."""
    by_kind = {each["kind"]: each for each in measures}
    functions, classes = by_kind["functions"], by_kind["classes"]
    docstrings = by_kind["docstrings"]
    return {
        "path": path,
        "digest": digest(text),
        **parsed,
        "functions": functions["count"],
        "longest": functions["longest"],
        "arguments": functions["arguments"],
        "classes": classes["count"],
        "methods": classes["methods"],
        "bases": classes["bases"],
        "documented": [docstrings["count"], docstrings["places"]],
    }


def report(entries: Iterable[Entry]) -> dict[str, Any]:
    """The report on all files."""
    files = sorted(entries, key=lambda each: str(each["path"]))
    imports = Counter(name for each in files for name in each["imports"])
    longest = [[*found, each["path"]] for each in files for found in each["longest"]]
    return {
        "files": len(files),
        **{
            what: sum(each[what] for each in files)
            for what in ("lines", "nodes", "functions", "arguments", "classes", "methods")
        },
        "documented": sum(each["documented"][0] for each in files),
        "documentable": sum(each["documented"][1] for each in files),
        "imports": sorted(imports.items(), key=lambda each: (-each[1], each[0]))[:_LONGEST],
        "longest": sorted(longest, key=lambda each: (-each[0], each[3]))[:_LONGEST],
        "index": {each["path"]: each for each in files},
    }


def direct_report(root: Path, paths: Iterable[str]) -> dict[str, Any]:
    """The report of a run that nothing interrupts: the same functions, called one after the other."""
    entries: list[Entry] = []
    for path in paths:
        text = read_source(root, path)
        measures = [measure(kind, text) for kind in KINDS]
        entries.append(entry(path, text, parse(text), measures))
    return report(entries)
