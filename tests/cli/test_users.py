"""Commands `user ...`."""

import asyncio
import json

from tidings.store import Store
from tidings.users import UserService

PASSWORD = "correct horse battery"


def add_user(local_tidings, name, *more, password=PASSWORD):
    result = local_tidings.run(
        "user", "add", name, "--password-stdin", *more, input=f"{password}\n"
    )
    assert result.exit_code == 0, result.output
    return result.stdout


def with_user_service(tmp_path, function):
    """Call a function with the user service of the database."""

    async def run():
        async with Store.open(tmp_path / "data" / "tidings.db", clock=lambda: 1.0) as store:
            return await function(UserService(store, lambda: 1.0))

    return asyncio.run(run())


def test_added_user_can_log_in(local_tidings, tmp_path):
    assert "administrator" in add_user(local_tidings, "ann", "--admin")
    assert json.loads(add_user(local_tidings, "bob", "--json"))["admin"] is False
    assert [(u["name"], u["admin"]) for u in local_tidings.json("user", "list")] == [
        ("ann", True),
        ("bob", False),
    ]
    assert with_user_service(
        tmp_path, lambda user_service: user_service.log_in("ann", PASSWORD, "here")
    ).admin


def test_first_administrator_gets_existing_subscriptions(local_tidings, blogs, tmp_path):
    local_tidings("add", blogs.url(1))
    add_user(local_tidings, "ann", "--admin")
    assert [feed["url"] for feed in local_tidings.json("feeds")] == [blogs.url(1)]
    assert with_user_service(tmp_path, lambda user_service: user_service.find_user("ann")).id == 1


def test_errors_are_one_line(local_tidings):
    assert "there is no database" in local_tidings.expect_error("user", "list")
    assert "--password-stdin" in local_tidings.expect_error("user", "add", "ann")
    add_user(local_tidings, "ann", "--admin")
    for name, password, message in (
        ("bob", "short", "must have 8 to 256 characters"),
        ("b:b", PASSWORD, "is not a valid user name"),
        ("ann", PASSWORD, "there is already a user ann"),
    ):
        result = local_tidings.run("user", "add", name, "--password-stdin", input=password)
        assert (result.exit_code, result.stderr.count("\n")) == (2, 1)
        assert message in result.stderr
    assert "there is no user bob" in local_tidings.expect_error(
        "user", "token", "bob", "--label", "x"
    )
    assert "last administrator" in local_tidings.expect_error("user", "remove", "ann", "--yes")


def test_change_password_and_role_and_remove_user(local_tidings, tmp_path):
    add_user(local_tidings, "ann", "--admin")
    add_user(local_tidings, "bob")
    changed = local_tidings.run(
        "user", "password", "bob", "--password-stdin", input="another good one\n"
    )
    assert changed.exit_code == 0, changed.output
    assert (
        with_user_service(
            tmp_path, lambda user_service: user_service.log_in("bob", "another good one", "here")
        ).name
        == "bob"
    )
    local_tidings("user", "role", "bob", "administrator")
    local_tidings("user", "role", "ann", "reader")
    assert [(u["name"], u["admin"]) for u in local_tidings.json("user", "list")] == [
        ("ann", False),
        ("bob", True),
    ]
    assert "last administrator" in local_tidings.expect_error("user", "role", "bob", "reader")
    local_tidings("user", "role", "ann", "administrator")
    local_tidings("user", "remove", "bob", "--yes")
    assert [u["name"] for u in local_tidings.json("user", "list")] == ["ann"]


def test_token_authenticates_its_user(local_tidings, tmp_path):
    add_user(local_tidings, "ann")
    secret = local_tidings("user", "token", "ann", "--label", "newsboat").strip()
    assert (
        with_user_service(tmp_path, lambda user_service: user_service.user_by_token(secret)).name
        == "ann"
    )
    assert local_tidings.json("user", "token", "ann", "--label", "phone")["token"] != secret
    assert "there is already a token newsboat" in local_tidings.expect_error(
        "user", "token", "ann", "--label", "newsboat"
    )
