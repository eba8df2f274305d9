"""The loop itself: one feed's trouble is its own, changes wake it, pushes and pings come in, and it can explain itself."""

import asyncio
import re
from contextlib import suppress

import pytest
from aiohttp import web

from tests.live.village import story
from tests.worlds import MONDAY
from tidings.aggregator.explain import explain, overview
from tidings.aggregator.polls import LEASE_S
from tidings.aggregator.reader import Reader
from tidings.config import Budget
from tidings.model import DAY_S, HOUR_S
from tidings.parse import ParseError
from tidings.store import Store, StoreError
from tidings.store.people import add_user
from tidings.store.rows import Wanted


@story()
async def test_one_feeds_trouble_is_its_own(village):
    for path in ("/good", "/gone", "/page", "/strange"):
        village.feed(path, posts=3)
    village.feeds["/gone"].status = 500
    village.pages["/page"] = "<html>no feed</html>"
    village.feeds["/strange"].document = lambda: 1 / 0
    await village.subscribe("/good", "/gone", "/page", "/strange")
    polled = await village.poll()
    assert (polled.asked, polled.new, polled.failed) == (4, 3, 3)
    assert (await village.store.status()).errors == {"http 500": 2, "unreadable": 1}
    page = await village.explained("/page")
    assert "HTML page" in page.state.last_error
    assert page.state.next_poll_at >= village.clock() + HOUR_S


@story()
async def test_a_document_longer_than_its_content_length_changes_nothing(village):
    village.feed("/a", posts=3)
    whole = village.feeds["/a"].document().encode()
    village.write("/a", 2)
    longer = village.feeds["/a"].document().encode()
    answers = [(whole, len(whole), "one"), (longer, longer.index(b"</item>") + 7, "two"), (longer, len(longer), "three")]
    conditions = []

    async def serve(reader, writer):
        """Counts wrong in its second answer: only the first entry lies within the declared length."""
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                conditions.append(re.findall(rb"If-None-Match: (.*)\r\n", head))
                body, length, etag = answers.pop(0)
                writer.write(f'HTTP/1.1 200 OK\r\nETag: "{etag}"\r\nContent-Length: {length}\r\n\r\n'.encode() + body)
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/a"
        await village.store.add([Wanted(url, village.clock())])
        assert (await village.poll()).new == 3
        village.clock.now += DAY_S
        polled = await village.poll()
        assert (polled.failed, polled.new) == (1, 0)
        assert (await village.store.status()).entries == 3
        failed = await village.store.feed(url)
        assert failed.state.last_error == "the server sent more bytes than its Content-Length declares"
        village.clock.now += DAY_S
        assert (await village.poll()).new == 2
    assert conditions == [[], [b'"one"'], [b'"one"']]


@story()
async def test_publishers_are_told_how_many_want_a_feed(village):
    village.feed("/a", posts=3)
    village.feed("/b", posts=3)
    await village.subscribe("/a", "/b")
    other = await village.store.write(add_user, "anna", "", False, village.clock())
    await village.store.add([Wanted(village.url("/b"), village.clock())], other.id)
    await village.poll()
    agents = [village.asked(path)[0].headers["User-Agent"] for path in ("/a", "/b")]
    assert [agent.partition("(")[2] for agent in agents] == ["1 subscribers)", "2 subscribers)"]


@story()
async def test_a_fault_of_ours_is_a_failed_poll_with_backoff(village):
    village.feed("/a", posts=3)
    village.feed("/b", posts=3)
    good, bad = await village.subscribe("/a", "/b")
    compare = Reader._compare

    async def faulty(self, feed, *args, **options):
        if feed.id == bad:
            raise RuntimeError("a fault of ours")
        return await compare(self, feed, *args, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Reader, "_compare", faulty)
        assert (await village.poll()).failed == 1
    failed = await village.store.feed(bad)
    assert "RuntimeError: a fault of ours" in failed.state.last_error
    assert failed.state.next_poll_at >= village.clock() + HOUR_S
    assert (await village.store.feed(good)).state.errors == 0
    village.clock.now += 2 * HOUR_S
    assert (await village.poll(bad)).new == 3


@story()
async def test_a_poll_that_cannot_be_recorded_is_made_again_when_its_lease_ends(village):
    village.feed("/a", posts=3)
    (feed_id,) = await village.subscribe("/a")

    async def full(self, outcomes):
        raise StoreError("the disk is full")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Store, "record", full)
        patch.setattr("tidings.aggregator.patience.RETRIES_S", ())
        assert (await village.poll()).failed == 1
    assert (await village.store.feed(feed_id)).state.next_poll_at == village.clock() + LEASE_S
    await village.live(seconds=LEASE_S + 1)
    assert (await village.store.status()).entries == 3


@story(asleep=True)
async def test_ending_in_the_midst_of_polls_leaves_them_to_the_next_process(village):
    for path in ("/a", "/b"):
        village.feed(path, posts=3)
    async with village.awake():
        await village.subscribe("/a", "/b")
        polling = asyncio.create_task(village.poll())
        while not village.aggregator.under_way:
            await asyncio.sleep(0)
        polling.cancel()
    village.clock.now += LEASE_S
    async with village.awake():
        await village.live(seconds=10)
        assert (await village.store.status()).entries == 6


@story()
async def test_failures_back_off_and_success_ends_that(village):
    village.feed("/a", posts=3).status = 503
    (feed_id,) = await village.subscribe("/a")
    await village.live(hours=72)
    assert 6 <= len(village.asked("/a")) <= 9  # 1, 2, 4, 8, 16, 24 hours and a little more
    village.feeds["/a"].status = 200
    await village.live(hours=30)
    state = (await village.store.feed(feed_id)).state
    assert (state.errors, state.last_error, state.failing_since) == (0, "", None)
    assert (await village.store.status()).entries == 3


@story()
async def test_a_dead_feed_is_still_tried_once_a_month(village):
    village.feed("/a", posts=3).status = 404
    (feed_id,) = await village.subscribe("/a")
    await village.live(hours=24 * 125)
    at = [moment - MONDAY for moment in village.asked_at("/a")]
    assert 2 <= sum(moment > 60 * DAY_S for moment in at) <= 3
    feed = await village.store.feed(feed_id)
    assert "it is taken for dead and tried once a month" in (await explain(village.store, feed, village.clock())).troubles


@story()
async def test_feeds_added_while_it_rests_are_polled_when_it_is_woken(village):
    stop = asyncio.Event()
    running = asyncio.create_task(village.aggregator.run(stop))
    village.feed("/a", posts=3)
    await village.subscribe("/a")
    village.aggregator.wake()
    while not village.asked("/a") or village.aggregator.under_way:
        await asyncio.sleep(0.001)
    stop.set()
    await running
    assert (await village.store.status()).entries == 3


@story()
async def test_changed_entries_keep_their_history_and_first_date(village):
    feed = village.feed("/a", posts=2)
    await village.subscribe("/a")
    await village.poll()
    village.clock.now += HOUR_S
    feed.posts[1] = (1, village.clock(), "other words")
    assert (await village.poll()).changed == 1
    (entry, _) = await village.store.entries()
    assert entry.summary == "other words"
    assert entry.published_at == MONDAY
    assert [version.summary for version in await village.store.versions(entry.id)] == ["words"]
    assert (await village.poll()).changed == 0


@story()
async def test_entries_have_ids_in_the_order_of_their_publication(village):
    village.feed("/a")
    village.write("/a", 5, every_s=60)
    await village.subscribe("/a")
    await village.poll()
    assert [entry.title for entry in await village.store.entries()] == [f"Post {i}" for i in (4, 3, 2, 1, 0)]


@story()
async def test_published_html_is_made_safe_before_it_is_kept(village):
    village.feed("/a")
    village.write("/a", text="&lt;script&gt;evil()&lt;/script&gt;&lt;p&gt;good &lt;b&gt;word&lt;/b&gt;&lt;/p&gt;")
    await village.subscribe("/a")
    await village.poll()
    (entry,) = await village.store.entries(search="good")
    assert entry.summary == "<p>good <b>word</b></p>"


@story()
async def test_a_push_is_recorded_like_a_poll_that_cost_nothing(village):
    feed = village.feed("/a", posts=3)
    (feed_id,) = await village.subscribe("/a")
    await village.poll(due=True)
    village.clock.now += HOUR_S
    village.write("/a")
    body = feed.document(feed.posts[-1:]).encode()
    assert await village.aggregator.take_push(feed_id, body, "application/rss+xml") == 1
    assert await village.aggregator.take_push(feed_id, body, "application/rss+xml") == 0
    with pytest.raises(ParseError):
        await village.aggregator.take_push(feed_id, b"<html></html>", "text/html")
    (newest, *_) = await village.store.entries()
    assert (newest.source, newest.delay_s) == ("push", 0)
    assert len(village.requests) == 1
    assert await village.store.gaps() == []
    assert (await village.store.feed(feed_id)).state.next_poll_at > village.clock()
    assert (await village.poll()).new == 0


@story()
async def test_a_ping_makes_a_feed_due_as_soon_as_its_server_allows(village):
    village.feed("/a", posts=3)
    village.feed("/b", posts=3).headers = {"Cache-Control": "max-age=1800"}
    quick, slow = await village.subscribe("/a", "/b")
    await village.live(seconds=1)
    village.write("/a")
    village.write("/b")
    for feed_id in (quick, slow):
        await village.aggregator.take_ping(feed_id)
    await village.live(seconds=60)
    assert (len(village.asked("/a")), len(village.asked("/b"))) == (2, 1)
    await village.live(hours=0.6)
    assert len(village.asked("/b")) == 2


@story(budget=Budget(48.0, False))
async def test_a_feed_can_be_explained(village):
    feed = village.feed("/a", window=20)
    feed.extra = "<ttl>30</ttl><skipDays><day>Sunday</day></skipDays>"
    village.write("/a", 20, every_s=DAY_S, at=MONDAY - 5 * HOUR_S)
    (feed_id,) = await village.subscribe("/a")
    await village.poll(due=True)
    told = await explain(village.store, await village.store.feed(feed_id), village.clock())
    assert told.next_poll_at > village.clock()
    assert told.reason
    assert told.habits[0] == "its document holds 20 entries"
    assert "1 posts a day" in told.habits[1]
    assert told.habits[-1].startswith("all come from")
    assert told.wishes[0] == "ttl: 30 min between polls"
    assert "closed" in told.wishes[1] or "ignored" in told.wishes[1]
    assert told.troubles == ()
    assert [poll.new for poll in told.polls] == [20]
    whole = await overview(village.store, village.brain.budget)
    assert (whole.budget_per_day, whole.spent_share) == (48, pytest.approx(1 / 48))


@story(fetch={"concurrency": 3})
async def test_no_more_polls_are_under_way_than_can_be_handled(village):
    most = 0
    answer = village.answer

    async def watched(request):
        nonlocal most
        most = max(most, village.aggregator.under_way)
        await asyncio.sleep(0)
        return await answer(request)

    runner = web.ServerRunner(web.Server(watched))
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    village.port = runner.addresses[0][1]
    paths = [f"/{i}" for i in range(30)]
    for path in paths:
        village.feed(path, posts=1)
    await village.subscribe(*paths)
    assert (await village.poll()).new == 30
    assert 1 < most <= 6
    await runner.cleanup()
