"""Threads of older and newer versions of their graph, from outside."""

from __future__ import annotations

import dataclasses
import datetime as dt
import enum
from typing import Annotated, TypedDict

import pytest

from beamweaver import END, START, Graph, Invoke, Resume, Runtime
from beamweaver.errors import GraphChanged, GraphTooOld, MigrationFailed, UnknownGraph
from beamweaver.events import ThreadMigrated, ThreadSetAside
from beamweaver.graph import Migration, append
from supervisors.testing import eventually
from tests.runtime import children
from tests.runtime.kit import Caller, Events, Gate


class Cents(TypedDict, total=False):
    cents: int
    log: Annotated[list[str], append]


class Euros(TypedDict, total=False):
    euros: float
    log: Annotated[list[str], append]


def in_euros(values):
    values["euros"] = values.pop("cents", 0) / 100
    return values


def pay(_state, ctx):
    return {"log": f"paid: {ctx.interrupt('pay?')}"}


MIGRATIONS = {1: Migration(state=in_euros, rename={"pay": "charge"})}


def shop(node, schema, version=1, fn=pay):
    graph = Graph(schema, name="shop", version=version).add_node(node, fn)
    return graph.add_edge(START, node).add_edge(node, END)


def first(store, **options):
    return shop("pay", Cents, **options).compile(checkpointer=store)


def second(store, migrations=MIGRATIONS, **options):
    graph = shop("charge", Euros, version=2, **options)
    return graph.compile(checkpointer=store, migrations=migrations)


def left_waiting(place, thread_id="t"):
    with first(place.open()) as app:
        return app.invoke({"cents": 250}, thread_id=thread_id)


class TestNewerCode:
    def test_a_thread_that_waits_is_migrated_and_finished(self, place):
        asked = left_waiting(place)
        with second(place.open()) as app:
            outcome = app.resume({asked.interrupt.id: "yes"}, thread_id="t")
            history = list(app.get_state_history("t"))

        assert outcome.state == {"euros": 2.5, "log": ["paid: yes"]}
        assert [state.metadata["source"] for state in history] == ["loop", "migrate", "input"]
        assert [state.metadata["version"] for state in history] == [2, 2, 1]
        assert history[-1].values == {"cents": 250, "log": []}
        assert history[-1].next == ("pay",)

    def test_recovery_migrates_what_it_takes_up(self, place):
        gate = Gate({"log": "done"})
        runtime = Runtime(place.open(), graphs=[first(None, fn=gate)])
        with runtime:
            caller = Caller(runtime.thread("t").ask, Invoke({"cents": 250}))
            gate.wait()
            runtime.drain(timeout=0)
        assert caller.join().state["cents"] == 250
        with Runtime(place.open(), graphs=[second(None, fn=lambda _s: {"log": "new"})]) as runtime:
            events = Events(runtime)
            eventually(lambda: runtime.get_state("t").status == "complete")
            assert runtime.get_state("t").values == {"euros": 2.5, "log": ["new"]}
            assert events.of(ThreadMigrated) in ([], events.of(ThreadMigrated, to_version=2))

    def test_a_thread_that_is_not_migrated_yet_is_shown_as_it_is_stored(self, place):
        left_waiting(place)
        with second(place.open()) as app:
            state = app.get_state("t")

        assert (state.values, state.next) == ({"cents": 250, "log": []}, ("pay",))
        assert (state.metadata["version"], state.graph_error) == (1, None)

    def test_a_complete_threads_recorded_outcome_is_read_by_newer_code(self, place):
        with first(place.open(), fn=lambda _s: {"log": "old"}) as app:
            app.invoke({"cents": 250}, thread_id="t", run_id="one")
            app.invoke({"cents": 300}, thread_id="t", run_id="two")
        with second(place.open()) as app:
            one = app.invoke({"euros": 1.0}, thread_id="t", run_id="one")
            two = app.invoke({"euros": 1.0}, thread_id="t", run_id="two")

        assert one.state["cents"] == 250
        assert two.state["euros"] == 3.0

    def test_the_same_version_may_gain_nodes_and_keys(self, place):
        """Fingerprints differ; nothing that the thread needs is gone."""

        class Wider(Cents, total=False):
            note: str

        left_waiting(place)
        wider = shop("pay", Wider).add_node("after", lambda s: {"log": "after", "note": "x"})
        with wider.add_edge("pay", "after").compile(checkpointer=place.open()) as app:
            outcome = app.resume("yes", thread_id="t")
            row = app.checkpointer.load("t").row

        assert outcome.state == {"cents": 250, "log": ["paid: yes", "after"], "note": "x"}
        assert row.fingerprint == app.fingerprint


class TestOlderCode:
    def test_it_leaves_the_thread_alone_and_the_right_code_goes_on(self, place):
        asked = left_waiting(place)
        with second(place.open()) as app:
            app.invoke(None, thread_id="t")
        with first(place.open()) as app:
            with pytest.raises(GraphTooOld, match="was written by version 2 of graph 'shop'"):
                app.resume("yes", thread_id="t")
            state = app.get_state("t")
            assert "was written by version 2" in state.graph_error
            assert (state.values["euros"], state.next, state.status) == (
                2.5,
                ("charge",),
                "waiting",
            )
        with second(place.open()) as app:
            assert app.resume({asked.interrupt.id: "yes"}, thread_id="t").state["euros"] == 2.5


class TestUnfitCode:
    def test_what_is_gone_is_told_and_the_thread_goes_on_under_the_right_code(self, place):
        left_waiting(place)
        with second(place.open(), migrations={}) as app:
            with pytest.raises(GraphChanged) as caught:
                app.resume("yes", thread_id="t")
            state = app.get_state("t")
        assert caught.value.differences == ("the key 'cents' is gone", "node 'pay' is gone")
        assert caught.value.code == "graph_changed"
        assert state.graph_error == caught.value.message
        assert (state.values["cents"], state.next) == (250, ("pay",))
        with second(place.open()) as app:
            assert app.resume("yes", thread_id="t").state["euros"] == 2.5

    def test_a_migration_that_fails_leaves_the_thread_alone(self, place):
        left_waiting(place)
        broken = {1: Migration(state=lambda values: values["euros"], rename={"pay": "charge"})}
        with second(place.open(), migrations=broken) as app:
            for _time in range(2):
                with pytest.raises(MigrationFailed, match="raised KeyError: 'euros'"):
                    app.resume("yes", thread_id="t")
        with first(place.open()) as app:
            assert app.resume("yes", thread_id="t").state["cents"] == 250

    def test_a_message_to_it_is_refused_at_once(self, place):
        left_waiting(place)
        with Runtime(place.open(), graphs=[second(None, migrations={})]) as runtime:
            with pytest.raises(GraphChanged):
                runtime.thread("t").tell(Resume("yes"))
            assert place.open().load("t").inbox == ()

    def test_an_unfinished_run_may_be_replaced_by_a_new_one(self, place):
        left_waiting(place)
        fits = shop("charge", Cents, fn=lambda _s: {"log": "new"})
        with fits.compile(checkpointer=place.open()) as app:
            with pytest.raises(GraphChanged, match="node 'pay' is gone"):
                app.invoke(None, thread_id="t")
            outcome = app.invoke({"cents": 1}, thread_id="t", on_unfinished="restart")

        assert outcome.state == {"cents": 1, "log": ["new"]}


class TestARunningRecovery:
    @pytest.fixture
    def left(self, place):
        """A place with a drained thread of version 2 of `shop`, and one of another graph."""
        gates = [Gate({"log": "done"}), Gate({"log": "done"})]
        apps = [
            second(None, fn=gates[0]),
            Graph(Cents, name="other").add_node("a", gates[1]).add_edge(START, "a").compile(),
        ]
        with Runtime(place.open(), graphs=apps) as runtime:
            callers = [
                Caller(runtime.thread("t", graph=apps[0]).ask, Invoke({"euros": 2.5})),
                Caller(runtime.thread("u", graph=apps[1]).ask, Invoke({"cents": 1})),
            ]
            for gate in gates:
                gate.wait()
            runtime.drain(timeout=0)
            for caller in callers:
                caller.join()
        return place

    def test_it_sets_threads_aside_and_says_so_once(self, left):
        older = first(None, fn=lambda _s: None)
        with Runtime(left.open()) as runtime:
            eventually(lambda: set(runtime.health().set_aside) == {"t", "u"})
            assert "no graph 'shop'" in runtime.health().set_aside["t"]
            events = Events(runtime)
            runtime.register(older)
            events.wait(ThreadSetAside, thread_id="t", code="graph_too_old")
            health = runtime.health()
            assert health.ready
            assert set(health.set_aside) == {"t", "u"}
            assert "version 2" in health.set_aside["t"]
            assert runtime.statistics().set_aside == 2
            assert runtime.thread("v").ask(Invoke({"cents": 1})).state["cents"] == 1
            with pytest.raises(GraphTooOld):
                runtime.thread("t").ask(Invoke({"cents": 1}))
            assert len(events.of(ThreadSetAside, thread_id="t", code="graph_too_old")) == 1

    def test_it_goes_on_when_the_right_code_is_registered(self, left):
        with Runtime(left.open(), graphs=[first(None, fn=lambda _s: None)]) as runtime:
            eventually(lambda: set(runtime.health().set_aside) == {"t", "u"})
            newer = second(None, fn=lambda _s: {"log": "done"})
            runtime.register(newer)
            eventually(lambda: runtime.get_state("t").status == "complete")
            eventually(lambda: set(runtime.health().set_aside) == {"u"})
            assert runtime.get_state("t").values == {"euros": 2.5, "log": ["done"]}

    def test_a_thread_of_an_unknown_graph_may_be_deleted(self, left):
        with Runtime(left.open(), graphs=[first(None)]) as runtime:
            eventually(lambda: "u" in runtime.health().set_aside)
            assert runtime.delete_thread("u")
            assert "u" not in runtime.health().set_aside


@dataclasses.dataclass
class OldItem:
    name: str
    price: int


@dataclasses.dataclass
class Item:
    name: str
    euros: float = 0.0


class Kind(enum.Enum):
    GIFT = "gift"


class OldTypes(TypedDict, total=False):
    items: list[OldItem]
    kinds: dict[str, Kind | OldItem | dt.datetime]
    seen: set[str]
    pair: tuple[int, ...]
    at: dt.datetime
    log: Annotated[list[str], append]


class NewTypes(TypedDict, total=False):
    items: list[Item]
    kinds: dict[str, str]
    seen: set[str]
    pair: tuple[int, ...]
    at: dt.datetime
    log: Annotated[list[str], append]


GIVEN = {
    "items": [OldItem("tea", 250)],
    "kinds": {"tea": Kind.GIFT, "at": OldItem("x", 1)},
    "seen": {"a", "b"},
    "pair": (1, 2),
    "at": dt.datetime(2026, 5, 4, tzinfo=dt.UTC),
}


def typed(schema, version, migrations, store, fn=pay):
    graph = Graph(schema, name="typed", version=version).add_node("pay", fn)
    return graph.add_edge(START, "pay").compile(checkpointer=store, migrations=migrations)


class TestTypesThatAreGone:
    """What a migration gets of values whose classes have changed, or are no more."""

    def test_classes_that_changed_come_as_plain_data_and_all_else_as_it_was(self, place):
        seen = []

        def changes(values):
            seen.append(dict(values))
            values["items"] = [
                {"name": item["name"], "euros": item["price"] / 100} for item in values["items"]
            ]
            values["kinds"] = {"tea": values["kinds"]["tea"]}
            return values

        with typed(OldTypes, 1, {}, place.open()) as app:
            app.invoke(GIVEN, thread_id="t")
        with typed(NewTypes, 2, {1: Migration(state=changes)}, place.open()) as app:
            outcome = app.resume("yes", thread_id="t")

        assert seen == [
            GIVEN
            | {
                "items": [{"name": "tea", "price": 250}],
                "kinds": {"tea": "GIFT", "at": {"name": "x", "price": 1}},
            }
        ]
        assert outcome.state["items"] == [Item("tea", 2.5)]
        assert outcome.state["kinds"] == {"tea": "GIFT"}
        assert outcome.state["seen"] == {"a", "b"}
        assert outcome.state["pair"] == (1, 2)

    def test_old_checkpoints_are_readable_and_say_what_is_not_in_its_type(self, place):
        with typed(OldTypes, 1, {}, place.open()) as app:
            app.invoke(GIVEN, thread_id="t")
        migrations = {1: Migration(state=lambda values: {"seen": values["seen"]})}
        with typed(NewTypes, 2, migrations, place.open()) as app:
            app.resume("yes", thread_id="t")
            *_newer, oldest = app.get_state_history("t")

        assert oldest.values["kinds"]["at"] == {"name": "x", "price": 1}
        assert oldest.values["seen"] == {"a", "b"}
        assert "Kind' is not known here" in oldest.graph_error

    def test_a_value_that_fits_no_more_is_told_by_the_key(self, place):
        with typed(OldTypes, 1, {}, place.open()) as app:
            app.invoke(GIVEN, thread_id="t")
        migrations = {1: Migration(state=lambda values: {**values, "items": [{"euros": 1.0}]})}
        with (
            typed(NewTypes, 2, migrations, place.open()) as app,
            pytest.raises(
                MigrationFailed, match=r"migrations\[1\].state returned .* for the key 'items'"
            ),
        ):
            app.resume("yes", thread_id="t")


class TestGraphsInside:
    def inner(self, node="ask", **options):
        graph = Graph(Cents, name="inner").add_node(node, pay).add_edge(START, node)
        return graph.compile(**options)

    def outer(self, place, name, inner, version=1, migrations=None, **options):
        graph = Graph(Cents, name="outer", version=version).add_node(name, inner, **options)
        graph.add_edge(START, name)
        return graph.compile(checkpointer=place.open(), migrations=migrations or {})

    def test_what_is_open_inside_goes_on_under_the_new_name(self, place):
        with self.outer(place, "in", self.inner()) as app:
            asked = app.invoke({"cents": 1}, thread_id="t").interrupt
        migrations = {1: Migration(rename={"in": "inside"})}
        with self.outer(place, "inside", self.inner(), 2, migrations) as app:
            again = app.invoke(None, thread_id="t").interrupt
            assert again.id == asked.id
            outcome = app.resume({again.id: "yes"}, thread_id="t")

        assert outcome.state == {"cents": 1, "log": ["paid: yes"]}

    def test_a_persistent_one_keeps_its_state_under_the_new_name(self, place):
        with self.outer(place, "in", self.inner(), persistent=True) as app:
            app.invoke({"cents": 1}, thread_id="t")
            app.resume("yes", thread_id="t")
            (kept,) = [name for name in app.checkpointer.load("t").values if "kept" in name]
        migrations = {1: Migration(rename={"in": "inside"}, state=lambda values: values)}
        with self.outer(place, "inside", self.inner(), 2, migrations, persistent=True) as app:
            app.invoke({"cents": 2}, thread_id="t")
            values = app.checkpointer.load("t").values

        assert kept.endswith(":in")
        assert [name for name in values if "kept" in name] == [f"{kept}side"]

    def test_what_is_gone_inside_is_told(self, place):
        with self.outer(place, "in", self.inner()) as app:
            app.invoke({"cents": 1}, thread_id="t")
        with (
            self.outer(place, "in", self.inner("question")) as app,
            pytest.raises(GraphChanged) as caught,
        ):
            app.resume("yes", thread_id="t")
        with (
            self.outer(place, "in", pay) as app,
            pytest.raises(GraphChanged, match="node 'in' was a graph and is a function"),
        ):
            app.resume("yes", thread_id="t")
        with self.outer(place, "in", self.inner()) as app:
            assert app.resume("yes", thread_id="t").state["log"] == ["paid: yes"]

        assert caught.value.differences == ("in the graph 'in': node 'ask' is gone",)


def wait_and_die(_pipe, path):
    """The process of version 1: a thread waits, and the process is killed."""
    first(children.store_at(path)).invoke({"cents": 250}, thread_id="t")
    children.die()


def migrate_and_die(_pipe, path, point):
    """A process of version 2 that is killed around its first commit, which is that of the migration."""
    store = children.store_at(path)
    store.faults = lambda reached: children.die() if reached == point else None
    second(store).invoke(None, thread_id="t")


def finish(pipe, path):
    """A process of version 2 that is not killed."""
    with second(children.store_at(path)) as app:
        outcome = app.resume("yes", thread_id="t")
        sources = [state.metadata["source"] for state in app.get_state_history("t")]
    pipe.send((outcome.state, sources))


@pytest.mark.slow
@pytest.mark.parametrize("point", ["put.before", "put.after", "sync.before", "sync.after"])
def test_processes_that_are_killed_around_the_migration_lose_nothing(disk, point):
    children.killed(wait_and_die, disk.path)
    children.killed(migrate_and_die, disk.path, point)

    state, sources = children.answer(finish, disk.path)
    assert state == {"euros": 2.5, "log": ["paid: yes"]}
    assert sources == ["loop", "migrate", "input"]


def test_an_unknown_graph_is_the_callers_error(place):
    left_waiting(place)
    with Runtime(place.open(), graphs=[typed(OldTypes, 1, {}, None)]) as runtime:
        with pytest.raises(UnknownGraph, match="no graph 'shop'"):
            runtime.get_state("t")
        assert runtime.health().set_aside == {}


class TestOlderBranches:
    def test_a_branch_does_not_begin_at_a_checkpoint_of_another_version(self, place):
        left_waiting(place)
        with second(place.open()) as app:
            app.resume("yes", thread_id="t")
            oldest = list(app.get_state_history("t"))[-1]
            checkpoint = oldest.config["configurable"]["checkpoint_id"]
            with pytest.raises(GraphChanged, match="is of version 1 .* move the head there"):
                app.invoke(None, thread_id="t", checkpoint_id=checkpoint)
            assert app.get_state("t").status == "complete"

    def test_a_head_that_is_moved_to_an_older_version_is_migrated_again(self, place):
        left_waiting(place)
        with second(place.open()) as app:
            app.resume("yes", thread_id="t")
            oldest = list(app.get_state_history("t"))[-1]
            app.set_head("t", oldest.config["configurable"]["checkpoint_id"])
            asked = app.invoke(None, thread_id="t")
            assert (asked.state["euros"], asked.interrupt.node) == (2.5, "charge")
            assert app.resume("again", thread_id="t").state["log"] == ["paid: again"]

    def test_a_migrated_checkpoint_is_raw_without_what_is_pending(self, place):
        def side(_state):
            return {"log": "side"}

        wide = shop("pay", Cents).add_node("side", side).add_edge(START, "side")
        with wide.compile(checkpointer=place.open()) as app:
            app.invoke({"cents": 250}, thread_id="t")
        wide = shop("charge", Euros, version=2).add_node("side", side).add_edge(START, "side")
        with wide.compile(checkpointer=place.open(), migrations=MIGRATIONS) as app:
            app.invoke(None, thread_id="t")
            head = app.get_state("t")
            raw = app.get_state("t", head.config["configurable"]["checkpoint_id"])
            branch = app.resume("yes", thread_id="t", checkpoint_id=None, fork=True)

        assert (head.values["log"], head.next) == (["side"], ("charge",))
        assert (raw.values["log"], set(raw.next)) == ([], {"charge", "side"})
        assert sorted(branch.state["log"]) == ["paid: yes", "side"]

    def test_update_state_knows_which_node_ran_before_the_migration(self, place):
        with first(place.open(), fn=lambda _s: {"log": "paid"}) as app:
            app.invoke({"cents": 250}, thread_id="t")
        with second(place.open()) as app:
            app.update_state("t", {"euros": 7.0})
            state = app.get_state("t")

        assert (state.values["euros"], state.next, state.status) == (7.0, (), "complete")
