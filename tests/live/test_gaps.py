"""Posts that were pushed out unseen are noticed, estimated, and brought back where their publisher keeps them."""

import pytest

from tests.live.feed_server import feed_server_test
from tidings.document import Entry
from tidings.model import DAY_S, HOUR_S


async def overflow(feed_server, *, links=""):
    """A feed of ten entries that posts hourly, looked at, and looked at again after 40 hours."""
    feed = feed_server.feed("/a", window=10)
    feed_server.write("/a", 10, every_s=HOUR_S)
    (feed_id,) = await feed_server.subscribe("/a")
    await feed_server.poll()
    feed_server.clock.now += 40 * HOUR_S
    feed_server.write("/a", 40, every_s=HOUR_S)
    feed.extra = links
    return feed, feed_id


def archive(feed_server, feed, path, first, end, older=""):
    """Posts from ``first`` to ``end`` in a document of their own."""
    link = f'<atom:link rel="prev-archive" href="{feed_server.url(older)}"/>' if older else ""
    feed.archives[path] = (feed.posts[first:end], link)


def numbers(entries):
    return sorted(int(entry.identity) for entry in entries)


@feed_server_test()
async def test_a_gap_is_reported_with_an_estimate(feed_server):
    _, feed_id = await overflow(feed_server)
    assert (await feed_server.poll()).new == 10
    (gap,) = await feed_server.store.gaps(feed_id=feed_id)
    assert gap.missed == pytest.approx(30, abs=2)
    assert gap.state == "lost"
    (poll, *_) = await feed_server.store.polls(feed_id)
    assert poll.missed == gap.missed


@feed_server_test()
async def test_archives_bring_lost_posts_back(feed_server):
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
    assert feed_server.requests_for("/0") == []  # what is known is where the walk ends


@feed_server_test()
async def test_pages_are_walked_until_something_is_known(feed_server):
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
async def test_pages_in_a_circle_end(feed_server):
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
    """As WordPress has them: no link leads to them, and behind the last there is nothing."""

    def page(request):
        number = int(request.query.get("paged", "1"))
        posts = feed.posts[: len(feed.posts) - (number - 1) * size][-size:]
        return feed.document(posts) if posts and number > 1 else None

    feed.answer_page = page


@feed_server_test()
async def test_wordpress_has_pages_that_no_link_leads_to(feed_server):
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
async def test_others_are_not_asked_for_pages_that_they_do_not_name(feed_server):
    feed, feed_id = await overflow(feed_server, links="<generator>Hugo</generator>")
    pages_by_number(feed_server, feed, 10)
    await feed_server.poll()
    assert [gap.state for gap in await feed_server.store.gaps(feed_id=feed_id)] == ["lost"]
    assert len(feed_server.requests_for("/a")) == 2


@feed_server_test()
async def test_a_wordpress_without_pages_is_asked_for_one(feed_server):
    feed, feed_id = await overflow(feed_server, links=WORDPRESS)
    for answer in (feed.document, lambda: None):  # the same to all who ask, or nothing
        feed.answer_page = lambda request, answer=answer: answer()
        feed_server.requests.clear()
        await feed_server.poll()
        assert {gap.state for gap in await feed_server.store.gaps(feed_id=feed_id)} == {"lost"}
        assert [r.query.get("paged") for r in feed_server.requests_for("/a")] == [None, "2"]
        feed_server.clock.now += 40 * HOUR_S
        feed_server.write("/a", 40, every_s=HOUR_S)


@feed_server_test()
async def test_what_was_posted_before_anybody_asked_was_not_lost(feed_server):
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
async def test_an_archive_that_cannot_be_had_is_tried_again_with_the_next_document(feed_server):
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
async def test_neighbours_are_asked_where_archives_do_not_help(feed_server):
    asked = []

    async def recovery_source(feed, gap):
        asked.append((feed.id, gap.id))
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
    assert [(feed_id, gap.id)] == asked
    assert (gap.state, gap.recovered) == ("partly", 1)
    assert [
        e.title for e in await feed_server.store.entries(limit=100) if e.source == "neighbour"
    ] == ["Post 20"]


@feed_server_test()
async def test_ids_that_change_at_every_fetch_are_no_gap_and_nothing_twice(feed_server):
    feed = feed_server.feed("/a", posts=10)
    (feed_id,) = await feed_server.subscribe("/a")
    await feed_server.poll()
    for again in range(1, 4):
        feed_server.clock.now += HOUR_S
        feed.posts = [(number, at, f"words {again}") for number, at, _ in feed.posts]
        feed.id_prefix = f"fetch{again}-"
        await feed_server.poll()
    assert (await feed_server.store.status()).entries == 10
    assert await feed_server.store.gaps(feed_id=feed_id) == []
