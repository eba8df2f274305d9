"""One polite request, with its redirects, made into a value.

What goes out: the address exactly as stored, who asks and where to complain, the validators exactly as received. No cookies,
no referrer, no query parameters of ours, no proxies from the environment. Feeds are asked with GET and nothing else; what a
WebSub hub or follower is told goes out by `Fetcher.post`, under the same limits.
"""

import asyncio
import os
import ssl
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from hashlib import sha256
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlencode

from multidict import CIMultiDict
from yarl import URL

from tidings.fetch import freshness
from tidings.fetch.addresses import authorization, bare, host_name, parse_url, with_userinfo_of
from tidings.fetch.bodies import TooLarge, Undecodable, unpack
from tidings.fetch.connections import Connections, NoConnection, UnknownName
from tidings.fetch.guard import BlockedAddress, is_public
from tidings.fetch.hosts import PAUSE_S, HostGate, is_bridge
from tidings.fetch.links import link_header
from tidings.fetch.outcomes import is_challenge, is_limiting
from tidings.fetch.user_agent import user_agent
from tidings.fetch.values import FetchProblem, FetchRequest, FetchResult, FetchSettings, Problem
from tidings.fetch.wire import ASIDE_BYTES, Answer, BrokenAnswer, WrongLength, as_received
from tidings.words import duration

ACCEPT = "application/atom+xml, application/rss+xml, application/feed+json, application/xml;q=0.9, text/xml;q=0.9, */*;q=0.1"
REDIRECTS = frozenset({301, 302, 303, 307, 308})
PERMANENT = frozenset({301, 308})
#: By which a form travels on. 307 and 308 say so; 301 and 302 are taken the same way, as hubs that move expect it
#: (websub.rocks 203, 204). 303 says to look elsewhere, without the form.
FORM_REDIRECTS = REDIRECTS - {303}
DIGEST_BYTES = 16
SAID_CHARS = 500


def digest(body: bytes) -> bytes:
    """By which two documents are the same. Processors of today have SHA-256 built in: it takes half of BLAKE2's time."""
    return sha256(body).digest()[:DIGEST_BYTES]


class Fetcher:
    """Fetches over one pool of connections; use it with ``async with``."""

    def __init__(
        self,
        settings: FetchSettings,
        clock: Callable[[], float],
        *,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
    ) -> None:
        self.settings = settings
        self.gate = HostGate(clock, spacing_s=settings.host_spacing_s, concurrency=settings.concurrency, sleep=sleep)
        self._clock = clock
        self._heads: dict[int, bytes] = {}
        self.connections = Connections(
            allow_private=settings.allow_private,
            connect_timeout_s=settings.connect_timeout_s,
            # Long enough for the next feed of the host, short enough not to run out of files with thousands of hosts.
            keep_s=2 * settings.host_spacing_s + 1,
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.connections.close()

    async def fetch(self, request: FetchRequest) -> FetchResult:
        """Ask for a feed. Whatever the web does comes back as a value."""
        try:
            asked = parse_url(request.url)
        except ValueError as error:
            problem = FetchProblem(Problem.URL, f"not an address that can be asked: {error}")
            return FetchResult("", validators=request.validators, digest=request.body_digest, error=problem)
        return await _Fetch(self, request, asked).run()

    async def post_form(self, url: str, fields: Mapping[str, str]) -> FetchResult:
        """Hand a form to a hub."""
        return await self.post(url, urlencode(fields).encode(), {"Content-Type": "application/x-www-form-urlencoded"})

    async def post(self, url: str, body: bytes, headers: Mapping[str, str]) -> FetchResult:
        """Send something; what is said to it beside the status is of no use. Whatever the web does comes back as a value."""
        try:
            asked = parse_url(url)
        except ValueError as error:
            return FetchResult("", error=FetchProblem(Problem.URL, f"not an address that can be asked: {error}"))
        return await _Fetch(self, FetchRequest(url), asked, (body, headers)).run()

    def is_local(self, host: str) -> bool:
        """Return whether a URL's host is known to have a private address."""
        address = self.connections.address(host)
        return address is not None and not is_public(address)

    def is_exempt(self, host: str) -> bool:
        """Return whether host limits do not apply: private hosts, unless they are treated as public ones."""
        return not self.settings.treat_private_as_public and self.is_local(host)

    def use_contact(self, url: str) -> None:
        """Send this contact address with every request from now on."""
        self.settings = replace(self.settings, contact_url=url)
        self._heads.clear()

    def head_for(self, subscribers: int) -> bytes:
        """Return the headers that are the same in every request."""
        known = self._heads.get(subscribers)
        if known is None:
            agent = user_agent(self.settings.contact_url, subscribers)
            known = f"User-Agent: {agent}\r\nAccept: {ACCEPT}\r\nAccept-Encoding: gzip, br, zstd\r\n".encode()
            self._heads[subscribers] = known
        return known


class _Fetch:
    """The state of one fetch on its way through redirects."""

    def __init__(
        self, fetcher: Fetcher, request: FetchRequest, asked: URL, sent: tuple[bytes, Mapping[str, str]] | None = None
    ) -> None:
        self.fetcher, self.request, self.sent = fetcher, request, sent
        self.authorization = authorization(asked)
        self.asked, self.url = asked, bare(asked)
        self.validators = request.validators
        self.visited = ""
        self.requests = 0
        self.wire_bytes = 0
        self.elapsed_s = 0.0  # of the requests before this one, without the waits between
        self.started: float | None = None
        self.moved: URL | None = None
        self.status = 0
        self.headers: CIMultiDict[str] | None = None

    async def run(self) -> FetchResult:
        seen = {self.url}
        permanent = True
        while True:
            result = await self._turn()
            if result is not None:
                return result
            if self.requests > self.fetcher.settings.redirects:
                return self._problem(Problem.REDIRECTS, f"more than {self.fetcher.settings.redirects} redirects")
            assert self.headers is not None
            try:
                target = bare(parse_url(self.headers["Location"], self.url))
            except ValueError as error:
                return self._problem(Problem.REDIRECTS, f"redirected to what cannot be asked: {error}")
            if target in seen:
                return self._problem(Problem.REDIRECTS, f"redirected in a circle, back to {target}")
            seen.add(target)
            # Away from encryption may be followed, but is never made for good.
            downgrade = self.url.scheme == "https" and target.scheme == "http"
            if downgrade and self.sent is not None:
                return self._problem(Problem.REDIRECTS, "redirected away from encryption, where a form may hold a secret")
            permanent = permanent and self.status in PERMANENT and not downgrade
            self.url = target
            if permanent:
                self.moved = target

    async def _turn(self) -> FetchResult | None:
        """One request, when its host's turn has come; None if it was redirected."""
        fetcher, url = self.fetcher, self.url
        host = str(url.raw_host)
        name = host_name(url)
        address = fetcher.connections.address(host)
        exempt = fetcher.is_exempt(host)
        spaced = not exempt and name != self.visited  # a redirect on the same host is part of the same visit
        self.visited = name
        async with fetcher.gate.visit(name, address=None if exempt else address, spaced=spaced) as until:
            if until is not None:
                words = f"{url.raw_host} asked to be left alone for another {duration(until - fetcher._clock())}"
                return self._problem(Problem.PAUSED, words, retry_at=until)
            self.status, self.headers, self.started = 0, None, fetcher._clock()
            try:
                return await self._ask()
            except NoConnection:
                return self._problem(Problem.TIMEOUT, f"no connection within {duration(fetcher.settings.connect_timeout_s)}")
            except TimeoutError:
                return self._problem(Problem.TIMEOUT, f"no complete answer within {duration(fetcher.settings.timeout_s)}")
            except UnknownName as error:
                return self._problem(Problem.DNS, f"the name {url.raw_host} cannot be resolved: {error}")
            except ssl.SSLError as error:
                return self._problem(Problem.TLS, f"no secure connection to {url.raw_host}: {_reason(error)}")
            except OSError as error:
                kind = Problem.BLOCKED if isinstance(error, BlockedAddress) else Problem.CONNECT
                return self._problem(kind, f"cannot connect to {url.raw_host}: {_reason(error)}")
            except WrongLength as error:
                return self._problem(Problem.BROKEN, str(error))
            except (BrokenAnswer, ValueError) as error:
                return self._problem(Problem.BROKEN, f"the answer broke off or is no HTTP: {_reason(error)}")

    async def _ask(self) -> FetchResult | None:
        request, fetcher, url = self.request, self.fetcher, self.url
        settings, now = fetcher.settings, fetcher._clock()
        more = ""
        etag, last_modified = request.validators.for_request(str(url), now, request.usual_gap_s)
        if etag is not None:
            more += f"If-None-Match: {etag}\r\n"
            if request.want_delta:
                more += "A-IM: feed\r\n"  # a delta to what, without an ETag?
        if last_modified is not None:
            more += f"If-Modified-Since: {last_modified}\r\n"
        if self.authorization and url.origin() == self.asked.origin():
            more += f"Authorization: {self.authorization}\r\n"
        conditional = etag is not None or last_modified is not None
        if not conditional and str(url) == request.validators.url:
            self.validators = request.validators.asked_plainly(now)
        self.requests += 1
        method, body, most, redirects = "GET", b"", settings.max_bytes, REDIRECTS
        if self.sent is not None:
            method, body, most, redirects = "POST", self.sent[0], 0, FORM_REDIRECTS
            more += "".join(f"{name}: {value}\r\n" for name, value in self.sent[1].items())
            more += f"Content-Length: {len(body)}\r\n"
        first = f"{method} {url.raw_path_qs} HTTP/1.1\r\nHost: {url.host_port_subcomponent}\r\n"
        # Validators have one character per byte, and go out as the bytes they came in as.
        wire = b"".join((first.encode(), fetcher.head_for(request.subscribers), more.encode("latin-1"), b"\r\n", body))
        answer = await fetcher.connections.ask(url, wire, most, settings.timeout_s, reuse=self.sent is None)
        self.status, self.headers = answer.status, answer.headers
        self.wire_bytes += len(answer.body)
        if self.status == 304:
            return self._not_modified(conditional)
        if self.status in redirects and answer.headers.get("Location"):
            self.elapsed_s, self.started = self.elapsed_s + fetcher._clock() - now, None
            return None
        if not 200 <= self.status < 300 or self.status == 206:  # a part, which nobody has asked for
            return self._refused(_said(answer))
        return self._document(answer) if self.sent is None else self._result()

    def _not_modified(self, conditional: bool) -> FetchResult:
        if not conditional and not self.request.body_digest:
            return self._problem(Problem.BROKEN, "answered 304 (not modified) to a request without conditions")
        assert self.headers is not None
        etag, last_modified = self.headers.get("ETag"), self.headers.get("Last-Modified")
        self.validators = self.validators.after_304(as_received(etag), as_received(last_modified))
        return self._result(unchanged=True)

    def _refused(self, said: str) -> FetchResult:
        """An error status. A host that says "less" is left alone at once, also by those who already stand in line."""
        assert self.headers is not None
        now = self.fetcher._clock()
        host = str(self.url.raw_host)
        retry_at = freshness.retry_at(self.headers, now)
        limited = is_limiting(self.status, host, self.headers)
        if limited and not self.fetcher.is_exempt(host) and not is_bridge(host, self.url.raw_path_qs):
            self.fetcher.gate.pause(host_name(self.url), retry_at or now + PAUSE_S)
        return self._problem(
            Problem.STATUS,
            f"the server answered {self.status}",
            said=said,
            retry_at=retry_at,
            limited=limited,
            challenged=is_challenge(self.headers),
        )

    def _document(self, answer: Answer) -> FetchResult:
        cap = self.fetcher.settings.max_bytes
        try:
            if not answer.whole:
                raise TooLarge
            body = unpack(answer.body, answer.headers.get("Content-Encoding", ""), cap)
        except TooLarge:
            return self._problem(Problem.TOO_LARGE, f"larger than {cap / 1e6:,.0f} MB (fetch.max_bytes)")
        except Undecodable as error:
            return self._problem(Problem.BROKEN, f"the body cannot be unpacked: {error}")
        if len(body) < ASIDE_BYTES and not body.strip(b" \t\r\n\x00"):
            return self._problem(Problem.BROKEN, f"answered {self.status} with nothing in it")
        headers, now = answer.headers, self.fetcher._clock()
        self.validators = self.validators.after_document(
            as_received(headers.get("ETag")), as_received(headers.get("Last-Modified")), str(self.url), now
        )
        if self.status == 226:  # RFC 3229: what is not in it is not gone, and it is no whole document
            return self._result(body=body, delta=True)
        known = digest(body)
        if known == self.request.body_digest:
            return self._result(unchanged=True)
        return self._result(body=body, digest=known)

    def _moved_to(self) -> str | None:
        if self.moved is None:
            return None
        target, source = str(self.moved.raw_host), str(self.asked.raw_host)
        if self.fetcher.is_exempt(target) and not self.fetcher.is_exempt(source):
            return None  # a stranger may not plant an address of our own network in the database
        return str(with_userinfo_of(self.asked, self.moved))

    def _problem(self, kind: Problem, words: str, *, said: str = "", **fields: Any) -> FetchResult:
        return self._result(error=FetchProblem(kind, words, said), **fields)

    def _result(self, **fields: Any) -> FetchResult:
        headers, now = self.headers, self.fetcher._clock()
        error = fields.get("error")
        fields.setdefault("digest", self.request.body_digest)
        if headers is not None and (error is None or error.kind is Problem.STATUS):
            fields["content_type"] = headers.get("Content-Type", "")
            fields["fresh_until"] = freshness.fresh_until(headers, now)
            if "Link" in headers:
                links = link_header(", ".join(headers.getall("Link")), str(self.url))
                fields["hubs"], fields["self_url"] = tuple(links.get("hub", ())), links.get("self", [""])[0]
        return FetchResult(
            url=str(self.url),
            status=self.status,
            validators=self.validators,
            moved_to=self._moved_to() if error is None else None,
            wire_bytes=self.wire_bytes,
            elapsed_s=self.elapsed_s if self.started is None else self.elapsed_s + now - self.started,
            requests=self.requests,
            **fields,
        )


def _said(answer: Answer) -> str:
    """The beginning of a body that is no document, as text."""
    try:
        body = unpack(answer.body, answer.headers.get("Content-Encoding", ""), 10 * ASIDE_BYTES)
    except (TooLarge, Undecodable):
        body = b""  # the status is what counts
    return body.decode("utf-8", "replace")[:SAID_CHARS]


def _reason(error: Exception) -> str:
    words = getattr(error, "strerror", None) or str(error) or type(error).__name__
    # What asyncio says holds the address alone; what the system calls it says why.
    return os.strerror(getattr(error, "errno", 0)) if words.startswith("Connect call failed") else words
