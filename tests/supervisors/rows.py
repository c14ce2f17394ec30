"""Which test covers which row of the cases of supervision; `python -m tests.rows` prints it.

A numbered case (C41) is named in the docstring of its tests, or in the rule of a scenario of the comparison
with OTP. The public reports, which have no number of their own, are counted by section and place: "6.2.3" is
the third report of section 6.2. The file of the cases is not part of this repository; where it is
given, it is read to see that no row is missing here.
"""

from __future__ import annotations

import re
from pathlib import Path

TESTS = Path(__file__).parent

_NUMBERED = """
C01 C02 C03 C05 C06 C07 C09 C10 C11 C13 C14 C15 C17 C18 C21 C22
C23 C25 C26 C27 C29 C30 C31 C33 C34 C35 C41 C42 C43 C45 C46 C47
C49 C50 C51 C53 C54 C61 C62 C63 C65 C66 C67 C69 C70 C71 C73 C74
C75 C81 C82 C83 C85 C86 C87 C89 C90 C91 C93 C94 C95 C101 C102 C103
C105 C106 C107 C110 C111 C113 C114 C115 C117 C118 C119 C121 C122 C123 C125 C126
C127 C129 C130 C131 C133 C134 C135 C137 C138 C139 C141 C142 C143 C145 C146 C147
C149 C150 C151 C153 C154 C155 C157 C158 C159 C161
"""
NUMBERED = _NUMBERED.split()

REPORTS = {
    "6.1.1": "test_a_slow_end_does_not_hide_restarts_from_the_budget",
    "6.1.2": "test_the_window_counts_time_and_not_messages",
    "6.1.3": "test_a_failing_start_is_no_endless_loop",
    "6.1.4": "test_a_failed_restart_is_tried_again_and_counted",
    "6.1.5": "test_a_stable_life_resets_the_delay_but_not_the_budget",
    "6.1.6": "test_wrong_delays_are_refused",
    "6.1.7": "test_many_crashes_together_are_counted_exactly",
    "6.1.8": "test_the_shared_budget_is_spent_by_siblings_together",
    "6.1.9": "test_a_failing_start_is_no_endless_loop",
    "6.1.10": "test_each_mutant_is_caught_by_its_recorded_seed",
    "6.2.1": "test_a_child_replaced_during_its_delay_is_not_resurrected",
    "6.2.2": "test_a_second_death_during_a_restart_is_no_trouble",
    "6.2.3": "test_the_next_incarnation_starts_after_on_stop_of_the_last",
    "6.2.4": "test_each_incarnation_is_a_new_object",
    "6.2.5": "test_an_error_in_on_stop_does_not_restart_a_child_that_is_terminated",
    "6.2.6": "test_a_message_to_a_name_whose_actor_starts_is_handled_after_the_start",
    "6.2.7": "test_group_restarts_happen_one_at_a_time",
    "6.2.8": "test_extra_arguments_are_there_at_each_restart",
    "6.2.9": "test_a_dynamic_child_that_restarts_into_ignore_is_forgotten",
    "6.3.1": "test_messages_of_the_last_incarnation_are_not_handled_by_the_next",
    "6.3.2": "test_messages_that_a_suspended_actor_holds_are_dead_letters_at_its_end",
    "6.3.3": "test_each_way_to_end_has_its_own_reason",
    "6.3.4": "test_late_replies_are_nowhere",
    "6.3.5": "test_late_replies_are_nowhere",
    "6.3.6": "test_the_arguments_of_a_temporary_child_do_not_outlive_it",
    "6.3.7": "test_children_that_ignore_their_start_leave_nothing_behind",
    "6.4.1": "test_repeated_deaths_and_terminations_of_one_child_never_hang",
    "6.4.2": "test_after_a_stop_no_more_actors_live_than_before",
    "6.4.3": "test_killing_a_supervisor_in_the_middle_leaves_no_orphan",
    "6.4.4": "test_dynamic_children_end_in_parallel",
    "6.4.5": "test_a_child_that_starts_another_in_its_end_is_refused",
    "6.4.6": "test_a_child_that_is_too_slow_is_killed",
    "6.4.7": "test_children_end_in_reverse_order",
    "6.4.8": "test_stopping_after_a_restart_by_hand_returns",
    "6.4.9": "test_the_normal_end_of_a_temporary_child_stops_nobody",
    "6.4.10": "test_a_stop_in_any_phase_gives_exactly_one_down",
    "6.4.11": "test_a_signal_from_a_stranger_is_ignored_and_stop_is_not",
    "6.4.12": "test_connections_that_end_abnormally_leave_no_supervisor",
    "6.5.1": "test_a_failed_start_leaves_its_name_free",
    "6.5.2": "test_a_name_is_free_for_whoever_hears_of_the_end",
    "6.5.3": "test_each_incarnation_has_the_name",
    "6.5.4": "test_a_child_started_again_by_hand_has_its_name",
    "6.5.5": "test_failed_registrations_leave_nothing_behind",
    "6.5.6": "test_a_killed_owner_is_never_found",
    "6.5.7": "test_of_many_that_race_exactly_one_wins_and_all_learn_who",
    "6.5.8": "test_a_name_leads_to_the_living_one_however_often_it_dies",
    "6.5.9": "test_a_cancelled_monitor_has_no_down_even_if_it_was_queued",
    "6.5.10": "test_killed_from_outside_it_ends_with_the_signal",
    "6.6.1": "test_abandoned_workers_are_limited",
    "6.6.2": "test_a_kill_that_cannot_be_is_refused_in_the_spec",
    "6.6.3": "test_an_interval_does_not_make_up_for_missed_ticks",
    "6.6.4": "test_a_child_that_fails_ends_those_before_it_in_reverse",
    "6.6.5": "test_stopping_itself_and_waiting_is_an_error_in_on_start_too",
    "6.7.1": "test_when_the_keeper_is_killed_the_registered_end_with_it",
    "6.7.2": "test_each_incarnation_restores_itself_and_owns_what_it_makes",
    "6.7.3": "test_context_variables_of_a_sender_do_not_reach_a_receiver",
    "6.7.4": "test_each_incarnation_restores_itself_and_owns_what_it_makes",
}


def named() -> set[str]:
    """Return the numbered cases that a test or a scenario names."""
    folders = (TESTS.glob("test_*.py"), (TESTS.parent / "otp" / "scenarios").glob("*.txt"))
    text = "".join(path.read_text() for paths in folders for path in paths)
    return set(re.findall(r"\bC\d+\b", text))


def written() -> set[str]:
    """Return the names of the tests."""
    text = "".join(path.read_text() for path in TESTS.glob("test_*.py"))
    return set(re.findall(r"def (test_\w+)", text))


def known() -> list[str]:
    """Return all rows."""
    return [*NUMBERED, *REPORTS]


def uncovered() -> list[str]:
    """Return the rows without a test."""
    tests = written()
    cases = [row for row in NUMBERED if row not in named()]
    return cases + [row for row, test in REPORTS.items() if test not in tests]


def rows_of(text: str) -> list[str]:
    """Return the rows of the file of the cases."""
    found: list[str] = []
    section, place = "", 0
    for line in text.splitlines():
        if heading := re.match(r"### (6\.\d+) ", line):
            section, place = heading[1], 0
        elif case := re.match(r"\| (C\d+) ", line):
            found.append(case[1])
        elif section and line.startswith("| ") and not line.startswith("| ref "):
            place += 1
            found.append(f"{section}.{place}")
    return found
