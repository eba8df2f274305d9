"""From a list of feeds to entries, each once, over real HTTP."""

import pytest

from tests.live.village import story
from tidings.aggregator.importer import import_feeds
from tidings.aggregator.recorder import BATCH_ENTRIES
from tidings.config import Budget
from tidings.model import DAY_S


def opml(urls):
    rows = "\n".join(f'<outline text="Feed {i}" xmlUrl="{url}"/>' for i, url in enumerate(urls))
    return f'<opml version="2.0"><body><outline text="Blogs">\n{rows}\n</outline></body></opml>'.encode()


@story(budget=Budget(4.0, True))
async def test_two_hundred_feeds_of_an_opml_file_have_every_entry_once(village):
    paths = [f"/feed/{i}" for i in range(200)]
    for path in paths:
        village.feed(path, posts=5)
    report = await import_feeds(village.store, opml(map(village.url, paths)), village.clock)
    assert len(report.new) == 200
    await village.live(hours=1)
    status = await village.store.status()
    assert status.entries == 1000
    await village.poll()
    assert (await village.store.status()).entries == 1000
    first = await village.explained("/feed/0")
    assert first.state.next_poll_at > village.clock()
    assert first.state.reason


@story()
async def test_a_second_refresh_brings_only_what_is_new(village):
    village.feed("/a", posts=5)
    await village.subscribe("/a")
    assert (await village.poll()).new == 5
    village.write("/a", 2)
    village.clock.now += 60
    assert (await village.poll()).new == 2
    assert (await village.poll()).new == 0
    assert [request.headers.get("If-None-Match") is not None for request in village.asked("/a")] == [False, True, True]


@story()
async def test_posts_are_found_by_the_clock(village):
    village.feed("/a", posts=5)
    await village.subscribe("/a")
    await village.live(hours=2)
    village.write("/a")
    await village.live(hours=48)
    assert (await village.store.status()).entries == 6
    entry = (await village.store.entries(limit=1))[0]
    assert entry.delay_s == pytest.approx(entry.first_seen_at - entry.published_at)
    assert entry.delay_s < 2 * DAY_S


@story()
async def test_no_more_documents_are_read_than_can_soon_be_recorded(village):
    size, feeds = 100, 60
    read, waiting = [], []
    parse, record = village.aggregator.reader.parse, village.store.record

    async def counted_parse(*args):
        read.append(1)
        return await parse(*args)

    async def counted_record(outcomes):
        waiting.append(sum(read))
        brought = await record(outcomes)
        read[:] = read[len(outcomes) :]
        return brought

    village.aggregator.reader.parse, village.store.record = counted_parse, counted_record
    paths = [f"/feed/{i}" for i in range(feeds)]
    for path in paths:
        village.feed(path, posts=size, window=size)
    await village.subscribe(*paths)
    assert (await village.poll()).new == size * feeds
    assert max(waiting) <= 2 * BATCH_ENTRIES / size + 1
