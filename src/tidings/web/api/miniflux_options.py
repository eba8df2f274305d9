"""Store Miniflux options that have no effect in tidings, to return them to clients."""

import asyncio
from typing import Any

from msgspec import structs
from msgspec.structs import replace

from tidings.store.user_models import User
from tidings.web.api.rest import Call

#: Maximum number of objects of one kind with stored options. The oldest are deleted.
MAX_STORED_OPTIONS = 5000
_lock = asyncio.Lock()


async def save_options(
    call: Call, kind: str, key: str, options: dict[str, Any], user: User | None = None
) -> None:
    """Merge ``options`` into the stored options of the object ``key`` of a kind.

    ``user`` is the owner of the options, by default the user of the request.
    """
    async with _lock:
        owner = user or call.user
        settings = await call.site.user_service.settings(owner)
        before = dict(settings.miniflux_options.get(kind, {}))
        before[key] = {**before.pop(key, {}), **options}
        newest = dict(list(before.items())[-MAX_STORED_OPTIONS:])
        await call.site.user_service.save_settings(
            owner, replace(settings, miniflux_options={**settings.miniflux_options, kind: newest})
        )


def explicit_options(params: Any, options: type[Any]) -> dict[str, Any]:
    """Return the options that a request sets.

    Options with null are left out, and for a new object also those with the default value.
    """
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
