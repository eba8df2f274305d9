"""Validators of conditional requests, which are ETag and Last-Modified (RFC 9110 sect. 8.8).

They are opaque: stored and sent back byte for byte, never parsed or changed. Strings here have one
character per byte (latin-1), so that any byte can be stored in a database. The two are one set: a
document replaces both, and they are sent only to the URL that they came from.
"""

from msgspec import Struct
from msgspec.structs import replace

from tidings.model import DAY_S

#: Minimum time in seconds without a document after which a feed is requested once without
#: conditions, because some servers send 304 indefinitely (NetNewsWire drops validators after 8 days
#: for this reason).
FULL_REQUEST_AFTER_S = 8 * DAY_S
#: The same minimum time as a multiple of the usual time between two posts.
FULL_REQUEST_AFTER_GAPS = 4
#: The same minimum time in seconds if the usual time between two posts is unknown.
FULL_REQUEST_AFTER_UNKNOWN_S = 30 * DAY_S


class Validators(Struct, frozen=True):
    """ETag and Last-Modified of one document."""

    etag: str | None = None
    last_modified: str | None = None
    url: str = ""  #: URL of the document after redirects
    since: float = 0.0  #: time of the last document or of the last unconditional request

    def for_request(
        self, url: str, now: float, usual_gap_s: float | None = None
    ) -> tuple[str | None, str | None]:
        """Return the values of (If-None-Match, If-Modified-Since) for a request to ``url``.

        Both are None for another URL and if an unconditional request is due. ``usual_gap_s`` is the
        usual time in seconds between two posts, or None if unknown.
        """
        if url != self.url or self.needs_full_request(now, usual_gap_s):
            return None, None
        return self.etag, self.last_modified

    def needs_full_request(self, now: float, usual_gap_s: float | None = None) -> bool:
        """Return whether to request the full document, after too long a time with only 304."""
        limit_s = (
            FULL_REQUEST_AFTER_UNKNOWN_S
            if usual_gap_s is None
            else max(FULL_REQUEST_AFTER_S, FULL_REQUEST_AFTER_GAPS * usual_gap_s)
        )
        return now - self.since >= limit_s

    def after_document(
        self, etag: str | None, last_modified: str | None, url: str, now: float
    ) -> "Validators":
        """Return the validators after a response with a document (200 or 226).

        Both are replaced, even if the response has only one, because a mix of old and new
        validators would describe no document.
        """
        return Validators(etag or None, last_modified or None, url, now)

    def after_304(self, etag: str | None, last_modified: str | None) -> "Validators":
        """Return the validators after a 304 response. Headers in the response replace the old ones.

        See RFC 9111 sect. 3.2 and 4.3.4.
        """
        if not etag and not last_modified:
            return self
        return replace(
            self, etag=etag or self.etag, last_modified=last_modified or self.last_modified
        )

    def after_unconditional_request(self, now: float) -> "Validators":
        """Return the validators after an unconditional request with any result.

        The next unconditional request then waits for the full time again.
        """
        return replace(self, since=now)


NO_VALIDATORS = Validators()
