"""Looking after feeds: add, import, rename, move, leave; and for each when it is polled next, and why."""

from typing import Any, get_args

from starlette.responses import Response
from starlette.routing import BaseRoute

from tidings.aggregator.explain import as_json, explain
from tidings.errors import TidingsError, UsageError
from tidings.i18n import _, n_
from tidings.reasons import render
from tidings.store.evidence import delay_needs
from tidings.store.user_models import Action, Priority, Rule, Stream, Subscription
from tidings.web import feed_page, output_feeds, templating, undo, views
from tidings.web.reader import sidebar
from tidings.web.request_context import RequestContext, Site, page

#: Rows of the list of feeds on one page.
FEEDS_PER_PAGE = 200
#: Looks with their reasons on a feed's page.
MAX_POLLS_SHOWN = 20


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
        page(site, "/feed/{id:int}/leave", unsubscribe, posts=True),
        page(site, "/feed/{id:int}/look", poll_now, posts=True),
        page(site, "/folders", change_folder, posts=True),
        page(site, "/tags", change_tag, posts=True),
        page(site, "/rules", rules),
        page(site, "/rules", change_rules, posts=True),
        page(site, "/searches", change_searches, posts=True),
        page(site, "/statistics", statistics),
    ]


async def listing(context: RequestContext) -> Response:
    """All subscriptions, those with troubles first, a page at a time."""
    every = sorted(await context.reader_service.subscriptions(), key=_failing_first)
    search_text = context.request.query_params.get("q", "").casefold().strip()
    if search_text:
        every = [
            s
            for s in every
            if search_text in s.title.casefold() or search_text in s.feed.url.casefold()
        ]
    number = context.request.query_params.get("page", "1")
    at = max(1, int(number)) if number.isdecimal() and len(number) < 6 else 1
    return await context.render(
        "feeds.html",
        sidebar=await sidebar(context),
        feeds=every[(at - 1) * FEEDS_PER_PAGE : at * FEEDS_PER_PAGE],
        total=len(every),
        at=at,
        most=-(-len(every) // FEEDS_PER_PAGE),
        search_text=search_text,
        folders=await context.reader_service.folders(),
        tags=await context.reader_service.tags(),
    )


def _failing_first(subscription: Subscription) -> tuple[int, float, str]:
    state = subscription.feed.state
    dead = subscription.feed.retired_at is not None
    return (
        (0 if dead or state.errors else 1),
        state.failing_since or 0.0,
        subscription.title.casefold(),
    )


# --- adding ------------------------------------------------------------------------------------------------------------


async def add_form(context: RequestContext, **values: Any) -> Response:
    details: dict[str, Any] = {
        "url": context.request.query_params.get("url", ""),
        "folder": "",
        "problem": "",
        "choices": (),
        "followed": {},
    } | values
    return await context.render(
        "add.html",
        sidebar=await sidebar(context),
        folders=await context.reader_service.folders(),
        suggestions=await context.reader_service.suggestions(),
        **details,
    )


async def add(context: RequestContext) -> Response:
    """One feed, or those that were chosen among several of a site."""
    url, folder = context.form.get("url"), context.form.get("folder")
    chosen = context.form.all("choice") or [url]
    try:
        if not chosen[0]:
            raise UsageError(_("type the address of a site or of a feed"))
        for address in chosen[:100]:
            addition = await context.reader_service.subscribe(address, folder=folder)
            if addition.added is None:
                return await add_form(
                    context,
                    url=address,
                    folder=folder,
                    choices=addition.choices,
                    followed=addition.subscribed,
                )
    except TidingsError as error:
        return await add_form(
            context, status=400, url=url, folder=folder, problem=templating.sentence(str(error))
        )
    assert addition.added is not None
    added = await context.reader_service.subscription(addition.added.feed_id)
    context.flash(_("You follow %(title)s now.", title=added.title))
    return context.redirect(f"/feed/{added.feed.id}")


async def import_list(context: RequestContext) -> Response:
    body = context.form.files.get("file") or context.form.get("list").encode()
    try:
        if not body:
            raise UsageError(
                _("choose a file: OPML as every reader exports it, or one address on each line")
            )
        report = await context.reader_service.import_opml(body)
    except TidingsError as error:
        return await add_form(context, status=400, problem=templating.sentence(str(error)))
    if report.problems:
        return await context.render("imported.html", sidebar=await sidebar(context), report=report)
    added = n_("%(num)s feed is followed now", "%(num)s feeds are followed now", len(report.new))
    context.flash(
        added
        + (_("; %(num)s were known already", num=len(report.known)) if report.known else "")
        + "."
    )
    return context.redirect("/unread")


async def export(context: RequestContext) -> Response:
    headers = {"content-disposition": 'attachment; filename="tidings.opml"'}
    return Response(
        await context.reader_service.export_opml(), media_type="text/x-opml", headers=headers
    )


# --- one feed ----------------------------------------------------------------------------------------------------------


async def about(context: RequestContext) -> Response:
    subscription = await context.reader_service.subscription(context.request.path_params["id"])
    limits = context.site.aggregator.scheduler.limits
    details = await explain(
        context.site.store,
        subscription.feed,
        context.site.clock(),
        polls=MAX_POLLS_SHOWN,
        limits=limits,
    )
    return await context.render(
        "feed.html",
        sidebar=await sidebar(context, subscription.folder_id),
        feed=subscription,
        details=details,
        output_feeds=await output_feeds.address(
            context.site, context.user, f"feed/{subscription.feed.id}"
        ),
        feed_charts=await feed_page.feed_charts(context, details),
        folders=await context.reader_service.folders(),
        priorities=get_args(Priority),
        min_interval=feed_page.min_interval_text(subscription, details.min_interval),
        intervals=feed_page.interval_choices(
            context.reader_service, subscription, details.min_interval
        ),
    )


async def about_data(context: RequestContext) -> Response:
    """What the page is made from."""
    subscription = await context.reader_service.subscription(context.request.path_params["id"])
    site, limits = context.site, context.site.aggregator.scheduler.limits
    details = await explain(
        site.store, subscription.feed, site.clock(), polls=feed_page.MAX_POLLS, limits=limits
    )
    return context.json(as_json(details))


async def change(context: RequestContext) -> Response:
    form, feed_id = context.form, context.request.path_params["id"]
    priority = next((known for known in get_args(Priority) if known == form.get("priority")), None)
    await context.reader_service.change(
        feed_id,
        title=form.get("title"),
        folder=form.get("folder"),
        priority=priority,
        full_text="full_text" in form,
        min_interval_s=_interval(form.get("min_interval")) if "min_interval" in form else None,
    )
    context.flash(_("Saved."))
    return context.redirect(f"/feed/{feed_id}/about")


def _interval(text: str) -> float:
    """Seconds of the form's minimum interval; 0 for automatic."""
    if text in ("", "0"):
        return 0.0
    if not (text.isascii() and text.isdecimal() and len(text) < 10):
        raise UsageError(
            _("choose a minimum interval from the list, not %(text)s", text=repr(text[:50]))
        )
    return float(text)


async def unsubscribe(context: RequestContext) -> Response:
    subscription = await context.reader_service.subscription(context.request.path_params["id"])
    undo_action = await undo.undo_unsubscribe(
        context.reader_service, subscription.feed.id, context.site.clock()
    )
    await context.reader_service.unsubscribe(subscription.feed.id)
    text = _(
        "Unsubscribed from %(title)s. Starred and tagged posts stay.", title=subscription.title
    )
    context.flash(text, undo=undo_action)
    return context.redirect("/feeds")


async def poll_now(context: RequestContext) -> Response:
    """Look at once, by hand."""
    subscription = await context.reader_service.subscription(context.request.path_params["id"])
    polled = await context.site.aggregator.poll([subscription.feed.id])
    if polled.skipped:
        context.flash(templating.sentence(render(polled.skipped[0].reason)))
    elif polled.failed:
        context.flash(_("Check failed; see below."))
    else:
        context.flash(
            n_("%(num)s new entry.", "%(num)s new entries.", polled.new)
            if polled.new
            else _("Nothing new.")
        )
    return context.redirect(f"/feed/{subscription.feed.id}/about")


async def change_folder(context: RequestContext) -> Response:
    form, reader_service = context.form, context.reader_service
    if form.get("do") == "add":
        await reader_service.add_folder(form.get("name"))
    elif form.get("do") == "rename":
        await reader_service.rename_folder(form.number("id", 1, 2**40), form.get("name"))
    elif form.get("do") == "remove":
        folder_id = form.number("id", 1, 2**40)
        undo_action = await undo.undo_remove_folder(reader_service, folder_id)
        await reader_service.remove_folder(folder_id)
        context.flash(_("The folder is gone; its feeds stay."), undo=undo_action)
        return context.redirect("/feeds#folders")
    else:
        raise UsageError(_("nothing was asked for"))
    context.flash(_("Saved."))
    return context.redirect("/feeds#folders")


async def change_tag(context: RequestContext) -> Response:
    form, reader_service = context.form, context.reader_service
    if form.get("do") == "rename":
        await reader_service.rename_tag(form.get("tag"), form.get("name"))
    elif form.get("do") == "remove":
        undo_action = await undo.undo_remove_tag(reader_service, form.get("tag"))
        await reader_service.remove_tag(form.get("tag"))
        context.flash(
            _("The tag %(tag)s is gone from all entries.", tag=form.get("tag")), undo=undo_action
        )
        return context.redirect("/feeds#tags")
    else:
        raise UsageError(_("nothing was asked for"))
    context.flash(_("Saved."))
    return context.redirect("/feeds#tags")


# --- rules, searches, statistics ---------------------------------------------------------------------------------------


async def rules(context: RequestContext) -> Response:
    return await context.render(
        "rules.html",
        sidebar=await sidebar(context),
        rules=await context.reader_service.rules(),
        feeds=await context.reader_service.subscriptions(),
        actions=get_args(Action),
    )


async def change_rules(context: RequestContext) -> Response:
    form = context.form
    if form.get("do") == "remove":
        rule_id = form.number("id", 1, 2**40)
        undo_action = await undo.undo_remove_rule(context.reader_service, rule_id)
        await context.reader_service.remove_rule(rule_id)
        context.flash(_("The rule is gone; what it has done stays."), undo=undo_action)
        return context.redirect("/rules")
    action = next((known for known in get_args(Action) if known == form.get("action")), None)
    if action is None:
        raise UsageError(_("choose what the rule shall do"))
    text: dict[str, Any] = {
        name: form.get(name) for name in ("name", "tag", "words", "author", "regex")
    }
    feed_id = form.number("feed_id", 1, 2**40) if form.get("feed_id") else None
    await context.reader_service.save_rule(Rule(action=action, feed_id=feed_id, **text))
    context.flash(_("The rule holds for what arrives from now on."))
    return context.redirect("/rules")


async def change_searches(context: RequestContext) -> Response:
    form = context.form
    if form.get("do") == "remove":
        search_id = form.number("id", 1, 2**40)
        undo_action = await undo.undo_remove_search(context.reader_service, search_id)
        await context.reader_service.remove_search(search_id)
        context.flash(_("The search is forgotten."), undo=undo_action)
        return context.redirect("/unread")
    view = await views.find(context.reader_service, "search", form.get("q"))
    saved = await context.reader_service.save_search(
        form.get("name") or view.search, Stream(search=view.search)
    )
    return context.redirect(f"/saved/{saved.id}")


async def statistics(context: RequestContext) -> Response:
    details = await context.reader_service.statistics()
    titles = await context.reader_service.titles(use.feed_id for use in details.feeds)
    return await context.render(
        "statistics.html",
        sidebar=await sidebar(context),
        details=details,
        titles=titles,
        needs=delay_needs(details.evidence),
    )
