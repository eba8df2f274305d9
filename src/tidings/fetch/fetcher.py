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
from tidings.fetch.connection_pool import ConnectionPool, ConnectTimeout, NameResolutionError
from tidings.fetch.decompression import BodyTooLarge, DecompressionError, decompress
from tidings.fetch.error_policy import is_bot_challenge, is_rate_limited
from tidings.fetch.host_limiter import DEFAULT_PAUSE_S, HostLimiter, is_bridge
from tidings.fetch.http1 import (
    MAX_ERROR_BODY_BYTES,
    ContentLengthMismatch,
    InvalidResponse,
    Response,
    header_as_latin1,
)
from tidings.fetch.link_header import parse_link_header
from tidings.fetch.models import FetchProblem, FetchRequest, FetchResult, FetchSettings, Problem
from tidings.fetch.ssrf import BlockedAddress, is_public
from tidings.fetch.urls import authorization, host_key, parse_url, strip_userinfo, with_userinfo_of
from tidings.fetch.user_agent import user_agent
from tidings.formatting import duration

ACCEPT = "application/atom+xml, application/rss+xml, application/feed+json, application/xml;q=0.9, text/xml;q=0.9, */*;q=0.1"
REDIRECTS = frozenset({301, 302, 303, 307, 308})
PERMANENT_REDIRECTS = frozenset({301, 308})
#: By which a form travels on. 307 and 308 say so; 301 and 302 are taken the same way, as hubs that move expect it
#: (websub.rocks 203, 204). 303 says to look elsewhere, without the form.
FORM_REDIRECTS = REDIRECTS - {303}
DIGEST_BYTES = 16
ERROR_TEXT_CHARS = 500


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
        self.host_limiter = HostLimiter(
            clock, spacing_s=settings.host_spacing_s, concurrency=settings.concurrency, sleep=sleep
        )
        self._clock = clock
        self._common_headers: dict[int, bytes] = {}
        self.connection_pool = ConnectionPool(
            allow_private=settings.allow_private,
            connect_timeout_s=settings.connect_timeout_s,
            # Long enough for the next feed of the host, short enough not to run out of files with thousands of hosts.
            keep_alive_s=2 * settings.host_spacing_s + 1,
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.connection_pool.close()

    async def fetch(self, request: FetchRequest) -> FetchResult:
        """Ask for a feed. Whatever the web does comes back as a value."""
        try:
            requested_url = parse_url(request.url)
        except ValueError as error:
            problem = FetchProblem(Problem.URL, f"not an address that can be asked: {error}")
            return FetchResult(
                "", validators=request.validators, digest=request.body_digest, error=problem
            )
        return await _Fetch(self, request, requested_url).run()

    async def post_form(self, url: str, fields: Mapping[str, str]) -> FetchResult:
        """Hand a form to a hub."""
        return await self.post(
            url, urlencode(fields).encode(), {"Content-Type": "application/x-www-form-urlencoded"}
        )

    async def post(self, url: str, body: bytes, headers: Mapping[str, str]) -> FetchResult:
        """Send something; what is said to it beside the status is of no use. Whatever the web does comes back as a value."""
        try:
            requested_url = parse_url(url)
        except ValueError as error:
            return FetchResult(
                "", error=FetchProblem(Problem.URL, f"not an address that can be asked: {error}")
            )
        return await _Fetch(self, FetchRequest(url), requested_url, (body, headers)).run()

    def is_local(self, host: str) -> bool:
        """Return whether a URL's host is known to have a private address."""
        address = self.connection_pool.address(host)
        return address is not None and not is_public(address)

    def is_exempt(self, host: str) -> bool:
        """Return whether host limits do not apply: private hosts, unless they are treated as public ones."""
        return not self.settings.treat_private_as_public and self.is_local(host)

    def set_contact_url(self, url: str) -> None:
        """Send this contact address with every request from now on."""
        self.settings = replace(self.settings, contact_url=url)
        self._common_headers.clear()

    def common_headers(self, subscribers: int) -> bytes:
        """Return the headers that are the same in every request."""
        known = self._common_headers.get(subscribers)
        if known is None:
            agent = user_agent(self.settings.contact_url, subscribers)
            known = f"User-Agent: {agent}\r\nAccept: {ACCEPT}\r\nAccept-Encoding: gzip, br, zstd\r\n".encode()
            self._common_headers[subscribers] = known
        return known


class _Fetch:
    """The state of one fetch on its way through redirects."""

    def __init__(
        self,
        fetcher: Fetcher,
        request: FetchRequest,
        requested_url: URL,
        post_data: tuple[bytes, Mapping[str, str]] | None = None,
    ) -> None:
        self.fetcher, self.request, self.post_data = fetcher, request, post_data
        self.authorization = authorization(requested_url)
        self.requested_url, self.url = requested_url, strip_userinfo(requested_url)
        self.validators = request.validators
        self.last_host = ""
        self.requests = 0
        self.wire_bytes = 0
        self.elapsed_s = 0.0  # of the requests before this one, without the waits between
        self.started: float | None = None
        self.moved_url: URL | None = None
        self.status = 0
        self.headers: CIMultiDict[str] | None = None

    async def run(self) -> FetchResult:
        seen = {self.url}
        permanent = True
        while True:
            result = await self._request_in_turn()
            if result is not None:
                return result
            if self.requests > self.fetcher.settings.redirects:
                return self._problem(
                    Problem.REDIRECTS, f"more than {self.fetcher.settings.redirects} redirects"
                )
            assert self.headers is not None
            try:
                target = strip_userinfo(parse_url(self.headers["Location"], self.url))
            except ValueError as error:
                return self._problem(
                    Problem.REDIRECTS, f"redirected to what cannot be asked: {error}"
                )
            if target in seen:
                return self._problem(Problem.REDIRECTS, f"redirected in a circle, back to {target}")
            seen.add(target)
            # Away from encryption may be followed, but is never made for good.
            downgrade = self.url.scheme == "https" and target.scheme == "http"
            if downgrade and self.post_data is not None:
                return self._problem(
                    Problem.REDIRECTS,
                    "redirected away from encryption, where a form may hold a secret",
                )
            permanent = permanent and self.status in PERMANENT_REDIRECTS and not downgrade
            self.url = target
            if permanent:
                self.moved_url = target

    async def _request_in_turn(self) -> FetchResult | None:
        """One request, when its host's turn has come; None if it was redirected."""
        fetcher, url = self.fetcher, self.url
        host = str(url.raw_host)
        name = host_key(url)
        address = fetcher.connection_pool.address(host)
        exempt = fetcher.is_exempt(host)
        spaced = (
            not exempt and name != self.last_host
        )  # a redirect on the same host is part of the same visit
        self.last_host = name
        async with fetcher.host_limiter.acquire(
            name, address=None if exempt else address, spaced=spaced
        ) as until:
            if until is not None:
                message = f"{url.raw_host} asked to be left alone for another {duration(until - fetcher._clock())}"
                return self._problem(Problem.PAUSED, message, retry_at=until)
            self.status, self.headers, self.started = 0, None, fetcher._clock()
            try:
                return await self._send_request()
            except ConnectTimeout:
                return self._problem(
                    Problem.TIMEOUT,
                    f"no connection within {duration(fetcher.settings.connect_timeout_s)}",
                )
            except TimeoutError:
                return self._problem(
                    Problem.TIMEOUT,
                    f"no complete answer within {duration(fetcher.settings.timeout_s)}",
                )
            except NameResolutionError as error:
                return self._problem(
                    Problem.DNS, f"the name {url.raw_host} cannot be resolved: {error}"
                )
            except ssl.SSLError as error:
                return self._problem(
                    Problem.TLS, f"no secure connection to {url.raw_host}: {_reason(error)}"
                )
            except OSError as error:
                kind = Problem.BLOCKED if isinstance(error, BlockedAddress) else Problem.CONNECT
                return self._problem(kind, f"cannot connect to {url.raw_host}: {_reason(error)}")
            except ContentLengthMismatch as error:
                return self._problem(Problem.BROKEN, str(error))
            except (InvalidResponse, ValueError) as error:
                return self._problem(
                    Problem.BROKEN, f"the answer broke off or is no HTTP: {_reason(error)}"
                )

    async def _send_request(self) -> FetchResult | None:
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
        if self.authorization and url.origin() == self.requested_url.origin():
            more += f"Authorization: {self.authorization}\r\n"
        conditional = etag is not None or last_modified is not None
        if not conditional and str(url) == request.validators.url:
            self.validators = request.validators.after_unconditional_request(now)
        self.requests += 1
        method, body, max_bytes, redirects = "GET", b"", settings.max_bytes, REDIRECTS
        if self.post_data is not None:
            method, body, max_bytes, redirects = "POST", self.post_data[0], 0, FORM_REDIRECTS
            more += "".join(f"{name}: {value}\r\n" for name, value in self.post_data[1].items())
            more += f"Content-Length: {len(body)}\r\n"
        first = f"{method} {url.raw_path_qs} HTTP/1.1\r\nHost: {url.host_port_subcomponent}\r\n"
        # Validators have one character per byte, and go out as the bytes they came in as.
        wire = b"".join(
            (
                first.encode(),
                fetcher.common_headers(request.subscribers),
                more.encode("latin-1"),
                b"\r\n",
                body,
            )
        )
        response = await fetcher.connection_pool.send_request(
            url, wire, max_bytes, settings.timeout_s, reuse=self.post_data is None
        )
        self.status, self.headers = response.status, response.headers
        self.wire_bytes += len(response.body)
        if self.status == 304:
            return self._not_modified(conditional)
        if self.status in redirects and response.headers.get("Location"):
            self.elapsed_s, self.started = self.elapsed_s + fetcher._clock() - now, None
            return None
        if not 200 <= self.status < 300 or self.status == 206:  # a part, which nobody has asked for
            return self._error_response(_error_text(response))
        return self._document(response) if self.post_data is None else self._result()

    def _not_modified(self, conditional: bool) -> FetchResult:
        if not conditional and not self.request.body_digest:
            return self._problem(
                Problem.BROKEN, "answered 304 (not modified) to a request without conditions"
            )
        assert self.headers is not None
        etag, last_modified = self.headers.get("ETag"), self.headers.get("Last-Modified")
        self.validators = self.validators.after_304(
            header_as_latin1(etag), header_as_latin1(last_modified)
        )
        return self._result(unchanged=True)

    def _error_response(self, response_text: str) -> FetchResult:
        """An error status. A host that says "less" is left alone at once, also by those who already stand in line."""
        assert self.headers is not None
        now = self.fetcher._clock()
        host = str(self.url.raw_host)
        retry_at = freshness.retry_at(self.headers, now)
        rate_limited = is_rate_limited(self.status, host, self.headers)
        if (
            rate_limited
            and not self.fetcher.is_exempt(host)
            and not is_bridge(host, self.url.raw_path_qs)
        ):
            self.fetcher.host_limiter.pause(host_key(self.url), retry_at or now + DEFAULT_PAUSE_S)
        return self._problem(
            Problem.STATUS,
            f"the server answered {self.status}",
            response_text=response_text,
            retry_at=retry_at,
            rate_limited=rate_limited,
            bot_challenged=is_bot_challenge(self.headers),
        )

    def _document(self, response: Response) -> FetchResult:
        cap = self.fetcher.settings.max_bytes
        try:
            if not response.is_complete:
                raise BodyTooLarge
            body = decompress(response.body, response.headers.get("Content-Encoding", ""), cap)
        except BodyTooLarge:
            return self._problem(
                Problem.TOO_LARGE, f"larger than {cap / 1e6:,.0f} MB (fetch.max_bytes)"
            )
        except DecompressionError as error:
            return self._problem(Problem.BROKEN, f"the body cannot be unpacked: {error}")
        if len(body) < MAX_ERROR_BODY_BYTES and not body.strip(b" \t\r\n\x00"):
            return self._problem(Problem.BROKEN, f"answered {self.status} with nothing in it")
        headers, now = response.headers, self.fetcher._clock()
        self.validators = self.validators.after_document(
            header_as_latin1(headers.get("ETag")),
            header_as_latin1(headers.get("Last-Modified")),
            str(self.url),
            now,
        )
        if (
            self.status == 226
        ):  # RFC 3229: what is not in it is not gone, and it is no whole document
            return self._result(body=body, delta=True)
        known = digest(body)
        if known == self.request.body_digest:
            return self._result(unchanged=True)
        return self._result(body=body, digest=known)

    def _moved_to(self) -> str | None:
        if self.moved_url is None:
            return None
        target, source = str(self.moved_url.raw_host), str(self.requested_url.raw_host)
        if self.fetcher.is_exempt(target) and not self.fetcher.is_exempt(source):
            return None  # a stranger may not plant an address of our own network in the database
        return str(with_userinfo_of(self.requested_url, self.moved_url))

    def _problem(
        self, kind: Problem, message: str, *, response_text: str = "", **fields: Any
    ) -> FetchResult:
        return self._result(error=FetchProblem(kind, message, response_text), **fields)

    def _result(self, **fields: Any) -> FetchResult:
        headers, now = self.headers, self.fetcher._clock()
        error = fields.get("error")
        fields.setdefault("digest", self.request.body_digest)
        if headers is not None and (error is None or error.kind is Problem.STATUS):
            fields["content_type"] = headers.get("Content-Type", "")
            fields["fresh_until"] = freshness.fresh_until(headers, now)
            if "Link" in headers:
                links = parse_link_header(", ".join(headers.getall("Link")), str(self.url))
                fields["hubs"], fields["self_url"] = (
                    tuple(links.get("hub", ())),
                    links.get("self", [""])[0],
                )
        return FetchResult(
            url=str(self.url),
            status=self.status,
            validators=self.validators,
            moved_to=self._moved_to() if error is None else None,
            wire_bytes=self.wire_bytes,
            elapsed_s=self.elapsed_s
            if self.started is None
            else self.elapsed_s + now - self.started,
            requests=self.requests,
            **fields,
        )


def _error_text(response: Response) -> str:
    """The beginning of a body that is no document, as text."""
    try:
        body = decompress(
            response.body, response.headers.get("Content-Encoding", ""), 10 * MAX_ERROR_BODY_BYTES
        )
    except (BodyTooLarge, DecompressionError):
        body = b""  # the status is what counts
    return body.decode("utf-8", "replace")[:ERROR_TEXT_CHARS]


def _reason(error: Exception) -> str:
    message = getattr(error, "strerror", None) or str(error) or type(error).__name__
    # What asyncio says holds the address alone; what the system calls it says why.
    return (
        os.strerror(getattr(error, "errno", 0))
        if message.startswith("Connect call failed")
        else message
    )
