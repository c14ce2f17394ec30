"""What it costs to walk a value, beside one that is encoded natively.

`python -m benchmarks.walk` takes one state twice: with a declared type that is native, and with none, so that
each value is walked and its types are written down; and encodes and decodes both.
"""

from __future__ import annotations

import sys
import timeit
from typing import Any, TypedDict

from beamweaver.checkpoint import Codec

__all__ = ["main"]

_TRIES = 15


class _Line(TypedDict):
    name: str
    count: int
    prices: list[float]


def _least(call: Any, times: int) -> float:
    """Microseconds of a call, the least of some tries."""
    return min(timeit.repeat(call, number=times, repeat=_TRIES)) / times * 1e6


def main() -> int:
    """Print a line for each size."""
    codec = Codec()
    native = codec.plan(list[_Line])
    for count in (1, 10, 100):
        plain = [
            {"name": f"line {at}", "count": at, "prices": [at * 1.5] * 4} for at in range(count)
        ]
        walked = [
            {**line, "prices": tuple(line["prices"])} for line in plain
        ]  # a tuple is never native
        times = max(10, 2_000 // count)
        row = []
        for way, value in ((native, plain), (codec, walked)):
            data = way.encode(value)
            if way.decode(data) != value:
                raise ValueError(f"{value} came back as another value")
            row += [
                _least(lambda way=way, value=value: way.encode(value), times),
                _least(lambda way=way, data=data: way.decode(data), times),
            ]
        print(
            f"{count} dicts of 6 values: native {row[0]:.1f} µs to encode, {row[1]:.1f} to decode; "
            f"walked {row[2]:.1f} and {row[3]:.1f}"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
