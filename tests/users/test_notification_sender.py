"""Tests of notifications through Apprise and of webhooks, sent to a real server."""

import hmac
import json
import math

import pytest

from tests.local_server import LocalServer
from tests.trace_helpers import MONDAY
from tests.users.conftest import require_extra
from tidings.errors import UsageError
from tidings.fetch import Fetcher, FetchSettings
from tidings.store import notifications
from tidings.store.user_models import Rule, Settings
from tidings.users import alerts
from tidings.users.notification_sender import (
    BATCH_WINDOW_S,
    FAILED_RETENTION_S,
    GIVE_UP_AFTER_S,
    NotificationSender,
)
from tidings.web.api.webhook import encode_event

HOUR_S = 3600.0


@pytest.fixture
def receiver():
    with LocalServer() as receiver:
        yield receiver


class DeliveryHarness:
    """``restart_and_deliver`` runs a new sender once; ``deliver`` runs the same sender again."""

    def __init__(self, env, receiver):
        self.env, self.receiver = env, receiver
        env.ann.subscribe_to("a")
        env.publish("a", 1)

    def set_settings(self, user, **settings):
        self.env.wait(self.env.user_service.save_settings(user.user, Settings(**settings)))

    def restart_and_deliver(self, *, allow_private=True):
        """Deliver what is due with a new sender; return the requests that the receiver got."""
        self.fetcher = Fetcher(FetchSettings(allow_private=allow_private), self.env.clock)
        self.notification_sender = NotificationSender(
            self.env.store, self.fetcher, self.env.clock, encode_event
        )
        return self.deliver()

    def deliver(self):
        del self.receiver.posted[:]

        async def run():
            async with self.fetcher:
                await self.notification_sender.run_once()

        self.env.wait(run())
        return list(self.receiver.posted)

    def alert_messages(self):
        return [json.loads(posted.body)["message"] for posted in self.restart_and_deliver()]


@pytest.fixture
def harness(env, receiver):
    return DeliveryHarness(env, receiver)


@pytest.fixture
def alert_harness(harness, env, receiver):
    """Return an environment in which Ann has a rule that notifies her about herons."""
    require_extra("apprise", "alerts")
    env.ann.save_rule(Rule(name="birds", action="alert", words="heron"))
    harness.set_settings(env.ann, alert_urls=(f"json://{receiver.host}/ann",))
    return harness


def test_alert_has_entry_feed_rule_and_url_and_is_sent_once(alert_harness, env):
    env.publish("a", 2, text="a heron!")
    env.publish("a", 3, text="a duck")
    (message,) = alert_harness.alert_messages()
    assert message == "Post 2\nhttps://a.example/feed (birds)\nhttps://a.example/2"
    assert alert_harness.alert_messages() == []


def test_first_document_of_feed_sends_no_alert(alert_harness, env):
    env.ann.subscribe_to("b")
    env.publish("b", 2, text="a heron of last year")
    assert alert_harness.alert_messages() == []


def test_alerts_are_batched(alert_harness, env, clock):
    env.publish("a", 2, text="a heron")
    assert len(alert_harness.restart_and_deliver()) == 1
    env.publish("a", 3, text="a heron")
    env.publish("a", 4, text="a heron")
    assert alert_harness.deliver() == []
    clock.forward(BATCH_WINDOW_S)
    (posted,) = alert_harness.deliver()
    assert json.loads(posted.body)["title"] == "2 new posts"


def test_read_and_muted_entries_send_no_alert(alert_harness, env):
    (two,) = env.publish("a", 2, text="a heron")
    env.ann.mark([two], unread=False)
    assert alert_harness.alert_messages() == []
    env.ann.save_rule(Rule(action="mute", words="heron dead"))
    env.publish("a", 3, text="a dead heron")
    assert alert_harness.alert_messages() == []


def test_alerts_wait_for_end_of_quiet_hours(alert_harness, env, clock, receiver):
    alert_harness.set_settings(
        env.ann,
        alert_urls=(f"json://{receiver.host}/",),
        timezone="Europe/Berlin",
        quiet_from=22,
        quiet_until=7,
    )
    clock.now = MONDAY + 21.5 * HOUR_S  # 22:30 in Berlin
    env.publish("a", 2, text="a heron")
    env.publish("a", 3, text="another heron")
    assert alert_harness.alert_messages() == []
    clock.forward(7 * HOUR_S)  # 5:30
    assert alert_harness.alert_messages() == []
    clock.forward(2 * HOUR_S)
    (message,) = alert_harness.alert_messages()
    assert [line for line in message.splitlines() if line.startswith("Post")] == [
        "Post 2",
        "Post 3",
    ]


@pytest.mark.parametrize(
    ("begin", "end", "quiet"),
    [(0, 0, []), (22, 7, [22, 23, *range(7)]), (8, 10, [8, 9]), (5, 5, [])],
)
def test_quiet_hours(begin, end, quiet):
    settings = Settings(quiet_from=begin, quiet_until=end)
    assert [
        hour for hour in range(24) if alerts.is_quiet_hour(settings, MONDAY + hour * HOUR_S)
    ] == sorted(quiet)


def test_failed_alert_is_retried_with_backoff_then_abandoned(alert_harness, env, clock, receiver):
    env.publish("a", 2, text="a heron")
    receiver.answers += [500] * 1000
    tried = []
    while clock() < MONDAY + 2 * GIVE_UP_AFTER_S:
        if alert_harness.restart_and_deliver():
            tried.append(clock())
        clock.forward(60)
        if len(tried) == 3:
            break
    assert 60 <= tried[1] - tried[0] < 200
    assert tried[2] - tried[1] > tried[1] - tried[0]
    (waiting,) = env.ann.failed_deliveries()
    assert (waiting.tries, waiting.problem) == (
        3,
        "the notification could not be delivered; check its URL",
    )
    clock.forward(GIVE_UP_AFTER_S)
    assert len(alert_harness.restart_and_deliver()) == 1
    clock.forward(GIVE_UP_AFTER_S)
    assert alert_harness.restart_and_deliver() == []
    (abandoned,) = env.ann.failed_deliveries()
    assert (abandoned.id, abandoned.next_at, abandoned.body) == (waiting.id, math.inf, "")
    assert env.bob.failed_deliveries() == []


def test_abandoned_deliveries_expire(alert_harness, env, clock, receiver):
    receiver.answers += [500] * 4
    for number in (2, 3):
        env.publish("a", number, text="a heron")
        made_at = clock()
        alert_harness.restart_and_deliver()
        clock.forward(GIVE_UP_AFTER_S + 1)
        alert_harness.restart_and_deliver()
        clock.forward(FAILED_RETENTION_S)
    assert [delivery.made_at for delivery in env.ann.failed_deliveries()] == [made_at]


def test_test_notification_is_sent_to_all_urls(alert_harness, env, receiver):
    alert_harness.set_settings(
        env.ann, alert_urls=(f"json://{receiver.host}/a",), webhook_url=f"{receiver.address}/hook"
    )
    assert env.ann.send_test_notification() == 2
    payloads = {
        posted.path: json.loads(posted.body) for posted in alert_harness.restart_and_deliver()
    }
    assert payloads["/a"]["title"] == "Test notification"
    assert payloads["/hook"]["event_type"] == "save_entry"


def test_test_notification_without_url_raises(harness, env):
    with pytest.raises(UsageError, match="save a notification URL"):
        env.ann.send_test_notification()


def test_failed_url_does_not_repeat_others(alert_harness, env, clock, receiver):
    alert_harness.set_settings(
        env.ann, alert_urls=(f"json://{receiver.host}/one", f"json://{receiver.host}/two")
    )
    env.publish("a", 2, text="a heron")
    receiver.answers.append(500)
    first = alert_harness.restart_and_deliver()
    clock.forward(90)
    again = alert_harness.restart_and_deliver()
    assert sorted(posted.path for posted in first) == ["/one", "/two"]
    assert len(again) == 1


def test_removed_url_gets_no_retry(alert_harness, env, clock, receiver):
    env.publish("a", 2, text="a heron")
    receiver.answers.append(500)
    assert len(alert_harness.restart_and_deliver()) == 1
    alert_harness.set_settings(env.ann)
    clock.forward(90)
    assert alert_harness.restart_and_deliver() == []


def test_alerts_to_private_addresses_are_blocked(alert_harness, env, clock):
    env.publish("a", 2, text="a heron")
    assert alert_harness.restart_and_deliver(allow_private=False) == []
    clock.forward(90)
    assert len(alert_harness.restart_and_deliver()) == 1


@pytest.mark.parametrize(
    "url",
    [
        "nonsense://x",
        "syslog://",
        "dbus://",
        "workflows://host/a/b/c?template=/etc/passwd",
        "mailto://a:b@c.example?pgpkey=/x",
    ],
)
def test_invalid_notification_urls_raise(url):
    require_extra("apprise", "alerts")
    with pytest.raises(UsageError):
        alerts.check_address(url)


def test_valid_notification_url_is_accepted():
    require_extra("apprise", "alerts")
    alerts.check_address("ntfy://ntfy.example/mine")


# --- webhooks -------------------------------------------------------------------------------------


@pytest.fixture
def webhook_harness(harness, env, receiver):
    harness.set_settings(env.ann, webhook_url=f"{receiver.address}/hook", webhook_secret="hush")
    return harness


def test_webhook_payload_is_that_of_miniflux(webhook_harness, env):
    env.ann.save_rule(Rule(action="mute", words="football"))
    env.bob.subscribe_to("a")
    ids = env.publish("a", 2, 3, text="news")
    env.publish("a", 4, text="football")
    (posted,) = webhook_harness.restart_and_deliver()
    payload = json.loads(posted.body)
    assert posted.path == "/hook"
    assert posted.headers["X-Miniflux-Event-Type"] == payload["event_type"] == "new_entries"
    assert (
        posted.headers["X-Miniflux-Signature"] == hmac.digest(b"hush", posted.body, "sha256").hex()
    )
    assert set(payload["feed"]) == {
        "id", "user_id", "category_id", "category", "feed_url", "site_url", "title", "checked_at"
    }  # fmt: skip
    assert [entry["id"] for entry in payload["entries"]] == list(ids)
    first = payload["entries"][0]
    assert (first["title"], first["status"], first["share_code"], first["content"]) == (
        "Post 2",
        "unread",
        "",
        "<p>news</p>",
    )
    assert webhook_harness.restart_and_deliver() == []


def test_save_entry_posts_to_webhook(webhook_harness, env):
    one, two = env.publish("a", 2, 3)
    webhook_harness.restart_and_deliver()
    env.ann.send_to_webhook(one)
    env.ann.send_to_webhook(two)
    posted = [json.loads(posted.body) for posted in webhook_harness.restart_and_deliver()]
    assert [(event["event_type"], event["entry"]["id"]) for event in posted] == [
        ("save_entry", one),
        ("save_entry", two),
    ]
    assert posted[0]["entry"]["feed"]["feed_url"] == "https://a.example/feed"


def test_save_entry_without_webhook_raises(harness, env):
    with pytest.raises(UsageError, match="webhook"):
        env.ann.send_to_webhook(env.publish("a", 2)[0])


def test_webhook_is_retried_by_another_process(webhook_harness, env, clock, receiver):
    env.publish("a", 2)
    receiver.answers.append(503)
    first = webhook_harness.restart_and_deliver()
    clock.forward(90)
    again = webhook_harness.restart_and_deliver()
    assert [p.body for p in first] == [p.body for p in again]
    clock.forward(3600)
    assert webhook_harness.restart_and_deliver() == []


def test_delivery_is_sent_after_lease_expires(webhook_harness, env, clock):
    env.publish("a", 2)
    ((user_id, kind, settings),) = env.read(notifications.pending_notifications)
    env.write(
        notifications.create_deliveries,
        user_id,
        kind,
        lambda batches: [(settings.webhook_url, "{}")],
        clock(),
    )
    assert len(env.write(notifications.lease_deliveries, clock(), clock() + 300)) == 1
    assert webhook_harness.restart_and_deliver() == []
    clock.forward(301)
    assert len(webhook_harness.restart_and_deliver()) == 1


def test_webhook_to_private_address_is_blocked(webhook_harness, env):
    env.publish("a", 2)
    assert webhook_harness.restart_and_deliver(allow_private=False) == []


def test_removed_user_gets_no_webhook(webhook_harness, env):
    env.bob.subscribe_to("a")
    webhook_harness.set_settings(env.bob, webhook_url=f"{webhook_harness.receiver.address}/bob")
    env.publish("a", 2)
    env.wait(env.user_service.remove_user(env.bob.user.id, by=None))
    assert [posted.path for posted in webhook_harness.restart_and_deliver()] == ["/hook"]
