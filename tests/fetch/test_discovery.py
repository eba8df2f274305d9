"""From what a person types to a feed, with few requests."""

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


async def found(w: PollHarness, path: str, **options: bool) -> tuple[Discovery, list[str]]:
    discovery = await discover(w.fetcher, w.url(path), **options)
    return discovery, [feed.url for feed in discovery.feeds]


@with_harness()
async def test_a_feeds_own_address_costs_a_single_request(w: PollHarness) -> None:
    w.serve("/feed", etag='"1"')
    discovery, urls = await found(w, "/feed")
    assert urls == [w.url("/feed")]
    assert discovery.document is not None
    assert (discovery.document.body, discovery.document.validators.etag) == (RSS, '"1"')
    assert len(w.origin.requests) == discovery.requests == 1


@with_harness()
async def test_a_feed_served_as_html_is_a_feed(w: PollHarness) -> None:
    w.serve("/feed", body=b"\n<!-- x -->" + ATOM, Content_Type="text/html")
    discovery, urls = await found(w, "/feed")
    assert urls == [w.url("/feed")]
    assert discovery.feeds[0].kind == "atom"


@with_harness()
async def test_a_feed_that_does_not_begin_like_one_is_a_feed(w: PollHarness) -> None:
    w.serve("/feed", body=b"Warning: deprecated in feed.php on line 3\n" + ATOM)
    w.serve("/wide", body=ATOM.decode().encode("utf-16-be"))
    w.serve(
        "/json",
        body=b'{"title": "%s", "items": [], "version": "https://jsonfeed.org/version/1"}'
        % (b"x" * 5000),
    )
    for path in ("/feed", "/wide", "/json"):
        assert (await found(w, path))[1] == [w.url(path)]
    assert len(w.origin.requests) == 3


@with_harness()
async def test_a_passing_redirect_is_not_adopted_and_a_move_is(w: PollHarness) -> None:
    w.serve("/feed")
    for status, kept in ((302, "/here"), (307, "/here"), (301, "/feed"), (308, "/feed")):
        w.script("/here", Response(status, headers={"Location": "/feed"}))
        assert (await found(w, "/here"))[1] == [w.url(kept)]


@with_harness()
async def test_name_and_password_stay_in_the_address(w: PollHarness) -> None:
    w.serve("/feed")
    address = w.url("/feed").replace("://", "://me:secret@")
    discovery = await discover(w.fetcher, address)
    assert [feed.url for feed in discovery.feeds] == [address]


@with_harness()
async def test_what_a_page_behind_a_password_names_opens_with_it_too(w: PollHarness) -> None:
    w.serve("/", body=page("/posts.xml", "https://elsewhere.test/feed"))
    w.serve("/bare/", body=page())
    w.serve("/bare/feed", body=ATOM)
    door = w.url("/").replace("://", "://me:secret@").removesuffix("/")
    discovery = await discover(w.fetcher, door + "/")
    assert [feed.url for feed in discovery.feeds] == [
        door + "/posts.xml",
        "https://elsewhere.test/feed",
    ]
    discovery = await discover(w.fetcher, door + "/bare/")
    assert [feed.url for feed in discovery.feeds] == [door + "/bare/feed"]


@with_harness()
async def test_a_page_names_its_feed(w: PollHarness) -> None:
    w.serve("/blog/", body=page("rss.xml"))
    _, urls = await found(w, "/blog/")
    assert urls == [w.url("/blog/rss.xml")]
    assert len(w.origin.requests) == 1


@with_harness()
async def test_several_feeds_are_offered(w: PollHarness) -> None:
    w.serve("/", body=page("/posts.xml", "/comments.xml"))
    discovery, urls = await found(w, "/")
    assert urls == [w.url("/posts.xml"), w.url("/comments.xml")]
    assert discovery.feeds[1].title == "/comments.xml"


@with_harness()
async def test_links_are_relative_to_where_the_page_was_found(w: PollHarness) -> None:
    w.script("/old", Response(301, headers={"Location": "/new/"}))
    w.serve("/new/", body=page("feed.xml"))
    assert (await found(w, "/old"))[1] == [w.url("/new/feed.xml")]


@with_harness()
async def test_a_page_without_a_word_of_feeds_has_few_customary_paths_tried(w: PollHarness) -> None:
    w.serve("/", body=page())
    w.serve("/atom.xml", body=ATOM)
    _, urls = await found(w, "/")
    assert urls == [w.url("/atom.xml")]
    assert len(w.origin.requests) <= 8


@with_harness()
async def test_no_guessing_when_not_wanted(w: PollHarness) -> None:
    w.serve("/", body=page())
    w.serve("/feed", body=ATOM)
    _, urls = await found(w, "/", guess=False)
    assert urls == []
    assert len(w.origin.requests) == 1


@with_harness()
async def test_guessing_ends_when_the_host_says_less(w: PollHarness) -> None:
    w.serve("/", body=page())
    w.script("/feed", Response(429, b"", {"Retry-After": "60"}))
    await found(w, "/")
    assert len(w.origin.requests) == 2


@with_harness()
async def test_nothing_found_is_told(w: PollHarness) -> None:
    w.serve("/", body=page())
    discovery, urls = await found(w, "/")
    assert urls == []
    assert discovery.error is not None
    assert discovery.error.kind is Problem.UNREADABLE
    assert "give the address of the feed itself" in discovery.error.message


@with_harness()
async def test_an_error_is_told_with_what_the_server_said(w: PollHarness) -> None:
    w.script("/feed", Response(403, b"ask less often"))
    discovery, _ = await found(w, "/feed")
    assert discovery.error is not None
    assert discovery.error.response_text == "ask less often"


@with_harness()
async def test_a_bare_name_is_tried_with_https_then_with_http(w: PollHarness) -> None:
    w.serve("/feed")
    _, urls = await found(w, f"127.0.0.1:{w.origin.port}/feed")
    assert urls == [w.url("/feed")]


@with_harness()
async def test_the_old_scheme_of_feeds_means_http(w: PollHarness) -> None:
    w.serve("/feed")
    assert (await found(w, "feed:" + w.url("/feed")))[1] == [w.url("/feed")]
    assert (await found(w, f"feed://127.0.0.1:{w.origin.port}/feed"))[1] == [w.url("/feed")]
