"""What the store can tell a reader: stories told twice, how they read and how fast it came, and what they may like."""

from tidings.store import stories
from tidings.store.arrivals import STORY_S
from tidings.store.people_rows import Settings, Stream
from tidings.store.search import folded

TALE = (
    "The river rose by two metres in the night and the old bridge at the mill was closed before the morning, said the town, "
    "which expects the water to fall again on Thursday when the rain has moved on to the hills in the east of the county"
)
OTHER = (
    "A new telescope on the mountain saw its first light this week and its builders opened a bottle, since the mirror is as "
    "good as they had hoped and the clouds stayed away for once, so that the pictures show more stars than anybody counted"
)


# --- stories -----------------------------------------------------------------------------------------------------------


def test_a_story_by_another_feed_arrives_as_read_and_names_the_first(town):
    town.ann.follows("a", "b")
    town.bob.follows("b")
    (first,) = town.posted("a", 1, text=TALE)
    (again,) = town.posted("b", 2, text=TALE.replace("two metres", "three metres"), title="Post 1")
    (new,) = town.posted("b", 3, text=OTHER)
    assert town.ann.ids(Stream(unread=True)).ids == (new, first)
    assert town.bob.ids(Stream(unread=True)).ids == (new, again)
    assert town.ann.item(first).also == (again,)
    assert town.ann.item(again).also == (first,)
    assert town.bob.item(again).also == ()
    assert town.ann.item(new).also == ()


def test_a_story_is_known_by_its_link_too(town):
    town.ann.follows("a", "b", "c")
    (first,) = town.posted("a", 1, url="https://news.example/river/")
    (again,) = town.posted("b", 1, url="https://www.news.example/river/", text="read it there")
    (third,) = town.posted("c", 1, url="https://news.example/river/")
    assert town.ann.ids(Stream(unread=True)).ids == (first,)
    assert town.ann.item(first).also == (again, third)


def test_who_wants_both_gets_both(town):
    town.ann.follows("a", "b")
    town.wait(town.people.save_settings(town.ann.user, Settings(fold_duplicates=False)))
    town.posted("a", 1, text=TALE)
    town.posted("b", 1, text=TALE)
    assert len(town.ann.unread()) == 2


def test_one_feed_may_repeat_itself_and_old_stories_are_new_again(town):
    town.ann.follows("a", "b")
    town.posted("a", 1, text=TALE)
    town.posted("a", 2, text=TALE)
    town.clock.forward(2 * STORY_S + 60)
    town.posted("b", 3, text=TALE)
    assert len(town.ann.unread()) == 3


def test_what_stories_are_known_by_is_forgotten_and_what_was_folded_stays_folded(town):
    def known_by(db):
        return db.execute("SELECT count(*) FROM stories").fetchone()[0]

    town.ann.follows("a", "b")
    (first,) = town.posted("a", 1, text=TALE)
    (again,) = town.posted("b", 2, text=TALE)
    town.retain(days=90, least=0)
    assert town.wait(town.store.read(known_by)) > 0
    town.clock.forward(2 * STORY_S + 60)
    town.retain(days=90, least=0)
    assert town.wait(town.store.read(known_by)) == 0
    assert town.ann.item(first).also == (again,)


def test_links_are_the_same_without_what_follows_their_readers():
    same = stories.canonical("https://a.example/x/1?id=3")
    assert same == stories.canonical("http://www.a.example/x/1/?utm_source=feed&id=3&fbclid=9#top")
    assert same != stories.canonical("https://a.example/x/1?id=4")
    assert stories.canonical("https://a.example/") == stories.canonical("mailto:x") == stories.canonical("http://[") == ""


def bits(text):
    return stories.words_of(folded([text]))[0].simhash


def test_near_same_words_are_near_and_others_are_far():
    one, other = bits(TALE), bits(OTHER)
    assert stories.near(one, bits(TALE.replace("old bridge", "bridge").replace("two", "three")))
    assert not stories.near(one, other)
    assert stories.words_of([]) == []
    assert stories.words_of(["Continue reading", "", "\ud800"]) == [None, None, None]


def test_texts_are_read_the_same_alone_and_among_others():
    texts = folded([TALE, "Continue reading", OTHER, "Строк " * 100, TALE + OTHER * 20, "“Quoted” — «so» or… so. " * 9])
    assert stories.words_of(texts) == [stories.words_of([text])[0] for text in texts]
    assert len({words.simhash for words in stories.words_of(texts) if words}) == len(texts) - 1


def test_marks_between_words_are_not_looked_at():
    plain, typeset = 'It\'s "a" tale - told... ', "It’s “a” tale — told…\u00a0"
    assert stories.words_of(folded([plain * 5])) == stories.words_of(folded([typeset * 5]))


# --- statistics --------------------------------------------------------------------------------------------------------


def test_what_was_read_and_how_fast_it_came(town):
    a, b = town.ann.follows("a"), town.ann.follows("b")
    start = town.clock()
    ids = town.posted("a", *range(45), delay_s=60.0)
    town.posted("b", *range(60, 66), delay_s=600.0)
    town.clock.now = start + 1000.0
    town.ann.mark(ids[:6], unread=False)
    town.clock.forward(days=1)
    town.ann.mark(ids[:1], starred=True)
    told = town.ann.statistics()
    assert (told.came, told.read, told.starred) == (51, 6, 1)
    assert (told.delay_p50_s, told.delay_p90_s) == (None, None)  # after one day
    town.clock.forward(days=2)
    told = town.ann.statistics()
    assert (told.delay_p50_s, told.delay_p90_s) == (60.0, 600.0)
    assert told.waited_p50_s == 1000.0
    assert [(day.read, day.starred) for day in told.days if day.read or day.starred] == [(6, 0), (0, 1)]
    assert [(use.feed_id, use.came, use.read, use.starred, use.delay_p50_s) for use in told.feeds] == [
        (a, 45, 6, 1, 60.0),
        (b, 6, 0, 0, 600.0),
    ]
    assert town.bob.statistics().came == 0
    town.clock.forward(days=40)
    assert (town.ann.statistics().read, town.ann.statistics().came) == (0, 0)


def test_a_median_of_few_posts_is_not_shown(town):
    town.ann.follows("a", "b")
    ids = town.posted("a", *range(60), delay_s=60.0)
    town.posted("b", *range(70, 75), delay_s=600.0)
    town.ann.mark(ids[:5], unread=False)
    town.clock.forward(days=4)
    told = town.ann.statistics()
    assert (told.delay_p50_s, told.waited_p50_s) == (60.0, None)
    assert [use.delay_p50_s for use in told.feeds] == [60.0, None]


# --- suggestions -------------------------------------------------------------------------------------------------------


def suggested(person):
    return [(s.title, s.why) for s in person.suggestions()]


def test_feeds_of_those_who_read_alike_and_what_many_read(town):
    for name in ("bob", "cid"):
        town.person(name).follows("a", "b", "liked")
    for name in ("dan", "eve", "fay"):
        town.person(name).follows("hot")
    town.ann.follows("a", "b")
    assert suggested(town.ann) == [
        ("https://liked.example/feed", "read by 2 people whose subscriptions are like yours"),
        ("https://hot.example/feed", "read by 3 people here"),
    ]
    assert [s.feed_id for s in town.ann.suggestions()] == [town.feed_id("liked"), town.feed_id("hot")]


def test_what_one_person_reads_is_nobodys_business(town):
    town.bob.follows("a", "secret")
    town.ann.follows("a")
    assert suggested(town.ann) == []


def test_sites_that_starred_entries_link_to(town):
    town.ann.follows("a", "known")
    for name in ("bob", "cid"):
        town.person(name).follows("friend")
    links = (
        '<a href="https://friend.example/x">one</a> <a href="https://new.example/y">two</a> <a href="https://a.example/">us</a>'
    )
    ids = town.posted("a", 1, 2, text=f'{links} <a href="https://known.example/z">three</a>')
    town.ann.mark(ids[:1], starred=True)
    assert not [why for _, why in suggested(town.ann) if "starred" in why]
    town.ann.mark(ids, starred=True)
    starred = [(s.url, s.feed_id) for s in town.ann.suggestions() if "starred" in s.why]
    assert sorted(starred, key=str) == [("https://friend.example/feed", town.feed_id("friend")), ("https://new.example/", None)]
    assert suggested(town.bob) == []
