"""Error policy: backoff, rate limits, dead feeds, retirement and permanent moves."""

import math

import pytest

from tests.fetch.origin_server import MONDAY
from tidings.fetch import FetchProblem, FetchRequest, FetchResult, Problem
from tidings.fetch.error_policy import (
    JITTER,
    Action,
    FailureHistory,
    FetchDecision,
    Move,
    as_unreadable,
    decide,
    is_bot_challenge,
    is_rate_limited,
    update_move,
)
from tidings.fetch.validators import Validators
from tidings.model import DAY_S, HOUR_S
from tidings.reasons import reason

URL = "https://example.org/feed"


def failed(status: int = 0, kind: Problem = Problem.STATUS, **fields: object) -> FetchResult:
    return FetchResult(URL, status, error=FetchProblem(kind, f"status {status}"), **fields)


def backoff_hours(result: FetchResult, times: int) -> list[float]:
    """Return the delays in hours after ``times`` failures in a row, each polled when due."""
    now, hours, history = MONDAY, [], FailureHistory(has_succeeded=True)
    for _ in range(times):
        decision = decide(result, history, now, URL)
        hours.append((decision.earliest - now) / HOUR_S)
        history, now = decision.history, decision.earliest
    return hours


def within_jitter(value: float, expected: float) -> bool:
    return expected <= value <= expected * (1 + JITTER)


def test_success_resets_failure_history() -> None:
    history = FailureHistory(7, MONDAY - DAY_S, True)
    changed = decide(FetchResult(URL, 200, b"x"), history, MONDAY, URL)
    unchanged = decide(FetchResult(URL, 304, unchanged=True), history, MONDAY, URL)
    assert (changed.action, unchanged.action) == (Action.READ, Action.UNCHANGED)
    assert changed.history == unchanged.history == FailureHistory(has_succeeded=True)
    assert changed.earliest == -math.inf


@pytest.mark.parametrize(
    "kind",
    [
        Problem.DNS,
        Problem.CONNECT,
        Problem.TLS,
        Problem.TIMEOUT,
        Problem.BROKEN,
        Problem.UNREADABLE,
    ],
)
def test_backoff_doubles_from_an_hour_to_a_day(kind: Problem) -> None:
    for hours, expected in zip(
        backoff_hours(failed(kind=kind), 8), [1, 2, 4, 8, 16, 24, 24, 24], strict=True
    ):
        assert within_jitter(hours, expected)


@pytest.mark.parametrize("status", [500, 502, 503])
def test_backoff_doubles_after_server_errors(status: int) -> None:
    assert within_jitter(backoff_hours(failed(status), 3)[2], 4)


@pytest.mark.parametrize("status", [400, 401, 403, 404, 451])
def test_backoff_after_client_errors_grows_faster(status: int) -> None:
    for hours, expected in zip(backoff_hours(failed(status), 5), [1, 4, 16, 24, 24], strict=True):
        assert within_jitter(hours, expected)


def test_dead_feed_is_retried_monthly_and_owner_is_notified_once() -> None:
    history = FailureHistory(40, MONDAY - 30 * DAY_S, True)
    decision = decide(failed(kind=Problem.DNS), history, MONDAY, URL)
    assert within_jitter((decision.earliest - MONDAY) / DAY_S, 30)
    assert decision.action is Action.BACK_OFF
    assert decision.notice.startswith("The feed has been failing for 30 d")
    retry = decide(failed(kind=Problem.DNS), decision.history, decision.earliest, URL)
    assert within_jitter((retry.earliest - decision.earliest) / DAY_S, 30)
    assert retry.notice == ""


def test_410_retires_the_feed_with_a_notice() -> None:
    decision = decide(failed(410), FailureHistory(has_succeeded=True), MONDAY, URL)
    assert (decision.action, decision.earliest) == (Action.RETIRE, math.inf)
    assert (
        decision.notice
        == "The feed is no longer checked: the publisher has removed the feed (410 Gone)."
    )


def test_retry_after_is_respected_exactly() -> None:
    decision = decide(
        failed(429, rate_limited=True, retry_at=MONDAY + DAY_S),
        FailureHistory(has_succeeded=True),
        MONDAY,
        URL,
    )
    assert (decision.action, decision.earliest) == (Action.WAIT, MONDAY + DAY_S)
    assert decision.reason == reason("retry_after", error="status 429", wait_s=DAY_S)


def test_429_without_retry_after_backs_off() -> None:
    hours = backoff_hours(failed(429, rate_limited=True), 6)
    assert [within_jitter(h, e) for h, e in zip(hours, [1, 2, 4, 8, 16, 24], strict=True)] == [
        True
    ] * 6


def test_retry_after_and_freshness_are_lower_bounds_after_errors() -> None:
    later = MONDAY + 3 * DAY_S
    assert decide(failed(500, retry_at=later), FailureHistory(), MONDAY, URL).earliest == later
    assert (
        decide(failed(404, fresh_until=MONDAY + DAY_S), FailureHistory(), MONDAY, URL).earliest
        == MONDAY + DAY_S
    )


def test_paused_host_is_not_a_failure_of_the_feed() -> None:
    history = FailureHistory(2, MONDAY - 60, True)
    decision = decide(failed(kind=Problem.PAUSED, retry_at=MONDAY + 900), history, MONDAY, URL)
    assert decision == FetchDecision(
        Action.WAIT, history, MONDAY + 900, reason("host_paused", host="example.org", wait_s=900.0)
    )


def test_jitter_depends_on_the_key_and_is_deterministic() -> None:
    ends = {
        decide(failed(500), FailureHistory(), MONDAY, f"{URL}/{n}").earliest for n in range(100)
    }
    assert len(ends) == 100
    assert max(ends) - min(ends) > 0.08 * HOUR_S
    assert decide(failed(500), FailureHistory(), MONDAY, URL) == decide(
        failed(500), FailureHistory(), MONDAY, URL
    )


@pytest.mark.parametrize(
    ("status", "host", "headers", "expected"),
    [
        (429, "example.org", {}, True),
        (503, "example.org", {}, False),
        (503, "example.org", {"Retry-After": "60"}, True),
        (403, "example.org", {}, False),
        (403, "example.org", {"Retry-After": "60"}, True),
        (403, "www.reddit.com", {}, True),
        (403, "notreddit.com", {}, False),
        (404, "www.reddit.com", {}, False),
    ],
)
def test_rate_limit_detection(
    status: int, host: str, headers: dict[str, str], expected: bool
) -> None:
    assert is_rate_limited(status, host, headers) is expected


def test_bot_challenge_after_success_is_a_rate_limit() -> None:
    assert is_bot_challenge({"cf-mitigated": "challenge"})
    result = failed(403, bot_challenged=True)
    assert decide(result, FailureHistory(has_succeeded=True), MONDAY, URL).action is Action.WAIT
    assert decide(result, FailureHistory(), MONDAY, URL).action is Action.BACK_OFF


def test_unreadable_document_keeps_validators_and_digest() -> None:
    known = Validators('"1"', None, URL, MONDAY)
    request = FetchRequest(URL, known, b"digest")
    page = FetchResult(
        URL,
        200,
        b"<html>",
        b"other",
        validators=Validators('"page"', None, URL, MONDAY),
        moved_to="x",
    )
    result = as_unreadable(request, page, "this is a web page")
    assert (result.validators, result.digest, result.body, result.moved_to) == (
        known,
        b"digest",
        None,
        None,
    )
    assert decide(result, FailureHistory(has_succeeded=True), MONDAY, URL).action is Action.BACK_OFF


def moved(target: str | None) -> FetchResult:
    return FetchResult(URL, 200, b"x", moved_to=target)


def test_move_is_settled_after_three_redirects() -> None:
    move: Move | None = None
    for hours in (0, 1, 2):
        move = update_move(move, moved("https://new.example/"), MONDAY + hours * HOUR_S)
    assert move == Move("https://new.example/", 3, MONDAY)
    assert move.is_settled
    assert not Move("https://new.example/", 2, MONDAY).is_settled


def test_other_target_restarts_and_no_redirect_ends_the_count() -> None:
    move = Move("https://new.example/", 2, MONDAY)
    assert update_move(move, moved("https://other.example/"), MONDAY + 5) == Move(
        "https://other.example/", 1, MONDAY + 5
    )
    assert update_move(move, moved(None), MONDAY + 5) is None
    assert update_move(move, failed(500), MONDAY + 5) is move
