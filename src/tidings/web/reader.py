"""Reader pages with the entry list, the article, the sidebar and changes of entry state.

Every page works without JavaScript, with links and forms. With JavaScript only the pane that
changes is requested (``part=list``, ``part=article``).
"""

from http import HTTPStatus
from typing import Any
from urllib.parse import urlencode

from msgspec import Struct
from msgspec.structs import replace
from starlette.responses import Response
from starlette.routing import BaseRoute

from tidings.errors import UsageError
from tidings.i18n import _, n_
from tidings.store.user_models import Folder, Item, SavedSearch, Settings, Subscription, Tag
from tidings.users import ArticleUnavailable
from tidings.web import image_proxy, views
from tidings.web.request_context import AppServices, RequestContext, page
from tidings.web.undo import undo_mark_read
from tidings.web.views import View

#: With more feeds than this, the sidebar contains only those of the open folder, and loads the
#: others when their folder is opened.
MAX_SIDEBAR_FEEDS = 500
#: Maximum number of tags in the sidebar, which shows those with the most entries.
MAX_SIDEBAR_TAGS = 30


class Sidebar(Struct, frozen=True):
    """Content of the sidebar, with counts, folders and their feeds, tags and saved searches."""

    unread: int
    starred: int
    folders: tuple[tuple[Folder, tuple[Subscription, ...]], ...]
    unfiled: tuple[Subscription, ...]  #: subscriptions in no folder
    tags: tuple[Tag, ...]
    searches: tuple[SavedSearch, ...]
    feeds: int
    failing: int


async def sidebar(context: RequestContext, open_folder: int | None = None) -> Sidebar:
    """Return the content of the sidebar; ``open_folder`` is the folder of the current page."""
    reader_service = context.reader_service
    totals = await reader_service.totals()
    subscriptions = (
        await reader_service.subscriptions()
        if totals.feeds <= MAX_SIDEBAR_FEEDS
        else await reader_service.subscriptions(folder_ids=(0, open_folder or 0))
    )
    by_folder: dict[int | None, list[Subscription]] = {}
    for subscription in subscriptions:
        by_folder.setdefault(subscription.folder_id, []).append(subscription)
    return Sidebar(
        unread=totals.unread,
        starred=totals.starred,
        folders=tuple(
            (folder, tuple(by_folder.get(folder.id, ())))
            for folder in await reader_service.folders()
        ),
        unfiled=tuple(by_folder.get(None, ())),
        tags=tuple(
            sorted(
                sorted(await reader_service.tags(), key=lambda tag: -tag.entries)[
                    :MAX_SIDEBAR_TAGS
                ],
                key=lambda tag: tag.name,
            )
        ),
        searches=tuple(await reader_service.saved_searches()),
        feeds=totals.feeds,
        failing=totals.failing,
    )


def routes(services: AppServices) -> list[BaseRoute]:
    views_with_list = (
        "/unread",
        "/all",
        "/starred",
        "/search",
        "/feed/{id:int}",
        "/folder/{id:int}",
        "/tag/{id}",
        "/saved/{id:int}",
    )
    return [
        *(page(services, path, show) for path in views_with_list),
        page(services, "/entry/{id:int}", article),
        page(services, "/entry/{id:int}", change, is_post=True),
        page(services, "/folder/{id:int}/feeds", folder_feeds),
        page(services, "/sidebar", sidebar_part),
        page(services, "/mark", mark, is_post=True),
        page(services, "/mark-all", mark_all, is_post=True),
        page(services, "/undo", undo, is_post=True),
        page(services, "/counts", counts),
        page(services, "/icon/{id:int}", icon),
    ]


async def show(context: RequestContext) -> Response:
    """Show the entry list of a view, and the article given by the parameter ``entry``.

    The parameter ``after`` is the cursor of the keyset pagination.
    """
    query, settings, reader_service = (
        context.request.query_params,
        await context.settings(),
        context.reader_service,
    )
    view = await views.find(reader_service, context.request.url.path[1:], query.get("q", ""))
    shown_entries = query.get("show") or (
        "unread" if view.name.startswith(("feed/", "folder/")) else "all"
    )
    stream = view.stream_for(settings, shown_entries)
    empty_search = view.name == "search" and not view.search
    limit = max(10, min(settings.page_size, 200))
    entry_page = (
        None
        if empty_search
        else await reader_service.page(stream, limit=limit, after=query.get("after") or None)
    )
    items = entry_page.items if entry_page else ()
    values: dict[str, Any] = {
        "view": view,
        "show": shown_entries,
        "items": items,
        "next": _link(view, show=shown_entries, after=entry_page.next)
        if entry_page and entry_page.next
        else "",
        "current_path": _link(view, show=shown_entries, after=query.get("after", "")),
        "titles": await reader_service.titles(item.entry.feed_id for item in items),
        "first": not query.get("after"),
        "selected": None,
        "link": _link,
    }
    if query.get("part") == "list":
        return await context.render("_list.html", **values)
    if (entry_id := query.get("entry", "")).isdecimal() and len(entry_id) < 12:
        full_text = "full_text" in query
        values |= await _article(context, int(entry_id), settings, full_text=full_text)
    return await context.render(
        "reader.html", sidebar=await sidebar(context, view.folder_id), **values
    )


def _link(view: View, **query: str) -> str:
    """Return a link to the view with query parameters, without the empty ones."""
    query = {name: value for name, value in query.items() if value}
    return view.path + (("&" if "?" in view.path else "?") + urlencode(query) if query else "")


async def article(context: RequestContext) -> Response:
    """Return the article pane, or redirect to the article in the list of its feed."""
    entry_id = context.request.path_params["id"]
    full_text = "full_text" in context.request.query_params
    if context.request.query_params.get("part") == "article":
        return await context.render(
            "_article.html",
            current_path="",
            **await _article(context, entry_id, await context.settings(), full_text=full_text),
        )
    item = await context.reader_service.item(entry_id)
    subscribed = await context.reader_service.subscriptions([item.entry.feed_id])
    path = (
        f"/feed/{item.entry.feed_id}?show=all&entry={entry_id}"
        if subscribed
        else f"/starred?entry={entry_id}"
    )
    return context.redirect(f"{path}&full_text=1" if full_text else path)


async def _article(
    context: RequestContext, entry_id: int, settings: Settings, *, full_text: bool = False
) -> dict[str, Any]:
    """Return the template values of an article; ``full_text`` loads it from its site."""
    reader_service, error = context.reader_service, ""
    item = await reader_service.item(entry_id)
    if full_text:
        try:
            item = replace(
                item, entry=replace(item.entry, content=await reader_service.full_text(entry_id))
            )
        except ArticleUnavailable as unavailable:
            error = str(unavailable)
    duplicates = {
        other.entry.feed_id: other for other in await reader_service.items(item.duplicates)
    }.values()
    titles = await reader_service.titles(
        [item.entry.feed_id, *(other.entry.feed_id for other in duplicates)]
    )
    key = await context.services.key("images") if settings.image_proxy else b""
    content = image_proxy.proxy_images(item, key)
    return {
        "selected": item,
        "duplicates": duplicates,
        "feed_titles": titles,
        "content": content,
        "full_text": full_text,
        "error": error,
    }


async def change(context: RequestContext) -> Response:
    """Change the read, star, rating or tag state of one entry, as the form states."""
    form, reader_service = context.form, context.reader_service
    item = await reader_service.item(context.request.path_params["id"])
    changes: dict[str, Any]
    if "read" in form:
        changes = {"unread": form.get("read") == "0"}
    elif "star" in form:
        changes = {"starred": form.get("star") == "1"}
    elif "rating" in form:
        changes = {"rating": form.number("rating", 0, 5)}
    elif "tag" in form:
        changes = {"add_tags": [name for name in form.get("tag").split(",") if name.strip()]}
    elif "untag" in form:
        changes = {"remove_tags": [form.get("untag")]}
    else:
        raise UsageError(_("the form is incomplete; reload the page and try again"))
    await reader_service.mark([item.entry.id], **changes)
    if context.wants_json:
        return context.json(_entry_state(await reader_service.item(item.entry.id)))
    return context.redirect_back(f"/entry/{item.entry.id}")


def _entry_state(item: Item) -> dict[str, Any]:
    return {
        "id": item.entry.id,
        "unread": item.unread,
        "starred": item.starred,
        "rating": item.rating,
        "tags": item.tags,
    }


async def mark(context: RequestContext) -> Response:
    """Mark several entries as read or unread, such as those that were scrolled past."""
    changed_ids = await context.reader_service.mark(
        context.form.ids(), unread=context.form.get("unread") == "1"
    )
    return context.json({"ids": changed_ids})


async def mark_all(context: RequestContext) -> Response:
    """Mark all entries of a view as read that arrived before the page was rendered."""
    form = context.form
    view = await views.find(context.reader_service, form.get("view"), form.get("q"))
    until = float(form.number("until", 0, 2**40)) if "until" in form else None
    changed_ids = await context.reader_service.mark_all_read(view.stream, until=until)
    number = len(changed_ids)
    text = n_("%(num)s post marked as read", "%(num)s posts marked as read", number)
    if context.wants_json:
        if changed_ids:
            context.services.undo[context.user.id] = undo_mark_read(changed_ids)
        return context.json({"text": text, "ids": number})
    context.flash(text, undo=undo_mark_read(changed_ids) if changed_ids else None)
    return context.redirect_back(view.path)


async def undo(context: RequestContext) -> Response:
    """Undo the user's last action, unless it was undone already or the service restarted."""
    last = context.services.undo.pop(context.user.id, None)
    if last is not None:
        await last.apply(context.reader_service)
    return (
        context.json({"done": last is not None})
        if context.wants_json
        else context.redirect_back(last.path if last else "/unread")
    )


async def counts(context: RequestContext) -> Response:
    """Return the unread counts by feed, folder and tag, and the number of starred entries."""
    subscriptions = await context.reader_service.subscriptions()
    folders: dict[str, int] = {}
    for subscription in subscriptions:
        if subscription.folder_id is not None and subscription.unread:
            folders[str(subscription.folder_id)] = (
                folders.get(str(subscription.folder_id), 0) + subscription.unread
            )
    feeds = {str(s.feed.id): s.unread for s in subscriptions if s.unread}
    tags = {tag.name: tag.unread for tag in await context.reader_service.tags() if tag.unread}
    starred = (await context.reader_service.totals()).starred
    return context.json(
        {
            "unread": sum(feeds.values()),
            "starred": starred,
            "feeds": feeds,
            "folders": folders,
            "tags": tags,
        }
    )


async def sidebar_part(context: RequestContext) -> Response:
    """Return the sidebar as an HTML fragment, for pages whose feeds or tags have changed."""
    return await context.render("_sidebar.html", sidebar=await sidebar(context))


async def folder_feeds(context: RequestContext) -> Response:
    folder_id = context.request.path_params["id"]
    feeds = await context.reader_service.subscriptions(folder_ids=[folder_id])
    return await context.render("_feeds.html", feeds=feeds, view=None)


async def icon(context: RequestContext) -> Response:
    """Return a feed's favicon, sandboxed because an SVG may contain scripts."""
    favicon = await context.reader_service.icon(context.request.path_params["id"])
    if favicon is None or not favicon.type.startswith("image/"):
        return Response(status_code=HTTPStatus.NOT_FOUND)
    headers = {
        "cache-control": "private, max-age=86400",
        "content-security-policy": image_proxy.SANDBOX,
    }
    return Response(favicon.data, media_type=favicon.type, headers=headers)
