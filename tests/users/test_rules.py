"""Rules that are applied to new entries of a user, and saved searches."""

import pytest

from tests.store.conftest import entry
from tidings.errors import UsageError
from tidings.store import rules
from tidings.store.user_models import Rule, Stream
from tidings.users import NotFound


def test_muted_entries_are_hidden_for_user(env):
    for user in (env.ann, env.bob):
        user.subscribe_to("a")
    env.ann.save_rule(Rule(action="mute", words="football"))
    env.publish("a", 1, text="all about Football!")
    env.publish("a", 2, text="footballers are on strike")
    assert env.ann.titles() == env.ann.unread() == ["Post 2"]
    assert env.ann.titles(unread=False) == []
    assert sorted(env.bob.unread()) == ["Post 1", "Post 2"]


def test_rules_mark_read_star_and_tag(env):
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
def test_rule_requires_all_conditions(env, conditions, found):
    env.ann.subscribe_to("a")
    env.ann.save_rule(Rule(action="star", **conditions))
    env.publish("a", 1, author="Anna Maier")
    env.publish("a", 2, text="released v12.3 in C++")
    env.publish("a", 3, text="what .NET is")
    assert env.ann.titles(starred=True, oldest_first=True) == [f"Post {number}" for number in found]


def test_rule_for_one_feed(env):
    a, _ = env.ann.subscribe_to("a"), env.ann.subscribe_to("b")
    env.ann.save_rule(Rule(action="mute", feed_id=a))
    env.publish("a", 1)
    env.publish("b", 2)
    assert env.ann.unread() == ["Post 2"]
    env.bob.subscribe_to("b")
    with pytest.raises(NotFound):
        env.bob.save_rule(Rule(action="mute", feed_id=a))


def test_rules_of_other_users_are_not_found(env):
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
def test_expensive_regex_raises(regex):
    with pytest.raises(UsageError, match="the regular expression"):
        rules.validate_rule(Rule(action="mute", regex=regex))


@pytest.mark.parametrize(
    "regex", ["^.*.*[xy]", ".*[xy]", "(?:a|aa).*[xy]", "a{1,40}a{1,40}[xy]", "a{2000,3000}b"]
)
def test_accepted_regex_terminates(regex):
    """The text triggers backtracking; without a limit the match would take years."""
    rule = Rule(action="mute", regex=regex)
    rules.validate_rule(rule)
    assert not rules.matches(rule, 1, entry(1, text="a" * 100_000))


def test_incomplete_rule_raises(env):
    for rule in (Rule(action="tag"), Rule(action="mute", words="!?")):
        with pytest.raises(UsageError):
            env.ann.save_rule(rule)


def test_number_of_rules_is_limited(env, monkeypatch):
    monkeypatch.setattr(rules, "MAX_RULES", 2)
    for _ in range(2):
        last = env.ann.save_rule(Rule(action="star", words="x"))
    with pytest.raises(UsageError, match="already have 2 rules"):
        env.ann.save_rule(Rule(action="star", words="x"))
    env.ann.save_rule(last)


def test_saved_search_is_replaced_by_name_and_private(env):
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
