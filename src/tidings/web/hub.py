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

from tidings.aggregator.patience import insist
from tidings.errors import TidingsError, UsageError
from tidings.fetch import Fetcher, FetchRequest
from tidings.logs import Log
from tidings.people import NotFound
from tidings.store.rows import PollOutcome, Recorded
from tidings.web import output
from tidings.web.forms import read_form
from tidings.web.visit import Site

#: Under this key lie all subscriptions, as one value: there are few.
SHARED = "hub"
MOST = 1000
LEASE_S, SHORTEST_S, LONGEST_S = 10 * 86400, 300, 30 * 86400
#: The W3C says "less than 200 bytes".
LONGEST_SECRET = 199
#: What arrives together is sent together.
GATHER_S = 1.0
#: After a failure; doubled each time.
AGAIN_S = 30.0
LONGEST_AGAIN_S = 6 * 3600.0

log = Log(__name__)


class Follower(Struct, frozen=True):
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
        self._followers: dict[tuple[str, str], Follower] = {}
        self._news = asyncio.Event()
        self._asking: set[asyncio.Task[None]] = set()

    def routes(self) -> list[BaseRoute]:
        return [Route("/hub", self._asked, methods=["POST"])]

    def changed(self, outcomes: Sequence[PollOutcome], recorded: Sequence[Recorded]) -> None:
        """Polls have been stored."""
        if self._followers and any(one.new or one.changed for one in recorded):
            self._news.set()

    # --- subscribing ---------------------------------------------------------------------------------------------------

    async def _asked(self, request: Request) -> Response:
        try:
            form = await read_form(request)
            mode, topic, callback = (form.get(f"hub.{name}") for name in ("mode", "topic", "callback"))
            secret, lease = form.get("hub.secret"), form.get("hub.lease_seconds")
            if mode not in ("subscribe", "unsubscribe"):
                raise UsageError("hub.mode must be subscribe or unsubscribe")
            if urlsplit(callback).scheme not in ("http", "https") or len(callback) > 2000:
                raise UsageError("hub.callback must be an http or https address")
            if len(secret.encode()) > LONGEST_SECRET:
                raise UsageError("hub.secret must have less than 200 bytes")
            if len(self._followers) + len(self._asking) >= MOST and (topic, callback) not in self._followers:
                raise UsageError("this hub has no room for another subscriber")
            await self._document(topic, self._site.base(request))
        except NotFound:
            return PlainTextResponse("hub.topic is not a feed of this hub\n", HTTPStatus.NOT_FOUND)
        except (TidingsError, ValueError) as error:
            return PlainTextResponse(f"{error}\n", HTTPStatus.BAD_REQUEST)
        lease_s = (
            min(max(int(lease), SHORTEST_S), LONGEST_S)
            if lease.isascii() and lease.isdecimal() and len(lease) < 12
            else LEASE_S
        )
        wanted = Follower(topic, callback, secret, self._clock() + lease_s)
        task = asyncio.create_task(self._verify(mode, wanted, lease_s))
        self._asking.add(task)
        task.add_done_callback(self._asking.discard)
        return PlainTextResponse("the callback will be asked\n", HTTPStatus.ACCEPTED)

    async def _document(self, topic: str, base: str) -> tuple[output.Document, str]:
        """`NotFound` for what is no topic of ours."""
        if not topic.startswith(f"{base}/out/"):
            raise NotFound("not a feed of this hub")
        return await output.find(self._site, _path(topic), base)

    async def _verify(self, mode: str, wanted: Follower, lease_s: int) -> None:
        """Was it meant? Only who can read what is sent to the callback knows the answer."""
        challenge = secrets.token_urlsafe(24)
        query = {"hub.mode": mode, "hub.topic": wanted.topic, "hub.challenge": challenge}
        if mode == "subscribe":
            query["hub.lease_seconds"] = str(lease_s)
        url = wanted.callback + ("&" if urlsplit(wanted.callback).query else "?") + urlencode(query)
        found = await self._fetcher.fetch(FetchRequest(url, want_delta=False))
        meant = found.error is None and found.body is not None and found.body.decode("latin-1").strip() == challenge
        log.info("hub verified", mode=mode, callback=wanted.callback, meant=meant)
        if not meant:
            return
        key = (wanted.topic, wanted.callback)
        if mode == "subscribe":
            document, _kind = await self._document(wanted.topic, _base(wanted.topic))
            self._followers[key] = replace(wanted, etag=document.etag)
        else:
            self._followers.pop(key, None)
        await self._save()

    # --- distributing --------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Until cancelled."""
        saved = (await insist(self._site.store.shared, asyncio.sleep)).get(SHARED)
        for follower in msgspec.json.decode(saved, type=list[Follower]) if saved else ():
            self._followers[follower.topic, follower.callback] = follower
        self._news.set()  # what came while nobody distributed
        while True:
            waits = [f.not_before - self._clock() for f in self._followers.values() if f.failures]
            try:
                async with asyncio.timeout(max(0.0, min(waits)) if waits else None):
                    await self._news.wait()
            except TimeoutError:
                pass  # somebody who failed is to be tried again
            await asyncio.sleep(GATHER_S)
            self._news.clear()
            await insist(self.distribute, asyncio.sleep)

    async def distribute(self) -> None:
        """Send what has changed to everybody who does not have it yet."""
        now = self._clock()
        documents: dict[str, tuple[bytes, dict[str, str], str] | None] = {}
        for key, follower in list(self._followers.items()):
            if follower.lease_until <= now:
                del self._followers[key]
                continue
            if follower.topic not in documents:
                documents[follower.topic] = await self._rendered(follower.topic)
            rendered = documents[follower.topic]
            if rendered is None:
                del self._followers[key]
            elif rendered[2] != follower.etag and follower.not_before <= now:
                self._followers[key] = await self._send(follower, *rendered)
                if self._followers[key].lease_until <= now:
                    del self._followers[key]
        await self._save()

    async def _rendered(self, topic: str) -> tuple[bytes, dict[str, str], str] | None:
        base = _base(topic)
        try:
            document, kind = await self._document(topic, base)
        except NotFound:  # its address was renewed, or the folder is gone
            return None
        links = f'<{base}/hub>; rel="hub", <{topic}>; rel="self"'
        return output.write(document, kind), {"Content-Type": output.TYPES[kind], "Link": links}, document.etag

    async def _send(self, follower: Follower, body: bytes, headers: dict[str, str], etag: str) -> Follower:
        if follower.secret:
            headers = {**headers, "X-Hub-Signature": f"sha256={hmac.digest(follower.secret.encode(), body, 'sha256').hex()}"}
        found = await self._fetcher.post(follower.callback, body, headers)
        if found.status == HTTPStatus.GONE:
            return replace(follower, lease_until=0.0)
        if found.error is None:
            return replace(follower, etag=etag, failures=0, not_before=0.0)
        wait_s = min(AGAIN_S * 2.0**follower.failures, LONGEST_AGAIN_S)
        return replace(follower, failures=follower.failures + 1, not_before=self._clock() + wait_s)

    async def _save(self) -> None:
        await self._site.store.share({SHARED: msgspec.json.encode(list(self._followers.values()))})


def _base(topic: str) -> str:
    parts = urlsplit(topic)
    return f"{parts.scheme}://{parts.netloc}"


def _path(topic: str) -> str:
    return unquote(urlsplit(topic).path)
