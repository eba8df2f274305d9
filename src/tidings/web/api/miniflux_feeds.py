"""Categories and the feeds in them in Miniflux's words."""

import base64

from starlette.responses import Response

from tidings.errors import UsageError
from tidings.fetch.discovery import discover
from tidings.fetch.values import Problem
from tidings.store import icons
from tidings.store.people_rows import Stream, Subscription
from tidings.web.api import miniflux_entries as of_entries
from tidings.web.api import miniflux_values as values
from tidings.web.api.desk import CORS, subscribe
from tidings.web.api.miniflux_entries import TOP, TOP_TITLE, category
from tidings.web.api.miniflux_kept import given, keep
from tidings.web.api.rest import Call, not_found


async def _categories(call: Call) -> list[values.Category]:
    """Miniflux's "All" is what is in no folder."""
    kept = (await call.site.people.settings(call.user)).kept
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
    call.site.aggregator.wake()


# --- feeds -------------------------------------------------------------------------------------------------------------


async def _feeds(call: Call, subscriptions: list[Subscription]) -> list[values.Feed]:
    kept = (await call.site.people.settings(call.user)).kept
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
    if asked.min_interval_s:
        call.reading.check_interval(asked.min_interval_s)  # before anything is added
    made, is_new = await subscribe(call.reading, _absolute(asked.feed_url), folder=folder)
    if not is_new:
        raise UsageError("this feed already exists")
    if asked.crawler or asked.priority != "normal" or asked.min_interval_s:
        await call.reading.change(
            made.feed.id, full_text=asked.crawler, priority=asked.priority, min_interval_s=asked.min_interval_s
        )
    if options := given(asked, values.FeedOptions):
        await keep(call, "feeds", str(made.feed.id), options)
    return values.NewFeedId(made.feed.id)


async def change_feed(call: Call) -> values.Feed:
    asked, one = call.body, await _subscription(call)
    folder = None if asked.category_id is None else await _folder(call, asked.category_id)
    feed_id = one.feed.id
    if asked.min_interval_s:
        call.reading.check_interval(asked.min_interval_s)  # before the address is changed
    if asked.feed_url not in (None, one.feed.url):
        feed_id = await call.reading.readdress(feed_id, _absolute(asked.feed_url))
    await call.reading.change(
        feed_id,
        title=asked.title,
        folder=folder,
        priority=asked.priority,
        full_text=asked.crawler,
        min_interval_s=asked.min_interval_s,
    )
    if options := given(asked, values.FeedOptions):
        await keep(call, "feeds", str(feed_id), options)
    (told,) = await _feeds(call, [await call.reading.subscription(feed_id)])
    return told


async def remove_feed(call: Call) -> None:
    await call.reading.unsubscribe((await _subscription(call)).feed.id)


async def refresh_feed(call: Call) -> None:
    """At once: our own timing gives way, the publisher's wishes never do."""
    await call.site.aggregator.poll([(await _subscription(call)).feed.id])


async def refresh_feeds(call: Call) -> None:
    """Miniflux looks at those that are due; here somebody always does."""
    call.site.aggregator.wake()


async def read_feed(call: Call) -> None:
    await call.reading.mark_all_read(Stream(feeds=((await _subscription(call)).feed.id,)))


async def get_counters(call: Call) -> values.Counters:
    found = await call.reading.counters()
    return values.Counters({str(i): of - unread for i, unread, of in found}, {str(i): unread for i, unread, _ in found})


async def get_icon(call: Call) -> values.Icon:
    """Looked for now, if nobody has done so before."""
    one = await _subscription(call)
    store = call.site.store
    if not await store.read(icons.looked_for, one.feed.id):
        await call.site.icons.look(one.feed.id, one.feed.state.site_url or one.feed.url)
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
    found = await discover(call.site.aggregator.fetcher, _absolute(call.body.url))
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
