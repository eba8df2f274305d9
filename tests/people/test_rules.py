"""Rules: what is done to entries for a reader, in the moment when they arrive; and searches that are kept."""

import pytest

from tests.store.conftest import entry
from tidings.errors import UsageError
from tidings.people import NotFound
from tidings.store import wishes
from tidings.store.people_rows import Rule, Stream


def test_what_is_muted_is_never_seen_by_who_muted_it(town):
    for person in (town.ann, town.bob):
        person.follows("a")
    town.ann.save_rule(Rule(action="mute", words="football"))
    town.posted("a", 1, text="all about Football!")
    town.posted("a", 2, text="footballers are people too")
    assert town.ann.titles() == town.ann.unread() == ["Post 2"]
    assert town.ann.titles(unread=False) == []
    assert sorted(town.bob.unread()) == ["Post 1", "Post 2"]


def test_read_star_and_tag(town):
    town.ann.follows("a")
    town.ann.save_rule(Rule(action="read", words="tide"))
    town.ann.save_rule(Rule(action="star", words="tide"))
    town.ann.save_rule(Rule(action="tag", tag="Sea", words='"low tide" harbour'))
    town.posted("a", 1, text="the low tide")
    town.posted("a", 2, text="a harbour")
    town.posted("a", 3, text="the tide is low")
    assert town.ann.unread() == ["Post 2"]
    assert town.ann.titles(starred=True) == ["Post 3", "Post 1"]
    assert town.ann.titles(tags=("Sea",)) == ["Post 2", "Post 1"]


@pytest.mark.parametrize(
    ("conditions", "found"),
    [
        ({"author": "MAIER"}, [1]),
        ({"regex": r"v\d{1,2}\.\d"}, [2]),
        ({"regex": "^post 3"}, [3]),
        ({"words": "post", "author": "nobody"}, []),
        ({"words": "C++ .NET"}, [2, 3]),
        ({}, [1, 2, 3]),
    ],
)
def test_all_conditions_of_a_rule_hold_at_once(town, conditions, found):
    town.ann.follows("a")
    town.ann.save_rule(Rule(action="star", **conditions))
    town.posted("a", 1, author="Anna Maier")
    town.posted("a", 2, text="released v12.3 in C++")
    town.posted("a", 3, text="what .NET is")
    assert town.ann.titles(starred=True, oldest_first=True) == [f"Post {number}" for number in found]


def test_a_rule_for_one_feed_is_for_that_feed(town):
    a, _ = town.ann.follows("a"), town.ann.follows("b")
    town.ann.save_rule(Rule(action="mute", feed_id=a))
    town.posted("a", 1)
    town.posted("b", 2)
    assert town.ann.unread() == ["Post 2"]
    town.bob.follows("b")
    with pytest.raises(NotFound):
        town.bob.save_rule(Rule(action="mute", feed_id=a))


def test_rules_are_changed_and_removed_by_their_owner_alone(town):
    rule = town.ann.save_rule(Rule(action="star", words="x"))
    for attempt in (lambda: town.bob.remove_rule(rule.id), lambda: town.bob.save_rule(rule)):
        with pytest.raises(NotFound):
            attempt()
    changed = town.ann.save_rule(Rule(id=rule.id, action="mute", words="y"))
    assert town.ann.rules() == [changed]
    town.ann.remove_rule(rule.id)
    assert town.ann.rules() == town.bob.rules() == []


@pytest.mark.parametrize(
    "regex",
    [
        "(a+)+b",
        "(a|aa)*b",
        ".*.*x",
        r"(a)\1",
        "(?ms)^.*.*x",
        "a?" * 30,
        "(?:a|a)" * 14,
        ".{0,500}.{0,500}x",
        "(?=.*a).*b",
        "(",
        "a**",
    ],
)
def test_a_pattern_that_could_hold_up_everybody_is_refused(regex):
    with pytest.raises(UsageError, match="the pattern"):
        wishes.check(Rule(action="mute", regex=regex))


@pytest.mark.parametrize("regex", ["^.*.*[xy]", ".*[xy]", "(?:a|aa).*[xy]", "a{1,40}a{1,40}[xy]", "a{2000,3000}b"])
def test_the_costliest_patterns_that_are_taken_come_to_an_end(regex):
    """In a text that is made for it; without a limit this would go on for years."""
    rule = Rule(action="mute", regex=regex)
    wishes.check(rule)
    assert not wishes.matches(rule, 1, entry(1, text="a" * 100_000))


def test_a_rule_needs_what_its_action_needs(town):
    for rule in (Rule(action="tag"), Rule(action="mute", words="!?")):
        with pytest.raises(UsageError):
            town.ann.save_rule(rule)


def test_rules_have_an_end(town, monkeypatch):
    monkeypatch.setattr(wishes, "MOST_RULES", 2)
    for _ in range(2):
        last = town.ann.save_rule(Rule(action="star", words="x"))
    with pytest.raises(UsageError, match="2 rules already"):
        town.ann.save_rule(Rule(action="star", words="x"))
    town.ann.save_rule(last)


def test_a_saved_search_is_kept_by_its_name_and_for_its_owner(town):
    town.ann.follows("a")
    town.posted("a", 1, text="a heron")
    saved = town.ann.save_search("  Birds ", Stream(search="heron", unread=True))
    again = town.ann.save_search("Birds", Stream(search="heron or not", by="publication"))
    assert again.id == saved.id
    assert town.ann.saved_searches() == [again]
    assert town.ann.page(saved.stream).items[0].entry.title == "Post 1"
    with pytest.raises(NotFound):
        town.bob.remove_search(saved.id)
    town.ann.remove_search(saved.id)
    assert town.ann.saved_searches() == []
