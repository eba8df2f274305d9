"""The three panes: feeds, entries, article; and what a reader does with entries.

Every page is whole without scripts: links and forms do everything. With scripts only the pane that changes is asked for
(``part=list``, ``part=article``), and the sidebar is sent once.
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
from tidings.web.request_context import RequestContext, Site, page
from tidings.web.undo import undo_mark_read
from tidings.web.views import View

#: With more feeds than this the sidebar holds those of the open folder alone, and gets others when their folder is opened.
MAX_SIDEBAR_FEEDS = 500
#: Tags shown in the sidebar, the fullest first.
MAX_SIDEBAR_TAGS = 30


class Sidebar(Struct, frozen=True):
    """What stands at the side of every page."""

    unread: int
    starred: int
    folders: tuple[tuple[Folder, tuple[Subscription, ...]], ...]
    top: tuple[Subscription, ...]  #: in no folder
    tags: tuple[Tag, ...]
    searches: tuple[SavedSearch, ...]
    feeds: int
    failing: int


async def sidebar(context: RequestContext, open_folder: int | None = None) -> Sidebar:
    reader_service = context.reader_service
    totals = await reader_service.totals()
    few = totals.feeds <= MAX_SIDEBAR_FEEDS
    shown = (
        await reader_service.subscriptions()
        if few
        else await reader_service.subscriptions(folder_ids=(0, open_folder or 0))
    )
    by_folder: dict[int | None, list[Subscription]] = {}
    for subscription in shown:
        by_folder.setdefault(subscription.folder_id, []).append(subscription)
    return Sidebar(
        unread=totals.unread,
        starred=totals.starred,
        folders=tuple(
            (folder, tuple(by_folder.get(folder.id, ())))
            for folder in await reader_service.folders()
        ),
        top=tuple(by_folder.get(None, ())),
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


def routes(site: Site) -> list[BaseRoute]:
    shown = (
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
        *(page(site, path, show) for path in shown),
        page(site, "/entry/{id:int}", article),
        page(site, "/entry/{id:int}", change, posts=True),
        page(site, "/folder/{id:int}/feeds", folder_feeds),
        page(site, "/sidebar", sidebar_part),
        page(site, "/mark", mark, posts=True),
        page(site, "/mark-all", mark_all, posts=True),
        page(site, "/undo", undo, posts=True),
        page(site, "/counts", counts),
        page(site, "/icon/{id:int}", icon),
    ]


async def show(context: RequestContext) -> Response:
    """A list, and beside it the article that is open (``entry=``)."""
    query, settings, reader_service = (
        context.request.query_params,
        await context.settings(),
        context.reader_service,
    )
    view = await views.find(reader_service, context.request.url.path[1:], query.get("q", ""))
    shown = query.get("show") or ("unread" if view.name.startswith(("feed/", "folder/")) else "all")
    stream = view.shown(settings, shown)
    nothing = view.name == "search" and not view.search
    limit = max(10, min(settings.page_size, 200))
    found = (
        None
        if nothing
        else await reader_service.page(stream, limit=limit, after=query.get("after") or None)
    )
    items = found.items if found else ()
    values: dict[str, Any] = {
        "view": view,
        "show": shown,
        "items": items,
        "next": _link(view, show=shown, after=found.next) if found and found.next else "",
        "here": _link(view, show=shown, after=query.get("after", "")),
        "titles": await reader_service.titles(item.entry.feed_id for item in items),
        "first": not query.get("after"),
        "opened": None,
        "link": _link,
    }
    if query.get("part") == "list":
        return await context.render("_list.html", **values)
    if (wanted := query.get("entry", "")).isdecimal() and len(wanted) < 12:
        values |= await _article(context, int(wanted), settings, whole="whole" in query)
    return await context.render(
        "reader.html", sidebar=await sidebar(context, view.folder_id), **values
    )


def _link(view: View, **query: str) -> str:
    """An address of the view."""
    query = {name: value for name, value in query.items() if value}
    return view.path + (("&" if "?" in view.path else "?") + urlencode(query) if query else "")


async def article(context: RequestContext) -> Response:
    """One entry: its pane alone, or among those of its feed."""
    entry_id, whole = context.request.path_params["id"], "whole" in context.request.query_params
    if context.request.query_params.get("part") == "article":
        return await context.render(
            "_article.html",
            here="",
            **await _article(context, entry_id, await context.settings(), whole=whole),
        )
    item = await context.reader_service.item(entry_id)
    own = await context.reader_service.subscriptions([item.entry.feed_id])
    place = (
        f"/feed/{item.entry.feed_id}?show=all&entry={entry_id}"
        if own
        else f"/starred?entry={entry_id}"
    )
    return context.redirect(f"{place}&whole=1" if whole else place)


async def _article(
    context: RequestContext, entry_id: int, settings: Settings, *, whole: bool = False
) -> dict[str, Any]:
    """With ``whole``, the article as its site has it, or why there is none."""
    reader_service, trouble = context.reader_service, ""
    item = await reader_service.item(entry_id)
    if whole:
        try:
            item = replace(
                item, entry=replace(item.entry, content=await reader_service.full_text(entry_id))
            )
        except ArticleUnavailable as problem:
            trouble = str(problem)
    duplicates = {
        other.entry.feed_id: other for other in await reader_service.items(item.duplicates)
    }.values()
    titles = await reader_service.titles(
        [item.entry.feed_id, *(other.entry.feed_id for other in duplicates)]
    )
    key = await context.site.key("images") if settings.image_proxy else b""
    content = image_proxy.proxy_images(item, key)
    return {
        "opened": item,
        "also": duplicates,
        "names": titles,
        "content": content,
        "whole": whole,
        "trouble": trouble,
    }


async def change(context: RequestContext) -> Response:
    """The buttons of an article: one of read, star, rating, tag, untag."""
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
        raise UsageError(_("nothing was asked for"))
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
    """Many at once: those that were scrolled past."""
    done = await context.reader_service.mark(
        context.form.ids(), unread=context.form.get("unread") == "1"
    )
    return context.json({"ids": done})


async def mark_all(context: RequestContext) -> Response:
    """All of a view, up to what had arrived when the page was made: what came since was never seen."""
    form = context.form
    view = await views.find(context.reader_service, form.get("view"), form.get("q"))
    until = float(form.number("until", 0, 2**40)) if "until" in form else None
    done = await context.reader_service.mark_all_read(view.stream, until=until)
    text = n_("%(num)s entry marked as read", "%(num)s entries marked as read", len(done))
    if context.wants_json:
        if done:
            context.site.undo[context.user.id] = undo_mark_read(done)
        return context.json({"text": text, "ids": len(done)})
    context.flash(text, undo=undo_mark_read(done) if done else None)
    return context.redirect_back(view.path)


async def undo(context: RequestContext) -> Response:
    """What was done last; nothing where that is taken back already, or the service has begun anew since."""
    last = context.site.undo.pop(context.user.id, None)
    if last is not None:
        await last.apply(context.reader_service)
    return (
        context.json({"done": last is not None})
        if context.wants_json
        else context.redirect_back(last.path if last else "/unread")
    )


async def counts(context: RequestContext) -> Response:
    """What is starred, and what is unread, by feed; folders are added up by who shows them."""
    every = await context.reader_service.subscriptions()
    folders: dict[str, int] = {}
    for subscription in every:
        if subscription.folder_id is not None and subscription.unread:
            folders[str(subscription.folder_id)] = (
                folders.get(str(subscription.folder_id), 0) + subscription.unread
            )
    feeds = {str(s.feed.id): s.unread for s in every if s.unread}
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
    """The sidebar alone, for pages whose feeds or tags have changed since they were made."""
    return await context.render("_sidebar.html", sidebar=await sidebar(context))


async def folder_feeds(context: RequestContext) -> Response:
    folder_id = context.request.path_params["id"]
    feeds = await context.reader_service.subscriptions(folder_ids=[folder_id])
    return await context.render("_feeds.html", feeds=feeds, view=None)


async def icon(context: RequestContext) -> Response:
    """A feed's picture. It comes from a stranger: an SVG among them may run nothing."""
    found = await context.reader_service.icon(context.request.path_params["id"])
    if found is None or not found.type.startswith("image/"):
        return Response(status_code=HTTPStatus.NOT_FOUND)
    headers = {
        "cache-control": "private, max-age=86400",
        "content-security-policy": image_proxy.SANDBOX,
    }
    return Response(found.data, media_type=found.type, headers=headers)
