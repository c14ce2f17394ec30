"""The OTP differential: what `supervisors` does in each scenario is what Erlang/OTP did.

The traces of OTP are in `traces/`, recorded by `python -m tests.otp.record`; none is needed to run this.
Where ours is to differ, `differences.txt` has the rule, the reason, and what is expected instead. Each
scenario runs in several orders, drawn from seeds.
"""

from __future__ import annotations

import shutil
from typing import Any

import pytest

from supervisors.exits import is_quiet
from supervisors.family import Family
from tests.otp.chance import differing, draw
from tests.otp.interpreter import run
from tests.otp.scenario import Scenario, load
from tests.otp.trace import differences, faults, golden, release, to_text

SCENARIOS = {scenario.title: scenario for scenario in load()}
GOLDEN = golden()
DIFFERENCES = differences()
FAULTS = faults()
SEEDS = range(5)
RESTARTS = ("permanent", "transient", "temporary")


def cases() -> list[Any]:
    return [
        pytest.param(
            scenario,
            id=f"{title} ({scenario.rule})" if scenario.rule else title,
            marks=pytest.mark.xfail(reason=FAULTS[title]) if title in FAULTS else (),
        )
        for title, scenario in SCENARIOS.items()
    ]


@pytest.mark.parametrize("scenario", cases())
def test_supervisors_do_what_otp_did(scenario: Scenario):
    marked = DIFFERENCES.get(scenario.title)
    expected = GOLDEN[scenario.title] if marked is None else marked.trace

    for seed in SEEDS:
        assert to_text(run(scenario, seed)) == to_text(expected), f"seed {seed}"


class TestTheRecord:
    def test_it_tells_the_release_that_ran(self):
        assert release().startswith("OTP ")

    def test_there_are_at_least_two_hundred_scenarios(self):
        assert len(SCENARIOS) >= 200

    def test_each_scenario_was_recorded_as_it_stands(self):
        recorded = {title: [line for line, _ in trace] for title, trace in GOLDEN.items()}

        assert recorded == {title: _performed(scenario) for title, scenario in SCENARIOS.items()}

    def test_the_reason_of_each_difference_names_a_rule(self):
        assert [d for d in DIFFERENCES.values() if d.rule[0] not in "§C" or not d.why] == []

    def test_each_marked_difference_is_one(self):
        assert [title for title, d in DIFFERENCES.items() if d.trace == GOLDEN[title]] == []

    def test_marks_are_of_scenarios_that_exist(self):
        assert (DIFFERENCES.keys() | FAULTS.keys()) - SCENARIOS.keys() == set()


def _performed(scenario: Scenario) -> list[str]:
    definitions = {"unordered", "supervisor", "dynamic", "template", "child"}
    steps = [step.line for step in scenario.steps() if step.words[0] not in definitions]
    return [*steps, "end"]


class TestItsTeeth:
    """A decision that is turned round must be noticed."""

    @pytest.mark.parametrize("quiet", [True, False], ids=["a quiet", "an abnormal"])
    @pytest.mark.parametrize("restart", RESTARTS)
    def test_the_wrong_decision_after_an_end_is_noticed(
        self, restart: str, quiet: bool, monkeypatch: pytest.MonkeyPatch
    ):
        right = Family._wants_restart

        def wrong(self: Family, child: Any, reason: Any) -> bool:
            turned = child.spec.restart == restart and is_quiet(reason) == quiet
            return right(self, child, reason) != turned

        monkeypatch.setattr(Family, "_wants_restart", wrong)
        decisions = [s for s in SCENARIOS.values() if s.topic == "decisions"]
        assert any(run(s) != GOLDEN[s.title] for s in decisions)


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("erlc") is None, reason="there is no Erlang here")
def test_supervisors_do_what_otp_does_in_scenarios_drawn_by_chance():
    assert differing(range(120), range(3)) == []


def test_each_scenario_drawn_by_chance_is_drawn_again_by_its_number():
    assert [draw(number) for number in range(20)] == [draw(number) for number in range(20)]
