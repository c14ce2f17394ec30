"""What the demo proves, and what it found instead."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

__all__ = ["Verdict", "ledger_faults", "report_faults"]

_NAMED = 5


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """The end of a demo.

    Attributes:
        ok: Whether nothing is wrong.
        faults: What is wrong, a sentence each.
        files: How many files were to be indexed.
        indexed: How many are in the report.
        report_equal: Whether the report equals that of an uninterrupted run.
        ledger_lines: How many lines the ledger has.
        kills_wanted: How many kills were asked for.
        kills: How many tasks had begun when each SIGKILL was sent; fewer than asked for if the work
            was done before the others were due.
        tasks: How many tasks ran.
        reran: How many of them started more than once, by node.
        seconds: How long the child's lives took together.
        direct_seconds: How long the uninterrupted run took, without a store.
        seed: What drew the moments of the kills.
        report: Where the report is.
        ledger: Where the ledger is.
        store: Where the store is, or None if it was removed.
    """

    ok: bool
    faults: list[str]
    files: int
    indexed: int
    report_equal: bool
    ledger_lines: int
    kills_wanted: int
    kills: list[int]
    tasks: int
    reran: dict[str, int]
    seconds: float
    direct_seconds: float
    seed: int
    report: str
    ledger: str
    store: str | None


def report_faults(report: Mapping[str, Any], expected: Mapping[str, Any]) -> list[str]:
    """How a report differs from that of an uninterrupted run.

    Example:
        >>> report_faults({"files": 1, "index": {}}, {"files": 1, "index": {"a.py": {}}})
        ['1 file is not indexed: a.py']
    """
    index, wanted = report.get("index", {}), expected["index"]
    missing = [path for path in wanted if path not in index]
    extra = [path for path in index if path not in wanted]
    differing = [path for path in wanted if path in index and index[path] != wanted[path]]
    totals = [key for key in expected if key != "index" and report.get(key) != expected[key]]
    return [
        *_named(missing, "file", "is not indexed", "are not indexed"),
        *_named(extra, "file", "was not asked for", "were not asked for"),
        *_named(differing, "file", "differs from the direct run", "differ from the direct run"),
        *(
            _named(totals, "total", "differs from the direct run", "differ from the direct run")
            if not (missing or extra or differing)
            else ()
        ),
    ]


def ledger_faults(lines: Sequence[Mapping[str, Any]], expected: Mapping[str, Any]) -> list[str]:
    """What is wrong with a ledger: keys or files twice, files missing, or another content.

    Example:
        >>> line = {"key": "k", "path": "a.py", "digest": "d"}
        >>> ledger_faults([line, line], {"index": {"a.py": {"digest": "d"}}})
        ['1 ledger key is there more than once: k', '1 ledger file is there more than once: a.py']
    """
    wanted = expected["index"]
    keys = _repeated(line["key"] for line in lines)
    paths = _repeated(line["path"] for line in lines)
    written = {line["path"]: line["digest"] for line in lines}
    missing = [path for path in wanted if path not in written]
    wrong = [
        path
        for path, digest in written.items()
        if path not in wanted or wanted[path]["digest"] != digest
    ]
    return [
        *_named(keys, "ledger key", "is there more than once", "are there more than once"),
        *_named(paths, "ledger file", "is there more than once", "are there more than once"),
        *_named(missing, "file", "is not in the ledger", "are not in the ledger"),
        *_named(wrong, "ledger line", "has another content", "have another content"),
    ]


def _repeated(values: Iterable[str]) -> list[str]:
    return [value for value, count in Counter(values).items() if count > 1]


def _named(names: Sequence[str], noun: str, one: str, many: str) -> list[str]:
    if not names:
        return []
    rest = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    what = f"{len(names)} {noun} {one}" if len(names) == 1 else f"{len(names)} {noun}s {many}"
    return [f"{what}: {', '.join(names[:_NAMED])}{rest}"]
