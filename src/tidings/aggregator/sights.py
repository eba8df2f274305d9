"""What a poll has shown, as the exchange is told of it: by the service that polls, or by workers through the store."""

import asyncio

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from tidings.aggregator.reader import Seen
from tidings.document import Entry
from tidings.exchange import messages
from tidings.logs import Log
from tidings.store import Store, StoreError, neighbours

#: On this channel workers say that there are sights in the store.
SIGHTS = "sights"

log = Log("tidings.neighbours")


class Sight(Struct, frozen=True):
    """A look at a feed that was answered."""

    url: str
    at: float
    entries: tuple[Entry, ...] | None = None  #: as others will read them; None: nothing has changed
    new: frozenset[str] = frozenset()  #: identities of those that were not known before
    whole: bool = True  #: the document had no others: not so where a hub has sent it, or the server what was new alone
    peers: tuple[str, ...] = ()  #: nodes that the document names


def sight_of(seen: Seen, *, passable: bool = True) -> Sight | None:
    """Nothing where the poll failed, or neighbours themselves have told it. Entries need not be passable if nobody is there."""
    outcome = seen.outcome
    if outcome.error_kind or outcome.source in ("neighbour", "confirmed"):
        return None
    if seen.document is None:
        return Sight(seen.feed.url, outcome.at)
    entries = tuple(messages.passable(seen.document.entries)) if passable else seen.document.entries
    new, peers = frozenset(entry.identity for entry in outcome.new), seen.links.peers if seen.links is not None else ()
    return Sight(seen.feed.url, outcome.at, entries, new, outcome.document is not None, peers)


class Messenger:
    """In a worker, where the service has neighbours: the store carries to it what polls have shown."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._under_way: set[asyncio.Task[None]] = set()

    def polled(self, seen: Seen) -> None:
        if (sight := sight_of(seen)) is not None:
            task = asyncio.create_task(self._put(sight))
            self._under_way.add(task)
            task.add_done_callback(self._under_way.discard)

    async def _put(self, sight: Sight) -> None:
        if sight.entries is not None:  # of what was known, neighbours need no more than that it was there
            entries = (
                e if e.identity in sight.new else Entry(e.identity, e.digest, published=e.published) for e in sight.entries
            )
            sight = replace(sight, entries=tuple(entries))
        try:
            await self._store.write(neighbours.put_sight, sight.at, sight.url, msgspec.msgpack.encode(sight))
            await self._store.notify(SIGHTS)
        except StoreError as error:
            log.warning("neighbours will not be told of a poll", url=sight.url, error=str(error))
