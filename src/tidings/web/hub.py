"""WebSub hub that pushes new entries of output feeds to their subscribers.

A subscription request gets 202 and is then verified with a challenge at its callback (W3C WebSub
sect. 5.3). Leases are finite. When entries arrive, each changed topic is sent in full to its
subscribers, signed (X-Hub-Signature) if they gave a secret. Failed deliveries are retried with
exponential backoff until the lease ends; a callback that answers 410 is removed.
"""

import asyncio
import hmac
import secrets
from collections.abc import Callable, Sequence
from http import HTTPStatus
from urllib.parse import unquote, urlencode, urlsplit

import msgspec
from msgspec import Struct
from msgspec.structs import replace
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import BaseRoute, Route

from tidings.aggregator.retry import retry_on_store_error
from tidings.errors import TidingsError, UsageError
from tidings.fetch import Fetcher, FetchRequest
from tidings.logs import Log
from tidings.store.feed_models import PollOutcome, RecordResult
from tidings.users import NotFound
from tidings.web import output_feeds
from tidings.web.forms import read_form
from tidings.web.request_context import AppServices

#: Key of the stored subscriptions. They are stored as one value, because there are few.
STORE_KEY = "hub"
MAX_SUBSCRIPTIONS = 1000
DEFAULT_LEASE_S, MIN_LEASE_S, MAX_LEASE_S = 10 * 86400, 300, 30 * 86400
#: Maximum length of hub.secret: WebSub requires "less than 200 bytes".
MAX_SECRET_BYTES = 199
#: Seconds before sending, so that entries that arrive together are sent together.
BATCH_DELAY_S = 1.0
#: Seconds before the first retry of a delivery, doubled after each failure.
RETRY_DELAY_S = 30.0
MAX_RETRY_DELAY_S = 6 * 3600.0

log = Log(__name__)


class HubSubscription(Struct, frozen=True):
    """Subscription of another program to an output feed, verified by WebSub."""

    topic: str  #: full URL of the output feed
    callback: str
    secret: str
    lease_until: float
    etag: str = ""  #: ETag of the last delivered document
    failures: int = 0
    not_before: float = 0.0


class Hub:
    """WebSub hub, which delivers changed output feeds while `run` runs.

    `on_polls_recorded` schedules a delivery.
    """

    def __init__(self, services: AppServices, fetcher: Fetcher, clock: Callable[[], float]) -> None:
        self._services, self._fetcher, self._clock = services, fetcher, clock
        self._subscriptions: dict[tuple[str, str], HubSubscription] = {}
        self._changes_pending = asyncio.Event()
        self._verification_tasks: set[asyncio.Task[None]] = set()

    def routes(self) -> list[BaseRoute]:
        return [Route("/hub", self._handle_request, methods=["POST"])]

    def on_polls_recorded(
        self, outcomes: Sequence[PollOutcome], recorded: Sequence[RecordResult]
    ) -> None:
        """Schedule a delivery if the polls added or changed entries (called by the store)."""
        if self._subscriptions and any(result.new or result.changed for result in recorded):
            self._changes_pending.set()

    # --- subscription requests --------------------------------------------------------------------

    async def _handle_request(self, request: Request) -> Response:
        try:
            form = await read_form(request)
            mode, topic, callback = (
                form.get(f"hub.{name}") for name in ("mode", "topic", "callback")
            )
            secret, lease = form.get("hub.secret"), form.get("hub.lease_seconds")
            if mode not in ("subscribe", "unsubscribe"):
                raise UsageError("hub.mode must be subscribe or unsubscribe")
            if urlsplit(callback).scheme not in ("http", "https") or len(callback) > 2000:
                raise UsageError("hub.callback must be an http or https URL")
            if len(secret.encode()) > MAX_SECRET_BYTES:
                raise UsageError("hub.secret must have less than 200 bytes")
            if (
                len(self._subscriptions) + len(self._verification_tasks) >= MAX_SUBSCRIPTIONS
                and (topic, callback) not in self._subscriptions
            ):
                raise UsageError("this hub has reached its maximum number of subscriptions")
            await self._document(topic, self._services.base(request))
        except NotFound:
            return PlainTextResponse("hub.topic is not a feed of this hub\n", HTTPStatus.NOT_FOUND)
        except (TidingsError, ValueError) as error:
            return PlainTextResponse(f"{error}\n", HTTPStatus.BAD_REQUEST)
        lease_s = (
            min(max(int(lease), MIN_LEASE_S), MAX_LEASE_S)
            if lease.isascii() and lease.isdecimal() and len(lease) < 12
            else DEFAULT_LEASE_S
        )
        subscription = HubSubscription(topic, callback, secret, self._clock() + lease_s)
        task = asyncio.create_task(self._verify(mode, subscription, lease_s))
        self._verification_tasks.add(task)
        task.add_done_callback(self._verification_tasks.discard)
        return PlainTextResponse(
            "the subscription will be verified at the callback\n", HTTPStatus.ACCEPTED
        )

    async def _document(self, topic: str, base: str) -> tuple[output_feeds.Document, str]:
        """Return the output feed of a topic and its format.

        Raises `NotFound` if the topic is not an output feed of this hub.
        """
        if not topic.startswith(f"{base}/out/"):
            raise NotFound("not a feed of this hub")
        return await output_feeds.find(self._services, _path(topic), base)

    async def _verify(self, mode: str, subscription: HubSubscription, lease_s: int) -> None:
        """Verify a subscription request at its callback, then add or remove the subscription."""
        challenge = secrets.token_urlsafe(24)
        query = {"hub.mode": mode, "hub.topic": subscription.topic, "hub.challenge": challenge}
        if mode == "subscribe":
            query["hub.lease_seconds"] = str(lease_s)
        url = (
            subscription.callback
            + ("&" if urlsplit(subscription.callback).query else "?")
            + urlencode(query)
        )
        response = await self._fetcher.fetch(FetchRequest(url, want_delta=False))
        confirmed = (
            response.error is None
            and response.body is not None
            and response.body.decode("latin-1").strip() == challenge
        )
        log.info(
            "hub_subscription_verified",
            mode=mode,
            callback=subscription.callback,
            confirmed=confirmed,
        )
        if not confirmed:
            return
        key = (subscription.topic, subscription.callback)
        if mode == "subscribe":
            document, _kind = await self._document(subscription.topic, _base(subscription.topic))
            self._subscriptions[key] = replace(subscription, etag=document.etag)
        else:
            self._subscriptions.pop(key, None)
        await self._save()

    # --- delivery ---------------------------------------------------------------------------------

    async def run(self) -> None:
        """Load the stored subscriptions, then deliver changes until canceled."""
        saved = (await retry_on_store_error(self._services.store.load_values, asyncio.sleep)).get(
            STORE_KEY
        )
        for subscription in msgspec.json.decode(saved, type=list[HubSubscription]) if saved else ():
            self._subscriptions[subscription.topic, subscription.callback] = subscription
        self._changes_pending.set()  # deliver entries that arrived while the service was stopped
        while True:
            retry_delays = [
                s.not_before - self._clock() for s in self._subscriptions.values() if s.failures
            ]
            try:
                async with asyncio.timeout(max(0.0, min(retry_delays)) if retry_delays else None):
                    await self._changes_pending.wait()
            except TimeoutError:
                pass  # a failed delivery is due for a retry
            await asyncio.sleep(BATCH_DELAY_S)
            self._changes_pending.clear()
            await retry_on_store_error(self.distribute, asyncio.sleep)

    async def distribute(self) -> None:
        """Deliver changed output feeds to their subscribers and remove expired subscriptions."""
        now = self._clock()
        documents: dict[str, tuple[bytes, dict[str, str], str] | None] = {}
        for key, subscription in list(self._subscriptions.items()):
            if subscription.lease_until <= now:
                del self._subscriptions[key]
                continue
            if subscription.topic not in documents:
                documents[subscription.topic] = await self._rendered(subscription.topic)
            rendered = documents[subscription.topic]
            if rendered is None:
                del self._subscriptions[key]
            elif rendered[2] != subscription.etag and subscription.not_before <= now:
                self._subscriptions[key] = await self._send(subscription, *rendered)
                if self._subscriptions[key].lease_until <= now:
                    del self._subscriptions[key]
        await self._save()

    async def _rendered(self, topic: str) -> tuple[bytes, dict[str, str], str] | None:
        base = _base(topic)
        try:
            document, kind = await self._document(topic, base)
        except NotFound:  # the link was reset, or the folder was deleted
            return None
        links = f'<{base}/hub>; rel="hub", <{topic}>; rel="self"'
        return (
            output_feeds.write(document, kind),
            {"Content-Type": output_feeds.MEDIA_TYPES[kind], "Link": links},
            document.etag,
        )

    async def _send(
        self, subscription: HubSubscription, body: bytes, headers: dict[str, str], etag: str
    ) -> HubSubscription:
        if subscription.secret:
            signature = hmac.digest(subscription.secret.encode(), body, "sha256").hex()
            headers = {**headers, "X-Hub-Signature": f"sha256={signature}"}
        response = await self._fetcher.post(subscription.callback, body, headers)
        if response.status == HTTPStatus.GONE:
            return replace(subscription, lease_until=0.0)
        if response.error is None:
            return replace(subscription, etag=etag, failures=0, not_before=0.0)
        wait_s = min(RETRY_DELAY_S * 2.0**subscription.failures, MAX_RETRY_DELAY_S)
        return replace(
            subscription, failures=subscription.failures + 1, not_before=self._clock() + wait_s
        )

    async def _save(self) -> None:
        await self._services.store.save_values(
            {STORE_KEY: msgspec.json.encode(list(self._subscriptions.values()))}
        )


def _base(topic: str) -> str:
    parts = urlsplit(topic)
    return f"{parts.scheme}://{parts.netloc}"


def _path(topic: str) -> str:
    return unquote(urlsplit(topic).path)
