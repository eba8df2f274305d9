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
from tidings.people import alerts
from tidings.store import Store, StoreError, notices
from tidings.store.notices import Told
from tidings.store.people_rows import Delivery, Item, NoticeKind, Settings, Subscription

#: How often the store is looked at for something to tell, and how often when that fails.
ROUND_S, TROUBLE_S = 2.0, 60.0
#: The first alert goes out at once; what comes within so long after it goes out together.
BATCH_S = 300.0
#: Entries that an alert names.
MOST_NAMED = 20
#: Longer than any attempt takes.
LEASE_S = 300.0
#: The wait after the first failure; each further one doubles it. What is not taken for so long is given up.
FIRST_WAIT_S, LONGEST_WAIT_S, GIVE_UP_S = 60.0, 6 * 3600.0, 3 * 86400.0
#: What was given up is shown to its user for so long.
SHOWN_S = 30 * 86400.0
#: Messages on their way at once.
AT_ONCE = 8

#: The body of a webhook's event: of entries of one feed, for a user.
Event: TypeAlias = Callable[[NoticeKind, int, Settings, Subscription, Sequence[Item]], bytes]

log = logs.Log("tidings.deliveries")


class Deliveries:
    """Tells all users of a store. Any number of processes may have one."""

    def __init__(self, store: Store, fetcher: Fetcher, clock: Callable[[], float], event: Event) -> None:
        self._store, self._fetcher, self._clock, self._event = store, fetcher, clock, event
        self._alerted: dict[int, float] = {}
        self._places = asyncio.Semaphore(AT_ONCE)

    async def run(self) -> None:
        """For ever."""
        while True:
            pause_s = ROUND_S
            try:
                await self.round()
            except StoreError as error:
                log.warning("the store cannot be used; trying again", error=str(error))
            except Exception:  # one user's settings must not end the service for all
                log.exception("something cannot be told; trying again")
                pause_s = TROUBLE_S
            await asyncio.sleep(pause_s)

    async def round(self) -> None:
        """Tell what may be told now."""
        for user_id, kind, settings in await self._store.read(notices.waiting):
            if kind == "alert":
                if alerts.is_quiet(settings, self._clock()) or self._alerted.get(user_id, 0.0) > self._clock() - BATCH_S:
                    continue
                make = partial(_alert, settings)
            else:
                make = partial(self._events, kind, user_id, settings)
            told = await self._store.write(notices.pack, user_id, kind, make, self._clock())
            if told and kind == "alert":
                self._alerted[user_id] = self._clock()
        now = self._clock()
        while due := await self._store.write(notices.take, now, now + LEASE_S):
            await asyncio.gather(*(self._send(delivery, settings) for delivery, settings in due))

    def _events(self, kind: NoticeKind, user_id: int, settings: Settings, told: Sequence[Told]) -> list[tuple[str, str]]:
        if not settings.webhook_url:
            return []
        parts = [(feed, [item for item, _ in some]) for feed, some in told]
        if kind == "save_entry":
            parts = [(feed, [item]) for feed, items in parts for item in items]
        return [(settings.webhook_url, self._event(kind, user_id, settings, feed, items).decode()) for feed, items in parts]

    async def _send(self, delivery: Delivery, settings: Settings) -> None:
        if delivery.target not in (settings.webhook_url, *settings.alert_urls):
            await self._store.write(notices.done, delivery.id)  # the user has chosen another since
            return
        async with self._places:
            problem = await (self._alert(delivery) if delivery.kind == "alert" else self._post(delivery, settings))
        now, about = self._clock(), {"user": delivery.user_id, "kind": delivery.kind, "tries": delivery.tries}
        to = delivery.target.partition(":")[0]  # the rest of an address may be secret
        if not problem:
            await self._store.write(notices.done, delivery.id)
            log.info("told", to=to, **about)
        elif now - delivery.made_at > GIVE_UP_S:
            await self._store.write(notices.give_up, delivery.id, problem, now - SHOWN_S)
            log.warning("given up", to=to, problem=problem, **about)
        else:
            again_at = now + min(FIRST_WAIT_S * 2.0 ** (delivery.tries - 1), LONGEST_WAIT_S)
            await self._store.write(notices.put_off, delivery.id, again_at, problem)
            log.warning("not told; trying again", to=to, problem=problem, at=again_at, **about)

    async def _alert(self, delivery: Delivery) -> str:
        title, body = msgspec.json.decode(delivery.body, type=tuple[str, str])
        allowed = self._fetcher.settings.allow_private
        try:
            taken = await asyncio.to_thread(alerts.send, delivery.target, title, body, allow_private=allowed)
        except TidingsError as error:
            return str(error)
        return "" if taken else "Apprise could not deliver it"

    async def _post(self, delivery: Delivery, settings: Settings) -> str:
        """As Miniflux does, with its headers."""
        body = delivery.body.encode()
        headers = {
            "Content-Type": "application/json",
            "X-Miniflux-Event-Type": delivery.kind,
            "X-Miniflux-Signature": hmac.digest(settings.webhook_secret.encode(), body, "sha256").hex(),
        }
        result = await self._fetcher.post(delivery.target, body, headers)
        return result.error.words if result.error else ""


def _alert(settings: Settings, told: Sequence[Told]) -> list[tuple[str, str]]:
    """The same title and text for every address."""
    found = [(feed.title, item.entry, rule) for feed, some in told for item, rule in some]
    if not found:
        return []
    lines = [
        "\n".join(filter(None, (entry.title or entry.url, f"{feed} ({rule})" if rule else feed, entry.url)))
        for feed, entry, rule in found[:MOST_NAMED]
    ]
    if len(found) > MOST_NAMED:
        lines.append(f"and {len(found) - MOST_NAMED} more")
    title = found[0][1].title or found[0][0] if len(found) == 1 else f"{len(found)} new entries"
    body = msgspec.json.encode((title, "\n\n".join(lines))).decode()
    return [(target, body) for target in settings.alert_urls]
