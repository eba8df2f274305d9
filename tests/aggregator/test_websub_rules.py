"""WebSub rules that need no hub: leases, signatures, reliability, choice of hub."""

import hmac

import pytest

from tests.fetch.origin_server import MONDAY
from tidings.aggregator.websub import (
    LEASE_S,
    add_counts,
    desired_subscription,
    has_valid_signature,
    reliability,
    renewal_at,
)
from tidings.model import DAY_S, HOUR_S
from tidings.store.feed_models import Feed, FeedState, PushSubscription

HUB = "https://hub.example/"


def feed(*hubs: str, url: str = "https://a.example/feed", **state: str) -> Feed:
    return Feed(1, url, MONDAY, 1.0, None, "", 0.0, FeedState(hubs=hubs, **state))


def push(pushed_count: int = 0, unpushed_count: int = 0, **fields: str) -> PushSubscription:
    values = {
        "hub": HUB,
        "topic": "https://a.example/feed",
        "token": "t",
        "secret": "s",
        "state": "active",
        **fields,
    }
    return PushSubscription(1, pushed_count=pushed_count, unpushed_count=unpushed_count, **values)


@pytest.mark.parametrize("lease_seconds", ["864000", "", "0", "-5", "soon", "1e9", "9" * 5000, "²"])
def test_granted_lease_is_limited_to_requested(lease_seconds: str) -> None:
    assert 0.7 * LEASE_S <= renewal_at(1, lease_seconds, MONDAY) - MONDAY <= 0.8 * LEASE_S


def test_short_lease_is_renewed_at_most_hourly() -> None:
    assert renewal_at(1, "10", MONDAY) == MONDAY + HOUR_S


def test_renewals_are_spread_with_constant_jitter() -> None:
    times = [renewal_at(feed_id, "864000", MONDAY) for feed_id in range(1000)]
    assert times == [renewal_at(feed_id, "864000", MONDAY) for feed_id in range(1000)]
    counts = [
        sum(7 + i / 10 <= (time - MONDAY) / DAY_S < 7.1 + i / 10 for time in times)
        for i in range(10)
    ]
    assert min(counts) > 70


def test_signature_formats() -> None:
    digest = hmac.new(b"secret", b"body", "sha256").hexdigest()
    assert has_valid_signature(b"body", f"sha256={digest}", "secret")
    assert has_valid_signature(b"body", f" SHA256={digest.upper()} ", "secret")
    assert not has_valid_signature(b"body", f"sha256={digest[:-1]}", "secret")
    assert not has_valid_signature(b"body", digest, "secret")
    assert not has_valid_signature(
        b"body", "blake2b=" + hmac.new(b"secret", b"body", "blake2b").hexdigest(), "secret"
    )


def test_reliability_starts_at_half_and_forgets() -> None:
    assert reliability(push()) == 0.5
    subscription = add_counts(push(), pushed_count=1000)
    assert 0.9 < reliability(subscription) < 1
    for _ in range(12):
        subscription = add_counts(subscription, unpushed_count=1)
    assert reliability(subscription) < 0.5
    assert 0 < reliability(add_counts(push(), unpushed_count=1000)) < 0.1


def test_valid_subscription_is_kept() -> None:
    assert desired_subscription(feed("https://other.example/", HUB), push()) == push()
    renewed = desired_subscription(feed(HUB, self_url="https://a.example/other"), push())
    assert renewed is not None
    assert (renewed.topic, renewed.token == "t", renewed.secret == "s") == (
        "https://a.example/other",
        False,
        False,
    )


@pytest.mark.parametrize("hubs", [(), ("ftp://hub.example/",), ("mailto:hub@hub.example", "")])
def test_invalid_hub_urls_are_ignored(hubs: tuple[str, ...]) -> None:
    assert desired_subscription(feed(*hubs), None) is None


def test_url_without_host_is_no_topic() -> None:
    assert desired_subscription(feed(HUB, url="file:///etc/passwd"), None) is None
