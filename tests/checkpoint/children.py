"""What child processes of these tests do. Real processes: they are killed for real."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import resource
import signal
import threading

from beamweaver.checkpoint import LMDBCheckpointer, _owner, _registry, _shared
from beamweaver.checkpoint.store import RecordWriter
from beamweaver.errors import StoreError, StoreOwned
from tests.checkpoint.kit import begun, entry, step, thread_row

CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(["tests.checkpoint.children"])


@contextlib.contextmanager
def child(target, *args):
    """A child process with a pipe to it; it is dead when the block ends."""
    ours, theirs = CONTEXT.Pipe()
    process = CONTEXT.Process(target=target, args=(theirs, *args), daemon=True)
    process.start()
    theirs.close()
    try:
        yield process, ours
    finally:
        process.kill()
        process.join(10)
        ours.close()


def killed(target, *args):
    """Run a child that kills itself, and see that it did."""
    with child(target, *args) as (process, _pipe):
        process.join(15)
        assert process.exitcode == -signal.SIGKILL


def die():
    os.kill(os.getpid(), signal.SIGKILL)


def die_in_group(_pipe, path, survives, point, nth):
    """Commit a group and be killed at the nth time that a point is reached."""
    store = LMDBCheckpointer(path, survives=survives)
    epoch = begun(store, "a")
    seen = [0]

    def faults(reached):
        seen[0] += reached == point
        if reached == point and seen[0] == nth:
            die()

    store.faults = faults
    row = thread_row("a", "complete")
    store.commit(epoch, [entry("a", 1), step("a", 2, parent=0, thread=row), step("b", 0)])


def die_in_acquire(_pipe, path, place):
    """Take a store and be killed on the way."""
    lock, raise_epoch, sweep = _owner.OwnerFile.lock, RecordWriter.raise_epoch, _shared.sweep
    count = [0]

    def locking(*args):
        found = lock(*args)
        count[0] += 1
        if place == f"lock {count[0]}":
            die()
        return found

    def raising(*args):
        found = raise_epoch(*args)
        if place == "raised":
            die()
        return found

    def sweeping(*args):
        sweep(*args)
        if place == "swept":
            die()

    _owner.OwnerFile.lock = locking
    RecordWriter.raise_epoch = raising
    _shared.sweep = sweeping
    LMDBCheckpointer(path, survives="process-kill").acquire()


def own(pipe, path):
    """Own a store until told otherwise; answer commands on the way."""
    store = LMDBCheckpointer(path, survives="process-kill")
    epoch = store.acquire()
    pipe.send(epoch)
    for command in iter(pipe.recv, "end"):
        if command == "begin":
            pipe.send(store.commit(epoch, [step("child", 0)]))
        if command == "write all":
            try:
                store.commit(epoch, [step("child", 1), step("other", 0)])
            except StoreError as error:
                pipe.send(error.code)
    store.close()


def own_and_stand_still(pipe, path):
    """Own a store and stand still in the middle of a write."""
    store = LMDBCheckpointer(path, survives="process-kill")
    epoch = begun(store, "t")

    def faults(point):
        if point == "put.after":
            pipe.send(point)
            pipe.recv()

    store.faults = faults
    store.commit(epoch, [step("t", 1)])


def own_and_fork(pipe, path):
    """Own a store, and leave a grandchild that outlives its parent and holds nothing."""
    store = LMDBCheckpointer(path, survives="process-kill")
    store.acquire()
    if os.fork() == 0:
        pipe.send(os.getppid())  # it runs, so it has let go of its copy of the lock
        with contextlib.suppress(EOFError):
            pipe.recv()
        os._exit(0)
    signal.pause()


def race(pipe, path):
    """Try to own a store when told; tell what came of it, and hold it."""
    store = LMDBCheckpointer(path, survives="process-kill")
    pipe.send("ready")
    pipe.recv()
    try:
        pipe.send(("owner", store.acquire()))
    except StoreOwned as error:
        pipe.send(("owned", error.pid))
    with contextlib.suppress(EOFError):
        pipe.recv()


def read(pipe, path, thread_id):
    """Read a thread's next number, again for each request, without owning."""
    store = LMDBCheckpointer(path, survives="process-kill")
    for _ in iter(pipe.recv, "end"):
        image = store.load(thread_id)
        pipe.send(None if image is None else image.next_seq)


def die_reading(_pipe, path):
    """Be killed in the middle of a read."""
    store = LMDBCheckpointer(path, survives="process-kill")
    store.load("t")
    store._shared._kv.begin(write=False)
    die()


def raise_epoch(pipe, path):
    """Raise a store's epoch past its living owner, as a forced takeover does."""
    shared = _registry.attach(path, _shared.Options("process-kill", None), create=False)
    pipe.send(shared.writer.raise_epoch(shared.read(_shared.read_epoch, 0)))


def fill(pipe, path, limit):
    """Commit until the file may not grow, then make room and go on."""
    store = LMDBCheckpointer(path, survives="process-kill")
    epoch = begun(store, "small", "big")
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
    error: StoreError | None = None
    seq = 1
    while error is None and seq < 10_000:
        try:
            store.commit(epoch, [step("big", seq, writes={"n": bytes(50_000)})])
            seq += 1
        except StoreError as caught:
            error = caught
    kept = store.load("big").next_seq == seq
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    after = store.commit(epoch, [step("big", seq)])
    pipe.send((error, kept, after))


def fork_and_use(pipe, path):
    """Use an owned store in a forked child: it reads, and owns nothing."""
    store = LMDBCheckpointer(path, survives="process-kill")
    epoch = begun(store, "t")
    store.load("t")
    if os.fork() == 0:
        try:
            read_it = store.load("t").next_seq
            try:
                store.commit(epoch, [step("t", 1)])
                code = "written"
            except StoreError as error:
                code = error.code
            store.close()
            pipe.send((read_it, code))
        finally:
            os._exit(0)
    os.wait()
    pipe.send((store.commit(epoch, [step("t", 1)]), store.load("t").next_seq))


def fork_while_busy(pipe, path):
    """Fork while a call runs in the store, and use it in the child."""
    store = LMDBCheckpointer(path, survives="process-kill")
    epoch = begun(store, "t")
    shared = store._shared
    shared.enter()
    if os.fork() == 0:
        try:
            store.load("t")
        except StoreError as error:
            pipe.send(str(error))
        finally:
            os._exit(0)
    os.wait()
    shared.leave()
    pipe.send(store.commit(epoch, [step("t", 1)]))


def fork_during_a_commit(pipe, path):
    """Fork while another thread commits, and use the store on a thread of the child."""
    store = LMDBCheckpointer(path, survives="process-kill")
    epoch = begun(store, "t")
    reached, go_on = threading.Event(), threading.Event()
    results, said = [], []

    def pause(point):
        if point == "put.after":
            reached.set()
            go_on.wait(10)

    def use():
        try:
            store.load("t")
        except StoreError as error:
            said.append(str(error))

    store.faults = pause
    writer = threading.Thread(target=lambda: results.extend(store.commit(epoch, [step("t", 1)])))
    writer.start()
    reached.wait(10)
    if os.fork() == 0:
        try:
            # Most often it has the identifier of the thread that commits in the parent.
            user = threading.Thread(target=use)
            user.start()
            user.join(10)
            pipe.send(said)
        finally:
            os._exit(0)
    os.wait()
    go_on.set()
    writer.join(10)
    pipe.send(results)
