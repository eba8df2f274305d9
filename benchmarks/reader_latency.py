"""How long a reader waits: pages and answers to apps, through HTTP, with many feeds and a million entries.

    python -m benchmarks.reader_latency --feeds 5000 --entries 1000000 [--postgres ADDRESS] [--json]
    python -m benchmarks.reader_latency --miniflux BINARY

The store is made anew in a folder that is gone afterwards (or in the empty database that ``--postgres`` names); then
``tidings serve`` runs over it, and is asked by one reader on one connection, packed as browsers and apps ask for it. Times are
from the first byte of the request to the last of the answer. With ``--miniflux`` both programs have the same on one PostgreSQL
server, and are asked in turn for what both can answer.
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
        "published_told",
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
#: Each entry has one of so many words that are not in every one.
RARE = 2000
#: Of an entry, what Miniflux keeps.
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
#: Of a request that has taken so long already, so many turns are enough.
LONG_MS, LEAST = 30_000.0, 12
MARKUP = re.compile("<[^>]*>")


def rows(
    feed_ids: list[int], numbers: range, every_s: float, rng: random.Random
) -> list[tuple[Any, ...]]:
    """Entries of a year, a few feeds posting most of them, as feeds do."""
    made = []
    for n in numbers:
        feed_id = feed_ids[int(len(feed_ids) * rng.random() ** 2)]
        seen = NOW - 365 * DAY_S + n * every_s
        published = seen - rng.expovariate(1 / 1800)
        words = " ".join((*rng.choices(WORDS, k=119), f"topic{rng.randrange(RARE)}"))
        times = (published, published, None, seen, None, "poll", seen - published)
        text = (f"https://x.example/{n}", words[:50], "", "", f"<p>{words}</p>", "", "[]", "[]")
        made.append((n, feed_id, f"id:{n}", b"1", *times, *text))
    return made


def insert_entries(
    db: Connection, made: list[tuple[Any, ...]], user_id: int, unread_from: int
) -> None:
    if db.postgres:
        from tidings.store import partitions

        partitions.ensure_partition(db, made[-1][0])
        db.insert(
            "entries",
            (*COLUMNS, "words"),
            [(*row, encode_tsvector(row[TITLE], MARKUP.sub("", row[CONTENT]))) for row in made],
        )
    else:
        db.insert("entries", COLUMNS, made)
        db.insert(
            "search",
            ("rowid", "title", "body"),
            [(r[0], r[TITLE], MARKUP.sub("", r[CONTENT])) for r in made],
        )
    columns = ("user_id", "entry_id", "feed_id", "published_at", "first_seen_at")
    new = [(user_id, r[0], r[1], r[4], r[7]) for r in made if r[0] >= unread_from]
    if new:
        db.insert("unread", columns, new)


def feeds_of(count: int) -> list[tuple[str, str]]:
    """Addresses and folders."""
    return [(f"https://host{n}.example/feed", f"Folder {n % 50}") for n in range(count)]


def batches(feed_ids: Sequence[int], entries: int) -> Iterator[list[tuple[Any, ...]]]:
    """The same entries whenever they are made."""
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
    far = NOW + 365 * DAY_S  # nobody polls meanwhile
    wanted = [NewSubscription(url, far, folder=folder) for url, folder in feeds_of(feeds)]
    feed_ids = [added.feed_id for added in await store.add(wanted, user.id)]
    for batch in batches(feed_ids, entries):
        await store.write(insert_entries, batch, user.id, entries - unread + 1)
    await ReaderService(user, store, lambda: NOW).mark(starred_of(entries), starred=True)


@contextmanager
def served(folder: Path, postgres: str | None) -> Iterator[int]:
    """The port of a service over the store."""
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
            told = re.search(r"http://127.0.0.1:(\d+)", process.stdout.readline())
            assert told is not None, (folder / "log").read_text()
            yield int(told.group(1))
        finally:
            process.terminate()


class Client:
    """On one connection, logged in everywhere: pages want a cookie, Google Reader's API and the REST API headers."""

    def __init__(self, port: int, form: str = "/login") -> None:
        """``form`` is the page with the form to log in."""
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
        known = base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
        self._headers = {"Authorization": f"Basic {known}"}
        made = self.request(
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
        told = self.request(
            "POST", "/accounts/ClientLogin", {"Email": USER, "Passwd": PASSWORD}
        ).decode()
        self.auth = told.split("Auth=")[1].strip()
        self._headers |= {
            "Authorization": f"GoogleLogin auth={self.auth}",
            "X-Auth-Token": json.loads(made)["token"],
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
        answer = self._connection.getresponse()
        content = answer.read()
        if answer.status >= 400 or answer.getheader("Location", "").endswith(
            ("/login", "/?redirect_url=")
        ):
            raise SystemExit(f"{method} {path}: {answer.status} {content[:200]!r}")
        for cookie in answer.headers.get_all("Set-Cookie", []):
            self._headers["Cookie"] = cookie.partition(";")[0]
        return content


#: Asks for something, the so-manieth time.
Work = Callable[[Client, int], object]


def measure(times: int, work: Work, clients: Sequence[Client]) -> list[tuple[float, float]]:
    """Median and 95th percentile in milliseconds of each client, who ask in turn; the first three do not count.

    What takes long is not asked so often.
    """
    spent: list[list[float]] = [[] for _ in clients]
    for turn in range(times + 3):
        if turn > LEAST and sum(map(sum, spent)) > LONG_MS:
            break
        for client, own in zip(clients, spent, strict=True):
            start = time.perf_counter()
            work(client, turn)
            own.append((time.perf_counter() - start) * 1000)
    return [
        (own[len(own) // 2], own[int(len(own) * 0.95)])
        for own in (sorted(own[3:]) for own in spent)
    ]


def get(path: str, among: int = 1) -> Work:
    """In place of ``{}`` stands one of the numbers up to ``among``, every time another."""
    return lambda client, turn: client.request(
        "GET", path.format(random.Random(turn).randint(1, among))
    )


def put_json(client: Client, path: str, **told: Any) -> None:
    client.request("PUT", path, json.dumps(told), "application/json")


def common_requests(feeds: int, entries: int) -> dict[str, Work]:
    """What Miniflux can be asked for in the same words. A word that is in all entries takes it ten seconds."""
    google = "/reader/api/0/stream/items"
    newest = "s=user/-/state/com.google/reading-list&xt=user/-/state/com.google/read&output=json"
    ids: dict[Client, list[str]] = {}

    def contents(client: Client, turn: int) -> None:
        if client not in ids:
            told = json.loads(unpacked(client.request("GET", f"{google}/ids?{newest}&n=100")))
            ids[client] = [item["id"] for item in told["itemRefs"]]
        client.request(
            "POST", f"{google}/contents", {"i": ids[client], "T": client.auth, "output": "json"}
        )

    def mark(many: int) -> Work:
        def work(client: Client, turn: int) -> None:
            first = entries - 1000 + random.Random(turn).randrange(1000 - many)
            for status in ("read", "unread"):
                put_json(
                    client, "/v1/entries", entry_ids=list(range(first, first + many)), status=status
                )

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
    """What else readers and apps ask us for."""
    google, unread = "/reader/api/0/stream/contents", "xt=user/-/state/com.google/read"
    return {
        "unread page, the list alone": get("/unread?part=list"),
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


def unpacked(body: bytes) -> bytes:
    return gzip.decompress(body) if body.startswith(b"\x1f\x8b") else body


async def make(options: argparse.Namespace, place: Path | str, miniflux: Miniflux | None) -> None:
    async with Store.open(place, clock=lambda: NOW) as store:
        await build(store, options.feeds, options.entries, options.unread)
    if isinstance(place, str):
        await execute(place, "VACUUM ANALYZE")
    if miniflux is not None:
        wanted = [COLUMNS.index(name) for name in MINIFLUX_COLUMNS]
        all_of_them = batches(range(1, options.feeds + 1), options.entries)
        posts = ([tuple(row[i] for i in wanted) for row in batch] for batch in all_of_them)
        await miniflux.make(
            feeds_of(options.feeds),
            posts,
            options.entries - options.unread + 1,
            starred_of(options.entries),
        )


def show(found: Iterable[tuple[str, list[tuple[float, float]]]], beside: str) -> None:
    """Milliseconds; and how many times as long the other program takes."""
    heads, line = ["ms", "p50", "p95"], ["---"] * 3
    if beside:
        heads, line = [*heads, f"{beside}: p50", "p95", "x p50", "x p95"], ["---"] * 7
    print("", *heads, "", sep=" | ")
    print("", *line, "", sep="|")
    for name, times in found:
        ratios = (
            [f"{theirs / ours:.2f}" for ours, theirs in zip(*times, strict=True)] if beside else []
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
    parser.add_argument("--feeds", type=int, default=5000)
    parser.add_argument("--entries", type=int, default=1_000_000)
    parser.add_argument(
        "--unread", type=int, default=100_000, help="so many of the newest entries are unread"
    )
    parser.add_argument("--times", type=int, default=100)
    parser.add_argument("--postgres", metavar="ADDRESS", help="an empty database; else SQLite")
    parser.add_argument(
        "--miniflux",
        metavar="BINARY",
        type=Path,
        help="beside this one, on a PostgreSQL server made for it",
    )
    parser.add_argument("--json", action="store_true")
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
