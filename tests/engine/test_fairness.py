"""What came first goes first, and only a run without any progress counts its owners' deaths."""

from __future__ import annotations

import pytest

from tests.engine.driver import Driver, Later
from tests.engine.graphs import fails, fan


def told(driver):
    """Five inputs on one thread: the first runs, the others wait; then the process dies."""
    for number in range(1, 6):
        driver.tell({"log": [number]}, run_id=f"r{number}")
    driver.run(seconds=0.1)
    driver.crash()
    return driver


def slow_line(**options):
    return Driver(fan(slow=lambda _s: Later(1)), **options)


class TestMessages:
    @pytest.mark.parametrize("recover", [True, False])
    def test_a_message_told_after_a_restart_goes_behind_those_before_it(self, recover):
        driver = told(slow_line(recover=recover))
        driver.tell({"log": [6]}, run_id="r6")
        driver.run()

        assert driver.machine.state.values["log"] == [1, 2, 3, 4, 5, 6]
        assert driver.row.run.number == 6

    @pytest.mark.parametrize("recover", [True, False])
    def test_a_call_made_after_a_restart_goes_behind_them_too(self, recover):
        driver = told(slow_line(recover=recover))

        assert driver.invoke({"log": [6]}).state["log"] == [1, 2, 3, 4, 5, 6]

    def test_with_nothing_behind_the_run_another_input_amends_it(self):
        driver = slow_line()
        driver.tell({"log": [1]}, run_id="r1")
        driver.run(seconds=0.1)
        driver.crash()

        assert driver.invoke({"log": [2]}).state["log"] == [1, 2]
        assert driver.row.run.number == 1


class TestProgress:
    def dies_again_and_again(self, driver):
        driver.send_invoke({"n": 1})
        for _life in range(5):
            driver.run(seconds=0.35)
            driver.crash()
        driver.run()
        return driver

    def test_results_of_a_step_that_were_kept_are_progress(self):
        """A step whose tasks end one after the other outlives any number of deaths."""
        nodes = {f"w{i}": lambda _s, i=i: Later(0.3 * (i + 1) % 0.33 + 0.01) for i in range(6)}
        driver = self.dies_again_and_again(Driver(fan(**nodes)))

        assert driver.stored_status == "complete"

    def test_failed_attempts_that_were_kept_are_progress(self):
        failing = fails(5, error=ConnectionError)
        one = fan(bad=failing)
        driver = Driver(one)
        driver.send_invoke({"n": 1})
        driver.run()

        assert driver.stored_status == "failed"
        assert driver.machine.state.progress_seq > driver.machine.state.checkpoint_seq

    def test_a_run_without_any_is_set_aside(self):
        driver = self.dies_again_and_again(slow_line())

        assert driver.stored_status == "quarantined"
