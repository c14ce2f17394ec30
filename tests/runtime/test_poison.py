"""Threads that kill their process, or crash their actor, are set aside, and no other is harmed."""

from __future__ import annotations

import pytest

from beamweaver import Continue, Invoke, Runtime
from beamweaver.errors import CallRefused, Quarantined
from beamweaver.events import StepCommitted, ThreadQuarantined, ThreadRestarted, ThreadTakenUp
from beamweaver.limits import Limits
from supervisors import KILLED
from supervisors.testing import eventually
from tests.runtime.children import finish_healthy, healthy, killed, poisoned, run_poisoned
from tests.runtime.kit import (
    Boom,
    Caller,
    Counted,
    Events,
    Gate,
    failing_at,
    line,
    simulated,
    wrote,
)


class TestAThreadThatKillsItsProcess:
    @pytest.fixture
    def dying(self, disk):
        """A place whose process died once in thread p."""
        killed(run_poisoned, disk.path, ["p"], 0)
        return disk

    def test_it_is_taken_up_twice_more_then_set_aside(self, dying):
        for _ in range(2):
            killed(run_poisoned, dying.path, [], 0)
        node = Counted(wrote("p"))
        with Runtime(dying.open(), graphs=[poisoned(node)]) as runtime:
            eventually(lambda: runtime.get_state("p").status == "quarantined")
            reason = runtime.get_state("p").metadata["reason"]
        assert reason == "the process died 3 times in step 2 (nodes p) without a commit"
        assert node.runs == 0

    def test_every_call_says_why(self, dying):
        for _ in range(2):
            killed(run_poisoned, dying.path, [], 0)
        with Runtime(dying.open(), graphs=[poisoned(wrote("p"))], recover="none") as runtime:
            thread = runtime.thread("p")
            for message in (Continue(), Invoke({"n": 1}), Continue()):
                with pytest.raises(Quarantined, match="died 3 times"):
                    thread.ask(message)

    def test_a_commit_in_between_clears_it(self, dying):
        killed(run_poisoned, dying.path, [], 0)
        with Runtime(dying.open(), graphs=[poisoned(wrote("p"))]) as runtime:
            assert runtime.thread("p").ask(Continue(), timeout=10).state["log"] == ["a", "p"]
            assert runtime.get_state("p").metadata["owner_deaths"] == 0

    def test_a_drain_is_no_death(self, dying):
        for _ in range(3):
            with Runtime(dying.open(), graphs=[poisoned(wrote("p"))], recover="none"):
                pass
        with Runtime(dying.open(), graphs=[poisoned(wrote("p"))], recover="none") as runtime:
            assert runtime.thread("p").ask(Continue(), timeout=10).state["log"] == ["a", "p"]

    @pytest.mark.slow
    def test_its_siblings_go_on_although_they_died_with_it(self, disk):
        siblings = ["h1", "h2", "h3"]
        killed(run_poisoned, disk.path, ["p", *siblings], 3)
        killed(run_poisoned, disk.path, [], 0)
        seen = killed(finish_healthy, disk.path)
        order = [thread for name, thread in seen if name == "ThreadTakenUp"]
        assert sorted(order) == ["h1", "h2", "h3", "p"] or "p" in order
        graphs = [poisoned(wrote("p")), healthy(wrote("b"))]
        with Runtime(disk.open(), graphs=graphs) as runtime:
            eventually(lambda: runtime.get_state("p").status == "quarantined")
            for name in siblings:
                outcome = runtime.thread(name, graphs[1]).ask(Continue(), timeout=10)
                assert outcome.state["log"] == ["a", "b"]

    @pytest.mark.slow
    def test_suspects_are_taken_up_one_at_a_time(self, disk):
        siblings = ["h1", "h2", "h3"]
        killed(run_poisoned, disk.path, ["p", *siblings], 3)
        killed(run_poisoned, disk.path, [], 3)
        graphs = [poisoned(wrote("p")), healthy(wrote("b"))]
        with simulated(disk.open(), 1, graphs=graphs) as runtime:
            events = Events(runtime)
            runtime._core.system.scheduler.run_for(60)
        order = [
            (type(event), event.thread_id)
            for event in events.seen
            if isinstance(event, ThreadTakenUp | StepCommitted)
        ]
        expected = []
        for name in ("h1", "h2", "h3", "p"):
            expected += [(ThreadTakenUp, name), (StepCommitted, name)]
        assert order == expected


class TestAnActorThatCrashes:
    def start(self, store, times, thread="bad", point="thread.load"):
        app = line("g", a=wrote("a"), b=wrote("b")).compile()
        fault = failing_at(point, times=times, thread_id=thread)
        return Runtime(store, graphs=[app], fault=fault)

    def test_two_crashes_are_invisible_to_the_caller(self, store):
        with self.start(store, 2) as runtime:
            events = Events(runtime)
            assert runtime.thread("bad").ask(Invoke({"n": 1})).state["log"] == ["a", "b"]
        assert len(events.of(ThreadRestarted, thread_id="bad")) == 2

    def test_three_without_a_commit_set_it_aside(self, store):
        with self.start(store, 3) as runtime:
            events = Events(runtime)
            with pytest.raises(Quarantined, match="crashed 3 times without a commit"):
                runtime.thread("bad").ask(Invoke({"n": 1}))
            assert events.wait(ThreadQuarantined).thread_id == "bad"

    def test_the_reason_names_the_crash(self, store):
        with self.start(store, 3) as runtime, pytest.raises(Quarantined, match="thread.load bad"):
            runtime.thread("bad").ask(Invoke({"n": 1}))

    def test_no_other_thread_is_harmed(self, store):
        with self.start(store, 3) as runtime:
            bad = Caller(runtime.thread("bad").ask, Invoke({"n": 1}))
            others = [Caller(runtime.thread(f"t{i}").ask, Invoke({"n": i})) for i in range(10)]
            assert all(other.join().state["log"] == ["a", "b"] for other in others)
            with pytest.raises(Quarantined):
                bad.join()
            assert runtime.failure is None

    def test_it_stays_set_aside_in_the_store(self, place):
        with self.start(place.open(), 0) as runtime:
            runtime.thread("bad").ask(Invoke({"n": 1}))
        with self.start(place.open(), 3) as runtime:
            with pytest.raises(Quarantined):
                runtime.thread("bad").ask(Invoke({"n": 2}))
            eventually(lambda: runtime.get_state("bad").status == "quarantined")
        with self.start(place.open(), 0) as runtime, pytest.raises(Quarantined):
            runtime.thread("bad").ask(Invoke({"n": 3}))

    def test_released_it_goes_on_from_its_last_commit(self, place):
        with self.start(place.open(), 3) as runtime:
            thread = runtime.thread("bad")
            with pytest.raises(Quarantined):
                thread.ask(Invoke({"n": 2}))
            thread.release()
            assert thread.ask(Invoke({"n": 2})).state["log"] == ["a", "b"]

    def test_released_in_another_runtime_it_goes_on(self, place):
        with self.start(place.open(), 0) as runtime:
            runtime.thread("bad").ask(Invoke({"n": 1}))
        with self.start(place.open(), 3) as runtime:
            with pytest.raises(Quarantined):
                runtime.thread("bad").ask(Invoke({"n": 2}))
            eventually(lambda: runtime.get_state("bad").status == "quarantined")
        with self.start(place.open(), 0) as runtime:
            runtime.thread("bad").release()
            assert runtime.thread("bad").ask(Continue(), timeout=10).state["log"] == ["a", "b"]

    def test_a_release_is_durable_when_it_returns_and_waits_for_no_run(self, memory):
        gate = Gate({"log": ["b"]})
        app = line("g", a=wrote("a"), b=gate).compile()
        fault = failing_at("thread.load", times=3)
        with Runtime(memory, graphs=[app]) as runtime:
            runtime.thread("bad").tell(Invoke({"n": 1}))
            gate.wait()
            hub = runtime._core.hub
            hub.fault = fault
            hub.system.exit(hub.actors["bad"], KILLED)
            with pytest.raises(Quarantined):
                runtime.thread("bad").ask(Continue(), timeout=10)
            runtime.thread("bad").release()
            assert runtime.get_state("bad").status == "running"
            gate.open()
            outcome = runtime.thread("bad").ask(Continue(), timeout=10)
            assert outcome.state["log"] == ["a", "b"]

    def test_only_a_quarantined_thread_can_be_released(self, store):
        with self.start(store, 0) as runtime:
            runtime.thread("bad").ask(Invoke({"n": 1}))
            with pytest.raises(CallRefused, match="is not quarantined"):
                runtime.thread("bad").release()

    def test_crashes_with_commits_in_between_are_borne(self, store):
        """Each acknowledgement crashes the actor once; each is progress."""
        with self.start(store, 3, point="thread.acknowledged") as runtime:
            assert runtime.thread("bad").ask(Invoke({"n": 1})).state["log"] == ["a", "b"]

    def test_its_crash_is_no_crash_of_a_node(self, store):
        with self.start(store, 1, point="thread.start") as runtime:
            assert runtime.thread("bad").ask(Invoke({"n": 1})).state["log"] == ["a", "b"]

    def test_the_limit_can_be_set(self, memory):
        app = line("g", a=wrote("a")).compile()
        fault = failing_at("thread.load", times=1)
        limits = Limits(crashes_without_commit=1)
        with Runtime(memory, graphs=[app], fault=fault, limits=limits) as runtime:
            with pytest.raises(Quarantined, match="crashed 1 times"):
                runtime.thread("t").ask(Invoke({"n": 1}))

    def test_the_fault_was_reached(self):
        fault = failing_at("thread.load", thread_id="t")
        fault("thread.load", "u")
        with pytest.raises(Boom):
            fault("thread.load", "t")
