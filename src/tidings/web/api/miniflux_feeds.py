"""Categories and the feeds in them in Miniflux's words."""

import base64

from starlette.responses import Response

from tidings.errors import UsageError
from tidings.fetch.discovery import discover
from tidings.fetch.models import Problem
from tidings.store import icons
from tidings.store.user_models import Stream, Subscription
from tidings.web.api import miniflux_entries as entry_handlers
from tidings.web.api import miniflux_models as values
from tidings.web.api.common import CORS, subscribe
from tidings.web.api.miniflux_entries import ROOT_CATEGORY_ID, ROOT_CATEGORY_TITLE, category
from tidings.web.api.miniflux_options import explicit_options, save_options
from tidings.web.api.rest import Call, not_found


async def _categories(call: Call) -> list[values.Category]:
    """Miniflux's "All" is what is in no folder."""
    miniflux_options = (await call.site.user_service.settings(call.user)).miniflux_options
    user_id = call.user.id
    return [
        category(user_id, None, "", miniflux_options),
        *(
            category(user_id, folder.id, folder.name, miniflux_options)
            for folder in await call.reader_service.folders()
        ),
    ]


async def get_categories(call: Call) -> list[values.Category]:
    found = await _categories(call)
    if entry_handlers.parse_bool(call.query.counts):
        top = await call.reader_service.subscriptions(folder_ids=[0])
        counts = {
            folder.id: (folder.feeds, folder.unread)
            for folder in await call.reader_service.folders()
        }
        counts[ROOT_CATEGORY_ID] = len(top), sum(s.unread for s in top)
        for one in found:
            one.feed_count, one.total_unread = counts[one.id]
    return found


async def _category(call: Call, category_id: int) -> values.Category:
    for one in await _categories(call):
        if one.id == category_id:
            return one
    raise not_found("category")


async def add_category(call: Call) -> values.Category:
    params: values.NewCategory = call.body
    if params.title == ROOT_CATEGORY_TITLE:
        raise UsageError("this category already exists")
    made = await call.reader_service.add_folder(params.title)
    if params.hide_globally:
        await save_options(call, "categories", str(made.id), {"hide_globally": True})
    return await _category(call, made.id)


async def change_category(call: Call) -> values.Category:
    params, one = call.body, await _category(call, call.ids["category_id"])
    if params.title is not None and params.title != one.title:
        if one.id == ROOT_CATEGORY_ID:
            raise UsageError(
                f"{ROOT_CATEGORY_TITLE} is what is in no category; it has no other name"
            )
        await call.reader_service.rename_folder(one.id, params.title)
    if params.hide_globally is not None:
        await save_options(call, "categories", str(one.id), {"hide_globally": params.hide_globally})
    return await _category(call, one.id)


async def remove_category(call: Call) -> None:
    one = await _category(call, call.ids["category_id"])
    if one.id == ROOT_CATEGORY_ID:
        raise UsageError(f"{ROOT_CATEGORY_TITLE} is what is in no category; it cannot be removed")
    await call.reader_service.remove_folder(one.id)


async def mark_category_read(call: Call) -> None:
    one = await _category(call, call.ids["category_id"])
    await call.reader_service.mark_all_read(
        Stream(folders=(0 if one.id == ROOT_CATEGORY_ID else one.id,))
    )


async def refresh_category(call: Call) -> None:
    await _category(call, call.ids["category_id"])
    call.site.aggregator.wake()


# --- feeds -------------------------------------------------------------------------------------------------------------


async def _feeds(call: Call, subscriptions: list[Subscription]) -> list[values.Feed]:
    miniflux_options = (await call.site.user_service.settings(call.user)).miniflux_options
    return [entry_handlers.feed(call.user.id, s, miniflux_options) for s in subscriptions]


async def get_feeds(call: Call) -> list[values.Feed]:
    return await _feeds(call, await call.reader_service.subscriptions())


async def get_category_feeds(call: Call) -> list[values.Feed]:
    one = await _category(call, call.ids["category_id"])
    return await _feeds(
        call,
        await call.reader_service.subscriptions(
            folder_ids=[0 if one.id == ROOT_CATEGORY_ID else one.id]
        ),
    )


async def _subscription(call: Call) -> Subscription:
    return await call.reader_service.subscription(min(call.ids["feed_id"], ROOT_CATEGORY_ID))


async def get_feed(call: Call) -> values.Feed:
    (feed,) = await _feeds(call, [await _subscription(call)])
    return feed


async def _folder(call: Call, category_id: int) -> str:
    """The name of a category, for the core; nothing is the top."""
    if category_id in (0, ROOT_CATEGORY_ID):
        return ""
    for folder in await call.reader_service.folders():
        if folder.id == category_id:
            return folder.name
    raise UsageError("this category does not exist or does not belong to this user")


def _absolute(url: str) -> str:
    if not url.lower().startswith(("http://", "https://")):
        raise UsageError("the address must begin with http:// or https://")
    return url


async def add_feed(call: Call) -> values.NewFeedId:
    params: values.NewFeed = call.body
    folder = await _folder(call, params.category_id)
    if params.min_interval_s:
        call.reader_service.check_min_interval(params.min_interval_s)  # before anything is added
    made, is_new = await subscribe(call.reader_service, _absolute(params.feed_url), folder=folder)
    if not is_new:
        raise UsageError("this feed already exists")
    if params.crawler or params.priority != "normal" or params.min_interval_s:
        await call.reader_service.change(
            made.feed.id,
            full_text=params.crawler,
            priority=params.priority,
            min_interval_s=params.min_interval_s,
        )
    if options := explicit_options(params, values.FeedOptions):
        await save_options(call, "feeds", str(made.feed.id), options)
    return values.NewFeedId(made.feed.id)


async def change_feed(call: Call) -> values.Feed:
    params, one = call.body, await _subscription(call)
    folder = None if params.category_id is None else await _folder(call, params.category_id)
    feed_id = one.feed.id
    if params.min_interval_s:
        call.reader_service.check_min_interval(
            params.min_interval_s
        )  # before the address is changed
    if params.feed_url not in (None, one.feed.url):
        feed_id = await call.reader_service.change_url(feed_id, _absolute(params.feed_url))
    await call.reader_service.change(
        feed_id,
        title=params.title,
        folder=folder,
        priority=params.priority,
        full_text=params.crawler,
        min_interval_s=params.min_interval_s,
    )
    if options := explicit_options(params, values.FeedOptions):
        await save_options(call, "feeds", str(feed_id), options)
    (feed,) = await _feeds(call, [await call.reader_service.subscription(feed_id)])
    return feed


async def remove_feed(call: Call) -> None:
    await call.reader_service.unsubscribe((await _subscription(call)).feed.id)


async def refresh_feed(call: Call) -> None:
    """At once: our own timing gives way, the publisher's wishes never do."""
    await call.site.aggregator.poll([(await _subscription(call)).feed.id])


async def refresh_feeds(call: Call) -> None:
    """Miniflux looks at those that are due; here somebody always does."""
    call.site.aggregator.wake()


async def mark_feed_read(call: Call) -> None:
    await call.reader_service.mark_all_read(Stream(feeds=((await _subscription(call)).feed.id,)))


async def get_counters(call: Call) -> values.Counters:
    found = await call.reader_service.counters()
    return values.Counters(
        {str(i): of - unread for i, unread, of in found}, {str(i): unread for i, unread, _ in found}
    )


async def get_icon(call: Call) -> values.Icon:
    """Looked for now, if nobody has done so before."""
    one = await _subscription(call)
    store = call.site.store
    if not await store.read(icons.is_looked_up, one.feed.id):
        await call.site.icons.fetch_icon(one.feed.id, one.feed.state.site_url or one.feed.url)
    return await _icon(call, one.feed.id)


async def get_icon_by_id(call: Call) -> values.Icon:
    return await _icon(call, min(call.ids["icon_id"], ROOT_CATEGORY_ID))


async def _icon(call: Call, feed_id: int) -> values.Icon:
    """A feed has one icon, which has its id."""
    found = await call.reader_service.icon(feed_id)
    if found is None:
        raise not_found("icon")
    return values.Icon(
        feed_id, found.type, f"{found.type};base64,{base64.b64encode(found.data).decode()}"
    )


async def discover_feeds(call: Call) -> list[values.DiscoveredFeed]:
    found = await discover(call.site.aggregator.fetcher, _absolute(call.body.url))
    if found.error is not None:
        if found.error.kind in (Problem.UNREADABLE, Problem.STATUS):
            raise not_found("feed")
        raise UsageError(found.error.message)
    return [values.DiscoveredFeed(one.title, one.url, one.kind) for one in found.feeds]


async def export(call: Call) -> Response:
    return Response(await call.reader_service.export_opml(), headers=CORS, media_type="text/xml")


async def import_opml(call: Call) -> values.ImportResult:
    report = await call.reader_service.import_opml(call.body)
    return values.ImportResult(f"Feeds imported successfully: {report.summary}")
