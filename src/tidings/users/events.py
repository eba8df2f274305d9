"""In-process event bus (publish/subscribe) that reports changes to open pages.

Each listener has a queue of limited size. When a queue overflows, it is cleared and one
``events_lost`` event is put into it; the listener then reloads its state from the store.
"""

import asyncio
from collections.abc import AsyncIterator, Collection, Sequence
from typing import Literal, TypeAlias

from msgspec import Struct

from tidings.store.feed_models import PollOutcome, RecordResult

#: Maximum number of events queued for one listener.
QUEUE_SIZE = 200

Kind: TypeAlias = Literal["entries_added", "entry_state_changed", "subscriptions", "events_lost"]


class Event(Struct, frozen=True):
    """Change of entries, entry state or subscriptions, or a report that events were lost."""

    kind: Kind
    user_id: int | None = None  #: affected user; None for all subscribers of the feed
    feed_id: int | None = None
    entry_ids: tuple[int, ...] = ()


class EventBus:
    """Event bus of one process, with one queue per open page."""

    def __init__(self) -> None:
        self._queues: dict[asyncio.Queue[Event], tuple[int, set[int]]] = {}

    async def listen(self, user_id: int, feed_ids: Collection[int]) -> AsyncIterator[Event]:
        """Yield the events of a user and of new entries in these feeds, until the caller stops."""
        queue: asyncio.Queue[Event] = asyncio.Queue(QUEUE_SIZE)
        self._queues[queue] = (user_id, set(feed_ids))
        try:
            while True:
                yield await queue.get()
        finally:
            del self._queues[queue]

    def publish(self, event: Event) -> None:
        """Put an event into the queues of all listeners that it affects, without waiting."""
        for queue, (user_id, feed_ids) in self._queues.items():
            if event.user_id == user_id or (event.user_id is None and event.feed_id in feed_ids):
                if event.kind == "subscriptions" and event.feed_id is not None:
                    feed_ids.add(event.feed_id)
                _put_or_drop(queue, event)

    def publish_polls(
        self, outcomes: Sequence[PollOutcome], recorded: Sequence[RecordResult]
    ) -> None:
        """Publish the new entries of polls that were written to the store."""
        for outcome, result in zip(outcomes, recorded, strict=True):
            if result.new:
                self.publish(Event("entries_added", feed_id=outcome.feed_id, entry_ids=result.new))


def _put_or_drop(queue: "asyncio.Queue[Event]", event: Event) -> None:
    try:
        queue.put_nowait(event)
    except asyncio.QueueFull:
        while not queue.empty():
            queue.get_nowait()
        queue.put_nowait(Event("events_lost"))
