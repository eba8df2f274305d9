"""Pages to manage subscriptions, folders, tags, rules and saved searches."""

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
from tidings.web.request_context import AppServices, RequestContext, page

#: Number of feeds on one page of the feed list.
FEEDS_PER_PAGE = 200
#: Number of polls in the check history on a feed's page.
MAX_POLLS_SHOWN = 20


def routes(services: AppServices) -> list[BaseRoute]:
    return [
        page(services, "/feeds", listing),
        page(services, "/feeds/add", add_form),
        page(services, "/feeds/add", add, is_post=True),
        page(services, "/feeds/import", import_list, is_post=True),
        page(services, "/feeds/export.opml", export),
        page(services, "/feed/{id:int}/about", about),
        page(services, "/feed/{id:int}/about.json", about_data),
        page(services, "/feed/{id:int}/about", change, is_post=True),
        page(services, "/feed/{id:int}/unsubscribe", unsubscribe, is_post=True),
        page(services, "/feed/{id:int}/poll", poll_now, is_post=True),
        page(services, "/folders", change_folder, is_post=True),
        page(services, "/tags", change_tag, is_post=True),
        page(services, "/rules", rules),
        page(services, "/rules", change_rules, is_post=True),
        page(services, "/searches", change_searches, is_post=True),
        page(services, "/statistics", statistics),
    ]


async def listing(context: RequestContext) -> Response:
    """Show the subscriptions, failing feeds first.

    The query parameter ``q`` searches, and ``page`` is the page number.
    """
    subscriptions = sorted(await context.reader_service.subscriptions(), key=_failing_first)
    search_text = context.request.query_params.get("q", "").casefold().strip()
    if search_text:
        subscriptions = [
            s
            for s in subscriptions
            if search_text in s.title.casefold() or search_text in s.feed.url.casefold()
        ]
    number = context.request.query_params.get("page", "1")
    page_number = max(1, int(number)) if number.isdecimal() and len(number) < 6 else 1
    offset = (page_number - 1) * FEEDS_PER_PAGE
    return await context.render(
        "feeds.html",
        sidebar=await sidebar(context),
        feeds=subscriptions[offset : offset + FEEDS_PER_PAGE],
        total=len(subscriptions),
        page_number=page_number,
        page_count=-(-len(subscriptions) // FEEDS_PER_PAGE),
        search_text=search_text,
        folders=await context.reader_service.folders(),
        tags=await context.reader_service.tags(),
    )


def _failing_first(subscription: Subscription) -> tuple[int, float, str]:
    state = subscription.feed.state
    retired = subscription.feed.retired_at is not None
    return (
        (0 if retired or state.errors else 1),
        state.failing_since or 0.0,
        subscription.title.casefold(),
    )


# --- subscribe and import -------------------------------------------------------------------------


async def add_form(context: RequestContext, **values: Any) -> Response:
    details: dict[str, Any] = {
        "url": context.request.query_params.get("url", ""),
        "folder": "",
        "problem": "",
        "choices": (),
        "subscribed": {},
    } | values
    return await context.render(
        "add.html",
        sidebar=await sidebar(context),
        folders=await context.reader_service.folders(),
        suggestions=await context.reader_service.suggestions(),
        **details,
    )


async def add(context: RequestContext) -> Response:
    """Subscribe to a feed, or to the feeds that the user chose among those of a site."""
    url, folder = context.form.get("url"), context.form.get("folder")
    chosen = context.form.all("choice") or [url]
    try:
        if not chosen[0]:
            raise UsageError(_("enter the address of a site or a feed"))
        for address in chosen[:100]:
            addition = await context.reader_service.subscribe(address, folder=folder)
            if addition.added is None:
                return await add_form(
                    context,
                    url=address,
                    folder=folder,
                    choices=addition.choices,
                    subscribed=addition.subscribed,
                )
    except TidingsError as error:
        return await add_form(
            context, status=400, url=url, folder=folder, problem=templating.sentence(str(error))
        )
    assert addition.added is not None
    added = await context.reader_service.subscription(addition.added.feed_id)
    context.flash(_("Subscribed to %(title)s.", title=added.title))
    return context.redirect(f"/feed/{added.feed.id}")


async def import_list(context: RequestContext) -> Response:
    body = context.form.files.get("file") or context.form.get("list").encode()
    try:
        if not body:
            raise UsageError(_("choose an OPML file, or a text file with one URL per line"))
        report = await context.reader_service.import_opml(body)
    except TidingsError as error:
        return await add_form(context, status=400, problem=templating.sentence(str(error)))
    if report.problems:
        return await context.render(
            "import_report.html", sidebar=await sidebar(context), report=report
        )
    text = n_("Imported %(num)s feed.", "Imported %(num)s feeds.", len(report.new))
    if report.known:
        text += " " + n_(
            "You were already subscribed to %(num)s feed.",
            "You were already subscribed to %(num)s feeds.",
            len(report.known),
        )
    context.flash(text)
    return context.redirect("/unread")


async def export(context: RequestContext) -> Response:
    headers = {"content-disposition": 'attachment; filename="tidings.opml"'}
    return Response(
        await context.reader_service.export_opml(), media_type="text/x-opml", headers=headers
    )


# --- feed page ------------------------------------------------------------------------------------


async def about(context: RequestContext) -> Response:
    subscription = await context.reader_service.subscription(context.request.path_params["id"])
    limits = context.services.aggregator.scheduler.limits
    details = await explain(
        context.services.store,
        subscription.feed,
        context.services.clock(),
        polls=MAX_POLLS_SHOWN,
        limits=limits,
    )
    return await context.render(
        "feed.html",
        sidebar=await sidebar(context, subscription.folder_id),
        feed=subscription,
        details=details,
        output_path=await output_feeds.feed_path(
            context.services, context.user, f"feed/{subscription.feed.id}"
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
    """Return the data of the feed page as JSON."""
    subscription = await context.reader_service.subscription(context.request.path_params["id"])
    services, limits = context.services, context.services.aggregator.scheduler.limits
    details = await explain(
        services.store,
        subscription.feed,
        services.clock(),
        polls=feed_page.MAX_POLLS,
        limits=limits,
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
    """Return the minimum interval from the form in seconds, where 0 means automatic.

    Raises `UsageError` for a text that is not a number.
    """
    if text in ("", "0"):
        return 0.0
    if not (text.isascii() and text.isdecimal() and len(text) < 10):
        raise UsageError(
            _("%(text)s is not a minimum interval; choose one from the list", text=repr(text[:50]))
        )
    return float(text)


async def unsubscribe(context: RequestContext) -> Response:
    subscription = await context.reader_service.subscription(context.request.path_params["id"])
    undo_action = await undo.undo_unsubscribe(
        context.reader_service, subscription.feed.id, context.services.clock()
    )
    await context.reader_service.unsubscribe(subscription.feed.id)
    text = _(
        "Unsubscribed from %(title)s. Your starred and tagged posts are kept.",
        title=subscription.title,
    )
    context.flash(text, undo=undo_action)
    return context.redirect("/feeds")


async def poll_now(context: RequestContext) -> Response:
    """Poll the feed now if the poll constraints allow it."""
    subscription = await context.reader_service.subscription(context.request.path_params["id"])
    polled = await context.services.aggregator.poll([subscription.feed.id])
    if polled.skipped:
        context.flash(templating.sentence(render(polled.skipped[0].reason)))
    elif polled.failed:
        context.flash(_("The check failed. The error is shown below."))
    else:
        context.flash(
            n_("%(num)s new post.", "%(num)s new posts.", polled.new)
            if polled.new
            else _("No new posts.")
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
        context.flash(_("Folder deleted. Its feeds are kept."), undo=undo_action)
        return context.redirect("/feeds#folders")
    else:
        raise UsageError(_("the form is incomplete; reload the page and try again"))
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
            _("Tag %(tag)s removed from all posts.", tag=form.get("tag")), undo=undo_action
        )
        return context.redirect("/feeds#tags")
    else:
        raise UsageError(_("the form is incomplete; reload the page and try again"))
    context.flash(_("Saved."))
    return context.redirect("/feeds#tags")


# --- rules, saved searches, statistics ------------------------------------------------------------


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
        context.flash(_("Rule deleted."), undo=undo_action)
        return context.redirect("/rules")
    action = next((known for known in get_args(Action) if known == form.get("action")), None)
    if action is None:
        raise UsageError(_("choose an action for the rule"))
    conditions: dict[str, Any] = {
        name: form.get(name) for name in ("name", "tag", "words", "author", "regex")
    }
    feed_id = form.number("feed_id", 1, 2**40) if form.get("feed_id") else None
    await context.reader_service.save_rule(Rule(action=action, feed_id=feed_id, **conditions))
    context.flash(_("Rule added. It applies to new posts."))
    return context.redirect("/rules")


async def change_searches(context: RequestContext) -> Response:
    form = context.form
    if form.get("do") == "remove":
        search_id = form.number("id", 1, 2**40)
        undo_action = await undo.undo_remove_search(context.reader_service, search_id)
        await context.reader_service.remove_search(search_id)
        context.flash(_("Search deleted."), undo=undo_action)
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
