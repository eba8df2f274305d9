"""Our own WebSub hub, for our output feeds alone: whoever follows one is pushed to instead of asking again and again.

A request is answered with 202 and then verified: the callback is asked whether it was meant (W3C WebSub sect. 5.3). Leases are
finite. When entries arrive, every topic that has changed is sent whole to those who follow it, signed where they gave a
secret; a callback that fails is tried again with growing waits until its lease ends, one that says 410 is forgotten.
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
from tidings.web.request_context import Site

#: Under this key lie all subscriptions, as one value: there are few.
STORE_KEY = "hub"
MAX_SUBSCRIPTIONS = 1000
DEFAULT_LEASE_S, MIN_LEASE_S, MAX_LEASE_S = 10 * 86400, 300, 30 * 86400
#: The W3C says "less than 200 bytes".
MAX_SECRET_BYTES = 199
#: What arrives together is sent together.
BATCH_DELAY_S = 1.0
#: After a failure; doubled each time.
RETRY_DELAY_S = 30.0
MAX_RETRY_DELAY_S = 6 * 3600.0

log = Log(__name__)


class HubSubscription(Struct, frozen=True):
    """Somebody who is pushed to."""

    topic: str  #: the whole address
    callback: str
    secret: str
    lease_until: float
    etag: str = ""  #: of what they were sent last
    failures: int = 0
    not_before: float = 0.0


class Hub:
    """`run` distributes; `changed` says that there may be something to distribute."""

    def __init__(self, site: Site, fetcher: Fetcher, clock: Callable[[], float]) -> None:
        self._site, self._fetcher, self._clock = site, fetcher, clock
        self._subscriptions: dict[tuple[str, str], HubSubscription] = {}
        self._changes_pending = asyncio.Event()
        self._verification_tasks: set[asyncio.Task[None]] = set()

    def routes(self) -> list[BaseRoute]:
        return [Route("/hub", self._handle_request, methods=["POST"])]

    def changed(self, outcomes: Sequence[PollOutcome], recorded: Sequence[RecordResult]) -> None:
        """Polls have been stored."""
        if self._subscriptions and any(one.new or one.changed for one in recorded):
            self._changes_pending.set()

    # --- subscribing ---------------------------------------------------------------------------------------------------

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
                raise UsageError("hub.callback must be an http or https address")
            if len(secret.encode()) > MAX_SECRET_BYTES:
                raise UsageError("hub.secret must have less than 200 bytes")
            if (
                len(self._subscriptions) + len(self._verification_tasks) >= MAX_SUBSCRIPTIONS
                and (topic, callback) not in self._subscriptions
            ):
                raise UsageError("this hub has no room for another subscriber")
            await self._document(topic, self._site.base(request))
        except NotFound:
            return PlainTextResponse("hub.topic is not a feed of this hub\n", HTTPStatus.NOT_FOUND)
        except (TidingsError, ValueError) as error:
            return PlainTextResponse(f"{error}\n", HTTPStatus.BAD_REQUEST)
        lease_s = (
            min(max(int(lease), MIN_LEASE_S), MAX_LEASE_S)
            if lease.isascii() and lease.isdecimal() and len(lease) < 12
            else DEFAULT_LEASE_S
        )
        wanted = HubSubscription(topic, callback, secret, self._clock() + lease_s)
        task = asyncio.create_task(self._verify(mode, wanted, lease_s))
        self._verification_tasks.add(task)
        task.add_done_callback(self._verification_tasks.discard)
        return PlainTextResponse("the callback will be asked\n", HTTPStatus.ACCEPTED)

    async def _document(self, topic: str, base: str) -> tuple[output_feeds.Document, str]:
        """`NotFound` for what is no topic of ours."""
        if not topic.startswith(f"{base}/out/"):
            raise NotFound("not a feed of this hub")
        return await output_feeds.find(self._site, _path(topic), base)

    async def _verify(self, mode: str, wanted: HubSubscription, lease_s: int) -> None:
        """Was it meant? Only who can read what is sent to the callback knows the answer."""
        challenge = secrets.token_urlsafe(24)
        query = {"hub.mode": mode, "hub.topic": wanted.topic, "hub.challenge": challenge}
        if mode == "subscribe":
            query["hub.lease_seconds"] = str(lease_s)
        url = wanted.callback + ("&" if urlsplit(wanted.callback).query else "?") + urlencode(query)
        found = await self._fetcher.fetch(FetchRequest(url, want_delta=False))
        meant = (
            found.error is None
            and found.body is not None
            and found.body.decode("latin-1").strip() == challenge
        )
        log.info("hub verified", mode=mode, callback=wanted.callback, meant=meant)
        if not meant:
            return
        key = (wanted.topic, wanted.callback)
        if mode == "subscribe":
            document, _kind = await self._document(wanted.topic, _base(wanted.topic))
            self._subscriptions[key] = replace(wanted, etag=document.etag)
        else:
            self._subscriptions.pop(key, None)
        await self._save()

    # --- distributing --------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Until cancelled."""
        saved = (await retry_on_store_error(self._site.store.load_values, asyncio.sleep)).get(
            STORE_KEY
        )
        for subscription in msgspec.json.decode(saved, type=list[HubSubscription]) if saved else ():
            self._subscriptions[subscription.topic, subscription.callback] = subscription
        self._changes_pending.set()  # what came while nobody distributed
        while True:
            waits = [
                f.not_before - self._clock() for f in self._subscriptions.values() if f.failures
            ]
            try:
                async with asyncio.timeout(max(0.0, min(waits)) if waits else None):
                    await self._changes_pending.wait()
            except TimeoutError:
                pass  # somebody who failed is to be tried again
            await asyncio.sleep(BATCH_DELAY_S)
            self._changes_pending.clear()
            await retry_on_store_error(self.distribute, asyncio.sleep)

    async def distribute(self) -> None:
        """Send what has changed to everybody who does not have it yet."""
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
        except NotFound:  # its address was renewed, or the folder is gone
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
            headers = {
                **headers,
                "X-Hub-Signature": f"sha256={hmac.digest(subscription.secret.encode(), body, 'sha256').hex()}",
            }
        found = await self._fetcher.post(subscription.callback, body, headers)
        if found.status == HTTPStatus.GONE:
            return replace(subscription, lease_until=0.0)
        if found.error is None:
            return replace(subscription, etag=etag, failures=0, not_before=0.0)
        wait_s = min(RETRY_DELAY_S * 2.0**subscription.failures, MAX_RETRY_DELAY_S)
        return replace(
            subscription, failures=subscription.failures + 1, not_before=self._clock() + wait_s
        )

    async def _save(self) -> None:
        await self._site.store.save_values(
            {STORE_KEY: msgspec.json.encode(list(self._subscriptions.values()))}
        )


def _base(topic: str) -> str:
    parts = urlsplit(topic)
    return f"{parts.scheme}://{parts.netloc}"


def _path(topic: str) -> str:
    return unquote(urlsplit(topic).path)
