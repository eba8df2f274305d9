"""Requests stay on the public internet unless the operator says otherwise.

Feeds come from strangers, and so do redirects: without a guard any of them could make us ask the router, a cloud's metadata
service or a database on this machine. The address is checked at the moment of connecting, after name resolution, so there
is no gap in which a name could change its mind; literals, resolved names and redirects all pass here.
"""

import socket
from collections.abc import Callable
from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address
from typing import Any

#: The well-known prefix of translators (RFC 6052): on a network without IPv4, every IPv4 host is asked through it.
_NAT64 = IPv6Network("64:ff9b::/96")

AddrInfo = tuple[int | socket.AddressFamily, int | socket.SocketKind, int, str, tuple[Any, ...]]


class BlockedAddress(OSError):
    """Refused to connect.

    An OSError, because the library goes on to a name's next address after those alone, and with the same words for every
    address, because it joins different errors into one that does not tell.
    """

    def __init__(self) -> None:
        super().__init__("not a public address; fetch.allow_private = true lets it be asked")


@lru_cache(maxsize=65536)  # asked twice for every request, and parsing addresses is slow
def is_public(address: str) -> bool:
    """Whether an IP address, or the IPv4 address hidden in it, belongs to the public internet; False for no address."""
    try:
        ip = ip_address(address.partition("%")[0])
    except ValueError:
        return False
    return _is_public_ip(ip)


def is_ip_literal(host: str) -> bool:
    """Whether a URL's host is an address already."""
    return ":" in host or host.rpartition(".")[2].isdigit()


def _is_public_ip(ip: IPv4Address | IPv6Address) -> bool:
    if isinstance(ip, IPv6Address):
        hidden = (
            ip.ipv4_mapped
            or ip.sixtofour
            or (IPv4Address(int(ip) & 0xFFFFFFFF) if ip in _NAT64 else None)
        )
        if hidden is not None:
            return _is_public_ip(hidden)
        if ip.is_site_local:
            return False
    return ip.is_global and not ip.is_multicast and not ip.is_reserved


def ssrf_safe_socket_factory(allow_private: bool) -> Callable[[AddrInfo], socket.socket]:
    """A factory of sockets that refuses before anything is sent."""

    def make(info: AddrInfo) -> socket.socket:
        family, kind, protocol, _, address = info
        if not allow_private and not is_public(str(address[0])):
            raise BlockedAddress
        return socket.socket(family, kind, protocol)

    return make
