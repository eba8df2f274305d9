"""Reasons: codes with parameters, stored as JSON, and their texts."""

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

#: Parameters of every code, as in the modules that create the reasons.
PARAMS = {
    "text": {"text": "as an older version wrote it"},
    "policy": {"policy": "silence", "text": "silence: 2 h"},
    "retry_after": {"wait_s": 60.0, "error": "the server responded with status 429"},
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
def test_every_code_is_rendered_and_decoded(code):
    stored_reason = sample(code)
    text = render(stored_reason)
    assert len(text) > 10
    assert "%(" not in text
    assert not text.startswith(f"{code} (")  # the fallback of an unknown code
    assert decode(encode(stored_reason)) == stored_reason


def test_empty_reason():
    assert not NO_REASON
    assert (encode(NO_REASON), decode(""), render(NO_REASON), to_json(NO_REASON)) == (
        "",
        NO_REASON,
        "",
        None,
    )


def test_modifier_is_not_repeated():
    stored_reason = with_modifier(
        with_modifier(reason("ttl", interval_s=7200.0), "budget_spent"), "budget_spent"
    )
    assert render(stored_reason) == (
        "the request budget is used up for now; the feed requests 2 h between checks (ttl)"
    )
    assert stored_reason.cause == reason("ttl", interval_s=7200.0)
    assert decode(encode(stored_reason)) == stored_reason
    assert to_json(stored_reason)["cause"]["code"] == "ttl"


def test_reasons_of_other_versions_are_rendered():
    assert render(decode("new feed, never polled before")) == "new feed, never polled before"
    assert (
        render(decode('{"code": "of_tomorrow", "params": {"wait_s": 3}}'))
        == "of_tomorrow (wait_s 3)"
    )
    assert render(reason("ttl")) == "ttl"  # parameters are missing
    assert decode('{"code": 3}').code == "text"


def test_rules_of_adaptive_policies_have_texts():
    rules = {
        policy.rule
        for policy in POLICIES.values()
        if hasattr(policy, "rule") and "rule" in vars(policy)
    }
    assert rules
    assert rules <= set(reasons._RULES)
