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
from tidings.people import NoArticle
from tidings.store.people_rows import Folder, Item, SavedSearch, Settings, Subscription, Tag
from tidings.texts import _, n_
from tidings.web import images, views
from tidings.web.undo import of_marks
from tidings.web.views import View
from tidings.web.visit import Site, Visit, page

#: With more feeds than this the sidebar holds those of the open folder alone, and gets others when their folder is opened.
MOST_IN_SIDEBAR = 500
#: Tags shown in the sidebar, the fullest first.
MOST_TAGS = 30


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


async def sidebar(visit: Visit, open_folder: int | None = None) -> Sidebar:
    reading = visit.reading
    totals = await reading.totals()
    few = totals.feeds <= MOST_IN_SIDEBAR
    shown = await reading.subscriptions() if few else await reading.subscriptions(folder_ids=(0, open_folder or 0))
    by_folder: dict[int | None, list[Subscription]] = {}
    for subscription in shown:
        by_folder.setdefault(subscription.folder_id, []).append(subscription)
    return Sidebar(
        unread=totals.unread,
        starred=totals.starred,
        folders=tuple((folder, tuple(by_folder.get(folder.id, ()))) for folder in await reading.folders()),
        top=tuple(by_folder.get(None, ())),
        tags=tuple(sorted(sorted(await reading.tags(), key=lambda tag: -tag.entries)[:MOST_TAGS], key=lambda tag: tag.name)),
        searches=tuple(await reading.saved_searches()),
        feeds=totals.feeds,
        failing=totals.failing,
    )


def routes(site: Site) -> list[BaseRoute]:
    shown = ("/unread", "/all", "/starred", "/search", "/feed/{id:int}", "/folder/{id:int}", "/tag/{id}", "/saved/{id:int}")
    return [
        *(page(site, path, show) for path in shown),
        page(site, "/entry/{id:int}", article),
        page(site, "/entry/{id:int}", change, posts=True),
        page(site, "/folder/{id:int}/feeds", folder_feeds),
        page(site, "/sidebar", places),
        page(site, "/mark", mark, posts=True),
        page(site, "/mark-all", mark_all, posts=True),
        page(site, "/undo", undo, posts=True),
        page(site, "/counts", counts),
        page(site, "/icon/{id:int}", icon),
    ]


async def show(visit: Visit) -> Response:
    """A list, and beside it the article that is open (``entry=``)."""
    query, settings, reading = visit.request.query_params, await visit.settings(), visit.reading
    view = await views.find(reading, visit.request.url.path[1:], query.get("q", ""))
    shown = query.get("show") or ("unread" if view.name.startswith(("feed/", "folder/")) else "all")
    stream = view.shown(settings, shown)
    nothing = view.name == "search" and not view.search
    limit = max(10, min(settings.page_size, 200))
    found = None if nothing else await reading.page(stream, limit=limit, after=query.get("after") or None)
    items = found.items if found else ()
    values: dict[str, Any] = {
        "view": view,
        "show": shown,
        "items": items,
        "next": _link(view, show=shown, after=found.next) if found and found.next else "",
        "here": _link(view, show=shown, after=query.get("after", "")),
        "titles": await reading.titles(item.entry.feed_id for item in items),
        "first": not query.get("after"),
        "opened": None,
        "link": _link,
    }
    if query.get("part") == "list":
        return await visit.render("_list.html", **values)
    if (wanted := query.get("entry", "")).isdecimal() and len(wanted) < 12:
        values |= await _article(visit, int(wanted), settings, whole="whole" in query)
    return await visit.render("reader.html", sidebar=await sidebar(visit, view.folder_id), **values)


def _link(view: View, **query: str) -> str:
    """An address of the view."""
    query = {name: value for name, value in query.items() if value}
    return view.path + (("&" if "?" in view.path else "?") + urlencode(query) if query else "")


async def article(visit: Visit) -> Response:
    """One entry: its pane alone, or among those of its feed."""
    entry_id, whole = visit.request.path_params["id"], "whole" in visit.request.query_params
    if visit.request.query_params.get("part") == "article":
        return await visit.render(
            "_article.html", here="", **await _article(visit, entry_id, await visit.settings(), whole=whole)
        )
    item = await visit.reading.item(entry_id)
    own = await visit.reading.subscriptions([item.entry.feed_id])
    place = f"/feed/{item.entry.feed_id}?show=all&entry={entry_id}" if own else f"/starred?entry={entry_id}"
    return visit.go(f"{place}&whole=1" if whole else place)


async def _article(visit: Visit, entry_id: int, settings: Settings, *, whole: bool = False) -> dict[str, Any]:
    """With ``whole``, the article as its site has it, or why there is none."""
    reading, trouble = visit.reading, ""
    item = await reading.item(entry_id)
    if whole:
        try:
            item = replace(item, entry=replace(item.entry, content=await reading.full_text(entry_id)))
        except NoArticle as problem:
            trouble = str(problem)
    also = {other.entry.feed_id: other for other in await reading.items(item.also)}.values()
    titles = await reading.titles([item.entry.feed_id, *(other.entry.feed_id for other in also)])
    key = await visit.site.key("images") if settings.image_proxy else b""
    content = images.through_proxy(item, key)
    return {"opened": item, "also": also, "names": titles, "content": content, "whole": whole, "trouble": trouble}


async def change(visit: Visit) -> Response:
    """The buttons of an article: one of read, star, rating, tag, untag."""
    form, reading = visit.form, visit.reading
    item = await reading.item(visit.request.path_params["id"])
    wish: dict[str, Any]
    if "read" in form:
        wish = {"unread": form.get("read") == "0"}
    elif "star" in form:
        wish = {"starred": form.get("star") == "1"}
    elif "rating" in form:
        wish = {"rating": form.number("rating", 0, 5)}
    elif "tag" in form:
        wish = {"add_tags": [name for name in form.get("tag").split(",") if name.strip()]}
    elif "untag" in form:
        wish = {"remove_tags": [form.get("untag")]}
    else:
        raise UsageError(_("nothing was asked for"))
    await reading.mark([item.entry.id], **wish)
    if visit.wants_json:
        return visit.json(_marks(await reading.item(item.entry.id)))
    return visit.back(f"/entry/{item.entry.id}")


def _marks(item: Item) -> dict[str, Any]:
    return {
        "id": item.entry.id,
        "unread": item.unread,
        "starred": item.starred,
        "rating": item.rating,
        "tags": item.tags,
    }


async def mark(visit: Visit) -> Response:
    """Many at once: those that were scrolled past."""
    done = await visit.reading.mark(visit.form.ids(), unread=visit.form.get("unread") == "1")
    return visit.json({"ids": done})


async def mark_all(visit: Visit) -> Response:
    """All of a view, up to what had arrived when the page was made: what came since was never seen."""
    form = visit.form
    view = await views.find(visit.reading, form.get("view"), form.get("q"))
    until = float(form.number("until", 0, 2**40)) if "until" in form else None
    done = await visit.reading.mark_all_read(view.stream, until=until)
    text = n_("%(num)s entry marked as read", "%(num)s entries marked as read", len(done))
    if visit.wants_json:
        if done:
            visit.site.undo[visit.user.id] = of_marks(done)
        return visit.json({"text": text, "ids": len(done)})
    visit.note(text, undo=of_marks(done) if done else None)
    return visit.back(view.path)


async def undo(visit: Visit) -> Response:
    """What was done last; nothing where that is taken back already, or the service has begun anew since."""
    last = visit.site.undo.pop(visit.user.id, None)
    if last is not None:
        await last.act(visit.reading)
    return visit.json({"done": last is not None}) if visit.wants_json else visit.back(last.path if last else "/unread")


async def counts(visit: Visit) -> Response:
    """What is starred, and what is unread, by feed; folders are added up by who shows them."""
    every = await visit.reading.subscriptions()
    folders: dict[str, int] = {}
    for subscription in every:
        if subscription.folder_id is not None and subscription.unread:
            folders[str(subscription.folder_id)] = folders.get(str(subscription.folder_id), 0) + subscription.unread
    feeds = {str(s.feed.id): s.unread for s in every if s.unread}
    tags = {tag.name: tag.unread for tag in await visit.reading.tags() if tag.unread}
    starred = (await visit.reading.totals()).starred
    return visit.json({"unread": sum(feeds.values()), "starred": starred, "feeds": feeds, "folders": folders, "tags": tags})


async def places(visit: Visit) -> Response:
    """The sidebar alone, for pages whose feeds or tags have changed since they were made."""
    return await visit.render("_sidebar.html", sidebar=await sidebar(visit))


async def folder_feeds(visit: Visit) -> Response:
    folder_id = visit.request.path_params["id"]
    feeds = await visit.reading.subscriptions(folder_ids=[folder_id])
    return await visit.render("_feeds.html", feeds=feeds, view=None)


async def icon(visit: Visit) -> Response:
    """A feed's picture. It comes from a stranger: an SVG among them may run nothing."""
    found = await visit.reading.icon(visit.request.path_params["id"])
    if found is None or not found.type.startswith("image/"):
        return Response(status_code=HTTPStatus.NOT_FOUND)
    headers = {"cache-control": "private, max-age=86400", "content-security-policy": images.SANDBOX}
    return Response(found.data, media_type=found.type, headers=headers)
