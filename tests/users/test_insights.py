"""Duplicates, statistics and feed suggestions of a user."""

from tidings.store import dedup
from tidings.store.ingest import DEDUP_WINDOW_S
from tidings.store.search import normalize_texts
from tidings.store.user_models import Settings, Stream

STORY = (
    "The river rose by two meters in the night and the old bridge at the mill was closed before "
    "the morning, said the mayor, who expects the water to fall again on Thursday when the rain "
    "has moved on to the hills in the east of the county"
)
OTHER = (
    "A new telescope on the mountain saw its first light this week and its builders opened a "
    "bottle, since the mirror is as good as they had hoped and the clouds stayed away for once, so "
    "that the pictures show more stars than the builders counted"
)


# --- duplicates -----------------------------------------------------------------------------------


def test_duplicate_of_other_feed_is_read_and_linked(env):
    env.ann.subscribe_to("a", "b")
    env.bob.subscribe_to("b")
    (first,) = env.publish("a", 1, text=STORY)
    (again,) = env.publish("b", 2, text=STORY.replace("two meters", "three meters"), title="Post 1")
    (new,) = env.publish("b", 3, text=OTHER)
    assert env.ann.ids(Stream(unread=True)).ids == (new, first)
    assert env.bob.ids(Stream(unread=True)).ids == (new, again)
    assert env.ann.item(first).duplicates == (again,)
    assert env.ann.item(again).duplicates == (first,)
    assert env.bob.item(again).duplicates == ()
    assert env.ann.item(new).duplicates == ()


def test_duplicate_is_found_by_link(env):
    env.ann.subscribe_to("a", "b", "c")
    (first,) = env.publish("a", 1, url="https://news.example/river/")
    (again,) = env.publish("b", 1, url="https://www.news.example/river/", text="read it there")
    (third,) = env.publish("c", 1, url="https://news.example/river/")
    assert env.ann.ids(Stream(unread=True)).ids == (first,)
    assert env.ann.item(first).duplicates == (again, third)


def test_deduplication_can_be_disabled(env):
    env.ann.subscribe_to("a", "b")
    env.wait(env.user_service.save_settings(env.ann.user, Settings(deduplicate=False)))
    env.publish("a", 1, text=STORY)
    env.publish("b", 1, text=STORY)
    assert len(env.ann.unread()) == 2


def test_no_duplicates_within_feed_or_after_window(env):
    env.ann.subscribe_to("a", "b")
    env.publish("a", 1, text=STORY)
    env.publish("a", 2, text=STORY)
    env.clock.forward(2 * DEDUP_WINDOW_S + 60)
    env.publish("b", 3, text=STORY)
    assert len(env.ann.unread()) == 3


def test_dedup_keys_expire_and_duplicates_stay(env):
    def key_count(db):
        return db.execute("SELECT count(*) FROM dedup_keys").fetchone()[0]

    env.ann.subscribe_to("a", "b")
    (first,) = env.publish("a", 1, text=STORY)
    (again,) = env.publish("b", 2, text=STORY)
    env.apply_retention(days=90, min_entries=0)
    assert env.wait(env.store.read(key_count)) > 0
    env.clock.forward(2 * DEDUP_WINDOW_S + 60)
    env.apply_retention(days=90, min_entries=0)
    assert env.wait(env.store.read(key_count)) == 0
    assert env.ann.item(first).duplicates == (again,)


def test_canonical_url_drops_tracking_parameters():
    same = dedup.canonicalize_url("https://a.example/x/1?id=3")
    assert same == dedup.canonicalize_url(
        "http://www.a.example/x/1/?utm_source=feed&id=3&fbclid=9#top"
    )
    assert same != dedup.canonicalize_url("https://a.example/x/1?id=4")
    assert (
        dedup.canonicalize_url("https://a.example/")
        == dedup.canonicalize_url("mailto:x")
        == dedup.canonicalize_url("http://[")
        == ""
    )


def bits(text):
    return dedup.text_signatures(normalize_texts([text]))[0].simhash


def test_simhash_detects_near_duplicates():
    one, other = bits(STORY), bits(OTHER)
    assert dedup.is_near_duplicate(
        one, bits(STORY.replace("old bridge", "bridge").replace("two", "three"))
    )
    assert not dedup.is_near_duplicate(one, other)
    assert dedup.text_signatures([]) == []
    assert dedup.text_signatures(["Continue reading", "", "\ud800"]) == [None, None, None]


def test_text_signatures_do_not_depend_on_batch():
    texts = normalize_texts(
        [
            STORY,
            "Continue reading",
            OTHER,
            "Строк " * 100,
            STORY + OTHER * 20,
            "“Quoted” — «so» or… so. " * 9,
        ]
    )
    assert dedup.text_signatures(texts) == [dedup.text_signatures([text])[0] for text in texts]
    assert len({s.simhash for s in dedup.text_signatures(texts) if s}) == len(texts) - 1


def test_text_signatures_ignore_punctuation():
    plain, typeset = 'It\'s "a" story - old... ', "It’s “a” story — old…\u00a0"
    assert dedup.text_signatures(normalize_texts([plain * 5])) == dedup.text_signatures(
        normalize_texts([typeset * 5])
    )


# --- statistics -----------------------------------------------------------------------------------


def test_statistics_of_reading_and_delay(env):
    a, b = env.ann.subscribe_to("a"), env.ann.subscribe_to("b")
    start = env.clock()
    ids = env.publish("a", *range(45), delay_s=60.0)
    env.publish("b", *range(60, 66), delay_s=600.0)
    env.clock.now = start + 1000.0
    env.ann.mark(ids[:6], unread=False)
    env.clock.forward(days=1)
    env.ann.mark(ids[:1], starred=True)
    statistics = env.ann.statistics()
    assert (statistics.new_entries, statistics.read, statistics.starred) == (51, 6, 1)
    assert (statistics.delay_p50_s, statistics.delay_p90_s) == (None, None)  # after one day
    env.clock.forward(days=2)
    statistics = env.ann.statistics()
    assert (statistics.delay_p50_s, statistics.delay_p90_s) == (60.0, 600.0)
    assert statistics.time_to_read_p50_s == 1000.0
    assert [(day.read, day.starred) for day in statistics.days if day.read or day.starred] == [
        (6, 0),
        (0, 1),
    ]
    assert [
        (use.feed_id, use.new_entries, use.read, use.starred, use.delay_p50_s)
        for use in statistics.feeds
    ] == [
        (a, 45, 6, 1, 60.0),
        (b, 6, 0, 0, 600.0),
    ]
    assert env.bob.statistics().new_entries == 0
    env.clock.forward(days=40)
    assert (env.ann.statistics().read, env.ann.statistics().new_entries) == (0, 0)


def test_median_of_few_posts_is_none(env):
    env.ann.subscribe_to("a", "b")
    ids = env.publish("a", *range(60), delay_s=60.0)
    env.publish("b", *range(70, 75), delay_s=600.0)
    env.ann.mark(ids[:5], unread=False)
    env.clock.forward(days=4)
    statistics = env.ann.statistics()
    assert (statistics.delay_p50_s, statistics.time_to_read_p50_s) == (60.0, None)
    assert [use.delay_p50_s for use in statistics.feeds] == [60.0, None]


# --- suggestions ----------------------------------------------------------------------------------


def suggestion_reasons(user):
    return [(s.title, s.reason) for s in user.suggestions()]


def test_suggestions_from_similar_users_and_popularity(env):
    for name in ("bob", "cid"):
        env.user(name).subscribe_to("a", "b", "liked")
    for name in ("dan", "eve", "fay"):
        env.user(name).subscribe_to("hot")
    env.ann.subscribe_to("a", "b")
    assert suggestion_reasons(env.ann) == [
        ("https://liked.example/feed", "read by 2 users with similar subscriptions"),
        ("https://hot.example/feed", "read by 3 users"),
    ]
    assert [s.feed_id for s in env.ann.suggestions()] == [env.feed_id("liked"), env.feed_id("hot")]


def test_feed_with_single_subscriber_is_not_suggested(env):
    env.bob.subscribe_to("a", "secret")
    env.ann.subscribe_to("a")
    assert suggestion_reasons(env.ann) == []


def test_suggestions_from_links_of_starred_entries(env):
    env.ann.subscribe_to("a", "known")
    for name in ("bob", "cid"):
        env.user(name).subscribe_to("friend")
    links = (
        '<a href="https://friend.example/x">one</a> <a href="https://new.example/y">two</a> <a '
        'href="https://a.example/">us</a>'
    )
    ids = env.publish("a", 1, 2, text=f'{links} <a href="https://known.example/z">three</a>')
    env.ann.mark(ids[:1], starred=True)
    assert not [reason for _, reason in suggestion_reasons(env.ann) if "starred" in reason]
    env.ann.mark(ids, starred=True)
    starred = [(s.url, s.feed_id) for s in env.ann.suggestions() if "starred" in s.reason]
    assert sorted(starred, key=str) == [
        ("https://friend.example/feed", env.feed_id("friend")),
        ("https://new.example/", None),
    ]
    assert suggestion_reasons(env.bob) == []
