"""WebSub, the subscriber's side: publishers' hubs send us what is new, and polling becomes a safety net.

A feed that names a hub is subscribed to (`Subscriber.consider`), the hub asks back whether we meant it (`verify`), and from
then on it sends documents or mere pings (`deliver`). No push is needed for a post to arrive: pushes are counted against what
polls had to find, and `Subscriber.share` tells the policy which share of a feed's posts it may leave to the hub. A hub that
falls silent loses that share, and polling comes back by itself.

Each subscription is a row of the store, `Push`. Here its ``lease_until`` is when it has to be seen to: an asked one is asked
for again, an active one renewed (at 70 to 80 % of what the hub granted), a refused one tried once more, an ended one given
up at its hub. `attend` does that, and so everything survives a restart.
"""

import asyncio
import hmac
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from hashlib import blake2b
from itertools import groupby
from secrets import token_urlsafe
from typing import Self

from msgspec import Struct
from msgspec.structs import replace

from tidings.errors import TidingsError
from tidings.fetch import Fetcher, Problem
from tidings.fetch.urls import parse_url, strip_userinfo
from tidings.logs import Log
from tidings.model import DAY_S, HOUR_S, MINUTE_S
from tidings.parse.autodiscovery import looks_like_feed
from tidings.store import Store
from tidings.store.feed_models import Feed, PushSubscription

#: What we ask for, and the longest we believe in: a hub that forgot us is asked anew after this time at the latest.
LEASE_S = 10 * DAY_S
#: However short a lease a hub grants, it is not bothered more often than this.
MIN_RENEWAL_S = HOUR_S
#: A hub that cannot be reached, or never asks back, is asked again after a day; one that said no after a week.
HUB_RETRY_S = DAY_S
REFUSED_RETRY_S = 7 * DAY_S
#: Hubs take their time. A post that a poll finds sooner than this after its publication may still have been on its way.
DELIVERY_GRACE_S = 15 * MINUTE_S
#: So many posts are remembered in the counts, so that a hub's last weeks decide, not its youth.
MAX_COUNTED_POSTS = 20
#: Bodies that wait to be read; with more of them the hub is told to come back (it does, WebSub sect. 7).
MAX_QUEUED_DELIVERIES = 100
#: When the service stops, what waits is still read within this time; what is not will be found by polls.
SHUTDOWN_GRACE_S = 5.0
#: Subscriptions seen to in one round; hubs in parallel, each hub one at a time as the fetcher's gate has it.
ROUND_SIZE = 50
ROUND_S = MINUTE_S
SIGNATURES = frozenset({"sha1", "sha256", "sha384", "sha512"})
LIVE_STATES = ("asked", "active")
#: What a hub may ask back in each state; in "ended" it is about the end.
EXPECTED_MODES = {"asked": "subscribe", "active": "subscribe", "ended": "unsubscribe"}

log = Log(__name__)


class CallbackResponse(Struct, frozen=True):
    """What the callback's address says; the body is plain text."""

    status: int
    body: str = ""


class _Delivery(Struct, frozen=True):
    feed_id: int
    at: float
    body: bytes  #: empty where it is not to be believed
    content_type: str


def desired_subscription(feed: Feed, push: PushSubscription | None) -> PushSubscription | None:
    """The subscription that a feed should have: the present one if it still fits, else a new one; None if there can be none.

    A new one has a new address to call back, so what the old hub still sends is not taken for the new hub's. Secrets go over
    encrypted ways only (WebSub sect. 5.1). A feed with several hubs gets another one after a refusal.
    """
    topic = topic_of(feed)
    hubs = [hub for hub in feed.state.hubs if hub.lower().startswith(("http://", "https://"))]
    if feed.retired_at is not None or not hubs or not topic:
        return None
    hub = hubs[0]
    if push is not None and push.hub in hubs and push.topic == topic:
        if push.state in LIVE_STATES:
            return push
        hub = hubs[(hubs.index(push.hub) + 1) % len(hubs)] if push.state == "refused" else push.hub
    secret = token_urlsafe(32) if hub.lower().startswith("https://") else ""
    return PushSubscription(feed.id, hub, topic, token_urlsafe(32), secret, "asked")


def topic_of(feed: Feed) -> str:
    """What the hub knows the feed by: its own name for itself, else its address, of which no password may go to a hub."""
    if feed.state.self_url:
        return feed.state.self_url
    try:
        return str(strip_userinfo(parse_url(feed.url)))
    except ValueError:
        return ""


def has_valid_signature(body: bytes, signature: str, secret: str) -> bool:
    """Whether an ``X-Hub-Signature`` is the body's (WebSub sect. 8). Takes the same time however wrong it is."""
    method, _, told = signature.strip().partition("=")
    if method.lower() not in SIGNATURES:
        return False
    known = hmac.new(secret.encode(), body, method.lower()).hexdigest()
    return hmac.compare_digest(known.encode(), told.strip().lower().encode())


def reliability(push: PushSubscription) -> float:
    """The share of posts that come by push: the mean of a Beta distribution, which knows nothing at first (one half)."""
    return (push.pushed_count + 1) / (push.pushed_count + push.unpushed_count + 2)


def add_counts(
    push: PushSubscription, *, pushed_count: int = 0, unpushed_count: int = 0
) -> PushSubscription:
    """With these posts more. Old ones fade by halves; of what was missed the larger half stays."""
    pushed_count, unpushed_count = (
        push.pushed_count + pushed_count,
        push.unpushed_count + unpushed_count,
    )
    while pushed_count + unpushed_count > MAX_COUNTED_POSTS:
        pushed_count, unpushed_count = pushed_count // 2, (unpushed_count + 1) // 2
    return replace(push, pushed_count=pushed_count, unpushed_count=unpushed_count)


def _renew_if_unreliable(
    before: PushSubscription, after: PushSubscription, now: float
) -> PushSubscription:
    """A hub that has begun to miss more than it sends may have forgotten us: it is asked again at once, and once only."""
    return (
        replace(after, lease_until=now)
        if reliability(after) < 0.5 <= reliability(before)
        else after
    )


def renewal_at(feed_id: int, told: str, now: float) -> float:
    """When to renew a lease of so many seconds, as the hub told them; hubs of old times told none."""
    granted_s = float(told) if told.isascii() and told.isdigit() else 0.0
    lease_s = min(granted_s or LEASE_S, LEASE_S)
    return now + max(lease_s * (0.8 - 0.1 * _jitter(feed_id)), MIN_RENEWAL_S)


def _jittered_time(feed_id: int, wait_s: float, now: float) -> float:
    return now + wait_s * (1 + 0.1 * _jitter(feed_id))


def _jitter(feed_id: int) -> float:
    """In [0, 1), the same for a feed for ever: what began together need not come back together."""
    return int.from_bytes(blake2b(str(feed_id).encode(), digest_size=4).digest(), "big") / 2**32


class Subscriber:
    """All subscriptions of the service; use it with ``async with``.

    `on_content` takes (feed id, body, content type) as if a poll had brought them, except that entries absent from the body are
    not gone (hubs may send what is new alone); it returns how many entries were new, and raises a `TidingsError` if it
    cannot read the body. `on_ping` takes a feed id: there is news, so the feed should be polled as soon as its host's wishes
    allow. Without a `public_url`, where hubs find us, nothing is subscribed to.
    """

    def __init__(
        self,
        store: Store,
        fetcher: Fetcher,
        clock: Callable[[], float],
        *,
        public_url: str,
        on_content: Callable[[int, bytes, str], Awaitable[int]],
        on_ping: Callable[[int], Awaitable[object]],
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
    ) -> None:
        self._store, self._fetcher, self._clock, self._sleep = store, fetcher, clock, sleep
        self._public_url = public_url.rstrip("/")
        self._on_content, self._on_ping = on_content, on_ping
        self._lock = asyncio.Lock()  # a row is read, changed and written by one at a time
        self._queue: asyncio.Queue[_Delivery] = asyncio.Queue(MAX_QUEUED_DELIVERIES)
        self._shares: dict[int, float] = {}
        self._pinged: dict[int, float] = {}

    @property
    def max_bytes(self) -> int:
        """Of a delivery."""
        return self._fetcher.settings.max_bytes

    async def __aenter__(self) -> Self:
        for push in await self._store.expiring_push_subscriptions(float("inf")):
            self._update_share(push)
        self._worker = asyncio.create_task(self._process_deliveries())
        return self

    async def __aexit__(self, *_: object) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(SHUTDOWN_GRACE_S):
                await self.wait_for_deliveries()
        self._worker.cancel()
        with suppress(asyncio.CancelledError):
            await self._worker

    async def wait_for_deliveries(self) -> None:
        """Wait until all that was delivered has been read."""
        await self._queue.join()

    def share(self, feed_id: int) -> float:
        """In [0, 1): which share of the feed's posts comes without asking."""
        return self._shares.get(feed_id, 0.0)

    # After a poll

    async def update_subscription(self, feed: Feed, found: Sequence[float] = ()) -> None:
        """After a poll that brought a document: subscribe if there is a hub to subscribe to, and count what was not pushed.

        `feed` has the state after the poll; `found` are the times at which the poll's new entries were published.
        """
        if not self._public_url or not (feed.state.hubs or feed.id in self._shares):
            return
        now = self._clock()
        pinged_at = self._pinged.pop(feed.id, float("-inf"))
        async with self._lock:
            push = await self._store.push(feed.id)
            if (
                push is None
                or push.state == "ended"
                or push.hub not in feed.state.hubs
                or push.topic != topic_of(feed)
            ):
                new_subscription = desired_subscription(feed, push)
                if new_subscription is not None:
                    await self._save(replace(new_subscription, lease_until=now))
                elif push is not None and push.state in LIVE_STATES:
                    await self._save(replace(push, state="ended", lease_until=now))
            elif push.state == "active":
                pushed_count = sum(time <= pinged_at for time in found)
                unpushed_count = sum(pinged_at < time <= now - DELIVERY_GRACE_S for time in found)
                if pushed_count or unpushed_count:
                    await self._save(
                        _renew_if_unreliable(
                            push,
                            add_counts(
                                push, pushed_count=pushed_count, unpushed_count=unpushed_count
                            ),
                            now,
                        )
                    )

    # What hubs are asked

    async def run(self) -> None:
        """See to subscriptions until cancelled."""
        while True:
            try:
                await self.renew_due()
            except (
                Exception
            ):  # the next round may do better; without rounds all leases would run out
                log.exception("push round failed")
            await self._sleep(ROUND_S)

    async def renew_due(self) -> int:
        """One round: ask hubs for what is due; says how many subscriptions were seen to."""
        if not self._public_url:
            return 0
        due = (await self._store.expiring_push_subscriptions(self._clock() + 1))[:ROUND_SIZE]
        hubs = groupby(sorted(due, key=_hub), _hub)
        await asyncio.gather(*[self._renew_at_hub(list(pushes)) for _, pushes in hubs])
        return len(due)

    async def _renew_at_hub(self, pushes: list[PushSubscription]) -> None:
        """One after the other. If the hub is not there for the first, the others are not tried."""
        is_reachable = True
        for push in pushes:
            prepared = await self._prepare(push.feed_id)
            if prepared is not None and is_reachable:
                is_reachable = await self._send_request(prepared)

    async def _prepare(self, feed_id: int) -> PushSubscription | None:
        """Put down what the hub is asked before it is asked: it may ask back while we still talk."""
        feed = await self._store.feed(feed_id)
        async with self._lock:
            push = await self._store.push(feed_id)
            if feed is None or push is None:
                return None
            requested = desired_subscription(feed, push)
            if requested is not None:
                prepared = replace(
                    requested,
                    state="asked",
                    lease_until=_jittered_time(feed_id, HUB_RETRY_S, self._clock()),
                )
            else:
                prepared = replace(push, state="ended", lease_until=None)
            await self._save(prepared)
            return prepared

    async def _send_request(self, push: PushSubscription) -> bool:
        """Ask a hub; False if it could not be asked. A goodbye is said once: whoever did not hear it will be answered 410."""
        fields = {
            "hub.mode": EXPECTED_MODES[push.state],
            "hub.topic": push.topic,
            "hub.callback": f"{self._public_url}/push/{push.token}",
            "hub.lease_seconds": str(int(LEASE_S)),
        }
        if push.secret:
            fields["hub.secret"] = push.secret
        result = await self._fetcher.post_form(push.hub, fields)
        if result.error is None:
            return True
        log.info("hub asked in vain", feed=push.feed_id, hub=push.hub, error=result.error.message)
        if result.error.kind in (Problem.URL, Problem.BLOCKED) or (
            400 <= result.status < 500 and not result.rate_limited
        ):
            async with self._lock:
                present = await self._store.find_push_subscription_by_token(push.token)
                if present is not None and present.state == "asked":
                    await self._mark_refused(present)
            return True
        return False

    async def _mark_refused(self, push: PushSubscription) -> None:
        await self._save(
            replace(
                push,
                state="refused",
                lease_until=_jittered_time(push.feed_id, REFUSED_RETRY_S, self._clock()),
            )
        )

    # What hubs ask and send

    async def verify_intent(self, token: str, query: Mapping[str, str]) -> CallbackResponse:
        """A hub asks whether we meant it, or says no. Anything that we did not ask for is answered 404 (WebSub sect. 5.3).

        An active subscription is confirmed again: the first answer may have been lost, and hubs of old times renew by
        themselves.
        """
        mode, topic, challenge = (
            query.get(f"hub.{name}", "") for name in ("mode", "topic", "challenge")
        )
        async with self._lock:
            push = await self._store.find_push_subscription_by_token(token)
            if push is None or topic != push.topic:
                return CallbackResponse(404)
            if mode == "denied" and push.state in LIVE_STATES:
                log.info(
                    "hub refused",
                    feed=push.feed_id,
                    hub=push.hub,
                    reason=query.get("hub.reason", "")[:200],
                )
                await self._mark_refused(push)
                return CallbackResponse(200)
            if mode != EXPECTED_MODES.get(push.state) or not challenge:
                return CallbackResponse(404)
            if mode == "subscribe":
                until = renewal_at(push.feed_id, query.get("hub.lease_seconds", ""), self._clock())
                await self._save(replace(push, state="active", lease_until=until))
                log.info("hub confirmed", feed=push.feed_id, hub=push.hub, renew=until)
        return CallbackResponse(200, challenge)

    async def receive_delivery(
        self, token: str, headers: Mapping[str, str], body: bytes
    ) -> CallbackResponse:
        """A hub sends what is new. It is answered at once; reading comes later, in the order of arrival.

        What is not signed as it should be is dropped without a word (WebSub sect. 8). What nobody signed, because there is no
        secret over plain http, is believed where the feed itself comes over plain http; elsewhere it is a ping.
        """
        if len(body) > self.max_bytes:
            return CallbackResponse(413)
        push = await self._store.find_push_subscription_by_token(token)
        feed = (
            None
            if push is None or push.state not in LIVE_STATES
            else await self._store.feed(push.feed_id)
        )
        if push is None or feed is None or feed.retired_at is not None:
            return CallbackResponse(410)
        told = {name.lower(): value for name, value in headers.items()}
        if push.secret and not has_valid_signature(
            body, told.get("x-hub-signature", ""), push.secret
        ):
            log.warning(
                "push dropped",
                feed=push.feed_id,
                hub=push.hub,
                reason="its signature is missing or wrong",
            )
            return CallbackResponse(202)
        if self._queue.full():
            return CallbackResponse(503)
        believed = bool(push.secret) or not feed.url.lower().startswith("https:")
        content_type = told.get("content-type", "")
        self._queue.put_nowait(
            _Delivery(push.feed_id, self._clock(), body if believed else b"", content_type)
        )
        return CallbackResponse(202)

    async def _process_deliveries(self) -> None:
        while True:
            delivery = await self._queue.get()
            try:
                await self._process_delivery(delivery)
            except (
                Exception
            ):  # strangers send this: one delivery must not keep the others from being read
                log.exception("push failed", feed=delivery.feed_id)
            finally:
                self._queue.task_done()

    async def _process_delivery(self, delivery: _Delivery) -> None:
        new = None
        if looks_like_feed(delivery.body):
            with suppress(TidingsError):
                new = await self._on_content(delivery.feed_id, delivery.body, delivery.content_type)
        log.info("pushed", feed=delivery.feed_id, bytes=len(delivery.body), new=new)
        if new is None:
            self._pinged[delivery.feed_id] = delivery.at
            await self._on_ping(delivery.feed_id)
        async with self._lock:
            push = await self._store.push(delivery.feed_id)
            if push is not None:
                await self._save(
                    replace(add_counts(push, pushed_count=new or 0), last_push_at=delivery.at)
                )

    # Rows

    async def _save(self, push: PushSubscription) -> None:
        await self._store.save_push_subscription(push)
        self._update_share(push)

    def _update_share(self, push: PushSubscription) -> None:
        if push.state == "active" and self._public_url:
            self._shares[push.feed_id] = reliability(push)
        else:
            self._shares.pop(push.feed_id, None)


def _hub(push: PushSubscription) -> str:
    return push.hub
