"""Refresh of imported feeds over HTTP: every entry is stored once."""

import pytest

from tests.live.feed_server import feed_server_test
from tidings.aggregator.importer import import_feeds
from tidings.aggregator.result_writer import BATCH_ENTRIES
from tidings.config import Budget
from tidings.model import DAY_S


def opml(urls):
    rows = "\n".join(f'<outline text="Feed {i}" xmlUrl="{url}"/>' for i, url in enumerate(urls))
    body = f'<outline text="Blogs">\n{rows}\n</outline>'
    return f'<opml version="2.0"><body>{body}</body></opml>'.encode()


@feed_server_test(budget=Budget(4.0, True))
async def test_opml_import_stores_every_entry_once(feed_server):
    paths = [f"/feed/{i}" for i in range(200)]
    for path in paths:
        feed_server.feed(path, posts=5)
    report = await import_feeds(
        feed_server.store, opml(map(feed_server.url, paths)), feed_server.clock
    )
    assert len(report.new) == 200
    await feed_server.run_for(hours=1)
    status = await feed_server.store.status()
    assert status.entries == 1000
    await feed_server.poll()
    assert (await feed_server.store.status()).entries == 1000
    first = await feed_server.stored_feed("/feed/0")
    assert first.state.next_poll_at > feed_server.clock()
    assert first.state.reason


@feed_server_test()
async def test_second_refresh_finds_only_new_entries(feed_server):
    feed_server.feed("/a", posts=5)
    await feed_server.subscribe("/a")
    assert (await feed_server.poll()).new == 5
    feed_server.write("/a", 2)
    feed_server.clock.now += 60
    assert (await feed_server.poll()).new == 2
    assert (await feed_server.poll()).new == 0
    assert [
        request.headers.get("If-None-Match") is not None
        for request in feed_server.requests_for("/a")
    ] == [False, True, True]


@feed_server_test()
async def test_scheduled_polls_find_new_posts(feed_server):
    feed_server.feed("/a", posts=5)
    await feed_server.subscribe("/a")
    await feed_server.run_for(hours=2)
    feed_server.write("/a")
    await feed_server.run_for(hours=48)
    assert (await feed_server.store.status()).entries == 6
    entry = (await feed_server.store.entries(limit=1))[0]
    assert entry.delay_s == pytest.approx(entry.first_seen_at - entry.published_at)
    assert entry.delay_s < 2 * DAY_S


@feed_server_test()
async def test_parsing_waits_for_recording(feed_server):
    size, feeds = 100, 60
    read, waiting = [], []
    parse, record = feed_server.aggregator.poller.parse, feed_server.store.record

    async def counted_parse(*args):
        read.append(1)
        return await parse(*args)

    async def counted_record(outcomes):
        waiting.append(sum(read))
        results = await record(outcomes)
        read[:] = read[len(outcomes) :]
        return results

    feed_server.aggregator.poller.parse, feed_server.store.record = counted_parse, counted_record
    paths = [f"/feed/{i}" for i in range(feeds)]
    for path in paths:
        feed_server.feed(path, posts=size, window=size)
    await feed_server.subscribe(*paths)
    assert (await feed_server.poll()).new == size * feeds
    assert max(waiting) <= 2 * BATCH_ENTRIES / size + 1
