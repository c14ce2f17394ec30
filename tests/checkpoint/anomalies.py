"""Each call of an operation fails, or is the process's last: what is left, and whether it goes on."""

from __future__ import annotations

import errno
import shutil

from beamweaver.checkpoint.verify import verify
from beamweaver.errors import StoreError
from tests.checkpoint.cuts import LINK, MARK, judge, now_or_next, read_log
from tests.checkpoint.full_store import pairs_of
from tests.checkpoint.operations import OPERATIONS, copy_of, filled
from tests.checkpoint.workload import digest

PAGES = 2 * 4096
"""The two pages at the start of a file that tell which transaction is the newest."""
_ERRORS = (errno.EIO, errno.ENOSPC)


class Anomaly:
    """An operation on a filled store, of which each case gets a copy.

    Args:
        bench: What runs the cases.
        name: Which operation.
        survives: The stores' class.

    Attributes:
        calls: What an undisturbed run does: kind, offset, bytes of each call.
        errors: What the last call that was made to fail raised, and then the one that was made again.
    """

    def __init__(self, bench, name, survives):
        self._bench, self._name, self._survives = bench, name, survives
        self._whole = bench.folder / f"whole-{survives}"
        if not self._whole.exists():
            filled(self._whole)
        before = digest(pairs_of(self._whole))
        answer = self._run(states=True, log=str(bench.log))
        assert (answer["code"], answer["errors"]) == (0, []), answer
        self._states = [before, *answer["states"]]
        self.calls = [call for call in read_log(bench.log) if call[0] not in (MARK, LINK)]
        assert len(self.calls) == answer["calls"], answer

    def fail(self, nth, **fault):
        """Let a call fail, and all that follow if `for_ever`; a text if something is wrong then."""
        answer = self._run(states=True, again=not fault["for_ever"], fail=nth, **fault)
        self.errors = answer["errors"]
        what = f"{self._name}, {self._survives}, call {nth} of {len(self.calls)}, {fault}"
        if answer["signal"] or answer["code"] not in (0, 3):
            return f"{what}: {answer}"
        wrong = "" if fault["for_ever"] else self._went_on(answer["errors"])
        wrong = wrong or self._judge(answer)
        return wrong and f"{what}, {answer['errors']}: {wrong}"

    def kill(self, nth, after):
        """Kill the process before or after a call; a text if something is wrong then."""
        answer = self._run(states=True, kill=nth, after=after)
        wrong = f"not killed: {answer}" if answer["signal"] != 9 else self._judge(answer)
        return wrong and f"{self._name}, {self._survives}, killed at call {nth}, {after}: {wrong}"

    def _judge(self, answer):
        last = [self._states[0], *answer["states"]][-1]
        wrong = judge(self._path, now_or_next(self._states, last), 0)
        return wrong or self._copied() or self._finished()

    @property
    def _path(self):
        return self._bench.folder / "case" / "s"

    def _run(self, **request):
        shutil.copytree(self._whole, self._bench.place() / "s")
        return self._bench.ask(0, operation=self._name, survives=self._survives, **request)

    def _went_on(self, errors):
        """A store that was full takes the call when there is room; a broken one takes none any more."""
        first, *again = errors or [""]
        if first == "store_broken":
            return "" if again == [first] else f"a broken store went on: {again}"
        if first != "store_full" or not again:
            return ""
        return f"a full store did not go on: {again}"

    def _copied(self):
        """A copy that was begun is whole, or says that it is not."""
        copy = copy_of(str(self._path))
        try:
            if not verify(copy).sound:
                return ""
        except StoreError:
            return ""
        same = digest(pairs_of(copy)) == digest(pairs_of(self._path))
        return "" if same else "the copy is sound and another"

    def _finished(self):
        """Made again by the next owner, the operation ends where it would have ended."""
        if self._ended() or not OPERATIONS[self._name].owned:
            return ""
        answer = self._bench.ask(0, operation=self._name, survives=self._survives)
        if answer["code"]:
            return f"made again: {answer}"
        return "" if self._ended() else "made again it ended elsewhere"

    def _ended(self):
        return digest(pairs_of(self._path)) == self._states[-1]


def loop(anomaly):
    """Each call of an operation fails, once and from there on, and each is the last; a text of each case."""
    for nth in range(1, len(anomaly.calls) + 1):
        for error in _ERRORS:
            for for_ever in (0, 1):
                yield anomaly.fail(nth, error=error, for_ever=for_ever)
        for after in (0, 1):
            yield anomaly.kill(nth, after)
