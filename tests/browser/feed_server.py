"""Feed server on loopback: sample feeds and sites with images and audio; tests publish posts."""

import io
import struct
import time
import wave
import zlib
from email.utils import formatdate
from html import escape

from tests.browser.sample_feeds import SAMPLE_FEEDS
from tests.local_server import LocalServer, rss

#: Time between two posts of a feed, so that lists mix the feeds.
POST_INTERVAL_S = 9100
COLORS = {
    "marginalia": "#0f6b6b",
    "tidepool": "#2f5d8c",
    "kiln": "#b4540f",
    "slowcode": "#5b4b8a",
    "longwave": "#8a2b5c",
}


class FeedServer(LocalServer):
    """``feed_server.feed("kiln")`` is a URL; ``feed_server.publish("kiln", "Release 5", html)``."""

    def __init__(self):
        super().__init__()
        self.documents = {}  #: feeds as bytes, by slug; and other files, by path
        self._posts = {}
        for number, (slug, (_title, _folder, posts)) in enumerate(SAMPLE_FEEDS.items()):
            newest = time.time() - 700 * (number + 1)
            self._posts[slug] = [
                (
                    newest - POST_INTERVAL_S * (len(posts) - n - 1),
                    *post,
                    post[0].startswith("Episode"),
                )
                for n, post in enumerate(posts)
            ]

    def site(self, slug):
        return f"{self.address}/{slug}/"

    def feed(self, slug):
        return f"{self.address}/{slug}/feed.xml"

    def publish(self, slug, title, html="<p>New.</p>", author="", ago_s=0.0):
        """Publish a post; creates the feed if it does not exist."""
        self._posts.setdefault(slug, []).append((time.time() - ago_s, title, author, html, False))

    def remove_post(self, slug, title):
        self._posts[slug] = [post for post in self._posts[slug] if post[1] != title]

    def opml(self):
        """Return an OPML file with all sample feeds in their folders."""
        folders = {}
        for slug, (title, folder, _posts) in SAMPLE_FEEDS.items():
            line = f'<outline text="{title}" type="rss" xmlUrl="{self.feed(slug)}"/>'
            folders[folder] = folders.get(folder, "") + line
        lists = [
            f'<outline text="{name}">{lines}</outline>' if name else lines
            for name, lines in folders.items()
        ]
        return f'<opml version="2.0"><head/><body>{"".join(lists)}</body></opml>'.encode()

    def page(self, path):
        _, slug, *rest = path.split("/")
        if slug == "picture":
            return _picture(), "image/svg+xml"
        if slug == "sound":
            return _silence(), "audio/wav"
        if path.strip("/") in self.documents:
            return self.documents[path.strip("/")], "image/svg+xml"
        if slug in self.documents and rest == ["feed.xml"]:
            return self.documents[slug], "application/rss+xml"
        if slug not in self._posts:
            return b"", "text/plain"
        if rest == ["feed.xml"]:
            return self._document(slug), "application/rss+xml"
        if rest == ["icon.png"]:
            return _icon(slug), "image/png"
        links = (
            '<link rel="alternate" type="application/rss+xml" href="feed.xml">'
            '<link rel="icon" href="icon.png">'
        )
        return f"<html><head>{links}</head><body><p>{slug}</p></body></html>".encode(), "text/html"

    def _document(self, slug):
        title = SAMPLE_FEEDS[slug][0] if slug in SAMPLE_FEEDS else slug.title()
        items = [
            self._item(slug, n, *post) for n, post in reversed(list(enumerate(self._posts[slug])))
        ]
        return rss(title, items, self.site(slug))

    def _item(self, slug, number, at, title, author, html, has_audio):
        audio_url = f"{self.address}/sound/{number}.wav"
        enclosure = (
            f'<enclosure url="{audio_url}" type="audio/wav" length="31000000"/>'
            if has_audio
            else ""
        )
        writer = f"<author>{escape(author)}</author>" if author else ""
        text = escape(html.replace("{site}", self.address))
        return (
            f'<item><guid isPermaLink="false">{slug}/{number}</guid>'
            f"<link>{self.site(slug)}{number}</link>{writer}{enclosure}"
            f"<title>{escape(title)}</title><pubDate>{formatdate(at)}</pubDate>"
            f"<description>{text}</description></item>"
        )


def _picture():
    """Return an SVG landscape."""
    hills = "".join(
        f'<path fill="{color}" d="M0 {top} Q 160 {top - rise} 320 {top}'
        f' T 640 {top - 20} T 960 {top} V480 H0z"/>'
        for color, top, rise in [
            ("#8fb0ad", 250, 90),
            ("#5b8a88", 310, -70),
            ("#2f6664", 370, 80),
            ("#173f3f", 430, -60),
        ]
    )
    sky = (
        '<rect width="960" height="480" fill="#f2dcbc"/>'
        '<circle cx="690" cy="190" r="52" fill="#f7f0e2"/>'
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 960 480">{sky}{hills}</svg>'.encode()
    )


def _icon(slug):
    """Return a PNG: a disc in the feed's color with a white bar."""
    red, green, blue = bytes.fromhex(COLORS.get(slug, "#586363")[1:])
    rows = b""
    for y in range(-16, 16):
        rows += b"\0"
        for x in range(-16, 16):
            inside, bar = x * x + y * y < 250, abs(x - y * (len(slug) % 3 - 1)) < 4
            rows += bytes((255, 255, 255) if bar else (red, green, blue)) + (
                b"\xff" if inside else b"\0"
            )
    parts = [
        (b"IHDR", struct.pack(">IIBBBBB", 32, 32, 8, 6, 0, 0, 0)),
        (b"IDAT", zlib.compress(rows)),
        (b"IEND", b""),
    ]
    chunks = [
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        for kind, data in parts
    ]
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunks)


def _silence():
    file = io.BytesIO()
    with wave.open(file, "wb") as sound:
        sound.setparams((1, 1, 8000, 8000, "NONE", ""))
        sound.writeframes(b"\x80" * 8000)
    return file.getvalue()
