"""Sides for the tests of the harness: they compute at once what they are told to."""

import os
import threading
from contextlib import contextmanager
from pathlib import Path

from benchmarks.comparison import Comparison, Side, Workload
from benchmarks.side import PeerMissingError

HERE = "tests.benchmarks.sides"


@contextmanager
def answering(facts, folder, *, answer, units=1):
    facts["folder was empty"] = not list(Path(folder).iterdir())
    yield Workload(lambda: answer, units)
    facts["closed"] = True


@contextmanager
def printing(facts, folder, *, answer):
    def work():
        print("a library's chatter")
        return answer

    yield Workload(work, 1)


@contextmanager
def raising(facts, folder, *, answer):
    def work():
        raise RuntimeError(f"no {answer}")

    yield Workload(work, 1)


@contextmanager
def dying(facts, folder, *, answer):
    yield Workload(lambda: os._exit(7), 1)


@contextmanager
def hanging(facts, folder, *, answer):
    yield Workload(threading.Event().wait, 1)


@contextmanager
def absent(facts, folder, *, answer):
    raise PeerMissingError("a program")
    yield


def side(function="answering", needs=(), **options):
    return Side(f"the {function} side", f"{HERE}:{function}", options, tuple(needs))


def comparison(ours=None, peer=None, **changed):
    fields = {
        "id": "P0",
        "name": "nothing",
        "unit": "step",
        "ours": ours or side(),
        "peer": peer or side(),
        "sizes": {"tiny": {"answer": 5}, "quick": {"answer": 5}, "full": {"answer": 5}},
        "expected": lambda options: options["answer"],
        "runs": {"tiny": 3, "quick": 1, "full": 1},
    }
    return Comparison(**{**fields, **changed})
