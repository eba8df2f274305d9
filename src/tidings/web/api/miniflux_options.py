"""Options of Miniflux that mean nothing here: apps set them, and are told them again."""

import asyncio
from typing import Any

from msgspec import structs
from msgspec.structs import replace

from tidings.store.user_models import User
from tidings.web.api.rest import Call

#: Of each kind of thing, options are kept for so many, those that were last set.
MAX_STORED_OPTIONS = 5000
_lock = asyncio.Lock()


async def save_options(
    call: Call, kind: str, key: str, options: dict[str, Any], user: User | None = None
) -> None:
    async with _lock:
        owner = user or call.user
        settings = await call.site.user_service.settings(owner)
        before = dict(settings.miniflux_options.get(kind, {}))
        before[key] = {**before.pop(key, {}), **options}
        some = dict(list(before.items())[-MAX_STORED_OPTIONS:])
        await call.site.user_service.save_settings(
            owner, replace(settings, miniflux_options={**settings.miniflux_options, kind: some})
        )


def explicit_options(params: Any, options: type[Any]) -> dict[str, Any]:
    """Options of a request that say something: not null, and not what they are anyway."""
    fields = structs.fields(options)
    values = {field.name: getattr(params, field.name) for field in fields}
    if type(params).__name__.startswith("New"):
        return {
            field.name: values[field.name]
            for field in fields
            if values[field.name] != field.default
        }
    return {
        name: value.strip() if isinstance(value, str) else value
        for name, value in values.items()
        if value is not None
    }
