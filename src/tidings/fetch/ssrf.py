"""SSRF protection, which blocks connections to private, loopback and link-local addresses.

Feed URLs and redirects are untrusted: without this check they could cause requests to a router, a
cloud's metadata service or a local database. The address is checked when the socket is created,
after name resolution, so DNS rebinding cannot bypass the check. The check covers IP literals,
resolved names and redirects.
"""

import socket
from collections.abc import Callable
from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address
from typing import Any

#: Well-known NAT64 prefix (RFC 6052), through which IPv6-only networks reach IPv4 hosts.
_NAT64 = IPv6Network("64:ff9b::/96")

AddrInfo = tuple[int | socket.AddressFamily, int | socket.SocketKind, int, str, tuple[Any, ...]]


class BlockedAddress(OSError):
    """Error raised when an address is not public.

    It is an OSError because aiohappyeyeballs tries a name's next address only after OSErrors. The
    message is the same for every address because aiohappyeyeballs merges errors with different
    messages into another error.
    """

    def __init__(self) -> None:
        super().__init__("not a public address; to allow it, set fetch.allow_private = true")


@lru_cache(maxsize=65536)  # called twice per request, and parsing addresses is slow
def is_public(address: str) -> bool:
    """Return whether an IP address, or the IPv4 address embedded in it, is public.

    Returns False if ``address`` is not an IP address.
    """
    try:
        ip = ip_address(address.partition("%")[0])
    except ValueError:
        return False
    return _is_public_ip(ip)


def is_ip_literal(host: str) -> bool:
    """Return whether the host of a URL is an IP address."""
    return ":" in host or host.rpartition(".")[2].isdigit()


def _is_public_ip(ip: IPv4Address | IPv6Address) -> bool:
    if isinstance(ip, IPv6Address):
        embedded = (
            ip.ipv4_mapped
            or ip.sixtofour
            or (IPv4Address(int(ip) & 0xFFFFFFFF) if ip in _NAT64 else None)
        )
        if embedded is not None:
            return _is_public_ip(embedded)
        if ip.is_site_local:
            return False
    return ip.is_global and not ip.is_multicast and not ip.is_reserved


def ssrf_safe_socket_factory(allow_private: bool) -> Callable[[AddrInfo], socket.socket]:
    """Return a socket factory that raises `BlockedAddress` for addresses that are not public."""

    def make_socket(info: AddrInfo) -> socket.socket:
        family, kind, protocol, _, address = info
        if not allow_private and not is_public(str(address[0])):
            raise BlockedAddress
        return socket.socket(family, kind, protocol)

    return make_socket
