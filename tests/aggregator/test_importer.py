"""Lists of feeds and what people type: everything is stored or nothing, and every row that is passed over is reported."""

import pytest

from tests.live.feed_server import feed_server_test
from tidings.aggregator.importer import AddError, add_feed, import_feeds

LIST = b"""# my feeds
https://a.example/feed A blog
https://b.example/feed
https://a.example/feed
ftp://c.example/feed
"""
OPML = b"""<opml version="2.0"><body>
<outline text="News"><outline text="A" xmlUrl="https://a.example/feed"/>
<outline text="no address"/></outline></body></opml>"""


@feed_server_test()
async def test_a_plain_list_with_its_bad_rows(feed_server):
    report = await import_feeds(feed_server.store, LIST, feed_server.clock)
    assert [outline.url for outline in report.new] == [
        "https://a.example/feed",
        "https://b.example/feed",
    ]
    assert [problem.line for problem in report.problems] == [4, 5]
    assert report.summary == "2 new feeds, 0 known already, 2 bad rows"


@feed_server_test()
async def test_opml_with_folders_and_what_is_known_already(feed_server):
    await import_feeds(feed_server.store, LIST, feed_server.clock)
    report = await import_feeds(feed_server.store, OPML, feed_server.clock)
    assert (len(report.new), len(report.known)) == (0, 1)
    assert [problem.line for problem in report.problems] == [3]


@feed_server_test()
async def test_a_dry_run_says_the_same_and_does_nothing(feed_server):
    dry = await import_feeds(feed_server.store, OPML, feed_server.clock, dry_run=True)
    assert await feed_server.store.feeds() == []
    assert dry == await import_feeds(feed_server.store, OPML, feed_server.clock)
    (listed,) = await feed_server.store.feeds()
    assert (listed.title, listed.folder) == ("A", "News")


@feed_server_test()
async def test_a_small_import_is_due_at_once_and_a_large_one_is_spread(feed_server):
    await import_feeds(feed_server.store, LIST, feed_server.clock)
    assert set((await feed_server.store.timings())["next_poll_at"]) == {feed_server.clock()}
    many = b"\n".join(b"https://m%d.example/feed" % i for i in range(1000))
    await import_feeds(feed_server.store, many, feed_server.clock)
    times = (await feed_server.store.timings())["next_poll_at"] - feed_server.clock()
    assert 30 < times.max() < 120
    assert (times <= 0).sum() < 110


@feed_server_test()
async def test_adding_a_feed_by_its_address_is_one_request_whose_document_is_used(feed_server):
    feed_server.feed("/a", posts=3)
    added = (await add_feed(feed_server.aggregator, feed_server.url("/a"), feed_server.clock)).added
    assert added.subscription_new
    assert len(feed_server.requests) == 1
    assert len(await feed_server.store.entries(feed_id=added.feed_id)) == 3
    again = (await add_feed(feed_server.aggregator, feed_server.url("/a"), feed_server.clock)).added
    assert (again.feed_id, again.subscription_new) == (added.feed_id, False)
    assert len(feed_server.requests) == 1


@feed_server_test()
async def test_a_site_with_several_feeds_offers_a_choice(feed_server):
    links = "".join(
        f'<link rel="alternate" type="application/rss+xml" title="{t}" href="/{t}">'
        for t in ("posts", "talk")
    )
    feed_server.pages = {"/": f"<html><head>{links}</head></html>"}
    found = await add_feed(feed_server.aggregator, feed_server.url("/"), feed_server.clock)
    assert [choice.url for choice in found.choices] == [
        feed_server.url("/posts"),
        feed_server.url("/talk"),
    ]
    assert await feed_server.store.feeds() == []


@feed_server_test()
async def test_what_is_no_feed_is_refused_with_what_the_server_said(feed_server):
    with pytest.raises(AddError, match="404: nothing here"):
        await add_feed(feed_server.aggregator, feed_server.url("/nowhere"), feed_server.clock)
    assert await feed_server.store.feeds() == []
