"""Actors and calls in processes of their own, which can really be killed. Not for simulations.

    from supervisors.process import ProcessActor, ProcessPool

A kill is SIGKILL, and takes effect whatever the code does: the one execution class where that is so. The
processes end with this one, also when it is killed. What crosses the border is bytes, by an
encode/decode pair that both sides import (msgspec's MessagePack by default), never pickle.
"""

from __future__ import annotations

import itertools
import json
import os
import struct
import subprocess
import sys
import threading
from collections import deque
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from supervisors.elsewhere import Answered, Begun, Deputy, Gone, RaisedElsewhere
from supervisors.errors import ProcessEnded, RemoteError, WorkersExhausted
from supervisors.exits import Abnormal, Crashed, ExitReason
from supervisors.kill import shield

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from supervisors.future import Future
    from supervisors.system import ActorSystem

__all__ = ["Codec", "Process", "ProcessActor", "ProcessPool", "end_of"]

_HEAD = struct.Struct(">cI")
_MAIN = str(Path(__file__).with_name("_process_main.py"))
_REAP = 5.0  # seconds that a process may take from closing its end until it has ended
_MAX_FRAME = 1 << 30


class Codec(msgspec.Struct, frozen=True):
    """How values cross the border: two functions, by the names under which both sides import them.

    Attributes:
        encode: `"module:function"`, from a value to bytes
        decode: `"module:function"`, from bytes to the value
    """

    encode: str = "msgspec.msgpack:encode"
    decode: str = "msgspec.msgpack:decode"

    def load(self) -> tuple[Callable[[Any], bytes], Callable[[bytes], Any]]:
        """Return both functions."""
        return _find(self.encode), _find(self.decode)

    def request(self, target: str, args: Sequence[Any]) -> bytes:
        """Return what asks for `target(*args)`."""
        head = json.dumps([target, self.encode, self.decode]).encode()
        return head + b"\n" + self.load()[0](list(args))


def _find(name: str) -> Any:
    module, _, path = name.partition(":")
    found: Any = import_module(module)
    for part in path.split("."):
        found = getattr(found, part)
    return found


def end_of(code: int) -> tuple[str, int]:
    """Return what a return code of `subprocess` means: `("exit", n)` or `("signal", n)`.

    Example:
        >>> end_of(0), end_of(-9)
        (('exit', 0), ('signal', 9))
    """
    return ("signal", -code) if code < 0 else ("exit", code)


class Process:
    """One child process with its two pipes, and the thread that reads from it.

    Attributes:
        listener: called on that thread with each answer: a value as bytes, or an error
        on_end: called on that thread when the process has ended, with its return code
    """

    def __init__(self, preload: Sequence[str] = ()) -> None:
        """Start it, and have it import the modules of `preload`."""
        self.listener: Callable[[bytes | RemoteError], object] = lambda _: None
        self.on_end: Callable[[int], object] = lambda _: None
        self.code: int | None = None
        self._owner = os.getpid()
        theirs, mine, lifeline = os.pipe(), os.pipe(), os.pipe()
        fds = (theirs[0], mine[1], lifeline[0])
        try:
            self._popen = subprocess.Popen(  # noqa: S603 - this interpreter, a file of this package
                [sys.executable, "-I", _MAIN, *map(str, fds)],
                pass_fds=fds,
                stdin=subprocess.DEVNULL,
            )
        except BaseException:  # whatever it is: give back what was taken, and let it pass
            _close(theirs[1], mine[0], lifeline[1])
            raise
        finally:
            _close(*fds)
        self.pid = self._popen.pid
        self._write_fd, self._read_fd, self._lifeline = theirs[1], mine[0], lifeline[1]
        self._lock = threading.Lock()
        self._skip = 1  # the answer to what follows is nobody's
        self.send(b"P", json.dumps({"path": sys.path, "preload": list(preload)}).encode())
        self._reader = threading.Thread(target=self._read, name=f"process-{self.pid}", daemon=True)
        self._reader.start()

    def send(self, kind: bytes, payload: bytes) -> None:
        """Send a frame; one to a process that has ended is lost, as its end is told anyway."""
        data = memoryview(_HEAD.pack(kind, len(payload)) + payload)
        try:
            while data:
                data = data[os.write(self._write_fd, data) :]
        except OSError:
            return

    def kill(self) -> None:
        """End it at once, by SIGKILL. Idempotent."""
        with self._lock:
            if self.code is None and os.getpid() == self._owner:
                self._popen.kill()

    def finish(self, timeout: float) -> bool:
        """Kill it and wait until it is gone; return whether it was within `timeout` seconds."""
        self.kill()
        self._reader.join(timeout)
        return not self._reader.is_alive()

    def _read(self) -> None:
        while (frame := self._frame()) is not None:
            if self._skip:
                self._skip -= 1
                continue
            kind, payload = frame
            self.listener(payload if kind == b"V" else RemoteError(**json.loads(payload)))
        try:
            self._popen.wait(_REAP)
        except subprocess.TimeoutExpired:
            self.kill()
        code = self._popen.wait()
        with self._lock:
            self.code = code
            _close(self._write_fd, self._read_fd, self._lifeline)
        self.on_end(code)

    def _frame(self) -> tuple[bytes, bytes] | None:
        head = self._exactly(_HEAD.size)
        if head is None:
            return None
        kind, length = _HEAD.unpack(head)
        if length > _MAX_FRAME:
            self.kill()
            return None
        payload = self._exactly(length)
        return None if payload is None else (kind, payload)

    def _exactly(self, count: int) -> bytes | None:
        parts = []
        while count:
            part = os.read(self._read_fd, min(count, 1 << 20))
            if not part:
                return None
            parts.append(part)
            count -= len(part)
        return b"".join(parts)


def _close(*fds: int) -> None:
    for fd in fds:
        os.close(fd)


class ProcessPool:
    """Calls functions in processes, some of which are started ahead of their use.

    Args:
        system: whose workers wait for the answers
        warm: how many processes are kept ready; one more may rest between two calls
        preload: modules that they import ahead of their use
        max_processes: how many there may be in all; then a call raises `WorkersExhausted`
        codec: how arguments and values cross

    Example:
        >>> from supervisors import ActorSystem
        >>> with ActorSystem() as system:
        ...     pool = ProcessPool(system, warm=0)
        ...     pool.call("math:hypot", 3, 4), pool.close()
        (5.0, True)
    """

    def __init__(
        self,
        system: ActorSystem,
        *,
        warm: int = 1,
        preload: Sequence[str] = (),
        max_processes: int = 64,
        codec: Codec | None = None,
    ) -> None:
        """Start the warm ones."""
        self._system = system
        self._warm = warm
        self._preload = tuple(preload)
        self._max = max_processes
        self._codec = Codec() if codec is None else codec
        self._ready: deque[Process] = deque()
        self._all: dict[int, Process] = {}
        self._numbers = itertools.count()
        self._mu = threading.Lock()
        self._closed = False
        self._fill()

    def __len__(self) -> int:
        """Return how many processes there are."""
        return len(self._all)

    def _fill(self) -> None:
        while len(self._ready) < self._warm and len(self._all) < self._max and not self._closed:
            self._ready.append(self._start())

    def _start(self) -> Process:
        with self._mu:
            if self._closed or len(self._all) >= self._max:
                raise WorkersExhausted(
                    f"{len(self._all)} processes run: raise max_processes, or wait for fewer"
                )
            number = next(self._numbers)
            process = self._all[number] = Process(self._preload)
        process.on_end = lambda _: self._all.pop(number, None)
        if process.code is not None:
            self._all.pop(number, None)
        return process

    def take(self) -> tuple[Process, Callable[[int], object]]:
        """Return a process for the caller alone, and what it must call at its end."""
        process = None
        while process is None or process.code is not None:
            try:
                process = self._ready.popleft()
            except IndexError:
                process = self._start()
        self._fill()
        return process, process.on_end

    def call(self, target: str, *args: Any, timeout: float | None = None) -> Any:
        """Return `target(*args)`, computed in a process.

        Called in a task or an actor, it ends with it: a kill of the task is SIGKILL to the process. The
        worker waits as in `Future.get`, so others run meanwhile.

        Args:
            target: `"module:function"`
            *args: what the codec can encode
            timeout: seconds; then the process is killed

        Raises:
            RemoteError: the function raised; the error crosses as text
            ProcessEnded: the process ended before it answered
            CallTimeout: no answer in time
        """
        encode_request, decode = self._codec.request, self._codec.load()[1]
        request = encode_request(target, args)
        answer: Future[bytes] = self._system.future()
        with shield():
            process, forget = self.take()
        try:
            self._listen(process, answer, forget)
            process.send(b"C", request)
            value = decode(answer.get(timeout=timeout))
        except RemoteError:
            self._give_back(process, forget)
            raise
        except BaseException:  # whatever it is: give back what was taken, and let it pass
            process.kill()
            raise
        self._give_back(process, forget)
        return value

    def _listen(
        self, process: Process, answer: Future[bytes], forget: Callable[[int], object]
    ) -> None:
        def hear(found: bytes | RemoteError) -> None:
            if isinstance(found, RemoteError):
                answer.offer_error(found)
            else:
                answer.offer(found)

        def ended(code: int) -> None:
            forget(code)
            answer.offer_error(ProcessEnded(process.pid, *end_of(code)))

        process.listener, process.on_end = hear, ended
        if process.code is not None:
            ended(process.code)

    def _give_back(self, process: Process, forget: Callable[[int], object]) -> None:
        process.on_end = forget  # else each call would add to what its end calls
        if len(self._ready) <= self._warm and not self._closed:
            self._ready.append(process)
        else:
            process.kill()

    def close(self, timeout: float = 5.0) -> bool:
        """Kill all processes; return whether they were gone within `timeout` seconds."""
        with self._mu:
            self._closed = True
            processes = list(self._all.values())
        for process in processes:
            process.kill()
        gone = [process.finish(timeout) for process in processes]
        return all(gone)


class ProcessActor(Deputy):
    """An actor whose handlers run in a process of their own, which a kill really ends.

    There, `target(*args)` makes an object; its `on_receive(message)` handles each message, its
    `on_stop(reason)`, if it has one, a good end. It imports nothing of this package. An error in a handler
    ends the actor with `Crashed(RemoteError(...))`; a process that ends by itself, or is killed from
    outside, with `Abnormal(("exit", n))` or `Abnormal(("signal", n))`.

    Args:
        target: `"module:class"`, or a function that makes the object
        args: for it; what the codec can encode
        codec: how messages and answers cross
        pool: where to take a warm process; by default one is started

    Example:
        >>> from supervisors import ActorSystem, ChildSpec
        >>> spec = ChildSpec("parser", ProcessActor, ("myapp.parsing:Parser", ("utf-8",)))
        >>> spec.actor is ProcessActor
        True
    """

    def __init__(
        self,
        target: str,
        args: Sequence[Any] = (),
        *,
        codec: Codec | None = None,
        pool: ProcessPool | None = None,
    ) -> None:
        """Encode the arguments."""
        self._codec = Codec() if codec is None else codec
        self._encode, self._decode = self._codec.load()
        self._request = self._codec.request(target, args)
        self._pool = pool
        self._process: Process | None = None
        self._forget: Callable[[int], object] = lambda _: None

    @property
    def pid(self) -> int | None:
        """The identifier of the process."""
        return None if self._process is None else self._process.pid

    def begin(self) -> None:
        """Start the process, or take a warm one, and make the object in it."""
        if self._pool is None:
            process = Process()
        else:
            process, self._forget = self._pool.take()
        self._process = process
        process.listener, process.on_end = self._hear, self._ended
        if process.code is not None:
            self._ended(process.code)
        process.send(b"O", self._request)

    def deliver(self, message: Any) -> None:
        """Send `message` to the process."""
        assert self._process is not None
        payload = self._encode(message)
        with self.system.blocking():  # a pipe takes 64 KiB at once
            self._process.send(b"M", payload)

    def wind_up(self, reason: ExitReason) -> None:
        """Ask the process to end."""
        assert self._process is not None
        self._process.send(b"S", repr(reason).encode())

    def let_go(self) -> None:
        """Kill the process."""
        if self._process is not None:
            self._process.kill()

    # On the thread that reads

    def _hear(self, found: bytes | RemoteError) -> None:
        if isinstance(found, RemoteError):
            self.post(RaisedElsewhere(found))
        elif not self._up:
            self.post(Begun())
        elif self._busy:  # else it has been told to end, and will
            self._answer(found)

    def _answer(self, found: bytes) -> None:
        try:
            value = self._decode(found)
        except Exception as error:  # noqa: BLE001 - whatever a codec raises ends the actor
            self.post(Gone(Crashed(error)))
        else:
            self.post(Answered(value))

    def _ended(self, code: int) -> None:
        self._forget(code)
        reason = self._wanted if code == 0 and self._wanted is not None else None
        self.post(Gone(Abnormal(end_of(code)) if reason is None else reason))
