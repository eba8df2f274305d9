"""URL functions of the fetcher for parsing, credentials and host keys.

URLs are parsed without normalization.
"""

from base64 import b64encode

from yarl import URL

from tidings.i18n import _


def parse_url(text: str, base: URL | None = None) -> URL:
    """Parse a URL, relative to ``base`` if given, without changing its bytes.

    Only characters that cannot be sent (spaces, non-ASCII) are escaped. Raises `ValueError` if the
    text is not an http or https URL with a host.
    """
    text = text.strip()
    exact = text.isascii() and text.isprintable() and " " not in text
    url = URL(
        text if exact else text.encode("utf-8", "surrogateescape").decode("utf-8", "replace"),
        encoded=exact,
    )
    if base is not None:
        url = base.join(url)
    if url.scheme not in ("http", "https"):
        raise ValueError(_("the address must start with http:// or https://"))
    if not url.raw_host:
        raise ValueError(_("the address has no host name"))
    url.port  # noqa: B018  # raises ValueError if the port is invalid
    return url


def host_key(url: URL) -> str:
    """Return scheme, name and port of a URL as the key for the host limiter."""
    return f"{url.scheme}://{url.host_port_subcomponent}".lower()


def strip_userinfo(url: URL) -> URL:
    """Return the URL without user name, password and fragment."""
    if url.raw_user is not None or url.raw_password is not None:
        url = url.with_user(None)
    return url.with_fragment(None) if url.raw_fragment else url


def authorization(url: URL) -> str:
    """Return the value of the Authorization header for a URL (Basic, RFC 7617).

    Returns an empty string if the URL has no user name and password. The header must be sent only
    to the origin of the URL.
    """
    if url.raw_user is None and url.raw_password is None:
        return ""
    return "Basic " + b64encode(f"{url.user or ''}:{url.password or ''}".encode()).decode()


def with_userinfo_of(requested_url: URL, moved_url: URL) -> URL:
    """Return ``moved_url`` with the user name and password of ``requested_url``.

    They are added only if both URLs have the same origin.
    """
    if (
        requested_url.raw_user is None and requested_url.raw_password is None
    ) or requested_url.origin() != moved_url.origin():
        return moved_url
    return moved_url.with_user(requested_url.user or "").with_password(
        requested_url.password or None
    )
