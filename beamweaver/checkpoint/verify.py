"""Looks through a whole store on a disk, and names everything in it that is damaged."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

import lmdb
import msgspec

from beamweaver.checkpoint._audit import Audit
from beamweaver.checkpoint._layout import describe
from beamweaver.checkpoint._lmdb_kv import DATA_FILE
from beamweaver.checkpoint._pages import Lost, MetaPage, PageFile, Walk
from beamweaver.checkpoint._place import check_kind
from beamweaver.checkpoint._registry import snapshot_of
from beamweaver.errors import CorruptRecord, NotAStore

if TYPE_CHECKING:
    from collections.abc import Iterator

    from beamweaver.checkpoint._pins import Pin

__all__ = ["Damage", "Verdict", "verify"]

_MOST: Final = 1_000
"""How many damages are named; the others are counted."""


class Damage(msgspec.Struct, frozen=True):
    """One thing that is wrong.

    Attributes:
        kind: `"record"`: the value of `key` is damaged, missing or does not fit the rest. `"page"`: a page is
            damaged, and all keys from `start` up to (not with) `stop` are lost. `"file"`: a meta page, or
            the list of free pages.
        reason: In words.
        key: The record, such as `record/order-17/3`.
        page: The number of the page.
        start: The first key that may be lost; empty for no bound.
        stop: The first key after those; empty for no bound.
    """

    kind: str
    reason: str
    key: str = ""
    page: int = -1
    start: str = ""
    stop: str = ""

    def __str__(self) -> str:
        if self.kind == "page":
            bounds = f"from {self.start or 'the first key'} up to {self.stop or 'the last key'}"
            return f"page {self.page} is damaged: {self.reason}; the keys {bounds} are lost"
        return f"{self.key or self.kind}: {self.reason}"


class Verdict(msgspec.Struct, frozen=True):
    """What was found.

    Attributes:
        keys: How many keys were read.
        threads: How many threads the store has.
        damages: What is wrong, at most 1,000.
        more: How many further damages are not named.
    """

    keys: int
    threads: int
    damages: tuple[Damage, ...]
    more: int = 0

    @property
    def sound(self) -> bool:
        """Whether nothing is wrong."""
        return not self.damages


def verify(path: str | os.PathLike[str]) -> Verdict:
    """Read every page and record of a store and see that all is whole. Nothing is changed.

    It needs neither ownership nor the code of any graph, and may run while the store is written: it looks at
    one moment of it. Until it is done, pages of that moment are not used again, so the file may grow.

    The pages are read without LMDB, so that a damaged file is judged and not believed. Beside checksums
    it checks that each record is of its thread and number, that each checkpoint has the values and the parent
    that it needs, and that the index of statuses fits the threads.

    Args:
        path: The store's folder.

    Returns:
        What was found.

    Raises:
        NotAStore: There is no store.

    Example:
        >>> import tempfile
        >>> from beamweaver.checkpoint import LMDBCheckpointer
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     store = LMDBCheckpointer(folder + "/s", survives="process-kill")
        ...     _ = store.acquire()
        ...     store.close()
        ...     verify(folder + "/s").sound
        True
    """
    folder = Path(os.path.realpath(os.fsdecode(path)))
    check_kind(folder)
    file = folder / DATA_FILE
    if not file.exists() or not file.stat().st_size:
        raise NotAStore(f"{str(folder)!r} holds no store. Give the path of one", path=str(folder))
    while True:
        findings = _Findings()
        with _pinned(folder) as pin:
            pages = PageFile(file)
            try:
                _look(pages, None if pin is None else pin.txnid, findings)
            finally:
                pages.close()
            if pin is None or not pin.lost:
                return findings.verdict()
        # Somebody opened the store meanwhile, and may have written over what was looked at.


class _Findings:
    """Gathers damages, up to a bound."""

    def __init__(self) -> None:
        self._damages: list[Damage] = []
        self._more = 0
        self.audit = Audit()

    def add(self, damage: Damage) -> None:
        if len(self._damages) < _MOST:
            self._damages.append(damage)
        else:
            self._more += 1

    def verdict(self) -> Verdict:
        audit = self.audit
        return Verdict(audit.keys, audit.threads, tuple(self._damages), self._more)


@contextlib.contextmanager
def _pinned(folder: Path) -> Iterator[Pin | None]:
    """Hold the newest moment of a store; None if LMDB cannot open it."""
    with contextlib.ExitStack() as stack:
        try:
            yield stack.enter_context(snapshot_of(folder))
        except (lmdb.Error, CorruptRecord):
            yield None


def _look(pages: PageFile, txnid: int | None, findings: _Findings) -> None:
    metas = [pages.meta(number) for number in (0, 1)]
    for number, meta in enumerate(metas):
        if isinstance(meta, str):
            findings.add(Damage("file", f"meta page {number} is damaged: {meta}", page=number))
    whole = [meta for meta in metas if isinstance(meta, MetaPage)]
    if len(whole) == 2 and abs(whole[0].txnid - whole[1].txnid) > 1:
        findings.add(
            Damage(
                "file",
                f"the meta pages say transactions {whole[0].txnid} and {whole[1].txnid}, which do not "
                "follow each other: one of them is damaged",
            )
        )
    newest = [meta for meta in whole if meta.txnid == txnid] or sorted(
        whole, key=lambda meta: meta.txnid
    )
    if newest:
        _look_through(pages, newest[-1], findings)


def _look_through(pages: PageFile, meta: MetaPage, findings: _Findings) -> None:
    audit = findings.audit
    main = Walk(pages, meta.main, bytes)
    lost = False
    for item in main.items():
        if isinstance(item, Lost):
            lost = True
            stop = "" if item.stop is None else describe(item.stop)
            start = describe(item.start) if item.start else ""
            findings.add(Damage("page", item.reason, page=item.page, start=start, stop=stop))
            audit.skip(item.start, item.stop)
        else:
            for key, reason in audit.take(item.key, item.value, item.reason):
                findings.add(Damage("record", reason, key=describe(key)))
    for key, reason in audit.finish(complete=not lost):
        findings.add(Damage("record", reason, key=describe(key)))
    _look_at_free(pages, meta, main.pages, findings)


def _look_at_free(pages: PageFile, meta: MetaPage, used: set[int], findings: _Findings) -> None:
    """The list of free pages: a page in use must not be in it, or the next write would destroy it."""
    walk = Walk(pages, meta.free, lambda key: int.from_bytes(key, "little"))
    for item in walk.items():
        if isinstance(item, Lost):
            reason = f"the list of free pages is damaged at page {item.page}: {item.reason}"
            findings.add(Damage("file", reason, page=item.page))
            continue
        words = memoryview(item.value[: len(item.value) // 8 * 8]).cast("Q")
        free = list(words[1 : words[0] + 1]) if len(words) else []
        if item.reason or not len(words) or words[0] != len(free):
            findings.add(Damage("file", "a piece of the list of free pages is damaged"))
        elif not used.isdisjoint(free) or any(page > meta.last_page for page in free):
            findings.add(Damage("file", "the list of free pages names a page in use"))
    if not used.isdisjoint(walk.pages):
        findings.add(Damage("file", "the list of free pages lies on a page in use"))
