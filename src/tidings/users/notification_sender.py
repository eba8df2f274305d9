"""Users are told: alerts through Apprise, in batches and not at night, and webhooks, at once. What is not taken is tried again.

Everything that waits lies in the store (`store.notices`): a message is sent at least once, whoever dies when.
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
from tidings.store import Store, StoreError, notifications
from tidings.store.notifications import FeedMatches
from tidings.store.user_models import Delivery, Item, NotificationKind, Settings, Subscription
from tidings.users import alerts

#: How often the store is looked at for something to tell, and how often when that fails.
CHECK_INTERVAL_S, ERROR_DELAY_S = 2.0, 60.0
#: The first alert goes out at once; what comes within so long after it goes out together.
BATCH_WINDOW_S = 300.0
#: Entries that an alert names.
MAX_ALERT_ENTRIES = 20
#: Longer than any attempt takes.
LEASE_S = 300.0
#: The wait after the first failure; each further one doubles it. What is not taken for so long is given up.
INITIAL_BACKOFF_S, MAX_BACKOFF_S, GIVE_UP_AFTER_S = 60.0, 6 * 3600.0, 3 * 86400.0
#: What was given up is shown to its user for so long.
FAILED_RETENTION_S = 30 * 86400.0
#: Messages on their way at once.
MAX_CONCURRENT = 8

#: The body of a webhook's event: of entries of one feed, for a user.
WebhookEncoder: TypeAlias = Callable[
    [NotificationKind, int, Settings, Subscription, Sequence[Item]], bytes
]

log = logs.Log("tidings.deliveries")


class NotificationSender:
    """Tells all users of a store. Any number of processes may have one."""

    def __init__(
        self, store: Store, fetcher: Fetcher, clock: Callable[[], float], event: WebhookEncoder
    ) -> None:
        self._store, self._fetcher, self._clock, self._encode_webhook = store, fetcher, clock, event
        self._last_alert_at: dict[int, float] = {}
        self._semaphore = asyncio.Semaphore(MAX_CONCURRENT)

    async def run(self) -> None:
        """For ever."""
        while True:
            pause_s = CHECK_INTERVAL_S
            try:
                await self.run_once()
            except StoreError as error:
                log.warning("the store cannot be used; trying again", error=str(error))
            except Exception:  # one user's settings must not end the service for all
                log.exception("something cannot be told; trying again")
                pause_s = ERROR_DELAY_S
            await asyncio.sleep(pause_s)

    async def run_once(self) -> None:
        """Tell what may be told now."""
        for user_id, kind, settings in await self._store.read(notifications.pending_notifications):
            if kind == "alert":
                if (
                    alerts.is_quiet_hour(settings, self._clock())
                    or self._last_alert_at.get(user_id, 0.0) > self._clock() - BATCH_WINDOW_S
                ):
                    continue
                make = partial(_alert, settings)
            else:
                make = partial(self._webhook_messages, kind, user_id, settings)
            batches = await self._store.write(
                notifications.create_deliveries, user_id, kind, make, self._clock()
            )
            if batches and kind == "alert":
                self._last_alert_at[user_id] = self._clock()
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
        parts = [(feed, [item for item, _ in some]) for feed, some in batches]
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
            await self._store.write(
                notifications.delete_delivery, delivery.id
            )  # the user has chosen another since
            return
        async with self._semaphore:
            problem = await (
                self._alert(delivery)
                if delivery.kind == "alert"
                else self._post(delivery, settings)
            )
        now, about = (
            self._clock(),
            {"user": delivery.user_id, "kind": delivery.kind, "tries": delivery.tries},
        )
        to = delivery.target.partition(":")[0]  # the rest of an address may be secret
        if not problem:
            await self._store.write(notifications.delete_delivery, delivery.id)
            log.info("told", to=to, **about)
        elif now - delivery.made_at > GIVE_UP_AFTER_S:
            await self._store.write(
                notifications.abandon_delivery, delivery.id, problem, now - FAILED_RETENTION_S
            )
            log.warning("given up", to=to, problem=problem, **about)
        else:
            again_at = now + min(INITIAL_BACKOFF_S * 2.0 ** (delivery.tries - 1), MAX_BACKOFF_S)
            await self._store.write(notifications.postpone_delivery, delivery.id, again_at, problem)
            log.warning("not told; trying again", to=to, problem=problem, at=again_at, **about)

    async def _alert(self, delivery: Delivery) -> str:
        title, body = msgspec.json.decode(delivery.body, type=tuple[str, str])
        allowed = self._fetcher.settings.allow_private
        try:
            taken = await asyncio.to_thread(
                alerts.send, delivery.target, title, body, allow_private=allowed
            )
        except TidingsError as error:
            return str(error)
        return "" if taken else "Apprise could not deliver it"

    async def _post(self, delivery: Delivery, settings: Settings) -> str:
        """As Miniflux does, with its headers."""
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


def _alert(settings: Settings, batches: Sequence[FeedMatches]) -> list[tuple[str, str]]:
    """The same title and text for every address."""
    found = [(feed.title, item.entry, rule) for feed, some in batches for item, rule in some]
    if not found:
        return []
    lines = [
        "\n".join(
            filter(
                None, (entry.title or entry.url, f"{feed} ({rule})" if rule else feed, entry.url)
            )
        )
        for feed, entry, rule in found[:MAX_ALERT_ENTRIES]
    ]
    if len(found) > MAX_ALERT_ENTRIES:
        lines.append(f"and {len(found) - MAX_ALERT_ENTRIES} more")
    title = found[0][1].title or found[0][0] if len(found) == 1 else f"{len(found)} new entries"
    body = msgspec.json.encode((title, "\n\n".join(lines))).decode()
    return [(target, body) for target in settings.alert_urls]
