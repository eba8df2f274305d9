"""Handlers of the Miniflux API for categories, feeds, icons, discovery and OPML."""

import base64

from starlette.responses import Response

from tidings.errors import UsageError
from tidings.fetch.discovery import discover
from tidings.fetch.models import Problem
from tidings.parse.entry_identity import make_entry
from tidings.store import icons
from tidings.store.user_models import Stream, Subscription
from tidings.web.api import miniflux_entries as entry_handlers
from tidings.web.api import miniflux_models as models
from tidings.web.api.common import CORS, json_response, subscribe
from tidings.web.api.miniflux_entries import (
    MAX_ID,
    ROOT_CATEGORY_ID,
    ROOT_CATEGORY_TITLE,
    category,
)
from tidings.web.api.miniflux_options import explicit_options, save_options
from tidings.web.api.rest import Call, not_found


async def _categories(call: Call) -> list[models.Category]:
    """Return the folders as categories, after the category "All" of the feeds without folder."""
    miniflux_options = (await call.site.user_service.settings(call.user)).miniflux_options
    user_id = call.user.id
    return [
        category(user_id, None, "", miniflux_options),
        *(
            category(user_id, folder.id, folder.name, miniflux_options)
            for folder in await call.reader_service.folders()
        ),
    ]


async def get_categories(call: Call) -> list[models.Category]:
    categories = await _categories(call)
    if entry_handlers.parse_bool(call.query.counts):
        no_folder = await call.reader_service.subscriptions(folder_ids=[0])
        counts = {
            folder.id: (folder.feeds, folder.unread)
            for folder in await call.reader_service.folders()
        }
        counts[ROOT_CATEGORY_ID] = len(no_folder), sum(s.unread for s in no_folder)
        for each in categories:
            each.feed_count, each.total_unread = counts[each.id]
    return categories


async def _category(call: Call, category_id: int) -> models.Category:
    for each in await _categories(call):
        if each.id == category_id:
            return each
    raise not_found("category")


async def add_category(call: Call) -> models.Category:
    params: models.NewCategory = call.body
    if params.title == ROOT_CATEGORY_TITLE:
        raise UsageError("this category already exists")
    folder = await call.reader_service.add_folder(params.title)
    if params.hide_globally:
        await save_options(call, "categories", str(folder.id), {"hide_globally": True})
    return await _category(call, folder.id)


async def change_category(call: Call) -> models.Category:
    params, category = call.body, await _category(call, call.ids["category_id"])
    if params.title is not None and params.title != category.title:
        if category.id == ROOT_CATEGORY_ID:
            raise UsageError(
                f"{ROOT_CATEGORY_TITLE} cannot be renamed: it contains the feeds without category"
            )
        await call.reader_service.rename_folder(category.id, params.title)
    if params.hide_globally is not None:
        await save_options(
            call, "categories", str(category.id), {"hide_globally": params.hide_globally}
        )
    return await _category(call, category.id)


async def remove_category(call: Call) -> None:
    category = await _category(call, call.ids["category_id"])
    if category.id == ROOT_CATEGORY_ID:
        raise UsageError(
            f"{ROOT_CATEGORY_TITLE} cannot be deleted: it contains the feeds without category"
        )
    await call.reader_service.remove_folder(category.id)


async def mark_category_read(call: Call) -> None:
    category = await _category(call, call.ids["category_id"])
    await call.reader_service.mark_all_read(
        Stream(folders=(0 if category.id == ROOT_CATEGORY_ID else category.id,))
    )


async def refresh_category(call: Call) -> None:
    await _category(call, call.ids["category_id"])
    call.site.aggregator.wake()


# --- feeds ----------------------------------------------------------------------------------------


async def _feeds(call: Call, subscriptions: list[Subscription]) -> list[models.Feed]:
    miniflux_options = (await call.site.user_service.settings(call.user)).miniflux_options
    return [entry_handlers.feed(call.user.id, s, miniflux_options) for s in subscriptions]


async def get_feeds(call: Call) -> list[models.Feed]:
    return await _feeds(call, await call.reader_service.subscriptions())


async def get_category_feeds(call: Call) -> list[models.Feed]:
    category = await _category(call, call.ids["category_id"])
    return await _feeds(
        call,
        await call.reader_service.subscriptions(
            folder_ids=[0 if category.id == ROOT_CATEGORY_ID else category.id]
        ),
    )


async def _subscription(call: Call) -> Subscription:
    return await call.reader_service.subscription(min(call.ids["feed_id"], MAX_ID))


async def get_feed(call: Call) -> models.Feed:
    (feed,) = await _feeds(call, [await _subscription(call)])
    return feed


async def _folder(call: Call, category_id: int) -> str:
    """Return the folder name of a category, which is empty for feeds without folder."""
    if category_id in (0, ROOT_CATEGORY_ID):
        return ""
    for folder in await call.reader_service.folders():
        if folder.id == category_id:
            return folder.name
    raise UsageError("this category does not exist or does not belong to this user")


def _require_http_url(url: str) -> str:
    if not url.lower().startswith(("http://", "https://")):
        raise UsageError("the URL must begin with http:// or https://")
    return url


async def add_feed(call: Call) -> models.NewFeedId:
    params: models.NewFeed = call.body
    folder = await _folder(call, params.category_id)
    if params.min_interval_s:
        # Checked first, so that nothing is added if the interval is invalid.
        call.reader_service.check_min_interval(params.min_interval_s)
    subscription, is_new = await subscribe(
        call.reader_service, _require_http_url(params.feed_url), folder=folder
    )
    if not is_new:
        raise UsageError("this feed already exists")
    if params.crawler or params.priority != "normal" or params.min_interval_s:
        await call.reader_service.change(
            subscription.feed.id,
            full_text=params.crawler,
            priority=params.priority,
            min_interval_s=params.min_interval_s,
        )
    if options := explicit_options(params, models.FeedOptions):
        await save_options(call, "feeds", str(subscription.feed.id), options)
    return models.NewFeedId(subscription.feed.id)


async def change_feed(call: Call) -> models.Feed:
    params, subscription = call.body, await _subscription(call)
    folder = None if params.category_id is None else await _folder(call, params.category_id)
    feed_id = subscription.feed.id
    if params.min_interval_s:
        # Checked first, so that the URL is not changed if the interval is invalid.
        call.reader_service.check_min_interval(params.min_interval_s)
    if params.feed_url not in (None, subscription.feed.url):
        feed_id = await call.reader_service.change_url(feed_id, _require_http_url(params.feed_url))
    await call.reader_service.change(
        feed_id,
        title=params.title,
        folder=folder,
        priority=params.priority,
        full_text=params.crawler,
        min_interval_s=params.min_interval_s,
    )
    if options := explicit_options(params, models.FeedOptions):
        await save_options(call, "feeds", str(feed_id), options)
    (feed,) = await _feeds(call, [await call.reader_service.subscription(feed_id)])
    return feed


async def remove_feed(call: Call) -> None:
    await call.reader_service.unsubscribe((await _subscription(call)).feed.id)


async def refresh_feed(call: Call) -> None:
    """Poll a feed now, before its scheduled time but within the publisher's constraints."""
    await call.site.aggregator.poll([(await _subscription(call)).feed.id])


async def refresh_feeds(call: Call) -> None:
    """Wake the scheduler, which polls the feeds that are due, as Miniflux does."""
    call.site.aggregator.wake()


async def mark_feed_read(call: Call) -> None:
    await call.reader_service.mark_all_read(Stream(feeds=((await _subscription(call)).feed.id,)))


async def import_entry(call: Call) -> Response:
    """Import an entry into a feed for this user; status 200 if it was imported before."""
    params: models.NewEntry = call.body
    url = _require_http_url(params.url)
    imported = make_entry(
        id=params.external_id or url,
        url=url,
        title=" ".join(params.title.split()),
        author=" ".join(params.author.split()),
        content=params.content,
        base_url=url,
        tags=params.tags,
        comments_url=params.comments_url,
    )
    entry_id, is_new = await call.reader_service.import_entry(
        (await _subscription(call)).feed.id,
        imported,
        published_at=float(params.published_at or call.site.clock()),
        unread=params.status == "unread",
        starred=params.starred or None,
    )
    return json_response(models.NewEntryId(entry_id), 201 if is_new else 200)


async def get_counters(call: Call) -> models.Counters:
    counters = await call.reader_service.counters()
    return models.Counters(
        {str(feed_id): total - unread for feed_id, unread, total in counters},
        {str(feed_id): unread for feed_id, unread, _total in counters},
    )


async def get_icon(call: Call) -> models.Icon:
    """Return the icon of a feed, after fetching it if that was never tried."""
    subscription = await _subscription(call)
    store = call.site.store
    if not await store.read(icons.is_looked_up, subscription.feed.id):
        await call.site.icons.fetch_icon(
            subscription.feed.id, subscription.feed.state.site_url or subscription.feed.url
        )
    return await _icon(call, subscription.feed.id)


async def get_icon_by_id(call: Call) -> models.Icon:
    return await _icon(call, min(call.ids["icon_id"], MAX_ID))


async def _icon(call: Call, feed_id: int) -> models.Icon:
    """Return the icon of a feed, whose id is also the id of the icon."""
    icon = await call.reader_service.icon(feed_id)
    if icon is None:
        raise not_found("icon")
    return models.Icon(
        feed_id, icon.type, f"{icon.type};base64,{base64.b64encode(icon.data).decode()}"
    )


async def discover_feeds(call: Call) -> list[models.DiscoveredFeed]:
    discovery = await discover(call.site.aggregator.fetcher, _require_http_url(call.body.url))
    if discovery.error is not None:
        if discovery.error.kind in (Problem.UNREADABLE, Problem.STATUS):
            raise not_found("feed")
        raise UsageError(discovery.error.message)
    return [models.DiscoveredFeed(link.title, link.url, link.kind) for link in discovery.feeds]


async def export(call: Call) -> Response:
    return Response(await call.reader_service.export_opml(), headers=CORS, media_type="text/xml")


async def import_opml(call: Call) -> models.ImportResult:
    report = await call.reader_service.import_opml(call.body)
    return models.ImportResult(f"Feeds imported successfully: {report.summary}")
