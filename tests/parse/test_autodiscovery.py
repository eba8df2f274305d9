"""Feed autodiscovery on web pages."""

import time

import pytest

from tidings.parse.autodiscovery import FeedLink, common_paths, find_feeds, looks_like_feed

PAGE = "https://example.org/blog/index.html"


def feed_urls(html: str) -> list[str]:
    return [feed.url for feed in find_feeds(html.encode(), PAGE)]


def test_link_elements_in_head_and_body() -> None:
    html = """<html><head><title>B</title>
      <link rel="stylesheet alternate" type="text/css" href="x.css">
      <link rel="alternate" type="application/rss+xml" title=" The  Feed " href="feed.xml">
      <LINK REL="Alternate" TYPE="application/atom+xml; charset=utf-8"
        HREF="//other.example.org/atom">
      <link rel="alternate" type="application/rss+xml" href="feed.xml">
      <link rel="alternate" type="application/json" href="/wp-json/wp/v2/posts/1">
      </head><body><link rel=alternate type=application/feed+json href=/feed.json>
      <a href="/rss">ignored</a></body>"""
    assert find_feeds(html.encode(), PAGE) == [
        FeedLink("https://example.org/blog/feed.xml", "The Feed", "rss"),
        FeedLink("https://other.example.org/atom", "", "atom"),
        FeedLink("https://example.org/feed.json", "", "json"),
    ]


def test_base_element_is_applied() -> None:
    assert feed_urls(
        '<base href="/b/"><link rel=alternate type=application/rss+xml href=feed>'
    ) == ["https://example.org/b/feed"]


def test_plain_links_are_used_without_link_elements() -> None:
    html = """<a href="/about">About</a><a href="/feedback">Write</a>
      <a href="/blog/rss.xml">RSS</a><a href="/feed/">Feed</a>
      <a href="atom.xml" title="Atom">x</a><a href="javascript:feed">no</a><a href="http://[bad/feed">no</a>"""
    assert find_feeds(html.encode(), PAGE) == [
        FeedLink("https://example.org/blog/rss.xml", "RSS", "rss"),
        FeedLink("https://example.org/feed/", "Feed", "rss"),
        FeedLink("https://example.org/blog/atom.xml", "Atom", "atom"),
    ]


@pytest.mark.parametrize("body", [b"", b"\0\1\2", b"plain words", b"<rss/>"])
def test_invalid_page_has_no_feeds(body: bytes) -> None:
    assert find_feeds(body, PAGE) == []


@pytest.mark.parametrize(
    "piece",
    [
        b"<div>",
        b"<a href=/feed><b>",
        b"<link rel=alternate type=application/rss+xml href=x>",
        b"<?x?>",
        b"<!--",
    ],
)
def test_hostile_pages_are_parsed_in_time(piece: bytes) -> None:
    start = time.process_time()
    find_feeds(piece * 200_000, PAGE)
    looks_like_feed(piece * 200_000)
    assert time.process_time() - start < 5


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b'<rss version="2.0">', True),
        (
            b'\xef\xbb\xbf <?xml version="1.0"?><!-- x -->'
            b'<feed xmlns="http://www.w3.org/2005/Atom">',
            True,
        ),
        (b'<?xml version="1.0"?><!DOCTYPE rss [<!ENTITY a "b">]><rss>', True),
        (b"<rdf:RDF xmlns:rdf='x'>", True),
        ('<?xml version="1.0"?><rss>'.encode("utf-16"), True),
        (b'{"title": "x", "version": "https://jsonfeed.org/version/1.1"}', True),
        (b'{"version": "https:\\/\\/jsonfeed.org\\/version\\/1"}', True),
        (b"<!DOCTYPE html><html><rss>", False),
        (b"<feedback>", False),
        (b'{"version": 1}', False),
        (b"", False),
    ],
)
def test_looks_like_feed_ignores_content_type(body: bytes, expected: bool) -> None:
    assert looks_like_feed(body) is expected


def test_common_paths_are_few() -> None:
    assert common_paths("https://example.org")[0] == "https://example.org/feed"
    paths = common_paths(PAGE)
    assert paths[0] == "https://example.org/blog/feed"
    assert "https://example.org/feed" in paths
    assert len(paths) < 10
