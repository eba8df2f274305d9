"""Lists of feeds and what people type: everything is stored or nothing, and every row that is passed over is reported."""

import pytest

from tests.live.village import story
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


@story()
async def test_a_plain_list_with_its_bad_rows(village):
    report = await import_feeds(village.store, LIST, village.clock)
    assert [outline.url for outline in report.new] == ["https://a.example/feed", "https://b.example/feed"]
    assert [problem.line for problem in report.problems] == [4, 5]
    assert report.words == "2 new feeds, 0 known already, 2 bad rows"


@story()
async def test_opml_with_folders_and_what_is_known_already(village):
    await import_feeds(village.store, LIST, village.clock)
    report = await import_feeds(village.store, OPML, village.clock)
    assert (len(report.new), len(report.known)) == (0, 1)
    assert [problem.line for problem in report.problems] == [3]


@story()
async def test_a_dry_run_says_the_same_and_does_nothing(village):
    dry = await import_feeds(village.store, OPML, village.clock, dry_run=True)
    assert await village.store.feeds() == []
    assert dry == await import_feeds(village.store, OPML, village.clock)
    (listed,) = await village.store.feeds()
    assert (listed.title, listed.folder) == ("A", "News")


@story()
async def test_a_small_import_is_due_at_once_and_a_large_one_is_spread(village):
    await import_feeds(village.store, LIST, village.clock)
    assert set((await village.store.timings())["next_poll_at"]) == {village.clock()}
    many = b"\n".join(b"https://m%d.example/feed" % i for i in range(1000))
    await import_feeds(village.store, many, village.clock)
    times = (await village.store.timings())["next_poll_at"] - village.clock()
    assert 30 < times.max() < 120
    assert (times <= 0).sum() < 110


@story()
async def test_adding_a_feed_by_its_address_is_one_request_whose_document_is_used(village):
    village.feed("/a", posts=3)
    added = (await add_feed(village.aggregator, village.url("/a"), village.clock)).added
    assert added.subscription_new
    assert len(village.requests) == 1
    assert len(await village.store.entries(feed_id=added.feed_id)) == 3
    again = (await add_feed(village.aggregator, village.url("/a"), village.clock)).added
    assert (again.feed_id, again.subscription_new) == (added.feed_id, False)
    assert len(village.requests) == 1


@story()
async def test_a_site_with_several_feeds_offers_a_choice(village):
    links = "".join(f'<link rel="alternate" type="application/rss+xml" title="{t}" href="/{t}">' for t in ("posts", "talk"))
    village.pages = {"/": f"<html><head>{links}</head></html>"}
    found = await add_feed(village.aggregator, village.url("/"), village.clock)
    assert [choice.url for choice in found.choices] == [village.url("/posts"), village.url("/talk")]
    assert await village.store.feeds() == []


@story()
async def test_what_is_no_feed_is_refused_with_what_the_server_said(village):
    with pytest.raises(AddError, match="404: nothing here"):
        await add_feed(village.aggregator, village.url("/nowhere"), village.clock)
    assert await village.store.feeds() == []
