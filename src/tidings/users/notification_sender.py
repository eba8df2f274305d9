"""Deliver notifications through Apprise and webhooks, with retry and backoff.

Notifications to a person (Apprise) are batched and delayed during quiet hours; webhooks are sent
immediately. Pending deliveries are in the store (`tidings.store.notifications`) and leased while
they are sent, so a message is delivered at least once even if a process dies.
"""

import asyncio
import hmac
from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeAlias

import msgspec

from tidings import logs
from tidings.errors import TidingsError
from tidings.fetch import Fetcher
from tidings.i18n import _, n_
from tidings.store import Store, StoreError, notifications
from tidings.store.notifications import FeedMatches
from tidings.store.user_models import Delivery, Item, NotificationKind, Settings, Subscription
from tidings.users import alerts

#: Seconds between checks for pending notifications, and the delay after an unexpected error.
CHECK_INTERVAL_S, ERROR_DELAY_S = 2.0, 60.0
#: Minimum seconds between two notifications of a user. Matches in between are sent as one message.
BATCH_WINDOW_S = 300.0
#: Maximum number of entries listed in a notification.
MAX_LISTED_ENTRIES = 20
#: Duration of the lease on a delivery, which is longer than any attempt takes.
LEASE_S = 300.0
#: Backoff after the first failure, which doubles with each further one; its maximum; and the age
#: at which a delivery is abandoned.
INITIAL_BACKOFF_S, MAX_BACKOFF_S, GIVE_UP_AFTER_S = 60.0, 6 * 3600.0, 3 * 86400.0
#: Retention of abandoned deliveries, which are shown to the user.
FAILED_RETENTION_S = 30 * 86400.0
#: Maximum number of deliveries sent at the same time.
MAX_CONCURRENT = 8

#: Function that encodes the body of a webhook with entries of one feed, for one user.
WebhookEncoder: TypeAlias = Callable[
    [NotificationKind, int, Settings, Subscription, Sequence[Item]], bytes
]

log = logs.Log("tidings.deliveries")


class NotificationSender:
    """Background task that sends the notifications of all users of a store.

    Several processes may run this task on the same store.
    """

    def __init__(
        self,
        store: Store,
        fetcher: Fetcher,
        clock: Callable[[], float],
        encode_webhook: WebhookEncoder,
    ) -> None:
        self._store, self._fetcher, self._clock = store, fetcher, clock
        self._encode_webhook = encode_webhook
        self._last_notification_at: dict[int, float] = {}
        self._semaphore = asyncio.Semaphore(MAX_CONCURRENT)

    async def run(self) -> None:
        """Send pending notifications until canceled."""
        while True:
            pause_s = CHECK_INTERVAL_S
            try:
                await self.run_once()
            except StoreError as error:
                log.warning("store_unavailable", error=str(error))
            except Exception:  # invalid settings of one user must not stop the task for all
                log.exception("notification_run_failed")
                pause_s = ERROR_DELAY_S
            await asyncio.sleep(pause_s)

    async def run_once(self) -> None:
        """Create deliveries for pending notifications and send all deliveries that are due."""
        for user_id, kind, settings in await self._store.read(notifications.pending_notifications):
            if kind == "alert":
                if (
                    alerts.is_quiet_hour(settings, self._clock())
                    or self._last_notification_at.get(user_id, 0.0) > self._clock() - BATCH_WINDOW_S
                ):
                    continue
                make_messages = partial(_notification_messages, settings)
            else:
                make_messages = partial(self._webhook_messages, kind, user_id, settings)
            delivery_count = await self._store.write(
                notifications.create_deliveries, user_id, kind, make_messages, self._clock()
            )
            if delivery_count and kind == "alert":
                self._last_notification_at[user_id] = self._clock()
        now = self._clock()
        while due := await self._store.write(notifications.lease_deliveries, now, now + LEASE_S):
            await asyncio.gather(*(self._send(delivery, settings) for delivery, settings in due))

    def _webhook_messages(
        self,
        kind: NotificationKind,
        user_id: int,
        settings: Settings,
        batches: Sequence[FeedMatches],
    ) -> list[tuple[str, str]]:
        if not settings.webhook_url:
            return []
        parts = [(feed, [item for item, _rule in matches]) for feed, matches in batches]
        if kind == "save_entry":
            parts = [(feed, [item]) for feed, items in parts for item in items]
        return [
            (
                settings.webhook_url,
                self._encode_webhook(kind, user_id, settings, feed, items).decode(),
            )
            for feed, items in parts
        ]

    async def _send(self, delivery: Delivery, settings: Settings) -> None:
        if delivery.target not in (settings.webhook_url, *settings.alert_urls):
            # The user has changed the notification URLs since the delivery was created.
            await self._store.write(notifications.delete_delivery, delivery.id)
            return
        async with self._semaphore:
            problem = await (
                self._send_notification(delivery)
                if delivery.kind == "alert"
                else self._post_webhook(delivery, settings)
            )
        now = self._clock()
        fields = {
            "to": delivery.target.partition(":")[0],  # the rest of the URL may contain a secret
            "user": delivery.user_id,
            "kind": delivery.kind,
            "tries": delivery.tries,
        }
        if not problem:
            await self._store.write(notifications.delete_delivery, delivery.id)
            log.info("notification_sent", **fields)
        elif now - delivery.made_at > GIVE_UP_AFTER_S:
            await self._store.write(
                notifications.abandon_delivery, delivery.id, problem, now - FAILED_RETENTION_S
            )
            log.warning("notification_abandoned", problem=problem, **fields)
        else:
            retry_at = now + min(INITIAL_BACKOFF_S * 2.0 ** (delivery.tries - 1), MAX_BACKOFF_S)
            await self._store.write(notifications.postpone_delivery, delivery.id, retry_at, problem)
            log.warning("notification_failed", problem=problem, retry_at=retry_at, **fields)

    async def _send_notification(self, delivery: Delivery) -> str:
        """Send a notification through Apprise and return the error message, empty on success."""
        title, body = msgspec.json.decode(delivery.body, type=tuple[str, str])
        allow_private = self._fetcher.settings.allow_private
        try:
            delivered = await asyncio.to_thread(
                alerts.send, delivery.target, title, body, allow_private=allow_private
            )
        except TidingsError as error:
            return str(error)
        return "" if delivered else _("the notification could not be delivered; check its URL")

    async def _post_webhook(self, delivery: Delivery, settings: Settings) -> str:
        """Send a webhook with Miniflux's headers and return the error message, empty on success."""
        body = delivery.body.encode()
        headers = {
            "Content-Type": "application/json",
            "X-Miniflux-Event-Type": delivery.kind,
            "X-Miniflux-Signature": hmac.digest(
                settings.webhook_secret.encode(), body, "sha256"
            ).hex(),
        }
        result = await self._fetcher.post(delivery.target, body, headers)
        return result.error.message if result.error else ""


def _notification_messages(
    settings: Settings, batches: Sequence[FeedMatches]
) -> list[tuple[str, str]]:
    """Return a notification URL and a JSON array of title and body for each of the user's URLs."""
    matches = [
        (feed.title, item.entry, rule)
        for feed, feed_matches in batches
        for item, rule in feed_matches
    ]
    if not matches:
        return []
    paragraphs = [
        "\n".join(
            filter(
                None, (entry.title or entry.url, f"{feed} ({rule})" if rule else feed, entry.url)
            )
        )
        for feed, entry, rule in matches[:MAX_LISTED_ENTRIES]
    ]
    if len(matches) > MAX_LISTED_ENTRIES:
        paragraphs.append(_("and %(count)s more posts", count=len(matches) - MAX_LISTED_ENTRIES))
    title = (
        matches[0][1].title or matches[0][0]
        if len(matches) == 1
        else n_("%(num)s new post", "%(num)s new posts", len(matches))
    )
    body = msgspec.json.encode((title, "\n\n".join(paragraphs))).decode()
    return [(target, body) for target in settings.alert_urls]
