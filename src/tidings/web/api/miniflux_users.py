"""Handlers of the Miniflux API for users and API keys."""

from typing import Any

from tidings.errors import UsageError
from tidings.store.user_models import Stream, User
from tidings.users import Forbidden
from tidings.web.api import miniflux_models as models
from tidings.web.api.common import parse_int
from tidings.web.api.miniflux_entries import MAX_ID, to_datetime
from tidings.web.api.miniflux_options import explicit_options, save_options
from tidings.web.api.rest import Call, not_found


async def _user(call: Call, user: User) -> models.User:
    miniflux_options = (
        (await call.site.user_service.settings(user)).miniflux_options.get("user", {}).get("", {})
    )
    seen = None if user.seen_at is None else to_datetime(user.seen_at)
    return models.User(
        id=user.id, username=user.name, is_admin=user.admin, last_login_at=seen, **miniflux_options
    )


async def get_me(call: Call) -> models.User:
    return await _user(call, call.user)


async def get_users(call: Call) -> list[models.User]:
    return [
        await _user(call, user) for user in await call.site.user_service.list_users(by=call.user)
    ]


async def get_user(call: Call) -> models.User:
    """Return the user with the id or name in the path."""
    name = call.names["user"]
    user = await call.site.user_service.find_user(
        int(name) if name.isascii() and name.isdecimal() and len(name) < 10 else name
    )
    if user is None:
        raise not_found("user")
    return await _user(call, user)


async def add_user(call: Call) -> models.User:
    params: models.NewUser = call.body
    user = await call.site.user_service.add_user(
        params.username, params.password, admin=params.is_admin, by=call.user
    )
    return await _user(call, user)


async def _target_user(call: Call) -> User:
    """Return the user with the id in the path.

    Raises `Forbidden` if that is another user and the acting user is not an administrator.
    """
    number = parse_int(call.names["user"])
    if not number:
        raise UsageError("invalid user ID")
    if number == call.user.id:
        return call.user
    if not call.user.admin:
        raise Forbidden("access forbidden")
    user = await call.site.user_service.find_user(min(number, MAX_ID))
    if user is None:
        raise not_found("user")
    return user


async def change_user(call: Call) -> models.User:
    params, user, user_service = call.body, await _target_user(call), call.site.user_service
    if params.username not in (None, user.name):
        raise UsageError("user names cannot be changed")
    if params.is_admin is not None and params.is_admin != user.admin:
        if not call.user.admin:
            raise UsageError("only administrators can change permissions of standard users")
        await user_service.set_admin(user.id, params.is_admin, by=call.user)
    if params.password is not None:
        await user_service.set_password(user.id, params.password, by=call.user)
    if options := explicit_options(params, models.UserOptions):
        await save_options(call, "user", "", options, user)
    return await _user(call, await user_service.find_user(user.id) or user)


async def remove_user(call: Call) -> None:
    user = await _target_user(call)
    if user.id == call.user.id:
        raise UsageError("you cannot remove yourself")
    await call.site.user_service.remove_user(user.id, by=call.user)


async def mark_all_read(call: Call) -> None:
    if call.ids["user_id"] != call.user.id:
        raise Forbidden("access forbidden")
    await call.reader_service.mark_all_read(Stream())


async def get_keys(call: Call) -> list[models.ApiKey]:
    return [_key(call, token, "") for token in await call.site.user_service.tokens(call.user)]


async def add_key(call: Call) -> models.ApiKey:
    new = await call.site.user_service.add_token(call.user, call.body.description)
    return _key(call, new.token, new.secret)


def _key(call: Call, token: Any, secret: str) -> models.ApiKey:
    used = None if token.used_at is None else to_datetime(token.used_at)
    return models.ApiKey(
        id=token.id,
        user_id=call.user.id,
        token=secret,
        description=token.label,
        last_used_at=used,
        created_at=to_datetime(token.created_at),
    )


async def remove_key(call: Call) -> None:
    await call.site.user_service.remove_token(call.user, min(call.ids["key_id"], MAX_ID))
