"""One polite request, with its redirects, made into a value.

What goes out: the address exactly as stored, who asks and where to complain, the validators exactly as received. No cookies,
no referrer, no query parameters of ours, no proxies from the environment. Feeds are asked with GET and nothing else; what a
WebSub hub is told goes out by `Fetcher.post_form`, under the same limits.
"""

import asyncio
import ssl
from collections.abc import Awaitable, Callable, Mapping
from hashlib import sha256
from types import TracebackType
from typing import Any, Self

import aiohttp
from multidict import CIMultiDict, CIMultiDictProxy
from yarl import URL

from tidings import __version__
from tidings.fetch import freshness
from tidings.fetch.addresses import authorization, bare, host_name, parse_url, with_userinfo_of
from tidings.fetch.bodies import TooLarge, Undecodable, unpack
from tidings.fetch.guard import BlockedAddress, RememberingResolver, guarded_socket, is_public
from tidings.fetch.hosts import PAUSE_S, HostGate, is_bridge
from tidings.fetch.links import link_header
from tidings.fetch.outcomes import is_challenge, is_limiting
from tidings.fetch.values import FetchProblem, FetchRequest, FetchResult, FetchSettings, Problem
from tidings.fetch.wire import ExactRequest, as_received
from tidings.words import duration

ACCEPT = "application/atom+xml, application/rss+xml, application/feed+json, application/xml;q=0.9, text/xml;q=0.9, */*;q=0.1"
REDIRECTS = frozenset({301, 302, 303, 307, 308})
PERMANENT = frozenset({301, 308})
#: By which a form travels on. 307 and 308 say so; 301 and 302 are taken the same way, as hubs that move expect it
#: (websub.rocks 203, 204). 303 says to look elsewhere, without the form.
FORM_REDIRECTS = REDIRECTS - {303}
DIGEST_BYTES = 16
#: Of an error's or a redirect's body: enough to tell what the server said, and to keep the connection for the next request.
ASIDE_BYTES = 16_384
SAID_CHARS = 500
#: Real servers send policies of 20 KB in one header; the library's 8 KB would make their feeds unreadable.
HEADER_BYTES = 65_536


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
        self._headers: dict[int, dict[str, str]] = {}

    async def __aenter__(self) -> Self:
        settings = self.settings
        self._resolver = RememberingResolver()
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(
                limit=0,  # the gate limits
                # Long enough for the next feed of the host, short enough not to run out of files with thousands of hosts.
                keepalive_timeout=2 * settings.host_spacing_s + 1,
                resolver=self._resolver,
                socket_factory=guarded_socket(settings.allow_private),
            ),
            request_class=ExactRequest,
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=aiohttp.ClientTimeout(total=settings.timeout_s, sock_connect=settings.connect_timeout_s),
            auto_decompress=False,
            trust_env=False,
            max_line_size=HEADER_BYTES,
            max_field_size=HEADER_BYTES,
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._session.close()
        await self._resolver.close()

    async def fetch(self, request: FetchRequest) -> FetchResult:
        """Ask for a feed. Whatever the web does comes back as a value."""
        try:
            asked = parse_url(request.url)
        except ValueError as error:
            problem = FetchProblem(Problem.URL, f"not an address that can be asked: {error}")
            return FetchResult("", validators=request.validators, digest=request.body_digest, error=problem)
        return await _Fetch(self, request, asked).run()

    async def post_form(self, url: str, fields: Mapping[str, str]) -> FetchResult:
        """Hand a form to a hub; what it says beside the status is of no use. Whatever the web does comes back as a value."""
        try:
            asked = parse_url(url)
        except ValueError as error:
            return FetchResult("", error=FetchProblem(Problem.URL, f"not an address that can be asked: {error}"))
        return await _Fetch(self, FetchRequest(url), asked, fields).run()

    def is_local(self, host: str) -> bool:
        """Whether a URL's host is known to live at a private address."""
        address = self._resolver.address(host)
        return address is not None and not is_public(address)

    def headers_for(self, subscribers: int) -> dict[str, str]:
        """The part of a request that never changes. "1 subscribers" is what log analysers expect."""
        known = self._headers.get(subscribers)
        if known is None:
            contact = f"+{self.settings.contact_url}; " if self.settings.contact_url else ""
            agent = f"tidings/{__version__} ({contact}{subscribers} subscribers)"
            known = {"User-Agent": agent, "Accept": ACCEPT, "Accept-Encoding": "gzip, br, zstd"}
            self._headers[subscribers] = known
        return known


class _Fetch:
    """The state of one fetch on its way through redirects."""

    def __init__(self, fetcher: Fetcher, request: FetchRequest, asked: URL, form: Mapping[str, str] | None = None) -> None:
        self.fetcher, self.request, self.form = fetcher, request, form
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
        self.headers: CIMultiDictProxy[str] | None = None

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
            if downgrade and self.form is not None:
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
        address = fetcher._resolver.address(host)
        local = address is not None and not is_public(address)
        spaced = not local and name != self.visited  # a redirect on the same host is part of the same visit
        self.visited = name
        async with fetcher.gate.visit(name, address=None if local else address, spaced=spaced) as until:
            if until is not None:
                words = f"{url.raw_host} asked to be left alone for another {duration(until - fetcher._clock())}"
                return self._problem(Problem.PAUSED, words, retry_at=until)
            self.status, self.headers, self.started = 0, None, fetcher._clock()
            try:
                return await self._ask()
            except aiohttp.ConnectionTimeoutError:
                return self._problem(Problem.TIMEOUT, f"no connection within {duration(fetcher.settings.connect_timeout_s)}")
            except TimeoutError:
                return self._problem(Problem.TIMEOUT, f"no complete answer within {duration(fetcher.settings.timeout_s)}")
            except aiohttp.ClientConnectorDNSError as error:
                return self._problem(
                    Problem.DNS, f"the name {url.raw_host} cannot be resolved: {error.os_error.strerror or error}"
                )
            except (aiohttp.ClientSSLError, ssl.SSLError) as error:
                return self._problem(Problem.TLS, f"no secure connection to {url.raw_host}: {_reason(error)}")
            except aiohttp.ClientConnectorError as error:
                kind = Problem.BLOCKED if isinstance(error.os_error, BlockedAddress) else Problem.CONNECT
                return self._problem(kind, f"cannot connect to {url.raw_host}: {_reason(error)}")
            except (aiohttp.ClientError, OSError, ValueError) as error:
                return self._problem(Problem.BROKEN, f"the answer broke off or is no HTTP: {_reason(error)}")

    async def _ask(self) -> FetchResult | None:
        request, fetcher, url = self.request, self.fetcher, self.url
        now = fetcher._clock()
        headers = CIMultiDict(fetcher.headers_for(request.subscribers))
        etag, last_modified = request.validators.for_request(str(url), now, request.usual_gap_s)
        if etag is not None:
            headers["If-None-Match"] = etag
            if request.want_delta:
                headers["A-IM"] = "feed"  # a delta to what, without an ETag?
        if last_modified is not None:
            headers["If-Modified-Since"] = last_modified
        if self.authorization and url.origin() == self.asked.origin():
            headers["Authorization"] = self.authorization
        conditional = etag is not None or last_modified is not None
        if not conditional and str(url) == request.validators.url:
            self.validators = request.validators.asked_plainly(now)
        self.requests += 1
        method, redirects = ("GET", REDIRECTS) if self.form is None else ("POST", FORM_REDIRECTS)
        async with self.fetcher._session.request(
            method, url, headers=headers, data=self.form, allow_redirects=False
        ) as response:
            self.status, self.headers = response.status, response.headers
            if self.status == 304:
                return self._not_modified(conditional)
            if self.status in redirects and response.headers.get("Location"):
                await self._aside(response)
                self.elapsed_s, self.started = self.elapsed_s + fetcher._clock() - now, None
                return None
            if not 200 <= self.status < 300:
                return self._refused(await self._aside(response))
            if self.form is not None:
                await self._aside(response)
                return self._result()
            return await self._document(response)

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
        if limited and not self.fetcher.is_local(host) and not is_bridge(host, self.url.raw_path_qs):
            self.fetcher.gate.pause(host_name(self.url), retry_at or now + PAUSE_S)
        return self._problem(
            Problem.STATUS,
            f"the server answered {self.status}",
            said=said,
            retry_at=retry_at,
            limited=limited,
            challenged=is_challenge(self.headers),
        )

    async def _document(self, response: aiohttp.ClientResponse) -> FetchResult:
        cap = self.fetcher.settings.max_bytes
        try:
            if (response.content_length or 0) > cap:
                raise TooLarge
            pieces, size = [], 0
            while piece := await response.content.readany():
                pieces.append(piece)
                size += len(piece)
                self.wire_bytes += len(piece)
                if size > cap:
                    raise TooLarge
            body = unpack(b"".join(pieces), response.headers.get("Content-Encoding", ""), cap)
        except TooLarge:
            response.close()
            return self._problem(Problem.TOO_LARGE, f"larger than {cap / 1e6:,.0f} MB (fetch.max_bytes)")
        except Undecodable as error:
            return self._problem(Problem.BROKEN, f"the body cannot be unpacked: {error}")
        if len(body) < ASIDE_BYTES and not body.strip(b" \t\r\n\x00"):
            return self._problem(Problem.BROKEN, f"answered {self.status} with nothing in it")
        headers, now = response.headers, self.fetcher._clock()
        self.validators = self.validators.after_document(
            as_received(headers.get("ETag")), as_received(headers.get("Last-Modified")), str(self.url), now
        )
        if self.status == 226:  # RFC 3229: what is not in it is not gone, and it is no whole document
            return self._result(body=body, delta=True)
        known = digest(body)
        if known == self.request.body_digest:
            return self._result(unchanged=True)
        return self._result(body=body, digest=known)

    async def _aside(self, response: aiohttp.ClientResponse) -> str:
        """The beginning of a body that is no document, as text; a rest, or a body that never ends, costs the connection."""
        wire = b""
        try:
            while len(wire) < ASIDE_BYTES and (piece := await response.content.readany()):
                wire += piece
            body = unpack(wire, response.headers.get("Content-Encoding", ""), 10 * ASIDE_BYTES)
        except (TooLarge, Undecodable, TimeoutError, aiohttp.ClientError):
            body = b""  # the status is what counts
        self.wire_bytes += len(wire)
        if not response.content.at_eof():
            response.close()
        return body.decode("utf-8", "replace")[:SAID_CHARS]

    def _moved_to(self) -> str | None:
        if self.moved is None:
            return None
        if self.fetcher.is_local(str(self.moved.raw_host)) and not self.fetcher.is_local(str(self.asked.raw_host)):
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


def _reason(error: BaseException) -> str:
    """The innermost words that an error has."""
    inner = getattr(error, "os_error", None) or getattr(error, "certificate_error", None) or error
    return getattr(inner, "strerror", None) or str(inner) or type(inner).__name__
