"""The tables of `tests.rows`: rows that wait for something, and rows that are to be otherwise here."""

from __future__ import annotations

OTHER_NAMES = {"compiled": "graph", "channels": "graph"}
"""What tests call a list, beside its name."""

NAMED_BY_PLACE = {
    "runtime/test_reference.py": "reference",
    "runtime/test_peers.py": "peers",
}
"""Files whose tests have the row in their name: `test_aj_…`, `test_27_…`, and the list if it is another."""

NAMED_TESTS = {
    "graph": {
        "6": "test_34_a_store_that_refuses_stops_the_run_at_once",
        "7": "test_an_error_of_the_store_is_the_callers_and_the_next_call_reads_again",
        "96": "test_all_faults_of_a_graph_come_at_once",
        "113": "test_without_retries_the_run_fails_and_the_caller_lives_reference_e",
        "117": "test_a_reducer_must_take_two_arguments",
        "119": "test_a_sequence_has_edges_among_its_steps_only",
        "153": "test_records_come_back_in_the_order_of_their_numbers",
        "156": "test_order_is_by_number_and_never_by_the_clock",
        "157": "test_only_the_wanted_statuses_come",
        "158": "test_a_failed_commit_leaves_no_trace",
        "164": "test_a_thread_whose_id_begins_another_is_apart_from_it",
        "166": "test_deleting_what_is_not_there_is_false",
        "167": "test_a_copy_has_the_same_content_and_no_free_pages",
        "168": "test_a_pruned_thread_has_what_its_head_needs",
        "169": "test_a_pruned_thread_has_what_its_head_needs",
        "171": "test_nothing_but_the_head_is_kept",
        "173": "test_a_killed_process_leaves_all_or_nothing_of_its_group",
        "184": "test_they_grow_by_the_backoff",
        "188": "test_an_unfit_option_is_refused_at_once",
        "192": "test_a_status_decides",
        "208": "test_a_value_comes_back",
        "209": "test_no_name_leads_to_anything_else",
        "211": "test_a_class_that_is_not_registered_is_never_made",
        "212": "test_registering_is_a_decorator",
        "214": "test_two_classes_of_one_name_are_refused",
        "182": "test_a_message_to_a_name_whose_actor_starts_is_handled_after_the_start",
    },
    "langgraph": {
        "1": "test_all_faults_of_a_graph_come_at_once",
        "2": "test_destinations_reach_a_node",
        "3": "test_a_checkpointer_that_is_none_is_refused",
        "6": "test_an_input_writes_through_reducers",
        "9": "test_required_and_not_required_are_taken_off_the_type",
        "13": "test_two_nodes_that_write_one_last_value_are_named",
        "15": "test_a_channel_starts_at_its_types_empty_value",
        "26": "test_it_bypasses_the_reducer_and_drops_plain_writes_in_either_order",
        "39": "test_a_router_without_targets_may_reach_any_node",
        "41": "test_sends_merge_after_pulls_by_source_and_index",
        "29": "test_one_that_is_forgotten_takes_its_workers_with_it",
        "57": "test_a_caller_that_goes_away_cancels_its_run",
        "62": "test_a_caller_that_goes_away_cancels_its_run",
        "63": "test_a_caller_that_goes_away_cancels_its_run",
        "58": "test_running_siblings_are_cancelled_at_once",
        "75": "test_they_outlive_a_crash_between_them",
        "77": "test_a_map_answers_them_all",
        "81": "test_answers_are_replayed_by_order",
        "133": "test_classes_are_matched",
        "134": "test_they_grow_by_the_backoff",
        "135": "test_every_attempt_knows_when_the_first_one_began",
        "138": "test_the_late_result_is_refused_peers_37",
        "139": "test_it_cannot_be_swallowed",
        "142": "test_a_send_may_have_its_own",
        "145": "test_after_a_kill_in_it_only_it_runs_again",
        "146": "test_u_a_question_is_not_retried",
        "150": "test_a_long_chain_of_deltas_reads_as_its_last_values",
    },
    "reference": {
        "ER": "test_an_error_of_the_store_is_the_callers_and_the_next_call_reads_again",
        "Q": "test_a_question_that_nobody_could_answer",
    },
    "peers": {
        "7": "test_a_second_owner_is_refused_at_once",
        "46": "test_a_pruned_thread_has_what_its_head_needs",
        "50": "test_to_a_thousand_sends_complete",
        "47": "test_of_starters_that_race_exactly_one_owns",
        "51": "test_threads_that_come_and_go_leave_the_size_where_it_was",
        "53": "test_a_class_that_is_gone_is_named_with_its_path",
        "54": "test_a_value_that_cannot_be_stored_is_named_with_its_path",
        "55": "test_a_value_comes_back",
        "58": "test_no_name_leads_to_anything_else",
    },
    "mistakes": {
        "unserializable value in state": "test_a_value_that_cannot_be_stored_is_named_with_its_path",
        "two parallel writers, no reducer": "test_two_writers_of_a_key_are_named",
    },
}
"""For each list, rows whose test says no row: row -> test."""

_STREAMS = "81 82 83 84 87 88 89 91 194 196 197 198 199 201 202 203 204"
_AGENTS = "99 101 176 177 178 179 183 218 219 221 222 223 224 226 227 228 229 231 232 233"


def _rows(text: str) -> list[str]:
    return text.split()


WAITS = {
    "graph": {
        "streams": _rows(_STREAMS),
        "caches of nodes": _rows("38 39 51"),
        "agents and tools": _rows(_AGENTS),
        "traces": _rows("114 181 206 207"),
        "a long-term memory": _rows("216 217"),
        "encryption": _rows("213"),
        "stores in SQL": _rows("172 174"),
    },
    "langgraph": {
        "streams": _rows("61 79 149"),
        "the functional interface": _rows("67 87 121 122 123 125 126 127 129 130 131"),
    },
    "reference": {"traces": _rows("TS")},
    "peers": {
        "caches of nodes": _rows("31"),
        "encryption": _rows("59"),
        "an application server": _rows("9 22"),
    },
    "mistakes": {},
}
"""For each list: what is waited for -> rows."""

DIFFERENT = {
    "graph": {
        "14": "a Send brings an update; a command is what a node returns",
        "32": "nodes are reached by edges, and no key triggers one",
        "42": "a command goes to the graph around, and from there it may go on",
        "49": "a branch begins at a checkpoint of the thread, not of a graph inside",
        "34": "deltas are how a store keeps keys that grow; values are always whole",
        "56": "the context is an object that a caller gives",
        "94": "a guard sees the merged state",
        "97": "a node that leads nowhere ends its branch",
        "98": "a node sees its state in the form of its schema, and `ctx`",
        "112": "there are no projections of the runtime",
        "123": "an unreachable node is always a fault, unless it is allowed",
        "126": "defer=True makes a node wait",
        "134": "a guard is a predicate",
        "136": "keys are text",
        "138": "versions are numbers of records",
        "141": "there is no such kind of key",
        "144": "there is no such kind of key",
        "147": "deltas are how a store keeps keys that grow, not a kind of key",
        "148": "deltas are how a store keeps keys that grow, not a kind of key",
        "151": "deltas are how a store keeps keys that grow, not a kind of key",
        "152": "merge sets keys; a reducer of one's own may remove them",
        "159": "a store has no awaitable operations; its one writer is an actor",
        "161": "deltas are how a store keeps keys that grow, not a kind of key",
        "162": "deltas are how a store keeps keys that grow, not a kind of key",
        "163": "deltas are how a store keeps keys that grow, not a kind of key",
        "191": "every attempt knows all of it",
        "193": "policies are objects",
    },
    "langgraph": {
        "55": "results and checkpoints are one stream of records, so no store has one without the other",
        "90": "events tell of questions and answers; see Runtime.subscribe",
        "141": "a timeout is for sync nodes too",
        "143": "a node that blocks the loop is named",
    },
    "peers": {},
    "mistakes": {
        "declared write is missing": "nodes do not declare what they write",
        "call before launch": "an app starts its runtime at its first call",
    },
}
"""For each list: row -> why it is otherwise here."""
