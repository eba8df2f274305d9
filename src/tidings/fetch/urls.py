"""Addresses as they were given: asked for byte by byte, with what belongs to us (name, password, fragment) taken off."""

from base64 import b64encode

from yarl import URL


def parse_url(text: str, base: URL | None = None) -> URL:
    """An address as it stands, relative to `base` where there is one; only what cannot be sent (spaces, umlauts) is escaped."""
    text = text.strip()
    exact = text.isascii() and text.isprintable() and " " not in text
    url = URL(
        text if exact else text.encode("utf-8", "surrogateescape").decode("utf-8", "replace"),
        encoded=exact,
    )
    if base is not None:
        url = base.join(url)
    if url.scheme not in ("http", "https"):
        raise ValueError(
            f"only http and https addresses can be asked, not {url.scheme or 'one without a scheme'}"
        )
    if not url.raw_host:
        raise ValueError("it names no host")
    _ = url.port  # raises where it is none
    return url


def host_key(url: URL) -> str:
    """What the gate calls the host of an address."""
    return f"{url.scheme}://{url.host_port_subcomponent}".lower()


def strip_userinfo(url: URL) -> URL:
    """Without name, password and fragment: none of them is part of what is asked for."""
    if url.raw_user is not None or url.raw_password is not None:
        url = url.with_user(None)
    return url.with_fragment(None) if url.raw_fragment else url


def authorization(url: URL) -> str:
    """Basic credentials from the address; they go to its own host alone (RFC 7617)."""
    if url.raw_user is None and url.raw_password is None:
        return ""
    return "Basic " + b64encode(f"{url.user or ''}:{url.password or ''}".encode()).decode()


def with_userinfo_of(requested_url: URL, moved_url: URL) -> URL:
    """A move on the same host keeps the name and password, which it cannot have told."""
    if (
        requested_url.raw_user is None and requested_url.raw_password is None
    ) or requested_url.origin() != moved_url.origin():
        return moved_url
    return moved_url.with_user(requested_url.user or "").with_password(
        requested_url.password or None
    )
