"""HTTP fetcher that sends conditional requests within host limits.

Errors are returned as values. A request has the URL exactly as stored, a User-Agent with the
operator's contact URL, and the validators exactly as received. It has no cookies, no referrer, no
added query parameters and no proxies from the environment. Feeds are fetched with GET only.
`Fetcher.post` sends requests to WebSub hubs and subscribers under the same limits.
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
from tidings.i18n import _

#: Value of the Accept header.
ACCEPT = (
    "application/atom+xml, application/rss+xml, application/feed+json, "
    "application/xml;q=0.9, text/xml;q=0.9, */*;q=0.1"
)
#: Status codes of redirects that are followed.
REDIRECTS = frozenset({301, 302, 303, 307, 308})
#: Status codes of permanent redirects.
PERMANENT_REDIRECTS = frozenset({301, 308})
#: Status codes of redirects after which a form is sent again to the new URL. RFC 9110 requires this
#: for 307 and 308, and hubs expect it for 301 and 302 too (websub.rocks tests 203, 204).
FORM_REDIRECTS = REDIRECTS - {303}
DIGEST_BYTES = 16
#: Maximum length in characters of the text that is returned from an error response.
ERROR_TEXT_CHARS = 500


def digest(body: bytes) -> bytes:
    """Return the digest by which an unchanged document is recognized.

    It is a part of SHA-256, which is twice as fast as BLAKE2 because current processors have
    instructions for it.
    """
    return sha256(body).digest()[:DIGEST_BYTES]


class Fetcher:
    """HTTP client with a connection pool and a host limiter. Use it with ``async with``."""

    def __init__(
        self,
        settings: FetchSettings,
        clock: Callable[[], float],
        *,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
    ) -> None:
        """Create a fetcher.

        ``clock`` returns the Unix time in seconds. Tests replace ``sleep`` to use a virtual clock.
        """
        self.settings = settings
        self.host_limiter = HostLimiter(
            clock, spacing_s=settings.host_spacing_s, concurrency=settings.concurrency, sleep=sleep
        )
        self._clock = clock
        self._common_headers: dict[int, bytes] = {}
        self.connection_pool = ConnectionPool(
            allow_private=settings.allow_private,
            connect_timeout_s=settings.connect_timeout_s,
            # This is long enough for the next feed of the host. With a longer time, thousands of
            # hosts could exceed the open file limit.
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
        """Fetch a feed with a conditional GET. Network and HTTP errors are returned, not raised."""
        try:
            requested_url = parse_url(request.url)
        except ValueError as error:
            return FetchResult(
                "",
                validators=request.validators,
                digest=request.body_digest,
                error=_invalid_url(error),
            )
        return await _Fetch(self, request, requested_url).run()

    async def post_form(self, url: str, fields: Mapping[str, str]) -> FetchResult:
        """Send a form with POST (see `post`)."""
        return await self.post(
            url, urlencode(fields).encode(), {"Content-Type": "application/x-www-form-urlencoded"}
        )

    async def post(self, url: str, body: bytes, headers: Mapping[str, str]) -> FetchResult:
        """Send a POST request and return the status. Errors are returned, not raised."""
        try:
            requested_url = parse_url(url)
        except ValueError as error:
            return FetchResult("", error=_invalid_url(error))
        return await _Fetch(self, FetchRequest(url), requested_url, (body, headers)).run()

    def is_local(self, host: str) -> bool:
        """Return whether a host is known to have a private address."""
        address = self.connection_pool.address(host)
        return address is not None and not is_public(address)

    def is_exempt(self, host: str) -> bool:
        """Return whether a host is exempt from host limits, as private hosts are by default."""
        return not self.settings.treat_private_as_public and self.is_local(host)

    def set_contact_url(self, url: str) -> None:
        """Set the contact URL that is sent in the User-Agent from now on."""
        self.settings = replace(self.settings, contact_url=url)
        self._common_headers.clear()

    def common_headers(self, subscribers: int) -> bytes:
        """Return the headers that are the same in all requests for this number of subscribers."""
        headers = self._common_headers.get(subscribers)
        if headers is None:
            agent = user_agent(self.settings.contact_url, subscribers)
            text = f"User-Agent: {agent}\r\nAccept: {ACCEPT}\r\nAccept-Encoding: gzip, br, zstd\r\n"
            headers = self._common_headers[subscribers] = text.encode()
        return headers


class _Fetch:
    """State of one fetch, including its redirects."""

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
        self.elapsed_s = 0.0  # time of earlier requests, without the waits for the host limiter
        self.started: float | None = None
        self.moved_url: URL | None = None
        self.status = 0
        self.headers: CIMultiDict[str] | None = None

    async def run(self) -> FetchResult:
        seen = {self.url}
        is_permanent = True
        while True:
            result = await self._limited_request()
            if result is not None:
                return result
            if self.requests > self.fetcher.settings.redirects:
                limit = self.fetcher.settings.redirects
                return self._problem(
                    Problem.REDIRECTS,
                    _("the server redirected more than %(limit)s times", limit=limit),
                )
            assert self.headers is not None
            try:
                target = strip_userinfo(parse_url(self.headers["Location"], self.url))
            except ValueError as error:
                return self._problem(
                    Problem.REDIRECTS,
                    _("the server redirected to an invalid URL: %(error)s", error=error),
                )
            if target in seen:
                return self._problem(
                    Problem.REDIRECTS, _("the server redirects in a loop to %(url)s", url=target)
                )
            seen.add(target)
            # A redirect from https to http is followed, but never changes the stored URL.
            is_downgrade = self.url.scheme == "https" and target.scheme == "http"
            if is_downgrade and self.post_data is not None:  # a form can contain a secret
                return self._problem(
                    Problem.REDIRECTS,
                    _("the server redirected a form from https to http, which is not safe"),
                )
            is_permanent = is_permanent and self.status in PERMANENT_REDIRECTS and not is_downgrade
            self.url = target
            if is_permanent:
                self.moved_url = target

    async def _limited_request(self) -> FetchResult | None:
        """Send one request within the host limits, and return None if it was redirected."""
        fetcher, url = self.fetcher, self.url
        host = str(url.raw_host)
        key = host_key(url)
        address = fetcher.connection_pool.address(host)
        is_exempt = fetcher.is_exempt(host)
        # The minimum time between requests does not apply to a redirect on the same host.
        is_spaced = not is_exempt and key != self.last_host
        self.last_host = key
        async with fetcher.host_limiter.acquire(
            key, address=None if is_exempt else address, spaced=is_spaced
        ) as paused_until:
            if paused_until is not None:
                wait = duration(paused_until - fetcher._clock())
                message = _("%(host)s asked us to wait another %(wait)s", host=host, wait=wait)
                return self._problem(Problem.PAUSED, message, retry_at=paused_until)
            self.status, self.headers, self.started = 0, None, fetcher._clock()
            try:
                return await self._send_request()
            except ConnectTimeout:
                limit = duration(fetcher.settings.connect_timeout_s)
                return self._problem(
                    Problem.TIMEOUT,
                    _("the server did not accept a connection within %(limit)s", limit=limit),
                )
            except TimeoutError:
                limit = duration(fetcher.settings.timeout_s)
                return self._problem(
                    Problem.TIMEOUT,
                    _("the server sent no complete response within %(limit)s", limit=limit),
                )
            except NameResolutionError as error:
                message = _(
                    "can't find the server %(host)s (%(error)s); check the address",
                    host=host,
                    error=error,
                )
                return self._problem(Problem.DNS, message)
            except ssl.SSLError as error:
                message = _(
                    "can't connect securely to %(host)s: %(error)s", host=host, error=_reason(error)
                )
                return self._problem(Problem.TLS, message)
            except OSError as error:
                kind = Problem.BLOCKED if isinstance(error, BlockedAddress) else Problem.CONNECT
                message = _("can't connect to %(host)s: %(error)s", host=host, error=_reason(error))
                return self._problem(kind, message)
            except ContentLengthMismatch as error:
                return self._problem(Problem.BROKEN, str(error))
            except (InvalidResponse, ValueError) as error:
                message = _(
                    "the server sent an invalid HTTP response: %(error)s", error=_reason(error)
                )
                return self._problem(Problem.BROKEN, message)

    async def _send_request(self) -> FetchResult | None:
        request, fetcher, url = self.request, self.fetcher, self.url
        settings, now = fetcher.settings, fetcher._clock()
        headers = ""
        etag, last_modified = request.validators.for_request(str(url), now, request.usual_gap_s)
        if etag is not None:
            headers += f"If-None-Match: {etag}\r\n"
            if request.want_delta:
                headers += "A-IM: feed\r\n"  # a delta response (RFC 3229) needs an ETag as its base
        if last_modified is not None:
            headers += f"If-Modified-Since: {last_modified}\r\n"
        if self.authorization and url.origin() == self.requested_url.origin():
            headers += f"Authorization: {self.authorization}\r\n"
        is_conditional = etag is not None or last_modified is not None
        if not is_conditional and str(url) == request.validators.url:
            self.validators = request.validators.after_unconditional_request(now)
        self.requests += 1
        method, body, max_bytes, redirects = "GET", b"", settings.max_bytes, REDIRECTS
        if self.post_data is not None:
            method, body, max_bytes, redirects = "POST", self.post_data[0], 0, FORM_REDIRECTS
            headers += "".join(f"{name}: {value}\r\n" for name, value in self.post_data[1].items())
            headers += f"Content-Length: {len(body)}\r\n"
        start = f"{method} {url.raw_path_qs} HTTP/1.1\r\nHost: {url.host_port_subcomponent}\r\n"
        # Validators have one character per byte (latin-1) and are sent back byte for byte.
        request_bytes = b"".join(
            (
                start.encode(),
                fetcher.common_headers(request.subscribers),
                headers.encode("latin-1"),
                b"\r\n",
                body,
            )
        )
        response = await fetcher.connection_pool.send_request(
            url, request_bytes, max_bytes, settings.timeout_s, reuse=self.post_data is None
        )
        self.status, self.headers = response.status, response.headers
        self.wire_bytes += len(response.body)
        if self.status == 304:
            return self._not_modified(is_conditional)
        if self.status in redirects and response.headers.get("Location"):
            self.elapsed_s, self.started = self.elapsed_s + fetcher._clock() - now, None
            return None
        if not 200 <= self.status < 300 or self.status == 206:  # partial content is unexpected
            return self._error_response(_error_text(response))
        return self._document(response) if self.post_data is None else self._result()

    def _not_modified(self, is_conditional: bool) -> FetchResult:
        if not is_conditional and not self.request.body_digest:
            return self._problem(
                Problem.BROKEN,
                _("the server sent 304 (Not Modified) to an unconditional request"),
            )
        assert self.headers is not None
        etag, last_modified = self.headers.get("ETag"), self.headers.get("Last-Modified")
        self.validators = self.validators.after_304(
            header_as_latin1(etag), header_as_latin1(last_modified)
        )
        return self._result(unchanged=True)

    def _error_response(self, response_text: str) -> FetchResult:
        """Return the result of an error status. A rate limit pauses the host for all requests."""
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
            _("the server responded with status %(status)s", status=self.status),
            response_text=response_text,
            retry_at=retry_at,
            rate_limited=rate_limited,
            bot_challenged=is_bot_challenge(self.headers),
        )

    def _document(self, response: Response) -> FetchResult:
        limit = self.fetcher.settings.max_bytes
        try:
            if not response.is_complete:
                raise BodyTooLarge
            body = decompress(response.body, response.headers.get("Content-Encoding", ""), limit)
        except BodyTooLarge:
            size = f"{limit / 1e6:,.0f}"
            return self._problem(
                Problem.TOO_LARGE,
                _(
                    "the document is larger than %(size)s MB (the limit is fetch.max_bytes)",
                    size=size,
                ),
            )
        except DecompressionError as error:
            return self._problem(
                Problem.BROKEN, _("the response cannot be decompressed: %(error)s", error=error)
            )
        if len(body) < MAX_ERROR_BODY_BYTES and not body.strip(b" \t\r\n\x00"):
            return self._problem(
                Problem.BROKEN,
                _("the server sent an empty document (status %(status)s)", status=self.status),
            )
        headers, now = response.headers, self.fetcher._clock()
        self.validators = self.validators.after_document(
            header_as_latin1(headers.get("ETag")),
            header_as_latin1(headers.get("Last-Modified")),
            str(self.url),
            now,
        )
        if self.status == 226:  # a delta response (RFC 3229) omits entries that still exist
            return self._result(body=body, delta=True)
        body_digest = digest(body)
        if body_digest == self.request.body_digest:
            return self._result(unchanged=True)
        return self._result(body=body, digest=body_digest)

    def _moved_to(self) -> str | None:
        if self.moved_url is None:
            return None
        target, source = str(self.moved_url.raw_host), str(self.requested_url.raw_host)
        if self.fetcher.is_exempt(target) and not self.fetcher.is_exempt(source):
            return None  # a public server must not change a feed's URL to a private host (SSRF)
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


def _invalid_url(error: ValueError) -> FetchProblem:
    return FetchProblem(Problem.URL, _("invalid URL: %(error)s", error=error))


def _error_text(response: Response) -> str:
    """Return the beginning of an error response's body as text."""
    try:
        body = decompress(
            response.body, response.headers.get("Content-Encoding", ""), 10 * MAX_ERROR_BODY_BYTES
        )
    except (BodyTooLarge, DecompressionError):
        body = b""  # the status is enough
    return body.decode("utf-8", "replace")[:ERROR_TEXT_CHARS]


def _reason(error: Exception) -> str:
    message = getattr(error, "strerror", None) or str(error) or type(error).__name__
    # The message of asyncio has only the address, but the system's error text says what failed.
    if message.startswith("Connect call failed"):
        return os.strerror(getattr(error, "errno", 0))
    return message
