"""The checkpoints of a thread, newest first, a page at a time: no read is held open between two pages."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from beamweaver.checkpoint._image import Reader, Recipe
from beamweaver.checkpoint._stream import Head, is_checkpoint

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from beamweaver.checkpoint._stream import Stream
    from beamweaver.checkpoint.records import HeadRow, ThreadImage, ThreadRow

__all__ = ["Ask", "Page", "history", "read_page"]

_CHECKPOINTS: Final = 16
"""How many checkpoints are read in one transaction."""
_RECORDS: Final = 1_000
"""How many records are looked at in one transaction: there may be many entries between two checkpoints."""


class Ask(msgspec.Struct, frozen=True):
    """What a page is to hold: how many checkpoints at the most, and whether their values."""

    count: int
    values: bool


class Page(msgspec.Struct, frozen=True):
    """Some checkpoints of one snapshot; `before` is where the next page goes on, None at the end."""

    row: ThreadRow
    next_seq: int
    recipes: tuple[Recipe, ...]
    before: int | None


def read_page(stream: Stream, row: ThreadRow, marks: HeadRow, before: int | None, ask: Ask) -> Page:
    """One page of checkpoints below `before`, the newest first.

    Raises:
        CorruptRecord: A record that one of them needs is missing or damaged.
    """
    last = next(stream.back(), None)
    next_seq = max(marks.floor, 0 if last is None else last.seq + 1)
    reader = Reader(row.thread_id, stream.get)
    recipes: list[Recipe] = []
    for seen, record in enumerate(stream.back(before), start=1):
        if is_checkpoint(record):
            reader.known[record.seq] = record
            recipes.append(reader.recipe(record, values=ask.values))
        if len(recipes) == ask.count or seen == _RECORDS:
            return Page(row, next_seq, tuple(recipes), record.seq)
    return Page(row, next_seq, tuple(recipes), None)


def history(
    page_of: Callable[[int | None, Ask], Page | None],
    *,
    before: int | None,
    limit: int | None,
    values: bool,
) -> Iterator[ThreadImage]:
    """All checkpoints, by pages that are read when they are needed.

    Args:
        page_of: Reads the page below a `seq`; None if the thread does not exist.
        before: Only checkpoints below this `seq`; None for all.
        limit: How many at the most; None for all.
        values: Whether the images carry values.
    """
    born: int | None = None
    left = limit
    at = before
    while left is None or left > 0:
        count = _CHECKPOINTS if left is None else min(left, _CHECKPOINTS)
        page = page_of(at, Ask(count, values))
        if page is None or (born is not None and page.row.created_us != born):
            return  # the thread was deleted meanwhile
        born = page.row.created_us
        for recipe in page.recipes:
            yield recipe.image(page.row, Head(recipe.record, (), page.next_seq, tip=False))
        left = None if left is None else left - len(page.recipes)
        if page.before is None:
            return
        at = page.before
