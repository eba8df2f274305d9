"""Website with many feeds, served by nginx on loopback, the same for all measured programs.

60 % of the feeds are RSS and 40 % Atom; each has 20 entries of about 1.5 kB of HTML, in several
scripts. nginx compresses them and sends ETag and Last-Modified; its log gives the responses.
"""

import gzip
import os
import random
import shutil
import socket
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from email.utils import formatdate
from html import escape
from pathlib import Path

NGINX = shutil.which("nginx", path=os.environ.get("PATH", "") + os.pathsep + "/usr/sbin")
WINDOW = 20
LETTERS = ("aeioulnrst", "äöüßéèçñ", "абвгдежиклмн", "αβγδεηικλμ")
#: Common nginx configuration of the benchmarks: one process, all files in one folder.
PREAMBLE = """
daemon off; master_process off; worker_processes 1; pid {folder}/nginx.pid;
error_log {folder}/error.log warn;
events {{ worker_connections 2048; }}
http {{
  client_body_temp_path {folder}/t1; proxy_temp_path {folder}/t2; fastcgi_temp_path {folder}/t3;
  uwsgi_temp_path {folder}/t4; scgi_temp_path {folder}/t5; keepalive_requests 100000;
"""
CONFIG = (
    PREAMBLE
    + """\
  log_format answers '$status $body_bytes_sent $uri'; access_log {folder}/access.log answers;
  types {{ application/rss+xml rss; application/atom+xml atom; }}
  gzip on; gzip_types application/rss+xml application/atom+xml;
  server {{
    listen 127.0.0.1:{port} backlog=1024; root {folder}/site;
    location /same/ {{ return 304; }}
    location /packed/ {{ gzip off; add_header Content-Encoding gzip; }}
  }}
}}
"""
)


class Website:
    """The documents, their URLs, and the responses of nginx."""

    def __init__(self, folder: Path, port: int, feeds: int, seed: int = 0) -> None:
        self.folder, self.site, self.base, self.feeds = (
            folder,
            folder / "site",
            f"http://127.0.0.1:{port}",
            feeds,
        )
        self._created_at, self._log_position = time.time(), 0
        rng = random.Random(seed)
        words = [
            "".join(rng.choices(rng.choice(LETTERS[:2]), k=rng.randint(3, 9))) for _ in range(6000)
        ]
        words += [
            "".join(rng.choices(letters, k=rng.randint(3, 9)))
            for letters in LETTERS[2:]
            for _ in range(1000)
        ]
        frequencies = [1 / (rank + 10) for rank in range(len(words))]
        self._sentences = [
            " ".join(rng.choices(words, frequencies, k=rng.randint(8, 14))).capitalize()
            for _ in range(4000)
        ]
        self._seed = seed

    @property
    def urls(self) -> list[str]:
        return [f"{self.base}/{self._name(feed)}" for feed in range(self.feeds)]

    def publish(self, feeds: range | None = None, *, posts: int = 0) -> None:
        """Write the documents of these feeds (default: all), with ``posts`` new posts each."""
        self.site.mkdir(exist_ok=True)
        modified = self._created_at - 86400 + 3600 * posts
        for feed in range(self.feeds) if feeds is None else feeds:
            path = self.site / self._name(feed)
            path.write_text(self._document(feed, posts), encoding="utf-8")
            os.utime(path, (modified, modified))

    def write_packed(self, name: str, start: bytes, megabytes: int) -> str:
        """Write a compressed document of ``start`` followed by spaces; returns its URL."""
        (self.site / "packed").mkdir(parents=True, exist_ok=True)
        with gzip.open(self.site / "packed" / name, "wb", compresslevel=9) as packed:
            packed.write(start)
            for _ in range(megabytes):
                packed.write(b" " * 1_000_000)
        return f"{self.base}/packed/{name}"

    def answers(self) -> dict[str, int]:
        """Return the number of responses since the last call, by status."""
        with open(self.folder / "access.log") as log:
            log.seek(self._log_position)
            lines = log.readlines()
            self._log_position = log.tell()
        return dict(sorted(Counter(line.split(" ", 1)[0] for line in lines).items()))

    def _name(self, feed: int) -> str:
        return f"{feed}.{'rss' if feed % 5 < 3 else 'atom'}"

    def _document(self, feed: int, posts: int) -> str:
        numbers = range(posts + WINDOW, posts, -1)
        return _rss(self, feed, numbers) if feed % 5 < 3 else _atom(self, feed, numbers)

    def post(self, feed: int, number: int) -> tuple[str, str, float]:
        """Return title, HTML and time of a post; numbers up to the window are older posts."""
        rng = random.Random(f"{self._seed}/{feed}/{number}")
        title, *text = rng.sample(self._sentences, 14)
        parts = [
            f"<p>{text[0]}, <em>{text[1]}</em>. "
            f"<a href='{self.base}/about/{feed}'>{text[2]}</a>.</p>"
        ]
        parts.append(
            f"<ul><li>{text[3]}</li><li>{text[4]}</li></ul><blockquote>{text[5]}.</blockquote>"
        )
        host = "" if feed % 10 == 7 else self.base  # some feeds have relative URLs
        parts.append(
            f"<p><img src='{host}/pictures/{feed}-{number}.jpg' alt='{text[6]}'/>"
            f"{'. '.join(text[7:])}.</p>"
        )
        pace_s = 3600.0 * 2 ** (feed % 7)
        at = self._created_at - 86400 - (WINDOW - number) * pace_s * rng.uniform(0.97, 1.0)
        return title, "".join(parts), at if number <= WINDOW else self._created_at - 3600


def _rss(site: Website, feed: int, numbers: range) -> str:
    items = []
    for number in numbers:
        title, text, at = site.post(feed, number)
        items.append(
            f"<item><title>{title}</title><link>{site.base}/post/{feed}/{number}</link>"
            f"<guid isPermaLink='false'>{feed}:{number}</guid><pubDate>{formatdate(at)}</pubDate>"
            f"<description>{escape(text)}</description></item>\n"
        )
    head = (
        f"<title>Feed {feed}</title><link>{site.base}/about/{feed}</link>"
        "<description>Made up</description>"
    )
    return (
        "<?xml version='1.0' encoding='utf-8'?>\n"
        f"<rss version='2.0'><channel>{head}\n{''.join(items)}</channel></rss>\n"
    )


def _atom(site: Website, feed: int, numbers: range) -> str:
    entries = []
    for number in numbers:
        title, text, at = site.post(feed, number)
        when = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(at))
        entries.append(
            f"<entry><id>tag:feeds.example,2026:{feed}:{number}</id><title>{title}</title>"
            f"<link href='{site.base}/post/{feed}/{number}'/>"
            f"<published>{when}</published><updated>{when}</updated>"
            f"<author><name>Writer {feed}</name></author>"
            f"<content type='html'>{escape(text)}</content></entry>\n"
        )
    head = (
        f"<id>tag:feeds.example,2026:{feed}</id><title>Feed {feed}</title>"
        "<updated>2026-01-01T00:00:00Z</updated>"
    )
    feed_element = "<feed xmlns='http://www.w3.org/2005/Atom'>"
    return (
        f"<?xml version='1.0' encoding='utf-8'?>\n{feed_element}{head}\n{''.join(entries)}</feed>\n"
    )


@contextmanager
def serving(folder: Path, feeds: int) -> Iterator[Website]:
    """Serve a website of ``feeds`` feeds, not yet published, with nginx."""
    if NGINX is None:
        raise SystemExit(
            "nginx is needed: apt-get install nginx-light (it need not run as a service)"
        )
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    site = Website(folder, port, feeds)
    config = folder / "nginx.conf"
    config.write_text(CONFIG.format(folder=folder, port=port))
    nginx = subprocess.Popen(
        [NGINX, "-e", str(folder / "error.log"), "-p", str(folder), "-c", str(config)]
    )
    try:
        for _ in range(100):
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
                break
            except ConnectionRefusedError:
                time.sleep(0.05)
        else:
            raise SystemExit(f"nginx did not start: {(folder / 'error.log').read_text()}")
        yield site
    finally:
        nginx.terminate()
        nginx.wait(10)
