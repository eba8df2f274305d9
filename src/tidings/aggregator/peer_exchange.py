"""Connection between the aggregator and the node of the peer exchange (FeedEx).

Results of polls are sent to peers, and entries of peers are stored. Entries of a peer are sanitized
like those of any document. They are marked as unconfirmed until a poll by this service or other
peers confirm them; entries that only a lying peer has sent are withdrawn. A poll by a peer
postpones the next poll by this service, for longer if earlier notices of that peer were confirmed.
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
from tidings.aggregator.gap_repair import date_recovered_entry
from tidings.aggregator.poll_notices import POLL_NOTICES_CHANNEL, PollNotice, make_poll_notice
from tidings.aggregator.poller import PollResult, entry_text
from tidings.document import Entry
from tidings.errors import TidingsError
from tidings.exchange import messages
from tidings.exchange.client import Client
from tidings.exchange.keys import Signer
from tidings.exchange.node import Node
from tidings.exchange.protocol import (
    MAX_FEEDS,
    Effect,
    EntriesConfirmed,
    EntriesReceived,
    EntriesWithdrawn,
    Holding,
    Nid,
    PeerDropped,
    PeerPolled,
    Query,
    Search,
    Verify,
)
from tidings.exchange.transport import Exchange
from tidings.exchange.trust import Claim
from tidings.fetch.ssrf import is_ip_literal, is_public
from tidings.logs import Log
from tidings.model import DAY_S, WEEK_S
from tidings.reasons import reason
from tidings.store import Store, StoreError, peers
from tidings.store.feed_models import Entry as StoredEntry
from tidings.store.feed_models import Feed, Gap, PollOutcome
from tidings.store.peers import Peer

#: Maximum time in seconds by which polls of a peer postpone the next poll by this service.
UNPROVEN_PEER_DELAY_S = DAY_S
#: The same limit for a peer with at least `MIN_CONFIRMED_POLLS` confirmed poll notices.
PROVEN_PEER_DELAY_S = WEEK_S
MIN_CONFIRMED_POLLS = 10
#: Interval in seconds at which feeds are reloaded and peers are saved.
SAVE_INTERVAL_S = 20.0
#: Interval in seconds of checks for changed peers, which are saved immediately.
CHECK_INTERVAL_S = 2.0
#: Pattern for the names of URL parameters that carry credentials.
SECRET_PARAMETER = re.compile(
    r"(?i)(.*[_-])?"
    r"(token|(api)?key|auth|secret|pass(word|wd)?|pwd|sig(nature)?|session|sid|hash|private)"
)
#: Pattern for random parts of a URL, which act as a password.
RANDOM_TOKEN = re.compile(r"(?i)[0-9a-f]{20,}|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
#: Domains of local networks and of Tor.
LOCAL_NAMES = (
    ".local",
    ".localhost",
    ".internal",
    ".home.arpa",
    ".lan",
    ".home",
    ".corp",
    ".test",
    ".onion",
)

log = Log("tidings.exchange")


def is_private(url: str, *, loopback_only: bool = False) -> bool:
    """Return whether a URL must not be sent to peers because it has credentials or a local host.

    With ``loopback_only``, all nodes are on this machine and local hosts are allowed.
    """
    try:
        parts = urlsplit(url)
        host = (parts.hostname or "").rstrip(".")
    except ValueError:
        return True
    if (
        parts.scheme not in ("http", "https")
        or parts.username is not None
        or parts.password is not None
    ):
        return True
    is_local = (
        not is_public(host)
        if is_ip_literal(host)
        else "." not in host or f".{host}".endswith(LOCAL_NAMES)
    )
    if is_local and not loopback_only:
        return True
    if any(
        SECRET_PARAMETER.fullmatch(name) or RANDOM_TOKEN.search(value)
        for name, value in parse_qsl(parts.query)
    ):
        return True
    return bool(RANDOM_TOKEN.search(parts.path))


class PeerExchange:
    """Node of the peer exchange that shares the polls of an aggregator with peers.

    Use it with ``async with``.
    """

    def __init__(
        self,
        aggregator: Aggregator,
        node: Node,
        client: Client,
        clock: Callable[[], float],
        *,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
        signer: Signer | None = None,
        loopback_only: bool = False,
        decoys: int = 0,
    ) -> None:
        """Connect ``node`` to an aggregator.

        With ``loopback_only``, all nodes are on this machine and feeds on local hosts are shared.
        ``decoys`` is the number of decoy feeds. Without ``signer``, entries are not signed.
        """
        self.node, self._clock, self._loopback_only = node, clock, loopback_only
        self._aggregator, self._store = aggregator, aggregator.store
        self.exchange = Exchange(
            node,
            client,
            clock,
            sleep=sleep,
            on_effect=self._apply_effect,
            archive=self._archive,
            signer=signer,
        )
        self._decoys = Decoys(decoys, node, aggregator.fetcher, clock)
        self._feeds: dict[str, int] = {}  # ids of shareable feeds, by URL
        self._drop_reasons: dict[Nid, str] = {}
        self._feed_locks: dict[int, asyncio.Lock] = {}  # entries of a feed are stored one by one

    async def __aenter__(self) -> Self:
        now = self._clock()
        known = await self._store.read(peers.peers)
        self._drop_reasons = {peer.nid: peer.reason for peer in known if peer.reason}
        for peer in known:
            if peer.banned_until is not None and peer.banned_until > now:
                self.node.membership.ban(peer.nid, peer.banned_until)
        self.node.add_candidates(
            [peer.nid for peer in known if peer.banned_until is None],
            now,
            {p.nid: p.figures for p in known},
        )
        for c in await self._store.read(peers.unconfirmed_peer_claims):
            self.node.ledger.restore_claim(
                c.feed, Claim(c.identity, c.digest, c.published, c.received_at, c.sender, c.path)
            )
        await self.refresh()
        await self._store.listen(
            POLL_NOTICES_CHANNEL, lambda _: self.exchange.start_task(self._publish_worker_polls())
        )
        self._aggregator.polls.peer_exchange = self
        self._aggregator.polls.gap_repairer.recovery_sources.append(self.recover)
        await self.exchange.__aenter__()
        self._maintenance_task = asyncio.create_task(self._run_maintenance())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._aggregator.polls.peer_exchange = None
        self._aggregator.polls.gap_repairer.recovery_sources.remove(self.recover)
        self._maintenance_task.cancel()
        await asyncio.gather(self._maintenance_task, return_exceptions=True)
        await self.exchange.__aexit__()
        with suppress(StoreError):
            await self.save()

    async def _run_maintenance(self) -> None:
        saved_peers: set[Nid] = set()
        saved_at = self._clock()
        while True:
            await asyncio.sleep(CHECK_INTERVAL_S)
            with suppress(StoreError):  # the polling loop logs the error, and both loops retry
                if (
                    saved_peers != self.node.peers.keys()
                    or self._clock() - saved_at >= SAVE_INTERVAL_S
                ):
                    saved_peers, saved_at = set(self.node.peers), self._clock()
                    await self.refresh()
                    await self.save()
                    await self._decoys.poll_due_decoy()
                    self.exchange.apply_effects()

    async def refresh(self) -> None:
        """Reload the feeds that may be shared with peers.

        Call this after subscriptions or privacy settings have changed.
        """
        shareable = [
            f for f in await self._store.read(peers.shareable_feeds) if self._is_shareable(f.url)
        ][:MAX_FEEDS]
        feeds = {f.url: f.id for f in shareable}
        if feeds != self._feeds:
            self._feeds = feeds
            self.node.set_feeds({f.url: f.weight for f in shareable})
            for f in shareable:
                if f.last_ok_at is not None:
                    self.node.ledger.restore_document(f.url, f.last_ok_at, f.oldest_at)

    def _is_shareable(self, url: str) -> bool:
        if is_private(url, loopback_only=self._loopback_only):
            return False
        return self._loopback_only or not self._aggregator.fetcher.is_local(
            urlsplit(url).hostname or ""
        )

    async def save(self) -> None:
        await self._store.write(peers.save_peers, self.peers())

    def peers(self) -> list[Peer]:
        """Return present and former peers, with the most useful peers first."""
        now, node = self._clock(), self.node
        peers = []
        for nid, figures in node.membership.peer_stats().items():
            peer = node.peers.get(nid)
            useful = node.interests.usefulness(peer.hops) if peer is not None else 0.0
            key = peer.key if peer is not None else b""
            drop_reason = "" if peer is not None else self._drop_reasons.get(nid, "")
            banned_until = node.membership.banned_until(nid, now)
            peers.append(
                Peer(nid, now, peer is not None, useful, banned_until, drop_reason, key, figures)
            )
        return sorted(peers, key=lambda peer: (not peer.present, -peer.usefulness, peer.nid))

    def public_nodes(self) -> list[Nid]:
        """Return the ids of this node and of its peers that output feeds may name."""
        return [
            nid
            for nid in (self.node.nid, *self.node.peers)
            if nid and (self._loopback_only or is_public(_host(nid)))
        ]

    # --- results of polls by this service -------------------------------------------------------

    def on_poll_recorded(self, result: PollResult) -> None:
        """Announce a recorded poll or push to peers, and check the claims of peers against it."""
        if (
            result.feed.url in self._feeds
            and (notice := make_poll_notice(result, keep_sendable=bool(self.node.peers)))
            is not None
        ):
            self._publish_notice(notice)

    async def _publish_worker_polls(self) -> None:
        """Announce polls that workers on the same store have made."""
        for notice in await self._store.write(peers.take_poll_notices):
            self._publish_notice(msgspec.msgpack.decode(notice, type=PollNotice))

    def _publish_notice(self, notice: PollNotice) -> None:
        node, url = self.node, notice.url
        if url not in self._feeds:
            return
        node.add_candidates(
            [nid for declared in notice.peers if (nid := _parse_nid(declared))], notice.at
        )
        if notice.entries is None:
            node.record_unchanged(url, notice.at)
        else:
            node.ledger.remember(
                url,
                [entry.identity for entry in notice.entries if entry.identity not in notice.new],
            )
            if notice.is_complete:
                node.record_document(url, notice.entries, notice.at)
            else:
                node.record_push(url, notice.entries, notice.at)
        self.exchange.apply_effects()
        self.exchange.schedule_tick()

    # --- events from peers ----------------------------------------------------------------------

    async def _apply_effect(self, effect: Effect) -> None:
        match effect:
            case EntriesReceived():
                await self._store_peer_entries(effect)
            case PeerPolled(peer_notice, sender) if (
                feed_id := self._feeds.get(peer_notice.feed)
            ) is not None:
                await self._aggregator.scheduler.count_peer_poll()
                await self._aggregator.handle_peer_poll(
                    feed_id, peer_notice.at, self._max_delay_s(sender)
                )
            case EntriesConfirmed(feed, identities) if feed in self._feeds:
                await self._store.write(peers.confirm, self._feeds[feed], identities)
            case EntriesWithdrawn(feed, identities) if feed in self._feeds:
                withdrawn = await self._store.write(peers.withdraw, self._feeds[feed], identities)
                log.warning("forged_entries_withdrawn", feed=feed, entries=withdrawn)
            case Verify(feed) if feed in self._feeds:
                await self._aggregator.handle_ping(self._feeds[feed], reason("peer_disputed"))
            case Search(query):
                self.node.on_answer(query.id, "", await self._holdings(query), self._clock())
                self.exchange.apply_effects()
            case PeerDropped(nid, drop_reason, banned):
                self._drop_reasons[nid] = drop_reason
                withdrawn = await self._store.write(peers.withdraw_all, nid) if banned else 0
                log.info("peer_dropped", nid=nid, reason=drop_reason, withdrawn=withdrawn)
                await self.save()
            case _:
                pass

    async def _store_peer_entries(self, arrived: EntriesReceived) -> None:
        """Store entries that a peer has sent, if their feed may be shared."""
        bundle, feed_id = arrived.bundle, self._feeds.get(arrived.bundle.feed)
        if feed_id is None:
            return
        max_delay_s = self._max_delay_s(arrived.sender)
        unconfirmed = [
            entry for entry in bundle.entries if entry.identity not in arrived.trusted_identities
        ]
        trusted = [
            entry for entry in bundle.entries if entry.identity in arrived.trusted_identities
        ]
        async with self._feed_locks.setdefault(feed_id, asyncio.Lock()):
            if unconfirmed:
                await self._aggregator.handle_peer_entries(
                    feed_id, unconfirmed, max_delay_s, source="neighbour", peer_path=bundle.path
                )
            if trusted:
                await self._aggregator.handle_peer_entries(
                    feed_id, trusted, max_delay_s, source="confirmed"
                )

    def _max_delay_s(self, sender: Nid) -> float:
        peer = self.node.peers.get(sender)
        return (
            PROVEN_PEER_DELAY_S
            if peer is not None and peer.notices_confirmed >= MIN_CONFIRMED_POLLS
            else UNPROVEN_PEER_DELAY_S
        )

    # --- archives -------------------------------------------------------------------------------

    async def _archive(self, query: Query, limit: int) -> list[Entry]:
        feed_id = self._feeds.get(query.feed)
        if feed_id is None:
            return []
        stored_entries = await self._store.read(
            peers.archived_entries, feed_id, query.since, query.until, query.title_text, limit
        )
        return [_as_published(entry) for entry in stored_entries]

    async def _holdings(self, query: Query) -> list[Holding]:
        feed_id = self._feeds.get(query.feed)
        if feed_id is None:
            return []
        extent = await self._store.read(
            peers.archive_extent, feed_id, query.since, query.until, query.title_text
        )
        return [Holding("", *extent, self.node.settings.altruist)] if extent else []

    async def recover(self, feed: Feed, gap: Gap) -> Mapping[Nid, Sequence[Entry]]:
        """Return the entries of a gap from the archives of peers, by the id of the peer."""
        if feed.url not in self._feeds or not self.node.peers:
            return {}
        return await self.exchange.recover(feed.url, gap.from_at, gap.until_at)


async def store_recovered_entries(
    store: Store, feed: Feed, entries_by_peer: Mapping[Nid, Sequence[Entry]], now: float
) -> int:
    """Store entries from archives of peers as unconfirmed, and return the number of new entries."""
    outcomes = [
        PollOutcome(
            feed_id=feed.id,
            at=now,
            reason=reason("manual"),
            source="neighbour",
            new=tuple(
                entry_text(entry, date_recovered_entry(entry, now, now)) for entry in entries
            ),
            peer_path=(nid,),
        )
        for nid, entries in entries_by_peer.items()
    ]
    return sum(len(recorded.new) for recorded in await store.record(outcomes)) if outcomes else 0


def _as_published(entry: StoredEntry) -> Entry:
    """Convert a stored entry, which is already sanitized, to the form that is sent to peers."""
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


def _parse_nid(text: str) -> Nid | None:
    try:
        return messages.read_nid(text)
    except TidingsError:
        return None


def _host(nid: Nid) -> str:
    return nid.rpartition(":")[0].strip("[]")
