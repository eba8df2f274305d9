"""Miniflux's API (v1), which is our own REST API too, with additions beside it: one table of all operations."""

import asyncio
import base64
import platform
from typing import Any

from msgspec import structs
from msgspec.structs import replace
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from tidings import __version__
from tidings.errors import UsageError
from tidings.fetch.discovery import discover
from tidings.fetch.values import Problem
from tidings.people import Forbidden
from tidings.store import icons
from tidings.store.people_rows import Stream, Subscription, User
from tidings.web.api import additions, openapi, rest
from tidings.web.api import miniflux_entries as of_entries
from tidings.web.api import miniflux_values as values
from tidings.web.api.desk import CORS, Desk, subscribe, text, whole
from tidings.web.api.miniflux_entries import TOP, TOP_TITLE, category, moment
from tidings.web.api.rest import Call, Operation, not_found

#: Of each kind of thing, options are kept for so many, those that were last set.
MOST_KEPT = 5000
_keeping = asyncio.Lock()


async def keep(call: Call, kind: str, key: str, options: dict[str, Any], user: User | None = None) -> None:
    """Options that mean nothing here, to be given back."""
    async with _keeping:
        owner = user or call.user
        settings = await call.desk.people.settings(owner)
        before = dict(settings.kept.get(kind, {}))
        before[key] = {**before.pop(key, {}), **options}
        some = dict(list(before.items())[-MOST_KEPT:])
        await call.desk.people.save_settings(owner, replace(settings, kept={**settings.kept, kind: some}))


def given(asked: Any, options: type[Any]) -> dict[str, Any]:
    """Options of a request that say something: not null, and not what they are anyway."""
    fields = structs.fields(options)
    told = {field.name: getattr(asked, field.name) for field in fields}
    if type(asked).__name__.startswith("New"):
        return {field.name: told[field.name] for field in fields if told[field.name] != field.default}
    return {name: value.strip() if isinstance(value, str) else value for name, value in told.items() if value is not None}


# --- users -------------------------------------------------------------------------------------------------------------


async def _user(call: Call, user: User) -> values.User:
    kept = (await call.desk.people.settings(user)).kept.get("user", {}).get("", {})
    seen = None if user.seen_at is None else moment(user.seen_at)
    return values.User(id=user.id, username=user.name, is_admin=user.admin, last_login_at=seen, **kept)


async def get_me(call: Call) -> values.User:
    return await _user(call, call.user)


async def get_users(call: Call) -> list[values.User]:
    return [await _user(call, user) for user in await call.desk.people.users(by=call.user)]


async def get_user(call: Call) -> values.User:
    """By number or name."""
    who = call.names["user"]
    found = await call.desk.people.user(int(who) if who.isascii() and who.isdecimal() and len(who) < 10 else who)
    if found is None:
        raise not_found("user")
    return await _user(call, found)


async def add_user(call: Call) -> values.User:
    asked: values.NewUser = call.body
    made = await call.desk.people.add_user(asked.username, asked.password, admin=asked.is_admin, by=call.user)
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
    found = await call.desk.people.user(min(number, TOP))
    if found is None:
        raise not_found("user")
    return found


async def change_user(call: Call) -> values.User:
    asked, user, people = call.body, await _other(call), call.desk.people
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
    await call.desk.people.remove_user(user.id, by=call.user)


async def read_all(call: Call) -> None:
    if call.ids["user_id"] != call.user.id:
        raise Forbidden("access forbidden")
    await call.reading.mark_all_read(Stream())


async def get_keys(call: Call) -> list[values.ApiKey]:
    return [_key(call, token, "") for token in await call.desk.people.tokens(call.user)]


async def add_key(call: Call) -> values.ApiKey:
    made = await call.desk.people.add_token(call.user, call.body.description)
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
    await call.desk.people.remove_token(call.user, min(call.ids["key_id"], TOP))


# --- categories --------------------------------------------------------------------------------------------------------


async def _categories(call: Call) -> list[values.Category]:
    """Miniflux's "All" is what is in no folder."""
    kept = (await call.desk.people.settings(call.user)).kept
    user_id = call.user.id
    return [
        category(user_id, None, "", kept),
        *(category(user_id, folder.id, folder.name, kept) for folder in await call.reading.folders()),
    ]


async def get_categories(call: Call) -> list[values.Category]:
    found = await _categories(call)
    if of_entries.truth(call.query.counts):
        top = await call.reading.subscriptions(folder_ids=[0])
        counts = {folder.id: (folder.feeds, folder.unread) for folder in await call.reading.folders()}
        counts[TOP] = len(top), sum(s.unread for s in top)
        for one in found:
            one.feed_count, one.total_unread = counts[one.id]
    return found


async def _category(call: Call, category_id: int) -> values.Category:
    for one in await _categories(call):
        if one.id == category_id:
            return one
    raise not_found("category")


async def add_category(call: Call) -> values.Category:
    asked: values.NewCategory = call.body
    if asked.title == TOP_TITLE:
        raise UsageError("this category already exists")
    made = await call.reading.add_folder(asked.title)
    if asked.hide_globally:
        await keep(call, "categories", str(made.id), {"hide_globally": True})
    return await _category(call, made.id)


async def change_category(call: Call) -> values.Category:
    asked, one = call.body, await _category(call, call.ids["category_id"])
    if asked.title is not None and asked.title != one.title:
        if one.id == TOP:
            raise UsageError(f"{TOP_TITLE} is what is in no category; it has no other name")
        await call.reading.rename_folder(one.id, asked.title)
    if asked.hide_globally is not None:
        await keep(call, "categories", str(one.id), {"hide_globally": asked.hide_globally})
    return await _category(call, one.id)


async def remove_category(call: Call) -> None:
    one = await _category(call, call.ids["category_id"])
    if one.id == TOP:
        raise UsageError(f"{TOP_TITLE} is what is in no category; it cannot be removed")
    await call.reading.remove_folder(one.id)


async def read_category(call: Call) -> None:
    one = await _category(call, call.ids["category_id"])
    await call.reading.mark_all_read(Stream(folders=(0 if one.id == TOP else one.id,)))


async def refresh_category(call: Call) -> None:
    await _category(call, call.ids["category_id"])
    call.desk.aggregator.wake()


# --- feeds -------------------------------------------------------------------------------------------------------------


async def _feeds(call: Call, subscriptions: list[Subscription]) -> list[values.Feed]:
    kept = (await call.desk.people.settings(call.user)).kept
    return [of_entries.feed(call.user.id, s, kept) for s in subscriptions]


async def get_feeds(call: Call) -> list[values.Feed]:
    return await _feeds(call, await call.reading.subscriptions())


async def get_category_feeds(call: Call) -> list[values.Feed]:
    one = await _category(call, call.ids["category_id"])
    return await _feeds(call, await call.reading.subscriptions(folder_ids=[0 if one.id == TOP else one.id]))


async def _subscription(call: Call) -> Subscription:
    return await call.reading.subscription(min(call.ids["feed_id"], TOP))


async def get_feed(call: Call) -> values.Feed:
    (told,) = await _feeds(call, [await _subscription(call)])
    return told


async def _folder(call: Call, category_id: int) -> str:
    """The name of a category, for the core; nothing is the top."""
    if category_id in (0, TOP):
        return ""
    for folder in await call.reading.folders():
        if folder.id == category_id:
            return folder.name
    raise UsageError("this category does not exist or does not belong to this user")


def _absolute(url: str) -> str:
    if not url.lower().startswith(("http://", "https://")):
        raise UsageError("the address must begin with http:// or https://")
    return url


async def add_feed(call: Call) -> values.NewFeedId:
    asked: values.NewFeed = call.body
    folder = await _folder(call, asked.category_id)
    made, is_new = await subscribe(call.reading, _absolute(asked.feed_url), folder=folder)
    if not is_new:
        raise UsageError("this feed already exists")
    if asked.crawler or asked.priority != "normal":
        await call.reading.change(made.feed.id, full_text=asked.crawler, priority=asked.priority)
    if options := given(asked, values.FeedOptions):
        await keep(call, "feeds", str(made.feed.id), options)
    return values.NewFeedId(made.feed.id)


async def change_feed(call: Call) -> values.Feed:
    asked, one = call.body, await _subscription(call)
    folder = None if asked.category_id is None else await _folder(call, asked.category_id)
    feed_id = one.feed.id
    if asked.feed_url not in (None, one.feed.url):
        feed_id = await call.reading.readdress(feed_id, _absolute(asked.feed_url))
    await call.reading.change(feed_id, title=asked.title, folder=folder, priority=asked.priority, full_text=asked.crawler)
    if options := given(asked, values.FeedOptions):
        await keep(call, "feeds", str(feed_id), options)
    (told,) = await _feeds(call, [await call.reading.subscription(feed_id)])
    return told


async def remove_feed(call: Call) -> None:
    await call.reading.unsubscribe((await _subscription(call)).feed.id)


async def refresh_feed(call: Call) -> None:
    """At once: our own timing gives way, the publisher's wishes never do."""
    await call.desk.aggregator.poll([(await _subscription(call)).feed.id])


async def refresh_feeds(call: Call) -> None:
    """Miniflux looks at those that are due; here somebody always does."""
    call.desk.aggregator.wake()


async def read_feed(call: Call) -> None:
    await call.reading.mark_all_read(Stream(feeds=((await _subscription(call)).feed.id,)))


async def get_counters(call: Call) -> values.Counters:
    unread = {str(s.feed.id): s.unread for s in await call.reading.subscriptions()}
    held = {str(i): n for i, n in (await call.reading.held()).items()}
    return values.Counters({i: held[i] - n for i, n in unread.items() if i in held}, unread)


async def get_icon(call: Call) -> values.Icon:
    """Looked for now, if nobody has done so before."""
    one = await _subscription(call)
    store = call.desk.store
    if not await store.read(icons.looked_for, one.feed.id):
        await call.desk.icons.look(one.feed.id, one.feed.state.site_url or one.feed.url)
    return await _icon(call, one.feed.id)


async def get_icon_by_id(call: Call) -> values.Icon:
    return await _icon(call, min(call.ids["icon_id"], TOP))


async def _icon(call: Call, feed_id: int) -> values.Icon:
    """A feed has one icon, which has its id."""
    found = await call.reading.icon(feed_id)
    if found is None:
        raise not_found("icon")
    return values.Icon(feed_id, found.type, f"{found.type};base64,{base64.b64encode(found.data).decode()}")


async def find_feeds(call: Call) -> list[values.Found]:
    found = await discover(call.desk.aggregator.fetcher, _absolute(call.body.url))
    if found.error is not None:
        if found.error.kind in (Problem.UNREADABLE, Problem.STATUS):
            raise not_found("feed")
        raise UsageError(found.error.words)
    return [values.Found(one.title, one.url, one.kind) for one in found.feeds]


async def export(call: Call) -> Response:
    return Response(await call.reading.export_opml(), headers=CORS, media_type="text/xml")


async def import_opml(call: Call) -> values.Imported:
    report = await call.reading.import_opml(call.body)
    return values.Imported(f"Feeds imported successfully: {report.words}")


async def set_progress(call: Call) -> None:
    enclosure = await of_entries.get_enclosure(call)
    await keep(call, "enclosures", str(enclosure.id), {"media_progression": call.body.media_progression})


# --- the service ------------------------------------------------------------------------------------------------------


async def get_version(call: Call) -> values.Version:
    """The fields are Miniflux's; what is Go there is Python here."""
    python = f"python {platform.python_version()}"
    compiler, arch, system = platform.python_implementation(), platform.machine(), platform.system().lower()
    return values.Version(__version__, "tidings", "unknown", python, compiler, arch or "unknown", system or "unknown")


async def get_integrations(call: Call) -> values.Integrations:
    return values.Integrations(bool((await call.desk.people.settings(call.user)).webhook_url))


def _do(method: str, path: str, handler: Any, summary: str, **more: Any) -> Operation:
    return Operation(method=method, path=path, handler=handler, summary=summary, **more)


OPERATIONS = [
    _do("GET", "/v1/me", get_me, "Who am I?", answer=values.User),
    _do("GET", "/v1/users", get_users, "All users", answer=list[values.User], admin=True),
    _do("POST", "/v1/users", add_user, "Add a user", body=values.NewUser, answer=values.User, status=201, admin=True),
    _do("PUT", "/v1/users/{user}", change_user, "Change a user", body=values.UserChange, answer=values.User, status=201),
    _do("DELETE", "/v1/users/{user}", remove_user, "Remove a user with all that is theirs", status=204, admin=True),
    _do("PUT", "/v1/users/{user_id}/mark-all-as-read", read_all, "Mark everything read", status=204),
    _do("GET", "/v1/users/{user}", get_user, "A user, by number or name", answer=values.User, admin=True),
    _do("GET", "/v1/api-keys", get_keys, "Tokens of apps, without their secrets", answer=list[values.ApiKey]),
    _do("POST", "/v1/api-keys", add_key, "A new token", body=values.NewApiKey, answer=values.ApiKey, status=201),
    _do("DELETE", "/v1/api-keys/{key_id}", remove_key, "Take a token back", status=204),
    _do("GET", "/v1/categories", get_categories, "All categories", query=values.CategoriesQuery, answer=list[values.Category]),
    _do("POST", "/v1/categories", add_category, "Add a category", body=values.NewCategory, answer=values.Category, status=201),
    _do(
        "PUT",
        "/v1/categories/{category_id}",
        change_category,
        "Rename or hide a category",
        body=values.CategoryChange,
        answer=values.Category,
        status=201,
    ),
    _do("DELETE", "/v1/categories/{category_id}", remove_category, "Remove a category; its feeds stay", status=204),
    _do("PUT", "/v1/categories/{category_id}/mark-all-as-read", read_category, "Mark a category read", status=204),
    _do("PUT", "/v1/categories/{category_id}/refresh", refresh_category, "Look at the feeds that are due", status=204),
    _do("GET", "/v1/categories/{category_id}/feeds", get_category_feeds, "The feeds of a category", answer=list[values.Feed]),
    _do(
        "GET",
        "/v1/categories/{category_id}/entries",
        of_entries.get_category_entries,
        "The entries of a category",
        query=values.EntriesQuery,
        answer=values.Entries,
    ),
    _do(
        "GET",
        "/v1/categories/{category_id}/entries/{entry_id}",
        of_entries.get_entry,
        "An entry of a category",
        answer=values.Entry,
    ),
    _do("POST", "/v1/discover", find_feeds, "The feeds of a site", body=values.Site, answer=list[values.Found]),
    _do("GET", "/v1/feeds", get_feeds, "All subscriptions", answer=list[values.Feed]),
    _do("POST", "/v1/feeds", add_feed, "Subscribe to a feed", body=values.NewFeed, answer=values.NewFeedId, status=201),
    _do("GET", "/v1/feeds/counters", get_counters, "Read and unread entries of each feed", answer=values.Counters),
    _do("PUT", "/v1/feeds/refresh", refresh_feeds, "Look at the feeds that are due", status=204),
    _do("GET", "/v1/feeds/{feed_id}", get_feed, "A subscription", answer=values.Feed),
    _do(
        "PUT",
        "/v1/feeds/{feed_id}",
        change_feed,
        "Change a subscription",
        body=values.FeedChange,
        answer=values.Feed,
        status=201,
    ),
    _do("DELETE", "/v1/feeds/{feed_id}", remove_feed, "Unsubscribe", status=204),
    _do("PUT", "/v1/feeds/{feed_id}/refresh", refresh_feed, "Look at a feed now", status=204),
    _do("PUT", "/v1/feeds/{feed_id}/mark-all-as-read", read_feed, "Mark a feed read", status=204),
    _do("GET", "/v1/feeds/{feed_id}/icon", get_icon, "The icon of a feed", answer=values.Icon),
    _do(
        "GET",
        "/v1/feeds/{feed_id}/entries",
        of_entries.get_feed_entries,
        "The entries of a feed",
        query=values.EntriesQuery,
        answer=values.Entries,
    ),
    _do("GET", "/v1/feeds/{feed_id}/entries/{entry_id}", of_entries.get_entry, "An entry of a feed", answer=values.Entry),
    _do("GET", "/v1/entries", of_entries.get_entries, "Entries", query=values.EntriesQuery, answer=values.Entries),
    _do("PUT", "/v1/entries", of_entries.mark_entries, "Mark, star, rate or tag entries", body=values.Marks, status=204),
    _do("GET", "/v1/entries/ids", of_entries.get_entry_ids, "Ids of entries", query=values.IdsQuery, answer=values.EntryIds),
    _do("GET", "/v1/entries/{entry_id}", of_entries.get_entry, "An entry", answer=values.Entry),
    _do("PUT", "/v1/entries/{entry_id}/bookmark", of_entries.toggle_star, "Star an entry, or no longer", status=204),
    _do("PUT", "/v1/entries/{entry_id}/star", of_entries.toggle_star, "Star an entry, or no longer", status=204),
    _do("POST", "/v1/entries/{entry_id}/save", of_entries.save_entry, "Hand an entry to another service", status=202),
    _do("GET", "/v1/entries/{entry_id}/fetch-content", of_entries.fetch_content, "The whole article", answer=values.Content),
    _do("PUT", "/v1/flush-history", of_entries.put_away_read, "Put away what was read", status=202),
    _do("DELETE", "/v1/flush-history", of_entries.put_away_read, "Put away what was read", status=202),
    _do("GET", "/v1/icons/{icon_id}", get_icon_by_id, "An icon", answer=values.Icon),
    _do("GET", "/v1/enclosures/{enclosure_id}", of_entries.get_enclosure, "An enclosure", answer=values.Enclosure),
    _do("PUT", "/v1/enclosures/{enclosure_id}", set_progress, "How far it was heard", body=values.Progress, status=204),
    _do("GET", "/v1/export", export, "All subscriptions as OPML", answer="text/xml"),
    _do("POST", "/v1/import", import_opml, "Subscribe to an OPML list", body="text/xml", answer=values.Imported, status=201),
    _do("GET", "/v1/integrations/status", get_integrations, "Whether entries go to other services", answer=values.Integrations),
    _do("GET", "/v1/version", get_version, "What runs here", answer=values.Version),
    *additions.OPERATIONS,
]


def routes(desk: Desk) -> list[BaseRoute]:
    async def healthy(request: Request) -> Response:
        return text("OK")

    async def version(request: Request) -> Response:
        return text(__version__)

    beside = [Route("/healthcheck", healthy), Route("/version", version), *openapi.routes(OPERATIONS)]
    return [*beside, *rest.routes(desk, OPERATIONS), Route("/v1/{rest:path}", rest.Resource(desk, []))]
