"""The demo's parent: starts the child, kills it, starts it again, and judges what is left."""

from __future__ import annotations

import os
import select
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from shutil import rmtree
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

from beamweaver.demo.graph import TASKS_A_FILE
from beamweaver.demo.index import direct_report, find_sources, thinned
from beamweaver.demo.journal import Journal
from beamweaver.demo.kills import kill_points
from beamweaver.demo.ledger import read_ledger
from beamweaver.demo.verdict import Verdict, ledger_faults, report_faults
from beamweaver.demo.wire import Finished, Line, decode_line

if TYPE_CHECKING:
    from beamweaver.demo.index import Entry

__all__ = ["DemoFailed", "Options", "Progress", "run_demo"]

_READ = 1 << 16
_STALL = 60
"""Seconds without a word after which the child is given up."""


class DemoFailed(Exception):  # it says how the demo ended
    """The demo could not be carried out; the text says why."""


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """What a demo does.

    Attributes:
        kills: How often the child is killed.
        seed: What draws the moments.
        files: How many files to index; None for all.
        store: Where the store is made; None for a temporary one.
        report: Where the report goes; None for a new temporary folder.
        root: The folder to index; None for the installed standard library.
    """

    kills: int = 4
    seed: int = 0
    files: int | None = None
    store: Path | None = None
    report: Path | None = None
    root: Path | None = None


class Progress(msgspec.Struct, frozen=True, kw_only=True):
    """Where a demo is."""

    phase: str
    done: int
    total: int
    life: int
    kills: tuple[int, ...]


Watch: TypeAlias = Callable[[Progress], None]


class _Places(msgspec.Struct, frozen=True, kw_only=True):
    root: Path
    folder: Path
    store: Path
    report: Path

    @property
    def ledger(self) -> Path:
        return self.folder / "ledger.jsonl"

    @property
    def files(self) -> Path:
        return self.folder / "files.json"

    @property
    def log(self) -> Path:
        return self.folder / "child.log"


def run_demo(options: Options, watch: Watch = lambda _progress: None) -> Verdict:
    """Run the demo.

    Args:
        options: What to do.
        watch: Called with the progress, some hundred times a second at most.

    Returns:
        The verdict; `ok` says whether all claims held.

    Raises:
        DemoFailed: It could not be carried out: nothing to index, the store's path is taken, or the
            child ended by itself with an error.
    """
    if options.store is not None and options.store.exists():
        raise DemoFailed(f"{options.store} exists; give a new path, or remove it")
    root = options.root or Path(sysconfig.get_paths()["stdlib"])
    paths = thinned(find_sources(root), options.files)
    if not paths:
        raise DemoFailed(f"there are no Python source files under {root}")
    total = len(paths) * TASKS_A_FILE
    try:
        points = kill_points(total=total, kills=options.kills, seed=options.seed)
    except ValueError as error:
        raise DemoFailed(str(error)) from None
    places = _places(options, root)
    places.files.write_bytes(msgspec.json.encode(paths))
    lives = _Lives(places, points, total, watch)
    began = time.perf_counter()
    lives.run()
    seconds = time.perf_counter() - began
    watch(lives.progress("checking"))
    began = time.perf_counter()
    expected = direct_report(places.root, paths)
    direct_seconds = time.perf_counter() - began
    if options.store is None:
        rmtree(places.store, ignore_errors=True)
    return _judge(options, places, lives, expected, seconds, direct_seconds)


def _places(options: Options, root: Path) -> _Places:
    folder = Path(tempfile.mkdtemp(prefix="beamweaver-demo-"))
    return _Places(
        root=root,
        folder=folder,
        store=options.store or folder / "store",
        report=options.report or folder / "report.json",
    )


class _Lives:
    """The child's lives, one after the other."""

    def __init__(self, places: _Places, points: list[int], total: int, watch: Watch) -> None:
        self.journal = Journal()
        self.kills: list[int] = []
        self._places = places
        self._points = points
        self._total = total
        self._watch = watch

    def progress(self, phase: str) -> Progress:
        return Progress(
            phase=phase,
            done=min(self.journal.acknowledged, self._total),
            total=self._total,
            life=self.journal.life,
            kills=tuple(self.kills),
        )

    def run(self) -> None:
        while not self._live():
            self.journal.begin_life()

    def _live(self) -> bool:
        """One life; whether it finished the work."""
        finished = False
        killed = False
        child, events = self._start()
        try:
            for lines in _batches(events):
                for line in lines:
                    self.journal.take(line)
                    finished = finished or isinstance(line, Finished)
                if not killed and not finished and self._is_due():
                    child.kill()  # SIGKILL: no handler, no clean-up, no last word
                    killed = True
                    self.kills.append(self.journal.tasks)
                self._watch(self.progress("indexing"))
        finally:
            os.close(events)
            child.kill()
            code = child.wait()
        if not (finished or killed):
            raise DemoFailed(f"the child ended with code {code}:\n{self._last_words()}")
        return finished

    def _is_due(self) -> bool:
        made = len(self.kills)
        return made < len(self._points) and self.journal.tasks >= self._points[made]

    def _start(self) -> tuple[subprocess.Popen[bytes], int]:
        places = self._places
        events, to_parent = os.pipe()
        command = [sys.executable, "-m", "beamweaver.demo.child", "--events", str(to_parent)]
        for name in ("store", "root", "ledger", "files", "report"):
            command += [f"--{name}", str(getattr(places, name))]
        try:
            with places.log.open("ab") as log:
                child = subprocess.Popen(  # noqa: S603  # our own module
                    command, pass_fds=[to_parent], stdin=subprocess.DEVNULL, stdout=log, stderr=log
                )
        except BaseException:  # whatever it is: give back what was taken, and let it pass
            os.close(events)
            raise
        finally:
            os.close(to_parent)
        return child, events

    def _last_words(self) -> str:
        return "\n".join(self._places.log.read_text(errors="replace").splitlines()[-20:])


def _batches(events: int) -> Iterator[list[Line]]:
    """Lines as they come, those of one read together, until the child is gone."""
    rest = b""
    while True:
        ready, _, _ = select.select([events], [], [], _STALL)
        if not ready:
            raise DemoFailed(f"the child said nothing for {_STALL} s; it hangs")
        data = os.read(events, _READ)
        if not data:
            return
        *lines, rest = (rest + data).split(b"\n")
        yield [decode_line(line) for line in lines]


def _judge(
    options: Options,
    places: _Places,
    lives: _Lives,
    expected: dict[str, Any],
    seconds: float,
    direct_seconds: float,
) -> Verdict:
    # Through JSON, as the child's report has gone.
    expected = msgspec.json.decode(msgspec.json.encode(expected))
    found: dict[str, Entry] = msgspec.json.decode(places.report.read_bytes())
    lines = read_ledger(places.ledger)
    different = report_faults(found, expected)
    faults = [*different, *ledger_faults(lines, expected), *lives.journal.faults]
    return Verdict(
        ok=not faults,
        faults=faults,
        files=len(expected["index"]),
        indexed=len(found.get("index", {})),
        report_equal=found == expected,
        ledger_lines=len(lines),
        kills_wanted=options.kills,
        kills=lives.kills,
        tasks=lives.journal.tasks,
        reran=lives.journal.reran,
        seconds=round(seconds, 3),
        direct_seconds=round(direct_seconds, 3),
        seed=options.seed,
        report=str(places.report),
        ledger=str(places.ledger),
        store=None if options.store is None else str(places.store),
    )
