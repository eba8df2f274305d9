"""Gaps: missed posts are detected, estimated, and recovered from archives, pages and peers."""

import pytest

from tests.live.feed_server import feed_server_test
from tidings.document import Entry
from tidings.model import DAY_S, HOUR_S


async def overflow(feed_server, *, links=""):
    """Publish a feed of ten entries, poll it, and publish hourly posts for 40 hours."""
    feed = feed_server.feed("/a", window=10)
    feed_server.write("/a", 10, every_s=HOUR_S)
    (feed_id,) = await feed_server.subscribe("/a")
    await feed_server.poll()
    feed_server.clock.now += 40 * HOUR_S
    feed_server.write("/a", 40, every_s=HOUR_S)
    feed.extra = links
    return feed, feed_id


def archive(feed_server, feed, path, first, end, older=""):
    """Publish the posts from ``first`` to ``end`` as an archive document."""
    link = f'<atom:link rel="prev-archive" href="{feed_server.url(older)}"/>' if older else ""
    feed.archives[path] = (feed.posts[first:end], link)


def numbers(entries):
    return sorted(int(entry.identity) for entry in entries)


@feed_server_test()
async def test_gap_is_reported_with_estimate(feed_server):
    _, feed_id = await overflow(feed_server)
    assert (await feed_server.poll()).new == 10
    (gap,) = await feed_server.store.gaps(feed_id=feed_id)
    assert gap.missed == pytest.approx(30, abs=2)
    assert gap.state == "lost"
    (poll, *_) = await feed_server.store.polls(feed_id)
    assert poll.missed == gap.missed


@feed_server_test()
async def test_missed_posts_are_recovered_from_archives(feed_server):
    feed, feed_id = await overflow(
        feed_server, links=f'<atom:link rel="prev-archive" href="{feed_server.url("/2")}"/>'
    )
    archive(feed_server, feed, "/2", 25, 45, older="/1")
    archive(feed_server, feed, "/1", 5, 25, older="/0")
    archive(feed_server, feed, "/0", 0, 5)
    await feed_server.poll()
    (gap,) = await feed_server.store.gaps(feed_id=feed_id)
    assert (gap.state, gap.recovered) == ("repaired", 30)
    entries = await feed_server.store.entries(limit=100)
    assert numbers(entries) == list(range(50))
    assert numbers(e for e in entries if e.source == "archive") == list(range(10, 40))
    assert feed_server.requests_for("/0") == []  # stops at a known entry


@feed_server_test()
async def test_pages_are_followed_to_known_entry(feed_server):
    feed, feed_id = await overflow(
        feed_server, links=f'<atom:link rel="next" href="{feed_server.url("/p2")}"/>'
    )
    for page, (first, end) in {
        "/p2": (30, 40),
        "/p3": (20, 30),
        "/p4": (10, 20),
        "/p5": (0, 10),
    }.items():
        following = f"/p{int(page[2:]) + 1}"
        feed.archives[page] = (
            feed.posts[first:end],
            f'<atom:link rel="next" href="{feed_server.url(following)}"/>',
        )
    await feed_server.poll()
    (gap,) = await feed_server.store.gaps(feed_id=feed_id)
    assert (gap.state, gap.recovered) == ("repaired", 30)
    assert feed_server.requests_for("/p6") == []


@feed_server_test()
async def test_cyclic_pages_are_requested_once(feed_server):
    feed, feed_id = await overflow(
        feed_server, links=f'<atom:link rel="next" href="{feed_server.url("/p2")}"/>'
    )
    feed.archives["/p2"] = (
        feed.posts[35:40],
        f'<atom:link rel="next" href="{feed_server.url("/p2")}"/>',
    )
    await feed_server.poll()
    (gap,) = await feed_server.store.gaps(feed_id=feed_id)
    assert (gap.state, gap.recovered) == ("partly", 5)
    assert len(feed_server.requests_for("/p2")) == 1


WORDPRESS = "<generator>https://wordpress.org/?v=6.4</generator>"


def pages_by_number(feed_server, feed, size):
    """Serve pages as WordPress does: without links, and 404 after the last."""

    def page(request):
        number = int(request.query.get("paged", "1"))
        posts = feed.posts[: len(feed.posts) - (number - 1) * size][-size:]
        return feed.document(posts) if posts and number > 1 else None

    feed.answer_page = page


@feed_server_test()
async def test_wordpress_pages_are_requested_without_link(feed_server):
    feed, feed_id = await overflow(feed_server, links=WORDPRESS)
    pages_by_number(feed_server, feed, 10)
    await feed_server.poll()
    (gap,) = await feed_server.store.gaps(feed_id=feed_id)
    assert (gap.state, gap.recovered) == ("repaired", 30)
    assert numbers(await feed_server.store.entries(limit=100)) == list(range(50))
    assert [r.query.get("paged") for r in feed_server.requests_for("/a")] == [
        None,
        None,
        "2",
        "3",
        "4",
        "5",
    ]


@feed_server_test()
async def test_other_generators_get_no_guessed_page_requests(feed_server):
    feed, feed_id = await overflow(feed_server, links="<generator>Hugo</generator>")
    pages_by_number(feed_server, feed, 10)
    await feed_server.poll()
    assert [gap.state for gap in await feed_server.store.gaps(feed_id=feed_id)] == ["lost"]
    assert len(feed_server.requests_for("/a")) == 2


@feed_server_test()
async def test_wordpress_without_pages_gets_one_request(feed_server):
    feed, feed_id = await overflow(feed_server, links=WORDPRESS)
    for answer in (feed.document, lambda: None):  # a cache ignores the page number, or 404
        feed.answer_page = lambda request, answer=answer: answer()
        feed_server.requests.clear()
        await feed_server.poll()
        assert {gap.state for gap in await feed_server.store.gaps(feed_id=feed_id)} == {"lost"}
        assert [r.query.get("paged") for r in feed_server.requests_for("/a")] == [None, "2"]
        feed_server.clock.now += 40 * HOUR_S
        feed_server.write("/a", 40, every_s=HOUR_S)


@feed_server_test()
async def test_posts_before_subscription_are_not_recovered(feed_server):
    feed, _ = await overflow(
        feed_server, links=f'<atom:link rel="prev-archive" href="{feed_server.url("/1")}"/>'
    )
    feed.archives["/1"] = (
        [(f"old{i}", feed_server.clock() - 90 * DAY_S, "") for i in range(5)] + feed.posts[:40],
        "",
    )
    await feed_server.poll()
    assert numbers(await feed_server.store.entries(limit=100)) == list(range(50))


@feed_server_test()
async def test_failed_archive_is_retried_with_next_document(feed_server):
    feed, feed_id = await overflow(
        feed_server, links=f'<atom:link rel="prev-archive" href="{feed_server.url("/1")}"/>'
    )
    await feed_server.poll()
    assert [gap.state for gap in await feed_server.store.gaps(feed_id=feed_id)] == ["open"]
    archive(feed_server, feed, "/1", 0, 45)
    feed_server.clock.now += HOUR_S
    feed_server.write("/a")
    await feed_server.poll()
    assert [gap.state for gap in await feed_server.store.gaps(feed_id=feed_id)] == ["repaired"]


@feed_server_test()
async def test_peers_are_used_if_archives_do_not_help(feed_server):
    calls = []

    async def recovery_source(feed, gap):
        calls.append((feed.id, gap.id))
        return {
            "10.0.0.1:1": [
                Entry(
                    identity="20", digest=b"", title="Post 20", published=gap.from_at + 10 * HOUR_S
                )
            ]
        }

    feed_server.aggregator.polls.gap_repairer.recovery_sources.append(recovery_source)
    _, feed_id = await overflow(feed_server)
    await feed_server.poll()
    (gap,) = await feed_server.store.gaps(feed_id=feed_id)
    assert [(feed_id, gap.id)] == calls
    assert (gap.state, gap.recovered) == ("partly", 1)
    assert [
        e.title for e in await feed_server.store.entries(limit=100) if e.source == "neighbour"
    ] == ["Post 20"]


@feed_server_test()
async def test_live_changing_ids_give_no_gap_and_no_duplicates(feed_server):
    feed = feed_server.feed("/a", posts=10)
    (feed_id,) = await feed_server.subscribe("/a")
    await feed_server.poll()
    for fetch in range(1, 4):
        feed_server.clock.now += HOUR_S
        feed.posts = [(number, at, f"words {fetch}") for number, at, _ in feed.posts]
        feed.id_prefix = f"fetch{fetch}-"
        await feed_server.poll()
    assert (await feed_server.store.status()).entries == 10
    assert await feed_server.store.gaps(feed_id=feed_id) == []
