"""Import of feed lists and adding feeds by URL."""

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
async def test_url_list_reports_invalid_rows(feed_server):
    report = await import_feeds(feed_server.store, LIST, feed_server.clock)
    assert [outline.url for outline in report.new] == [
        "https://a.example/feed",
        "https://b.example/feed",
    ]
    assert [problem.line for problem in report.problems] == [4, 5]
    assert report.summary == "2 new feeds, 0 already subscribed, 2 lines skipped"


@feed_server_test()
async def test_opml_reports_known_feeds_and_invalid_rows(feed_server):
    await import_feeds(feed_server.store, LIST, feed_server.clock)
    report = await import_feeds(feed_server.store, OPML, feed_server.clock)
    assert (len(report.new), len(report.known)) == (0, 1)
    assert [problem.line for problem in report.problems] == [3]


@feed_server_test()
async def test_dry_run_reports_the_same_without_changes(feed_server):
    dry = await import_feeds(feed_server.store, OPML, feed_server.clock, dry_run=True)
    assert await feed_server.store.feeds() == []
    assert dry == await import_feeds(feed_server.store, OPML, feed_server.clock)
    (listed,) = await feed_server.store.feeds()
    assert (listed.title, listed.folder) == ("A", "News")


@feed_server_test()
async def test_first_polls_of_large_import_are_spread(feed_server):
    await import_feeds(feed_server.store, LIST, feed_server.clock)
    assert set((await feed_server.store.timings())["next_poll_at"]) == {feed_server.clock()}
    many = b"\n".join(b"https://m%d.example/feed" % i for i in range(1000))
    await import_feeds(feed_server.store, many, feed_server.clock)
    times = (await feed_server.store.timings())["next_poll_at"] - feed_server.clock()
    assert 30 < times.max() < 120
    assert (times <= 0).sum() < 110


@feed_server_test()
async def test_adding_feed_url_takes_one_request(feed_server):
    feed_server.feed("/a", posts=3)
    added = (await add_feed(feed_server.aggregator, feed_server.url("/a"), feed_server.clock)).added
    assert added.subscription_new
    assert len(feed_server.requests) == 1
    assert len(await feed_server.store.entries(feed_id=added.feed_id)) == 3
    again = (await add_feed(feed_server.aggregator, feed_server.url("/a"), feed_server.clock)).added
    assert (again.feed_id, again.subscription_new) == (added.feed_id, False)
    assert len(feed_server.requests) == 1


@feed_server_test()
async def test_site_with_several_feeds_returns_choices(feed_server):
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
async def test_adding_missing_page_raises_error_with_response(feed_server):
    with pytest.raises(AddError, match="404: nothing here"):
        await add_feed(feed_server.aggregator, feed_server.url("/nowhere"), feed_server.clock)
    assert await feed_server.store.feeds() == []
