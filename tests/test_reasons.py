"""Reasons: codes with parameters, kept as JSON, and their texts."""

import pytest

from tidings import reasons
from tidings.policy import POLICIES
from tidings.reasons import (
    NO_REASON,
    Reason,
    decode,
    encode,
    reason,
    render,
    to_json,
    with_modifier,
)

#: Parameters for every code, as the code that makes the reason gives them.
PARAMS = {
    "text": {"text": "as an older version wrote it"},
    "policy": {"policy": "silence", "text": "silence: 2 h"},
    "retry_after": {"wait_s": 60.0, "error": "the server answered 429"},
    "backoff": {"error": "timeout", "failures": 3, "wait_s": 14400.0},
    "publisher_wait": {"wait_s": 600.0},
    "host_paused": {"host": "example.org", "wait_s": 900.0},
    "feed_moved": {"url": "https://example.org/feed"},
    "retired": {"text": "no subscriptions"},
    "price": {"days": "weekdays", "from_hour": 8, "to_hour": 14, "per_day": 2.5, "expected": 0.31},
    "planned": {"policy": "combined", "polls_per_day": 4.0, "timed": True},
    "adaptive": {"policy": "fixed", "interval_h": 1.0, "rule": "configured"},
}


def sample(code):
    return Reason(code, PARAMS.get(code, {"interval_s": 5400.0}))


@pytest.mark.parametrize("code", sorted(reasons._TEXTS))
def test_every_code_has_a_text_and_survives_the_store(code):
    why = sample(code)
    text = render(why)
    assert len(text) > 10
    assert "%(" not in text
    assert not text.startswith(f"{code} (")  # that is the text of a code without one
    assert decode(encode(why)) == why


def test_no_reason_is_nothing():
    assert not NO_REASON
    assert (encode(NO_REASON), decode(""), render(NO_REASON), to_json(NO_REASON)) == (
        "",
        NO_REASON,
        "",
        None,
    )


def test_a_modifier_adds_to_a_reason_and_never_piles_up():
    why = with_modifier(
        with_modifier(reason("ttl", interval_s=7200.0), "budget_spent"), "budget_spent"
    )
    assert (
        render(why)
        == "the request budget is used up for now; its ttl asks for 2 h between requests"
    )
    assert why.cause == reason("ttl", interval_s=7200.0)
    assert decode(encode(why)) == why
    assert to_json(why)["cause"]["code"] == "ttl"


def test_what_an_older_or_a_newer_version_wrote_is_still_shown():
    assert render(decode("new feed, never asked before")) == "new feed, never asked before"
    assert (
        render(decode('{"code": "of_tomorrow", "params": {"wait_s": 3}}'))
        == "of_tomorrow (wait_s 3)"
    )
    assert render(reason("ttl")) == "ttl"  # parameters are missing
    assert decode('{"code": 3}').code == "text"


def test_the_rules_of_adaptive_policies_have_texts():
    rules = {
        policy.rule
        for policy in POLICIES.values()
        if hasattr(policy, "rule") and "rule" in vars(policy)
    }
    assert rules
    assert rules <= set(reasons._RULES)
