"""Send notifications through Apprise (mail, ntfy, Matrix, ...), protected against SSRF.

Needs the extra ``alerts``. Users choose the notification URL, but the request comes from this
server, so it must not reach private networks or local files. Apprise opens sockets through many
libraries; a Python audit hook (PEP 578) sees all of them, after name resolution and after each
redirect. While a thread sends a notification, the hook blocks connections to non-public addresses.
"""

import re
import sys
import threading
from datetime import UTC, datetime
from functools import cache
from typing import Any
from zoneinfo import ZoneInfo

from tidings.errors import TidingsError, UsageError
from tidings.fetch.ssrf import BlockedAddress, is_public
from tidings.i18n import _
from tidings.store.user_models import Settings

#: URL schemes of Apprise that act on the server itself, such as its desktop, log or hardware.
_LOCAL_SCHEMES = frozenset(
    {"dbus", "qt", "kde", "glib", "gnome", "macosx", "windows", "syslog", "blink1"}
)
#: URL parameters with which Apprise reads a local file.
_READS_FILES = re.compile(r"[?&](?:template|keyfile|subfile|pgpkey)=", re.IGNORECASE)
#: Audit events that the interpreter raises before data leaves a socket.
_SOCKET_EVENTS = ("socket.connect", "socket.sendto", "socket.sendmsg")

_thread = threading.local()


def check_address(url: str) -> None:
    """Raise `UsageError` for a URL that Apprise does not support or that is not allowed."""
    _plugin(url)


def send(url: str, title: str, body: str, *, allow_private: bool) -> bool:
    """Send a notification through Apprise and return whether it was delivered.

    This function blocks, so callers run it in a thread. ``allow_private`` permits connections to
    private networks.
    """
    plugin = _plugin(url)
    _install_audit_hook()
    _thread.public_only = not allow_private
    try:
        return bool(plugin.notify(title=title, body=body))
    finally:
        _thread.public_only = False


def is_quiet_hour(settings: Settings, now: float) -> bool:
    """Return whether ``now`` (epoch seconds) is in the quiet hours of the user's time zone."""
    try:
        hour = datetime.fromtimestamp(now, ZoneInfo(settings.timezone)).hour
    except (KeyError, ValueError, OSError):  # a time zone that is not installed
        hour = datetime.fromtimestamp(now, UTC).hour
    begin, end = settings.quiet_from, settings.quiet_until
    return begin <= hour < end if begin <= end else hour >= begin or hour < end


def _plugin(url: str) -> Any:
    try:
        from apprise import Apprise
    except ImportError:
        raise TidingsError(
            _("notifications need Apprise; install it with: pip install 'tidings[alerts]'")
        ) from None

    scheme = url.partition(":")[0].strip().lower()
    if scheme in _LOCAL_SCHEMES or _READS_FILES.search(url):
        raise UsageError(
            _(
                "%(scheme)s:// is not allowed for notifications; use a network "
                "service such as ntfy://ntfy.sh/topic",
                scheme=scheme,
            )
        )
    plugin = Apprise.instantiate(url)
    if plugin is None:
        raise UsageError(
            _(
                "%(scheme)s:// is not a valid Apprise URL; an example is ntfy://ntfy.sh/topic",
                scheme=scheme,
            )
        )
    return plugin


@cache
def _install_audit_hook() -> None:
    """Install the audit hook once per process, as Python cannot remove it again."""

    def audit_hook(event: str, arguments: tuple[Any, ...]) -> None:
        if event in _SOCKET_EVENTS and getattr(_thread, "public_only", False):
            address = arguments[1]
            # An address that is not a tuple is the path of a Unix socket.
            if not (isinstance(address, tuple) and is_public(str(address[0]))):
                raise BlockedAddress

    sys.addaudithook(audit_hook)
