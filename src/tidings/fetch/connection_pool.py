"""Connections to hosts: names looked up, addresses checked, encryption, and each kept a while for the host's next request.

One connection for each host is enough, since a host is asked for one thing at a time (`hosts`).
"""

import asyncio
import socket
import ssl
from functools import cached_property
from typing import TYPE_CHECKING, TypeAlias

from aiohappyeyeballs import start_connection
from yarl import URL

from tidings.fetch.http1 import Connection, Response, StaleConnection
from tidings.fetch.ssrf import AddrInfo, is_ip_literal, ssrf_safe_socket_factory

if TYPE_CHECKING:
    from aiodns import DNSResolver

#: Where a name has several addresses, the next is tried beside the one that has not answered for so long (RFC 8305).
HAPPY_EYEBALLS_DELAY_S = 0.25

Host: TypeAlias = tuple[str, str, int]


class ConnectTimeout(TimeoutError):
    """The host cannot be reached in time."""


class NameResolutionError(OSError):
    """The name cannot be resolved; says why."""


class ConnectionPool:
    """All of them. `close` it in the end."""

    def __init__(
        self, *, allow_private: bool, connect_timeout_s: float, keep_alive_s: float
    ) -> None:
        self.make_socket = ssrf_safe_socket_factory(allow_private)
        self._connect_timeout_s, self._keep_alive_s = connect_timeout_s, keep_alive_s
        self._idle: dict[Host, Connection] = {}
        self._sweep_timer: asyncio.TimerHandle | None = None
        self._addresses: dict[str, str] = {}
        self._resolver: DNSResolver | None = None

    async def send_request(
        self, url: URL, request: bytes, max_bytes: int, timeout_s: float, *, reuse: bool = True
    ) -> Response:
        """As `Connection.ask`, on a connection that was kept (unless not to ``reuse`` one) or a new one."""
        loop = asyncio.get_running_loop()
        host: Host = (url.scheme, url.raw_host or "", url.port or 0)
        deadline = loop.time() + timeout_s
        idle = self._idle.pop(host, None) if reuse else None
        if idle is not None and not idle.closed:
            try:
                return self._keep_alive(
                    host, idle, await idle.send_request(request, max_bytes, deadline)
                )
            except StaleConnection:
                pass  # nobody has heard the question
        connection = await self._connect(*host)
        return self._keep_alive(
            host, connection, await connection.send_request(request, max_bytes, deadline)
        )

    def address(self, host: str) -> str | None:
        """Of a host as it stands in a URL; None before the first connection to it."""
        return host if is_ip_literal(host) else self._addresses.get(host)

    async def close(self) -> None:
        if self._sweep_timer is not None:
            self._sweep_timer.cancel()
        for connection in self._idle.values():
            connection.close()
        self._idle.clear()
        if self._resolver is not None:
            await self._resolver.close()

    def _keep_alive(self, host: Host, connection: Connection, response: Response) -> Response:
        if not connection.closed:
            loop = asyncio.get_running_loop()
            connection.idle_since = loop.time()
            if (other := self._idle.get(host)) is not None:
                other.close()
            self._idle[host] = connection
            if self._sweep_timer is None:
                self._sweep_timer = loop.call_later(self._keep_alive_s, self._sweep)
        return response

    def _sweep(self) -> None:
        """Thousands of hosts would use up the files that may be open."""
        loop = asyncio.get_running_loop()
        for host, connection in list(self._idle.items()):
            if connection.closed or connection.idle_since <= loop.time() - self._keep_alive_s:
                connection.close()
                del self._idle[host]
        self._sweep_timer = loop.call_later(self._keep_alive_s, self._sweep) if self._idle else None

    async def _connect(self, scheme: str, host: str, port: int) -> Connection:
        loop = asyncio.get_running_loop()
        tls, name = (self.tls, host.rstrip(".")) if scheme == "https" else (None, None)
        try:
            async with asyncio.timeout(self._connect_timeout_s):
                found = await self._resolve(host, port)
                connected = await start_connection(
                    found,
                    happy_eyeballs_delay=HAPPY_EYEBALLS_DELAY_S,
                    interleave=1,
                    socket_factory=self.make_socket,
                )
                _, connection = await loop.create_connection(
                    Connection, sock=connected, ssl=tls, server_hostname=name
                )
        except TimeoutError as error:
            raise ConnectTimeout from error
        except RuntimeError as error:  # what uvloop says where others have an OSError
            raise OSError(str(error)) from error
        return connection

    @cached_property
    def tls(self) -> ssl.SSLContext:
        """Made for the first host that needs it: reading the system's certificates takes a while."""
        context = ssl.create_default_context()
        context.set_alpn_protocols(["http/1.1"])
        return context

    async def _resolve(self, host: str, port: int) -> list[AddrInfo]:
        if is_ip_literal(host):
            flags = socket.AI_NUMERICHOST | socket.AI_NUMERICSERV
            try:
                return list(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=flags))
            except socket.gaierror as error:
                raise NameResolutionError(error.strerror) from None
        from aiodns import DNSResolver  # here, because who polls addresses alone needs none
        from aiodns.error import DNSError

        if self._resolver is None:
            self._resolver = DNSResolver()
        try:
            found = await self._resolver.getaddrinfo(
                host,
                port=port,
                type=socket.SOCK_STREAM,
                family=socket.AF_UNSPEC,
                flags=socket.AI_ADDRCONFIG,
            )
        except DNSError as error:
            raise NameResolutionError(str(error.args[-1])) from None
        infos: list[AddrInfo] = [
            (node.family, socket.SOCK_STREAM, 0, "", (node.addr[0].decode("ascii"), *node.addr[1:]))
            for node in found.nodes
        ]
        if not infos:
            raise NameResolutionError("it has no address")
        self._addresses[host] = str(infos[0][4][0])
        return infos
