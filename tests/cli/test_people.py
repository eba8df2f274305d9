"""Users from the command line."""

import asyncio
import json

from tidings.store import Store
from tidings.users import UserService

PASSWORD = "correct horse battery"


def added(home, name, *more, password=PASSWORD):
    result = home.run("user", "add", name, "--password-stdin", *more, input=f"{password}\n")
    assert result.exit_code == 0, result.output
    return result.stdout


def asked(tmp_path, question):
    """What the people of the store say."""

    async def ask():
        async with Store.open(tmp_path / "data" / "tidings.db", clock=lambda: 1.0) as store:
            return await question(UserService(store, lambda: 1.0))

    return asyncio.run(ask())


def test_a_user_is_added_to_a_fresh_folder_and_can_log_in(home, tmp_path):
    assert "administrator" in added(home, "ann", "--admin")
    assert json.loads(added(home, "bob", "--json"))["admin"] is False
    assert [(u["name"], u["admin"]) for u in home.json("user", "list")] == [
        ("ann", True),
        ("bob", False),
    ]
    assert asked(tmp_path, lambda user_service: user_service.log_in("ann", PASSWORD, "here")).admin


def test_the_first_administrator_takes_over_what_was_followed_before(home, blogs, tmp_path):
    home("add", blogs.url(1))
    added(home, "ann", "--admin")
    assert [feed["url"] for feed in home.json("feeds")] == [blogs.url(1)]
    assert asked(tmp_path, lambda user_service: user_service.user("ann")).id == 1


def test_what_is_wrong_is_told_in_one_line(home):
    assert "there is no store" in home.refuses("user", "list")
    assert "--password-stdin" in home.refuses("user", "add", "ann")
    added(home, "ann", "--admin")
    for name, password, complaint in (
        ("bob", "short", "a password has 8 to 256 characters"),
        ("b:b", PASSWORD, "cannot be a user's name"),
        ("ann", PASSWORD, "there is a user ann already"),
    ):
        result = home.run("user", "add", name, "--password-stdin", input=password)
        assert (result.exit_code, result.stderr.count("\n")) == (2, 1)
        assert complaint in result.stderr
    assert "there is no user bob" in home.refuses("user", "token", "bob", "--label", "x")
    assert "last administrator" in home.refuses("user", "remove", "ann", "--yes")


def test_a_password_and_a_role_are_changed_and_a_user_removed(home, tmp_path):
    added(home, "ann", "--admin")
    added(home, "bob")
    changed = home.run("user", "password", "bob", "--password-stdin", input="another good one\n")
    assert changed.exit_code == 0, changed.output
    assert (
        asked(
            tmp_path, lambda user_service: user_service.log_in("bob", "another good one", "here")
        ).name
        == "bob"
    )
    home("user", "role", "bob", "administrator")
    home("user", "role", "ann", "reader")
    assert [(u["name"], u["admin"]) for u in home.json("user", "list")] == [
        ("ann", False),
        ("bob", True),
    ]
    assert "last administrator" in home.refuses("user", "role", "bob", "reader")
    home("user", "role", "ann", "administrator")
    home("user", "remove", "bob", "--yes")
    assert [u["name"] for u in home.json("user", "list")] == ["ann"]


def test_a_token_is_shown_once_and_is_the_users(home, tmp_path):
    added(home, "ann")
    secret = home("user", "token", "ann", "--label", "newsboat").strip()
    assert asked(tmp_path, lambda user_service: user_service.user_by_token(secret)).name == "ann"
    assert home.json("user", "token", "ann", "--label", "phone")["token"] != secret
    assert "there is a token newsboat already" in home.refuses(
        "user", "token", "ann", "--label", "newsboat"
    )
