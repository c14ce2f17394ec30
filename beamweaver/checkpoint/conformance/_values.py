"""Values of any size and type come back as they went."""

from __future__ import annotations

import collections
import datetime as dt
import decimal
import fractions
import uuid
import zoneinfo
from pathlib import PurePosixPath
from typing import Any, Final

from beamweaver.checkpoint.codec import Codec
from beamweaver.checkpoint.conformance._check import Place, check, expect
from beamweaver.checkpoint.conformance._kit import begun, step, values, write

_CODEC = Codec()
EVERY: Final[dict[str, Any]] = {
    "none": None,
    "bool": True,
    "ints": [0, -1, 2**63 - 1, -(2**63), 2**200, -(2**200)],
    "floats": [0.0, -0.0, 1e308, 5e-324, float("inf")],
    "text": ["", "é", "😀", "\ud800", "a\x00b"],
    "bytes": [b"", bytes(range(256)), bytearray(b"x")],
    "sequences": [(), (1, (2,)), collections.deque([1, 2], maxlen=5), range(1, 10, 3)],
    "sets": [set(), {1, 2}, frozenset({(1, 2)})],
    "maps": [
        {},
        {"a": {"b": {}}},
        {1: "int", "1": "text", None: "none"},
        collections.OrderedDict([("z", 1), ("a", 2)]),
        collections.defaultdict(list, {"a": [1]}),
        collections.Counter("abca"),
    ],
    "times": [
        dt.datetime(2024, 2, 29, 23, 59, 59, 999_999),  # noqa: DTZ001 a naive one is meant
        dt.datetime(2024, 10, 27, 2, 30, tzinfo=zoneinfo.ZoneInfo("Europe/Berlin"), fold=1),
        dt.datetime(2024, 1, 1, tzinfo=dt.timezone(dt.timedelta(hours=5, minutes=30))),
        dt.date(1, 1, 1),
        dt.time(23, 59, tzinfo=dt.UTC),
        dt.timedelta(days=-1, microseconds=1),
    ],
    "numbers": [decimal.Decimal("1.10"), fractions.Fraction(1, 3), complex(1, -2)],
    "others": [uuid.UUID(int=5), PurePosixPath("/a/b"), ValueError("x").args],
}


@check("values")
def every_type_comes_back_as_it_went(place: Place) -> None:
    store = place.open()
    epoch = begun(store)
    write(
        store,
        epoch,
        step("t", 0, writes={name: _CODEC.encode(value) for name, value in EVERY.items()}),
    )
    found = values(place.reopened(store), "t") or {}
    for name, value in EVERY.items():
        expect(repr(_CODEC.decode(found[name])), repr(value), name)


@check("large values")
def values_of_any_size_come_back(place: Place) -> None:
    store = place.open()
    epoch = begun(store)
    sizes = (0, 1, 2_000, 4_096, 65_536, 5_000_000)
    written = {str(size): bytes(range(256)) * (size // 256) + bytes(size % 256) for size in sizes}
    write(store, epoch, step("t", 0, writes=written))
    found = values(place.reopened(store), "t") or {}
    expect(found == written, wanted=True)


@check("large values")
def a_thread_of_many_channels_comes_back(place: Place) -> None:
    store = place.open()
    epoch = begun(store)
    written = {f"channel {number}": b"%d" % number for number in range(1_200)}
    write(store, epoch, step("t", 0, writes=written), step("t", 1, writes={"channel 7": b"x"}))
    expect(values(place.reopened(store), "t") == {**written, "channel 7": b"x"}, wanted=True)


@check("values")
def any_text_of_up_to_256_bytes_names_a_thread(place: Place) -> None:
    store = place.open()
    names = ["a", "a b/c", "é" * 128, "x" * 256, "\x01", "..", "\x7f\t\n", "😀"]
    begun(store, *names)
    found = [line.thread_id for line in place.reopened(store).threads()]
    expect(found, sorted(names))
