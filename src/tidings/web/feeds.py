"""Looking after feeds: add, import, rename, move, leave; and for each when it is polled next, and why."""

from typing import Any, get_args

from starlette.responses import Response
from starlette.routing import BaseRoute

from tidings.aggregator.explain import as_json, explain
from tidings.errors import TidingsError, UsageError
from tidings.reasons import render
from tidings.store.evidence import delay_needs
from tidings.store.people_rows import Action, Priority, Rule, Stream, Subscription
from tidings.texts import _, n_
from tidings.web import feed_page, output, pages, undo, views
from tidings.web.reader import sidebar
from tidings.web.visit import Site, Visit, page

#: Rows of the list of feeds on one page.
MOST_ROWS = 200
#: Looks with their reasons on a feed's page.
LAST_LOOKS = 20


def routes(site: Site) -> list[BaseRoute]:
    return [
        page(site, "/feeds", listing),
        page(site, "/feeds/add", add_form),
        page(site, "/feeds/add", add, posts=True),
        page(site, "/feeds/import", import_list, posts=True),
        page(site, "/feeds/export.opml", export),
        page(site, "/feed/{id:int}/about", about),
        page(site, "/feed/{id:int}/about.json", about_data),
        page(site, "/feed/{id:int}/about", change, posts=True),
        page(site, "/feed/{id:int}/leave", leave, posts=True),
        page(site, "/feed/{id:int}/look", look, posts=True),
        page(site, "/folders", change_folder, posts=True),
        page(site, "/tags", change_tag, posts=True),
        page(site, "/rules", rules),
        page(site, "/rules", change_rules, posts=True),
        page(site, "/searches", change_searches, posts=True),
        page(site, "/statistics", statistics),
    ]


async def listing(visit: Visit) -> Response:
    """All subscriptions, those with troubles first, a page at a time."""
    every = sorted(await visit.reading.subscriptions(), key=_worst_first)
    sought = visit.request.query_params.get("q", "").casefold().strip()
    if sought:
        every = [s for s in every if sought in s.title.casefold() or sought in s.feed.url.casefold()]
    number = visit.request.query_params.get("page", "1")
    at = max(1, int(number)) if number.isdecimal() and len(number) < 6 else 1
    return await visit.render(
        "feeds.html",
        sidebar=await sidebar(visit),
        feeds=every[(at - 1) * MOST_ROWS : at * MOST_ROWS],
        total=len(every),
        at=at,
        most=-(-len(every) // MOST_ROWS),
        sought=sought,
        folders=await visit.reading.folders(),
        tags=await visit.reading.tags(),
    )


def _worst_first(subscription: Subscription) -> tuple[int, float, str]:
    state = subscription.feed.state
    dead = subscription.feed.retired_at is not None
    return (0 if dead or state.errors else 1), state.failing_since or 0.0, subscription.title.casefold()


# --- adding ------------------------------------------------------------------------------------------------------------


async def add_form(visit: Visit, **values: Any) -> Response:
    told: dict[str, Any] = {
        "url": visit.request.query_params.get("url", ""),
        "folder": "",
        "problem": "",
        "choices": (),
        "followed": {},
    } | values
    return await visit.render(
        "add.html",
        sidebar=await sidebar(visit),
        folders=await visit.reading.folders(),
        suggestions=await visit.reading.suggestions(),
        **told,
    )


async def add(visit: Visit) -> Response:
    """One feed, or those that were chosen among several of a site."""
    url, folder = visit.form.get("url"), visit.form.get("folder")
    chosen = visit.form.all("choice") or [url]
    try:
        if not chosen[0]:
            raise UsageError(_("type the address of a site or of a feed"))
        for address in chosen[:100]:
            addition = await visit.reading.subscribe(address, folder=folder)
            if addition.added is None:
                return await add_form(visit, url=address, folder=folder, choices=addition.choices, followed=addition.followed)
    except TidingsError as error:
        return await add_form(visit, status=400, url=url, folder=folder, problem=pages.sentence(str(error)))
    assert addition.added is not None
    added = await visit.reading.subscription(addition.added.feed_id)
    visit.note(_("You follow %(title)s now.", title=added.title))
    return visit.go(f"/feed/{added.feed.id}")


async def import_list(visit: Visit) -> Response:
    body = visit.form.files.get("file") or visit.form.get("list").encode()
    try:
        if not body:
            raise UsageError(_("choose a file: OPML as every reader exports it, or one address on each line"))
        report = await visit.reading.import_opml(body)
    except TidingsError as error:
        return await add_form(visit, status=400, problem=pages.sentence(str(error)))
    if report.problems:
        return await visit.render("imported.html", sidebar=await sidebar(visit), report=report)
    added = n_("%(num)s feed is followed now", "%(num)s feeds are followed now", len(report.new))
    visit.note(added + (_("; %(num)s were known already", num=len(report.known)) if report.known else "") + ".")
    return visit.go("/unread")


async def export(visit: Visit) -> Response:
    headers = {"content-disposition": 'attachment; filename="tidings.opml"'}
    return Response(await visit.reading.export_opml(), media_type="text/x-opml", headers=headers)


# --- one feed ----------------------------------------------------------------------------------------------------------


async def about(visit: Visit) -> Response:
    subscription = await visit.reading.subscription(visit.request.path_params["id"])
    limits = visit.site.aggregator.brain.limits
    told = await explain(visit.site.store, subscription.feed, visit.site.clock(), polls=LAST_LOOKS, limits=limits)
    return await visit.render(
        "feed.html",
        sidebar=await sidebar(visit, subscription.folder_id),
        feed=subscription,
        told=told,
        output=await output.address(visit.site, visit.user, f"feed/{subscription.feed.id}"),
        drawn=await feed_page.drawn(visit, told),
        folders=await visit.reading.folders(),
        priorities=get_args(Priority),
        min_interval=feed_page.min_interval_text(subscription, told.min_interval),
        intervals=feed_page.interval_choices(visit.reading, subscription, told.min_interval),
    )


async def about_data(visit: Visit) -> Response:
    """What the page is made from."""
    subscription = await visit.reading.subscription(visit.request.path_params["id"])
    site, limits = visit.site, visit.site.aggregator.brain.limits
    told = await explain(site.store, subscription.feed, site.clock(), polls=feed_page.MOST_LOOKS, limits=limits)
    return visit.json(as_json(told))


async def change(visit: Visit) -> Response:
    form, feed_id = visit.form, visit.request.path_params["id"]
    priority = next((known for known in get_args(Priority) if known == form.get("priority")), None)
    await visit.reading.change(
        feed_id,
        title=form.get("title"),
        folder=form.get("folder"),
        priority=priority,
        full_text="full_text" in form,
        min_interval_s=_interval(form.get("min_interval")) if "min_interval" in form else None,
    )
    visit.note(_("Saved."))
    return visit.go(f"/feed/{feed_id}/about")


def _interval(text: str) -> float:
    """Seconds of the form's minimum interval; 0 for automatic."""
    if text in ("", "0"):
        return 0.0
    if not (text.isascii() and text.isdecimal() and len(text) < 10):
        raise UsageError(_("choose a minimum interval from the list, not %(text)s", text=repr(text[:50])))
    return float(text)


async def leave(visit: Visit) -> Response:
    subscription = await visit.reading.subscription(visit.request.path_params["id"])
    undoing = await undo.of_feed(visit.reading, subscription.feed.id, visit.site.clock())
    await visit.reading.unsubscribe(subscription.feed.id)
    text = _("Unsubscribed from %(title)s. Starred and tagged posts stay.", title=subscription.title)
    visit.note(text, undo=undoing)
    return visit.go("/feeds")


async def look(visit: Visit) -> Response:
    """Look at once, by hand."""
    subscription = await visit.reading.subscription(visit.request.path_params["id"])
    polled = await visit.site.aggregator.poll([subscription.feed.id])
    if polled.skipped:
        visit.note(pages.sentence(render(polled.skipped[0].reason)))
    elif polled.failed:
        visit.note(_("Check failed; see below."))
    else:
        visit.note(n_("%(num)s new entry.", "%(num)s new entries.", polled.new) if polled.new else _("Nothing new."))
    return visit.go(f"/feed/{subscription.feed.id}/about")


async def change_folder(visit: Visit) -> Response:
    form, reading = visit.form, visit.reading
    if form.get("do") == "add":
        await reading.add_folder(form.get("name"))
    elif form.get("do") == "rename":
        await reading.rename_folder(form.number("id", 1, 2**40), form.get("name"))
    elif form.get("do") == "remove":
        folder_id = form.number("id", 1, 2**40)
        undoing = await undo.of_folder(reading, folder_id)
        await reading.remove_folder(folder_id)
        visit.note(_("The folder is gone; its feeds stay."), undo=undoing)
        return visit.go("/feeds#folders")
    else:
        raise UsageError(_("nothing was asked for"))
    visit.note(_("Saved."))
    return visit.go("/feeds#folders")


async def change_tag(visit: Visit) -> Response:
    form, reading = visit.form, visit.reading
    if form.get("do") == "rename":
        await reading.rename_tag(form.get("tag"), form.get("name"))
    elif form.get("do") == "remove":
        undoing = await undo.of_tag(reading, form.get("tag"))
        await reading.remove_tag(form.get("tag"))
        visit.note(_("The tag %(tag)s is gone from all entries.", tag=form.get("tag")), undo=undoing)
        return visit.go("/feeds#tags")
    else:
        raise UsageError(_("nothing was asked for"))
    visit.note(_("Saved."))
    return visit.go("/feeds#tags")


# --- rules, searches, statistics ---------------------------------------------------------------------------------------


async def rules(visit: Visit) -> Response:
    return await visit.render(
        "rules.html",
        sidebar=await sidebar(visit),
        rules=await visit.reading.rules(),
        feeds=await visit.reading.subscriptions(),
        actions=get_args(Action),
    )


async def change_rules(visit: Visit) -> Response:
    form = visit.form
    if form.get("do") == "remove":
        rule_id = form.number("id", 1, 2**40)
        undoing = await undo.of_rule(visit.reading, rule_id)
        await visit.reading.remove_rule(rule_id)
        visit.note(_("The rule is gone; what it has done stays."), undo=undoing)
        return visit.go("/rules")
    action = next((known for known in get_args(Action) if known == form.get("action")), None)
    if action is None:
        raise UsageError(_("choose what the rule shall do"))
    text: dict[str, Any] = {name: form.get(name) for name in ("name", "tag", "words", "author", "regex")}
    feed_id = form.number("feed_id", 1, 2**40) if form.get("feed_id") else None
    await visit.reading.save_rule(Rule(action=action, feed_id=feed_id, **text))
    visit.note(_("The rule holds for what arrives from now on."))
    return visit.go("/rules")


async def change_searches(visit: Visit) -> Response:
    form = visit.form
    if form.get("do") == "remove":
        search_id = form.number("id", 1, 2**40)
        undoing = await undo.of_search(visit.reading, search_id)
        await visit.reading.remove_search(search_id)
        visit.note(_("The search is forgotten."), undo=undoing)
        return visit.go("/unread")
    view = await views.find(visit.reading, "search", form.get("q"))
    saved = await visit.reading.save_search(form.get("name") or view.search, Stream(search=view.search))
    return visit.go(f"/saved/{saved.id}")


async def statistics(visit: Visit) -> Response:
    told = await visit.reading.statistics()
    titles = await visit.reading.titles(use.feed_id for use in told.feeds)
    return await visit.render(
        "statistics.html", sidebar=await sidebar(visit), told=told, titles=titles, needs=delay_needs(told.evidence)
    )
