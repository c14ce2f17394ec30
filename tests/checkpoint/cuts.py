"""What faults may leave of a store: kills between system calls, failing calls, and power cuts.

A power cut leaves the file as it was at the last sync, with any subset of the sectors written since.
"""

from __future__ import annotations

import os
import shutil
import struct
import tempfile
from pathlib import Path
from typing import NamedTuple

from beamweaver.checkpoint import LMDBCheckpointer
from beamweaver.checkpoint.verify import verify
from beamweaver.errors import StoreError
from tests.checkpoint.full_store import pairs_of
from tests.checkpoint.prepared import Prepared, compiled
from tests.checkpoint.workload import digest

WRITE, SYNC, TRUNCATE, MARK, DURABLE_WRITE, LINK, MAP = range(1, 8)
_HEAD = struct.Struct("<qqq")
_SECTOR = 512
_MEMORY = Path("/dev/shm")


class History(NamedTuple):
    """An undisturbed run: its states after each transaction, and how many calls and points it had."""

    states: list[str]
    calls: int
    points: int


class Bench:
    """A prepared process, and a folder for its cases. `available` tells whether it can be made here.

    The folder is in memory where the platform has one there: what a kill or a failing call leaves of a file,
    and which calls are made, is the same, and no disk is waited for.
    """

    def __init__(self):
        self.folder = Path(tempfile.mkdtemp(dir=_MEMORY if os.access(_MEMORY, os.W_OK) else None))
        self.log = self.folder / "log"
        self._library = Path(
            tempfile.mkdtemp()
        )  # memory may be mounted so that nothing is executed there
        library = compiled(self._library)
        self._prepared = None if library is None else Prepared(library)
        self.available = self._prepared is not None

    def close(self):
        if self._prepared is not None:
            self._prepared.close()
        for folder in (self.folder, self._library):
            shutil.rmtree(folder, ignore_errors=True)

    def place(self):
        shutil.rmtree(self.folder / "case", ignore_errors=True)
        (self.folder / "case").mkdir()
        return self.folder / "case"

    def ask(self, seed, **request):
        """Run a history in a fork; its store is in `case/s`."""
        return self._prepared.ask(path=str(self.folder / "case" / "s"), seed=seed, **request)

    def history(self, seed, **request):
        """An undisturbed run."""
        self.place()
        answer = self.ask(seed, states=True, **request)
        assert answer["code"] == 0, answer
        return History([digest([]), *answer["states"]], answer["calls"], answer["points"])


def killed(bench, seed, history, chance):
    """Kill a run at one of its system calls or points; a text if something is wrong with what it left."""
    bench.place()
    at = chance.randint(1, history.calls + history.points)
    if at <= history.calls:
        where = {"kill": at, "after": chance.randint(0, 1)}
    else:
        where = {"point": at - history.calls}
    answer = bench.ask(seed, **where)
    if answer["signal"] != 9:
        return f"seed {seed}: not killed at {where}: {answer}"
    wrong = judge(bench.folder / "case" / "s", history.states, len(answer["states"]))
    return wrong and f"seed {seed}, killed at {where}: {wrong}"


def failed(bench, seed, history, nth, *, error, for_ever, kinds):
    """Let a call of a run fail; a text if something is wrong with what it left."""
    states = history.states
    bench.place()
    answer = bench.ask(seed, fail=nth, error=error, for_ever=for_ever, kinds=kinds, states=True)
    name = f"seed {seed}, call {nth} fails with {error}, for_ever={for_ever}, kinds={kinds}"
    if answer["signal"] or answer["code"] not in (0, 3):
        return f"{name}: {answer}"
    last = [digest([]), *answer["states"]][-1]
    wrong = judge(bench.folder / "case" / "s", now_or_next(states, last), 0)
    if not wrong and not answer["states"] and answer["code"] == 0:
        wrong = "nothing was written"
    return wrong and f"{name}: {wrong}"


def now_or_next(states, last):
    """The last state that was acknowledged, and the one after it.

    A call that is made again is a transaction more, so states are found by what they hold.
    """
    later = states[len(states) - states[::-1].index(last) :][:1] if last in states else []
    return [last, *later]


def read_log(path):
    """What a run did to its file: kind, offset, bytes. The log is gone then."""
    data = path.read_bytes()
    path.unlink()
    at, found = 0, []
    while at < len(data):
        kind, offset, size = _HEAD.unpack_from(data, at)
        at += _HEAD.size
        found.append((kind, offset, data[at : at + size]))
        at += size
    return found


def recorded(bench, seed, **request):
    """The log of an undisturbed run and its states."""
    states = bench.history(seed, log=str(bench.log), **request).states
    return read_log(bench.log), states


def cut(log, chance):
    """One file that a power cut may leave, and how many transactions were acknowledged before it."""
    at = chance.randrange(len(log) + 1)
    image = bytearray()
    pending: list[tuple[int, bytes]] = []
    acknowledged = 0
    if LINK not in [kind for kind, _, _ in log[:at]]:  # the file is still beside its place
        return b"", 0
    for kind, offset, data in log[:at]:
        if kind == MARK:
            acknowledged = offset
        elif kind in (LINK, MAP):
            continue
        elif kind == SYNC:
            for place, part in pending:
                _lay(image, place, part)
            pending = []
        elif kind == TRUNCATE:
            del image[offset:]
            image.extend(bytes(offset - len(image)))
        elif kind == DURABLE_WRITE:
            _lay(image, offset, data)
        else:
            pending.append((offset, data))
    _lay_some(image, pending, chance)
    if at < len(log) and log[at][0] in (
        WRITE,
        DURABLE_WRITE,
    ):  # the cut may come amid the next write
        _lay_some(image, [log[at][1:]], chance)
    return bytes(image), acknowledged


def _lay(image, offset, data):
    if len(image) < offset + len(data):
        image.extend(bytes(offset + len(data) - len(image)))
    image[offset : offset + len(data)] = data


def _lay_some(image, pending, chance):
    how = chance.choice(["none", "all", "writes", "sectors", "sectors"])
    for offset, data in pending:
        if how == "all" or (how == "writes" and chance.random() < 0.5):
            _lay(image, offset, data)
        elif how == "sectors":
            for start in range(0, len(data), _SECTOR):
                if chance.random() < 0.5:
                    _lay(image, offset + start, data[start : start + _SECTOR])


def cut_off(bench, recording, chance):
    """Cut the power in a recorded run; a text if something is wrong with what is left."""
    log, states = recording
    image, acknowledged = cut(log, chance)
    place = bench.place() / "s"
    place.mkdir()
    if image:
        (place / "data.mdb").write_bytes(image)
    return judge(place, states, acknowledged)


def judge(path, states, acknowledged):
    """What is wrong with a store that a fault left; empty if nothing is.

    It must hold exactly what some transaction left, from the last acknowledged one on.
    """
    try:
        return _judge(path, states, acknowledged)
    except StoreError as error:
        return f"it cannot be read: {error}"


def _judge(path, states, acknowledged):
    data = path / "data.mdb"
    if not data.exists() or data.stat().st_size < 8192:
        return "" if not acknowledged else f"{acknowledged} transactions are lost with the file"
    verdict = verify(path)
    problems = [
        item for item in verdict.damages if item.kind != "file" or "meta" not in item.reason
    ]
    empty = {item.key for item in problems} <= {"meta", "epoch"} and verdict.keys < 2
    if problems and not empty:
        return f"it is damaged: {', '.join(map(str, problems[:3]))}"
    found = digest(pairs_of(path))
    if found not in states[acknowledged : acknowledged + 2]:
        where = [index for index, state in enumerate(states) if state == found]
        return f"it holds state {where} and {acknowledged} were acknowledged"
    return _opened(path)


def _opened(path):
    """Open it, read all of it, and own it."""
    path.mkdir(exist_ok=True)
    store = LMDBCheckpointer(path, survives="process-kill")
    try:
        for row in list(store.threads()):
            store.load(row.thread_id)
            list(store.history(row.thread_id))
        store.acquire()
    finally:
        store.close()
    return ""
