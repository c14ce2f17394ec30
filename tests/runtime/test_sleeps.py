"""Durable sleeps, as a user sees them: the thread sleeps, the process may end, nothing is held."""

from __future__ import annotations

import asyncio
import datetime as dt
from typing import Any

import pytest

from beamweaver import (
    START,
    Cancelled,
    Continue,
    Drained,
    Graph,
    Invoke,
    Resume,
    Runtime,
    interrupt,
)
from beamweaver.checkpoint import MemoryCheckpointer
from beamweaver.errors import (
    InvalidCall,
    InvalidUpdate,
    NodeFailed,
    NodeTimeout,
    NothingToResume,
    RouterFailed,
)
from beamweaver.events import RunSleeps, TaskStarted
from beamweaver.limits import Limits
from beamweaver.runtime.offsets import Offsets
from beamweaver.runtime.sleepers import Sleepers
from supervisors import KILLED, ActorSystem
from supervisors.testing import DeterministicScheduler, VirtualClock, eventually
from tests.runtime.kit import Caller, Events, Gate, line, simulated, star, wrote

DAY = 86_400.0


def sleeping(*durations: Any, **options: Any) -> Any:
    """A graph whose node sleeps, with the node itself as a counter."""

    def node(state, ctx):
        for each in durations:
            ctx.sleep(each)
        return {"log": ["awake"]}

    def counted(state, ctx):
        counted.runs += 1
        return node(state, ctx)

    counted.runs = 0
    return line("g", a=(counted, options)).compile(), counted


def passed(runtime, seconds):
    """Let that much time pass."""
    runtime._core.system.scheduler.run_for(seconds)


class TestSleep:
    @pytest.mark.parametrize("seed", range(3))
    def test_it_takes_its_time(self, memory, seed):
        app, node = sleeping(10, dt.timedelta(days=3), 0, 0.5, 1, 1.5)
        with simulated(memory, seed, graphs=[app]) as runtime:
            clock = runtime._core.system.clock
            began = clock.monotonic()
            outcome = runtime.thread("t").ask(Invoke({}), timeout=9 * DAY)
            assert outcome.state["log"] == ["awake"]
            assert clock.monotonic() - began == pytest.approx(10 + 3 * DAY + 3, abs=2.5)
        assert node.runs == 4, "only what is longer than a second runs the node again"

    def test_until_a_time(self, memory):
        def node(state, ctx):
            ctx.sleep_until(dt.datetime.fromtimestamp(state["until"], dt.UTC))
            return {"log": ["awake"]}

        app = Graph(name="g").add_node("a", node).add_edge(START, "a").compile()
        with simulated(memory, 1, graphs=[app]) as runtime:
            clock = runtime._core.system.clock
            until = clock.time() + 1_000
            runtime.thread("t").ask(Invoke({"until": until}), timeout=9_000)
            assert clock.time() == pytest.approx(until, abs=0.01)
            runtime.thread("u").ask(Invoke({"until": until - 500}), timeout=9_000)
            assert clock.time() == pytest.approx(until, abs=0.01), "that time is over"

    def test_a_time_that_follows_from_the_clock_is_that_of_the_first_call(self, memory):
        def node(state, ctx):
            runs.append(1)
            ctx.sleep_until(ctx.soon() + dt.timedelta(seconds=100))

        runs = []
        app = line("g", a=lambda state, ctx: node(state, Soon(ctx))).compile()
        with simulated(memory, 1, graphs=[app]) as runtime:
            runtime.thread("t").ask(Invoke({}), timeout=1_000)
        assert len(runs) == 2

    def test_what_goes_before_it_is_done_once_in_a_step(self, store):
        sent = []

        def node(state, ctx):
            ctx.step("first", sent.append, "hello")
            ctx.sleep(1.001)
            ctx.step("second", sent.append, "still there?")

        with line("g", a=node).compile(checkpointer=store) as app:
            app.invoke({}, thread_id="t")
        assert sent == ["hello", "still there?"]

    def test_an_async_node_awaits_it(self, store):
        runs = []

        async def node(state, ctx):
            runs.append(1)
            await ctx.sleep(0.01)
            await ctx.sleep(1.001)
            return {"log": ["awake"]}

        with line("g", a=node).compile(checkpointer=store) as app:
            assert app.invoke({}, thread_id="t").state["log"] == ["awake"]
        assert len(runs) == 2

    def test_without_a_store_the_call_waits(self):
        app, node = sleeping(1.001)
        with app:
            assert app.invoke({}).state["log"] == ["awake"]
        assert node.runs == 2

    def test_keys_tell_sleeps_apart(self, memory):
        orders = iter(["ab", "ba", "ab"])

        def node(state, ctx):
            for key in next(orders):
                ctx.sleep(100, key=key)

        app = line("g", a=node).compile()
        with simulated(memory, 1, graphs=[app]) as runtime:
            clock = runtime._core.system.clock
            began = clock.monotonic()
            runtime.thread("t").ask(Invoke({}), timeout=1_000)
            assert clock.monotonic() - began == pytest.approx(200)

    def test_a_short_one_can_be_killed(self, store):
        app, _node = sleeping(1.0, timeout=0.05)
        with Runtime(store, graphs=[app]) as runtime, pytest.raises(NodeTimeout):
            runtime.thread("t").ask(Invoke({}))

    def test_the_timeout_of_an_attempt_stands_still(self, memory):
        app, _node = sleeping(1_000, timeout=5)
        with simulated(memory, 1, graphs=[app]) as runtime:
            state = runtime.thread("t").ask(Invoke({}), timeout=2_000).state
        assert state["log"] == ["awake"]

    @pytest.mark.parametrize(
        "duration", [-1, float("nan"), float("inf"), "1", None, True, 1e12, dt.timedelta(-1)]
    )
    def test_what_is_no_time_is_refused(self, memory, duration):
        app, _node = sleeping(duration)
        with Runtime(memory, graphs=[app]) as runtime, pytest.raises(NodeFailed) as caught:
            runtime.thread("t").ask(Invoke({}))
        assert isinstance(caught.value.__cause__, InvalidCall)

    def test_one_until_the_end_of_time_can_be_looked_at(self, memory):
        until = dt.datetime.max.replace(tzinfo=dt.UTC)
        app = line("g", a=lambda _state, ctx: ctx.sleep_until(until)).compile()
        with Runtime(memory, graphs=[app]) as runtime:
            events = Events(runtime)
            runtime.thread("t").tell(Invoke({"n": 1}))
            events.wait(RunSleeps)
            assert runtime.get_state("t").status == "sleeping"

    @pytest.mark.parametrize("when", [dt.datetime.fromisoformat("2030-01-01"), 17, None])
    def test_what_is_no_point_in_time_is_refused(self, memory, when):
        app = line("g", a=lambda state, ctx: ctx.sleep_until(when)).compile()
        with Runtime(memory, graphs=[app]) as runtime:
            with pytest.raises(NodeFailed, match="with a time zone"):
                runtime.thread("t").ask(Invoke({}))

    def test_it_is_not_to_be_swallowed(self, memory):
        def node(state, ctx):
            try:
                ctx.sleep(9)
            except BaseException:
                return {}

        app = line("g", a=node).compile()
        with Runtime(memory, graphs=[app]) as runtime:
            with pytest.raises(InvalidUpdate, match=r"called ctx\.sleep\(\) and returned"):
                runtime.thread("t").ask(Invoke({}))

    def test_neither_a_router_nor_a_step_sleeps(self, memory):
        graph = Graph(name="g").add_node("a", lambda state: {}).add_edge(START, "a")
        graph.add_conditional_edges("a", lambda state, ctx: ctx.sleep(9), ["a"])
        with (
            graph.compile(checkpointer=memory) as app,
            pytest.raises(RouterFailed, match="only a node"),
        ):
            app.invoke({}, thread_id="t")
        app = line("h", a=lambda state, ctx: ctx.step("s", lambda: ctx.sleep(9)))
        with (
            app.compile(checkpointer=memory) as app,
            pytest.raises(NodeFailed, match="inside of step"),
        ):
            app.invoke({}, thread_id="u")


class Soon:
    """A context that knows the time."""

    def __init__(self, ctx: Any) -> None:
        self._ctx = ctx

    def soon(self) -> dt.datetime:
        return dt.datetime.fromtimestamp(self._ctx._frame.hub.system.clock.time(), dt.UTC)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._ctx, name)


class TestMeanwhile:
    @pytest.fixture
    def night(self, store):
        """A runtime whose thread `t` sleeps for a day."""
        app, node = sleeping(DAY)
        with Runtime(store, graphs=[app]) as runtime:
            runtime.node = node
            events = Events(runtime)
            runtime.caller = Caller(runtime.thread("t").ask, Invoke({}), raises=False)
            events.wait(RunSleeps)
            yield runtime

    def test_the_state_says_so(self, night):
        state = night.get_state("t")
        assert (state.status, state.next) == ("sleeping", ("a",))
        (task,) = state.tasks
        assert task.state == "sleeping"
        assert task.due - state.created_at > dt.timedelta(hours=23)
        assert not night.caller.done

    def test_nothing_is_held(self, night):
        eventually(lambda: night.statistics().running == 0)
        assert night.health().ready

    def test_an_answer_is_refused(self, night):
        with pytest.raises(NothingToResume, match="sleeps"):
            night.thread("t").ask(Resume("yes"))

    def test_a_cancel_ends_it(self, night):
        night.thread("t").cancel()
        assert isinstance(night.caller.join(), Cancelled)
        assert night.get_state("t").status == "cancelled"

    def test_a_drain_ends_the_waiting_and_keeps_the_sleep(self, night):
        assert night.drain(5)
        assert isinstance(night.caller.join(), Drained)

    def test_a_killed_actor_sleeps_on(self, night):
        hub = night._core.hub
        old = hub.actors["t"]
        hub.system.exit(old, KILLED)
        eventually(lambda: hub.actors.get("t") not in (None, old))
        eventually(lambda: night.statistics().running == 0)
        assert night.get_state("t").status == "sleeping"
        assert night.node.runs == 1

    def test_other_threads_run_in_its_place(self, store):
        app, _node = sleeping(DAY)
        quick = line("quick", b=wrote("b")).compile()
        limits = Limits(threads_running=1)
        with Runtime(store, graphs=[app, quick], limits=limits) as runtime:
            events = Events(runtime)
            for n in range(3):
                runtime.thread(f"t{n}", app).tell(Invoke({}))
            events.wait(RunSleeps, count=3)
            assert runtime.thread("q", quick).ask(Invoke({}), timeout=10).state["log"] == ["b"]


class TestLater:
    """What becomes of a sleep in the next runtime, and of one whose actor has left the memory."""

    @pytest.mark.parametrize(
        ("away", "rest"), [(0, 1_000), (600, 400), (5_000, 0), (-60, 1_000), (-9 * DAY, 1_000)]
    )
    def test_the_next_runtime_sleeps_the_rest(self, place, away, rest):
        """Whatever the clocks say, no more than the whole delay."""
        app, node = sleeping(1_000)
        with simulated(place.open(), 1, graphs=[app]) as runtime:
            runtime.thread("t").tell(Invoke({}))
            passed(runtime, 1)
            began = runtime._core.system.clock.time() - 1
        system = ActorSystem(DeterministicScheduler(2, clock=VirtualClock(began + away)))
        with Runtime(place.open(), graphs=[app], system=system, seed=2) as runtime:
            passed(runtime, max(rest - 1, 0))
            assert (runtime.get_state("t").status == "sleeping") is (rest > 0)
            passed(runtime, 3)
            assert runtime.get_state("t").values["log"] == ["awake"]
        assert node.runs == 2

    def test_only_what_is_due_is_taken_up(self, place):
        short, long = sleeping(100), sleeping(5_000)
        graphs = [short[0], line("h", a=long[1]).compile()]
        with simulated(place.open(), 1, graphs=graphs) as runtime:
            runtime.thread("s", graphs[0]).tell(Invoke({}))
            runtime.thread("l", graphs[1]).tell(Invoke({}))
            passed(runtime, 10)
        with simulated(place.open(), 2, graphs=graphs) as runtime:
            events = Events(runtime)
            passed(runtime, 10)
            assert runtime._core.hub.actors == {}, "nobody is in memory"
            passed(runtime, 200)
            assert runtime.get_state("s", graph=graphs[0]).status == "complete"
            assert runtime.get_state("l", graph=graphs[1]).status == "sleeping"
            passed(runtime, 5_000)
            assert runtime.get_state("l", graph=graphs[1]).status == "complete"
            assert len(events.of(TaskStarted)) == 2

    @pytest.mark.parametrize("set_back", [False, True])
    def test_what_is_not_due_soon_is_not_read_at_the_start(self, set_back):
        store, read = MemoryCheckpointer(), []
        app, node = sleeping(DAY)
        with simulated(store, 1, graphs=[app]) as first:
            for n in range(40):
                first.thread(f"t{n:02}").tell(Invoke({}))
            passed(first, 1)
            began = first._core.system.clock.time()
        found = store.sleepers

        def sleepers(**paging):
            page = list(found(**paging))
            read.extend(page)
            return iter(page)

        store.sleepers = sleepers
        clock = VirtualClock(began + (-2 * DAY if set_back else 60))
        system = ActorSystem(DeterministicScheduler(2, clock=clock))
        limits = Limits(recovery_batch=10)
        with Runtime(store, graphs=[app], system=system, seed=2, limits=limits) as second:
            passed(second, 1)
            assert len(read) == (40 if set_back else 10)
            assert node.runs == 40
            passed(second, DAY + 5)
            assert node.runs == 80

    @pytest.mark.parametrize("held", [1, 100])
    @pytest.mark.parametrize("idle", [0, 100])
    @pytest.mark.parametrize("hours", [-1, 1, 1_000])
    @pytest.mark.parametrize("asleep", [True, False])
    def test_a_clock_that_is_set_changes_no_sleep(self, memory, hours, asleep, idle, held):
        """Before it begins or while it lasts; Recovery may have to look for it again and again."""
        app, node = sleeping(2_000)
        limits = Limits(threads_idle=idle, sleepers_held=held)
        with simulated(memory, 1, graphs=[app], limits=limits) as runtime:
            names = [f"t{n}" for n in range(3)]
            if asleep:
                self.started(runtime, names)
            runtime._core.system.clock.shift_time(hours * 3_600.0)
            if not asleep:
                self.started(runtime, names)
            passed(runtime, 1_980)
            assert {runtime.get_state(name).status for name in names} == {"sleeping"}
            passed(runtime, 25)
            assert {runtime.get_state(name).status for name in names} == {"complete"}
        assert node.runs == 6

    def started(self, runtime, names):
        for name in names:
            runtime.thread(name).tell(Invoke({}))
        passed(runtime, 5)

    @pytest.mark.parametrize("hours", [-1, 1])
    @pytest.mark.parametrize(("part", "idle"), [("recovery", 0), ("t", 100)])
    def test_a_clock_that_is_set_changes_no_sleep_whose_actor_is_killed(
        self, memory, part, idle, hours
    ):
        app, _node = sleeping(2_000)
        with simulated(memory, 1, graphs=[app], limits=Limits(threads_idle=idle)) as runtime:
            self.started(runtime, ["t"])
            hub = runtime._core.hub
            hub.system.clock.shift_time(hours * 3_600.0)
            (hub.recovery if part == "recovery" else hub.actors[part]).kill(5.0)
            passed(runtime, 1_980)
            assert runtime.get_state("t").status == "sleeping"
            passed(runtime, 25)
            assert runtime.get_state("t").status == "complete"

    def test_who_leaves_the_memory_is_waked(self, memory):
        app, node = sleeping(2_000)
        limits = Limits(threads_idle=2)
        with simulated(memory, 1, graphs=[app], limits=limits) as runtime:
            for n in range(20):
                runtime.thread(f"t{n}").tell(Invoke({}))
            passed(runtime, 10)
            assert len(runtime._core.hub.actors) <= 3
            passed(runtime, 2_100)
            assert {runtime.get_state(f"t{n}").status for n in range(20)} == {"complete"}
        assert node.runs == 40

    def test_more_than_are_held_are_waked_too(self, memory):
        app, node = sleeping(300)
        limits = Limits(threads_idle=1, sleepers_held=3)
        with simulated(memory, 1, graphs=[app], limits=limits) as runtime:
            for n in range(20):
                runtime.thread(f"t{n}").tell(Invoke({}))
            passed(runtime, 400)
            assert {runtime.get_state(f"t{n}").status for n in range(20)} == {"complete"}
        assert node.runs == 40

    def test_a_place_is_waited_for(self, memory):
        app, _node = sleeping(100)
        gate = Gate({"log": ["through"]})
        limits = Limits(threads_running=1, threads_idle=1)
        hold = line("hold", a=lambda state, ctx: ctx.sleep(0.9, key="x") or gate.update).compile()
        with simulated(memory, 1, graphs=[app, hold], limits=limits) as runtime:
            for n in range(5):
                runtime.thread(f"t{n}", app).tell(Invoke({}))
            passed(runtime, 99)
            for n in range(5):
                runtime.thread(f"h{n}", hold).tell(Invoke({}))
            passed(runtime, 60)
            found = {runtime.get_state(f"{x}{n}").status for n in range(5) for x in "th"}
            assert found == {"complete"}

    @pytest.mark.parametrize("recover", ["called", "none"])
    def test_who_is_not_to_be_recovered_sleeps_on(self, place, recover):
        app, node = sleeping(100)
        with simulated(place.open(), 1, graphs=[app]) as runtime:
            runtime.thread("t").tell(Invoke({}))
            passed(runtime, 1)
        with simulated(place.open(), 2, graphs=[app], recover=recover) as runtime:
            passed(runtime, 500)
            assert runtime.get_state("t").status == "sleeping"
            assert runtime.thread("t").ask(Continue(), timeout=500).state["log"] == ["awake"]
        assert node.runs == 2

    def test_a_question_and_a_sleep_of_one_step(self, memory):
        app = star(
            "g",
            ask=lambda state: {"log": [interrupt("?")]},
            sleep=lambda state, ctx: ctx.sleep(1_000) or {"log": ["awake"]},
        ).compile()
        with simulated(memory, 1, graphs=[app]) as runtime:
            clock = runtime._core.system.clock
            thread = runtime.thread("t")
            began = clock.monotonic()
            assert thread.ask(Invoke({}), timeout=10).interrupt.value == "?"
            assert runtime.get_state("t").status == "waiting"
            assert thread.ask(Resume("yes"), timeout=2_000).state["log"] == ["yes", "awake"]
            assert clock.monotonic() - began == pytest.approx(1_000, abs=1)


class TestSleepers:
    class Row:
        def __init__(self, due: float, delay: float) -> None:
            self.due_us, self.delay = int(due * 1_000_000), delay

    def made(self, most: int = 10, asleep_us: int | None = 0) -> tuple[Sleepers, Any]:
        clock = VirtualClock()
        self.offsets = Offsets(clock)
        return Sleepers(clock, self.offsets, most, asleep_us), clock

    @pytest.mark.parametrize(("due", "rest"), [(50, 50), (-50, 0), (5_000, 100)])
    def test_the_rest_of_a_dead_process_is_bounded(self, due, rest):
        sleepers, clock = self.made()
        row = self.Row(clock.time() + due, 100)
        assert sleepers.rest_of(row, ours=False) == pytest.approx(rest)
        clock.advance(30)
        assert sleepers.rest_of(row, ours=False) == pytest.approx(rest - 30)

    def test_a_later_sleep_of_this_process_has_its_own_delay(self):
        sleepers, clock = self.made()
        clock.advance(500)
        self.offsets.note()
        row = self.Row(clock.time() + 100, 100)
        assert sleepers.rest_of(row, ours=True) == pytest.approx(100)

    def test_they_come_in_the_order_in_which_they_are_due(self):
        sleepers, clock = self.made()
        for name, rest in (("c", 30), ("a", 10), ("b", 20), ("a", 10)):
            sleepers.hold(name, rest)
        assert sleepers.pop() is None
        clock.advance(25)
        assert [sleepers.pop(), sleepers.pop(), sleepers.pop()] == ["a", "b", None]
        assert len(sleepers) == 1

    def test_what_is_not_due_soon_is_looked_for_later(self):
        sleepers, clock = self.made()
        sleepers.hold("a", 10_000)
        assert (len(sleepers), sleepers.look_again()) == (0, False)
        clock.advance(sleepers.next - clock.monotonic())
        assert [sleepers.look_again(), sleepers.look_again()] == [True, False]

    def test_what_is_far_away_need_not_be_read(self):
        sleepers, clock = self.made()
        row = self.Row(clock.time() + 10_000, 20_000)
        assert sleepers.is_far(row)
        assert sleepers.next - clock.monotonic() == pytest.approx(600)
        clock.advance(9_500)
        assert not sleepers.is_far(row)

    @pytest.mark.parametrize("asleep", ["a minute from now", None])
    def test_a_clock_that_was_set_back_tells_of_no_thread_that_it_is_far_away(self, asleep):
        later = int((VirtualClock().time() + 60) * 1_000_000)
        sleepers, clock = self.made(asleep_us=later if asleep else None)
        assert not sleepers.is_far(self.Row(clock.time() + 10_000, 100))

    def test_no_more_are_held_than_may_be(self):
        sleepers, clock = self.made(most=3)
        for n in range(50):
            sleepers.hold(f"t{n:02}", 50 - n)
        assert len(sleepers) <= 6
        clock.advance(6)
        found = [sleepers.pop() for _ in range(6)]
        assert found[:3] == ["t49", "t48", "t47"]
        clock.advance(50)
        assert sleepers.look_again()


def test_many_async_nodes_sleep_at_once(memory):
    async def node(state, ctx):
        await ctx.sleep(1.01)
        return {"log": ["awake"]}

    app = line("g", a=node).compile()

    async def main():
        async with Runtime(memory, graphs=[app]) as runtime:
            asks = [runtime.thread(f"t{n}").aask(Invoke({})) for n in range(200)]
            return await asyncio.gather(*asks)

    assert {tuple(outcome.state["log"]) for outcome in asyncio.run(main())} == {("awake",)}
