"""Erlang's side: processes under a `simple_one_for_one` supervisor, in an `erl` of this machine."""

from __future__ import annotations

import itertools
import shutil
import subprocess
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.comparison import Facts, Json, Side, Workload
from benchmarks.memory import resident
from benchmarks.side import PeerMissingError

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["many", "side", "simple"]

_SOURCE = Path(__file__).with_name("erlang") / "actors.erl"
_RELEASE = 'io:format("~s",[erlang:system_info(otp_release)]),halt().'


def side(target: str, **options: Json) -> Side:
    """An Erlang side; `target` is the name of a function here."""
    return Side("Erlang/OTP, processes", f"{__name__}:{target}", options)


class _Erl:
    """A running `erl` that does works and answers with their results."""

    def __init__(self, folder: str) -> None:
        place = folder or "."
        subprocess.run(["erlc", "-o", place, str(_SOURCE)], check=True, stdout=subprocess.DEVNULL)
        command = "erl -noshell -kernel logger_level none +P 1000000 -s actors main -pa"
        self.process = subprocess.Popen(
            [*command.split(), place], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def do(self, work: str, count: int = 0, batch: int = 0) -> int:
        stdin, stdout = self.process.stdin, self.process.stdout
        assert stdin is not None
        assert stdout is not None
        stdin.write(f"{{{work},{count},{batch}}}.\n")
        stdin.flush()
        return int(stdout.readline())


@contextmanager
def _running(facts: Facts, folder: str) -> Iterator[_Erl]:
    if shutil.which("erl") is None or shutil.which("erlc") is None:
        raise PeerMissingError("erl")
    command = ["erl", "-noshell", "-eval", _RELEASE]
    release = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    facts["versions"] = {"OTP": release}
    erl = _Erl(folder)
    try:
        yield erl
    finally:
        erl.process.communicate()


@contextmanager
def simple(
    facts: Facts, folder: str, *, work: str, batch: int = 0, **size: int
) -> Iterator[Workload]:
    """One work with its count, whatever that is called."""
    [count] = size.values()
    with _running(facts, folder) as erl:
        yield Workload(lambda: erl.do(work, count, batch), count)


@contextmanager
def many(facts: Facts, folder: str, *, work: str, children: int) -> Iterator[Workload]:
    """`start_all`, `tell_all` or `shut_down` of many children that are registered."""
    with _running(facts, folder) as erl:
        empty = resident(erl.process.pid)
        runs = itertools.count()

        def end_all() -> None:
            if next(runs) == 1:
                used = resident(erl.process.pid) - empty
                facts["bytes an actor"] = round(used / children)
            erl.do("end_all")

        before: Any = {
            "start_all": end_all,
            "tell_all": lambda: erl.do("memory"),
            "shut_down": lambda: erl.do("start_all", children),
        }[work]
        if work == "tell_all":
            erl.do("start_all", children)
        yield Workload(lambda: erl.do(work, children), children, before)
