"""What answers mean for a feed's future; every decision has its reason in words."""

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


def failed(status: int = 0, kind: Problem = Problem.STATUS, **more: object) -> FetchResult:
    return FetchResult(
        URL, status, error=FetchProblem(kind, f"the server answered {status}"), **more
    )


def backoff_hours(
    result: FetchResult, times: int, history: FailureHistory = FailureHistory(has_succeeded=True)
) -> list[float]:  # noqa: B008  # it is frozen: one for all is no harm
    """Hours of waiting after each of so many failures in a row, each at the time when the last wait was over."""
    now, out = MONDAY, []
    for _ in range(times):
        outcome = decide(result, history, now, URL)
        out.append((outcome.earliest - now) / HOUR_S)
        history, now = outcome.history, outcome.earliest
    return out


def within_jitter(hours: float, by: float) -> bool:
    return by <= hours <= by * (1 + JITTER)


def test_a_document_and_the_known_document_end_all_trouble() -> None:
    history = FailureHistory(7, MONDAY - DAY_S, True)
    read = decide(FetchResult(URL, 200, b"x"), history, MONDAY, URL)
    same = decide(FetchResult(URL, 304, unchanged=True), history, MONDAY, URL)
    assert (read.action, same.action) == (Action.READ, Action.UNCHANGED)
    assert read.history == same.history == FailureHistory(has_succeeded=True)
    assert read.earliest == -math.inf


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
def test_failures_double_the_wait_from_an_hour_to_a_day(kind: Problem) -> None:
    for hours, expected in zip(
        backoff_hours(failed(kind=kind), 8), [1, 2, 4, 8, 16, 24, 24, 24], strict=True
    ):
        assert within_jitter(hours, expected)


@pytest.mark.parametrize("status", [500, 502, 503])
def test_server_errors_double_too(status: int) -> None:
    assert within_jitter(backoff_hours(failed(status), 3)[2], 4)


@pytest.mark.parametrize("status", [400, 401, 403, 404, 451])
def test_what_is_missing_is_soon_asked_for_daily(status: int) -> None:
    for hours, expected in zip(backoff_hours(failed(status), 5), [1, 4, 16, 24, 24], strict=True):
        assert within_jitter(hours, expected)


def test_a_feed_dead_for_a_month_is_tried_monthly_and_its_owner_is_told() -> None:
    history = FailureHistory(40, MONDAY - 30 * DAY_S, True)
    outcome = decide(failed(kind=Problem.DNS), history, MONDAY, URL)
    assert within_jitter((outcome.earliest - MONDAY) / DAY_S, 30)
    assert outcome.action is Action.BACK_OFF
    assert outcome.notice.startswith("No document for 30 d")
    again = decide(failed(kind=Problem.DNS), outcome.history, outcome.earliest, URL)
    assert within_jitter((again.earliest - outcome.earliest) / DAY_S, 30)
    assert again.notice == ""


def test_410_retires_with_notice() -> None:
    outcome = decide(failed(410), FailureHistory(has_succeeded=True), MONDAY, URL)
    assert (outcome.action, outcome.earliest) == (Action.RETIRE, math.inf)
    assert outcome.notice == "Retired: the publisher says that it is gone for good (410)."


def test_retry_after_is_kept_to_the_second() -> None:
    outcome = decide(
        failed(429, rate_limited=True, retry_at=MONDAY + DAY_S),
        FailureHistory(has_succeeded=True),
        MONDAY,
        URL,
    )
    assert (outcome.action, outcome.earliest) == (Action.WAIT, MONDAY + DAY_S)
    assert outcome.reason == reason("retry_after", error="the server answered 429", wait_s=DAY_S)


def test_429_without_a_time_slows_down_all_the_same() -> None:
    hours = backoff_hours(failed(429, rate_limited=True), 6)
    assert [within_jitter(h, e) for h, e in zip(hours, [1, 2, 4, 8, 16, 24], strict=True)] == [
        True
    ] * 6


def test_a_time_on_any_error_is_a_lower_bound() -> None:
    later = MONDAY + 3 * DAY_S
    assert decide(failed(500, retry_at=later), FailureHistory(), MONDAY, URL).earliest == later
    assert (
        decide(failed(404, fresh_until=MONDAY + DAY_S), FailureHistory(), MONDAY, URL).earliest
        == MONDAY + DAY_S
    )


def test_a_paused_host_is_nobodys_failure() -> None:
    history = FailureHistory(2, MONDAY - 60, True)
    outcome = decide(failed(kind=Problem.PAUSED, retry_at=MONDAY + 900), history, MONDAY, URL)
    assert outcome == FetchDecision(
        Action.WAIT, history, MONDAY + 900, reason("host_paused", host="example.org", wait_s=900.0)
    )


def test_waits_are_spread_by_the_feeds_name_and_always_the_same() -> None:
    ends = {
        decide(failed(500), FailureHistory(), MONDAY, f"{URL}/{n}").earliest for n in range(100)
    }
    assert len(ends) == 100
    assert max(ends) - min(ends) > 0.08 * HOUR_S
    assert decide(failed(500), FailureHistory(), MONDAY, URL) == decide(
        failed(500), FailureHistory(), MONDAY, URL
    )


@pytest.mark.parametrize(
    ("status", "host", "headers", "limiting"),
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
def test_who_is_told_to_ask_less(
    status: int, host: str, headers: dict[str, str], limiting: bool
) -> None:
    assert is_rate_limited(status, host, headers) is limiting


def test_a_robot_check_before_a_feed_that_worked_is_limiting() -> None:
    assert is_bot_challenge({"cf-mitigated": "challenge"})
    result = failed(403, bot_challenged=True)
    assert decide(result, FailureHistory(has_succeeded=True), MONDAY, URL).action is Action.WAIT
    assert decide(result, FailureHistory(), MONDAY, URL).action is Action.BACK_OFF


def test_what_is_no_feed_is_a_failure_that_leaves_what_was_known() -> None:
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


def test_a_move_is_adopted_after_three_sightings() -> None:
    move: Move | None = None
    for hours in (0, 1, 2):
        move = update_move(move, moved("https://new.example/"), MONDAY + hours * HOUR_S)
    assert move == Move("https://new.example/", 3, MONDAY)
    assert move.is_settled
    assert not Move("https://new.example/", 2, MONDAY).is_settled


def test_another_target_begins_anew_and_an_answer_at_home_ends_it() -> None:
    move = Move("https://new.example/", 2, MONDAY)
    assert update_move(move, moved("https://other.example/"), MONDAY + 5) == Move(
        "https://other.example/", 1, MONDAY + 5
    )
    assert update_move(move, moved(None), MONDAY + 5) is None
    assert update_move(move, failed(500), MONDAY + 5) is move
