"""XML-RPC client for calls to other nodes, with a connection pool and SSRF protection."""

import secrets
import socket
import ssl
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any

from yarl import URL

from tidings.document import Entry
from tidings.errors import TidingsError
from tidings.exchange import messages, xmlrpc
from tidings.exchange.archive import Trade
from tidings.exchange.protocol import Holding, Nid, Query
from tidings.exchange.xmlrpc import MAX_MESSAGE_BYTES, InvalidXmlRpc
from tidings.fetch.connection_pool import ConnectionPool
from tidings.fetch.http1 import InvalidResponse
from tidings.fetch.ssrf import AddrInfo

#: HTTP path of the XML-RPC endpoint.
RPC_PATH = "/RPC2"
CONNECT_TIMEOUT_S = 5.0
CALL_TIMEOUT_S = 10.0
QUERY_TIMEOUT_S = 30.0
#: Time in seconds for which an idle connection to a peer stays open.
KEEP_ALIVE_S = 60.0
#: Maximum number of batches requested from one holder in one recovery.
MAX_BATCHES = 20
#: Maximum number of holders contacted in one recovery.
MAX_HOLDERS = 3


class Client:
    """XML-RPC client for calls to other nodes."""

    def __init__(
        self,
        port: int,
        *,
        allow_private: bool = False,
        local_address: str = "",
        tls: ssl.SSLContext | None = None,
        agent: str = "",
    ) -> None:
        """Create a client.

        ``port`` is the port on which this node listens. With ``tls`` all calls use https.
        ``local_address`` is the source address of calls, by which other nodes identify this node.
        ``agent`` is the User-Agent.
        """
        self.port = port
        self._user_agent_header = f"User-Agent: {agent}\r\n" if agent else ""
        self._scheme = "https" if tls else "http"
        self._pool = ConnectionPool(
            allow_private=allow_private,
            connect_timeout_s=CONNECT_TIMEOUT_S,
            keep_alive_s=KEEP_ALIVE_S,
        )
        if tls is not None:
            self._pool.tls = tls
        if local_address:
            make_socket = self._pool.make_socket

            def make_bound_socket(info: AddrInfo) -> socket.socket:
                sock = make_socket(info)
                sock.bind((local_address, 0))
                return sock

            self._pool.make_socket = make_bound_socket

    async def call(
        self, nid: Nid, function: str, *parameters: Any, timeout_s: float = CALL_TIMEOUT_S
    ) -> Any:
        """Call a function of the node ``nid`` and return its result.

        Raises `Fault` if the node refuses, and `OSError` or `TimeoutError` if the node cannot be
        reached or its response is invalid.
        """
        url = URL(f"{self._scheme}://{nid}{RPC_PATH}")
        body = xmlrpc.write_call(function, self.port, *parameters)
        head = (
            f"POST {RPC_PATH} HTTP/1.1\r\nHost: {nid}\r\n{self._user_agent_header}"
            f"Content-Type: {xmlrpc.CONTENT_TYPE}\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        request = head.encode() + body
        try:
            response = await self._pool.send_request(url, request, MAX_MESSAGE_BYTES, timeout_s)
            if response.status != 200 or not response.is_complete:
                raise OSError(f"{nid} responded with HTTP status {response.status}")
            return xmlrpc.read_response(response.body)
        except (InvalidResponse, InvalidXmlRpc) as error:
            raise OSError(f"{nid}: {error}") from None

    async def close(self) -> None:
        """Close all connections."""
        await self._pool.close()


async def find_holdings(client: Client, nids: Iterable[Nid], query: Query) -> list[Holding]:
    """Send a query to peers and return the nodes that have matching entries."""
    holding_by_nid: dict[Nid, Holding] = {}
    for nid in nids:
        with suppress(TidingsError, OSError, TimeoutError, TypeError, LookupError):
            response = await client.call(
                nid, "query_feed", messages.write_query(query), timeout_s=QUERY_TIMEOUT_S
            )
            for h in messages.read_holdings(response):
                holding_by_nid.setdefault(
                    h.nid or nid, Holding(h.nid or nid, h.entries, h.oldest, h.newest, h.altruist)
                )
    return list(holding_by_nid.values())


async def download(
    client: Client,
    trade: Trade,
    holdings: Iterable[Holding],
    feed: str,
    since: float,
    until: float,
    clock: Callable[[], float],
) -> dict[Nid, list[Entry]]:
    """Download the entries of a feed from the nodes that have them.

    Nodes that send entries for nothing and nodes with many entries come first. Returns the entries
    by node, each entry only once.
    """
    seen: set[str] = set()
    entries_by_nid: dict[Nid, list[Entry]] = {}
    for holding in sorted(holdings, key=lambda h: (not h.altruist, -h.entries))[:MAX_HOLDERS]:
        with suppress(TidingsError, OSError, TimeoutError, TypeError):
            entries_by_nid[holding.nid] = []
            await _download(
                client,
                trade,
                holding.nid,
                Query("", feed, since, until),
                seen,
                entries_by_nid[holding.nid],
                clock,
            )
    return entries_by_nid


async def _download(
    client: Client,
    trade: Trade,
    nid: Nid,
    target: Query,
    seen: set[str],
    downloaded_entries: list[Entry],
    clock: Callable[[], float],
) -> None:
    trade.add_wanted(nid)
    until = target.until
    for _ in range(MAX_BATCHES):
        query = messages.write_query(Query(secrets.token_hex(16), target.feed, target.since, until))
        response = await client.call(
            nid, "get_entries", query, trade.recent_requesters(clock()), timeout_s=QUERY_TIMEOUT_S
        )
        entries = [messages.read_entry(item) for item in response]
        dates = [entry.published for entry in entries if entry.published is not None]
        oldest = min(dates, default=target.since)
        new = [entry for entry in entries if entry.identity not in seen and _matches(entry, target)]
        seen.update(entry.identity for entry in new)
        downloaded_entries += new
        is_last = not dates or not new or oldest >= until or oldest <= target.since
        trade.record_batch(nid, is_last=is_last)
        if is_last:
            return
        until = oldest


def _matches(entry: Entry, target: Query) -> bool:
    return entry.published is not None and target.since <= entry.published <= target.until
