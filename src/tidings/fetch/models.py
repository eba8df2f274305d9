"""Data types of a fetch: settings, request, result and problem.

Network and HTTP errors are values (`FetchProblem`), not exceptions.
"""

from dataclasses import dataclass
from enum import StrEnum

from msgspec import Struct

from tidings.fetch.validators import NO_VALIDATORS, Validators


@dataclass(frozen=True)
class FetchSettings:
    """Settings of the fetcher that an operator can change."""

    contact_url: str = ""  #: in the User-Agent, for publishers; empty if unknown
    allow_private: bool = False  #: whether private, loopback and link-local addresses are allowed
    max_bytes: int = 10_000_000  #: maximum size of a document, compressed and decompressed
    timeout_s: float = 30.0  #: for a request with its complete response
    connect_timeout_s: float = 10.0
    redirects: int = 5  #: maximum number of redirects
    concurrency: int = 100  #: maximum number of concurrent requests to all hosts
    host_spacing_s: float = 1.0  #: between requests to one host; private hosts are exempt
    treat_private_as_public: bool = False  #: no exemptions for private hosts, for tests on loopback


class FetchRequest(Struct, frozen=True):
    """Request for a feed's document."""

    url: str
    validators: Validators = NO_VALIDATORS
    body_digest: bytes = b""  #: of the last document: an equal one is reported as unchanged
    subscribers: int = 1  #: sent in the User-Agent
    want_delta: bool = True  #: accept only new entries (RFC 3229, A-IM: feed)
    usual_gap_s: float | None = None  #: usual time between posts, to detect a false 304


class Problem(StrEnum):
    """Kind of failure of a fetch."""

    URL = "url"  #: the URL is invalid
    BLOCKED = "blocked"  #: the host has a private address
    DNS = "dns"
    CONNECT = "connect"
    TLS = "tls"
    TIMEOUT = "timeout"
    STATUS = "status"  #: error status
    REDIRECTS = "redirects"  #: a loop, or too many
    TOO_LARGE = "too large"
    BROKEN = "broken"  #: incomplete, empty or invalid response, or it cannot be decompressed
    PAUSED = "paused"  #: no request was sent, because the host is paused
    UNREADABLE = "unreadable"  #: complete, but no feed; set after parsing


class FetchProblem(Struct, frozen=True):
    """An expected failure of a fetch."""

    kind: Problem
    message: str  #: for display: a phrase without a final period
    response_text: str = ""  #: beginning of the error response's body


class FetchResult(Struct, frozen=True):
    """Result of a fetch, with or without a document."""

    url: str  #: of the response, after redirects; without user name and password
    status: int = 0  #: 0 if there was no response
    body: bytes | None = None  #: None also if the document is unchanged
    digest: bytes = b""  #: of the last complete document: this one, or that of the request
    content_type: str = ""
    validators: Validators = NO_VALIDATORS  #: to be stored for the next request, also after errors
    fresh_until: float | None = None
    retry_at: float | None = None  #: earliest next request (Retry-After, or the host is paused)
    moved_to: str | None = None  #: target of permanent redirects; see `error_policy.Move`
    hubs: tuple[str, ...] = ()  #: WebSub hubs of Link headers, which precede the document's
    self_url: str = ""  #: WebSub self link of Link headers
    error: FetchProblem | None = None
    unchanged: bool = False
    delta: bool = False  #: whether the body has only new entries (226)
    rate_limited: bool = False  #: whether the host limits our requests
    bot_challenged: bool = False  #: whether bot protection responded and not the publisher
    wire_bytes: int = 0  #: size of bodies as transferred
    elapsed_s: float = 0.0
    requests: int = 0  #: number of HTTP requests sent
