"""Feed server with generated blogs on loopback, to try an aggregator without network access.

``python benchmarks/feedserver.py --feeds 200 --opml feeds.opml`` serves the pages ``/blog/1`` to
``/blog/200`` with their feeds ``/blog/1/rss.xml`` and ``/blog/1/atom.xml``, and writes the OPML
list for an aggregator to import. Every blog posts at its own rate. Posts depend only on seed and
time, so that servers with the same seed are identical. Responses have ETag and Last-Modified,
support 304, and are compressed for clients that accept it.
"""

import argparse
import asyncio
import gzip
import os
import random
import socket
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from email.utils import format_datetime, formatdate, parsedate_to_datetime
from hashlib import blake2b
from html import escape
from pathlib import Path
from typing import NamedTuple

from aiohttp import web

TOPICS = (
    "Rivers",
    "Bridges",
    "Bread",
    "Lenses",
    "Tides",
    "Maps",
    "Clocks",
    "Birds",
    "Fonts",
    "Gardens",
    "Radios",
    "Trains",
)
MOODS = (
    "quiet",
    "small",
    "northern",
    "forgotten",
    "early",
    "patient",
    "curious",
    "slow",
    "bright",
    "honest",
)
THINGS = (
    "harbour",
    "notebook",
    "engine",
    "orchard",
    "signal",
    "lantern",
    "compiler",
    "archive",
    "winter",
    "kettle",
    "bicycle",
)
DEEDS = (
    "looking at",
    "mending",
    "drawing",
    "measuring",
    "leaving",
    "finding",
    "counting",
    "explaining",
)
SHORTEST_GAP_S, LONGEST_GAP_S = 1800.0, 5 * 86400.0


class Post(NamedTuple):
    """A post of a blog."""

    number: int
    at: float
    title: str
    text: str


class Blog:
    """A blog whose k-th post is at a random time of its k-th interval."""

    def __init__(self, number: int, blogs: int, seed: int) -> None:
        self.number, self._seed = number, seed
        rng = random.Random(f"{seed}/{number}")
        self.title = f"{rng.choice(TOPICS)} and {rng.choice(MOODS)} {rng.choice(THINGS)}s"
        self.folder = rng.choice(("", "Science", "Friends", "News/Local"))
        self.kind = "atom" if number % 2 else "rss"
        self.gap_s = SHORTEST_GAP_S * (LONGEST_GAP_S / SHORTEST_GAP_S) ** (
            (number - 1) / max(1, blogs - 1)
        )

    def posts(self, now: float, count: int) -> Iterator[Post]:
        """Yield the latest posts, newest first."""
        number = int(now / self.gap_s) + 1
        while count:
            number -= 1
            rng = random.Random(f"{self._seed}/{self.number}/{number}")
            at = float(int((number + rng.random()) * self.gap_s))
            if at <= now:
                count -= 1
                title = (
                    f"{rng.choice(DEEDS)} the {rng.choice(MOODS)} {rng.choice(THINGS)}".capitalize()
                )
                words = " ".join(
                    f"{rng.choice(MOODS)} {rng.choice(THINGS)}" for _ in range(rng.randint(20, 60))
                )
                yield Post(number, at, title, f"<p>{words}.</p>")


def rss(blog: Blog, posts: list[Post], address: str) -> str:
    items = "".join(
        f"<item><title>{escape(post.title)}</title><link>{address}/{post.number}</link>"
        f"<guid isPermaLink='false'>{blog.number}:{post.number}</guid>"
        f"<pubDate>{format_datetime(datetime.fromtimestamp(post.at, UTC))}</pubDate>"
        f"<description>{escape(post.text)}</description></item>\n"
        for post in posts
    )
    head = (
        f"<title>{escape(blog.title)}</title><link>{address}</link>"
        f"<description>Nothing but {blog.title}</description>"
    )
    return (
        "<?xml version='1.0' encoding='utf-8'?>\n"
        f"<rss version='2.0'><channel>{head}\n{items}</channel></rss>\n"
    )


def atom(blog: Blog, posts: list[Post], address: str) -> str:
    entries = "".join(
        f"<entry><id>tag:blogs.example,2026:{blog.number}:{post.number}</id>"
        f"<title>{escape(post.title)}</title>"
        f"<link href='{address}/{post.number}'/><author><name>Writer {blog.number}</name></author>"
        f"<published>{_iso(post.at)}</published><updated>{_iso(post.at)}</updated>"
        f"<content type='html'>{escape(post.text)}</content></entry>\n"
        for post in posts
    )
    head = (
        f"<title>{escape(blog.title)}</title><id>{address}</id><link href='{address}'/>"
        f"<updated>{_iso(posts[0].at)}</updated>"
    )
    return (
        "<?xml version='1.0' encoding='utf-8'?>\n"
        f"<feed xmlns='http://www.w3.org/2005/Atom'>{head}\n{entries}</feed>\n"
    )


def _iso(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat()


class Server:
    """Web application with all blogs."""

    def __init__(self, blogs: int, entries: int, seed: int, clock: Callable[[], float]) -> None:
        self.blogs = [Blog(number, blogs, seed) for number in range(1, blogs + 1)]
        self.entries, self._clock = entries, clock

    def app(self) -> web.Application:
        app = web.Application()
        app.add_routes(
            [
                web.get("/blog/{number}", self.page),
                web.get(r"/blog/{number}/{kind:rss|atom}.xml", self.feed),
            ]
        )
        return app

    async def page(self, request: web.Request) -> web.Response:
        blog = self._blog(request)
        links = "".join(
            f"<link rel='alternate' type='application/{kind}+xml' "
            f"title='{escape(blog.title)} ({kind})' href='/blog/{blog.number}/{kind}.xml'>"
            for kind in ("rss", "atom")
        )
        return web.Response(
            text=f"<!doctype html><title>{escape(blog.title)}</title>{links}<p>Hello.",
            content_type="text/html",
        )

    async def feed(self, request: web.Request) -> web.Response:
        blog, kind = self._blog(request), request.match_info["kind"]
        posts = list(blog.posts(self._clock(), self.entries))
        address = f"http://{request.host}/blog/{blog.number}"
        body = (atom if kind == "atom" else rss)(blog, posts, address).encode()
        etag = f'"{blake2b(body, digest_size=8).hexdigest()}"'
        headers = {
            "ETag": etag,
            "Last-Modified": formatdate(posts[0].at, usegmt=True),
            "Vary": "Accept-Encoding",
        }
        if self._known(request, etag, posts[0].at):
            return web.Response(status=304, headers=headers)
        if "gzip" in request.headers.get("Accept-Encoding", ""):
            body = gzip.compress(body, mtime=0)
            headers["Content-Encoding"] = "gzip"
        return web.Response(body=body, headers=headers, content_type=f"application/{kind}+xml")

    def _blog(self, request: web.Request) -> Blog:
        number = request.match_info["number"]
        if not number.isdecimal() or not 1 <= int(number) <= len(self.blogs):
            raise web.HTTPNotFound
        return self.blogs[int(number) - 1]

    @staticmethod
    def _known(request: web.Request, etag: str, newest: float) -> bool:
        """Check If-None-Match, or If-Modified-Since without it (RFC 9110 sect. 13.2.2)."""
        if "If-None-Match" in request.headers:
            return request.headers["If-None-Match"] == etag
        try:
            return parsedate_to_datetime(request.headers["If-Modified-Since"]).timestamp() >= newest
        except (KeyError, ValueError):
            return False


def opml(blogs: list[Blog], address: str) -> str:
    rows: dict[str, list[str]] = {}
    for blog in blogs:
        url = f"{address}/blog/{blog.number}/{blog.kind}.xml"
        row = f'<outline text="{escape(blog.title)}" type="rss" xmlUrl="{url}"/>'
        rows.setdefault(blog.folder, []).append(row)
    body = "\n".join(rows.pop("", []))
    for path, folder in rows.items():
        names = path.split("/")
        opening = "".join(f'<outline text="{name}">' for name in names)
        body += f"\n{opening}\n" + "\n".join(folder) + "</outline>" * len(names)
    return (
        '<?xml version="1.0" encoding="utf-8"?>\n'
        f'<opml version="2.0"><head/><body>\n{body}\n</body></opml>\n'
    )


async def serve(server: Server, server_socket: socket.socket, minutes: float) -> None:
    runner = web.AppRunner(server.app(), access_log=None)
    await runner.setup()
    await web.SockSite(runner, server_socket).start()
    await asyncio.sleep(minutes * 60)
    await runner.cleanup()


def main() -> None:
    parser = argparse.ArgumentParser(description="Serve generated blogs on loopback.")
    parser.add_argument("--feeds", type=int, default=200, help="number of feeds (200)")
    parser.add_argument("--entries", type=int, default=20, help="entries per document (20)")
    parser.add_argument("--seed", type=int, default=1, help="random seed (1)")
    parser.add_argument("--port", type=int, default=8036, help="port; 0 picks a free one (8036)")
    parser.add_argument("--opml", type=Path, help="file for the list of feeds")
    parser.add_argument("--minutes", type=float, default=60.0, help="running time (60)")
    parser.add_argument("--detach", action="store_true", help="run in the background")
    options = parser.parse_args()
    server_socket = socket.create_server(("127.0.0.1", options.port), backlog=512)
    address = f"http://127.0.0.1:{server_socket.getsockname()[1]}"
    server = Server(options.feeds, options.entries, options.seed, time.time)
    if options.opml:
        options.opml.parent.mkdir(parents=True, exist_ok=True)
        options.opml.write_text(opml(server.blogs, address), "utf-8")
    process = os.getpid()
    if options.detach and (process := os.fork()) == 0:
        os.setsid()
        for stream in (0, 1, 2):
            os.dup2(os.open(os.devnull, os.O_RDWR), stream)
    elif process:
        print(
            f"{options.feeds} feeds at {address}/blog/1 ... for {options.minutes:g} minutes; "
            f"stop with `kill {process}`",
            flush=True,
        )
        if options.detach:
            return
    try:
        asyncio.run(serve(server, server_socket, options.minutes))
    except KeyboardInterrupt:
        print("stopped")


if __name__ == "__main__":
    main()
