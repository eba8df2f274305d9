"""The rules of push that need no hub."""

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
    of_feed = {
        "hub": HUB,
        "topic": "https://a.example/feed",
        "token": "t",
        "secret": "s",
        "state": "active",
        **fields,
    }
    return PushSubscription(1, pushed_count=pushed_count, unpushed_count=unpushed_count, **of_feed)


@pytest.mark.parametrize("told", ["864000", "", "0", "-5", "soon", "1e9", "9" * 5000, "²"])
def test_leases_are_believed_up_to_what_was_asked_for(lease_seconds: str) -> None:
    assert 0.7 * LEASE_S <= renewal_at(1, lease_seconds, MONDAY) - MONDAY <= 0.8 * LEASE_S


def test_a_hub_is_not_bothered_more_than_hourly() -> None:
    assert renewal_at(1, "10", MONDAY) == MONDAY + HOUR_S


def test_renewals_spread_and_each_feed_keeps_its_place() -> None:
    times = [renewal_at(feed_id, "864000", MONDAY) for feed_id in range(1000)]
    assert times == [renewal_at(feed_id, "864000", MONDAY) for feed_id in range(1000)]
    counts = [
        sum(7 + i / 10 <= (time - MONDAY) / DAY_S < 7.1 + i / 10 for time in times)
        for i in range(10)
    ]
    assert min(counts) > 70


def test_signatures_are_read_as_hubs_write_them() -> None:
    right = hmac.new(b"secret", b"body", "sha256").hexdigest()
    assert has_valid_signature(b"body", f"sha256={right}", "secret")
    assert has_valid_signature(b"body", f" SHA256={right.upper()} ", "secret")
    assert not has_valid_signature(b"body", f"sha256={right[:-1]}", "secret")
    assert not has_valid_signature(b"body", right, "secret")
    assert not has_valid_signature(
        b"body", "blake2b=" + hmac.new(b"secret", b"body", "blake2b").hexdigest(), "secret"
    )


def test_nothing_is_known_of_a_new_hub_and_the_past_fades() -> None:
    assert reliability(push()) == 0.5
    faithful = add_counts(push(), pushed_count=1000)
    assert 0.9 < reliability(faithful) < 1
    for _ in range(12):
        faithful = add_counts(faithful, unpushed_count=1)
    assert reliability(faithful) < 0.5
    assert 0 < reliability(add_counts(push(), unpushed_count=1000)) < 0.1


def test_a_subscription_that_fits_is_kept() -> None:
    assert desired_subscription(feed("https://other.example/", HUB), push()) == push()
    renewed = desired_subscription(feed(HUB, self_url="https://a.example/other"), push())
    assert renewed is not None
    assert (renewed.topic, renewed.token == "t", renewed.secret == "s") == (
        "https://a.example/other",
        False,
        False,
    )


@pytest.mark.parametrize("hubs", [(), ("ftp://hub.example/",), ("mailto:hub@hub.example", "")])
def test_what_is_no_hub(hubs: tuple[str, ...]) -> None:
    assert desired_subscription(feed(*hubs), None) is None


def test_an_address_that_cannot_be_told_is_no_topic() -> None:
    assert desired_subscription(feed(HUB, url="file:///etc/passwd"), None) is None
