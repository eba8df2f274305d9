"""Data types for the settings, the request and the result of a fetch.

Network and HTTP errors are values (`FetchProblem`), not exceptions.
"""

from dataclasses import dataclass
from enum import StrEnum

from msgspec import Struct

from tidings.fetch.validators import NO_VALIDATORS, Validators


@dataclass(frozen=True)
class FetchSettings:
    """Settings of the fetcher that an operator can change."""

    contact_url: str = ""  #: URL in the User-Agent where publishers can reach the operator
    allow_private: bool = False  #: whether private, loopback and link-local addresses are allowed
    max_bytes: int = 10_000_000  #: maximum size of a document, before and after decompression
    timeout_s: float = 30.0  #: time for a request with its complete response
    connect_timeout_s: float = 10.0
    redirects: int = 5  #: maximum number of redirects
    concurrency: int = 100  #: maximum number of concurrent requests to all hosts
    host_spacing_s: float = 1.0  #: minimum time between two requests to one public host
    treat_private_as_public: bool = False  #: whether host limits apply to private hosts too


class FetchRequest(Struct, frozen=True):
    """Request for the document of a feed."""

    url: str
    validators: Validators = NO_VALIDATORS
    body_digest: bytes = b""  #: digest of the last document, to recognize an unchanged one
    subscribers: int = 1  #: number of subscribers that is sent in the User-Agent
    want_delta: bool = True  #: whether the server may send only new entries (RFC 3229, A-IM: feed)
    usual_gap_s: float | None = None  #: usual time between posts, to detect a false 304


class Problem(StrEnum):
    """Kind of failure of a fetch."""

    URL = "url"  #: the URL is invalid
    BLOCKED = "blocked"  #: the host has a private address
    DNS = "dns"
    CONNECT = "connect"
    TLS = "tls"
    TIMEOUT = "timeout"
    STATUS = "status"  #: the response has an error status
    REDIRECTS = "redirects"  #: there is a redirect loop, or there are too many redirects
    TOO_LARGE = "too large"
    BROKEN = "broken"  #: the response is incomplete, empty, invalid or cannot be decompressed
    PAUSED = "paused"  #: no request was sent, because the host is paused
    UNREADABLE = "unreadable"  #: the document is complete but not a feed


class FetchProblem(Struct, frozen=True):
    """Expected failure of a fetch."""

    kind: Problem
    message: str  #: phrase for display, without a final period
    response_text: str = ""  #: beginning of the error response's body


class FetchResult(Struct, frozen=True):
    """Result of a fetch, with or without a document."""

    url: str  #: URL of the response after redirects, without user name and password
    status: int = 0  #: HTTP status, or 0 if there was no response
    body: bytes | None = None  #: document, or None if there is none or it is unchanged
    digest: bytes = b""  #: digest of the last complete document, for the next request
    content_type: str = ""
    validators: Validators = NO_VALIDATORS  #: validators for the next request, also after errors
    fresh_until: float | None = None
    retry_at: float | None = None  #: earliest time of the next request (Retry-After, host pause)
    moved_to: str | None = None  #: target of permanent redirects (see `error_policy.Move`)
    hubs: tuple[str, ...] = ()  #: WebSub hubs in Link headers, which take precedence
    self_url: str = ""  #: WebSub self link in Link headers
    error: FetchProblem | None = None
    unchanged: bool = False
    delta: bool = False  #: whether the body has only new entries (226)
    rate_limited: bool = False  #: whether the host limits the rate of requests
    bot_challenged: bool = False  #: whether bot protection responded instead of the publisher
    wire_bytes: int = 0  #: size in bytes of all bodies as transferred
    elapsed_s: float = 0.0
    requests: int = 0  #: number of HTTP requests sent
