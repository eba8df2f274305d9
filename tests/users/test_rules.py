"""Rules: what is done to entries for a reader, in the moment when they arrive; and searches that are kept."""

import pytest

from tests.store.conftest import entry
from tidings.errors import UsageError
from tidings.store import rules
from tidings.store.user_models import Rule, Stream
from tidings.users import NotFound


def test_what_is_muted_is_never_seen_by_who_muted_it(env):
    for user in (env.ann, env.bob):
        user.subscribe_to("a")
    env.ann.save_rule(Rule(action="mute", words="football"))
    env.publish("a", 1, text="all about Football!")
    env.publish("a", 2, text="footballers are people too")
    assert env.ann.titles() == env.ann.unread() == ["Post 2"]
    assert env.ann.titles(unread=False) == []
    assert sorted(env.bob.unread()) == ["Post 1", "Post 2"]


def test_read_star_and_tag(env):
    env.ann.subscribe_to("a")
    env.ann.save_rule(Rule(action="read", words="tide"))
    env.ann.save_rule(Rule(action="star", words="tide"))
    env.ann.save_rule(Rule(action="tag", tag="Sea", words='"low tide" harbour'))
    env.publish("a", 1, text="the low tide")
    env.publish("a", 2, text="a harbour")
    env.publish("a", 3, text="the tide is low")
    assert env.ann.unread() == ["Post 2"]
    assert env.ann.titles(starred=True) == ["Post 3", "Post 1"]
    assert env.ann.titles(tags=("Sea",)) == ["Post 2", "Post 1"]


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
def test_all_conditions_of_a_rule_hold_at_once(env, conditions, found):
    env.ann.subscribe_to("a")
    env.ann.save_rule(Rule(action="star", **conditions))
    env.publish("a", 1, author="Anna Maier")
    env.publish("a", 2, text="released v12.3 in C++")
    env.publish("a", 3, text="what .NET is")
    assert env.ann.titles(starred=True, oldest_first=True) == [f"Post {number}" for number in found]


def test_a_rule_for_one_feed_is_for_that_feed(env):
    a, _ = env.ann.subscribe_to("a"), env.ann.subscribe_to("b")
    env.ann.save_rule(Rule(action="mute", feed_id=a))
    env.publish("a", 1)
    env.publish("b", 2)
    assert env.ann.unread() == ["Post 2"]
    env.bob.subscribe_to("b")
    with pytest.raises(NotFound):
        env.bob.save_rule(Rule(action="mute", feed_id=a))


def test_rules_are_changed_and_removed_by_their_owner_alone(env):
    rule = env.ann.save_rule(Rule(action="star", words="x"))
    for attempt in (lambda: env.bob.remove_rule(rule.id), lambda: env.bob.save_rule(rule)):
        with pytest.raises(NotFound):
            attempt()
    changed = env.ann.save_rule(Rule(id=rule.id, action="mute", words="y"))
    assert env.ann.rules() == [changed]
    env.ann.remove_rule(rule.id)
    assert env.ann.rules() == env.bob.rules() == []


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
        rules.validate_rule(Rule(action="mute", regex=regex))


@pytest.mark.parametrize(
    "regex", ["^.*.*[xy]", ".*[xy]", "(?:a|aa).*[xy]", "a{1,40}a{1,40}[xy]", "a{2000,3000}b"]
)
def test_the_costliest_patterns_that_are_taken_come_to_an_end(regex):
    """In a text that is made for it; without a limit this would go on for years."""
    rule = Rule(action="mute", regex=regex)
    rules.validate_rule(rule)
    assert not rules.matches(rule, 1, entry(1, text="a" * 100_000))


def test_a_rule_needs_what_its_action_needs(env):
    for rule in (Rule(action="tag"), Rule(action="mute", words="!?")):
        with pytest.raises(UsageError):
            env.ann.save_rule(rule)


def test_rules_have_an_end(env, monkeypatch):
    monkeypatch.setattr(rules, "MOST_RULES", 2)
    for _ in range(2):
        last = env.ann.save_rule(Rule(action="star", words="x"))
    with pytest.raises(UsageError, match="2 rules already"):
        env.ann.save_rule(Rule(action="star", words="x"))
    env.ann.save_rule(last)


def test_a_saved_search_is_kept_by_its_name_and_for_its_owner(env):
    env.ann.subscribe_to("a")
    env.publish("a", 1, text="a heron")
    saved = env.ann.save_search("  Birds ", Stream(search="heron", unread=True))
    again = env.ann.save_search("Birds", Stream(search="heron or not", by="publication"))
    assert again.id == saved.id
    assert env.ann.saved_searches() == [again]
    assert env.ann.page(saved.stream).items[0].entry.title == "Post 1"
    with pytest.raises(NotFound):
        env.bob.remove_search(saved.id)
    env.ann.remove_search(saved.id)
    assert env.ann.saved_searches() == []
