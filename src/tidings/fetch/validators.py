"""What a server gave us to ask "has it changed?" with, and when to doubt its answer.

`ETag` and `Last-Modified` are opaque: they are kept and sent back byte for byte, never parsed, mended or made up (RFC 9110
sect. 8.8). Text here has one character per byte (latin-1), so that any byte survives a database. The two are one set: a
document replaces both, and they belong to the address that sent them.
"""

from msgspec import Struct
from msgspec.structs import replace

from tidings.model import DAY_S

#: A feed that has answered nothing but 304 for four times its usual gap, and for at least this long, is asked once without
#: conditions: there are servers whose 304 never ends (NetNewsWire forgets validators after 8 days for this reason).
FULL_REQUEST_AFTER_S = 8 * DAY_S
FULL_REQUEST_AFTER_GAPS = 4
#: The same where nobody knows yet how often the feed posts.
FULL_REQUEST_AFTER_UNKNOWN_S = 30 * DAY_S


class Validators(Struct, frozen=True):
    """The validators of one document."""

    etag: str | None = None
    last_modified: str | None = None
    url: str = ""  #: the address that sent them, after redirects; they are sent nowhere else
    since: float = (
        0.0  #: when the document itself last came, or was last asked for without conditions
    )

    def for_request(
        self, url: str, now: float, usual_gap_s: float | None = None
    ) -> tuple[str | None, str | None]:
        """(If-None-Match, If-Modified-Since) for a request to `url`: both where both are known; none where in doubt."""
        if url != self.url or self.needs_full_request(now, usual_gap_s):
            return None, None
        return self.etag, self.last_modified

    def needs_full_request(self, now: float, usual_gap_s: float | None = None) -> bool:
        """Whether so long a silence should be checked by asking for the whole document."""
        limit_s = (
            FULL_REQUEST_AFTER_UNKNOWN_S
            if usual_gap_s is None
            else max(FULL_REQUEST_AFTER_S, FULL_REQUEST_AFTER_GAPS * usual_gap_s)
        )
        return now - self.since >= limit_s

    def after_document(
        self, etag: str | None, last_modified: str | None, url: str, now: float
    ) -> "Validators":
        """200 and 226 replace both, even if only one came: a mix of old and new describes no document."""
        return Validators(etag or None, last_modified or None, url, now)

    def after_304(self, etag: str | None, last_modified: str | None) -> "Validators":
        """Headers that came with a 304 replace, absent ones are kept (RFC 9111 sect. 3.2, 4.3.4)."""
        if not etag and not last_modified:
            return self
        return replace(
            self, etag=etag or self.etag, last_modified=last_modified or self.last_modified
        )

    def after_unconditional_request(self, now: float) -> "Validators":
        """A request without conditions went out, whatever came of it: doubt may not return sooner than at the first time."""
        return replace(self, since=now)


NO_VALIDATORS = Validators()
