"""Posts that were pushed out unseen are noticed, estimated, and brought back where their publisher keeps them."""

import pytest

from tests.live.village import story
from tidings.document import Entry
from tidings.model import DAY_S, HOUR_S


async def overflow(village, *, links=""):
    """A feed of ten entries that posts hourly, looked at, and looked at again after 40 hours."""
    feed = village.feed("/a", window=10)
    village.write("/a", 10, every_s=HOUR_S)
    (feed_id,) = await village.subscribe("/a")
    await village.poll()
    village.clock.now += 40 * HOUR_S
    village.write("/a", 40, every_s=HOUR_S)
    feed.extra = links
    return feed, feed_id


def archive(village, feed, path, first, end, older=""):
    """Posts from ``first`` to ``end`` in a document of their own."""
    link = f'<atom:link rel="prev-archive" href="{village.url(older)}"/>' if older else ""
    feed.archives[path] = (feed.posts[first:end], link)


def numbers(entries):
    return sorted(int(entry.identity) for entry in entries)


@story()
async def test_a_gap_is_reported_with_an_estimate(village):
    _, feed_id = await overflow(village)
    assert (await village.poll()).new == 10
    (gap,) = await village.store.gaps(feed_id=feed_id)
    assert gap.lost == pytest.approx(30, abs=2)
    assert gap.state == "lost"
    (poll, *_) = await village.store.polls(feed_id)
    assert poll.lost == gap.lost


@story()
async def test_archives_bring_lost_posts_back(village):
    feed, feed_id = await overflow(village, links=f'<atom:link rel="prev-archive" href="{village.url("/2")}"/>')
    archive(village, feed, "/2", 25, 45, older="/1")
    archive(village, feed, "/1", 5, 25, older="/0")
    archive(village, feed, "/0", 0, 5)
    await village.poll()
    (gap,) = await village.store.gaps(feed_id=feed_id)
    assert (gap.state, gap.recovered) == ("repaired", 30)
    entries = await village.store.entries(limit=100)
    assert numbers(entries) == list(range(50))
    assert numbers(e for e in entries if e.source == "archive") == list(range(10, 40))
    assert village.asked("/0") == []  # what is known is where the walk ends


@story()
async def test_pages_are_walked_until_something_is_known(village):
    feed, feed_id = await overflow(village, links=f'<atom:link rel="next" href="{village.url("/p2")}"/>')
    for page, (first, end) in {"/p2": (30, 40), "/p3": (20, 30), "/p4": (10, 20), "/p5": (0, 10)}.items():
        following = f"/p{int(page[2:]) + 1}"
        feed.archives[page] = (feed.posts[first:end], f'<atom:link rel="next" href="{village.url(following)}"/>')
    await village.poll()
    (gap,) = await village.store.gaps(feed_id=feed_id)
    assert (gap.state, gap.recovered) == ("repaired", 30)
    assert village.asked("/p6") == []


@story()
async def test_pages_in_a_circle_end(village):
    feed, feed_id = await overflow(village, links=f'<atom:link rel="next" href="{village.url("/p2")}"/>')
    feed.archives["/p2"] = (feed.posts[35:40], f'<atom:link rel="next" href="{village.url("/p2")}"/>')
    await village.poll()
    (gap,) = await village.store.gaps(feed_id=feed_id)
    assert (gap.state, gap.recovered) == ("partly", 5)
    assert len(village.asked("/p2")) == 1


WORDPRESS = "<generator>https://wordpress.org/?v=6.4</generator>"


def pages_by_number(village, feed, size):
    """As WordPress has them: no link leads to them, and behind the last there is nothing."""

    def page(request):
        number = int(request.query.get("paged", "1"))
        posts = feed.posts[: len(feed.posts) - (number - 1) * size][-size:]
        return feed.document(posts) if posts and number > 1 else None

    feed.paged = page


@story()
async def test_wordpress_has_pages_that_no_link_leads_to(village):
    feed, feed_id = await overflow(village, links=WORDPRESS)
    pages_by_number(village, feed, 10)
    await village.poll()
    (gap,) = await village.store.gaps(feed_id=feed_id)
    assert (gap.state, gap.recovered) == ("repaired", 30)
    assert numbers(await village.store.entries(limit=100)) == list(range(50))
    assert [r.query.get("paged") for r in village.asked("/a")] == [None, None, "2", "3", "4", "5"]


@story()
async def test_others_are_not_asked_for_pages_that_they_do_not_name(village):
    feed, feed_id = await overflow(village, links="<generator>Hugo</generator>")
    pages_by_number(village, feed, 10)
    await village.poll()
    assert [gap.state for gap in await village.store.gaps(feed_id=feed_id)] == ["lost"]
    assert len(village.asked("/a")) == 2


@story()
async def test_a_wordpress_without_pages_is_asked_for_one(village):
    feed, feed_id = await overflow(village, links=WORDPRESS)
    for answer in (feed.document, lambda: None):  # the same to all who ask, or nothing
        feed.paged = lambda request, answer=answer: answer()
        village.requests.clear()
        await village.poll()
        assert {gap.state for gap in await village.store.gaps(feed_id=feed_id)} == {"lost"}
        assert [r.query.get("paged") for r in village.asked("/a")] == [None, "2"]
        village.clock.now += 40 * HOUR_S
        village.write("/a", 40, every_s=HOUR_S)


@story()
async def test_what_was_posted_before_anybody_asked_was_not_lost(village):
    feed, _ = await overflow(village, links=f'<atom:link rel="prev-archive" href="{village.url("/1")}"/>')
    feed.archives["/1"] = ([(f"old{i}", village.clock() - 90 * DAY_S, "") for i in range(5)] + feed.posts[:40], "")
    await village.poll()
    assert numbers(await village.store.entries(limit=100)) == list(range(50))


@story()
async def test_an_archive_that_cannot_be_had_is_tried_again_with_the_next_document(village):
    feed, feed_id = await overflow(village, links=f'<atom:link rel="prev-archive" href="{village.url("/1")}"/>')
    await village.poll()
    assert [gap.state for gap in await village.store.gaps(feed_id=feed_id)] == ["open"]
    archive(village, feed, "/1", 0, 45)
    village.clock.now += HOUR_S
    village.write("/a")
    await village.poll()
    assert [gap.state for gap in await village.store.gaps(feed_id=feed_id)] == ["repaired"]


@story()
async def test_neighbours_are_asked_where_archives_do_not_help(village):
    asked = []

    async def recoverer(feed, gap):
        asked.append((feed.id, gap.id))
        return {"10.0.0.1:1": [Entry(identity="20", digest=b"", title="Post 20", published=gap.from_at + 10 * HOUR_S)]}

    village.aggregator.polls.repairer.recoverers.append(recoverer)
    _, feed_id = await overflow(village)
    await village.poll()
    (gap,) = await village.store.gaps(feed_id=feed_id)
    assert [(feed_id, gap.id)] == asked
    assert (gap.state, gap.recovered) == ("partly", 1)
    assert [e.title for e in await village.store.entries(limit=100) if e.source == "neighbour"] == ["Post 20"]


@story()
async def test_ids_that_change_at_every_fetch_are_no_gap_and_nothing_twice(village):
    feed = village.feed("/a", posts=10)
    (feed_id,) = await village.subscribe("/a")
    await village.poll()
    for again in range(1, 4):
        village.clock.now += HOUR_S
        feed.posts = [(number, at, f"words {again}") for number, at, _ in feed.posts]
        feed.renamed = f"fetch{again}-"
        await village.poll()
    assert (await village.store.status()).entries == 10
    assert await village.store.gaps(feed_id=feed_id) == []
