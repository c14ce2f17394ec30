"""Which test covers which row of the lists of cases: `python -m tests.rows [FOLDER]`.

A list is a file such as `graph.md`, and is not part of this repository: its folder is given as the argument,
or in the environment as `BEAMWEAVER_CASES`. A test names its rows where people read them: in its docstring,
its id or its name, as in "graph 12", "peers 27", "reference AJ", "mistakes: node returns 5", "C41".
What no test can cover yet, and what is to be otherwise here, is in `row_tables`, with the reason.

It ends with 1 if a row has neither a test nor a reason, or a table names a row that is not there.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from tests.row_tables import DIFFERENT, NAMED_BY_PLACE, NAMED_TESTS, OTHER_NAMES, WAITS
from tests.supervisors import rows as supervision

TESTS = Path(__file__).parent
_MARK = re.compile(
    r"\b(graph|compiled|channels|langgraph|peers|reference)`? (?:\d\.\d+ )?"
    r"([0-9A-Z][0-9A-Z/]*\b(?:(?:, | and |/)(?:row )?[0-9A-Z][0-9A-Z]*\b)*)"
)
_AT_THE_END = re.compile(r"\bdef test_\w+?_(reference|peers|graph|langgraph)_([a-z]{1,2}\d?|\d+)\(")
_NAME = re.compile(r"\bdef test_(?:(langgraph|graph)_)?([a-z]{1,2}\d?(?:_[a-z]{2})?|\d+)_")


class Report(NamedTuple):
    """How one list stands."""

    rows: list[str]
    covered: list[str]
    waits: dict[str, list[str]]
    different: dict[str, str]
    open: list[str]


# What the lists have ----------------------------------------------------------------------------


def numbered(text: str) -> list[str]:
    """The rows of a list whose tables are numbered."""
    return re.findall(r"^\| (\d+)\b[^|]*\|", text, re.MULTILINE)


def lettered(text: str) -> list[str]:
    """The rows of a list whose tables have letters."""
    found = re.findall(r"^\| \**([A-Z][A-Z0-9]*(?:/[A-Z0-9]+)*)\** \|", text, re.MULTILINE)
    # The heading of the table is "ID" too, and stands first.
    return [row for index, each in enumerate(found) if index for row in each.split("/")]


def listed(text: str) -> list[str]:
    """The rows of a list whose items are numbered."""
    return re.findall(r"^(\d+)\. ", text, re.MULTILINE)


def described(text: str) -> list[str]:
    """The rows of a table that are told apart by their first column."""
    cells = re.findall(r"^\| ([^|]+?) \|", text, re.MULTILINE)
    return [cell.replace("`", "") for cell in cells if cell != "mistake"]


LISTS: dict[str, tuple[str, Callable[[str], list[str]]]] = {
    "graph": ("graph.md", numbered),
    "langgraph": ("langgraph-behaviours.md", numbered),
    "reference": ("reference-defects.md", lettered),
    "peers": ("peers.md", listed),
    "mistakes": ("mistakes.md", described),
    "supervision": ("supervision.md", supervision.rows_of),
}


# What the tests name ----------------------------------------------------------------------------


def sources() -> Iterator[tuple[Path, str]]:
    """Each file of tests with its text."""
    for path in sorted(TESTS.rglob("*")):
        if path.suffix == ".py" and path.parent != TESTS and "__pycache__" not in path.parts:
            yield path, path.read_text()


def marks() -> dict[str, set[str]]:
    """For each list, the rows that tests name."""
    found: dict[str, set[str]] = {name: set() for name in LISTS}
    names: set[str] = set()
    for path, text in sources():
        for match in _MARK.finditer(text):
            name = OTHER_NAMES.get(match[1], match[1])
            found[name].update(re.findall(r"[0-9A-Z]+", match[2].replace(" and ", " ")))
        for match in _AT_THE_END.finditer(text):
            found[match[1]].add(match[2].upper())
        found["mistakes"].update(re.findall(r"mistakes: ([^\"`.]+)", text))
        place = NAMED_BY_PLACE.get(path.relative_to(TESTS).as_posix())
        if place is not None:
            for match in _NAME.finditer(text):
                found[match[1] or place].update(match[2].upper().split("_"))
        names.update(re.findall(r"def (test_\w+)", text))
    for name, tests in NAMED_TESTS.items():
        found[name].update(row for row, test in tests.items() if test in names)
    uncovered = set(supervision.uncovered())
    found["supervision"] = {row for row in supervision.known() if row not in uncovered}
    return found


def report(name: str, rows: list[str], named: set[str]) -> Report:
    """How a list stands: which rows have a test, a reason to wait, a reason to differ, or nothing."""
    waits = {
        reason: [row for row in rows if row in which and row not in named]
        for reason, which in WAITS.get(name, {}).items()
    }
    different = {row: why for row, why in DIFFERENT.get(name, {}).items() if row in rows}
    excused = {row for which in waits.values() for row in which} | different.keys()
    covered = [row for row in rows if row in named]
    open_ = [row for row in rows if row not in named and row not in excused]
    return Report(rows, covered, waits, different, open_)


def strangers(name: str, rows: list[str]) -> list[str]:
    """What the tables here name and the list does not have."""
    tables = [row for which in WAITS.get(name, {}).values() for row in which]
    tables += [*DIFFERENT.get(name, {}), *NAMED_TESTS.get(name, {})]
    return [row for row in tables if row not in rows]


def say(name: str, found: Report) -> None:
    """Print how a list stands."""
    print(f"{name}: {len(found.rows)} rows, {len(found.covered)} with a test")
    for reason, rows in found.waits.items():
        if rows:
            print(f"  waits for {reason}: {', '.join(rows)}")
    for row, why in found.different.items():
        print(f"  differs: {row}: {why}")
    if found.open:
        print(f"  without a test: {', '.join(found.open)}")


def main(argv: list[str]) -> int:
    """Print how all lists stand that are in the folder."""
    folder = argv[0] if argv else os.environ.get("BEAMWEAVER_CASES")
    if folder is None or not Path(folder).is_dir():
        print(f"give the folder of the lists, or set BEAMWEAVER_CASES (it is {folder!r})")
        return 2
    named, faults = marks(), 0
    for name, (file, rows_of) in LISTS.items():
        path = Path(folder) / file
        if not path.exists():
            print(f"{name}: no file {file}")
            continue
        rows = rows_of(path.read_text())
        found = report(name, rows, named[name])
        say(name, found)
        strange = strangers(name, rows)
        if strange:
            print(f"  in a table here, and not in the list: {', '.join(strange)}")
        faults += len(found.open) + len(strange)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
