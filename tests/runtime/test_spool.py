"""The folder for messages of other processes: owners and senders die and stand still at any point."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import msgspec
import pytest

from beamweaver import Cancel, Continue, Invoke, Runtime
from beamweaver.errors import InboxFull
from beamweaver.events import FileSetAside
from beamweaver.limits import Limits
from beamweaver.runtime import spool
from beamweaver.runtime.letters import open_letter, seal
from supervisors.testing import eventually
from tests.runtime.children import PATIENCE, child, killed
from tests.runtime.kit import Caller, Events, Gate, failing_at, line
from tests.runtime.senders import (
    adding,
    ask,
    client,
    dies_once,
    own_and_die_in_a_node,
    own_until,
    send,
    send_to_point,
    take_part,
)

OWNER_POINTS = ("inbox.read", "writer.synced", "inbox.committed", "inbox.removed")
SENDER_POINTS = {
    "send.begun": False,
    "send.written": False,
    "send.synced": False,
    "send.renamed": True,
    "send.durable": True,
}
"""Where a sender may die, and whether its message is there then."""


def owner(disk, **options):
    return Runtime(disk.open(), graphs=[adding().compile()], **options)


@pytest.fixture
def path(disk):
    """A store that was made, and that nobody owns."""
    owner(disk).start().close()
    disk.close()
    return disk.path


def log(runtime, thread_id="t"):
    state = runtime.thread(thread_id).get_state()
    return [] if state is None else state.values.get("log", [])


def arrived(runtime, count):
    """The log of thread t, once it has so many messages and the folder is empty."""
    folder = runtime._store.spool
    eventually(lambda: len(log(runtime)) >= count and not waiting(folder), timeout=PATIENCE)
    return log(runtime)


def waiting(folder):
    """The messages in the folder."""
    return [path for path in folder.glob("*") if path.is_file() and path.name[:4] != "tmp-"]


def test_a_message_that_another_sender_is_about_to_sync_is_synced(tmp_path, monkeypatch):
    synced = []
    monkeypatch.setattr(spool, "sync_folder", synced.append)
    (tmp_path / "m").write_bytes(b"there")
    folder = spool.Spool(tmp_path, Limits(), sync=True, reached=lambda _point: None)
    assert folder.send("m", b"again", once=True) == b"there"
    assert synced == [tmp_path]


class TestOwnersThatDie:
    @pytest.mark.parametrize("nth", [1, 2, 4])
    @pytest.mark.parametrize("point", OWNER_POINTS)
    def test_each_message_arrives_once_and_in_order(self, disk, path, point, nth):
        with client(path) as runtime:
            for n in range(4):
                runtime.thread("t").tell(Invoke({"n": n}))
        with child(own_until, path, point, nth) as (process, _pipe):
            process.join(PATIENCE)
            assert process.exitcode == -signal.SIGKILL, f"point {point} {nth} was not reached"
        with owner(disk) as runtime:
            assert arrived(runtime, 4) == [0, 1, 2, 3], f"killed at {point} {nth}"

    @pytest.mark.slow
    def test_messages_of_two_processes_arrive_once_while_owners_die(self, disk, path):
        """peers 61: what a dead owner left is neither lost nor taken twice."""
        ones, others = list(range(15)), list(range(100, 115))
        with child(send, path, ones) as (_one, pipe), child(send, path, others) as (_two, pipe2):
            for nth, point in enumerate(OWNER_POINTS * 2):
                with child(own_until, path, point, 1 + nth % 3) as (process, _owner):
                    process.join(0.5 if nth > 3 else PATIENCE)
            receipts = [pipe.recv() for _ in ones] + [pipe2.recv() for _ in others]
        with owner(disk, limits=Limits(owner_deaths=99)) as runtime:
            found = arrived(runtime, 30)
        assert sorted(found) == ones + others
        assert [n for n in found if n < 100] == ones
        assert [n for n in found if n >= 100] == others
        assert len({receipt.id for receipt in receipts}) == 30

    @pytest.mark.parametrize("point", ["inbox.read", "inbox.committed", "inbox.removed"])
    def test_the_postman_may_crash(self, disk, path, point):
        with client(path) as sender:
            for n in range(4):
                sender.thread("t").tell(Invoke({"n": n}))
        with owner(disk, fault=failing_at(point, 2), max_restarts=9) as runtime:
            assert arrived(runtime, 4) == [0, 1, 2, 3]

    def test_ask_gets_its_outcome_from_the_next_owner(self, disk, path):
        with client(path) as sender:
            caller = Caller(sender.thread("t").ask, Invoke({"n": 5}), timeout=PATIENCE)
            killed(own_and_die_in_a_node, path)
            with Runtime(disk.open(), graphs=[dies_once(path).compile()]):
                assert caller.join().state == {"n": 5, "log": [5]}

    def test_a_process_gets_the_outcome_that_another_made(self, disk, path):
        with child(ask, path, 3) as (_process, pipe), owner(disk):
            assert pipe.poll(PATIENCE)
            assert pipe.recv() == ("Completed", {"n": 3, "log": [3]})


class TestSendersThatDie:
    @pytest.mark.parametrize("point", SENDER_POINTS)
    def test_the_message_is_there_or_not_and_harms_nobody(self, disk, path, point):
        killed(send_to_point, path, point)
        assert len(waiting(disk.path / "inbox")) == SENDER_POINTS[point]
        with client(path) as sender, owner(disk) as runtime:
            sender.thread("t").tell(Invoke({"n": 1}))
            wanted = [7, 1] if SENDER_POINTS[point] else [1]
            assert arrived(runtime, len(wanted)) == wanted, point

    def test_what_they_left_half_written_is_swept_when_it_is_old(self, disk, path):
        killed(send_to_point, path, "send.written")
        (left,) = (disk.path / "inbox").glob("tmp-*")
        with owner(disk) as runtime:
            runtime.thread("t").ask(Invoke({"n": 1}), timeout=10)
        assert left.exists(), "its sender may only be slow"
        os.utime(left, (0, 0))
        with owner(disk):
            eventually(lambda: not left.exists())


class TestSendersThatStandStill:
    @pytest.mark.parametrize("point", ["send.begun", "send.written", "send.synced"])
    def test_nobody_waits_for_them(self, disk, path, point):
        with child(send_to_point, path, point, True) as (_process, pipe):
            pid = pipe.recv()
            eventually(lambda: state_of(pid) == "T")
            with client(path) as sender, owner(disk) as runtime:
                assert sender.thread("t").ask(Invoke({"n": 1}), timeout=10).state["log"] == [1]
                assert runtime.thread("u").ask(Invoke({"n": 2}), timeout=10).state["log"] == [2]
                os.kill(pid, signal.SIGCONT)
                assert arrived(runtime, 2) == [1, 7]

    def test_a_message_whose_temporary_file_was_swept_is_written_again(self, disk, path):
        with child(send_to_point, path, "send.written", True) as (_process, pipe):
            pid = pipe.recv()
            eventually(lambda: state_of(pid) == "T")
            for left in (disk.path / "inbox").glob("tmp-*"):
                left.unlink()
            os.kill(pid, signal.SIGCONT)
            eventually(lambda: state_of(pid) == "T")
            os.kill(pid, signal.SIGCONT)
            assert pipe.poll(PATIENCE)
        with owner(disk) as runtime:
            assert arrived(runtime, 1) == [7]


def state_of(pid):
    """The state of a process, as the kernel names it."""
    with Path(f"/proc/{pid}/stat").open() as file:
        return file.read().rpartition(")")[2].split()[0]


class TestForeignFiles:
    @pytest.fixture
    def inbox(self, path):
        folder = path / "inbox"
        folder.mkdir()
        return folder

    def foreign(self, inbox, kind):
        name = inbox / "foreign"
        if kind == "text":
            name.write_text("hello")
        elif kind == "empty":
            name.touch()
        elif kind == "folder":
            name.mkdir()
        elif kind == "pipe":
            os.mkfifo(name)
        elif kind == "link":
            name.symlink_to("/etc/hostname")
        elif kind == "loop":
            name.symlink_to("foreign")

    @pytest.mark.parametrize("kind", ["text", "empty", "folder", "pipe", "link", "loop"])
    def test_they_are_set_aside_and_named_and_block_nothing(self, disk, path, inbox, kind):
        self.foreign(inbox, kind)
        with client(path) as sender:
            sender.thread("t").tell(Invoke({"n": 1}))
        runtime = owner(disk)
        events = Events()
        with runtime:
            runtime.subscribe(events)
            assert arrived(runtime, 1) == [1]
            eventually(
                lambda: not (inbox / "foreign").is_symlink() and not (inbox / "foreign").exists()
            )
        assert [
            each.name.partition("-")[2].partition("-")[2] for each in (inbox / "aside").iterdir()
        ] == ["foreign"]

    def test_an_event_names_the_file_and_the_reason(self, disk, path, inbox):
        with owner(disk) as runtime:
            events = Events(runtime)
            (inbox / "strange").write_text("hello")
            found = events.wait(FileSetAside)
        assert (found.name, found.thread_id) == ("strange", "")
        assert "no version of beamweaver writes such a file" in found.reason

    @pytest.mark.parametrize("at", [0, 5, 20, -1])
    def test_a_damaged_message_is_set_aside(self, disk, path, at):
        with client(path) as sender:
            sender.thread("t").tell(Invoke({"n": 1}))
            (letter,) = waiting(disk.path / "inbox")
            data = bytearray(letter.read_bytes())
            data[at] ^= 0x40
            letter.write_bytes(data)
            sender.thread("t").tell(Invoke({"n": 2}))
        with owner(disk) as runtime:
            assert arrived(runtime, 1) == [2]
            assert len(list((disk.path / "inbox" / "aside").iterdir())) == 1

    @pytest.mark.parametrize(
        "change",
        [{"kind": "update"}, {"call": b"no call"}, {"key": ""}, {"kind": "resume"}],
        ids=",".join,
    )
    def test_what_no_sender_makes_is_set_aside_though_its_checksum_is_right(
        self, disk, path, inbox, change
    ):
        with client(path) as sender:
            sender.thread("t").tell(Invoke({"n": 1}))
            (file,) = waiting(inbox)
            letter = open_letter(file.read_bytes(), file.name)
            file.write_bytes(seal(msgspec.structs.replace(letter, **change)))
            sender.thread("t").tell(Invoke({"n": 2}))
        with owner(disk) as runtime:
            assert arrived(runtime, 1) == [2]
            assert len(list((inbox / "aside").iterdir())) == 1

    def test_a_message_for_a_thread_that_cannot_be_is_rejected(self, disk, path, inbox):
        with client(path) as sender:
            sender.thread("t").tell(Invoke({"n": 1}))
            (file,) = waiting(inbox)
            letter = open_letter(file.read_bytes(), file.name)
            file.write_bytes(seal(msgspec.structs.replace(letter, thread_id="x" * 999)))
            sender.thread("t").tell(Invoke({"n": 2}))
        with owner(disk) as runtime:
            assert arrived(runtime, 1) == [2]
            assert len(list((inbox / "rejected").iterdir())) == 1

    def test_a_message_under_another_name_is_set_aside(self, disk, path):
        with client(path) as sender:
            sender.thread("t").tell(Invoke({"n": 1}))
        (letter,) = waiting(disk.path / "inbox")
        letter.with_name("copy").write_bytes(letter.read_bytes())
        with owner(disk) as runtime:
            assert arrived(runtime, 1) == [1]

    def test_what_is_aside_is_bounded(self, disk, path, inbox):
        for n in range(9):
            (inbox / f"f{n}").touch()
        with owner(disk, limits=Limits(spool_aside=3)):
            eventually(lambda: not waiting(inbox))
            assert len(list((inbox / "aside").iterdir())) == 3


def test_a_thread_that_takes_its_time_keeps_nobody_waiting(disk, path):
    """A cancel is taken when the bodies have ended; other threads go on meanwhile."""
    gate = Gate(hard=True)

    def node(state):
        return gate(state) if state["n"] == 1 else None

    graph = line("g", add=lambda s: {"log": [s["n"]]}, node=node)
    with Runtime(disk.open(), graphs=[graph.compile()]) as runtime, client(path) as sender:
        sender.thread("slow").tell(Invoke({"n": 1}))
        gate.wait()
        sender.thread("slow").tell(Cancel())
        eventually(lambda: runtime._core.hub.waiters.has("slow"))
        assert sender.thread("t").ask(Invoke({"n": 2}), timeout=10).state["log"] == [2]
        gate.open()


class TestBounds:
    def test_too_many_messages_are_refused_with_the_cure(self, path):
        with client(path, limits=Limits(spool_messages=2)) as sender:
            thread = sender.thread("t")
            thread.tell(Invoke({"n": 1}))
            thread.tell(Invoke({"n": 2}), idempotency_key="k")
            with pytest.raises(InboxFull, match=r"limits\.spool_messages is 2.*See that an owner"):
                thread.tell(Invoke({"n": 3}))
            assert thread.tell(Invoke({"n": 2}), idempotency_key="k"), "it is there already"

    def test_so_are_too_many_bytes(self, disk, path):
        with client(path, limits=Limits(spool_bytes=1_000)) as sender:
            thread = sender.thread("t")
            with pytest.raises(InboxFull, match=r"limits\.spool_bytes 1000"):
                thread.tell(Invoke({"note": "x" * 2_000}))
            thread.tell(Invoke({"n": 1}))
            with owner(disk) as runtime:
                assert arrived(runtime, 1) == [1]

    def test_rejections_for_threads_that_do_not_exist_are_bounded(self, disk, path):
        with client(path) as sender, owner(disk, limits=Limits(spool_rejected=2)):
            for n in range(4):
                sender.thread(f"t{n}").tell(Continue())
                eventually(sender.thread(f"t{n}").rejected)
            assert [bool(sender.thread(f"t{n}").rejected()) for n in range(4)] == [
                False,
                False,
                True,
                True,
            ]


def test_the_first_process_owns_and_the_others_take_part(disk, path):
    with child(take_part, path) as (_one, pipe):
        assert pipe.recv() == "owner"
        with child(take_part, path) as (_two, pipe2):
            assert pipe2.recv() == "client"
        with owner(disk, role="auto") as runtime:
            assert runtime.role == "client"
            assert runtime.thread("t").ask(Invoke({"n": 1}), timeout=10).state["log"] == [1]
