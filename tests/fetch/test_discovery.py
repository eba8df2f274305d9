"""Feed discovery: feed URLs, feed links of pages, common paths, few requests."""

from tests.fetch.origin_server import RSS, PollHarness, Response, with_harness
from tidings.fetch import Problem
from tidings.fetch.discovery import Discovery, discover

ATOM = b'<?xml version="1.0"?><feed xmlns="http://www.w3.org/2005/Atom"><title>t</title></feed>'


def page(*hrefs: str) -> bytes:
    links = "".join(
        f'<link rel="alternate" type="application/rss+xml" title="{href}" href="{href}">'
        for href in hrefs
    )
    return f"<html><head>{links}</head><body>hello</body></html>".encode()


async def discover_urls(w: PollHarness, path: str, **options: bool) -> tuple[Discovery, list[str]]:
    discovery = await discover(w.fetcher, w.url(path), **options)
    return discovery, [feed.url for feed in discovery.feeds]


@with_harness()
async def test_feed_url_takes_a_single_request(w: PollHarness) -> None:
    w.serve("/feed", etag='"1"')
    discovery, urls = await discover_urls(w, "/feed")
    assert urls == [w.url("/feed")]
    assert discovery.document is not None
    assert (discovery.document.body, discovery.document.validators.etag) == (RSS, '"1"')
    assert len(w.origin.requests) == discovery.requests == 1


@with_harness()
async def test_feed_served_as_html_is_found(w: PollHarness) -> None:
    w.serve("/feed", body=b"\n<!-- x -->" + ATOM, Content_Type="text/html")
    discovery, urls = await discover_urls(w, "/feed")
    assert urls == [w.url("/feed")]
    assert discovery.feeds[0].kind == "atom"


@with_harness()
async def test_feed_with_unusual_start_is_found(w: PollHarness) -> None:
    w.serve("/feed", body=b"Warning: deprecated in feed.php on line 3\n" + ATOM)
    w.serve("/wide", body=ATOM.decode().encode("utf-16-be"))
    w.serve(
        "/json",
        body=b'{"title": "%s", "items": [], "version": "https://jsonfeed.org/version/1"}'
        % (b"x" * 5000),
    )
    for path in ("/feed", "/wide", "/json"):
        assert (await discover_urls(w, path))[1] == [w.url(path)]
    assert len(w.origin.requests) == 3


@with_harness()
async def test_permanent_redirect_is_adopted_and_temporary_is_not(w: PollHarness) -> None:
    w.serve("/feed")
    for status, expected in ((302, "/old"), (307, "/old"), (301, "/feed"), (308, "/feed")):
        w.script("/old", Response(status, headers={"Location": "/feed"}))
        assert (await discover_urls(w, "/old"))[1] == [w.url(expected)]


@with_harness()
async def test_credentials_stay_in_the_found_url(w: PollHarness) -> None:
    w.serve("/feed")
    url = w.url("/feed").replace("://", "://me:secret@")
    discovery = await discover(w.fetcher, url)
    assert [feed.url for feed in discovery.feeds] == [url]


@with_harness()
async def test_credentials_are_added_to_found_urls_of_the_same_origin(w: PollHarness) -> None:
    w.serve("/", body=page("/posts.xml", "https://elsewhere.test/feed"))
    w.serve("/bare/", body=page())
    w.serve("/bare/feed", body=ATOM)
    origin = w.url("/").replace("://", "://me:secret@").removesuffix("/")
    discovery = await discover(w.fetcher, origin + "/")
    assert [feed.url for feed in discovery.feeds] == [
        origin + "/posts.xml",
        "https://elsewhere.test/feed",
    ]
    discovery = await discover(w.fetcher, origin + "/bare/")
    assert [feed.url for feed in discovery.feeds] == [origin + "/bare/feed"]


@with_harness()
async def test_feed_link_of_a_page_is_found(w: PollHarness) -> None:
    w.serve("/blog/", body=page("rss.xml"))
    _, urls = await discover_urls(w, "/blog/")
    assert urls == [w.url("/blog/rss.xml")]
    assert len(w.origin.requests) == 1


@with_harness()
async def test_all_feed_links_of_a_page_are_found(w: PollHarness) -> None:
    w.serve("/", body=page("/posts.xml", "/comments.xml"))
    discovery, urls = await discover_urls(w, "/")
    assert urls == [w.url("/posts.xml"), w.url("/comments.xml")]
    assert discovery.feeds[1].title == "/comments.xml"


@with_harness()
async def test_feed_links_are_relative_to_the_redirected_url(w: PollHarness) -> None:
    w.script("/old", Response(301, headers={"Location": "/new/"}))
    w.serve("/new/", body=page("feed.xml"))
    assert (await discover_urls(w, "/old"))[1] == [w.url("/new/feed.xml")]


@with_harness()
async def test_common_paths_are_tried_without_feed_links(w: PollHarness) -> None:
    w.serve("/", body=page())
    w.serve("/atom.xml", body=ATOM)
    _, urls = await discover_urls(w, "/")
    assert urls == [w.url("/atom.xml")]
    assert len(w.origin.requests) <= 8


@with_harness()
async def test_common_paths_are_not_tried_without_guess(w: PollHarness) -> None:
    w.serve("/", body=page())
    w.serve("/feed", body=ATOM)
    _, urls = await discover_urls(w, "/", guess=False)
    assert urls == []
    assert len(w.origin.requests) == 1


@with_harness()
async def test_rate_limit_stops_guessing(w: PollHarness) -> None:
    w.serve("/", body=page())
    w.script("/feed", Response(429, b"", {"Retry-After": "60"}))
    await discover_urls(w, "/")
    assert len(w.origin.requests) == 2


@with_harness()
async def test_missing_feed_is_reported(w: PollHarness) -> None:
    w.serve("/", body=page())
    discovery, urls = await discover_urls(w, "/")
    assert urls == []
    assert discovery.error is not None
    assert discovery.error.kind is Problem.UNREADABLE
    assert "paste the URL of the feed itself" in discovery.error.message


@with_harness()
async def test_error_has_the_response_text(w: PollHarness) -> None:
    w.script("/feed", Response(403, b"too many requests"))
    discovery, _ = await discover_urls(w, "/feed")
    assert discovery.error is not None
    assert discovery.error.response_text == "too many requests"


@with_harness()
async def test_bare_host_is_tried_with_https_then_http(w: PollHarness) -> None:
    w.serve("/feed")
    _, urls = await discover_urls(w, f"127.0.0.1:{w.origin.port}/feed")
    assert urls == [w.url("/feed")]


@with_harness()
async def test_feed_scheme_is_removed(w: PollHarness) -> None:
    w.serve("/feed")
    assert (await discover_urls(w, "feed:" + w.url("/feed")))[1] == [w.url("/feed")]
    assert (await discover_urls(w, f"feed://127.0.0.1:{w.origin.port}/feed"))[1] == [w.url("/feed")]
