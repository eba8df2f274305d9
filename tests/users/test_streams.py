"""Streams of a user: filters, order, pagination and search."""

import pytest

from tidings.errors import UsageError
from tidings.store.user_models import Stream
from tidings.users import NotFound


def test_new_entries_are_unread_for_subscribers_only(env):
    env.ann.subscribe_to("a", "b")
    env.bob.subscribe_to("a")
    env.publish("a", 1, 2)
    env.publish("b", 3)
    assert sorted(env.ann.unread()) == ["Post 1", "Post 2", "Post 3"]
    assert sorted(env.bob.unread()) == ["Post 1", "Post 2"]
    assert env.cid.unread() == []


def test_streams_by_feed_and_folder(env):
    a = env.ann.subscribe_to("a", folder="News")
    b = env.ann.subscribe_to("b", folder="News")
    c = env.ann.subscribe_to("c")
    for number, name in enumerate("abc", start=1):
        env.publish(name, number)
    news = next(f.id for f in env.ann.folders() if f.name == "News")
    assert env.ann.titles(feeds=(a,)) == ["Post 1"]
    assert env.ann.titles(folders=(news,)) == ["Post 2", "Post 1"]
    assert env.ann.titles(folders=(0,)) == ["Post 3"]
    assert env.ann.titles(folders=(news,), feeds=(c,)) == ["Post 3", "Post 2", "Post 1"]
    assert env.ann.titles(not_folders=(news,)) == ["Post 3"]
    assert env.ann.titles(folders=(news,), not_feeds=(b,)) == ["Post 1"]
    assert env.ann.unread(folders=(news,)) == ["Post 2", "Post 1"]


def test_orders(env):
    env.ann.subscribe_to("a")
    env.publish("a", 1, published_at=env.clock() - 10)
    env.publish("a", 2, published_at=env.clock() - 1000)
    assert env.ann.titles() == ["Post 2", "Post 1"]
    assert env.ann.titles(oldest_first=True) == ["Post 1", "Post 2"]
    assert env.ann.titles(by="publication") == ["Post 1", "Post 2"]
    assert env.ann.unread(by="publication", oldest_first=True) == ["Post 2", "Post 1"]


@pytest.mark.parametrize("by", ["arrival", "publication"])
@pytest.mark.parametrize("oldest_first", [False, True])
@pytest.mark.parametrize("unread", [True, None])
def test_pagination_is_stable_during_changes(env, by, oldest_first, unread):
    env.ann.subscribe_to("a", "b")
    first = [*env.publish("a", *range(1, 12)), *env.publish("b", *range(20, 31), age_s=5000)]
    stream, seen, after = Stream(by=by, oldest_first=oldest_first, unread=unread), [], None
    for turn in range(50):
        page = env.ann.ids(stream, limit=4, after=after)
        seen += page.ids
        env.ann.mark(page.ids, unread=False)
        env.publish("a", 100 + turn)
        after = page.next
        if after is None or turn > 20:
            break
    assert len(seen) == len(set(seen))
    assert set(first) <= set(seen)


@pytest.mark.parametrize("by", ["arrival", "publication"])
@pytest.mark.parametrize("page", [0, 100], ids=["scanned", "collected"])
def test_pages_of_user_with_few_of_many_feeds(env, monkeypatch, by, page):
    monkeypatch.setattr("tidings.store.entry_queries.PAGE", page)
    env.ann.subscribe_to(*"abcdefgh")
    env.bob.subscribe_to("b", "g")
    for number, name in enumerate("abcdefghabcdefgh", start=1):
        env.publish(name, number)
    first = env.bob.ids(Stream(by=by), limit=3)
    rest = env.bob.ids(Stream(by=by), limit=3, after=first.next)
    assert (*first.ids, *rest.ids) == (15, 10, 7, 2)


def test_last_full_page_has_no_next(env):
    env.ann.subscribe_to("a")
    env.publish("a", 1, 2, 3)
    assert env.ann.ids(Stream(), limit=3).next is None
    assert env.ann.ids(Stream(), limit=2).next is not None


@pytest.mark.parametrize("after", ["", "x", "1,2,3", "nan", "99999999999999999999", "-5"])
def test_invalid_cursor_raises(env, after):
    with pytest.raises(UsageError, match=r"the cursor .* is not valid"):
        env.ann.ids(Stream(), after=after)


def test_streams_by_arrival_and_publication_time(env):
    env.ann.subscribe_to("a")
    start = env.clock()
    for number in range(1, 6):
        env.publish("a", number, age_s=7200.0 * number)
        env.clock.forward(99)
    assert env.ann.titles(seen_from=start + 100, seen_until=start + 300) == ["Post 3", "Post 2"]
    assert env.ann.unread(seen_from=start + 300) == ["Post 5", "Post 4"]
    assert env.ann.titles(published_until=start - 7200 * 3.5) == ["Post 5", "Post 4"]
    assert env.ann.titles(published_from=start - 7200 * 1.5) == ["Post 1"]


def test_id_bounds_are_exclusive(env):
    env.ann.subscribe_to("a")
    one, _two, three = env.publish("a", 1, 2, 3)
    assert env.ann.titles(above_id=one, below_id=three) == ["Post 2"]


def test_streams_by_state_and_tag(env):
    env.ann.subscribe_to("a")
    one, two, three = env.publish("a", 1, 2, 3)
    env.ann.mark([one], unread=False)
    env.ann.mark([two], starred=True, add_tags=["Later", "Fun"])
    env.ann.mark([three], add_tags=["Later"])
    assert env.ann.titles(unread=False) == ["Post 1"]
    assert env.ann.titles(starred=True) == ["Post 2"]
    assert env.ann.titles(starred=False) == ["Post 3", "Post 1"]
    assert env.ann.titles(tags=("Later",)) == ["Post 3", "Post 2"]
    assert env.ann.titles(tags=("Later", "Fun")) == ["Post 2"]
    assert env.ann.titles(not_tags=("Fun",)) == ["Post 3", "Post 1"]
    assert env.ann.titles(tags=("Later",), starred=False) == ["Post 3"]
    assert env.ann.unread(tags=("Fun",)) == ["Post 2"]


def test_search_in_stream(env):
    env.ann.subscribe_to("a", "b")
    env.publish("a", 1, text="a heron on the river")
    env.publish("b", 2, text="the river is dry")
    assert env.ann.titles(search="river") == ["Post 2", "Post 1"]
    assert env.ann.titles(search="river -dry") == ["Post 1"]
    assert env.ann.titles(search="river", feeds=(env.feed_id("b"),)) == ["Post 2"]
    assert env.ann.unread(search="heron", by="publication") == ["Post 1"]
    assert env.ann.titles(search="!?") == []
    assert env.bob.titles(search="river") == []


def test_search_finds_common_and_rare_words(env):
    env.ann.subscribe_to("a")
    env.publish("a", *range(1, 13), text="the river")
    env.publish("a", 13, text="the heron")
    for by in "publication", "arrival":
        everything = env.ann.unread(by=by)
        assert env.ann.unread(search="the", by=by) == everything
        assert env.ann.unread(search="river", by=by) == [
            title for title in everything if title != "Post 13"
        ]
        assert env.ann.unread(search="the -river", by=by) == ["Post 13"]
        assert env.ann.unread(search="heron", by=by) == ["Post 13"]


@pytest.mark.parametrize("sparse", [0, 500], ids=["single", "ranges"])
@pytest.mark.parametrize("common", [0, 50], ids=["rare", "common"])
@pytest.mark.parametrize("by", ["arrival", "publication"])
def test_search_is_paginated(env, monkeypatch, by, common, sparse):
    """The thresholds are changed so that all query plans are tested with few entries."""
    for name, value in ("PAGE", 0), ("COMMON", common), ("SPARSE", sparse):
        monkeypatch.setattr(f"tidings.store.entry_queries.{name}", value)
    env.ann.subscribe_to("a")
    env.bob.subscribe_to("b")
    env.publish("a", 1, 3, 5, text="the river")
    env.publish("b", 2, text="the river")
    dry, *_ = env.publish("a", 4, text="a dry river")
    for oldest_first in False, True:
        stream = Stream(search="river -dry", by=by, oldest_first=oldest_first)
        first = env.ann.page(stream, limit=2)
        rest = env.ann.page(stream, limit=2, after=first.next)
        found = [item.entry.title for item in (*first.items, *rest.items)]
        assert found == sorted(["Post 1", "Post 3", "Post 5"], reverse=not oldest_first)
        assert rest.next is None
    assert "Post 4" not in env.ann.titles(search="river", by=by, below_id=dry)
    env.ann.mark([dry], unread=False)
    assert env.ann.titles(search="river", by=by, unread=False) == ["Post 4"]


def test_counts_match_lists(env):
    env.ann.subscribe_to("a", "b")
    ids = [*env.publish("a", 1, 2, 3), *env.publish("b", 4)]
    env.ann.mark(ids[:1], unread=False)
    env.ann.mark(ids[1:2], starred=True)
    for stream in (
        Stream(),
        Stream(unread=True),
        Stream(unread=False),
        Stream(starred=True),
        Stream(feeds=(env.feed_id("b"),)),
    ):
        assert env.ann.count(stream) == len(env.ann.ids(stream).ids)
    assert {s.title: s.unread for s in env.ann.subscriptions()} == {
        "https://a.example/feed": 2,
        "https://b.example/feed": 1,
    }


def test_data_of_other_users_is_not_accessible(env):
    env.ann.subscribe_to("a")
    env.bob.subscribe_to("b")
    ours = env.publish("a", 1)
    theirs = env.publish("b", 2)
    b = env.feed_id("b")
    assert [item.entry.id for item in env.ann.items([*ours, *theirs])] == list(ours)
    assert env.ann.mark(theirs, starred=True, unread=False, add_tags=["x"]) == []
    assert env.bob.unread() == ["Post 2"]
    assert env.ann.titles(feeds=(b,)) == []
    assert env.ann.mark_all_read(Stream(feeds=(b,))) == []
    for attempt in (
        lambda: env.ann.item(theirs[0]),
        lambda: env.ann.subscription(b),
        lambda: env.ann.change(b, title="mine"),
        lambda: env.ann.unsubscribe(b),
    ):
        with pytest.raises(NotFound):
            attempt()
    assert env.ann.icon(b) is None


def test_starred_and_tagged_entries_stay_after_unsubscribe(env):
    a = env.ann.subscribe_to("a")
    one, two, _three = env.publish("a", 1, 2, 3)
    env.ann.mark([one], starred=True)
    env.ann.mark([two], add_tags=["Keep"])
    env.ann.unsubscribe(a)
    assert env.ann.titles() == []
    assert env.ann.unread() == []
    assert env.ann.titles(starred=True) == ["Post 1"]
    assert env.ann.titles(tags=("Keep",)) == ["Post 2"]
    assert env.ann.item(one).starred


def test_restored_subscription_keeps_settings_and_unread(env, clock):
    a = env.ann.subscribe_to("a", title="Mine", folder="Shelf")
    env.bob.subscribe_to("a")
    one, two, three = env.publish("a", 1, 2, 3)
    env.ann.mark([one, three], unread=False)
    env.ann.change(a, priority="late")
    (old,) = env.ann.subscriptions()
    unsubscribed_at = clock()
    env.ann.unsubscribe(a)
    clock.forward(60)
    env.publish("a", 4)
    env.ann.restore_subscription(old, [two], unsubscribed_at)
    assert sorted(env.ann.unread()) == ["Post 2", "Post 4"]
    (now,) = env.ann.subscriptions()
    assert (now.title, now.folder, now.priority) == ("Mine", "Shelf", "late")


def test_restore_tag_of_unsubscribed_entry(env):
    a = env.ann.subscribe_to("a")
    one, _two = env.publish("a", 1, 2)
    env.ann.mark([one], add_tags=["Keep"])
    env.ann.unsubscribe(a)
    env.ann.remove_tag("Keep")
    assert env.ann.mark([one], add_tags=["Keep"]) == []
    env.ann.restore_tag("Keep", [one, 12345])
    assert env.ann.titles(tags=("Keep",)) == ["Post 1"]


def test_invalid_ids_are_ignored(env):
    assert env.ann.items([0, -1, 2**31, 2**70, 12345]) == []
    assert env.ann.mark([2**70], starred=True) == []
