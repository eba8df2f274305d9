"""What has just changed, for pages that are open: an in-process broadcast.

Whoever listens has a queue of a fixed length. One who does not keep up is told so by a single ``missed`` event in place of
what was lost, and asks the store.
"""

import asyncio
from collections.abc import AsyncIterator, Collection, Sequence
from typing import Literal, TypeAlias

from msgspec import Struct

from tidings.store.feed_models import PollOutcome, RecordResult

#: Events that wait for one listener.
QUEUE_SIZE = 200

Kind: TypeAlias = Literal["arrived", "marked", "subscriptions", "missed"]


class Event(Struct, frozen=True):
    """Entries have arrived in a feed, a user's marks have changed, a user's list of feeds has changed, or some was missed."""

    kind: Kind
    user_id: int | None = None  #: whom it concerns; None: every subscriber of the feed
    feed_id: int | None = None
    entry_ids: tuple[int, ...] = ()


class EventBus:
    """One for a process."""

    def __init__(self) -> None:
        self._queues: dict[asyncio.Queue[Event], tuple[int, set[int]]] = {}

    async def listen(self, user_id: int, feed_ids: Collection[int]) -> AsyncIterator[Event]:
        """What concerns this user: all that is theirs, and arrivals in these feeds. Ends when its reader lets go of it."""
        queue: asyncio.Queue[Event] = asyncio.Queue(QUEUE_SIZE)
        self._queues[queue] = (user_id, set(feed_ids))
        try:
            while True:
                yield await queue.get()
        finally:
            del self._queues[queue]

    def publish(self, event: Event) -> None:
        for queue, (user_id, feed_ids) in self._queues.items():
            if event.user_id == user_id or (event.user_id is None and event.feed_id in feed_ids):
                if event.kind == "subscriptions" and event.feed_id is not None:
                    feed_ids.add(event.feed_id)
                _put_or_drop(queue, event)

    def recorded(self, outcomes: Sequence[PollOutcome], recorded: Sequence[RecordResult]) -> None:
        """Polls have been stored."""
        for outcome, what in zip(outcomes, recorded, strict=True):
            if what.new:
                self.publish(Event("arrived", feed_id=outcome.feed_id, entry_ids=what.new))


def _put_or_drop(queue: "asyncio.Queue[Event]", event: Event) -> None:
    try:
        queue.put_nowait(event)
    except asyncio.QueueFull:
        while not queue.empty():
            queue.get_nowait()
        queue.put_nowait(Event("missed"))
