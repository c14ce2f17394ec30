"""Attempts that fail: what is tried again, when, and how often."""

from __future__ import annotations

import asyncio
import http.client
import socket
import urllib.error

import msgspec
import pytest

from beamweaver.checkpoint.entries import Retrying
from beamweaver.engine.failures import (
    describe,
    exit_failure,
    is_transient,
    may_retry,
    retry_delay,
    timeout_failure,
)
from beamweaver.errors import (
    InterruptWithoutCheckpointer,
    InvalidUpdate,
    NodeError,
    NodeExit,
    NodeTimeout,
    SerializationError,
)
from beamweaver.types import RetryPolicy
from tests.engine.driver import Driver, Exits, Later
from tests.engine.graphs import asks, fails, fan, graph, wrote

PLAIN = RetryPolicy(max_attempts=3, initial_delay=1.0, jitter=False)


def retried(times, *, policy=PLAIN, seed=None, chance=None, error=ValueError, **nodes):
    one = fan(bad=fails(times, error=error), **nodes, options={"bad": {"retry": policy}})
    return Driver(one, chance=chance, seed=seed)


def failure(error):
    return describe(error, "a", "t", 1)


class Attr(Exception):
    """An exception with attributes."""

    def __init__(self, **attributes):
        super().__init__("attr")
        self.__dict__.update(attributes)


class TestCounts:
    def test_a_node_without_a_policy_has_one_attempt(self):
        driver = Driver(fan(bad=fails(1)))
        driver.fails({})
        assert driver.runs("bad") == 1

    def test_a_node_is_tried_until_it_ends_well(self):
        """graph 102."""
        driver = retried(2)
        assert driver.invoke({}).state["log"] == ["bad"]
        assert [attempt.number for attempt in driver.started] == [1, 2, 3]

    def test_the_last_error_is_raised(self):
        """graph 103."""
        driver = retried(9)
        error = driver.fails({})
        assert (error.attempt, driver.runs("bad")) == (3, 3)

    def test_every_attempt_knows_when_the_first_one_began(self):
        """graph 102."""
        seen = []

        def node(_state, ctx):
            seen.append(ctx.first_attempt_at)
            raise ValueError("boom")

        Driver(fan(bad=node, options={"bad": {"retry": PLAIN}})).fails({})
        assert len(seen) == 3
        assert len(set(seen)) == 1

    @pytest.mark.parametrize("at", range(1, 8))
    @pytest.mark.parametrize("written", [False, True])
    def test_no_crash_gives_an_attempt_more(self, at, written):
        driver = retried(9)
        driver.crash_at, driver.written = at, written
        driver.send_invoke({})
        try:
            driver.run()
        except BaseException:
            driver.crash()
            driver.run()
        assert driver.status == "failed"
        counted = driver.entries(Retrying)
        assert [entry.attempt for entry in counted] == [1, 2]

    def test_a_continuation_has_new_counts(self):
        driver = retried(4)
        driver.fails({})
        assert driver.go_on().state["log"] == ["bad"]
        assert [attempt.number for attempt in driver.started] == [1, 2, 3, 1, 2]

    def test_an_answer_gives_new_counts(self):
        driver = retried(4, ask=asks())
        driver.fails({})
        assert driver.resume("yes").state["log"] == ["bad", "ask:yes"]

    def test_an_attempt_that_was_lost_with_its_process_is_not_counted(self):
        driver = retried(0, slow=lambda _s: Later(1))
        driver.send_invoke({})
        driver.run(seconds=0.5)
        driver.crash()
        driver.run()
        slow = [attempt.number for attempt in driver.started if attempt.task.node == "slow"]
        assert slow == [1, 1]

    def test_an_actor_that_is_killed_is_counted_and_tried_again(self):
        """reference AT."""
        ends = [Exits(), {"log": ["ok"]}]
        one = fan(a=lambda _s: Later(0.1, ends.pop(0)), options={"a": {"retry": PLAIN}})
        driver = Driver(one)
        driver.invoke({})
        assert [attempt.number for attempt in driver.started] == [1, 2]

    def test_an_actor_that_is_killed_without_a_policy_fails_the_run(self):
        """reference E."""
        driver = Driver(fan(a=lambda _s: Later(0.1, Exits())))
        assert isinstance(driver.fails({}), NodeExit)


class TestDelays:
    def test_they_grow_by_the_backoff(self):
        driver = retried(2)
        driver.invoke({})
        assert [entry.delay for entry in driver.entries(Retrying)] == [1.0, 2.0]

    @pytest.mark.parametrize(("chance", "delay"), [(0.0, 0.5), (0.5, 0.75), (0.999, 0.9995)])
    def test_jitter_is_between_half_and_the_whole(self, chance, delay):
        """graph 186."""
        driver = retried(1, policy=RetryPolicy(initial_delay=1.0), chance=chance)
        driver.invoke({})
        assert driver.entries(Retrying)[0].delay == pytest.approx(delay)

    def test_an_attempt_starts_when_it_is_due_and_not_before(self):
        driver = retried(1)
        driver.send_invoke({})
        driver.run(seconds=0.99)
        early = driver.runs("bad")
        driver.run(seconds=0.02)
        assert (early, driver.runs("bad")) == (1, 2)

    def test_the_due_time_is_durable_before_it_counts(self):
        driver = retried(1, slow=lambda _s: Later(9))
        driver.send_invoke({})
        driver.run(until=lambda: driver.machine.sleeping)
        assert driver.timers == {}
        driver.run(seconds=0.1)
        assert len(driver.timers) == 1

    def test_a_due_time_is_kept_over_a_crash(self):
        driver = retried(1)
        driver.send_invoke({})
        driver.run(seconds=0.5)
        driver.now += 0.25
        driver.crash()
        driver.run(seconds=0.2)
        early = driver.runs("bad")
        driver.run(seconds=0.1)
        assert (early, driver.runs("bad")) == (1, 2)

    def test_a_due_time_that_passed_while_nobody_ran_counts_as_passed(self):
        driver = retried(1)
        driver.send_invoke({})
        driver.run(seconds=0.5)
        driver.now += 1_000
        driver.crash()
        driver.run(seconds=0)
        assert driver.runs("bad") == 2

    def test_a_clock_that_was_set_back_never_makes_a_wait_longer(self):
        driver = retried(1)
        driver.send_invoke({})
        driver.run(seconds=0.5)
        driver.now -= 10_000
        driver.crash()
        driver.run(seconds=1.01)
        assert driver.runs("bad") == 2

    def test_a_timer_of_an_earlier_wait_ends_no_later_one(self):
        driver = retried(2)
        driver.send_invoke({})
        driver.run(seconds=0.5)
        (old,) = driver.timers
        driver.run(seconds=1)
        driver.machine.fired(old)
        driver.run(seconds=0.5)
        assert driver.runs("bad") == 2

    def test_a_step_waits_for_its_attempts_while_others_end(self):
        driver = retried(1, ok=None)
        assert driver.invoke({}).state["log"] == ["bad", "ok"]

    @pytest.mark.parametrize(("after", "delay"), [(7, 7.0), (0.5, 1.0), (True, 1.0), ("7", 1.0)])
    def test_what_the_error_asks_for_is_honoured(self, after, delay):
        assert retry_delay(PLAIN, failure(Attr(retry_after=after)), 1, lambda: 0.5) == delay

    @pytest.mark.parametrize("after", [float("nan"), float("inf"), -1, 1e300])
    def test_what_an_error_asks_for_is_bounded(self, after):
        assert 1 <= retry_delay(PLAIN, failure(Attr(retry_after=after)), 1, lambda: 0) < 1e8

    def test_a_delay_that_no_number_holds_is_the_longest_of_the_policy(self):
        policy = RetryPolicy(max_attempts=5_000, jitter=False, max_delay=5.0)
        assert retry_delay(policy, failure(ValueError()), 4_000, lambda: 0) == 5.0

    def test_an_endless_delay_is_bounded(self):
        policy = RetryPolicy(initial_delay=float("inf"), max_delay=float("inf"), jitter=False)
        assert retry_delay(policy, failure(ValueError()), 1, lambda: 0) < 1e8

    def test_a_property_that_raises_asks_for_nothing(self):
        class Odd(Exception):
            @property
            def retry_after(self):
                raise RuntimeError("odd")

        assert retry_delay(PLAIN, failure(Odd()), 1, lambda: 0) == 1.0


PROGRAMMING = [
    TypeError,
    AttributeError,
    NameError,
    ImportError,
    AssertionError,
    NotImplementedError,
]


class TestRules:
    @pytest.mark.parametrize("cls", PROGRAMMING)
    def test_a_programming_error_is_not_tried_again(self, cls):
        assert not may_retry(RetryPolicy(), failure(cls()), 1)

    @pytest.mark.parametrize("cls", [ValueError, KeyError, OSError, RuntimeError])
    def test_any_other_exception_is(self, cls):
        assert may_retry(RetryPolicy(), failure(cls()), 1)

    def test_any_includes_programming_errors(self):
        assert may_retry(RetryPolicy(retry_on="any"), failure(TypeError()), 1)

    @pytest.mark.parametrize("cls", [SystemExit, KeyboardInterrupt])
    def test_error_leaves_out_what_is_no_exception(self, cls):
        assert not may_retry(RetryPolicy(), failure(cls()), 1)

    @pytest.mark.parametrize(
        "error",
        [
            SerializationError("x"),
            InvalidUpdate("x"),
            InterruptWithoutCheckpointer("x"),
            asyncio.CancelledError(),
        ],
    )
    def test_what_would_fail_in_the_same_way_is_never_tried_again(self, error):
        """peers 62."""
        assert not may_retry(RetryPolicy(retry_on="any"), failure(error), 1)

    def test_classes_are_matched(self):
        policy = RetryPolicy(retry_on=(KeyError, OSError))
        errors = (KeyError(), FileNotFoundError(), ValueError())
        assert [may_retry(policy, failure(e), 1) for e in errors] == [True, True, False]
        assert may_retry(RetryPolicy(retry_on=KeyError), failure(KeyError()), 1)

    def test_a_predicate_is_asked(self):
        """graph 187."""
        policy = RetryPolicy(retry_on=lambda error: "again" in str(error))
        assert may_retry(policy, failure(ValueError("again")), 1)
        assert not may_retry(policy, failure(ValueError("no")), 1)

    def test_a_predicate_that_raises_means_no_and_is_noted(self):
        driver = retried(9, policy=RetryPolicy(retry_on=lambda error: error.missing))
        error = driver.fails({})
        assert driver.runs("bad") == 1
        assert "retry_on raised AttributeError" in error.__cause__.__notes__[0]

    def test_a_node_may_say_that_its_failure_is_final(self):
        error = NodeError("card_declined", retryable=False)
        assert not may_retry(RetryPolicy(retry_on="any"), failure(error), 1)
        assert may_retry(RetryPolicy(), failure(NodeError("busy")), 1)

    @pytest.mark.parametrize("rule", ["error", "any", "transient"])
    def test_timeouts_and_exits_are_tried_again(self, rule):
        policy = RetryPolicy(retry_on=rule)
        assert may_retry(policy, timeout_failure("a", "t", 1, 2.0), 1)
        assert may_retry(policy, exit_failure("a", "t", 1, "killed"), 1)

    def test_timeouts_match_their_own_class(self):
        assert may_retry(RetryPolicy(retry_on=NodeTimeout), timeout_failure("a", "t", 1, 2.0), 1)
        assert not may_retry(RetryPolicy(retry_on=KeyError), timeout_failure("a", "t", 1, 2.0), 1)

    def test_a_failure_without_an_exception_is_not_tried_again(self):
        bare = msgspec.structs.replace(failure(ValueError()), exception=None)
        assert not may_retry(RetryPolicy(), bare, 1)

    def test_a_policy_holds_for_its_own_node(self):
        one = graph("^>a ^>b", a=fails(1, "a"), b=fails(1, "b"), options={"a": {"retry": PLAIN}})
        driver = Driver(one)
        driver.fails({})
        assert (driver.runs("a"), driver.runs("b")) == (2, 1)


def response(status, cls=Exception):
    """As httpx and requests raise it; a response of 4xx is falsy with requests."""

    class Response:
        status_code = status

        def __bool__(self):
            return status < 400

    error = cls("http")
    error.response = Response()
    return error


def named(name, *bases):
    return type(name, bases or (Exception,), {})()


TRANSIENT = [408, 409, 425, 429, 500, 502, 503, 504]
FINAL = [400, 401, 403, 404, 410, 422, 501, 505]


class TestTransient:
    """peers 35."""

    @pytest.mark.parametrize("status", TRANSIENT + FINAL)
    def test_a_status_decides(self, status):
        wanted = status in TRANSIENT
        urllib_error = urllib.error.HTTPError("http://x", status, "m", {}, None)
        assert is_transient(urllib_error) is wanted
        urllib_error.close()
        assert is_transient(response(status)) is wanted
        assert is_transient(Attr(status=status)) is wanted
        assert is_transient(Attr(response=Attr(status=status))) is wanted

    @pytest.mark.parametrize(
        "error",
        [
            ConnectionResetError(),
            ConnectionRefusedError(),
            BrokenPipeError(),
            TimeoutError(),
            InterruptedError(),
            http.client.RemoteDisconnected(),
            http.client.IncompleteRead(b""),
            socket.gaierror(-3, "try again"),
            urllib.error.URLError(ConnectionRefusedError()),
            urllib.error.URLError(TimeoutError()),
            urllib.error.URLError(socket.gaierror(-3, "try again")),
        ],
        ids=repr,
    )
    def test_connections_and_timeouts_of_the_standard_library_are(self, error):
        assert is_transient(error)

    @pytest.mark.parametrize(
        "error",
        [
            ValueError(),
            FileNotFoundError(),
            PermissionError(),
            urllib.error.URLError("unknown url type"),
            urllib.error.URLError(FileNotFoundError()),
        ],
        ids=repr,
    )
    def test_other_errors_are_not(self, error):
        assert not is_transient(error)

    @pytest.mark.parametrize(
        "name",
        [
            "ConnectionError",
            "Timeout",
            "ConnectError",
            "ClientConnectionError",
            "ClientPayloadError",
        ],
    )
    def test_errors_of_clients_are_known_by_their_class_names(self, name):
        base = type(named(name))
        assert is_transient(named("Sub", base))

    def test_a_requests_error_of_a_falsy_response_is_judged_by_its_status(self):
        assert is_transient(response(429, type(named("HTTPError"))))
        assert not is_transient(response(404, type(named("ConnectionError"))))

    def test_a_status_that_is_no_number_says_nothing(self):
        assert not is_transient(Attr(status="503", code=True))

    def test_an_error_that_is_its_own_reason_ends(self):
        error = Attr()
        error.reason = error
        assert not is_transient(error)

    def test_a_property_that_raises_says_nothing(self):
        class Odd(Exception):
            @property
            def status(self):
                raise RuntimeError("odd")

        assert not is_transient(Odd())

    def test_an_exit_with_an_http_status_is_no_answer(self):
        assert not may_retry(RetryPolicy(retry_on="transient"), failure(SystemExit(503)), 1)

    def test_a_transient_failure_is_tried_again_and_another_is_not(self):
        policy = RetryPolicy(retry_on="transient")
        assert may_retry(policy, failure(ConnectionResetError()), 1)
        assert not may_retry(policy, failure(ValueError()), 1)


def test_a_sibling_that_ended_is_durable_while_another_waits_for_its_attempt():
    driver = retried(1, ok=wrote("ok"))
    driver.send_invoke({})
    driver.run(seconds=0.5)
    driver.crash()
    driver.run()
    assert driver.runs("ok") == 1
