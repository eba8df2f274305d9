"""URL handling of the fetcher: parsing without normalization, credentials, host keys."""

from base64 import b64encode

from yarl import URL

from tidings.i18n import _


def parse_url(text: str, base: URL | None = None) -> URL:
    """Parse a URL, relative to ``base`` if given, and keep it byte for byte.

    Only characters that cannot be sent (spaces, non-ASCII) are escaped. Raises `ValueError` if it
    is not an http or https URL with a host.
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
        raise ValueError(_("it must start with http:// or https://"))
    if not url.raw_host:
        raise ValueError(_("it has no host name"))
    url.port  # noqa: B018  # raises ValueError if it is invalid
    return url


def host_key(url: URL) -> str:
    """Return the key of a URL's host for the host limiter: scheme, name and port."""
    return f"{url.scheme}://{url.host_port_subcomponent}".lower()


def strip_userinfo(url: URL) -> URL:
    """Return the URL without user name, password and fragment."""
    if url.raw_user is not None or url.raw_password is not None:
        url = url.with_user(None)
    return url.with_fragment(None) if url.raw_fragment else url


def authorization(url: URL) -> str:
    """Return the Authorization header for the URL's user name and password (Basic, RFC 7617).

    Returns an empty string without them. The header must be sent only to the URL's own origin.
    """
    if url.raw_user is None and url.raw_password is None:
        return ""
    return "Basic " + b64encode(f"{url.user or ''}:{url.password or ''}".encode()).decode()


def with_userinfo_of(requested_url: URL, moved_url: URL) -> URL:
    """Return ``moved_url`` with the user name and password of ``requested_url``, if same origin."""
    if (
        requested_url.raw_user is None and requested_url.raw_password is None
    ) or requested_url.origin() != moved_url.origin():
        return moved_url
    return moved_url.with_user(requested_url.user or "").with_password(
        requested_url.password or None
    )
