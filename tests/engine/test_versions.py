"""Threads of an older version of their graph: what becomes of their heads, and what is refused."""

from __future__ import annotations

import operator
from typing import Annotated, Any, TypedDict

import pytest

from beamweaver.errors import GraphChanged, GraphTooOld, MigrationFailed, NodeFailed
from beamweaver.events import ThreadMigrated
from beamweaver.graph import Migration
from beamweaver.types import Command, Overwrite, Send
from tests.engine.driver import Crashed, Driver
from tests.engine.graphs import asks, fails_once, graph, wrote


class Old(TypedDict, total=False):
    log: Annotated[list[Any], operator.add]
    cents: int
    item: str


class New(TypedDict, total=False):
    log: Annotated[list[Any], operator.add]
    euros: float
    item: str


def in_euros(values):
    if "cents" in values:
        values["euros"] = values.pop("cents") / 100
    return values


BY_NAME = Migration(state=in_euros, update=in_euros, rename={"pay": "charge"})


def sees_euros(state):
    return {"log": [state["euros"]]}


def old(edges="^>pay pay>$", **parts):
    nodes = {"pay": asks("pay"), **parts}
    return graph(edges, schema=Old, **nodes)


def new(edges="^>charge charge>$", migrations=None, version=2, schema=New, **parts):
    options = {
        "migrations": {1: BY_NAME} if migrations is None else migrations,
        **parts.pop("options", {}),
    }
    nodes = {"charge": asks("charge"), **parts}
    return graph(edges, schema=schema, version=version, options=options, **nodes)


def deploy(driver, graph):
    """The process ends, and the next one has other code."""
    driver.graph = graph
    driver.recover = True
    driver.crash()
    driver.run()


def waiting(first=None, **options):
    driver = Driver(first or old(), **options)
    driver.invoke({"cents": 250})
    return driver


# What is taken over -----------------------------------------------------------------------------


def test_the_head_is_migrated_in_one_commit_and_the_checkpoint_before_stays():
    driver = waiting()
    before = len(driver.commits)
    deploy(driver, new())

    checkpoint = driver.commits[before].record.checkpoint
    assert len(driver.commits) == before + 1
    assert (checkpoint.source, checkpoint.version, checkpoint.parent) == ("migrate", 2, 0)
    history = list(driver.store.history("t"))
    assert [image.checkpoint.checkpoint.source for image in history] == ["migrate", "input"]
    assert set(history[1].values) == {"cents"}
    assert set(history[0].values) == {"euros"}
    assert (driver.row.version, driver.row.fingerprint) == (2, driver.graph.fingerprint)
    assert [e.to_version for e in driver.told_events(ThreadMigrated)] == [2]


def test_a_migration_is_applied_once():
    calls = []

    def counted(values):
        calls.append(dict(values))
        return in_euros(values)

    driver = waiting()
    migrations = {1: Migration(state=counted, update=in_euros, rename={"pay": "charge"})}
    for _time in range(3):
        deploy(driver, new(migrations=migrations))

    assert calls == [{"cents": 250}]


def test_a_renamed_task_keeps_its_id_and_its_questions():
    driver = waiting()
    (question,) = driver.go_on().interrupts
    deploy(driver, new())

    (again,) = driver.go_on().interrupts
    assert (again.id, again.task_id, again.node) == (question.id, question.task_id, "charge")
    outcome = driver.resume(answers={question.id: "yes"})
    assert outcome.state == {"log": ["charge:yes"], "euros": 2.5}
    assert driver.started[-1].task_id == question.task_id


def test_a_steps_number_is_not_used_again():
    driver = waiting()
    first = driver.started[-1].step
    deploy(driver, new())
    driver.resume("yes")

    assert driver.started[-1].step == first + 1
    steps = [i.checkpoint.checkpoint.step for i in driver.store.history("t")]
    assert steps == sorted(set(steps), reverse=True)


def test_each_version_on_the_way_has_its_turn():
    driver = waiting()
    steps = {
        1: Migration(state=in_euros, rename={"pay": "settle"}),
        3: Migration(
            state=lambda values: {**values, "item": f"{values['euros']:.0f}"},
            rename={"settle": "charge"},
        ),
    }
    deploy(driver, new(migrations=steps, version=4))

    assert driver.resume("yes").state == {"log": ["charge:yes"], "euros": 2.5, "item": "2"}


def test_pending_results_and_failed_siblings_are_taken_over():
    driver = Driver(old("^>side ^>pay", side=wrote("side", cents=5), pay=fails_once("pay")))
    with pytest.raises(NodeFailed):
        driver.invoke({"cents": 250})
    shown = wrote("side", euros=0)
    deploy(driver, new("^>side ^>charge", side=shown, charge=wrote("charge")))

    assert driver.go_on().state == {"log": ["charge", "side"], "euros": 0.05}
    assert (driver.runs("side"), driver.runs("charge")) == (1, 1)


def test_attempts_are_counted_on():
    retries = {"options": {"pay": {"retries": 2}}}
    driver = Driver(old(pay=fails_once("pay"), **retries), crash_at=1)
    with pytest.raises(Crashed):
        driver.invoke({"cents": 250})
    deploy(driver, new(charge=wrote("charge"), options={"charge": {"retries": 2}}))

    assert driver.status == "complete"
    assert [attempt.number for attempt in driver.started] == [1, 2]


def test_amendments_keep_their_place_among_the_results():
    driver = Driver(old("^>side ^>pay", side=wrote("side", cents=5)))
    driver.invoke({"cents": 250})
    driver.invoke({"cents": 700})
    deploy(driver, new("^>side ^>charge", side=wrote("side")))

    assert driver.resume("yes").state == {"log": ["side", "charge:yes"], "euros": 7.0}


def test_gotos_and_sends_of_pending_results_lead_to_the_new_names():
    def sends(_state):
        return [Send("pay", {"cents": 100}), Command(goto="pay")]

    first = old("^>side ^>ask", side=sends, ask=asks(), pay=wrote("pay"))
    driver = waiting(first)
    deploy(driver, new("^>side ^>ask", side=sends, ask=asks(), charge=sees_euros))

    assert driver.resume("yes").state["log"] == ["ask:yes", 2.5, 1.0]


def test_tasks_of_sends_keep_their_overlay_in_the_new_form():
    def sends(_state):
        return [Send("pay", {"cents": n * 100}) for n in (1, 2)]

    driver = waiting(old("^>side", side=sends))
    ids = {attempt.task_id for attempt in driver.started if attempt.node.name == "pay"}

    def euros(state, ctx):
        return {"log": [f"{state['euros']} {ctx.interrupt('?')}"]}

    deploy(driver, new("^>side", side=sends, charge=euros))
    questions = driver.go_on().interrupts
    outcome = driver.resume(answers={q.id: "yes" for q in questions})

    assert outcome.state["log"] == ["1.0 yes", "2.0 yes"]
    again = {attempt.task_id for attempt in driver.started if attempt.node.name == "charge"}
    assert again == ids


def test_an_entry_whose_routers_have_not_chosen_is_taken_over():
    def chooses(_state):
        raise ValueError("not today")

    driver = Driver(old("", routers=[("^", chooses)]))
    with pytest.raises(Exception, match="not today"):
        driver.invoke({"cents": 250})
    deploy(driver, new("", routers=[("^", lambda state: "charge")], charge=sees_euros))

    assert driver.go_on().state == {"euros": 2.5, "log": [2.5]}


def test_joins_hear_of_new_names_and_keep_who_arrived():
    first = old("^>a ^>b b>pay", a=None, b=None, joins=[("a pay", "end")], end=None)
    driver = waiting(first)
    assert driver.machine.state.joins == {"a|pay:end": ("a",)}
    second = new("^>a ^>b b>charge", a=None, b=None, joins=[("a charge", "end")], end=None)
    deploy(driver, second)

    assert driver.resume("yes").state["log"] == ["a", "b", "charge:yes", "end"]


def test_a_join_that_waits_for_one_more_node_is_found_again_by_its_target():
    driver = waiting(old("^>a ^>b b>pay", a=None, b=None, joins=[("a pay", "end")], end=None))
    second = new(
        "^>a ^>b b>charge charge>more",
        **dict.fromkeys(("a", "b", "more", "end")),
        joins=[("a charge more", "end")],
    )
    deploy(driver, second)

    assert driver.resume("yes").state["log"] == ["a", "b", "charge:yes", "more", "end"]


def test_deferred_tasks_wait_on_under_their_new_names():
    late = {"pay": {"defer": True}}
    first = old("^>ask ^>pay", ask=asks(), pay=wrote("pay"), options=late)
    driver = waiting(first)
    late = {"charge": {"defer": True}}
    deploy(driver, new("^>ask ^>charge", ask=asks(), charge=wrote("charge"), options=late))

    assert driver.resume("yes").state["log"] == ["ask:yes", "charge"]


def test_budgets_are_counted_on_under_the_new_names():
    def asks_twice(state, ctx):
        return {"log": [ctx.interrupt("?") if len(state["log"]) == 1 else "free"]}

    def twice(node):
        return [(f"{node}>{node}", {"max_runs": 2})]

    driver = waiting(old("^>pay", pay=asks_twice, guards=twice("pay")))
    assert driver.machine.state.spent == {"pay:pay:0": 1}
    deploy(driver, new("^>charge", charge=asks_twice, guards=twice("charge")))

    assert driver.machine.state.spent == {"charge:charge:0": 1}
    assert driver.resume("yes").state["log"] == ["free", "yes", "free"]


def test_a_run_that_stands_at_a_breakpoint_stands_there_under_the_new_names():
    driver = waiting(old("^>side side>pay", side=None, options={"interrupt_before": ["pay"]}))
    deploy(driver, new("^>side side>charge", side=None, charge=wrote("charge")))

    assert driver.status == "waiting"
    assert driver.machine.state.step.paused.before == ("charge",)
    assert driver.go_on().state["log"] == ["side", "charge"]


def test_a_task_in_the_hands_of_its_error_handler_stays_there():
    def mends(_failure, _state, ctx):
        return {"log": [f"mended: {ctx.interrupt('how?')}"]}

    def fails(_state):
        raise ValueError("broken")

    handler = {"error_handler": mends}
    driver = waiting(old(pay=fails, options={"pay": handler}))
    deploy(driver, new(charge=fails, options={"charge": handler}))

    assert driver.resume("so").state["log"] == ["mended: so"]
    assert (driver.runs("pay"), driver.runs("charge")) == (2, 1)


def test_messages_that_wait_are_taken_over():
    driver = Driver(old("^>side side>pay", side=None))
    driver.send_invoke({"cents": 100})
    driver.tell({"cents": 900})
    driver.run(until=lambda: driver.inbox)
    again = new("^>side side>charge", side=None, charge=sees_euros)
    deploy(driver, again)

    assert driver.status == "complete"
    assert driver.machine.state.values["log"][-1] == 9.0
    assert driver.inbox == ()
    assert driver.invoke({"euros": 9.0}, run_id="x").state["euros"] == 9.0


def test_a_complete_thread_is_migrated_when_it_is_called():
    driver = waiting()
    done = driver.resume("yes", run_id="mine")
    deploy(driver, new())

    assert driver.invoke({"euros": 1.0}).state == {"log": ["pay:yes"], "euros": 1.0}
    assert done.state["cents"] == 250


def test_overwrites_stay_what_they_are():
    def over(_state):
        return {"log": Overwrite(["over"])}

    driver = waiting(old("^>side ^>pay", side=over))
    deploy(driver, new("^>side ^>charge", side=over))

    assert driver.resume("yes").state["log"] == ["over"]


def test_a_value_that_a_migration_changed_in_place_counts():
    def grows(values):
        values["log"].append("migrated")
        return in_euros(values)

    driver = Driver(old("^>side side>pay", side=wrote("side")))
    driver.invoke({"cents": 250})
    migrations = {1: Migration(state=grows, rename={"pay": "charge"})}
    deploy(driver, new("^>side side>charge", migrations, side=None))

    assert driver.resume("yes").state["log"] == ["side", "migrated", "charge:yes"]


def test_what_a_migration_leaves_alone_is_not_written_again():
    driver = Driver(old("^>side side>pay", side=wrote("side")))
    driver.invoke({"cents": 250})
    deploy(driver, new("^>side side>charge", side=None))

    assert set(driver.commits[-1].record.checkpoint.writes) == {"euros"}


def test_a_version_without_a_migration_takes_its_threads_as_they_are():
    driver = waiting()
    deploy(driver, new("^>pay", migrations={}, schema=Old, pay=asks("pay"), charge=None))

    assert driver.row.version == 2
    assert driver.resume("yes").state == {"log": ["pay:yes"], "cents": 250}


# What is dropped --------------------------------------------------------------------------------

GONE = {1: Migration(state=in_euros, update=in_euros, drop=("pay",))}


def test_a_run_that_waited_at_a_dropped_node_goes_on_without_it():
    driver = waiting()
    deploy(driver, new(migrations=GONE))

    assert driver.status == "complete"
    assert driver.go_on().state == {"euros": 2.5, "log": []}


def test_a_run_that_failed_at_a_dropped_node_goes_on_without_it():
    driver = Driver(old("^>side ^>pay side>next", pay=fails_once("pay"), side=None, next=None))
    with pytest.raises(NodeFailed):
        driver.invoke({"cents": 250})
    deploy(driver, new("^>side ^>charge side>next", GONE, side=None, next=None))

    assert driver.go_on().state["log"] == ["side", "next"]


def test_what_a_dropped_node_had_finished_stays_and_leads_nowhere():
    def goes(_state):
        return [{"log": ["side"]}, Command(goto="pay"), Send("pay", {})]

    driver = waiting(old("^>side ^>ask side>other", side=goes, ask=asks(), other=None, pay=None))
    drops = {1: Migration(state=in_euros, update=in_euros, drop=("side", "pay"))}
    deploy(driver, new("^>ask", drops, ask=asks(), other=None))

    assert driver.resume("yes").state["log"] == ["side", "ask:yes"]


def test_amendments_outlive_the_node_that_is_dropped():
    driver = waiting()
    driver.invoke({"cents": 700})
    deploy(driver, new(migrations=GONE))

    assert driver.go_on().state["euros"] == 7.0


def test_a_join_with_a_dropped_node_is_dropped():
    driver = waiting(old("^>a ^>b b>pay", a=None, b=None, joins=[("a pay", "end")], end=None))
    deploy(driver, new("^>a ^>b b>charge", GONE, a=None, b=None, end=None))

    assert driver.go_on().state["log"] == ["a", "b"]


# Crashes ----------------------------------------------------------------------------------------


def busy(version, **nodes):
    """Two nodes, a join, Sends and a question, in the names of a version."""
    pay = "pay" if version == 1 else "charge"
    made = {
        "a": wrote("a"),
        pay: asks("pay"),
        "c": lambda _state: [Send("d", {"item": "x"}), Send("d", {"item": "y"})],
        "d": lambda state: {"log": [state["item"]]},
        "end": None,
    }
    edges = f"^>a ^>{pay} a>c"
    joins = [(f"a {pay}", "end")]
    if version == 1:
        return old(edges, joins=joins, **made)
    return new(edges, joins=joins, **made)


END_STATE = {"log": ["pay:yes", "a", "end", "x", "y"], "euros": 2.5}


def migrated_and_finished(crash_at=None, written=True):
    driver = waiting(busy(1))
    driver.graph = busy(2)
    if crash_at is not None:
        driver.crash_at, driver.written = len(driver.commits) + crash_at, written
    driver.crash()
    for _life in range(3):
        try:
            driver.run()
            if driver.status == "waiting":
                driver.resume("yes")
            break
        except Crashed:
            driver.crash()
    return driver


def test_a_busy_thread_ends_in_the_new_version():
    assert migrated_and_finished().machine.state.values == END_STATE


@pytest.mark.parametrize("written", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("at", range(7))
def test_a_death_around_any_commit_of_the_new_version_changes_nothing(at, written):
    driver = migrated_and_finished(at, written)

    assert driver.machine.state.values == END_STATE
    assert driver.faults == []
    sources = [i.checkpoint.checkpoint.source for i in driver.store.history("t")]
    assert sources.count("migrate") == 1


def test_the_state_of_the_machine_is_what_the_store_folds_to():
    driver = waiting(busy(1))
    driver.checks = True
    deploy(driver, busy(2))
    driver.resume("yes")

    assert driver.machine.state.values == END_STATE


# What is refused --------------------------------------------------------------------------------


def refusal(driver, graph, kind=GraphChanged):
    """The error with which the new code refuses the thread; the store has it as before."""
    before = driver.store.load("t")
    driver.graph = graph
    with pytest.raises(kind) as caught:
        driver.crash()
        driver.run()
        driver.go_on()
    assert driver.store.load("t") == before
    assert caught.value.message.endswith("The thread is untouched")
    return caught.value


LOST = {
    "a node": (
        lambda: old("^>fetch", fetch=asks()),
        lambda: new("^>fetched", {}, schema=Old, fetched=None),
        ("node 'fetch' is gone (renamed to 'fetched'?)",),
    ),
    "a key": (old, lambda: new("^>pay", {}, pay=None), ("the key 'cents' is gone",)),
    "the key of a pending result": (
        lambda: old("^>side ^>pay", side=wrote("side", item="x")),
        lambda: new("^>side ^>pay", {}, schema=LogOnly, side=None, pay=None),
        ("the key 'cents' is gone", "the key 'item' is gone"),
    ),
    "the node of a finished task": (
        lambda: old("^>side ^>pay", side=None),
        lambda: new("^>pay", {}, schema=Old, pay=None),
        ("node 'side' is gone",),
    ),
    "where a pending result goes": (
        lambda: old("^>side ^>pay", side=lambda _s: Command(goto="next"), next=None),
        lambda: new("^>side ^>pay", {}, schema=Old, side=None, pay=None),
        ("node 'next' is gone",),
    ),
    "where a Send goes": (
        lambda: old("^>side ^>pay", side=lambda _s: Send("next", {"item": "x"}), next=None),
        lambda: new("^>side ^>pay", {}, schema=Old, side=None, pay=None),
        ("node 'next' is gone",),
    ),
    "the key of a Send": (
        lambda: old("^>side ^>pay", side=lambda _s: Send("next", {"item": "x"}), next=None),
        lambda: new("^>side ^>pay", {}, schema=NoItem, side=None, pay=None, next=None),
        ("for a Send to node 'next', the key 'item' is gone",),
    ),
    "a join that is half armed": (
        lambda: old("^>a ^>b b>pay", a=None, b=None, joins=[("a pay", "end")], end=None),
        lambda: new("^>a ^>b b>pay", {}, schema=Old, a=None, b=None, pay=None, end=None),
        ("the join of 'a', 'pay' -> 'end' is gone, at which 'a' arrived",),
    ),
}


class LogOnly(TypedDict, total=False):
    log: Annotated[list[Any], operator.add]


class NoItem(TypedDict, total=False):
    log: Annotated[list[Any], operator.add]
    cents: int


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("what", LOST)
def test_what_is_gone_without_a_rule_is_told_and_the_thread_is_untouched(what, version):
    first, second, lines = LOST[what]
    changed = second()
    if version == 1:
        changed.__dict__["version"] = 1
    error = refusal(waiting(first()), changed)

    assert error.differences == lines
    assert "migrations={1: Migration(…)}" in error.message


def test_a_thread_of_a_newer_version_is_not_touched_by_older_code():
    driver = waiting()
    deploy(driver, new())
    error = refusal(driver, old(), GraphTooOld)

    assert "was written by version 2 of graph 'g', and the code here is version 1" in error.message
    deploy(driver, new())
    assert driver.resume("yes").state["log"] == ["charge:yes"]


def test_a_value_that_its_keys_new_type_cannot_read_is_told():
    class Text(TypedDict, total=False):
        log: Annotated[list[Any], operator.add]
        cents: str

    changed = new("^>pay", {}, schema=Text, pay=asks("pay"), charge=None)
    error = refusal(waiting(), changed)

    assert "Expected `str`, got `int`" in error.message


@pytest.mark.parametrize(
    ("state", "words"),
    [
        (lambda values: values["nothing"], "migrations[1].state raised KeyError: 'nothing'"),
        (lambda values: None, "migrations[1].state raised TypeError"),
        (lambda values: {1: 2}, "migrations[1].state returned the key 1 (int)"),
        (lambda values: {"euros": "much"}, "returned 'much' (str) for the key 'euros'"),
        (lambda values: {"log": [object()]}, "returned for 'log' what cannot be stored"),
    ],
    ids=["raises", "no dict", "no key", "wrong type", "not storable"],
)
def test_a_migration_that_fails_is_told_and_the_thread_is_untouched(state, words):
    migrations = {1: Migration(state=state, rename={"pay": "charge"})}
    error = refusal(waiting(), new(migrations=migrations), MigrationFailed)

    assert words in error.message


def test_a_migration_that_leaves_a_key_behind_is_told():
    error = refusal(waiting(), new(migrations={1: Migration(rename={"pay": "charge"})}))

    assert error.differences == ("the key 'cents' is gone",)
