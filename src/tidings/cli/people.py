"""`tidings user`: who may read here, for scripts and for those who have locked themselves out."""

import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import click

from tidings.cli.home import Home, with_home
from tidings.cli.output import json_option, print_table, tell
from tidings.errors import UsageError
from tidings.formatting import ago

if TYPE_CHECKING:
    from tidings.store.user_models import User
    from tidings.users import UserService

password_option = click.option(
    "--password-stdin",
    "from_stdin",
    is_flag=True,
    help="Read the password from stdin: one line. Else it is asked for.",
)


@click.group("user")
def user() -> None:
    """Add, list and remove those who read here, and give their apps tokens."""


@user.command("add")
@click.argument("name")
@click.option(
    "--admin",
    is_flag=True,
    help="May add and remove users. The first one takes over what `tidings add` followed.",
)
@password_option
@json_option
@with_home
async def add_user(home: Home, name: str, admin: bool, from_stdin: bool) -> None:
    """Let NAME read here.

    \b
    Example:
      echo "$PASSWORD" | tidings user add ann --admin --password-stdin
    """
    password = _password(from_stdin)
    home.make_folder()
    async with _open_user_service(home, make=True) as user_service:
        added = await user_service.add_user(name, password, admin=admin, by=None)
    tell(
        _row(added),
        f"{added.name} may log in now" + (", as an administrator" if added.admin else ""),
    )


@user.command("list")
@json_option
@with_home
async def list_users(home: Home) -> None:
    """Who reads here.

    \b
    Example:
      tidings user list
    """
    async with _open_user_service(home) as user_service:
        users = await user_service.users(by=None)
    now = time.time()
    rows = [
        [
            u.name,
            "administrator" if u.admin else "reader",
            ago(u.created_at, now),
            ago(u.seen_at, now),
        ]
        for u in users
    ]
    tell(
        [_row(one) for one in users],
        lambda: print_table(["name", "role", "added", "logged in"], rows, left=2),
    )


@user.command("remove")
@click.argument("name")
@click.confirmation_option(
    "--yes", prompt="This removes all that is theirs: subscriptions, marks, tags, rules. Go on?"
)
@with_home
async def remove_user(home: Home, name: str) -> None:
    """Remove NAME with all that is theirs. Feeds that others follow stay.

    \b
    Example:
      tidings user remove bob --yes
    """
    async with _open_user_service(home) as user_service:
        await user_service.remove_user((await _find(user_service, name)).id, by=None)
    click.echo(f"{name} is removed")


@user.command("role")
@click.argument("name")
@click.argument("role", type=click.Choice(["administrator", "reader"]))
@with_home
async def change_role(home: Home, name: str, role: str) -> None:
    """Make NAME an administrator, or a reader again. The last administrator stays one.

    \b
    Example:
      tidings user role bob administrator
    """
    async with _open_user_service(home) as user_service:
        await user_service.set_admin(
            (await _find(user_service, name)).id, role == "administrator", by=None
        )
    click.echo(f"{name} is {'an' if role == 'administrator' else 'a'} {role} now")


@user.command("password")
@click.argument("name")
@password_option
@with_home
async def change_password(home: Home, name: str, from_stdin: bool) -> None:
    """Give NAME another password. Browsers have to log in again; tokens of apps stay.

    \b
    Example:
      tidings user password ann
    """
    async with _open_user_service(home) as user_service:
        found = await _find(user_service, name)
        await user_service.set_password(found.id, _password(from_stdin), by=None)
    click.echo(f"{name} has a new password")


@user.command("token")
@click.argument("name")
@click.option("--label", required=True, help="What it is for: the app that will use it.")
@json_option
@with_home
async def add_token(home: Home, name: str, label: str) -> None:
    """Make a token for an app of NAME, and show it: this once, since only a hash of it is kept.

    It is the key of the REST API (X-Auth-Token), and the password beside the name in apps that speak Google Reader or Fever.

    \b
    Example:
      tidings user token ann --label newsboat
    """
    async with _open_user_service(home) as user_service:
        made = await user_service.add_token(await _find(user_service, name), label)
    tell(
        {"user": name, "id": made.token.id, "label": made.token.label, "token": made.secret},
        made.secret,
    )


@asynccontextmanager
async def _open_user_service(home: Home, *, make: bool = False) -> AsyncIterator["UserService"]:
    """All users of the store; with ``make``, of one that need not be there yet."""
    from tidings.store import Store
    from tidings.users import UserService

    async with Store.open(home.place, clock=time.time) if make else home.open_store() as store:
        yield UserService(store, time.time)


async def _find(user_service: "UserService", name: str) -> "User":
    found = await user_service.user(name)
    if found is None:
        raise UsageError(
            f"there is no user {name}; `tidings user list` lists them, `tidings user add {name}` adds one"
        )
    return found


def _password(from_stdin: bool) -> str:
    if from_stdin:
        return sys.stdin.readline().rstrip("\r\n")
    if not sys.stdin.isatty():
        raise UsageError(
            "a password is asked for on a terminal; in a script, pipe it in with --password-stdin"
        )
    return str(click.prompt("Password", hide_input=True, confirmation_prompt=True, err=True))


def _row(one: "User") -> dict[str, Any]:
    return {
        "id": one.id,
        "name": one.name,
        "admin": one.admin,
        "created": one.created_at,
        "seen": one.seen_at,
    }
