"""P11 and P8: starting, stopping, asking, telling and restarting supervised actors, and many at once.

Against Pykka's `ThreadingActor`, and against Erlang/OTP where `erl` is found.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from benchmarks import erlang_side, pykka_side, supervisors_side
from benchmarks.command import main
from benchmarks.comparison import Comparison, Json, Options, Size

if TYPE_CHECKING:
    from collections.abc import Mapping

    from benchmarks.comparison import Side

__all__ = ["COMPARISONS", "WITH_ERLANG", "WITH_PYKKA"]

_PYKKA = "Pykka has no supervisor: an actor starts, stops and replaces its children"
_ERLANG = "Erlang compiles to machine code, and its processes share nothing"


def _sizes(name: str, full: int, quick: int, **fixed: int) -> dict[Size, Options]:
    return {
        "full": {name: full, **fixed},
        "quick": {name: quick, **fixed},
        "tiny": {name: 2, **dict.fromkeys(fixed, 1)},
    }


def _comparison(
    work: str,
    name: str,
    unit: str,
    sizes: Mapping[Size, Options],
    peer: Side | None = None,
    **wanted: float,
) -> Comparison:
    counted = next(iter(sizes["full"]))

    def expected(options: Options) -> Json:
        return options[counted]

    return Comparison(
        id="P8" if work.endswith("_all") else "P11",
        name=name,
        unit=unit,
        ours=supervisors_side.side(work),
        peer=pykka_side.side(work) if peer is None else peer,
        sizes=sizes,
        expected=expected,
        needed=wanted.get("needed"),
        aim=wanted.get("aim"),
        note=_PYKKA if peer is None else _ERLANG,
    )


_CHILDREN = _sizes("children", 2_000, 500, batch=100)
_MESSAGES = _sizes("messages", 50_000, 10_000)
_ASKS = _sizes("messages", 5_000, 1_000)
_CRASHES = _sizes("crashes", 1_000, 200)

WITH_PYKKA = (
    _comparison(
        "start_stop",
        "start and stop under a supervisor, pipelined",
        "child",
        _CHILDREN,
        needed=10,
        aim=20,
    ),
    _comparison("ask", "ask from outside", "call", _ASKS, aim=1),
    _comparison("tell", "tell from outside", "message", _MESSAGES, aim=5),
    _comparison("restarts", "crash and restart of a child", "restart", _CRASHES),
    _comparison("start_all", "start actors that stay", "actor", _sizes("children", 2_000, 300)),
)
WITH_ERLANG = (
    _comparison(
        "start_stop",
        "start and stop under a supervisor, one by one there",
        "child",
        _CHILDREN,
        erlang_side.side("simple", work="start_stop"),
    ),
    _comparison(
        "ask_inside",
        "ask from actor to actor",
        "call",
        _ASKS,
        erlang_side.side("simple", work="ask"),
    ),
    _comparison(
        "tell_inside",
        "tell from actor to actor",
        "message",
        _MESSAGES,
        erlang_side.side("simple", work="tell"),
    ),
    _comparison(
        "restarts",
        "crash and restart of a child",
        "restart",
        _CRASHES,
        erlang_side.side("simple", work="restarts"),
    ),
    _comparison(
        "start_all",
        "start registered actors that stay",
        "actor",
        _sizes("children", 100_000, 5_000),
        erlang_side.side("many", work="start_all"),
    ),
    _comparison(
        "tell_all",
        "a message to each of them",
        "message",
        _sizes("children", 100_000, 5_000),
        erlang_side.side("many", work="tell_all"),
    ),
    _comparison(
        "shut_down",
        "end of a supervisor with its children",
        "child",
        _sizes("children", 10_000, 1_000),
        erlang_side.side("many", work="shut_down"),
    ),
)
COMPARISONS = (*WITH_PYKKA, *WITH_ERLANG)

if __name__ == "__main__":
    sys.exit(main(COMPARISONS))
