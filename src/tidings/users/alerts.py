"""Alerts go out through Apprise, which knows mail, ntfy, Matrix and a hundred others (the extra ``alerts``).

Users name the address, and the request is ours: so it must not reach into our own network, nor read our files. Apprise opens
its own sockets, by libraries of all kinds; what they all pass is the interpreter, which tells of every connection before it
is made. In the thread that sends, only the public internet is let through, after name resolution and after every redirect.
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
from tidings.store.user_models import Settings

#: These speak to the screen, the log or the lamps of the machine that runs the service.
_LOCAL = frozenset({"dbus", "qt", "kde", "glib", "gnome", "macosx", "windows", "syslog", "blink1"})
#: Parameters by which Apprise would read a file of that machine.
_READS_FILES = re.compile(r"[?&](?:template|keyfile|subfile|pgpkey)=", re.IGNORECASE)
_SENDS = ("socket.connect", "socket.sendto", "socket.sendmsg")

_thread = threading.local()


def check_address(url: str) -> None:
    """Refuses what Apprise does not know, and what it must not do here."""
    _plugin(url)


def send(url: str, title: str, body: str, *, allow_private: bool) -> bool:
    """Whether it has arrived. Waits: for a thread."""
    plugin = _plugin(url)
    _install_audit_hook()
    _thread.public_only = not allow_private
    try:
        return bool(plugin.notify(title=title, body=body))
    finally:
        _thread.public_only = False


def is_quiet_hour(settings: Settings, now: float) -> bool:
    """Whether it is one of the hours of the user's day in which nobody is alerted."""
    try:
        hour = datetime.fromtimestamp(now, ZoneInfo(settings.timezone)).hour
    except (KeyError, ValueError, OSError):  # a zone that this machine does not know
        hour = datetime.fromtimestamp(now, UTC).hour
    begin, end = settings.quiet_from, settings.quiet_until
    return begin <= hour < end if begin <= end else hour >= begin or hour < end


def _plugin(url: str) -> Any:
    try:
        from apprise import Apprise
    except ImportError:
        raise TidingsError(
            "alerts need Apprise; install it with: pip install 'tidings[alerts]'"
        ) from None

    scheme = url.partition(":")[0].strip().lower()
    if scheme in _LOCAL or _READS_FILES.search(url):
        raise UsageError(f"an alert cannot use this machine's screen, log or files: {scheme}://")
    plugin = Apprise.instantiate(url)
    if plugin is None:
        raise UsageError(
            f"{scheme}:// is not an address that Apprise knows; write one such as ntfy://ntfy.sh/mine"
        )
    return plugin


@cache
def _install_audit_hook() -> None:
    """Once for the process; the interpreter lets nobody take it back."""

    def audit_hook(event: str, arguments: tuple[Any, ...]) -> None:
        if event in _SENDS and getattr(_thread, "public_only", False):
            address = arguments[1]
            if not (
                isinstance(address, tuple) and is_public(str(address[0]))
            ):  # a path is a socket of this machine
                raise BlockedAddress

    sys.addaudithook(audit_hook)
