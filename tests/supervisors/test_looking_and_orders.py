"""Looking at a system, and ordering its actors about."""

from __future__ import annotations

import importlib
import pkgutil
import threading

import msgspec
import pytest

import supervisors
from supervisors import (
    KILLED,
    SHUTDOWN,
    Abnormal,
    Actor,
    ActorSystem,
    Backoff,
    CallTimeout,
    ChildSpec,
    DynamicSupervisor,
    Event,
    MailboxFull,
    NoProc,
    Supervisor,
    TaskActor,
    drain,
    dump,
    exit_after,
    get_state,
    resume,
    start_child,
    suspend,
    tree,
)
from supervisors.errors import SupervisorsError
from supervisors.testing import eventually, leaks
from tests.supervisors.world import Puppet, World, crash


class TestTree:
    def make(self, world: World) -> None:
        leaf = ChildSpec("leaf", Puppet)
        specs = [
            ChildSpec("sub", Supervisor, ([leaf],)),
            ChildSpec("pool", DynamicSupervisor, name="p"),
        ]
        world.system.start(Supervisor, specs, name="root")
        start_child(world.system.whereis("p"), ChildSpec(1, Puppet), timeout=5)

    def test_it_shows_every_actor_with_its_id(self, world: World):
        self.make(world)
        lines = tree(world.system).text().splitlines()

        assert [line.split(" #")[0] for line in lines] == [
            "ActorSystem",
            "  Supervisor 'root'",
            "    Supervisor 'sub'",
            "      Puppet 'leaf'",
            "    DynamicSupervisor 'pool'",
            "      Puppet 1",
        ]

    def test_it_is_data(self, world: World):
        self.make(world)
        root = tree(world.system).children[0]

        assert (root.id, root.kind, root.state) == ("root", "Supervisor", "running")
        assert [child.id for child in root.children] == ["sub", "pool"]
        assert msgspec.json.decode(msgspec.json.encode(root))["children"][0]["id"] == "sub"

    def test_it_is_a_picture(self, world: World):
        self.make(world)
        picture = tree(world.system).mermaid().splitlines()

        assert picture[0] == "flowchart TD"
        assert "  n1 --> n2" in picture
        assert "  n1 --> n4" in picture
        assert '  n5["Puppet 1"]' in picture

    def test_it_shows_restarts_states_and_tasks(self, simulated: World):
        class Body(TaskActor):
            def run(self) -> None:
                return None

        spec = ChildSpec("a", Puppet, name="a")
        simulated.system.start(Supervisor, [spec], backoff=Backoff(1.0, cap=1.0))
        simulated.system.whereis("a").tell(crash)
        simulated.settle()
        assert "Puppet 'a' (restarting)" in tree(simulated.system).text()
        simulated.advance(1)
        cell = simulated.system.whereis("a").cell
        simulated.system.spawn_task(Body, owner=cell, token=1)

        assert "(restarts=1, tasks=1)" in tree(simulated.system).text()
        simulated.settle()

    def test_a_dump_tells_where_every_thread_is(self, pool: World):
        gate, entered = threading.Event(), threading.Event()

        def hang_around(_actor: Puppet) -> None:
            entered.set()
            gate.wait(10)

        ref = pool.system.start(Puppet, name="n")
        ref.tell(hang_around)
        assert entered.wait(10)
        text = dump(pool.system)
        eventually(lambda: "active=1" in dump(pool.system))  # others may be about to rest
        gate.set()

        assert "Puppet 'n'" in text
        assert "hang_around" in text


class TestOrders:
    def test_a_suspended_actor_serves_exits_and_later_its_messages(self, world: World):
        """Supervision C133."""
        ref = world.system.start(Puppet)
        suspend(ref)
        waiting = ref.ask(lambda _: "served", block=False)
        world.settle()
        assert not waiting.done()
        assert get_state(ref)["trap_exit"] is False
        resume(ref)

        assert waiting.get(timeout=5) == "served"
        suspend(ref)
        world.system.exit(ref, SHUTDOWN)
        world.settle()
        assert not ref.is_alive()

    def test_orders_to_the_dead_raise(self, world: World):
        ref = world.system.start(Puppet)
        ref.stop(timeout=5)

        with pytest.raises(NoProc):
            suspend(ref)
        assert drain(ref) is False

    def test_a_drained_actor_handles_what_waits_and_refuses_the_rest(self, simulated: World):
        """Supervision C131."""
        handled: list[int] = []
        ref = simulated.system.start(Puppet)
        for number in range(1000):
            ref.tell(lambda _, n=number: handled.append(n))
        ref.tell(lambda actor: pytest.raises(NoProc, actor.ref.tell, "late"))  # noqa: RUF061
        drain(ref, timeout=5)

        assert handled == list(range(1000))
        assert not ref.is_alive()

    @pytest.mark.parametrize("reason", [KILLED, Abnormal("late")])
    def test_an_actor_can_be_ended_later(self, world: World, reason):
        """Supervision C137."""
        ref = world.system.start(Puppet)
        ended = world.system.monitor_from_outside(ref)
        exit_after(world.system, 2.0, ref, reason)
        world.advance(1.9)
        assert not ended.done()
        world.advance(0.2)

        assert ended.get(timeout=5) == reason

    def test_an_end_that_was_planned_can_be_cancelled(self, world: World):
        ref = world.system.start(Puppet)
        exit_after(world.system, 2.0, ref, KILLED).cancel()
        world.advance(3)

        assert ref.is_alive()


class TestBoundedMailboxes:
    def test_a_full_mailbox_refuses(self, pool: World):
        class Small(Puppet):
            mailbox_limit = 2

        gate, entered = threading.Event(), threading.Event()

        def hold(_actor: Puppet) -> None:
            entered.set()
            gate.wait(10)

        ref = pool.system.start(Small)
        ref.tell(hold)
        assert entered.wait(10)
        for _ in range(2):
            ref.tell(lambda _: None)
        with pytest.raises(MailboxFull, match="mailbox_limit"):
            ref.tell("third")
        with pytest.raises(MailboxFull):
            ref.ask("third", timeout=5)
        gate.set()

        assert "mailbox_full" in pool.kinds()

    def test_a_full_mailbox_that_drops_makes_dead_letters(self, pool: World):
        class Lossy(Puppet):
            mailbox_limit = 0
            when_full = "drop"

        ref = pool.system.start(Lossy)
        ref.tell("lost")

        assert pool.letters[0][1:] == ("lost", Abnormal("mailbox full"))


class TestEvents:
    def test_a_hook_that_fails_harms_nobody(self, caplog):
        def broken(_event: Event) -> None:
            raise ValueError("hook")

        with ActorSystem(on_event=broken, on_dead_letter=lambda *_: 1 / 0) as system:
            ref = system.start(Puppet)
            ref.tell(crash)
            other = system.start(Puppet)
            assert other.ask(lambda _: "runs", timeout=5) == "runs"
        assert "hook_failed" in caplog.text

    def test_without_a_hook_a_crash_is_logged_with_its_error(self, caplog):
        """Pykka: an end that is not quiet is never silent."""
        with ActorSystem() as system:
            ref = system.start(Puppet, "name-of-it")
            with pytest.raises(Exception, match="ended before"):
                ref.ask(crash, timeout=5)
        assert "actor_crashed" in caplog.text
        assert "Boom: name-of-it" in caplog.text

    def test_the_traceback_of_a_crash_is_logged_once(self, caplog):
        with ActorSystem() as system:
            child = ChildSpec("a", Puppet, ("name-of-it",), name="a")
            supervisor = system.start(Supervisor, [child], intensity=0)
            end = system.monitor_from_outside(supervisor)
            system.whereis("a").tell(crash)
            end.get(timeout=5)

        said = [(record.msg % record.args).partition(":")[0] for record in caplog.records]
        assert said == ["actor_crashed", "child_terminated", "restarts_exceeded"]
        assert caplog.text.count("Traceback") == 1

    def test_a_message_nobody_understands_is_an_event(self, world: World):
        world.system.start(Actor).tell("what?")
        world.settle()

        assert "unhandled_message" in world.kinds()


def test_every_error_has_a_code_of_its_own():
    found: list[type[SupervisorsError]] = []
    waiting = [SupervisorsError]
    while waiting:
        kind = waiting.pop()
        waiting.extend(kind.__subclasses__())
        if not kind.__name__.startswith("_"):
            found.append(kind)
    codes = [kind.code for kind in found]

    assert len(set(codes)) == len(codes) > 15


def _modules() -> list[str]:
    found = pkgutil.walk_packages(supervisors.__path__, "supervisors.")
    return ["supervisors", *(module.name for module in found)]


@pytest.mark.parametrize("name", _modules())
def test_a_module_says_what_is_public(name):
    module = importlib.import_module(name)

    assert module.__doc__
    assert sorted(set(module.__all__)) == sorted(module.__all__)
    assert all(hasattr(module, public) for public in module.__all__)


def test_the_leaks_of_a_running_system_are_named(world: World):
    ref = world.system.start(Puppet, name="n")
    world.system.send_after(10, ref, "x")

    assert {leak.split()[0] for leak in leaks(world.system)} == {"actor", "name", "1"}


def test_a_call_to_a_suspended_actor_times_out(world: World):
    ref = world.system.start(Puppet)
    suspend(ref)

    with pytest.raises(CallTimeout):
        ref.ask(lambda _: 1, timeout=0.01)
