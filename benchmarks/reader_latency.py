"""Benchmark of reader latency: pages and API responses over HTTP with a million entries.

    python -m benchmarks.reader_latency --feeds 5000 --entries 1000000 [--postgres URL] [--json]
    python -m benchmarks.reader_latency --miniflux BINARY

The store is created in a temporary folder (or in the empty database of ``--postgres``). Then
``tidings serve`` runs on it, and one client sends requests on one connection, with compression as
browsers and apps use it. Times are from the first byte of the request to the last byte of the
response. With ``--miniflux``, both programs have the same data on one PostgreSQL server and get the
requests that both support, in turn.
"""

import argparse
import asyncio
import base64
import gzip
import http.client
import json
import random
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from benchmarks.miniflux import Miniflux, execute
from benchmarks.postgres import server

from tidings.store import Store
from tidings.store.connection import Connection
from tidings.store.feed_models import NewSubscription
from tidings.store.search import encode_tsvector
from tidings.store.user_models import Settings
from tidings.users import ReaderService, UserService

DAY_S = 86400.0
BATCH = 20_000
NOW = float(int(time.time()))
USER, PASSWORD = "reader", "a long password"
WORDS = (
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
)
COLUMNS = (
    *(
        "id",
        "feed_id",
        "identity",
        "digest",
        "published_at",
        "declared_published_at",
        "updated_at",
        "first_seen_at",
        "changed_at",
    ),
    *(
        "source",
        "delay_s",
        "url",
        "title",
        "author",
        "comments_url",
        "content",
        "summary",
        "tags",
        "enclosures",
    ),
)

TITLE, CONTENT = COLUMNS.index("title"), COLUMNS.index("content")
#: Number of rare words; each entry has one of them.
RARE = 2000
#: Columns of an entry that Miniflux stores.
MINIFLUX_COLUMNS = (
    "id",
    "feed_id",
    "identity",
    "published_at",
    "first_seen_at",
    "url",
    "title",
    "content",
)
#: Total time after which a slow request is no longer repeated, and the minimum of repetitions.
LONG_MS, LEAST = 30_000.0, 12
MARKUP = re.compile("<[^>]*>")


def rows(
    feed_ids: list[int], numbers: range, every_s: float, rng: random.Random
) -> list[tuple[Any, ...]]:
    """Return entries of a year; a few feeds post most of them, as in reality."""
    entries = []
    for n in numbers:
        feed_id = feed_ids[int(len(feed_ids) * rng.random() ** 2)]
        seen = NOW - 365 * DAY_S + n * every_s
        published = seen - rng.expovariate(1 / 1800)
        words = " ".join((*rng.choices(WORDS, k=119), f"topic{rng.randrange(RARE)}"))
        times = (published, published, None, seen, None, "poll", seen - published)
        text = (f"https://x.example/{n}", words[:50], "", "", f"<p>{words}</p>", "", "[]", "[]")
        entries.append((n, feed_id, f"id:{n}", b"1", *times, *text))
    return entries


def insert_entries(
    db: Connection, entries: list[tuple[Any, ...]], user_id: int, unread_from: int
) -> None:
    if db.postgres:
        from tidings.store import partitions

        partitions.ensure_partition(db, entries[-1][0])
        db.insert(
            "entries",
            (*COLUMNS, "words"),
            [(*row, encode_tsvector(row[TITLE], MARKUP.sub("", row[CONTENT]))) for row in entries],
        )
    else:
        db.insert("entries", COLUMNS, entries)
        db.insert(
            "search",
            ("rowid", "title", "body"),
            [(r[0], r[TITLE], MARKUP.sub("", r[CONTENT])) for r in entries],
        )
    columns = ("user_id", "entry_id", "feed_id", "published_at", "first_seen_at")
    unread = [(user_id, r[0], r[1], r[4], r[7]) for r in entries if r[0] >= unread_from]
    if unread:
        db.insert("unread", columns, unread)


def feeds_of(count: int) -> list[tuple[str, str]]:
    """Return URLs and folders of the feeds."""
    return [(f"https://host{n}.example/feed", f"Folder {n % 50}") for n in range(count)]


def batches(feed_ids: Sequence[int], entries: int) -> Iterator[list[tuple[Any, ...]]]:
    """Yield batches of entries, the same in every run."""
    rng = random.Random(1)
    shuffled = rng.sample(feed_ids, len(feed_ids))
    for start in range(1, entries + 1, BATCH):
        numbers = range(start, min(start + BATCH, entries + 1))
        yield rows(shuffled, numbers, 365 * DAY_S / entries, rng)
        print(f"\r{numbers[-1]:,} entries", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)


def starred_of(entries: int) -> list[int]:
    return random.Random(3).sample(range(1, entries + 1), min(5000, entries))


async def build(store: Store, feeds: int, entries: int, unread: int) -> None:
    user_service = UserService(store, lambda: NOW)
    user = await user_service.add_user(USER, PASSWORD, admin=True, by=None)
    await user_service.save_settings(user, Settings(page_size=100))
    later = NOW + 365 * DAY_S  # no polls during the benchmark
    wanted = [NewSubscription(url, later, folder=folder) for url, folder in feeds_of(feeds)]
    feed_ids = [added.feed_id for added in await store.add_subscriptions(wanted, user.id)]
    for batch in batches(feed_ids, entries):
        await store.write(insert_entries, batch, user.id, entries - unread + 1)
    await ReaderService(user, store, lambda: NOW).mark(starred_of(entries), starred=True)


@contextmanager
def served(folder: Path, postgres: str | None) -> Iterator[int]:
    """Run ``tidings serve`` on the store; yields its port."""
    command = [
        Path(sys.executable).with_name("tidings"),
        "--data-dir",
        folder,
        *(["--database", postgres] if postgres else []),
    ]
    command += ["--set", "store.retain_days=100000", "serve", "--port", "0"]
    with (
        open(folder / "log", "w") as log,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True) as process,
    ):
        try:
            assert process.stdout is not None
            match = re.search(r"http://127.0.0.1:(\d+)", process.stdout.readline())
            assert match is not None, (folder / "log").read_text()
            yield int(match.group(1))
        finally:
            process.terminate()


class Client:
    """HTTP client on one connection, with a session cookie for pages and tokens for the APIs."""

    def __init__(self, port: int, form: str = "/login") -> None:
        """Log in; ``form`` is the path of the page with the login form."""
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
        credentials = base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
        self._headers = {"Authorization": f"Basic {credentials}"}
        api_key = self.request(
            "POST", "/v1/api-keys", json.dumps({"description": "benchmark"}), "application/json"
        )
        del self._headers["Authorization"]
        found = re.search(r'name="csrf" value="([^"]+)"', self.request("GET", form).decode())
        assert found is not None
        self.request(
            "POST",
            "/login",
            {"csrf": found.group(1), "name": USER, "username": USER, "password": PASSWORD},
        )
        login = self.request(
            "POST", "/accounts/ClientLogin", {"Email": USER, "Passwd": PASSWORD}
        ).decode()
        self.auth = login.split("Auth=")[1].strip()
        self._headers |= {
            "Authorization": f"GoogleLogin auth={self.auth}",
            "X-Auth-Token": json.loads(api_key)["token"],
        }
        self._headers["Accept-Encoding"] = "gzip"

    def request(
        self,
        method: str,
        path: str,
        body: Any = None,
        kind: str = "application/x-www-form-urlencoded",
    ) -> bytes:
        sent = urlencode(body, doseq=True) if isinstance(body, dict) else body
        self._connection.request(
            method, path, sent, {**self._headers, **({"Content-Type": kind} if body else {})}
        )
        response = self._connection.getresponse()
        content = response.read()
        if response.status >= 400 or response.getheader("Location", "").endswith(
            ("/login", "/?redirect_url=")
        ):
            raise SystemExit(f"{method} {path}: {response.status} {content[:200]!r}")
        for cookie in response.headers.get_all("Set-Cookie", []):
            self._headers["Cookie"] = cookie.partition(";")[0]
        return content


#: Function that sends a request, given the client and the number of the repetition.
Work = Callable[[Client, int], object]


def measure(times: int, work: Work, clients: Sequence[Client]) -> list[tuple[float, float]]:
    """Measure median and p95 in milliseconds of each client, in turn, without the first three.

    Slow requests are repeated less often (see `LONG_MS`).
    """
    spent: list[list[float]] = [[] for _ in clients]
    for turn in range(times + 3):
        if turn > LEAST and sum(map(sum, spent)) > LONG_MS:
            break
        for client, durations in zip(clients, spent, strict=True):
            start = time.perf_counter()
            work(client, turn)
            durations.append((time.perf_counter() - start) * 1000)
    return [
        (durations[len(durations) // 2], durations[int(len(durations) * 0.95)])
        for durations in (sorted(durations[3:]) for durations in spent)
    ]


def get(path: str, among: int = 1) -> Work:
    """Return a GET request; ``{}`` in the path is a random number up to ``among``."""
    return lambda client, turn: client.request(
        "GET", path.format(random.Random(turn).randint(1, among))
    )


def put_json(client: Client, path: str, **values: Any) -> None:
    client.request("PUT", path, json.dumps(values), "application/json")


def common_requests(feeds: int, entries: int) -> dict[str, Work]:
    """Return the requests that Miniflux supports too.

    Searches use rare words: a word that all entries have takes Miniflux ten seconds.
    """
    google = "/reader/api/0/stream/items"
    newest = "s=user/-/state/com.google/reading-list&xt=user/-/state/com.google/read&output=json"
    ids: dict[Client, list[str]] = {}

    def contents(client: Client, turn: int) -> None:
        if client not in ids:
            found = json.loads(decompress(client.request("GET", f"{google}/ids?{newest}&n=100")))
            ids[client] = [item["id"] for item in found["itemRefs"]]
        client.request(
            "POST", f"{google}/contents", {"i": ids[client], "T": client.auth, "output": "json"}
        )

    def mark(count: int) -> Work:
        def work(client: Client, turn: int) -> None:
            first = entries - 1000 + random.Random(turn).randrange(1000 - count)
            entry_ids = list(range(first, first + count))
            for status in ("read", "unread"):
                put_json(client, "/v1/entries", entry_ids=entry_ids, status=status)

        return work

    return {
        "unread page": get("/unread"),
        "page of starred": get("/starred"),
        "page of a search: a rare word": get("/search?q=topic{}", RARE - 1),
        "v1/entries: unread, 100": get(
            "/v1/entries?status=unread&order=published_at&direction=desc&limit=100"
        ),
        "v1/entries: of a feed, 100": get(
            "/v1/feeds/{}/entries?order=published_at&direction=desc&limit=100", feeds
        ),
        "v1/entries: a rare word": get("/v1/entries?search=topic{}&limit=100", RARE - 1),
        "v1/feeds": get("/v1/feeds"),
        "v1/feeds/counters": get("/v1/feeds/counters"),
        "subscription/list": get("/reader/api/0/subscription/list?output=json"),
        **{
            f"stream/items/ids: unread, {n:,}": get(f"{google}/ids?{newest}&n={n}")
            for n in (100, 1000, 10_000)
        },
        "stream/items/ids: starred, 1,000": get(
            f"{google}/ids?s=user/-/state/com.google/starred&output=json&n=1000"
        ),
        "stream/items/contents: unread, 100": contents,
        "mark one read and unread again": mark(1),
        "mark 100 read and unread again": mark(100),
        "mark all of a feed read": lambda client, turn: put_json(
            client, f"/v1/feeds/{turn % feeds + 1}/mark-all-as-read"
        ),
    }


def tidings_requests(feeds: int, entries: int) -> dict[str, Work]:
    """Return further requests of browsers and apps."""
    google, unread = "/reader/api/0/stream/contents", "xt=user/-/state/com.google/read"
    return {
        "unread page, list only": get("/unread?part=list"),
        "unread page of a folder": get("/folder/{}", 50),
        "unread page of a feed": get("/feed/{}", feeds),
        "page of all": get("/all"),
        "page of a search: a word in all": get("/search?q=river"),
        "an article's page": get("/entry/{}", entries),
        "stream/contents: reading list, 20": get(
            f"{google}/user/-/state/com.google/reading-list?n=20"
        ),
        "stream/contents: reading list, 100": get(
            f"{google}/user/-/state/com.google/reading-list?n=100"
        ),
        "stream/contents: unread, 100": get(
            f"{google}/user/-/state/com.google/reading-list?n=100&{unread}"
        ),
        "stream/contents: a folder, 100": get(
            f"{google}/user/-/label/Folder%20{{}}?n=100&{unread}", 49
        ),
        "stream/contents: a feed, 20": get(f"{google}/feed/{{}}?n=20", feeds),
        "stream/contents: nothing newer": get(
            f"{google}/user/-/state/com.google/reading-list?n=100&ot={NOW + 1:.0f}"
        ),
    }


def decompress(body: bytes) -> bytes:
    return gzip.decompress(body) if body.startswith(b"\x1f\x8b") else body


async def make(
    options: argparse.Namespace, location: Path | str, miniflux: Miniflux | None
) -> None:
    async with Store.open(location, clock=lambda: NOW) as store:
        await build(store, options.feeds, options.entries, options.unread)
    if isinstance(location, str):
        await execute(location, "VACUUM ANALYZE")
    if miniflux is not None:
        wanted = [COLUMNS.index(name) for name in MINIFLUX_COLUMNS]
        all_batches = batches(range(1, options.feeds + 1), options.entries)
        posts = ([tuple(row[i] for i in wanted) for row in batch] for batch in all_batches)
        await miniflux.make(
            feeds_of(options.feeds),
            posts,
            options.entries - options.unread + 1,
            starred_of(options.entries),
        )


def show(found: Iterable[tuple[str, list[tuple[float, float]]]], other: str) -> None:
    """Print a table of milliseconds and, with ``other``, the ratio to the other program."""
    heads, line = ["ms", "p50", "p95"], ["---"] * 3
    if other:
        heads, line = [*heads, f"{other}: p50", "p95", "x p50", "x p95"], ["---"] * 7
    print("", *heads, "", sep=" | ")
    print("", *line, "", sep="|")
    for name, times in found:
        ratios = (
            [f"{theirs / ours:.2f}" for ours, theirs in zip(*times, strict=True)] if other else []
        )
        print(
            "",
            name,
            *(f"{ms:,.1f}" for pair in times for ms in pair),
            *ratios,
            "",
            sep=" | ",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--feeds", type=int, default=5000, help="number of feeds")
    parser.add_argument("--entries", type=int, default=1_000_000, help="number of entries")
    parser.add_argument("--unread", type=int, default=100_000, help="number of unread entries")
    parser.add_argument("--times", type=int, default=100, help="repetitions of each request")
    parser.add_argument("--postgres", metavar="URL", help="empty database (default: SQLite)")
    parser.add_argument(
        "--miniflux",
        metavar="BINARY",
        type=Path,
        help="Miniflux binary to compare with, on a temporary PostgreSQL server",
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        postgres, miniflux = options.postgres, None
        if options.miniflux:
            postgres = postgres or stack.enter_context(server(folder))
            miniflux = Miniflux(options.miniflux, postgres, USER, PASSWORD)
            stack.callback(lambda: asyncio.run(miniflux.remove()))
        asyncio.run(make(options, postgres or folder / "tidings.db", miniflux))
        clients = [Client(stack.enter_context(served(folder, postgres)))]
        requests = common_requests(options.feeds, options.entries)
        if miniflux is not None:
            clients.append(Client(stack.enter_context(miniflux.served()), form="/"))
        else:
            requests = tidings_requests(options.feeds, options.entries) | requests
        found = ((name, measure(options.times, work, clients)) for name, work in requests.items())
        if options.json:
            print(json.dumps(dict(found)))
        else:
            show(found, f"Miniflux {miniflux.version}" if miniflux else "")


if __name__ == "__main__":
    main()
