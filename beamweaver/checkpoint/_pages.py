"""Reads the pages of an LMDB 0.9 file without LMDB, which believes what it reads and may crash on it.

Only what `verify` needs: the two meta pages, and the walk through a tree of pages with every rule that a
whole page obeys. Where a page breaks one, the walk says which keys cannot be found any more, and goes on.
"""

from __future__ import annotations

import mmap
from itertools import pairwise
from struct import Struct
from typing import TYPE_CHECKING, Final

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

__all__ = ["EMPTY", "Lost", "MetaPage", "Node", "PageFile", "Tree", "Walk", "first_lost"]

EMPTY: Final = 0xFFFF_FFFF_FFFF_FFFF
"""The root of a tree without pages."""
_MAGIC: Final = 0xBEEF_C0DE
_VERSION: Final = 1
_HEAD: Final = Struct("<QHHHH")
_OVERFLOW_HEAD: Final = Struct("<QHHI")
_NODE: Final = Struct("<HHHH")
_META: Final = Struct("<IIQQ")
_TREE: Final = Struct("<IHHQQQQQ")
_TAIL: Final = Struct("<QQ")
_BRANCH, _LEAF, _BIG = 1, 2, 4
_KINDS: Final = 0x6F  # the flags that tell kinds of pages apart; the others are LMDB's notes
_IN_OVERFLOW: Final = 1
_LONGEST_KEY: Final = 511


class Tree(msgspec.Struct, frozen=True):
    """What a meta page says of one tree."""

    page_bytes: int
    depth: int
    branch_pages: int
    leaf_pages: int
    overflow_pages: int
    entries: int
    root: int


class MetaPage(msgspec.Struct, frozen=True):
    """One of the two pages that begin the file: the newer one counts."""

    number: int
    txnid: int
    last_page: int
    free: Tree
    main: Tree


class Node(msgspec.Struct, frozen=True):
    """A key and its value; `reason` tells why the value cannot be read."""

    key: bytes
    value: bytes
    reason: str = ""


class Lost(msgspec.Struct, frozen=True):
    """A damaged page: all keys with `start <= key < stop` are lost; None has no bound."""

    page: int
    start: bytes
    stop: bytes | None
    reason: str


class _Damaged(Exception):
    """A page breaks a rule."""


class PageFile:
    """The pages of a data file.

    Args:
        path: The file; it must not be empty.
    """

    def __init__(self, path: Path) -> None:
        with path.open("rb") as file:
            self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        self.page_bytes = self._page_bytes()

    def close(self) -> None:
        """Close the file."""
        self._map.close()

    def _page_bytes(self) -> int:
        """The size of a page, as the first meta page says, or as most machines have it."""
        if len(self._map) >= 152:
            size = _TREE.unpack_from(self._map, 16 + _META.size)[0]
            if 512 <= size <= 1 << 16 and size & (size - 1) == 0:
                return int(size)
        return mmap.PAGESIZE

    def meta(self, number: int) -> MetaPage | str:
        """One of the meta pages, or what is wrong with it."""
        start = number * self.page_bytes
        if len(self._map) < start + 152:
            return "the file ends before it"
        page, _, flags, _, _ = _HEAD.unpack_from(self._map, start)
        magic, version, _, _ = _META.unpack_from(self._map, start + 16)
        if (page, flags & 0x0F, magic, version) != (number, 8, _MAGIC, _VERSION):
            return "it is no meta page of LMDB 0.9"
        at = start + 16 + _META.size
        trees = [self._tree(at), self._tree(at + _TREE.size)]
        last, txnid = _TAIL.unpack_from(self._map, at + 2 * _TREE.size)
        if txnid % 2 != number and txnid:
            return f"it says transaction {txnid}, which belongs on the other page"
        if trees[0].page_bytes != self.page_bytes:
            return f"it says pages of {trees[0].page_bytes} bytes"
        return MetaPage(number, txnid, last, *trees)

    def _tree(self, at: int) -> Tree:
        pad, _, depth, *counts = _TREE.unpack_from(self._map, at)
        return Tree(pad, depth, *counts)

    def page(self, number: int) -> memoryview | None:
        """The bytes of a page, or None if the file ends before its end."""
        start = number * self.page_bytes
        if number < 2 or start + self.page_bytes > len(self._map):
            return None
        return memoryview(self._map)[start : start + self.page_bytes]

    def run(self, number: int, size: int) -> bytes | str:
        """The `size` bytes of a value on pages of its own, or what is wrong with them."""
        start = number * self.page_bytes
        count = (16 + size + self.page_bytes - 1) // self.page_bytes
        if number < 2 or start + count * self.page_bytes > len(self._map):
            return f"its pages from {number} on are beyond the end of the file"
        page, _, flags, pages = _OVERFLOW_HEAD.unpack_from(self._map, start)
        if (page, flags & _KINDS, pages) != (number, _BIG, count):
            return f"page {number} is not the first of its {count} pages"
        return self._map[start + 16 : start + 16 + size]


class Walk:
    """One walk through a tree. When it is over, `pages` holds the numbers of all pages of it.

    Args:
        file: The file.
        tree: What the meta page says of the tree.
        order: From a key to what it is compared by.
    """

    def __init__(self, file: PageFile, tree: Tree, order: Callable[[bytes], object]) -> None:
        self._file = file
        self._tree = tree
        self._order = order
        self.pages: set[int] = set()
        self.entries = 0
        self._leaves = 0
        self._branches = 0
        self._overflow = 0

    def items(self) -> Iterator[Node | Lost]:
        """All nodes in order, and what is lost between them."""
        if self._tree.root == EMPTY:
            return
        lost = 0
        for item in self._page(self._tree.root, b"", None, 1):
            lost += isinstance(item, Lost)
            yield item
        tree = self._tree
        found = (self._branches, self._leaves, self._overflow, self.entries)
        said = (tree.branch_pages, tree.leaf_pages, tree.overflow_pages, tree.entries)
        if not lost and found != said:
            yield Lost(
                self._tree.root,
                b"",
                None,
                f"the tree has (branch pages, leaf pages, overflow pages, keys) {found} and says {said}",
            )

    def _page(
        self, number: int, low: bytes, high: bytes | None, depth: int
    ) -> Iterator[Node | Lost]:
        try:
            nodes = self._nodes(number, depth)
        except _Damaged as damage:
            yield Lost(number, low, high, str(damage))
            return
        if depth < self._tree.depth:
            self._branches += 1
            yield from self._children(nodes, number, low, high, depth)
        else:
            self._leaves += 1
            yield from self._leaf(nodes, number, low, high)

    def _nodes(self, number: int, depth: int) -> list[tuple[bytes, int, int, memoryview]]:
        """Key, size or page, flags and data of each node of a page that keeps the rules.

        Raises:
            _Damaged: It does not.
        """
        page = self._file.page(number)
        if page is None:
            raise _Damaged("the file ends before it")
        if number in self.pages:
            raise _Damaged("it is in the tree twice")
        self.pages.add(number)
        own, _, flags, lower, upper = _HEAD.unpack_from(page)
        kind = _BRANCH if depth < self._tree.depth else _LEAF
        if own != number or flags & _KINDS != kind:
            raise _Damaged(f"its head says page {own} of kind {flags & _KINDS}, not {kind}")
        size = len(page)
        if not 16 < lower <= upper <= size or lower % 2:
            raise _Damaged("its head says impossible bounds")
        nodes = [
            _node(page, int.from_bytes(page[at : at + 2], "little"), upper, kind)
            for at in range(16, lower, 2)
        ]
        if sum(_even(8 + len(key) + len(data)) for key, _, _, data in nodes) != size - upper:
            raise _Damaged("its nodes do not fill it")
        return nodes

    def _children(
        self,
        nodes: list[tuple[bytes, int, int, memoryview]],
        number: int,
        low: bytes,
        high: bytes | None,
        depth: int,
    ) -> Iterator[Node | Lost]:
        bounds = [low, *(key for key, _, _, _ in nodes[1:])]
        if not self._sorted(bounds, high):
            yield Lost(number, low, high, "its keys are not in order")
            return
        for index, (_, child, _, _) in enumerate(nodes):
            stop = bounds[index + 1] if index + 1 < len(bounds) else high
            yield from self._page(child, bounds[index], stop, depth + 1)

    def _leaf(
        self,
        nodes: list[tuple[bytes, int, int, memoryview]],
        number: int,
        low: bytes,
        high: bytes | None,
    ) -> Iterator[Node | Lost]:
        keys = [key for key, _, _, _ in nodes]
        if not self._sorted(keys, high) or (low and self._order(keys[0]) < self._order(low)):  # type: ignore[operator] # keys of one tree compare
            yield Lost(number, low, high, "its keys are not in order")
            return
        for key, size, flags, data in nodes:
            self.entries += 1
            if flags != _IN_OVERFLOW:
                yield Node(key, bytes(data))
                continue
            first = int.from_bytes(data, "little")
            value = self._file.run(first, size)
            if isinstance(value, str):
                yield Node(key, b"", value)
                continue
            count = (16 + size + self._file.page_bytes - 1) // self._file.page_bytes
            taken = range(first, first + count)
            if not self.pages.isdisjoint(taken):
                yield Node(key, b"", "its pages belong to something else too")
                continue
            self._overflow += count
            self.pages.update(taken)
            yield Node(key, value)

    def _sorted(self, keys: list[bytes], high: bytes | None) -> bool:
        ordered = [self._order(key) for key in keys if key]
        if high is not None:
            ordered.append(self._order(high))
        return all(a < b for a, b in pairwise(ordered))  # type: ignore[operator] # keys of one tree compare


def first_lost(path: Path) -> Lost | None:
    """The first page in use that cannot be read, of the newest moment of a file; None if all can."""
    file = PageFile(path)
    try:
        metas = [meta for meta in map(file.meta, (0, 1)) if isinstance(meta, MetaPage)]
        for meta in sorted(metas, key=lambda meta: meta.txnid)[-1:]:
            for walk in (
                Walk(file, meta.main, bytes),
                Walk(file, meta.free, lambda key: int.from_bytes(key, "little")),
            ):
                for item in walk.items():
                    if isinstance(item, Lost):
                        return item
        return None
    finally:
        file.close()


def _even(size: int) -> int:
    return size + (size & 1)


def _node(page: memoryview, at: int, upper: int, kind: int) -> tuple[bytes, int, int, memoryview]:
    """Key, size of the value or child page, flags, and data of the node at a place.

    Raises:
        _Damaged: No node can be there.
    """
    if at < upper or at + 8 > len(page) or at % 2:
        raise _Damaged("a pointer of it points nowhere")
    low, high, flags, key_size = _NODE.unpack_from(page, at)
    size = low | high << 16
    if kind == _BRANCH:
        size |= flags << 32
        length = 0
    else:
        length = 8 if flags == _IN_OVERFLOW else size
    start = at + 8 + key_size
    bad_flags = kind == _LEAF and flags not in (0, _IN_OVERFLOW)
    if key_size > _LONGEST_KEY or start + length > len(page) or bad_flags:
        raise _Damaged("a node of it is impossible")
    return bytes(page[at + 8 : start]), size, flags, page[start : start + length]
