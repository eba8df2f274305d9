"""Options of Miniflux that mean nothing here: apps set them, and are told them again."""

import asyncio
from typing import Any

from msgspec import structs
from msgspec.structs import replace

from tidings.store.people_rows import User
from tidings.web.api.rest import Call

#: Of each kind of thing, options are kept for so many, those that were last set.
MOST_KEPT = 5000
_keeping = asyncio.Lock()


async def keep(call: Call, kind: str, key: str, options: dict[str, Any], user: User | None = None) -> None:
    async with _keeping:
        owner = user or call.user
        settings = await call.site.people.settings(owner)
        before = dict(settings.kept.get(kind, {}))
        before[key] = {**before.pop(key, {}), **options}
        some = dict(list(before.items())[-MOST_KEPT:])
        await call.site.people.save_settings(owner, replace(settings, kept={**settings.kept, kind: some}))


def given(asked: Any, options: type[Any]) -> dict[str, Any]:
    """Options of a request that say something: not null, and not what they are anyway."""
    fields = structs.fields(options)
    told = {field.name: getattr(asked, field.name) for field in fields}
    if type(asked).__name__.startswith("New"):
        return {field.name: told[field.name] for field in fields if told[field.name] != field.default}
    return {name: value.strip() if isinstance(value, str) else value for name, value in told.items() if value is not None}
