"""Streams: what each reader finds, in which order, a page at a time."""

import pytest

from tidings.errors import UsageError
from tidings.people import NotFound
from tidings.store.people_rows import Stream


def test_what_arrives_is_unread_for_every_subscriber_and_for_nobody_else(town):
    town.ann.follows("a", "b")
    town.bob.follows("a")
    town.posted("a", 1, 2)
    town.posted("b", 3)
    assert sorted(town.ann.unread()) == ["Post 1", "Post 2", "Post 3"]
    assert sorted(town.bob.unread()) == ["Post 1", "Post 2"]
    assert town.cid.unread() == []


def test_streams_by_feed_and_folder_and_without_them(town):
    a = town.ann.follows("a", folder="News")
    b = town.ann.follows("b", folder="News")
    c = town.ann.follows("c")
    for number, name in enumerate("abc", start=1):
        town.posted(name, number)
    news = next(f.id for f in town.ann.folders() if f.name == "News")
    assert town.ann.titles(feeds=(a,)) == ["Post 1"]
    assert town.ann.titles(folders=(news,)) == ["Post 2", "Post 1"]
    assert town.ann.titles(folders=(0,)) == ["Post 3"]
    assert town.ann.titles(folders=(news,), feeds=(c,)) == ["Post 3", "Post 2", "Post 1"]
    assert town.ann.titles(not_folders=(news,)) == ["Post 3"]
    assert town.ann.titles(folders=(news,), not_feeds=(b,)) == ["Post 1"]
    assert town.ann.unread(folders=(news,)) == ["Post 2", "Post 1"]


def test_orders(town):
    town.ann.follows("a")
    town.posted("a", 1, published_at=town.clock() - 10)
    town.posted("a", 2, published_at=town.clock() - 1000)
    assert town.ann.titles() == ["Post 2", "Post 1"]
    assert town.ann.titles(oldest_first=True) == ["Post 1", "Post 2"]
    assert town.ann.titles(by="publication") == ["Post 1", "Post 2"]
    assert town.ann.unread(by="publication", oldest_first=True) == ["Post 2", "Post 1"]


@pytest.mark.parametrize("by", ["arrival", "publication"])
@pytest.mark.parametrize("oldest_first", [False, True])
@pytest.mark.parametrize("unread", [True, None])
def test_pages_show_each_entry_once_while_things_arrive_and_are_read(town, by, oldest_first, unread):
    town.ann.follows("a", "b")
    first = [*town.posted("a", *range(1, 12)), *town.posted("b", *range(20, 31), age_s=5000)]
    stream, seen, after = Stream(by=by, oldest_first=oldest_first, unread=unread), [], None
    for turn in range(50):
        page = town.ann.ids(stream, limit=4, after=after)
        seen += page.ids
        town.ann.mark(page.ids, unread=False)
        town.posted("a", 100 + turn)
        after = page.next
        if after is None or turn > 20:
            break
    assert len(seen) == len(set(seen))
    assert set(first) <= set(seen)


@pytest.mark.parametrize("by", ["arrival", "publication"])
@pytest.mark.parametrize("page", [0, 100], ids=["walked", "gathered"])
def test_pages_of_one_who_follows_few_of_many_feeds(town, monkeypatch, by, page):
    monkeypatch.setattr("tidings.store.reading.PAGE", page)
    town.ann.follows(*"abcdefgh")
    town.bob.follows("b", "g")
    for number, name in enumerate("abcdefghabcdefgh", start=1):
        town.posted(name, number)
    first = town.bob.ids(Stream(by=by), limit=3)
    rest = town.bob.ids(Stream(by=by), limit=3, after=first.next)
    assert (*first.ids, *rest.ids) == (15, 10, 7, 2)


def test_a_page_that_ends_exactly_has_no_next(town):
    town.ann.follows("a")
    town.posted("a", 1, 2, 3)
    assert town.ann.ids(Stream(), limit=3).next is None
    assert town.ann.ids(Stream(), limit=2).next is not None


@pytest.mark.parametrize("after", ["", "x", "1,2,3", "nan", "99999999999999999999", "-5"])
def test_a_place_that_no_page_ended_at_is_refused(town, after):
    with pytest.raises(UsageError, match="not where a page"):
        town.ann.ids(Stream(), after=after)


def test_times_of_arrival_and_of_publication(town):
    town.ann.follows("a")
    start = town.clock()
    for number in range(1, 6):
        town.posted("a", number, age_s=7200.0 * number)
        town.clock.forward(99)
    assert town.ann.titles(seen_from=start + 100, seen_until=start + 300) == ["Post 3", "Post 2"]
    assert town.ann.unread(seen_from=start + 300) == ["Post 5", "Post 4"]
    assert town.ann.titles(published_until=start - 7200 * 3.5) == ["Post 5", "Post 4"]
    assert town.ann.titles(published_from=start - 7200 * 1.5) == ["Post 1"]


def test_bounds_on_ids_are_exclusive(town):
    town.ann.follows("a")
    one, _two, three = town.posted("a", 1, 2, 3)
    assert town.ann.titles(above_id=one, below_id=three) == ["Post 2"]


def test_read_starred_and_tagged(town):
    town.ann.follows("a")
    one, two, three = town.posted("a", 1, 2, 3)
    town.ann.mark([one], unread=False)
    town.ann.mark([two], starred=True, add_tags=["Later", "Fun"])
    town.ann.mark([three], add_tags=["Later"])
    assert town.ann.titles(unread=False) == ["Post 1"]
    assert town.ann.titles(starred=True) == ["Post 2"]
    assert town.ann.titles(starred=False) == ["Post 3", "Post 1"]
    assert town.ann.titles(tags=("Later",)) == ["Post 3", "Post 2"]
    assert town.ann.titles(tags=("Later", "Fun")) == ["Post 2"]
    assert town.ann.titles(not_tags=("Fun",)) == ["Post 3", "Post 1"]
    assert town.ann.titles(tags=("Later",), starred=False) == ["Post 3"]
    assert town.ann.unread(tags=("Fun",)) == ["Post 2"]


def test_search_within_a_stream(town):
    town.ann.follows("a", "b")
    town.posted("a", 1, text="a heron on the river")
    town.posted("b", 2, text="the river is dry")
    assert town.ann.titles(search="river") == ["Post 2", "Post 1"]
    assert town.ann.titles(search="river -dry") == ["Post 1"]
    assert town.ann.titles(search="river", feeds=(town.feed_id("b"),)) == ["Post 2"]
    assert town.ann.unread(search="heron", by="publication") == ["Post 1"]
    assert town.ann.titles(search="!?") == []
    assert town.bob.titles(search="river") == []


def test_common_words_and_rare_ones_are_found_alike(town):
    town.ann.follows("a")
    town.posted("a", *range(1, 13), text="the river")
    town.posted("a", 13, text="the heron")
    for by in "publication", "arrival":
        everything = town.ann.unread(by=by)
        assert town.ann.unread(search="the", by=by) == everything
        assert town.ann.unread(search="river", by=by) == [title for title in everything if title != "Post 13"]
        assert town.ann.unread(search="the -river", by=by) == ["Post 13"]
        assert town.ann.unread(search="heron", by=by) == ["Post 13"]


@pytest.mark.parametrize("sparse", [0, 500], ids=["one by one", "by the stretch"])
@pytest.mark.parametrize("common", [0, 50], ids=["rare", "common"])
@pytest.mark.parametrize("by", ["arrival", "publication"])
def test_what_is_sought_among_all_entries_is_found_page_by_page(town, monkeypatch, by, common, sparse):
    """Where entries are few they are gathered, and read at once: the limits are moved so that all ways are gone."""
    for name, value in ("PAGE", 0), ("COMMON", common), ("SPARSE", sparse):
        monkeypatch.setattr(f"tidings.store.reading.{name}", value)
    town.ann.follows("a")
    town.bob.follows("b")
    town.posted("a", 1, 3, 5, text="the river")
    town.posted("b", 2, text="the river")
    dry, *_ = town.posted("a", 4, text="a dry river")
    for oldest_first in False, True:
        wanted = Stream(search="river -dry", by=by, oldest_first=oldest_first)
        first = town.ann.page(wanted, limit=2)
        rest = town.ann.page(wanted, limit=2, after=first.next)
        found = [item.entry.title for item in (*first.items, *rest.items)]
        assert found == sorted(["Post 1", "Post 3", "Post 5"], reverse=not oldest_first)
        assert rest.next is None
    assert "Post 4" not in town.ann.titles(search="river", by=by, below_id=dry)
    town.ann.mark([dry], unread=False)
    assert town.ann.titles(search="river", by=by, unread=False) == ["Post 4"]


def test_counts_agree_with_lists(town):
    town.ann.follows("a", "b")
    ids = [*town.posted("a", 1, 2, 3), *town.posted("b", 4)]
    town.ann.mark(ids[:1], unread=False)
    town.ann.mark(ids[1:2], starred=True)
    for stream in Stream(), Stream(unread=True), Stream(unread=False), Stream(starred=True), Stream(feeds=(town.feed_id("b"),)):
        assert town.ann.count(stream) == len(town.ann.ids(stream).ids)
    assert {s.title: s.unread for s in town.ann.subscriptions()} == {"https://a.example/feed": 2, "https://b.example/feed": 1}


def test_nothing_of_others_is_reachable(town):
    town.ann.follows("a")
    town.bob.follows("b")
    ours = town.posted("a", 1)
    theirs = town.posted("b", 2)
    b = town.feed_id("b")
    assert [item.entry.id for item in town.ann.items([*ours, *theirs])] == list(ours)
    assert town.ann.mark(theirs, starred=True, unread=False, add_tags=["x"]) == []
    assert town.bob.unread() == ["Post 2"]
    assert town.ann.titles(feeds=(b,)) == []
    assert town.ann.mark_all_read(Stream(feeds=(b,))) == []
    for attempt in (
        lambda: town.ann.item(theirs[0]),
        lambda: town.ann.subscription(b),
        lambda: town.ann.change(b, title="mine"),
        lambda: town.ann.unsubscribe(b),
    ):
        with pytest.raises(NotFound):
            attempt()
    assert town.ann.icon(b) is None


def test_starred_and_tagged_entries_stay_after_unsubscribing(town):
    a = town.ann.follows("a")
    one, two, _three = town.posted("a", 1, 2, 3)
    town.ann.mark([one], starred=True)
    town.ann.mark([two], add_tags=["Keep"])
    town.ann.unsubscribe(a)
    assert town.ann.titles() == []
    assert town.ann.unread() == []
    assert town.ann.titles(starred=True) == ["Post 1"]
    assert town.ann.titles(tags=("Keep",)) == ["Post 2"]
    assert town.ann.item(one).starred


def test_who_subscribes_again_finds_unread_what_was_and_what_came_since(town, clock):
    a = town.ann.follows("a", title="Mine", folder="Shelf")
    town.bob.follows("a")
    one, two, three = town.posted("a", 1, 2, 3)
    town.ann.mark([one, three], unread=False)
    town.ann.change(a, priority="late")
    (old,) = town.ann.subscriptions()
    left_at = clock()
    town.ann.unsubscribe(a)
    clock.forward(60)
    town.posted("a", 4)
    town.ann.subscribe_again(old, [two], left_at)
    assert sorted(town.ann.unread()) == ["Post 2", "Post 4"]
    (now,) = town.ann.subscriptions()
    assert (now.title, now.folder, now.priority) == ("Mine", "Shelf", "late")


def test_a_tag_is_put_back_also_where_nothing_else_keeps_the_entry(town):
    a = town.ann.follows("a")
    one, _two = town.posted("a", 1, 2)
    town.ann.mark([one], add_tags=["Keep"])
    town.ann.unsubscribe(a)
    town.ann.remove_tag("Keep")
    assert town.ann.mark([one], add_tags=["Keep"]) == []
    town.ann.tag_again("Keep", [one, 12345])
    assert town.ann.titles(tags=("Keep",)) == ["Post 1"]


def test_ids_that_cannot_be(town):
    assert town.ann.items([0, -1, 2**31, 2**70, 12345]) == []
    assert town.ann.mark([2**70], starred=True) == []
