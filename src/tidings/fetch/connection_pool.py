"""HTTP connection pool with DNS resolution, SSRF check, TLS, Happy Eyeballs and keep-alive.

One connection per host is enough, because `host_limiter` allows one request per host at a time.
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

#: Delay in seconds before the next address of a name is tried in parallel (Happy Eyeballs,
#: RFC 8305).
HAPPY_EYEBALLS_DELAY_S = 0.25

#: Scheme, host name and port.
Host: TypeAlias = tuple[str, str, int]


class ConnectTimeout(TimeoutError):
    """Error raised when a connection was not established in time."""


class NameResolutionError(OSError):
    """Error raised when a host name cannot be resolved. The message is the DNS error."""


class ConnectionPool:
    """Pool of HTTP/1.1 connections with at most one idle connection per host.

    Call `close` at the end.
    """

    def __init__(
        self, *, allow_private: bool, connect_timeout_s: float, keep_alive_s: float
    ) -> None:
        """Create an empty pool.

        ``allow_private`` permits private addresses, and ``keep_alive_s`` is the time in seconds for
        which an idle connection stays open.
        """
        self.make_socket = ssrf_safe_socket_factory(allow_private)
        self._connect_timeout_s, self._keep_alive_s = connect_timeout_s, keep_alive_s
        self._idle: dict[Host, Connection] = {}
        self._sweep_timer: asyncio.TimerHandle | None = None
        self._addresses: dict[str, str] = {}
        self._resolver: DNSResolver | None = None

    async def send_request(
        self, url: URL, request: bytes, max_bytes: int, timeout_s: float, *, reuse: bool = True
    ) -> Response:
        """Send a request on an idle or new connection (see `Connection.send_request`).

        ``timeout_s`` is the time for the whole request. With ``reuse=False`` a new connection is
        used.
        """
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
                pass  # the server closed the connection before it got the request, so try a new one
        connection = await self._connect(*host)
        return self._keep_alive(
            host, connection, await connection.send_request(request, max_bytes, deadline)
        )

    def address(self, host: str) -> str | None:
        """Return the IP address of a host, or None before the first connection to that host."""
        return host if is_ip_literal(host) else self._addresses.get(host)

    async def close(self) -> None:
        """Close all idle connections and the resolver."""
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
        """Close expired idle connections, which could otherwise exceed the open file limit."""
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
                addresses = await self._resolve(host, port)
                sock = await start_connection(
                    addresses,
                    happy_eyeballs_delay=HAPPY_EYEBALLS_DELAY_S,
                    interleave=1,
                    socket_factory=self.make_socket,
                )
                _, connection = await loop.create_connection(
                    Connection, sock=sock, ssl=tls, server_hostname=name
                )
        except TimeoutError as error:
            raise ConnectTimeout from error
        except RuntimeError as error:  # uvloop raises RuntimeError where asyncio raises OSError
            raise OSError(str(error)) from error
        return connection

    @cached_property
    def tls(self) -> ssl.SSLContext:
        """TLS context, created on first use because loading the system's certificates is slow."""
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
        from aiodns import DNSResolver  # imported here because IP literals do not need it
        from aiodns.error import DNSError

        if self._resolver is None:
            self._resolver = DNSResolver()
        try:
            result = await self._resolver.getaddrinfo(
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
            for node in result.nodes
        ]
        if not infos:
            raise NameResolutionError("the name has no address")
        self._addresses[host] = str(infos[0][4][0])
        return infos
