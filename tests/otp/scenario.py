"""The scenarios, as data: files of titles and steps, and tables that are expanded to one for each row.

A scenario begins with its title, `# ` and a sentence that is true; lines of words follow, one step
each; an empty line ends it. Words with `=` in them are options. A table after the steps makes an
outline of it: each row gives one scenario, with `<column>` replaced in title and steps; a step that is
empty then is left out. `rule` lines name what a scenario covers. `docs/design/otp-differential.md`
describes the steps.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

__all__ = ["FOLDER", "Scenario", "Step", "load", "plain_text"]

FOLDER = Path(__file__).parent


class Step(msgspec.Struct, frozen=True):
    """One line: its words, and its options."""

    line: str
    words: tuple[str, ...]
    options: dict[str, str]


class Scenario(msgspec.Struct, frozen=True):
    """One scenario. `topic` is the name of its file."""

    topic: str
    title: str
    lines: tuple[str, ...]
    rule: str = ""

    def steps(self) -> list[Step]:
        return [parse(line) for line in self.lines]


def parse(line: str) -> Step:
    words = line.split()
    pairs = [word.split("=", 1) for word in words if "=" in word]
    return Step(line, tuple(word for word in words if "=" not in word), dict(pairs))


def load() -> list[Scenario]:
    """Return all scenarios, in the order of their files."""
    found = [
        scenario
        for path in sorted((FOLDER / "scenarios").glob("*.txt"))
        for block in path.read_text().split("\n\n")
        if block.strip()
        for scenario in _expand(path.stem, block.strip().splitlines())
    ]
    titles = [scenario.title for scenario in found]
    twice = {title for title in titles if titles.count(title) > 1}
    if twice:
        raise ValueError(f"each scenario needs a title of its own; these are there twice: {twice}")
    return found


def _expand(topic: str, block: list[str]) -> list[Scenario]:
    title, *rest = block
    if not title.startswith("# "):
        raise ValueError(f"{topic}: a scenario begins with '# title', not with {title!r}")
    rule = " ".join(line.removeprefix("rule ") for line in rest if line.startswith("rule "))
    lines = [line for line in rest if not line.startswith(("|", "rule "))]
    table = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in rest if line[0] == "|"
    ]
    rows = [dict(zip(table[0], row, strict=True)) for row in table[1:]] if table else [{}]
    return [
        Scenario(
            topic,
            _fill(title.removeprefix("# "), row),
            tuple(line for line in (_fill(line, row) for line in lines) if line),
            rule,
        )
        for row in rows
    ]


def _fill(line: str, row: dict[str, str]) -> str:
    for column, value in row.items():
        line = line.replace(f"<{column}>", value)
    return " ".join(line.split())


def plain_text(scenarios: list[Scenario]) -> str:
    """Return the expanded scenarios as the one text that the Erlang side reads."""
    return "\n\n".join("\n".join([f"# {s.title}", *s.lines]) for s in scenarios) + "\n"
