"""How long a reader waits: pages, lists of ids, counts and marks in a store with many feeds and a million entries.

    python benchmarks/reading.py --feeds 5000 --entries 1000000 [--postgres ADDRESS]

The store is made anew in a folder that is gone afterwards (or in the empty database that ``--postgres`` names). Times are
those of the operation as the pages and APIs call it, from the first word to the last value, in one process.
"""

import argparse
import asyncio
import random
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from tidings.people import People, Reading
from tidings.store import Store
from tidings.store.connection import Connection
from tidings.store.people_rows import Stream
from tidings.store.rows import Wanted

DAY_S = 86400.0
BATCH = 20_000
NOW = 1_794_800_000.0
WORDS = [
    "river",
    "stone",
    "light",
    "winter",
    "signal",
    "garden",
    "paper",
    "engine",
    "harbour",
    "music",
    "letter",
    "window",
    "copper",
    "forest",
    "market",
    "orange",
]
COLUMNS = (
    *("id", "feed_id", "identity", "digest", "published_at", "published_told", "updated_at", "first_seen_at", "changed_at"),
    *("source", "delay_s", "url", "title", "author", "comments_url", "content", "summary", "tags", "enclosures"),
)


def rows(feed_ids: list[int], numbers: range, every_s: float, dice: random.Random) -> list[tuple[Any, ...]]:
    """Entries of a year, a few feeds posting most of them, as feeds do."""
    made = []
    for n in numbers:
        feed_id = feed_ids[int(len(feed_ids) * dice.random() ** 2)]
        seen = NOW - 365 * DAY_S + n * every_s
        published = seen - dice.expovariate(1 / 1800)
        words = " ".join(dice.choices(WORDS, k=120))
        times = (published, published, None, seen, None, "poll", seen - published)
        text = (f"https://x.example/{n}", words[:50], "", "", f"<p>{words}</p>", "", "[]", "[]")
        made.append((n, feed_id, f"id:{n}", b"1", *times, *text))
    return made


def put(db: Connection, made: list[tuple[Any, ...]], user_id: int, unread_from: int) -> None:
    if db.postgres:
        from tidings.store import partitions

        partitions.make_room(db, made[-1][0])
        db.insert("entries", (*COLUMNS, "words"), [(*row, "") for row in made])
    else:
        db.insert("entries", COLUMNS, made)
    columns = ("user_id", "entry_id", "feed_id", "published_at", "first_seen_at")
    new = [(user_id, r[0], r[1], r[4], r[7]) for r in made if r[0] >= unread_from]
    if new:
        db.insert("unread", columns, new)


async def build(store: Store, feeds: int, entries: int, unread: int, dice: random.Random) -> Reading:
    people = People(store, lambda: NOW)
    user = await people.add_user("reader", "a long password", admin=True, by=None)
    wanted = [Wanted(f"https://host{n}.example/feed", NOW, folder=f"Folder {n % 50}") for n in range(feeds)]
    feed_ids = [added.feed_id for added in await store.add(wanted, user.id)]
    dice.shuffle(feed_ids)
    for start in range(1, entries + 1, BATCH):
        numbers = range(start, min(start + BATCH, entries + 1))
        await store.write(put, rows(feed_ids, numbers, 365 * DAY_S / entries, dice), user.id, entries - unread + 1)
        print(f"\r{numbers[-1]:,} entries", end="", flush=True)
    print()
    reading = Reading(user, store, lambda: NOW)
    await reading.mark(dice.sample(range(1, entries + 1), min(5000, entries)), starred=True)
    return reading


async def measure(name: str, times: int, work: Callable[[], Awaitable[object]]) -> None:
    await work()
    spent = []
    for _ in range(times):
        start = time.perf_counter()
        await work()
        spent.append(time.perf_counter() - start)
    spent.sort()
    print(f"{name:55} {spent[len(spent) // 2] * 1000:8.1f} {spent[int(len(spent) * 0.95)] * 1000:8.1f}")


async def run(options: argparse.Namespace, where: Path | str) -> None:
    dice = random.Random(1)
    async with Store.open(where, clock=lambda: NOW) as store:
        began = time.perf_counter()
        reading = await build(store, options.feeds, options.entries, options.unread, dice)
        print(f"built in {time.perf_counter() - began:.0f} s; milliseconds, median and 95th percentile of {options.times}:")
        subscriptions = await reading.subscriptions()
        feed_ids = [s.feed.id for s in subscriptions]
        folders = [f.id for f in await reading.folders()]

        def page(limit: int = 50, **stream: Any) -> Callable[[], Awaitable[object]]:
            return lambda: reading.page(Stream(**stream), limit=limit)

        def of_a_folder(limit: int, **stream: Any) -> Callable[[], Awaitable[object]]:
            return lambda: reading.page(Stream(folders=(dice.choice(folders),), **stream), limit=limit)

        def of_a_feed(limit: int, **stream: Any) -> Callable[[], Awaitable[object]]:
            return lambda: reading.page(Stream(feeds=(dice.choice(feed_ids),), **stream), limit=limit)

        async def deep() -> object:
            at = NOW - dice.random() * 365 * DAY_S
            return await reading.page(Stream(by="publication"), limit=50, after=f"{at},{options.entries}")

        async def toggle() -> None:
            entry = dice.randrange(options.entries - 1000, options.entries)
            await reading.mark([entry], unread=False)
            await reading.mark([entry], unread=True)

        cases: list[tuple[str, Callable[[], Awaitable[object]]]] = [
            ("feeds with their unread counts", reading.subscriptions),
            ("unread, 50 by publication", page(unread=True, by="publication")),
            ("unread, 50 by arrival", page(unread=True)),
            ("unread of a folder, 50 by publication", of_a_folder(50, unread=True, by="publication")),
            ("unread of a feed, 50 by publication", of_a_feed(50, unread=True, by="publication")),
            ("all, 50 by publication", page(by="publication")),
            ("all, 50 by publication, anywhere in the year", deep),
            ("all of a folder, 50 by publication", of_a_folder(50, by="publication")),
            ("all of a folder, 50 by arrival", of_a_folder(50)),
            ("all of a feed, 50 by arrival", of_a_feed(50)),
            ("stream/contents: reading-list, 20", page(20)),
            ("stream/contents: reading-list, 100", page(100)),
            ("stream/contents: of the last day, unread, 100", page(100, unread=True, seen_from=NOW - DAY_S)),
            ("stream/contents: nothing newer than now", page(100, seen_from=NOW + 1)),
            ("stream/items/ids: unread, 1,000", lambda: reading.ids(Stream(unread=True), limit=1000)),
            ("stream/items/ids: unread, 10,000", lambda: reading.ids(Stream(unread=True), limit=10_000)),
            ("stream/items/ids: read, 1,000", lambda: reading.ids(Stream(unread=False), limit=1000)),
            ("stream/items/ids: starred, 1,000", lambda: reading.ids(Stream(starred=True), limit=1000)),
            ("starred, 50 by publication", page(starred=True, by="publication")),
            ("number of unread", lambda: reading.count(Stream(unread=True))),
            ("number of all", lambda: reading.count(Stream())),
            ("mark one read and unread again", toggle),
        ]
        for name, work in cases:
            await measure(name, options.times, work)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--feeds", type=int, default=5000)
    parser.add_argument("--entries", type=int, default=1_000_000)
    parser.add_argument("--unread", type=int, default=100_000, help="so many of the newest entries are unread")
    parser.add_argument("--times", type=int, default=100)
    parser.add_argument("--postgres", metavar="ADDRESS", help="an empty database; else SQLite")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(run(options, options.postgres or Path(folder) / "tidings.db"))


if __name__ == "__main__":
    main()
