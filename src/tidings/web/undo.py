"""Create actions that undo an unsubscription, a removal or marking entries as read.

Folders, tags, rules and saved searches can be removed.

Only the last action of each user can be undone. The undo actions are in memory and are lost when
the service stops.
"""

from collections.abc import Awaitable, Callable

from msgspec import Struct
from msgspec.structs import replace

from tidings.store.user_models import Stream
from tidings.users import ReaderService

#: Number of entry ids per query.
BATCH_SIZE = 10_000


class Undo(Struct, frozen=True):
    """Undo action, with a function that restores the previous state and the page to show."""

    apply: Callable[[ReaderService], Awaitable[object]]
    path: str = "/unread"


def undo_mark_read(entry_ids: list[int]) -> Undo:
    """Return the action that marks the entries as unread again."""
    return Undo(lambda reader_service: reader_service.mark(entry_ids, unread=True))


async def undo_unsubscribe(reader_service: ReaderService, feed_id: int, now: float) -> Undo:
    old, unread = (
        await reader_service.subscription(feed_id),
        await _ids(reader_service, Stream(feeds=(feed_id,), unread=True)),
    )
    return Undo(
        lambda reader_service: reader_service.restore_subscription(old, unread, now),
        f"/feed/{feed_id}",
    )


async def undo_remove_folder(reader_service: ReaderService, folder_id: int) -> Undo:
    name = next(
        (folder.name for folder in await reader_service.folders() if folder.id == folder_id), ""
    )
    feeds = [
        subscription.feed.id
        for subscription in await reader_service.subscriptions(folder_ids=[folder_id])
    ]

    async def apply(reader_service: ReaderService) -> None:
        if name not in (folder.name for folder in await reader_service.folders()):
            await reader_service.add_folder(name)
        for subscription in await reader_service.subscriptions(feeds):
            await reader_service.change(subscription.feed.id, folder=name)

    return Undo(apply, "/feeds#folders")


async def undo_remove_tag(reader_service: ReaderService, name: str) -> Undo:
    tagged = await _ids(reader_service, Stream(tags=(name,)))
    return Undo(lambda reader_service: reader_service.restore_tag(name, tagged), "/feeds#tags")


async def undo_remove_rule(reader_service: ReaderService, rule_id: int) -> Undo:
    rules = [rule for rule in await reader_service.rules() if rule.id == rule_id]
    return Undo(lambda reader_service: reader_service.save_rule(replace(rules[0], id=0)), "/rules")


async def undo_remove_search(reader_service: ReaderService, search_id: int) -> Undo:
    saved = [saved for saved in await reader_service.saved_searches() if saved.id == search_id]
    return Undo(lambda reader_service: reader_service.save_search(saved[0].name, saved[0].stream))


async def _ids(reader_service: ReaderService, stream: Stream) -> list[int]:
    page = await reader_service.ids(stream, limit=BATCH_SIZE)
    entry_ids = list(page.ids)
    while page.next is not None:
        page = await reader_service.ids(stream, limit=BATCH_SIZE, after=page.next)
        entry_ids += page.ids
    return entry_ids
