"""How a store grows: with appended values, many channels, readers, short threads, long histories."""

from __future__ import annotations

import itertools
import multiprocessing
import time
from typing import TypedDict

from beamweaver import END, START, Command, Graph
from beamweaver.checkpoint import Codec, LMDBCheckpointer
from beamweaver.checkpoint.deltas import appended, join
from beamweaver.checkpoint.records import Chain, DeltaRow
from tests.checkpoint.kit import step

_CODEC = Codec()
_PAGES_A_COMMIT = 4
_MANY = 1_200
_ITEM = "x" * 1_021  # three bytes of msgpack make it 1 KiB


def _size(store):
    """The bytes of the store's file that were ever used."""
    return (store._path / "data.mdb").stat().st_size


class Log:
    """A thread whose list grows by an item a step, as an engine stores it."""

    def __init__(self, store, epoch, name):
        self.store, self.epoch, self.name = store, epoch, name
        self.value, self.chain, self.seq = [], None, 0

    def grow(self, item):
        self.value.append(item)
        delta = join([appended(_CODEC.encode([item]))])
        changes = {"writes": {"n": b"\x01"}}
        if self.chain is not None and self.chain.takes(len(delta)):
            changes["deltas"] = {"log": DeltaRow(self.seq - 1, delta)}
            self.chain = self.chain.with_delta(len(delta))
        else:
            changes["writes"]["log"] = _CODEC.encode(self.value)
            self.chain = Chain(len(changes["writes"]["log"]))
        if self.seq % 64 == 0:
            changes["versions"] = {"n": self.seq, "log": self.seq}
        assert self.store.commit(self.epoch, [step(self.name, self.seq, **changes)]) == [None]
        self.seq += 1


def appending(path, share):
    """Performance P6, peers 45: stored at most 3 times the payload, steps as cheap at the end."""
    count = max(400, int(10_000 * share))
    store = LMDBCheckpointer(path, survives="process-kill")
    log = Log(store, store.acquire(), "t")
    times = []
    for _ in range(count):
        began = time.perf_counter()
        log.grow(_ITEM)
        times.append(time.perf_counter() - began)
    ratio = _size(store) / (count * 1024)
    value = _CODEC.decode(store.load("t").values["log"])
    store.close()
    early, late = sorted(times[50:150])[50], sorted(times[-100:])[50]
    wrong = [] if value == log.value else ["the value is another"]
    wrong += [] if ratio <= 3 else [f"stored {ratio:.2f} times the payload"]
    figures = {"steps": count, "ratio": round(ratio, 2), "late_to_early": round(late / early, 2)}
    return figures, wrong


def untouched(path, _share):
    """Performance P7: a channel of 10 MB that nobody writes costs nothing."""
    store = LMDBCheckpointer(path, survives="process-kill")
    epoch = store.acquire()
    store.commit(epoch, [step("t", 0, writes={"big": bytes(10_000_000), "n": b"0"})])
    for seq in range(1, 101):
        store.commit(epoch, [step("t", seq)])
    size = _size(store)
    store.close()
    return {"megabytes": round(size / 1e6, 2)}, [] if size <= 11_000_000 else ["too large"]


def many_channels(path, share):
    """A graph of 1,200 channels whose steps write one: a step costs what changed, not what there is."""
    steps = max(64, int(640 * share))
    sizes = {
        number: _of_channels(path.with_name(f"{path.name}-{number}"), number, steps)
        for number in (2, _MANY)
    }
    # All versions are written each 64 steps: a name and a number of each channel.
    maps = (steps // 64 + 2) * _MANY * 16
    more = sizes[_MANY] - sizes[2]
    wrong = [] if more <= 2 * maps + 100_000 else [f"{more} bytes more than with two channels"]
    return {"steps": steps, "bytes": sizes[_MANY], "bytes with 2 channels": sizes[2]}, wrong


def _of_channels(path, number, steps):
    """What a store takes after a run of so many steps."""
    names = [f"channel_{at:04}" for at in range(number)]
    graph = Graph(TypedDict("Channels", dict.fromkeys(names, int)), name="wide")

    def count(state):
        n = state[names[0]] + 1
        return Command(update={names[0]: n}, goto="count" if n < steps else END)

    graph.add_node("count", count, destinations=("count", END)).add_edge(START, "count")
    store = LMDBCheckpointer(path, survives="process-kill")
    with graph.compile(checkpointer=store, recursion_limit=steps + 1) as app:
        outcome = app.invoke(dict.fromkeys(names, 0), thread_id="t")
        history = list(itertools.islice(app.get_state_history("t"), 3))
    size = _size(store)
    store.close()
    assert outcome.state == dict.fromkeys(names, 0) | {names[0]: steps}
    assert [len(view.values) for view in history] == [number] * 3
    return size


def _read(path, ends):
    store = LMDBCheckpointer(path, survives="process-kill")
    while time.monotonic() < ends:
        for row in list(store.threads(limit=20)):
            store.load(row.thread_id)
            list(store.history(row.thread_id, limit=20))
    store.close()


def readers(path, share):
    """Eight processes read while one writes: the file does not grow without end."""
    store = LMDBCheckpointer(path, survives="process-kill", shallow=True)
    epoch = store.acquire()
    ends = time.monotonic() + max(4.0, 60.0 * share)
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=_read, args=(path, ends)) for _ in range(8)]
    for process in processes:
        process.start()
    seqs = dict.fromkeys(range(20), 0)
    sizes, commits, began = [], 0, time.monotonic()
    while time.monotonic() < ends:
        for number, seq in seqs.items():
            store.commit(epoch, [step(f"t{number}", seq, writes={"n": bytes(2_000)})])
            seqs[number] = seq + 1
        commits += len(seqs)
        sizes.append((time.monotonic() - began, _size(store)))
    for process in processes:
        process.join()
    store.close()
    marks = [sizes[len(sizes) * part // 4 - 1][1] for part in (1, 2, 3, 4)]
    # A reader that waits for a processor amid a read holds what is written meanwhile, so the size is the
    # longest such wait. Were pages not used again, the last quarter would add all that it wrote.
    written = commits * _PAGES_A_COMMIT * 4096 // 4
    figures = {"commits": commits, "megabytes": [round(size / 1e6, 2) for size in marks]}
    wrong = [] if marks[3] - marks[2] <= written // 10 else [f"it grew on: {marks}"]
    wrong += [f"a reader ended with {p.exitcode}" for p in processes if p.exitcode]
    return figures, wrong


def short_threads(path, share):
    """Threads made and deleted: the size returns to its plateau."""
    count = max(1_000, int(10_000 * share))
    store = LMDBCheckpointer(path, survives="process-kill")
    epoch = store.acquire()
    sizes = []
    for number in range(count):
        name = f"thread {number}"
        store.commit(epoch, [step(name, seq, writes={"n": bytes(500)}) for seq in range(5)])
        if number >= 50:
            store.delete_thread(epoch, f"thread {number - 50}")
        sizes.append(_size(store))
    store.close()
    plateau, last = sizes[count // 4], sizes[-1]
    wrong = [] if last <= plateau * 1.2 else [f"it grew from {plateau} to {last}"]
    return {"threads": count, "megabytes": round(last / 1e6, 2)}, wrong


def long_history(path, share):
    """A thread of 10,000 checkpoints: a page of history takes at most 5 ms."""
    count = max(1_000, int(10_000 * share))
    store = LMDBCheckpointer(path, survives="process-kill")
    lengthen(store, store.acquire(), count)
    times = []
    for before in (None, count // 2, count // 4, None, None):
        began = time.perf_counter()
        page = list(store.history("t", before=before, limit=16))
        times.append(time.perf_counter() - began)
        assert len(page) == 16
    store.close()
    middle = sorted(times)[2] * 1_000
    return {"page_ms": round(middle, 2)}, [] if middle <= 5 else [f"a page takes {middle:.1f} ms"]


def lengthen(store, epoch, count):
    """Make a thread of so many checkpoints, of 20 channels in turn."""
    for start in range(0, count, 500):
        steps = [
            step("t", seq, writes={f"c{seq % 20}": b"x" * 50})
            for seq in range(start, min(start + 500, count))
        ]
        for one in steps[::64]:
            one.record.checkpoint.writes["mark"] = b"1"
        store.commit(epoch, [_full(one) for one in steps])


def _full(one):
    """The commit with a full map of versions each 64 steps."""
    seq = one.record.seq
    if seq % 64 or not seq:
        return one
    own = one.record.checkpoint.writes
    names = {f"c{number}": seq - (seq - number) % 20 for number in range(20)}
    versions = {name: at for name, at in names.items() if at >= 0} | dict.fromkeys(own, seq)
    return step(one.thread_id, seq, writes=own, versions=versions)


MEASURES = {
    "appending": appending,
    "untouched": untouched,
    "many channels": many_channels,
    "readers": readers,
    "short threads": short_threads,
    "long history": long_history,
}
