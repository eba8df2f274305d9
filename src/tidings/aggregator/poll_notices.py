"""Poll notices, which pass the results of polls to the peer exchange.

A worker passes them through the store, because only the service has peers.
"""

import asyncio

import msgspec
from msgspec import Struct, field
from msgspec.structs import replace

from tidings.aggregator.poller import PollResult
from tidings.document import Entry
from tidings.exchange import messages
from tidings.logs import Log
from tidings.store import Store, StoreError, peers

#: Name of the notification channel on which workers announce new poll notices in the store.
POLL_NOTICES_CHANNEL = "sights"

log = Log("tidings.exchange")


class PollNotice(Struct, frozen=True):
    """Message that a feed was polled successfully, in the form that the exchange needs."""

    url: str
    at: float
    entries: tuple[Entry, ...] | None = None  #: entries for peers, or None if nothing has changed
    new: frozenset[str] = frozenset()  #: identities of new entries
    #: Whether `entries` is the complete document. It is False for pushes and delta responses (226).
    is_complete: bool = field(default=True, name="whole")
    peers: tuple[str, ...] = ()  #: exchange nodes that the document names


def make_poll_notice(result: PollResult, *, keep_sendable: bool = True) -> PollNotice | None:
    """Return the notice of a recorded poll, or None if peers need no notice.

    Peers need none if the poll failed or its entries came from peers. ``keep_sendable`` removes
    entries that the protocol cannot transfer, which is not needed without peers.
    """
    outcome = result.outcome
    if outcome.error_kind or outcome.source in ("neighbour", "confirmed"):
        return None
    if result.document is None:
        return PollNotice(result.feed.url, outcome.at)
    entries = (
        tuple(messages.keep_sendable(result.document.entries))
        if keep_sendable
        else result.document.entries
    )
    new, peers = (
        frozenset(entry.identity for entry in outcome.new),
        result.links.peers if result.links is not None else (),
    )
    return PollNotice(
        result.feed.url, outcome.at, entries, new, outcome.document is not None, peers
    )


class NoticePublisher:
    """Publisher that passes poll notices of a worker through the store to the service.

    Only the service has peers.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._tasks: set[asyncio.Task[None]] = set()

    def on_poll_recorded(self, result: PollResult) -> None:
        if (notice := make_poll_notice(result)) is not None:
            task = asyncio.create_task(self._publish(notice))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _publish(self, notice: PollNotice) -> None:
        if notice.entries is not None:  # peers need no content of entries that were already known
            entries = (
                e
                if e.identity in notice.new
                else Entry(e.identity, e.digest, published=e.published)
                for e in notice.entries
            )
            notice = replace(notice, entries=tuple(entries))
        try:
            await self._store.write(
                peers.save_poll_notice, notice.at, notice.url, msgspec.msgpack.encode(notice)
            )
            await self._store.notify(POLL_NOTICES_CHANNEL)
        except StoreError as error:
            log.warning("poll_notice_failed", url=notice.url, error=str(error))
