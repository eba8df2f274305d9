"""HTTP cache freshness (RFC 9111) and the header Retry-After (RFC 9110).

Freshness follows from the headers Cache-Control, Expires and Age. Results are times of the local
clock. Dates in headers are interpreted relative to the response's `Date` header, so that a wrong
server clock does not matter.
"""

import re
from email.utils import mktime_tz, parsedate_tz

from multidict import MultiMapping

from tidings.model import DAY_S

#: Maximum freshness lifetime in seconds that is respected. Longer lifetimes are mostly rules for
#: static files that also match the feed. Values of up to 16 years have been seen.
MAX_FRESH_S = DAY_S
#: Maximum Retry-After in seconds that is respected. Some firewalls send ten years.
MAX_RETRY_AFTER_S = 31 * DAY_S

_MAX_AGE = re.compile(r'(?:^|[,\s])max-age\s*=\s*"?(\d+)', re.IGNORECASE)


class CacheControl:
    """Value of the directive max-age in a Cache-Control header.

    Other directives are ignored: `s-maxage` is for shared caches, and `no-cache`, `no-store` and
    `max-age=0` forbid caching but do not request more frequent polls.
    """

    def __init__(self, text: str) -> None:
        match = _MAX_AGE.search(text)
        # The first of several values is used (RFC 9111 sect. 4.2.1). More digits could overflow.
        self.max_age_s: float | None = float(match[1][:12]) if match else None


class HttpDate:
    """HTTP date in any of its three formats (RFC 9110 sect. 5.6.7).

    `time` is None if the date is invalid.
    """

    def __init__(self, text: str | None) -> None:
        self.time: float | None = None
        parts = parsedate_tz(text) if text else None
        if parts is not None:
            try:
                self.time = float(mktime_tz(parts))
            except (ValueError, OverflowError):
                self.time = None


class RetryAfter:
    """Value of a Retry-After header, in seconds or as a date (RFC 9110 sect. 10.2.3).

    `wait_s` is None if the header is missing, invalid or not in the future.
    """

    def __init__(self, text: str | None, server_now: float) -> None:
        self.wait_s: float | None = None
        text = (text or "").strip()
        if text.isascii() and text.isdigit():
            self.wait_s = float(text[:12])
        elif text:
            date = HttpDate(text).time
            self.wait_s = None if date is None else date - server_now
        # Overloaded servers also send "Retry-After: 0" and past dates. The backoff is used then.
        if self.wait_s is not None:
            self.wait_s = min(self.wait_s, MAX_RETRY_AFTER_S) if self.wait_s > 0 else None


def fresh_until(headers: MultiMapping[str], now: float) -> float | None:
    """Return the time until which a response (200 or 304) is fresh.

    Returns None if the headers do not state it.
    """
    lifetime: float | None = None
    if "Cache-Control" in headers:
        lifetime = CacheControl(", ".join(headers.getall("Cache-Control"))).max_age_s
    if lifetime is None and "Expires" in headers:
        expires = HttpDate(headers["Expires"]).time  # None for "0" and "-1", which mean expired
        lifetime = None if expires is None else expires - _server_now(headers, now)
    if lifetime is None:
        return None
    age = headers.get("Age", "").strip()
    if age.isascii() and age.isdigit():
        lifetime -= float(age[:12])
    return now + min(lifetime, MAX_FRESH_S) if lifetime > 0 else None


def retry_at(headers: MultiMapping[str], now: float) -> float | None:
    """Return the earliest time of the next request according to Retry-After.

    Returns None if there is no valid Retry-After header.
    """
    if "Retry-After" not in headers:
        return None
    wait_s = RetryAfter(headers["Retry-After"], _server_now(headers, now)).wait_s
    return None if wait_s is None else now + wait_s


def _server_now(headers: MultiMapping[str], now: float) -> float:
    date = HttpDate(headers.get("Date")).time
    return now if date is None else date
