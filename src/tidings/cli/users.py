"""Commands for users: add, list and remove users, change roles and passwords, create tokens."""

import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import click

from tidings.cli.context import CliContext, with_context
from tidings.cli.output import json_option, print_result, print_table
from tidings.errors import UsageError
from tidings.formatting import ago
from tidings.i18n import _

if TYPE_CHECKING:
    from tidings.store.user_models import User
    from tidings.users import UserService

password_option = click.option(
    "--password-stdin",
    "from_stdin",
    is_flag=True,
    help=_("Password from the first line of stdin instead of a prompt."),
)


@click.group("user")
def user() -> None:
    """Manage users and their API tokens."""


@user.command("add")
@click.argument("name")
@click.option(
    "--admin",
    is_flag=True,
    help=_("Administrator, who may manage users. The first one gets the existing subscriptions."),
)
@password_option
@json_option
@with_context
async def add_user(context: CliContext, name: str, admin: bool, from_stdin: bool) -> None:
    """Add a user.

    \b
    Example:
      echo "$PASSWORD" | tidings user add ann --admin --password-stdin
    """
    password = _read_password(from_stdin)
    context.create_data_dir()
    async with _open_user_service(context, create=True) as user_service:
        added = await user_service.add_user(name, password, admin=admin, by=None)
    print_result(
        _user_json(added),
        _("added user %(name)s (administrator)", name=added.name)
        if added.admin
        else _("added user %(name)s", name=added.name),
    )


@user.command("list")
@json_option
@with_context
async def list_users(context: CliContext) -> None:
    """List users.

    \b
    Example:
      tidings user list
    """
    async with _open_user_service(context) as user_service:
        users = await user_service.list_users(by=None)
    now = time.time()
    rows = [
        [
            u.name,
            _("administrator") if u.admin else _("reader"),
            ago(u.created_at, now),
            ago(u.seen_at, now),
        ]
        for u in users
    ]
    print_result(
        [_user_json(one) for one in users],
        lambda: print_table([_("name"), _("role"), _("added"), _("last login")], rows, left=2),
    )


@user.command("remove")
@click.argument("name")
@click.confirmation_option(
    "--yes",
    prompt=_(
        "This deletes the user with all subscriptions, read and starred posts, tags "
        "and rules. Continue?"
    ),
    help=_("No confirmation prompt."),
)
@with_context
async def remove_user(context: CliContext, name: str) -> None:
    """Delete a user and their data.

    Feeds that other users are subscribed to are kept.

    \b
    Example:
      tidings user remove bob --yes
    """
    async with _open_user_service(context) as user_service:
        await user_service.remove_user((await _find_user(user_service, name)).id, by=None)
    click.echo(_("deleted user %(name)s", name=name))


@user.command("role")
@click.argument("name")
@click.argument("role", type=click.Choice(["administrator", "reader"]))
@with_context
async def change_role(context: CliContext, name: str, role: str) -> None:
    """Change a user's role.

    The role of the last administrator cannot be changed.

    \b
    Example:
      tidings user role bob administrator
    """
    async with _open_user_service(context) as user_service:
        await user_service.set_admin(
            (await _find_user(user_service, name)).id, role == "administrator", by=None
        )
    click.echo(_("the role of %(name)s is now %(role)s", name=name, role=role))


@user.command("password")
@click.argument("name")
@password_option
@with_context
async def change_password(context: CliContext, name: str, from_stdin: bool) -> None:
    """Change a user's password.

    Browser sessions are logged out; API tokens stay valid.

    \b
    Example:
      tidings user password ann
    """
    async with _open_user_service(context) as user_service:
        found = await _find_user(user_service, name)
        await user_service.set_password(found.id, _read_password(from_stdin), by=None)
    click.echo(_("changed the password of %(name)s", name=name))


@user.command("token")
@click.argument("name")
@click.option("--label", required=True, help=_("Label, for example the name of the app."))
@json_option
@with_context
async def add_token(context: CliContext, name: str, label: str) -> None:
    """Create an API token for a user.

    The token is shown only once, since only its hash is stored. It is the value of X-Auth-Token in
    the REST API, and the password in apps that use the Google Reader or Fever API.

    \b
    Example:
      tidings user token ann --label newsboat
    """
    async with _open_user_service(context) as user_service:
        created = await user_service.add_token(await _find_user(user_service, name), label)
    print_result(
        {
            "user": name,
            "id": created.token.id,
            "label": created.token.label,
            "token": created.secret,
        },
        created.secret,
    )


@asynccontextmanager
async def _open_user_service(
    context: CliContext, *, create: bool = False
) -> AsyncIterator["UserService"]:
    """Open the user service of the database; ``create`` allows a database that does not exist."""
    from tidings.store import Store
    from tidings.users import UserService

    opening = (
        Store.open(context.store_location, clock=time.time) if create else context.open_store()
    )
    async with opening as store:
        yield UserService(store, time.time)


async def _find_user(user_service: "UserService", name: str) -> "User":
    found = await user_service.find_user(name)
    if found is None:
        raise UsageError(
            _(
                "there is no user %(name)s; `tidings user list` lists all users, `tidings "
                "user add %(name)s` adds one",
                name=name,
            )
        )
    return found


def _read_password(from_stdin: bool) -> str:
    if from_stdin:
        return sys.stdin.readline().rstrip("\r\n")
    if not sys.stdin.isatty():
        raise UsageError(_("the password prompt needs a terminal; use --password-stdin in scripts"))
    return str(click.prompt(_("Password"), hide_input=True, confirmation_prompt=True, err=True))


def _user_json(one: "User") -> dict[str, Any]:
    return {
        "id": one.id,
        "name": one.name,
        "admin": one.admin,
        "created": one.created_at,
        "seen": one.seen_at,
    }
