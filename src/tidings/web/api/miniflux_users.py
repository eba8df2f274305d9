"""Users and the tokens of their apps in Miniflux's words."""

from typing import Any

from tidings.errors import UsageError
from tidings.people import Forbidden
from tidings.store.people_rows import Stream, User
from tidings.web.api import miniflux_values as values
from tidings.web.api.desk import whole
from tidings.web.api.miniflux_entries import TOP, moment
from tidings.web.api.miniflux_kept import given, keep
from tidings.web.api.rest import Call, not_found


async def _user(call: Call, user: User) -> values.User:
    kept = (await call.site.people.settings(user)).kept.get("user", {}).get("", {})
    seen = None if user.seen_at is None else moment(user.seen_at)
    return values.User(id=user.id, username=user.name, is_admin=user.admin, last_login_at=seen, **kept)


async def get_me(call: Call) -> values.User:
    return await _user(call, call.user)


async def get_users(call: Call) -> list[values.User]:
    return [await _user(call, user) for user in await call.site.people.users(by=call.user)]


async def get_user(call: Call) -> values.User:
    """By number or name."""
    who = call.names["user"]
    found = await call.site.people.user(int(who) if who.isascii() and who.isdecimal() and len(who) < 10 else who)
    if found is None:
        raise not_found("user")
    return await _user(call, found)


async def add_user(call: Call) -> values.User:
    asked: values.NewUser = call.body
    made = await call.site.people.add_user(asked.username, asked.password, admin=asked.is_admin, by=call.user)
    return await _user(call, made)


async def _other(call: Call) -> User:
    """Whom the address names by number: oneself, or for an administrator anybody."""
    number = whole(call.names["user"])
    if not number:
        raise UsageError("invalid user ID")
    if number == call.user.id:
        return call.user
    if not call.user.admin:
        raise Forbidden("access forbidden")
    found = await call.site.people.user(min(number, TOP))
    if found is None:
        raise not_found("user")
    return found


async def change_user(call: Call) -> values.User:
    asked, user, people = call.body, await _other(call), call.site.people
    if asked.username not in (None, user.name):
        raise UsageError("the name of a user cannot be changed")
    if asked.is_admin is not None and asked.is_admin != user.admin:
        if not call.user.admin:
            raise UsageError("only administrators can change permissions of standard users")
        await people.set_admin(user.id, asked.is_admin, by=call.user)
    if asked.password is not None:
        await people.set_password(user.id, asked.password, by=call.user)
    if options := given(asked, values.UserOptions):
        await keep(call, "user", "", options, user)
    return await _user(call, await people.user(user.id) or user)


async def remove_user(call: Call) -> None:
    user = await _other(call)
    if user.id == call.user.id:
        raise UsageError("you cannot remove yourself")
    await call.site.people.remove_user(user.id, by=call.user)


async def read_all(call: Call) -> None:
    if call.ids["user_id"] != call.user.id:
        raise Forbidden("access forbidden")
    await call.reading.mark_all_read(Stream())


async def get_keys(call: Call) -> list[values.ApiKey]:
    return [_key(call, token, "") for token in await call.site.people.tokens(call.user)]


async def add_key(call: Call) -> values.ApiKey:
    made = await call.site.people.add_token(call.user, call.body.description)
    return _key(call, made.token, made.secret)


def _key(call: Call, token: Any, secret: str) -> values.ApiKey:
    used = None if token.used_at is None else moment(token.used_at)
    return values.ApiKey(
        id=token.id,
        user_id=call.user.id,
        token=secret,
        description=token.label,
        last_used_at=used,
        created_at=moment(token.created_at),
    )


async def remove_key(call: Call) -> None:
    await call.site.people.remove_token(call.user, min(call.ids["key_id"], TOP))
