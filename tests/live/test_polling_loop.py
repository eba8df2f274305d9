"""Polling loop: failures of single feeds, backoff, wake-ups, pushes, pings, explanations."""

import asyncio
import re
from contextlib import suppress

import pytest
from aiohttp import web

from tests.live.feed_server import feed_server_test
from tests.trace_helpers import MONDAY
from tidings.aggregator.explain import explain, overview
from tidings.aggregator.poll_tasks import LEASE_S
from tidings.aggregator.poller import Poller
from tidings.config import Budget
from tidings.model import DAY_S, HOUR_S
from tidings.parse import ParseError
from tidings.store import Store, StoreError
from tidings.store.feed_models import NewSubscription
from tidings.store.users import add_user


@feed_server_test()
async def test_failing_feed_does_not_affect_others(feed_server):
    for path in ("/good", "/gone", "/page", "/strange"):
        feed_server.feed(path, posts=3)
    feed_server.feeds["/gone"].status = 500
    feed_server.pages["/page"] = "<html>no feed</html>"
    feed_server.feeds["/strange"].document = lambda: 1 / 0
    await feed_server.subscribe("/good", "/gone", "/page", "/strange")
    polled = await feed_server.poll()
    assert (polled.poll_count, polled.new, polled.failed) == (4, 3, 3)
    assert (await feed_server.store.status()).errors == {"http 500": 2, "unreadable": 1}
    page = await feed_server.stored_feed("/page")
    assert "HTML page" in page.state.last_error
    assert page.state.next_poll_at >= feed_server.clock() + HOUR_S


@feed_server_test()
async def test_document_longer_than_content_length_is_rejected(feed_server):
    feed_server.feed("/a", posts=3)
    first = feed_server.feeds["/a"].document().encode()
    feed_server.write("/a", 2)
    longer = feed_server.feeds["/a"].document().encode()
    answers = [
        (first, len(first), "one"),
        (longer, longer.index(b"</item>") + 7, "two"),
        (longer, len(longer), "three"),
    ]
    conditions = []

    async def serve(reader, writer):
        """Declare a wrong length in the second response: it covers only the first entry."""
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                conditions.append(re.findall(rb"If-None-Match: (.*)\r\n", head))
                body, length, etag = answers.pop(0)
                head = f'HTTP/1.1 200 OK\r\nETag: "{etag}"\r\nContent-Length: {length}\r\n\r\n'
                writer.write(head.encode() + body)
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/a"
        await feed_server.store.add_subscriptions([NewSubscription(url, feed_server.clock())])
        assert (await feed_server.poll()).new == 3
        feed_server.clock.now += DAY_S
        polled = await feed_server.poll()
        assert (polled.failed, polled.new) == (1, 0)
        assert (await feed_server.store.status()).entries == 3
        failed = await feed_server.store.feed(url)
        assert (
            failed.state.last_error == "the server sent more bytes than its Content-Length declares"
        )
        feed_server.clock.now += DAY_S
        assert (await feed_server.poll()).new == 2
    assert conditions == [[], [b'"one"'], [b'"one"']]


@feed_server_test()
async def test_user_agent_has_subscriber_count(feed_server):
    feed_server.feed("/a", posts=3)
    feed_server.feed("/b", posts=3)
    await feed_server.subscribe("/a", "/b")
    other = await feed_server.store.write(add_user, "anna", "", False, feed_server.clock())
    await feed_server.store.add_subscriptions(
        [NewSubscription(feed_server.url("/b"), feed_server.clock())], other.id
    )
    await feed_server.poll()
    agents = [feed_server.requests_for(path)[0].headers["User-Agent"] for path in ("/a", "/b")]
    assert [agent.partition("(")[2] for agent in agents] == ["1 subscribers)", "2 subscribers)"]


@feed_server_test()
async def test_internal_error_is_a_failed_poll_with_backoff(feed_server):
    feed_server.feed("/a", posts=3)
    feed_server.feed("/b", posts=3)
    good, bad = await feed_server.subscribe("/a", "/b")
    compare = Poller._compare

    async def faulty(self, feed, *args, **options):
        if feed.id == bad:
            raise RuntimeError("a bug")
        return await compare(self, feed, *args, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Poller, "_compare", faulty)
        assert (await feed_server.poll()).failed == 1
    failed = await feed_server.store.feed(bad)
    assert "RuntimeError: a bug" in failed.state.last_error
    assert failed.state.next_poll_at >= feed_server.clock() + HOUR_S
    assert (await feed_server.store.feed(good)).state.errors == 0
    feed_server.clock.now += 2 * HOUR_S
    assert (await feed_server.poll(bad)).new == 3


@feed_server_test()
async def test_unrecorded_poll_is_repeated_after_lease(feed_server):
    feed_server.feed("/a", posts=3)
    (feed_id,) = await feed_server.subscribe("/a")

    async def fail(self, outcomes):
        raise StoreError("the disk is full")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Store, "record", fail)
        patch.setattr("tidings.aggregator.retry.RETRY_DELAYS_S", ())
        assert (await feed_server.poll()).failed == 1
    assert (
        await feed_server.store.feed(feed_id)
    ).state.next_poll_at == feed_server.clock() + LEASE_S
    await feed_server.run_for(seconds=LEASE_S + 1)
    assert (await feed_server.store.status()).entries == 3


@feed_server_test(stopped=True)
async def test_polls_interrupted_by_shutdown_are_due_again(feed_server):
    for path in ("/a", "/b"):
        feed_server.feed(path, posts=3)
    async with feed_server.run_aggregator():
        await feed_server.subscribe("/a", "/b")
        polling = asyncio.create_task(feed_server.poll())
        while not feed_server.aggregator.polls_in_flight:
            await asyncio.sleep(0)
        polling.cancel()
    feed_server.clock.now += LEASE_S
    async with feed_server.run_aggregator():
        await feed_server.run_for(seconds=10)
        assert (await feed_server.store.status()).entries == 6


@feed_server_test()
async def test_backoff_ends_with_success(feed_server):
    feed_server.feed("/a", posts=3).status = 503
    (feed_id,) = await feed_server.subscribe("/a")
    await feed_server.run_for(hours=72)
    # Waits of 1, 2, 4, 8, 16 and 24 hours, with jitter.
    assert 6 <= len(feed_server.requests_for("/a")) <= 9
    feed_server.feeds["/a"].status = 200
    await feed_server.run_for(hours=30)
    state = (await feed_server.store.feed(feed_id)).state
    assert (state.errors, state.last_error, state.failing_since) == (0, "", None)
    assert (await feed_server.store.status()).entries == 3


@feed_server_test()
async def test_dead_feed_is_polled_monthly(feed_server):
    feed_server.feed("/a", posts=3).status = 404
    (feed_id,) = await feed_server.subscribe("/a")
    await feed_server.run_for(hours=24 * 125)
    times = [time - MONDAY for time in feed_server.request_times("/a")]
    assert 2 <= sum(time > 60 * DAY_S for time in times) <= 3
    feed = await feed_server.store.feed(feed_id)
    assert (
        "the feed has failed for a long time and is checked once a month"
        in (await explain(feed_server.store, feed, feed_server.clock())).problems
    )


@feed_server_test()
async def test_wake_polls_added_feeds(feed_server):
    stop = asyncio.Event()
    running = asyncio.create_task(feed_server.aggregator.run(stop))
    feed_server.feed("/a", posts=3)
    await feed_server.subscribe("/a")
    feed_server.aggregator.wake()
    while not feed_server.requests_for("/a") or feed_server.aggregator.polls_in_flight:
        await asyncio.sleep(0.001)
    stop.set()
    await running
    assert (await feed_server.store.status()).entries == 3


@feed_server_test()
async def test_changed_entries_keep_versions_and_first_date(feed_server):
    feed = feed_server.feed("/a", posts=2)
    await feed_server.subscribe("/a")
    await feed_server.poll()
    feed_server.clock.now += HOUR_S
    feed.posts[1] = (1, feed_server.clock(), "other words")
    assert (await feed_server.poll()).changed == 1
    (entry, _) = await feed_server.store.entries()
    assert entry.summary == "other words"
    assert entry.published_at == MONDAY
    assert [version.summary for version in await feed_server.store.versions(entry.id)] == ["words"]
    assert (await feed_server.poll()).changed == 0


@feed_server_test()
async def test_entry_ids_are_in_publication_order(feed_server):
    feed_server.feed("/a")
    feed_server.write("/a", 5, every_s=60)
    await feed_server.subscribe("/a")
    await feed_server.poll()
    assert [entry.title for entry in await feed_server.store.entries()] == [
        f"Post {i}" for i in (4, 3, 2, 1, 0)
    ]


@feed_server_test()
async def test_html_is_sanitized_before_storing(feed_server):
    feed_server.feed("/a")
    feed_server.write(
        "/a",
        text="&lt;script&gt;evil()&lt;/script&gt;&lt;p&gt;good &lt;b&gt;word&lt;/b&gt;&lt;/p&gt;",
    )
    await feed_server.subscribe("/a")
    await feed_server.poll()
    (entry,) = await feed_server.store.entries(search="good")
    assert entry.summary == "<p>good <b>word</b></p>"


@feed_server_test()
async def test_push_is_recorded_without_request(feed_server):
    feed = feed_server.feed("/a", posts=3)
    (feed_id,) = await feed_server.subscribe("/a")
    await feed_server.poll(due=True)
    feed_server.clock.now += HOUR_S
    feed_server.write("/a")
    body = feed.document(feed.posts[-1:]).encode()
    assert await feed_server.aggregator.handle_push(feed_id, body, "application/rss+xml") == 1
    assert await feed_server.aggregator.handle_push(feed_id, body, "application/rss+xml") == 0
    with pytest.raises(ParseError):
        await feed_server.aggregator.handle_push(feed_id, b"<html></html>", "text/html")
    (newest, *_) = await feed_server.store.entries()
    assert (newest.source, newest.delay_s) == ("push", 0)
    assert len(feed_server.requests) == 1
    assert await feed_server.store.gaps() == []
    assert (await feed_server.store.feed(feed_id)).state.next_poll_at > feed_server.clock()
    assert (await feed_server.poll()).new == 0


@feed_server_test()
async def test_ping_makes_feed_due_within_constraints(feed_server):
    feed_server.feed("/a", posts=3)
    feed_server.feed("/b", posts=3).headers = {"Cache-Control": "max-age=1800"}
    quick, slow = await feed_server.subscribe("/a", "/b")
    await feed_server.run_for(seconds=1)
    feed_server.write("/a")
    feed_server.write("/b")
    for feed_id in (quick, slow):
        await feed_server.aggregator.handle_ping(feed_id)
    await feed_server.run_for(seconds=60)
    assert (len(feed_server.requests_for("/a")), len(feed_server.requests_for("/b"))) == (2, 1)
    await feed_server.run_for(hours=0.6)
    assert len(feed_server.requests_for("/b")) == 2


@feed_server_test(budget=Budget(48.0, False))
async def test_explanation_of_feed(feed_server):
    feed = feed_server.feed("/a", window=20)
    feed.extra = "<ttl>30</ttl><skipDays><day>Sunday</day></skipDays>"
    feed_server.write("/a", 20, every_s=DAY_S, at=MONDAY - 5 * HOUR_S)
    (feed_id,) = await feed_server.subscribe("/a")
    await feed_server.poll(due=True)
    explanation = await explain(
        feed_server.store, await feed_server.store.feed(feed_id), feed_server.clock()
    )
    assert explanation.next_poll_at > feed_server.clock()
    assert explanation.reason
    assert explanation.habits[0].startswith("the feed lists its latest 20 posts, which cover about")
    assert "1 posts a day" in explanation.habits[1]
    assert explanation.habits[-1].startswith("all posts are published at")
    assert explanation.poll_constraints[0] == "the feed requests 30 min between checks (ttl)"
    assert "the publisher excludes 24 of 168 hours of the week" in explanation.poll_constraints[1]
    assert explanation.problems == ()
    assert [poll.new for poll in explanation.polls] == [20]
    service = await overview(feed_server.store, feed_server.scheduler.budget)
    assert (service.budget_per_day, service.spent_share) == (48, pytest.approx(1 / 48))


@feed_server_test(fetch={"concurrency": 3})
async def test_running_polls_are_limited(feed_server):
    most = 0
    answer = feed_server.answer

    async def watched(request):
        nonlocal most
        most = max(most, feed_server.aggregator.polls_in_flight)
        await asyncio.sleep(0)
        return await answer(request)

    runner = web.ServerRunner(web.Server(watched))
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    feed_server.port = runner.addresses[0][1]
    paths = [f"/{i}" for i in range(30)]
    for path in paths:
        feed_server.feed(path, posts=1)
    await feed_server.subscribe(*paths)
    assert (await feed_server.poll()).new == 30
    assert 1 < most <= 6
    await runner.cleanup()
