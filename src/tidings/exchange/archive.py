"""Finding old entries at others, and getting them (FeedEx 3.6).

A query goes from neighbour to neighbour and its answers come back the same way, joined; every node on the way keeps them for a
while. Entries then go directly from the holder to who wants them: from altruists, or in a ring of two or three nodes that each
want something of the next. In a ring nobody is ahead of the others by more than one helping, so a broken promise costs that.
"""

from collections.abc import Iterable

from msgspec import Struct

from tidings.exchange.protocol import Holding, Nid, Query

#: A node waits so long for its neighbours' answers, less for every hop that is left, so that answers arrive in time.
HOP_TIMEOUT_S = 4.0
#: Answers are kept so long; and so many queries are remembered, or under way at once.
CACHE_TTL_S = 600.0
MAX_QUERIES = 1000
MAX_PENDING = 50
MAX_HOLDINGS = 50
MAX_HOPS = 5
#: Entries in one helping.
BATCH_SIZE = 100


class _Pending(Struct):
    query: Query
    requester: Nid
    waiting: set[Nid]
    found: dict[Nid, Holding]
    until: float


class ArchiveQueries:
    """Queries under way and answers of late."""

    def __init__(self) -> None:
        self._pending: dict[str, _Pending] = {}
        self._seen: dict[str, float] = {}
        self._cache: dict[tuple[str, float, float, str], tuple[float, tuple[Holding, ...]]] = {}

    def cached_answer(self, query: Query, now: float) -> tuple[Holding, ...] | None:
        at, holdings = self._cache.get(_cache_key(query), (-CACHE_TTL_S, ()))
        return holdings if now - at < CACHE_TTL_S else None

    def is_loop(self, query: Query) -> bool:
        return query.id in self._seen

    def is_full(self) -> bool:
        return len(self._pending) >= MAX_PENDING

    def waiting_for(self, nid: Nid) -> list[str]:
        """Queries that this node has not answered yet."""
        return [query_id for query_id, pending in self._pending.items() if nid in pending.waiting]

    def start(self, query: Query, requester: Nid, waiting: Iterable[Nid], now: float) -> None:
        """``waiting`` are those who are asked, with no nid for the own archive."""
        self._seen[query.id] = now
        while len(self._seen) > MAX_QUERIES:
            del self._seen[next(iter(self._seen))]
        patience_s = HOP_TIMEOUT_S * (1 + min(query.hops, MAX_HOPS))
        self._pending[query.id] = _Pending(query, requester, {*waiting}, {}, now + patience_s)

    def on_answer(
        self, query_id: str, who: Nid, holdings: Iterable[Holding], now: float
    ) -> "_Pending | None":
        """Take in one answer; returns the query if it was the last that was waited for."""
        pending = self._pending.get(query_id)
        if pending is None or who not in pending.waiting:
            return None
        pending.waiting.discard(who)
        for holding in list(holdings)[:MAX_HOLDINGS]:
            nid = (
                holding.nid or who
            )  # a node does not know its own address, those who reached it do
            if len(pending.found) < MAX_HOLDINGS and nid not in pending.found:
                pending.found[nid] = Holding(
                    nid, holding.entries, holding.oldest, holding.newest, holding.altruist
                )
        return self._end(pending, now) if not pending.waiting else None

    def pop_expired(self, now: float) -> "list[_Pending]":
        return [
            self._end(pending, now)
            for pending in list(self._pending.values())
            if pending.until <= now
        ]

    def _end(self, pending: _Pending, now: float) -> _Pending:
        del self._pending[pending.query.id]
        if pending.query.hops > 0:  # else nobody else was asked
            self._cache[_cache_key(pending.query)] = (now, tuple(pending.found.values()))
        while len(self._cache) > MAX_QUERIES:
            del self._cache[next(iter(self._cache))]
        return pending


def _cache_key(query: Query) -> tuple[str, float, float, str]:
    return query.feed, query.since, query.until, query.title_text


class Trade:
    """Who gets entries from us directly: anybody from an altruist, else members of a ring."""

    def __init__(self, altruist: bool) -> None:
        self._altruist = altruist
        self._wanted_holders: set[Nid] = set()  # holders that we want something of
        self._recent_requesters: dict[Nid, float] = {}  # who has asked us lately
        self._batches_ahead: dict[
            Nid, int
        ] = {}  # by holder: helpings given for its sake beyond those it gave

    def add_wanted(self, holder: Nid) -> None:
        self._wanted_holders.add(holder)

    def record_batch(self, holder: Nid, *, is_last: bool) -> None:
        """A helping has come from the holder, perhaps the last."""
        self._batches_ahead[holder] = self._batches_ahead.get(holder, 0) - 1
        if is_last:
            self._wanted_holders.discard(holder)

    def recent_requesters(self, now: float) -> list[Nid]:
        """Who wants something of us: told to holders, so that they find rings of three."""
        self._recent_requesters = {
            nid: at for nid, at in self._recent_requesters.items() if now - at < CACHE_TTL_S
        }
        return list(self._recent_requesters)[-MAX_HOLDINGS:]

    def may_serve(self, requester: Nid, their_requesters: Iterable[Nid], now: float) -> bool:
        """Whether the asker gets a helping. ``its_seekers`` are nodes that, it says, want something of it.

        If we want something of the asker, that is a ring of two; of one of its seekers, a ring of three.
        """
        self._recent_requesters[requester] = now
        if self._altruist:
            return True
        for holder in (requester, *their_requesters):
            if holder in self._wanted_holders and self._batches_ahead.get(holder, 0) < 1:
                self._batches_ahead[holder] = self._batches_ahead.get(holder, 0) + 1
                return True
        return False
