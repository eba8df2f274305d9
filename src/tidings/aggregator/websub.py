"""WebSub subscriber that subscribes to publishers' hubs and receives pushed posts.

A feed that declares a hub is subscribed to (`Subscriber.update_subscription`), the hub verifies the
intent (`verify_intent`), and then delivers documents or pings (`receive_delivery`). Polling remains
as a fallback: posts that were pushed and posts that only a poll found are counted, and
`Subscriber.share` gives the policy the fraction of a feed's posts that it may leave to the hub. A
hub that stops delivering loses that fraction, and the feed is polled more often again.

Each subscription is a `PushSubscription` in the store. Its ``lease_until`` is the time of the next
action (`renew_due`): an unconfirmed request is repeated, an active subscription is renewed (at 70
to 80 % of the granted lease), a denied subscription is requested again, and an ended subscription
is canceled at the hub. So all state survives a restart.
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

#: Requested lease in seconds. A longer granted lease is renewed as early as this one, so that
#: subscriptions that a hub has lost are renewed.
LEASE_S = 10 * DAY_S
#: Minimum time in seconds between two renewals, however short the granted lease is.
MIN_RENEWAL_S = HOUR_S
#: Delay in seconds before a request that failed or that the hub did not verify is repeated.
HUB_RETRY_S = DAY_S
#: Delay in seconds before a denied subscription is requested again.
REFUSED_RETRY_S = 7 * DAY_S
#: Usual delay of hubs in seconds. A younger post that a poll finds may still be pushed, so that it
#: is not counted.
DELIVERY_GRACE_S = 15 * MINUTE_S
#: Maximum sum of the counts of pushed and not pushed posts. At this limit, older posts lose weight.
MAX_COUNTED_POSTS = 20
#: Maximum number of queued deliveries. Further deliveries get 503, and the hub retries (WebSub
#: sect. 7).
MAX_QUEUED_DELIVERIES = 100
#: Time in seconds for processing queued deliveries at shutdown. Polls find the posts of the rest.
SHUTDOWN_GRACE_S = 5.0
#: Maximum number of subscriptions per round. Requests to different hubs are sent in parallel, and
#: requests to one hub in sequence.
ROUND_SIZE = 50
#: Interval of rounds in seconds.
ROUND_S = MINUTE_S
#: Allowed hash algorithms of the header X-Hub-Signature.
SIGNATURES = frozenset({"sha1", "sha256", "sha384", "sha512"})
#: States in which deliveries are accepted. In the state `asked`, the hub has not verified the
#: subscription yet.
LIVE_STATES = ("asked", "active")
#: Value of ``hub.mode`` that a hub may verify, by the state of the subscription.
EXPECTED_MODES = {"asked": "subscribe", "active": "subscribe", "ended": "unsubscribe"}

log = Log(__name__)


class CallbackResponse(Struct, frozen=True):
    """Response of the callback URL, with a body in plain text."""

    status: int
    body: str = ""


class _Delivery(Struct, frozen=True):
    feed_id: int
    at: float
    body: bytes  #: document, or empty if the sender is not authenticated
    content_type: str


def desired_subscription(feed: Feed, push: PushSubscription | None) -> PushSubscription | None:
    """Return the subscription that a feed should have, or None if it has no usable hub.

    It is the current subscription if that one is valid, otherwise a new one. A new subscription has
    a new callback URL, so that deliveries of the old hub are not accepted for it. A secret is sent
    only over https (WebSub sect. 5.1). If a feed has several hubs, the next one is used after a
    denial.
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
    """Return the topic URL of a feed, which is its self link or its URL without credentials."""
    if feed.state.self_url:
        return feed.state.self_url
    try:
        return str(strip_userinfo(parse_url(feed.url)))
    except ValueError:
        return ""


def has_valid_signature(body: bytes, signature: str, secret: str) -> bool:
    """Return whether an ``X-Hub-Signature`` fits the body (HMAC, WebSub sect. 8).

    The comparison takes constant time.
    """
    method, _, digest = signature.strip().partition("=")
    if method.lower() not in SIGNATURES:
        return False
    expected = hmac.new(secret.encode(), body, method.lower()).hexdigest()
    return hmac.compare_digest(expected.encode(), digest.strip().lower().encode())


def reliability(push: PushSubscription) -> float:
    """Return the estimated fraction of posts that the hub pushes.

    It is the mean of a Beta distribution and 1/2 before the first post.
    """
    return (push.pushed_count + 1) / (push.pushed_count + push.unpushed_count + 2)


def add_counts(
    push: PushSubscription, *, pushed_count: int = 0, unpushed_count: int = 0
) -> PushSubscription:
    """Return the subscription with further posts added to its counts.

    Both counts are halved while their sum exceeds `MAX_COUNTED_POSTS`. The count of posts that were
    not pushed is rounded up.
    """
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
    """Make the renewal due now if the reliability has dropped below 1/2.

    The hub may have lost the subscription.
    """
    return (
        replace(after, lease_until=now)
        if reliability(after) < 0.5 <= reliability(before)
        else after
    )


def renewal_at(feed_id: int, lease_seconds: str, now: float) -> float:
    """Return the time at which to renew a lease.

    ``lease_seconds`` is the value that the hub sent, or an empty string from old hubs.
    """
    granted_s = float(lease_seconds) if lease_seconds.isascii() and lease_seconds.isdigit() else 0.0
    lease_s = min(granted_s or LEASE_S, LEASE_S)
    return now + max(lease_s * (0.8 - 0.1 * _jitter(feed_id)), MIN_RENEWAL_S)


def _jittered_time(feed_id: int, wait_s: float, now: float) -> float:
    return now + wait_s * (1 + 0.1 * _jitter(feed_id))


def _jitter(feed_id: int) -> float:
    """Return a number in [0, 1) that is constant for a feed and spreads renewals over time."""
    return int.from_bytes(blake2b(str(feed_id).encode(), digest_size=4).digest(), "big") / 2**32


class Subscriber:
    """All WebSub subscriptions of the service. Use it with ``async with``.

    ``on_content`` records a delivered document, given feed id, body and content type, and returns
    the number of new entries; it raises a `TidingsError` if it cannot parse the body. Entries
    missing from the body are not deleted, because hubs may send only new entries. ``on_ping`` is
    called with the id of a feed that should be polled as soon as its poll constraints allow.
    ``public_url`` is the URL where hubs reach this service; if it is empty, there are no
    subscriptions.
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
        self._lock = asyncio.Lock()  # must be held to read, change and store a subscription
        self._queue: asyncio.Queue[_Delivery] = asyncio.Queue(MAX_QUEUED_DELIVERIES)
        self._shares: dict[int, float] = {}
        self._pinged: dict[int, float] = {}

    @property
    def max_bytes(self) -> int:
        """Maximum size of a delivery in bytes."""
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
        """Wait until all queued deliveries are processed."""
        await self._queue.join()

    def share(self, feed_id: int) -> float:
        """Return the fraction of the feed's posts that the hub pushes, in [0, 1)."""
        return self._shares.get(feed_id, 0.0)

    # --- after a poll ---------------------------------------------------------------------------

    async def update_subscription(self, feed: Feed, post_times: Sequence[float] = ()) -> None:
        """Update the WebSub subscription of a feed after a poll.

        The feed is subscribed to its hub or unsubscribed, or posts that were not pushed are
        counted. ``feed`` has the state after the poll; ``post_times`` are the publication times of
        its new entries.
        """
        if not self._public_url or not (feed.state.hubs or feed.id in self._shares):
            return
        now = self._clock()
        pinged_at = self._pinged.pop(feed.id, float("-inf"))
        async with self._lock:
            push = await self._store.find_push_subscription(feed.id)
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
                pushed_count = sum(time <= pinged_at for time in post_times)
                unpushed_count = sum(
                    pinged_at < time <= now - DELIVERY_GRACE_S for time in post_times
                )
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

    # --- requests to hubs -----------------------------------------------------------------------

    async def run(self) -> None:
        """Renew subscriptions in rounds until the task is canceled."""
        while True:
            try:
                await self.renew_due()
            except Exception:  # without further rounds, all leases would expire
                log.exception("renewal_round_failed")
            await self._sleep(ROUND_S)

    async def renew_due(self) -> int:
        """Send the requests that are due to hubs, and return the number of due subscriptions."""
        if not self._public_url:
            return 0
        due = (await self._store.expiring_push_subscriptions(self._clock() + 1))[:ROUND_SIZE]
        hubs = groupby(sorted(due, key=_hub), _hub)
        await asyncio.gather(*[self._renew_at_hub(list(pushes)) for _, pushes in hubs])
        return len(due)

    async def _renew_at_hub(self, pushes: list[PushSubscription]) -> None:
        """Send requests to one hub in sequence until one of them fails."""
        is_reachable = True
        for push in pushes:
            prepared = await self._prepare(push.feed_id)
            if prepared is not None and is_reachable:
                is_reachable = await self._send_request(prepared)

    async def _prepare(self, feed_id: int) -> PushSubscription | None:
        """Store the new state of a subscription before its request is sent, and return it.

        The hub may verify the request before it answers the request. Returns None if the feed or
        its subscription does not exist.
        """
        feed = await self._store.feed(feed_id)
        async with self._lock:
            push = await self._store.find_push_subscription(feed_id)
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
        """Send a subscribe or unsubscribe request, and return whether the hub is available.

        An unsubscribe request is not repeated; later deliveries are answered with 410.
        """
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
        log.info("hub_request_failed", feed=push.feed_id, hub=push.hub, error=result.error.message)
        if result.error.kind in (Problem.URL, Problem.BLOCKED) or (
            400 <= result.status < 500 and not result.rate_limited
        ):
            async with self._lock:
                current = await self._store.find_push_subscription_by_token(push.token)
                if current is not None and current.state == "asked":
                    await self._mark_refused(current)
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

    # --- requests from hubs ---------------------------------------------------------------------

    async def verify_intent(self, token: str, query: Mapping[str, str]) -> CallbackResponse:
        """Answer the request of a hub that verifies or denies a subscription (WebSub sect. 5.3).

        The answer is 404 if the subscription was not requested. An active subscription is confirmed
        again, because the first response may have been lost, and old hubs renew without a request.
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
                    "hub_subscription_denied",
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
                log.info("hub_subscription_confirmed", feed=push.feed_id, hub=push.hub, renew=until)
        return CallbackResponse(200, challenge)

    async def receive_delivery(
        self, token: str, headers: Mapping[str, str], body: bytes
    ) -> CallbackResponse:
        """Queue a delivery of a hub for processing, and answer the hub immediately.

        Deliveries are processed in order of arrival. A delivery with a wrong signature is dropped,
        but acknowledged (WebSub sect. 8). Without a secret (hubs over plain http), a delivery is
        accepted if the feed itself is fetched over plain http; otherwise it is only a ping.
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
        fields = {name.lower(): value for name, value in headers.items()}
        if push.secret and not has_valid_signature(
            body, fields.get("x-hub-signature", ""), push.secret
        ):
            log.warning(
                "push_rejected",
                feed=push.feed_id,
                hub=push.hub,
                reason="invalid_signature",
            )
            return CallbackResponse(202)
        if self._queue.full():
            return CallbackResponse(503)
        is_trusted = bool(push.secret) or not feed.url.lower().startswith("https:")
        content_type = fields.get("content-type", "")
        self._queue.put_nowait(
            _Delivery(push.feed_id, self._clock(), body if is_trusted else b"", content_type)
        )
        return CallbackResponse(202)

    async def _process_deliveries(self) -> None:
        while True:
            delivery = await self._queue.get()
            try:
                await self._process_delivery(delivery)
            except Exception:  # untrusted input: one delivery must not block the others
                log.exception("push_processing_failed", feed=delivery.feed_id)
            finally:
                self._queue.task_done()

    async def _process_delivery(self, delivery: _Delivery) -> None:
        new = None
        if looks_like_feed(delivery.body):
            with suppress(TidingsError):
                new = await self._on_content(delivery.feed_id, delivery.body, delivery.content_type)
        log.info("push_received", feed=delivery.feed_id, bytes=len(delivery.body), new=new)
        if new is None:
            self._pinged[delivery.feed_id] = delivery.at
            await self._on_ping(delivery.feed_id)
        async with self._lock:
            push = await self._store.find_push_subscription(delivery.feed_id)
            if push is not None:
                await self._save(
                    replace(add_counts(push, pushed_count=new or 0), last_push_at=delivery.at)
                )

    # --- storage --------------------------------------------------------------------------------

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
