"""Search for old entries in the archives of other nodes, and rules for trading them.

A query is flooded from peer to peer (FeedEx sect. 3.6). The answers return by the same way, merged,
and every node on the way caches them. Entries are then downloaded directly from the holder, which
is a node that has them. A holder sends entries for nothing if it is an altruist; otherwise it sends
them in a ring of two or three nodes that each want entries from the next. In a ring no node is
ahead of the others by more than one batch, so cheating gains one batch.
"""

from collections.abc import Iterable

from msgspec import Struct

from tidings.exchange.protocol import Holding, Nid, Query

#: Time in seconds to wait for answers, per remaining hop. Nodes further away time out first.
HOP_TIMEOUT_S = 4.0
#: Time in seconds for which answers are cached.
CACHE_TTL_S = 600.0
#: Maximum number of remembered query ids, and maximum number of cached answers.
MAX_QUERIES = 1000
#: Maximum number of queries in progress.
MAX_PENDING = 50
#: Maximum number of nodes in an answer.
MAX_HOLDINGS = 50
#: Maximum number of hops of a query.
MAX_HOPS = 5
#: Maximum number of entries in one batch.
BATCH_SIZE = 100


class _Pending(Struct):
    query: Query
    requester: Nid
    awaited: set[Nid]
    holdings: dict[Nid, Holding]
    deadline: float


class ArchiveQueries:
    """Archive queries that wait for answers, and a cache of recent answers."""

    def __init__(self) -> None:
        self._pending: dict[str, _Pending] = {}
        self._seen: dict[str, float] = {}
        self._cache: dict[tuple[str, float, float, str], tuple[float, tuple[Holding, ...]]] = {}

    def cached_answer(self, query: Query, now: float) -> tuple[Holding, ...] | None:
        """Return the cached answer to an equal query, or None."""
        at, holdings = self._cache.get(_cache_key(query), (-CACHE_TTL_S, ()))
        return holdings if now - at < CACHE_TTL_S else None

    def is_loop(self, query: Query) -> bool:
        """Return whether this node has already received a query with the same id."""
        return query.id in self._seen

    def is_full(self) -> bool:
        """Return whether the maximum number of queries is in progress."""
        return len(self._pending) >= MAX_PENDING

    def waiting_for(self, nid: Nid) -> list[str]:
        """Return the ids of the queries that wait for an answer from the node ``nid``."""
        return [query_id for query_id, pending in self._pending.items() if nid in pending.awaited]

    def start(self, query: Query, requester: Nid, awaited: Iterable[Nid], now: float) -> None:
        """Start a query from the node ``requester``.

        ``awaited`` are the ids of the nodes that must answer, where "" is the archive of this node.
        """
        self._seen[query.id] = now
        while len(self._seen) > MAX_QUERIES:
            del self._seen[next(iter(self._seen))]
        timeout_s = HOP_TIMEOUT_S * (1 + min(query.hops, MAX_HOPS))
        self._pending[query.id] = _Pending(query, requester, {*awaited}, {}, now + timeout_s)

    def on_answer(
        self, query_id: str, responder: Nid, holdings: Iterable[Holding], now: float
    ) -> "_Pending | None":
        """Add one answer to a query.

        Returns the state of the query if this was the last missing answer, otherwise None.
        """
        pending = self._pending.get(query_id)
        if pending is None or responder not in pending.awaited:
            return None
        pending.awaited.discard(responder)
        for holding in list(holdings)[:MAX_HOLDINGS]:
            # A node does not know its own address, but the node that called it does.
            nid = holding.nid or responder
            if len(pending.holdings) < MAX_HOLDINGS and nid not in pending.holdings:
                pending.holdings[nid] = Holding(
                    nid, holding.entries, holding.oldest, holding.newest, holding.altruist
                )
        return self._finish(pending, now) if not pending.awaited else None

    def pop_expired(self, now: float) -> "list[_Pending]":
        """Remove and return the queries whose deadline has passed."""
        return [
            self._finish(pending, now)
            for pending in list(self._pending.values())
            if pending.deadline <= now
        ]

    def _finish(self, pending: _Pending, now: float) -> _Pending:
        del self._pending[pending.query.id]
        if pending.query.hops > 0:  # with 0 hops the answer covers only the archive of this node
            self._cache[_cache_key(pending.query)] = (now, tuple(pending.holdings.values()))
        while len(self._cache) > MAX_QUERIES:
            del self._cache[next(iter(self._cache))]
        return pending


def _cache_key(query: Query) -> tuple[str, float, float, str]:
    return query.feed, query.since, query.until, query.title_text


class Trade:
    """Rules that decide which nodes may download entries from this node.

    All nodes may if this node is an altruist, otherwise only members of a ring (see the module).
    """

    def __init__(self, altruist: bool) -> None:
        self._altruist = altruist
        self._wanted_holders: set[Nid] = set()  # nodes from which this node wants entries
        self._recent_requesters: dict[Nid, float] = {}  # time of the last request of each node
        # Number of batches sent in exchange for entries of a holder, minus batches that it sent.
        self._batches_ahead: dict[Nid, int] = {}

    def add_wanted(self, holder: Nid) -> None:
        """Record that this node wants entries from a holder."""
        self._wanted_holders.add(holder)

    def record_batch(self, holder: Nid, *, is_last: bool) -> None:
        """Record that a holder has sent a batch of entries."""
        self._batches_ahead[holder] = self._batches_ahead.get(holder, 0) - 1
        if is_last:
            self._wanted_holders.discard(holder)

    def recent_requesters(self, now: float) -> list[Nid]:
        """Return the nodes that have recently requested entries from this node.

        Holders use them to find rings of three nodes.
        """
        self._recent_requesters = {
            nid: at for nid, at in self._recent_requesters.items() if now - at < CACHE_TTL_S
        }
        return list(self._recent_requesters)[-MAX_HOLDINGS:]

    def may_serve(self, requester: Nid, their_requesters: Iterable[Nid], now: float) -> bool:
        """Return whether a node that requests entries gets a batch.

        ``their_requesters`` are the nodes that want entries from the requester, by its own
        statement. If this node wants entries from the requester, that is a ring of two; if it wants
        entries from one of the requester's requesters, that is a ring of three.
        """
        self._recent_requesters[requester] = now
        if self._altruist:
            return True
        for holder in (requester, *their_requesters):
            if holder in self._wanted_holders and self._batches_ahead.get(holder, 0) < 1:
                self._batches_ahead[holder] = self._batches_ahead.get(holder, 0) + 1
                return True
        return False
