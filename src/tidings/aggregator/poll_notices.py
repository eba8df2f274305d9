"""What a poll has shown, as the exchange is told of it: by the service that polls, or by workers through the store."""

import asyncio

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from tidings.aggregator.poller import PollResult
from tidings.document import Entry
from tidings.exchange import messages
from tidings.logs import Log
from tidings.store import Store, StoreError, peers

#: On this channel workers say that there are sights in the store.
POLL_NOTICES_CHANNEL = "sights"

log = Log("tidings.exchange")


class PollNotice(Struct, frozen=True):
    """A look at a feed that was answered."""

    url: str
    at: float
    entries: tuple[Entry, ...] | None = None  #: as others will read them; None: nothing has changed
    new: frozenset[str] = frozenset()  #: identities of those that were not known before
    whole: bool = True  #: the document had no others: not so where a hub has sent it, or the server what was new alone
    peers: tuple[str, ...] = ()  #: nodes that the document names


def make_poll_notice(result: PollResult, *, keep_sendable: bool = True) -> PollNotice | None:
    """Nothing where the poll failed, or neighbours themselves have told it. Entries need not be passable if nobody is there."""
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
    """In a worker, where the service has neighbours: the store carries to it what polls have shown."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._tasks: set[asyncio.Task[None]] = set()

    def on_poll_recorded(self, result: PollResult) -> None:
        if (notice := make_poll_notice(result)) is not None:
            task = asyncio.create_task(self._publish(notice))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _publish(self, notice: PollNotice) -> None:
        if (
            notice.entries is not None
        ):  # of what was known, neighbours need no more than that it was there
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
            log.warning("neighbours will not be told of a poll", url=notice.url, error=str(error))
