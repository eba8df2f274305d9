"""The exchange as a part of the living aggregator: what our polls show is put to neighbours, what neighbours tell is kept.

Nothing that a neighbour says is believed for being said. Its entries go through the same cleaning as every document's, are
marked until our own fetch or others confirm them, and are taken back with everything that only a liar has told. Its looks put
off our own for a while, longer for those whose looks have proved true.
"""

import asyncio
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from hashlib import blake2b
from typing import Self
from urllib.parse import parse_qsl, urlsplit

import msgspec

from tidings.aggregator.aggregator import Aggregator
from tidings.aggregator.decoys import Decoys
from tidings.aggregator.reader import Seen, entry_text
from tidings.aggregator.repair import date_old
from tidings.aggregator.sights import SIGHTS, Sight, sight_of
from tidings.document import Entry
from tidings.errors import TidingsError
from tidings.exchange import messages
from tidings.exchange.client import Client
from tidings.exchange.keys import Signer
from tidings.exchange.node import Node
from tidings.exchange.transport import Exchange
from tidings.exchange.trust import Claim
from tidings.exchange.values import (
    MOST_FEEDS,
    Arrived,
    Confirmed,
    Dropped,
    Effect,
    Holding,
    Looked,
    Nid,
    Query,
    Search,
    Verify,
    Withdrawn,
)
from tidings.fetch.guard import is_literal, is_public
from tidings.logs import Log
from tidings.model import DAY_S, WEEK_S
from tidings.reasons import reason
from tidings.store import Store, StoreError, neighbours
from tidings.store.neighbours import Peer
from tidings.store.rows import Entry as StoredEntry
from tidings.store.rows import Feed, Gap, PollOutcome

#: What others do puts off our own look by so much at most; by more where their looks have proved true so many times.
UNPROVEN_S, PROVEN_S, PROOFS = DAY_S, WEEK_S, 10
#: So often the feeds are looked at that have come and gone, and neighbours are put down; new ones sooner.
KEEP_S, LOOK_S = 20.0, 2.0
#: Parameters of addresses that are keys to something, and parts of paths that nobody could guess.
SECRETS = re.compile(r"(?i)(.*[_-])?(token|(api)?key|auth|secret|pass(word|wd)?|pwd|sig(nature)?|session|sid|hash|private)")
UNGUESSABLE = re.compile(r"(?i)[0-9a-f]{20,}|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
LOCAL_NAMES = (".local", ".localhost", ".internal", ".home.arpa", ".lan", ".home", ".corp", ".test", ".onion")

log = Log("tidings.neighbours")


def is_private(url: str, *, among_ourselves: bool = False) -> bool:
    """Whether an address may not be told to others: it has a password, a key, or lives where others cannot ask."""
    try:
        parts = urlsplit(url)
        host = (parts.hostname or "").rstrip(".")
    except ValueError:
        return True
    if parts.scheme not in ("http", "https") or parts.username is not None or parts.password is not None:
        return True
    here = not is_public(host) if is_literal(host) else "." not in host or f".{host}".endswith(LOCAL_NAMES)
    if here and not among_ourselves:
        return True
    if any(SECRETS.fullmatch(name) or UNGUESSABLE.search(value) for name, value in parse_qsl(parts.query)):
        return True
    return bool(UNGUESSABLE.search(parts.path))


class Neighbourhood:
    """A node of the exchange on top of an aggregator; use it with ``async with``."""

    def __init__(
        self,
        aggregator: Aggregator,
        node: Node,
        client: Client,
        clock: Callable[[], float],
        *,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
        signer: Signer | None = None,
        among_ourselves: bool = False,
        decoys: int = 0,
    ) -> None:
        """``among_ourselves`` all nodes are on this machine, and so may feeds be that are told."""
        self.node, self._clock, self._among_ourselves = node, clock, among_ourselves
        self._aggregator, self._store = aggregator, aggregator.store
        self.exchange = Exchange(node, client, clock, sleep=sleep, on_effect=self._take, archive=self._archive, signer=signer)
        self._decoys = Decoys(decoys, node, aggregator.fetcher, clock)
        self._feeds: dict[str, int] = {}  # that may be told
        self._dropped: dict[Nid, str] = {}  # why
        self._order: dict[int, asyncio.Lock] = {}  # what is told of a feed is taken in one by one

    async def __aenter__(self) -> Self:
        now = self._clock()
        known = await self._store.read(neighbours.peers)
        self._dropped = {peer.nid: peer.why for peer in known if peer.why}
        for peer in known:
            if peer.banned_until is not None and peer.banned_until > now:
                self.node.members.ban(peer.nid, peer.banned_until)
        self.node.meet([peer.nid for peer in known if peer.banned_until is None], now, {p.nid: p.figures for p in known})
        for t in await self._store.read(neighbours.tellings):
            self.node.ledger.restore(t.feed, Claim(t.identity, t.digest, t.published, t.told_at, t.sender, t.path))
        await self.refresh()
        await self._store.listen(SIGHTS, lambda _: self.exchange.begin(self._polled_elsewhere()))
        self._aggregator.polls.neighbours = self
        self._aggregator.polls.repairer.recoverers.append(self.recover)
        await self.exchange.__aenter__()
        self._keeping = asyncio.create_task(self._keep())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._aggregator.polls.neighbours = None
        self._aggregator.polls.repairer.recoverers.remove(self.recover)
        self._keeping.cancel()
        await asyncio.gather(self._keeping, return_exceptions=True)
        await self.exchange.__aexit__()
        with suppress(StoreError):
            await self.save()

    async def _keep(self) -> None:
        told: set[Nid] = set()
        at = self._clock()
        while True:
            await asyncio.sleep(LOOK_S)
            with suppress(StoreError):  # the loop that polls has told of it, and tries again as we do
                if told != self.node.neighbours.keys() or self._clock() - at >= KEEP_S:
                    told, at = set(self.node.neighbours), self._clock()
                    await self.refresh()
                    await self.save()
                    await self._decoys.attend()
                    self.exchange.follow()

    async def refresh(self) -> None:
        """Follow what has been subscribed to and given up, and what has been marked as private."""
        told = [f for f in await self._store.read(neighbours.shareable) if self._may_tell(f.url)][:MOST_FEEDS]
        feeds = {f.url: f.id for f in told}
        if feeds != self._feeds:
            self._feeds = feeds
            self.node.read({f.url: f.weight for f in told})
            for f in told:
                if f.last_ok_at is not None:
                    self.node.ledger.was_shown(f.url, f.last_ok_at, f.oldest_at)

    def _may_tell(self, url: str) -> bool:
        if is_private(url, among_ourselves=self._among_ourselves):
            return False
        return self._among_ourselves or not self._aggregator.fetcher.is_local(urlsplit(url).hostname or "")

    async def save(self) -> None:
        await self._store.write(neighbours.save, self.peers())

    def peers(self) -> list[Peer]:
        """Neighbours of now and before, the most useful first."""
        now, node = self._clock(), self.node
        found = []
        for nid, figures in node.members.remembered().items():
            neighbour = node.neighbours.get(nid)
            useful = node.interests.usefulness(neighbour.hops) if neighbour is not None else 0.0
            key = neighbour.key if neighbour is not None else b""
            why = "" if neighbour is not None else self._dropped.get(nid, "")
            banned_until = node.members.banned_until(nid, now)
            found.append(Peer(nid, now, neighbour is not None, useful, banned_until, why, key, figures))
        return sorted(found, key=lambda peer: (not peer.present, -peer.usefulness, peer.nid))

    def announced(self) -> list[Nid]:
        """Nodes that output feeds may name: we ourselves, as others see us, and our neighbours."""
        return [
            nid for nid in (self.node.nid, *self.node.neighbours) if nid and (self._among_ourselves or is_public(_host(nid)))
        ]

    # --- what we saw ---------------------------------------------------------------------------------------------------

    def polled(self, seen: Seen) -> None:
        """A poll or push is recorded: what it showed is put to neighbours, and judges what they told."""
        if seen.feed.url in self._feeds and (sight := sight_of(seen, passable=bool(self.node.neighbours))) is not None:
            self._show(sight)

    async def _polled_elsewhere(self) -> None:
        """Workers on the same store have polled."""
        for sight in await self._store.write(neighbours.take_sights):
            self._show(msgspec.msgpack.decode(sight, type=Sight))

    def _show(self, sight: Sight) -> None:
        node, url = self.node, sight.url
        if url not in self._feeds:
            return
        node.meet([nid for told in sight.peers if (nid := _nid(told))], sight.at)
        if sight.entries is None:
            node.unchanged(url, sight.at)
        else:
            node.ledger.remember(url, [entry.identity for entry in sight.entries if entry.identity not in sight.new])
            if sight.whole:
                node.fetched(url, sight.entries, sight.at)
            else:
                node.pushed(url, sight.entries, sight.at)
        self.exchange.follow()
        self.exchange.tell_soon()

    # --- what others tell ----------------------------------------------------------------------------------------------

    async def _take(self, effect: Effect) -> None:
        match effect:
            case Arrived():
                await self._arrived(effect)
            case Looked(look, sender) if (feed_id := self._feeds.get(look.feed)) is not None:
                await self._aggregator.brain.hear()
                await self._aggregator.take_look(feed_id, look.at, self._bound_s(sender))
            case Confirmed(feed, identities) if feed in self._feeds:
                await self._store.write(neighbours.confirm, self._feeds[feed], identities)
            case Withdrawn(feed, identities) if feed in self._feeds:
                gone = await self._store.write(neighbours.withdraw, self._feeds[feed], identities)
                log.warning("forged entries withdrawn", feed=feed, entries=gone)
            case Verify(feed) if feed in self._feeds:
                await self._aggregator.take_ping(self._feeds[feed], reason("peer_disputed"))
            case Search(query):
                self.node.answered(query.id, "", await self._holdings(query), self._clock())
                self.exchange.follow()
            case Dropped(nid, why, banned):
                self._dropped[nid] = why
                gone = await self._store.write(neighbours.withdraw_all, nid) if banned else 0
                log.info("neighbour dropped", nid=nid, why=why, withdrawn=gone)
                await self.save()
            case _:
                pass

    async def _arrived(self, arrived: Arrived) -> None:
        """News of a feed of ours."""
        bundle, feed_id = arrived.bundle, self._feeds.get(arrived.bundle.feed)
        if feed_id is None:
            return
        bound_s = self._bound_s(arrived.sender)
        doubtful = [entry for entry in bundle.entries if entry.identity not in arrived.believed]
        signed = [entry for entry in bundle.entries if entry.identity in arrived.believed]
        async with self._order.setdefault(feed_id, asyncio.Lock()):
            if doubtful:
                await self._aggregator.take_told(feed_id, doubtful, bound_s, source="neighbour", told_by=bundle.path)
            if signed:
                await self._aggregator.take_told(feed_id, signed, bound_s, source="confirmed")

    def _bound_s(self, sender: Nid) -> float:
        neighbour = self.node.neighbours.get(sender)
        return PROVEN_S if neighbour is not None and neighbour.looks_kept >= PROOFS else UNPROVEN_S

    # --- archives ------------------------------------------------------------------------------------------------------

    async def _archive(self, query: Query, limit: int) -> list[Entry]:
        feed_id = self._feeds.get(query.feed)
        if feed_id is None:
            return []
        found = await self._store.read(neighbours.archive, feed_id, query.since, query.until, query.words, limit)
        return [_as_published(entry) for entry in found]

    async def _holdings(self, query: Query) -> list[Holding]:
        feed_id = self._feeds.get(query.feed)
        if feed_id is None:
            return []
        held = await self._store.read(neighbours.holding, feed_id, query.since, query.until, query.words)
        return [Holding("", *held, self.node.rules.altruist)] if held else []

    async def recover(self, feed: Feed, gap: Gap) -> Mapping[Nid, Sequence[Entry]]:
        """What neighbours' archives have of a gap."""
        if feed.url not in self._feeds or not self.node.neighbours:
            return {}
        return await self.exchange.recover(feed.url, gap.from_at, gap.until_at)


async def keep_recovered(store: Store, feed: Feed, found: Mapping[Nid, Sequence[Entry]], now: float) -> int:
    """Store what others' archives had, marked as theirs; returns how many entries were new."""
    outcomes = [
        PollOutcome(
            feed_id=feed.id,
            at=now,
            reason=reason("manual"),
            source="neighbour",
            new=tuple(entry_text(entry, date_old(entry, now, now)) for entry in entries),
            told_by=(nid,),
        )
        for nid, entries in found.items()
    ]
    return sum(len(recorded.new) for recorded in await store.record(outcomes)) if outcomes else 0


def _as_published(entry: StoredEntry) -> Entry:
    """An entry of the store as others are given it: cleaned already, and with its addresses made whole."""
    return Entry(
        identity=entry.identity,
        digest=blake2b(entry.content.encode(), digest_size=16).digest(),
        url=entry.url,
        title=entry.title,
        author=entry.author,
        content=entry.content,
        summary=entry.summary,
        published=entry.published_at,
        updated=entry.updated_at,
        tags=entry.tags,
        enclosures=entry.enclosures,
        comments_url=entry.comments_url,
    )


def _nid(told: str) -> Nid | None:
    try:
        return messages.read_nid(told)
    except TidingsError:
        return None


def _host(nid: Nid) -> str:
    return nid.rpartition(":")[0].strip("[]")
