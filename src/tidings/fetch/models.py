"""What goes into a fetch and what comes out. Expected failures are values: a fetch never raises for what the web does."""

from dataclasses import dataclass
from enum import StrEnum

from msgspec import Struct

from tidings.fetch.validators import NO_VALIDATORS, Validators


@dataclass(frozen=True)
class FetchSettings:
    """What an operator may choose; everything else has one right value."""

    contact_url: str = (
        ""  #: in the User-Agent: where publishers reach the operator; better none than a wrong one
    )
    allow_private: bool = False  #: may private, loopback and link-local addresses be asked?
    max_bytes: int = 10_000_000  #: of a document, on the wire as well as unpacked
    timeout_s: float = 30.0  #: for a request with its answer, to the last byte
    connect_timeout_s: float = 10.0
    redirects: int = 5
    concurrency: int = 100  #: requests under way at once, to all hosts together
    host_spacing_s: float = 1.0  #: between requests to one host; private hosts are exempt
    treat_private_as_public: bool = (
        False  #: no exemptions for private hosts, for tests of politeness on loopback
    )


class FetchRequest(Struct, frozen=True):
    """One look at one feed."""

    url: str
    validators: Validators = NO_VALIDATORS
    body_digest: bytes = b""  #: of the last document; the same document again is not handed on
    subscribers: int = 1
    want_delta: bool = True  #: only new entries will do (RFC 3229 with "feed")
    usual_gap_s: float | None = None  #: between posts, where known: how long a silence is credible


class Problem(StrEnum):
    """Why there is no document."""

    URL = "url"  #: not an address that can be asked
    BLOCKED = "blocked"  #: resolves to a private address
    DNS = "dns"
    CONNECT = "connect"
    TLS = "tls"
    TIMEOUT = "timeout"
    STATUS = "status"  #: the server answered, with an error
    REDIRECTS = "redirects"  #: in a circle, or too many
    TOO_LARGE = "too large"
    BROKEN = "broken"  #: the answer broke off, cannot be unpacked, is empty, or is no HTTP
    PAUSED = "paused"  #: not asked, because its host has told us to wait
    UNREADABLE = "unreadable"  #: came whole, but is no feed; only who parses can know


class FetchProblem(Struct, frozen=True):
    """A failure that was to be expected."""

    kind: Problem
    message: str
    response_text: str = ""  #: the beginning of what the server had to say about it, as text


class FetchResult(Struct, frozen=True):
    """What came of a request."""

    url: str  #: where the answer came from, after redirects; without name and password
    status: int = 0  #: 0 where there was no answer
    body: bytes | None = None  #: None also where the document is the known one
    digest: bytes = b""  #: of the last whole document: this one, or as in the request
    content_type: str = ""
    validators: Validators = NO_VALIDATORS  #: to be kept for the next request, whatever happened
    fresh_until: float | None = None
    retry_at: float | None = (
        None  #: not before this, by the server's word or because its host is paused
    )
    moved_to: str | None = None  #: seen to have moved for good; see `outcomes.Move`
    hubs: tuple[str, ...] = ()  #: WebSub, from Link headers, which win over the document's
    self_url: str = ""
    error: FetchProblem | None = None
    unchanged: bool = False
    delta: bool = False  #: the body holds new entries alone (226)
    rate_limited: bool = False  #: the host wants to be asked less
    bot_challenged: bool = False  #: a robot check stood in the way, not the publisher
    wire_bytes: int = 0  #: of bodies, as transferred
    elapsed_s: float = 0.0
    requests: int = 0
