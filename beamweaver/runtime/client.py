"""The core of a runtime that does not own its store: it leaves messages for the owner, and reads."""

from __future__ import annotations

import hashlib
import threading
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal

from msgspec import UNSET

from beamweaver.engine.calls import CallKind
from beamweaver.errors import InvalidCall, NotOwner, StoreUnavailable
from beamweaver.runtime.answers import goes_on
from beamweaver.runtime.core import Core
from beamweaver.runtime.correspondence import Reader, Sender, Sent, head_row, of_head
from beamweaver.runtime.env import GraphCodec
from beamweaver.runtime.letters import NoLetter, letter_of, open_letter, seal
from beamweaver.runtime.reading import ReadEnv
from beamweaver.runtime.requests import Release, Update
from beamweaver.runtime.spool import Spool
from supervisors import ChildSpec

if TYPE_CHECKING:
    from beamweaver.checkpoint.base import Checkpointer
    from beamweaver.engine.calls import Call
    from beamweaver.graph.compiled import CompiledGraph
    from beamweaver.runtime.requests import Message
    from beamweaver.runtime.spool import Found
    from beamweaver.runtime.waiters import Answer, Waiting

__all__ = ["Client", "await_store", "check_shared"]

NO_OWNER: Final = "no process owns the store now, so nothing runs until one does"
_TRY_SECONDS: Final = 0.05
_LOOKED_AT: Final = 256
"""How many messages of others are looked through before a cancel is left for the owner."""


class Client(Core):
    """A core without the store's ownership. Its calls wait in `hub.waiters`, as those of an owner do, and
    outside of the tree: no restart of its two actors is visible to a caller.

    What it has sent and has no answer yet is in `sent`.
    """

    owns: ClassVar[bool] = False

    def __init__(self, store: Checkpointer, **options: Any) -> None:
        super().__init__(store, recover="none", keeps=True, **options)
        folder = store.spool
        assert folder is not None, "a store without a spool has no clients"
        self.spool = Spool(folder, self.hub.limits, sync=store.blocks, reached=self.hub.reached)
        self.sent: dict[str, Sent] = {}
        self._last_us = 0
        self._clock = threading.Lock()
        self.hub.waiters.stands = self._stands

    def _take(self, store: Checkpointer, takeover: Literal["force"] | None) -> int:
        """Nothing is taken."""
        del store, takeover
        return 0

    def _children(self) -> list[ChildSpec]:
        return [
            ChildSpec("sender", Sender, args=(self.hub, self.spool, self.sent)),
            ChildSpec("reader", Reader, args=(self.hub, self.spool, self.sent)),
        ]

    def _judge(self, graph: CompiledGraph, thread_id: str, message: Message, *, waits: bool) -> Any:
        """Refuse what only the owner can do."""
        del graph, thread_id, waits
        if isinstance(message, Update | Release):
            self.check_owner("release" if isinstance(message, Release) else "update_state")
        if getattr(message, "context", UNSET) is not UNSET:
            raise InvalidCall(
                "context= is never stored, so it cannot reach the owner of the store; have the owner open "
                "Runtime(contexts={name: …})"
            )
        return UNSET

    def _enter(self, graph: CompiledGraph, thread_id: str, waiting: Waiting) -> None:
        """Have a call sent."""
        hub, call, receipt = self.hub, waiting.call, waiting.receipt
        if call.key:
            _name_by_key(call, thread_id)
        env = ReadEnv(hub.codec, GraphCodec(hub.codec, graph))
        data = seal(letter_of(call, thread_id, self._now_us(), env))
        if call.kind is CallKind.CANCEL and call.waits:
            answer = self._at_rest(thread_id, call)
            if answer is not None:
                waiting.done.offer(answer)
                return
        sent = Sent(thread_id, waiting, call.first_id or call.id, data)
        hub.waiters.add(thread_id, waiting)
        self.sent[call.id] = sent
        waiting.done.add_done_callback(lambda _done: self._forget(call, sent))
        if receipt is not None:
            receipt.add_done_callback(lambda _done: self._forget(call, sent))
        assert hub.writer is not None, "the sender starts with the client"
        hub.writer.put(sent)

    def _at_rest(self, thread_id: str, call: Call) -> Answer | None:
        """How a thread stands that does not run, and that no message waits for: a cancel leaves it so."""
        row = None if self._awaited(thread_id) else head_row(self.hub, thread_id)
        return None if row is None else of_head(self.hub, thread_id, call, row)

    def _awaited(self, thread_id: str) -> bool:
        """Whether messages wait for a thread, or so many for others that it takes long to tell."""
        for sent in list(self.sent.values()):
            if sent.thread_id == thread_id and not sent.durable:
                return True
        # A message that is gone when it is to be read is in the store.
        waiting = self.spool.waiting()
        return len(waiting) > _LOOKED_AT or any(self._is_for(found, thread_id) for found in waiting)

    def _is_for(self, found: Found, thread_id: str) -> bool:
        data = self.spool.read(found)
        try:
            return data is not None and open_letter(data, found.name).thread_id == thread_id
        except NoLetter:
            return False

    def _stands(self, waiting: Waiting) -> str:
        """How a message stands whose sender has waited long enough."""
        call = waiting.call
        sent = self.sent.get(call.id)
        taken = not self.spool.has(call.first_id or call.id)
        lives = self.store.owner_lives()
        if taken and sent is not None and not sent.durable:
            return "the message is not yet left for the owner of the store"
        if taken and lives is not False:
            return f"the owner of the store has taken the message: {goes_on(call)}"
        if taken:
            return f"an owner of the store took the message, and {NO_OWNER}; run {call.run_id!r} goes on then"
        if lives is False:
            return f"the message waits for an owner to take it, and {NO_OWNER}; the message stays there"
        return (
            "the message waits for the owner of the store, which has not taken it: its log, and waits in its "
            "health(), tell if it cannot; the message stays there"
        )

    def _forget(self, call: Call, sent: Sent) -> None:
        if self.sent.get(call.id) is sent:
            self.sent.pop(call.id, None)

    def _now_us(self) -> int:
        """The time in microseconds, rising with each message."""
        with self._clock:
            self._last_us = max(int(self.system.clock.time() * 1_000_000), self._last_us + 1)
            return self._last_us

    def check_owner(self, call: str) -> None:
        """Refuse what only the owner can do."""
        raise NotOwner(
            f"{call} changes the store {self.store.identity}, of which this runtime is a client; call it in "
            "the process that owns the store"
        )

    def reasons(self) -> list[str]:
        """Why nothing of what it sends is done now."""
        return [NO_OWNER] if self.store.owner_lives() is False else []

    def recover_again(self) -> None:
        """The owner recovers."""

    def drain(self, timeout: float) -> bool:
        """Nothing runs here; what was sent is the owner's."""
        del timeout
        self.hub.draining = True
        return True


def _name_by_key(call: Call, thread_id: str) -> None:
    """Equal messages of equal keys are one file, whoever sends them, and have one receipt."""
    of = f"{thread_id}\0{call.key}".encode()
    call.first_id = hashlib.blake2b(of, digest_size=16, person=b"message").hexdigest()
    if not call.named:
        call.run_id = hashlib.blake2b(of, digest_size=16, person=b"run").hexdigest()


def check_shared(store: Checkpointer) -> None:
    """See that other processes can leave messages for the owner of a store.

    Raises:
        InvalidCall: They cannot.
    """
    if store.spool is None:
        raise InvalidCall(
            f"role= is for a store on a disk, and {store.identity} is reached by its own process only; leave "
            "role= out, or give the path of an LMDB store"
        )


def await_store(store: Checkpointer, wait: float) -> None:
    """See that there is a store whose owner messages can be left for.

    Raises:
        StoreUnavailable: There is none yet, or it cannot be opened.
    """
    ends = store.monotonic() + wait
    while not store.exists:
        left = ends - store.monotonic()
        if left <= 0:
            raise StoreUnavailable(
                f"there is no store at {store.identity} yet; start its owner first, or give wait= seconds",
                path=store.identity,
                reason="it does not exist",
            )
        store.pause(min(_TRY_SECONDS, left))
    next(store.threads(limit=1), None)  # opens it: what is wrong with it is found now
