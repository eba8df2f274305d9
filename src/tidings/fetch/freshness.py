"""What a response says about when to come back: `Cache-Control`, `Expires`, `Age` (RFC 9111) and `Retry-After` (RFC 9110).

The answer is always a time by our own clock. Dates of the server are read relative to its own `Date` header, so that a
server whose clock is wrong still gets what it meant.
"""

import re
from email.utils import mktime_tz, parsedate_tz

from multidict import MultiMapping

from tidings.model import DAY_S

#: Freshness is believed up to a day. Longer ones are mostly rules for static files that happen to catch a feed; max-age has
#: been seen as long as 16 years.
MAX_FRESH_S = DAY_S
#: Told to stay away is told to stay away, up to the month after which even a dead feed is tried. Firewalls have been seen to
#: send ten years.
MAX_RETRY_AFTER_S = 31 * DAY_S

_MAX_AGE = re.compile(r'(?:^|[,\s])max-age\s*=\s*"?(\d+)', re.IGNORECASE)


class CacheControl:
    """The one directive that matters to a poller.

    `s-maxage` is for shared caches in front of us; `no-cache`, `no-store` and `max-age=0` forbid keeping, they do not ask to
    be polled faster, so they say nothing here.
    """

    def __init__(self, text: str) -> None:
        found = _MAX_AGE.search(text)
        # Of several the first counts (RFC 9111 sect. 4.2.1). More digits than any date has would only overflow.
        self.max_age_s: float | None = float(found[1][:12]) if found else None


class HttpDate:
    """A date of a header, in whichever of the three forms (RFC 9110 sect. 5.6.7); `time` is None where it is none."""

    def __init__(self, text: str | None) -> None:
        self.time: float | None = None
        parts = parsedate_tz(text) if text else None
        if parts is not None:
            try:
                self.time = float(mktime_tz(parts))
            except (ValueError, OverflowError):
                self.time = None


class RetryAfter:
    """Seconds or a date; `wait_s` is None where it says nothing we could keep to."""

    def __init__(self, text: str | None, server_now: float) -> None:
        self.wait_s: float | None = None
        text = (text or "").strip()
        if text.isascii() and text.isdigit():
            self.wait_s = float(text[:12])
        elif text:
            date = HttpDate(text).time
            self.wait_s = None if date is None else date - server_now
        # "Retry-After: 0" and dates gone by come from servers that are busy all the same: our own back-off serves better.
        if self.wait_s is not None:
            self.wait_s = min(self.wait_s, MAX_RETRY_AFTER_S) if self.wait_s > 0 else None


def fresh_until(headers: MultiMapping[str], now: float) -> float | None:
    """Until when the document is fresh by its publisher's word; None where nothing was said. 304 says it too."""
    lifetime: float | None = None
    if "Cache-Control" in headers:
        lifetime = CacheControl(", ".join(headers.getall("Cache-Control"))).max_age_s
    if lifetime is None and "Expires" in headers:
        expires = HttpDate(headers["Expires"]).time  # "0" and "-1" are common, and mean expired
        lifetime = None if expires is None else expires - _server_now(headers, now)
    if lifetime is None:
        return None
    age = headers.get("Age", "").strip()
    if age.isascii() and age.isdigit():
        lifetime -= float(age[:12])
    return now + min(lifetime, MAX_FRESH_S) if lifetime > 0 else None


def retry_at(headers: MultiMapping[str], now: float) -> float | None:
    """The time before which the server does not want to be asked again; None where it did not say."""
    if "Retry-After" not in headers:
        return None
    wait_s = RetryAfter(headers["Retry-After"], _server_now(headers, now)).wait_s
    return None if wait_s is None else now + wait_s


def _server_now(headers: MultiMapping[str], now: float) -> float:
    date = HttpDate(headers.get("Date")).time
    return now if date is None else date
