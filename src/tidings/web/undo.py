"""Taking back: before something is removed, what brings it back is put aside, the last of each user, until the service ends."""

from collections.abc import Awaitable, Callable

from msgspec import Struct
from msgspec.structs import replace

from tidings.people import Reading
from tidings.store.people_rows import Stream

#: Ids that are asked for at once.
PART = 10_000


class Undo(Struct, frozen=True):
    """How to take back what was done last, and the page on which it is there again."""

    act: Callable[[Reading], Awaitable[object]]
    path: str = "/unread"


def of_marks(entry_ids: list[int]) -> Undo:
    """Marked as read."""
    return Undo(lambda reading: reading.mark(entry_ids, unread=True))


async def of_feed(reading: Reading, feed_id: int, now: float) -> Undo:
    old, unread = await reading.subscription(feed_id), await _ids(reading, Stream(feeds=(feed_id,), unread=True))
    return Undo(lambda reading: reading.subscribe_again(old, unread, now), f"/feed/{feed_id}")


async def of_folder(reading: Reading, folder_id: int) -> Undo:
    name = next((folder.name for folder in await reading.folders() if folder.id == folder_id), "")
    feeds = [subscription.feed.id for subscription in await reading.subscriptions(folder_ids=[folder_id])]

    async def act(reading: Reading) -> None:
        if name not in (folder.name for folder in await reading.folders()):
            await reading.add_folder(name)
        for subscription in await reading.subscriptions(feeds):
            await reading.change(subscription.feed.id, folder=name)

    return Undo(act, "/feeds#folders")


async def of_tag(reading: Reading, name: str) -> Undo:
    tagged = await _ids(reading, Stream(tags=(name,)))
    return Undo(lambda reading: reading.tag_again(name, tagged), "/feeds#tags")


async def of_rule(reading: Reading, rule_id: int) -> Undo:
    rules = [rule for rule in await reading.rules() if rule.id == rule_id]
    return Undo(lambda reading: reading.save_rule(replace(rules[0], id=0)), "/rules")


async def of_search(reading: Reading, search_id: int) -> Undo:
    saved = [saved for saved in await reading.saved_searches() if saved.id == search_id]
    return Undo(lambda reading: reading.save_search(saved[0].name, saved[0].stream))


async def _ids(reading: Reading, stream: Stream) -> list[int]:
    page = await reading.ids(stream, limit=PART)
    found = list(page.ids)
    while page.next is not None:
        page = await reading.ids(stream, limit=PART, after=page.next)
        found += page.ids
    return found
