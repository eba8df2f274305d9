"""How long a reader waits: pages and answers to apps, through HTTP, with many feeds and a million entries.

    python -m benchmarks.reading --feeds 5000 --entries 1000000 [--postgres ADDRESS] [--json]

The store is made anew in a folder that is gone afterwards (or in the empty database that ``--postgres`` names); then
``tidings serve`` runs over it, and is asked by one reader on one connection, packed as browsers and apps ask for it. Times are
from the first byte of the request to the last of the answer.
"""

import argparse
import asyncio
import http.client
import json
import random
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from tidings.people import People, Reading
from tidings.store import Store
from tidings.store.connection import Connection
from tidings.store.rows import Wanted
from tidings.store.search import vector

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
    *("id", "feed_id", "identity", "digest", "published_at", "published_told", "updated_at", "first_seen_at", "changed_at"),
    *("source", "delay_s", "url", "title", "author", "comments_url", "content", "summary", "tags", "enclosures"),
)

TITLE = COLUMNS.index("title")


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

        partitions.ensure(db, made[-1][0])
        db.insert("entries", (*COLUMNS, "words"), [(*row, vector(row[TITLE], "")) for row in made])
    else:
        db.insert("entries", COLUMNS, made)
    columns = ("user_id", "entry_id", "feed_id", "published_at", "first_seen_at")
    new = [(user_id, r[0], r[1], r[4], r[7]) for r in made if r[0] >= unread_from]
    if new:
        db.insert("unread", columns, new)


async def build(store: Store, feeds: int, entries: int, unread: int) -> str:
    """A reader's token."""
    dice = random.Random(1)
    people = People(store, lambda: NOW)
    user = await people.add_user(USER, PASSWORD, admin=True, by=None)
    far = NOW + 365 * DAY_S  # nobody polls meanwhile
    wanted = [Wanted(f"https://host{n}.example/feed", far, folder=f"Folder {n % 50}") for n in range(feeds)]
    feed_ids = [added.feed_id for added in await store.add(wanted, user.id)]
    dice.shuffle(feed_ids)
    for start in range(1, entries + 1, BATCH):
        numbers = range(start, min(start + BATCH, entries + 1))
        await store.write(put, rows(feed_ids, numbers, 365 * DAY_S / entries, dice), user.id, entries - unread + 1)
        print(f"\r{numbers[-1]:,} entries", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    reading = Reading(user, store, lambda: NOW)
    await reading.mark(dice.sample(range(1, entries + 1), min(5000, entries)), starred=True)
    return (await people.add_token(user, "benchmark")).secret


@contextmanager
def served(folder: Path, postgres: str | None) -> Iterator[int]:
    """The port of a service over the store."""
    command = [Path(sys.executable).with_name("tidings"), "--data-dir", folder, *(["--database", postgres] if postgres else [])]
    command += ["--set", "store.retain_days=100000", "serve", "--port", "0"]
    with open(folder / "log", "w") as log, subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True) as process:
        try:
            assert process.stdout is not None
            told = re.search(r"http://127.0.0.1:(\d+)", process.stdout.readline())
            assert told is not None, (folder / "log").read_text()
            yield int(told.group(1))
        finally:
            process.terminate()


class Client:
    """On one connection. ``token`` is for the REST API; pages need the cookie, Google Reader's API its own header."""

    def __init__(self, port: int, token: str = "") -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
        self._headers = {"Accept-Encoding": "gzip", "X-Auth-Token": token}

    def ask(self, method: str, path: str, body: Any = None, kind: str = "application/x-www-form-urlencoded") -> bytes:
        sent = urlencode(body) if isinstance(body, dict) else body
        self._connection.request(method, path, sent, {**self._headers, **({"Content-Type": kind} if body else {})})
        answer = self._connection.getresponse()
        content = answer.read()
        if answer.status >= 400:
            raise SystemExit(f"{method} {path}: {answer.status} {content[:200]!r}")
        for cookie in answer.headers.get_all("Set-Cookie", []):
            self._headers["Cookie"] = cookie.partition(";")[0]
        return content

    def log_in(self) -> None:
        del self._headers["Accept-Encoding"]
        form = self.ask("GET", "/login").decode()
        found = re.search(r'name="csrf" value="([^"]+)"', form)
        assert found is not None
        self.ask("POST", "/login", {"csrf": found.group(1), "name": USER, "password": PASSWORD})
        told = self.ask("POST", "/accounts/ClientLogin", {"Email": USER, "Passwd": PASSWORD}).decode()
        self._headers |= {"Accept-Encoding": "gzip", "Authorization": f"GoogleLogin auth={told.split('Auth=')[1].strip()}"}


def measure(times: int, work: Callable[[], object]) -> tuple[float, float]:
    """Median and 95th percentile in milliseconds; the first three do not count."""
    spent = []
    for _ in range(times + 3):
        start = time.perf_counter()
        work()
        spent.append((time.perf_counter() - start) * 1000)
    spent = sorted(spent[3:])
    return spent[len(spent) // 2], spent[int(len(spent) * 0.95)]


def requests(feeds: int, entries: int) -> dict[str, Callable[[Client], object]]:
    """What readers and apps ask for."""
    dice = random.Random(2)
    google, unread = "/reader/api/0/stream", "xt=user/-/state/com.google/read"

    def get(path: Callable[[], str] | str) -> Callable[[Client], object]:
        return lambda client: client.ask("GET", path() if callable(path) else path)

    def mark(client: Client) -> None:
        number = dice.randrange(entries - 1000, entries)
        for status in ("read", "unread"):
            client.ask("PUT", "/v1/entries", json.dumps({"entry_ids": [number], "status": status}), "application/json")

    return {
        "unread page": get("/unread"),
        "unread page, the list alone": get("/unread?part=list"),
        "unread page of a folder": get(lambda: f"/folder/{dice.randint(1, 50)}"),
        "unread page of a feed": get(lambda: f"/feed/{dice.randint(1, feeds)}"),
        "page of all": get("/all"),
        "page of starred": get("/starred"),
        "an article's page": get(lambda: f"/entry/{dice.randint(1, entries)}"),
        "stream/contents: reading list, 20": get(f"{google}/contents/user/-/state/com.google/reading-list?n=20"),
        "stream/contents: reading list, 100": get(f"{google}/contents/user/-/state/com.google/reading-list?n=100"),
        "stream/contents: unread, 100": get(f"{google}/contents/user/-/state/com.google/reading-list?n=100&{unread}"),
        "stream/contents: a folder, 100": get(
            lambda: f"{google}/contents/user/-/label/Folder%20{dice.randrange(50)}?n=100&{unread}"
        ),
        "stream/contents: a feed, 20": get(lambda: f"{google}/contents/feed/{dice.randint(1, feeds)}?n=20"),
        "stream/contents: nothing newer": get(f"{google}/contents/user/-/state/com.google/reading-list?n=100&ot={NOW + 1:.0f}"),
        "stream/items/ids: unread, 1,000": get(f"{google}/items/ids?s=user/-/state/com.google/reading-list&n=1000&{unread}"),
        "stream/items/ids: unread, 10,000": get(f"{google}/items/ids?s=user/-/state/com.google/reading-list&n=10000&{unread}"),
        "stream/items/ids: starred, 1,000": get(f"{google}/items/ids?s=user/-/state/com.google/starred&n=1000"),
        "subscription/list": get("/reader/api/0/subscription/list?output=json"),
        "v1/entries: unread, 100": get("/v1/entries?status=unread&order=published_at&direction=desc&limit=100"),
        "v1/entries: of a feed, 100": get(
            lambda: f"/v1/feeds/{dice.randint(1, feeds)}/entries?order=published_at&direction=desc"
        ),
        "v1/feeds": get("/v1/feeds"),
        "mark one read and unread again": mark,
    }


async def make(options: argparse.Namespace, place: Path | str) -> str:
    async with Store.open(place, clock=lambda: NOW) as store:
        return await build(store, options.feeds, options.entries, options.unread)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--feeds", type=int, default=5000)
    parser.add_argument("--entries", type=int, default=1_000_000)
    parser.add_argument("--unread", type=int, default=100_000, help="so many of the newest entries are unread")
    parser.add_argument("--times", type=int, default=100)
    parser.add_argument("--postgres", metavar="ADDRESS", help="an empty database; else SQLite")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        token = asyncio.run(make(options, options.postgres or Path(folder) / "tidings.db"))
        with served(Path(folder), options.postgres) as port:
            client = Client(port, token)
            client.log_in()
            asked = requests(options.feeds, options.entries).items()
            found = {name: measure(options.times, lambda work=work: work(client)) for name, work in asked}  # type: ignore[misc]
    if options.json:
        print(json.dumps(found))
        return
    print(f"{'milliseconds':40} {'p50':>8} {'p95':>8}")
    for name, (median, late) in found.items():
        print(f"{name:40} {median:8.1f} {late:8.1f}")


if __name__ == "__main__":
    main()
