"""What answers mean for a feed's future; every decision has its reason in words."""

import math

import pytest

from tests.fetch.origin import MONDAY
from tidings.fetch import FetchProblem, FetchRequest, FetchResult, Problem
from tidings.fetch.outcomes import JITTER, Action, Move, Outcome, Past, is_challenge, is_limiting, judge, seen_move, unreadable
from tidings.fetch.validators import Validators
from tidings.model import DAY_S, HOUR_S
from tidings.reasons import reason

URL = "https://example.org/feed"


def failed(status: int = 0, kind: Problem = Problem.STATUS, **more: object) -> FetchResult:
    return FetchResult(URL, status, error=FetchProblem(kind, f"the server answered {status}"), **more)


def waits(result: FetchResult, times: int, past: Past = Past(worked=True)) -> list[float]:  # noqa: B008  # it is frozen: one for all is no harm
    """Hours of waiting after each of so many failures in a row, each at the time when the last wait was over."""
    now, out = MONDAY, []
    for _ in range(times):
        outcome = judge(result, past, now, URL)
        out.append((outcome.earliest - now) / HOUR_S)
        past, now = outcome.past, outcome.earliest
    return out


def stretched(hours: float, by: float) -> bool:
    return by <= hours <= by * (1 + JITTER)


def test_a_document_and_the_known_document_end_all_trouble() -> None:
    past = Past(7, MONDAY - DAY_S, True)
    read = judge(FetchResult(URL, 200, b"x"), past, MONDAY, URL)
    same = judge(FetchResult(URL, 304, unchanged=True), past, MONDAY, URL)
    assert (read.action, same.action) == (Action.READ, Action.UNCHANGED)
    assert read.past == same.past == Past(worked=True)
    assert read.earliest == -math.inf


@pytest.mark.parametrize(
    "kind", [Problem.DNS, Problem.CONNECT, Problem.TLS, Problem.TIMEOUT, Problem.BROKEN, Problem.UNREADABLE]
)
def test_failures_double_the_wait_from_an_hour_to_a_day(kind: Problem) -> None:
    for hours, expected in zip(waits(failed(kind=kind), 8), [1, 2, 4, 8, 16, 24, 24, 24], strict=True):
        assert stretched(hours, expected)


@pytest.mark.parametrize("status", [500, 502, 503])
def test_server_errors_double_too(status: int) -> None:
    assert stretched(waits(failed(status), 3)[2], 4)


@pytest.mark.parametrize("status", [400, 401, 403, 404, 451])
def test_what_is_missing_is_soon_asked_for_daily(status: int) -> None:
    for hours, expected in zip(waits(failed(status), 5), [1, 4, 16, 24, 24], strict=True):
        assert stretched(hours, expected)


def test_a_feed_dead_for_a_month_is_tried_monthly_and_its_owner_is_told() -> None:
    past = Past(40, MONDAY - 30 * DAY_S, True)
    outcome = judge(failed(kind=Problem.DNS), past, MONDAY, URL)
    assert stretched((outcome.earliest - MONDAY) / DAY_S, 30)
    assert outcome.action is Action.BACK_OFF
    assert outcome.notice.startswith("No document for 30 d")
    again = judge(failed(kind=Problem.DNS), outcome.past, outcome.earliest, URL)
    assert stretched((again.earliest - outcome.earliest) / DAY_S, 30)
    assert again.notice == ""


def test_410_retires_with_notice() -> None:
    outcome = judge(failed(410), Past(worked=True), MONDAY, URL)
    assert (outcome.action, outcome.earliest) == (Action.RETIRE, math.inf)
    assert outcome.notice == "Retired: the publisher says that it is gone for good (410)."


def test_retry_after_is_kept_to_the_second() -> None:
    outcome = judge(failed(429, limited=True, retry_at=MONDAY + DAY_S), Past(worked=True), MONDAY, URL)
    assert (outcome.action, outcome.earliest) == (Action.WAIT, MONDAY + DAY_S)
    assert outcome.reason == reason("retry_after", error="the server answered 429", wait_s=DAY_S)


def test_429_without_a_time_slows_down_all_the_same() -> None:
    hours = waits(failed(429, limited=True), 6)
    assert [stretched(h, e) for h, e in zip(hours, [1, 2, 4, 8, 16, 24], strict=True)] == [True] * 6


def test_a_time_on_any_error_is_a_lower_bound() -> None:
    later = MONDAY + 3 * DAY_S
    assert judge(failed(500, retry_at=later), Past(), MONDAY, URL).earliest == later
    assert judge(failed(404, fresh_until=MONDAY + DAY_S), Past(), MONDAY, URL).earliest == MONDAY + DAY_S


def test_a_paused_host_is_nobodys_failure() -> None:
    past = Past(2, MONDAY - 60, True)
    outcome = judge(failed(kind=Problem.PAUSED, retry_at=MONDAY + 900), past, MONDAY, URL)
    assert outcome == Outcome(Action.WAIT, past, MONDAY + 900, reason("host_paused", host="example.org", wait_s=900.0))


def test_waits_are_spread_by_the_feeds_name_and_always_the_same() -> None:
    ends = {judge(failed(500), Past(), MONDAY, f"{URL}/{n}").earliest for n in range(100)}
    assert len(ends) == 100
    assert max(ends) - min(ends) > 0.08 * HOUR_S
    assert judge(failed(500), Past(), MONDAY, URL) == judge(failed(500), Past(), MONDAY, URL)


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
def test_who_is_told_to_ask_less(status: int, host: str, headers: dict[str, str], limiting: bool) -> None:
    assert is_limiting(status, host, headers) is limiting


def test_a_robot_check_before_a_feed_that_worked_is_limiting() -> None:
    assert is_challenge({"cf-mitigated": "challenge"})
    result = failed(403, challenged=True)
    assert judge(result, Past(worked=True), MONDAY, URL).action is Action.WAIT
    assert judge(result, Past(), MONDAY, URL).action is Action.BACK_OFF


def test_what_is_no_feed_is_a_failure_that_leaves_what_was_known() -> None:
    known = Validators('"1"', None, URL, MONDAY)
    request = FetchRequest(URL, known, b"digest")
    page = FetchResult(URL, 200, b"<html>", b"other", validators=Validators('"page"', None, URL, MONDAY), moved_to="x")
    result = unreadable(request, page, "this is a web page")
    assert (result.validators, result.digest, result.body, result.moved_to) == (known, b"digest", None, None)
    assert judge(result, Past(worked=True), MONDAY, URL).action is Action.BACK_OFF


def moved(target: str | None) -> FetchResult:
    return FetchResult(URL, 200, b"x", moved_to=target)


def test_a_move_is_adopted_after_three_sightings() -> None:
    move: Move | None = None
    for hours in (0, 1, 2):
        move = seen_move(move, moved("https://new.example/"), MONDAY + hours * HOUR_S)
    assert move == Move("https://new.example/", 3, MONDAY)
    assert move.settled
    assert not Move("https://new.example/", 2, MONDAY).settled


def test_another_target_begins_anew_and_an_answer_at_home_ends_it() -> None:
    move = Move("https://new.example/", 2, MONDAY)
    assert seen_move(move, moved("https://other.example/"), MONDAY + 5) == Move("https://other.example/", 1, MONDAY + 5)
    assert seen_move(move, moved(None), MONDAY + 5) is None
    assert seen_move(move, failed(500), MONDAY + 5) is move
