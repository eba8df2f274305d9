"""Render HTML with Jinja templates, with filters for dates, durations and icons."""

import base64
import hashlib
from datetime import UTC, datetime, tzinfo
from functools import cache
from importlib.resources import files
from typing import Any
from urllib.parse import urlsplit
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError, available_timezones

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from tidings import __version__, i18n
from tidings.document import Enclosure
from tidings.formatting import ago, duration_short, figures, size
from tidings.i18n import _, n_
from tidings.parse.sanitize import plain_text
from tidings.reasons import render as render_reason
from tidings.redaction import redact_password, strip_credentials
from tidings.store.user_models import Item, Settings

STATIC = files("tidings.web") / "static"
#: Media types of embedded video players, as YouTube and Vimeo declare them in Media RSS.
VIDEO_PLAYER_TYPES = ("application/x-shockwave-flash", "application/x-mpegurl")


def content_security_policy(own_images: bool = False) -> str:
    """Return the Content-Security-Policy header of pages.

    Only scripts and styles of this site are allowed, and no framing. Images may come from any site,
    or with ``own_images`` only from the image proxy.
    """
    images = "'self'" if own_images else "'self' https: http:"
    return (
        f"default-src 'none'; script-src 'self'; style-src 'self'; img-src {images};"
        " media-src https: http:; connect-src 'self'; manifest-src 'self'; worker-src 'self';"
        " form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    )


@cache
def version() -> str:
    """Return a digest of all static files, which is part of their URLs (cache busting)."""
    digest = hashlib.blake2b(digest_size=5)
    for file in sorted(STATIC.iterdir(), key=lambda file: file.name):
        digest.update(file.read_bytes())
    return base64.b32encode(digest.digest()).decode().lower()


def asset(name: str) -> str:
    """Return the URL of a static file.

    The version is a directory, so that scripts that import each other load the same version.
    """
    return f"/static/{version()}/{name}"


@cache
def zone(name: str) -> tzinfo:
    """Return the time zone with this name, or UTC if the name is unknown."""
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return UTC


@cache
def zones() -> tuple[str, ...]:
    """Return the time zone names for the settings page."""
    return tuple(
        sorted(
            name
            for name in available_timezones()
            if "/" in name and not name.startswith(("Etc/", "posix", "right"))
        )
    )


def format_datetime(at: float | None, settings: Settings, now: float) -> str:
    """Return a time in the user's zone, such as ``9:05``, ``Tue 9:05`` or ``3 Nov 2026, 9:05``."""
    if at is None:
        return "–"
    user_zone = zone(settings.timezone)
    then, today = datetime.fromtimestamp(at, user_zone), datetime.fromtimestamp(now, user_zone)
    clock = f"{then.hour}:{then.minute:02d}"
    if then.date() == today.date():
        return clock
    if abs(now - at) < 6 * 86400:
        return f"{then:%a} {clock}"
    return f"{then.day} {then:%b %Y}, {clock}"


def time(at: float | None, settings: Settings, now: float, *, relative: bool = True) -> Markup:
    """Return a ``<time>`` element with a short text and the exact time as tooltip."""
    if at is None:
        return Markup("–")
    then = datetime.fromtimestamp(at, zone(settings.timezone))
    exact = f"{then.day} {then:%b %Y, %H:%M:%S %Z}"
    text = (
        _format_recent(now - at)
        if relative and 0 <= now - at < 3600
        else format_datetime(at, settings, now)
    )
    return Markup('<time datetime="{}" title="{}">{}</time>').format(
        then.isoformat(timespec="seconds"), exact, text
    )


def _format_recent(past_s: float) -> str:
    return (
        n_("%(num)s min ago", "%(num)s min ago", int(past_s // 60))
        if past_s >= 60
        else _("just now")
    )


def title(item: Item) -> str:
    """Return the entry's title, or the beginning of its text if it has none."""
    entry = item.entry
    if entry.title:
        return entry.title
    text = plain_text(entry.summary or entry.content)
    return (
        (text[:100].rpartition(" ")[0] + " …" if len(text) > 100 else text)
        or entry.url
        or _("(no title)")
    )


def body(item: Item) -> Markup:
    """Return the article's HTML, which `tidings.parse.sanitize` has sanitized."""
    return Markup(item.entry.content or item.entry.summary)


def format_arrival_delay(delay_s: float | None) -> str:
    """Return a text about the delay, such as ``fetched 6 min after publication``.

    ``delay_s`` is the time from publication to arrival; None gives "".
    """
    if delay_s is None:
        return ""
    return (
        _("fetched within a minute of publication")
        if delay_s < 60
        else _("fetched %(time)s after publication", time=format_span(delay_s))
    )


def format_span(seconds: float) -> str:
    """Return a rounded duration as text, such as ``7 min``, ``3 h`` or ``2 days``."""
    if seconds < 90 * 60:
        return _("%(num)s min", num=int(seconds / 60))
    if seconds < 36 * 3600:
        return _("%(num)s h", num=round(seconds / 3600))
    return _("%(num)s days", num=round(seconds / 86400))


def sentence(text: str) -> str:
    """Return a text with a capital first letter and a period; a URL at its start stays as is."""
    first = text[:1] if "://" in text.partition(" ")[0] else text[:1].upper()
    return first + text[1:] + ("" if text.endswith((".", "!", "?")) else ".")


def enclosure_label(file: Enclosure) -> str:
    """Return the label of a link to an attached file, such as ``Video (example.org)``."""
    if file.type.startswith("image/"):
        kind = _("Image")
    elif file.type in VIDEO_PLAYER_TYPES:
        kind = _("Video")
    else:
        kind = _("File: %(type)s", type=file.type) if file.type else _("File")
    return f"{kind} ({host(file.url)})"


def host(url: str) -> str:
    """Return the host name of a URL without ``www.``."""
    return (urlsplit(url).hostname or "").removeprefix("www.")


@cache
def icon(name: str) -> Markup:
    """Return an SVG icon in the current text color, hidden from screen readers."""
    return Markup(
        '<svg class="icon" viewBox="0 0 20 20" width="20" height="20" aria-hidden="true"'
        ' focusable="false">{}</svg>'
    ).format(Markup(ICONS[name]))


#: SVG content of the icons, on a 20 x 20 canvas with a stroke width of 1.5.
ICONS = {
    "unread": '<circle cx="10" cy="10" r="6.5"/><circle cx="10" cy="10" r="2.2" class="full"/>',
    "star": '<path d="M10 2.8l2.2 4.6 5 .7-3.6 3.5.9 5L10 14.2l-4.5 2.4.9-5L2.8 8.1l5-.7z"/>',
    "all": '<path d="M3 5h14M3 10h14M3 15h9"/>',
    "search": '<circle cx="8.7" cy="8.7" r="5.2"/><path d="M12.6 12.6L17 17"/>',
    "tag": '<path d="M3 3.5h6.5L17 11l-6 6-8-8z"/><circle cx="6.6" cy="6.9" r=".9" class="full"/>',
    "folder": '<path d="M2.8 5.2h5l1.6 1.9h7.8v8.4H2.8z"/>',
    "feed": '<path d="M4 9.2A6.8 6.8 0 0110.8 16M4 4.6A11.4 11.4 0 0115.4 16"/>'
    '<circle cx="5" cy="15" r="1.1" class="full"/>',
    "clock": '<circle cx="10" cy="10" r="7"/><path d="M10 5.8V10l2.9 1.8"/>',
    "gear": '<path d="M3 6h8M15 6h2M3 14h2M9 14h8"/>'
    '<circle cx="13" cy="6" r="1.9"/><circle cx="7" cy="14" r="1.9"/>',
    "plus": '<path d="M10 4v12M4 10h12"/>',
    "check": '<path d="M4 10.6l4 4L16.2 6"/>',
    "dot": '<circle cx="10" cy="10" r="4" class="full"/>',
    "open": '<path d="M8 4H4v12h12v-4M11 3.5h5.5V9M16.2 3.8L9 11"/>',
    "back": '<path d="M12.5 4L6.5 10l6 6"/>',
    "menu": '<path d="M3 5.5h14M3 10h14M3 14.5h14"/>',
    "down": '<path d="M5 8l5 5 5-5"/>',
    "close": '<path d="M5 5l10 10M15 5L5 15"/>',
    "refresh": '<path d="M16 10a6 6 0 11-1.8-4.3M16.2 3v3.4h-3.4"/>',
    "help": '<circle cx="10" cy="10" r="7"/>'
    '<path d="M7.9 8a2.1 2.1 0 114 .8c-.5.9-1.9 1.2-1.9 2.4M10 13.6v.3"/>',
    "users": '<circle cx="10" cy="7" r="3"/><path d="M4 16.5c.6-3.2 3-4.7 6-4.7s5.4 1.5 6 4.7"/>',
    "note": '<path d="M6 3.5h8M6 16.5h8M10 3.5v13"/>',
    "sun": '<circle cx="10" cy="10" r="3.4"/>'
    '<path d="M10 2.6v1.8M10 15.6v1.8M2.6 10h1.8M15.6 10h1.8M4.8 4.8L6 6M14 14l1.2 1.2'
    'M15.2 4.8L14 6M6 14l-1.2 1.2"/>',
}


@cache
def environment() -> Environment:
    """Return the Jinja environment with gettext, globals and filters."""
    env = Environment(
        loader=PackageLoader("tidings.web"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        extensions=["jinja2.ext.i18n"],
    )
    env.install_gettext_callables(  # type: ignore[attr-defined]  # the extension adds it
        i18n.translations.gettext, i18n.translations.ngettext, newstyle=True
    )
    env.globals |= {"icon": icon, "asset": asset, "program_version": __version__}
    env.globals |= {
        "time": time,
        "format_datetime": format_datetime,
        "format_arrival_delay": format_arrival_delay,
        "format_span": format_span,
    }
    env.globals |= {"item_title": title, "body": body, "host": host}
    env.globals["enclosure_label"] = enclosure_label
    env.filters |= {
        "duration": duration_short,
        "figures": figures,
        "sentence": sentence,
        "ago": ago,
        "size": size,
    }
    env.filters["reason"] = render_reason
    env.filters |= {"redact_password": redact_password, "strip_credentials": strip_credentials}
    env.filters["thousands"] = lambda number: f"{number:,}"
    return env


def render(template: str, values: dict[str, Any]) -> str:
    """Render a template of `tidings.web` with values and return the HTML."""
    return environment().get_template(template).render(values)


__all__ = ["Markup", "content_security_policy", "escape", "render"]
