"""Who is here: the first run, logging in and out, one's own settings and apps, and for administrators all users."""

from http import HTTPStatus
from typing import Any

from msgspec import ValidationError, convert, to_builtins
from starlette.responses import Response
from starlette.routing import BaseRoute

from tidings.aggregator.contact import check_contact
from tidings.errors import TidingsError, UsageError
from tidings.i18n import _, n_
from tidings.store.user_models import Settings
from tidings.users import Forbidden
from tidings.users.alerts import check_address
from tidings.web import output_feeds, templating
from tidings.web.reader import sidebar
from tidings.web.request_context import (
    SESSION_COOKIE,
    RequestContext,
    Site,
    page,
    safe_redirect_path,
    set_session,
)

#: Settings of the form by how their fields are read.
TEXT_SETTINGS = ("theme", "order", "timezone", "webhook_url", "webhook_secret")
NUMBER_SETTINGS = {"page_size": (10, 200), "quiet_from": (0, 23), "quiet_until": (0, 23)}
BOOLEAN_SETTINGS = ("oldest_first", "mark_on_scroll", "fold_duplicates", "image_proxy")


def routes(site: Site) -> list[BaseRoute]:
    return [
        page(site, "/", home, public=True),
        page(site, "/setup", create_first_admin, posts=True, public=True),
        page(site, "/login", login_form, public=True),
        page(site, "/login", log_in, posts=True, public=True),
        page(site, "/logout", log_out, posts=True),
        page(site, "/welcome", welcome),
        page(site, "/settings/contact", save_contact, posts=True, admin=True),
        page(site, "/settings", settings),
        page(site, "/settings", save_settings, posts=True),
        page(site, "/settings/theme", save_theme, posts=True),
        page(site, "/settings/test", send_test_notification, posts=True),
        page(site, "/settings/password", change_password, posts=True),
        page(site, "/settings/apps", apps),
        page(site, "/settings/apps", create_app_token, posts=True),
        page(site, "/settings/apps/remove", revoke_app_token, posts=True),
        page(site, "/settings/outputs", rotate_output_addresses, posts=True),
        page(site, "/users", users, admin=True),
        page(site, "/users", change_users, posts=True, admin=True),
    ]


# --- in and out --------------------------------------------------------------------------------------------------------


async def home(context: RequestContext) -> Response:
    if context.user_or_none is not None:
        return context.redirect("/unread")
    if not await context.site.user_service.needs_setup():
        return context.redirect("/login")
    return await _setup(context)


async def _setup(context: RequestContext, problem: str = "") -> Response:
    """The form for the first user; it asks for a contact if neither the configuration nor the store has one."""
    form = context.form
    return await context.render(
        "setup.html",
        status=HTTPStatus.BAD_REQUEST if problem else HTTPStatus.OK,
        problem=problem,
        name=form.get("name"),
        ask_contact=not context.site.contact_url,
        contact_url=form.get("contact_url"),
    )


async def create_first_admin(context: RequestContext) -> Response:
    """Whoever comes first is the administrator; nobody else can be made this way."""
    site, form = context.site, context.form
    if not await site.user_service.needs_setup():
        raise Forbidden(_("there is an administrator already; log in"))
    try:
        if form.get("password") != form.get("again"):
            raise UsageError(_("the two passwords are not the same"))
        contact = _contact_from_form(context)
        user = await site.user_service.add_user(
            form.get("name"), form.get("password"), admin=True, by=None
        )
    except UsageError as error:
        return await _setup(context, templating.sentence(str(error)))
    if contact:
        await site.save_contact(contact)
    return set_session(
        context, context.redirect("/welcome"), await site.user_service.start_session(user)
    )


async def login_form(context: RequestContext) -> Response:
    if await context.site.user_service.needs_setup():
        return context.redirect("/")
    return await context.render(
        "login.html",
        problem="",
        name="",
        next=safe_redirect_path(context.request.query_params.get("next", "")),
    )


async def log_in(context: RequestContext) -> Response:
    user_service, form = context.site.user_service, context.form
    name, redirect_back = form.get("name"), safe_redirect_path(form.get("next"))
    try:
        user = await user_service.log_in(
            name, form.get("password"), context.site.address(context.request)
        )
    except TidingsError as error:
        said = templating.sentence(str(error))
        return await context.render(
            "login.html", status=HTTPStatus.FORBIDDEN, problem=said, name=name, next=redirect_back
        )
    return set_session(
        context,
        context.redirect(redirect_back or "/unread"),
        await user_service.start_session(user),
    )


async def log_out(context: RequestContext) -> Response:
    await context.site.user_service.end_session(context.request.cookies.get(SESSION_COOKIE, ""))
    response = context.redirect("/login")
    response.delete_cookie(SESSION_COOKIE, httponly=True, samesite="lax")
    return response


async def welcome(context: RequestContext) -> Response:
    ask_contact = context.user.admin and not context.site.contact_url
    return await context.render(
        "welcome.html", sidebar=await sidebar(context), ask_contact=ask_contact, contact_url=""
    )


async def save_contact(context: RequestContext) -> Response:
    """The contact address, from an admin who was not asked for one when the first user was made."""
    if contact := _contact_from_form(context):
        await context.site.save_contact(contact)
        context.flash(_("Saved."))
    return context.redirect("/welcome")


def _contact_from_form(context: RequestContext) -> str:
    """The contact address in the form, checked; empty if there is one already."""
    given = context.form.get("contact_url").strip()
    return check_contact(given) if given and not context.site.contact_url else ""


# --- one's own ---------------------------------------------------------------------------------------------------------


async def settings(context: RequestContext) -> Response:
    failed = await context.reader_service.failed_deliveries()
    return await context.render(
        "settings.html", sidebar=await sidebar(context), zones=templating.zones(), failed=failed
    )


async def save_settings(context: RequestContext) -> Response:
    form = context.form
    changed: dict[str, Any] = to_builtins(await context.settings())
    changed |= {name: form.get(name) for name in TEXT_SETTINGS if name in form}
    changed |= {
        name: form.number(name, *bounds) for name, bounds in NUMBER_SETTINGS.items() if name in form
    }
    changed |= {name: name in form for name in BOOLEAN_SETTINGS}
    changed["alert_urls"] = form.get("alert_urls").split()
    for url in changed["alert_urls"]:
        check_address(url)
    if changed.get("webhook_url", "") and not changed["webhook_url"].startswith(
        ("http://", "https://")
    ):
        raise UsageError(_("the webhook must be an address that begins with https:// or http://"))
    try:
        await context.site.user_service.save_settings(context.user, convert(changed, Settings))
    except ValidationError as error:
        raise UsageError(str(error)) from None
    context.flash(_("Saved."))
    return context.redirect_back("/settings")


async def save_theme(context: RequestContext) -> Response:
    """The switch in the sidebar."""
    changed: dict[str, Any] = to_builtins(await context.settings()) | {
        "theme": context.form.get("theme")
    }
    try:
        await context.site.user_service.save_settings(context.user, convert(changed, Settings))
    except ValidationError:
        raise UsageError(_("a theme is auto, light or dark")) from None
    return (
        context.json({"theme": changed["theme"]}) if context.wants_json else context.redirect_back()
    )


async def send_test_notification(context: RequestContext) -> Response:
    sent = await context.reader_service.send_test_notification()
    context.flash(
        n_(
            "A test is on its way to %(num)s address.",
            "A test is on its way to %(num)s addresses.",
            sent,
        )
    )
    return context.redirect("/settings#alerts")


async def change_password(context: RequestContext) -> Response:
    user_service, form = context.site.user_service, context.form
    await user_service.log_in(
        context.user.name, form.get("old"), context.site.address(context.request)
    )
    if form.get("password") != form.get("again"):
        raise UsageError(_("the two new passwords are not the same"))
    await user_service.set_password(context.user.id, form.get("password"), by=context.user)
    context.flash(
        _("The password is changed. Other browsers have to log in again; apps keep their tokens.")
    )
    return set_session(
        context, context.redirect("/settings"), await user_service.start_session(context.user)
    )


async def apps(context: RequestContext, secret: str = "", label: str = "") -> Response:
    return await context.render(
        "apps.html",
        sidebar=await sidebar(context),
        tokens=await context.site.user_service.tokens(context.user),
        secret=secret,
        label=label,
        base=context.site.base(context.request),
        outputs=await output_feeds.addresses(context),
    )


async def create_app_token(context: RequestContext) -> Response:
    """The secret is on the page that answers, and nowhere else ever again."""
    made = await context.site.user_service.add_token(context.user, context.form.get("label"))
    return await apps(context, made.secret, made.token.label)


async def revoke_app_token(context: RequestContext) -> Response:
    await context.site.user_service.remove_token(context.user, context.form.number("id", 1, 2**40))
    return context.redirect("/settings/apps")


async def rotate_output_addresses(context: RequestContext) -> Response:
    """All addresses of this user's output feeds change: the old ones have become known to somebody."""
    await output_feeds.rotate_addresses(context)
    context.flash(_("All output feeds have new addresses; the old ones answer no more."))
    return context.redirect("/settings/apps")


# --- everybody ---------------------------------------------------------------------------------------------------------


async def users(context: RequestContext) -> Response:
    public = await context.site.user_service.users(by=context.user)
    return await context.render("users.html", sidebar=await sidebar(context), users=public)


async def change_users(context: RequestContext) -> Response:
    user_service, form, me = context.site.user_service, context.form, context.user
    if form.get("do") == "add":
        user = await user_service.add_user(
            form.get("name"), form.get("password"), admin="admin" in form, by=me
        )
        context.flash(_("%(name)s can log in now.", name=user.name))
        return context.redirect("/users")
    user_id = form.number("id", 1, 2**40)
    if form.get("do") == "remove":
        await user_service.remove_user(user_id, by=me)
    elif form.get("do") == "admin":
        await user_service.set_admin(user_id, form.get("admin") == "1", by=me)
    elif form.get("do") == "password":
        await user_service.set_password(user_id, form.get("password"), by=me)
        context.flash(_("The password is changed."))
    else:
        raise UsageError(_("nothing was asked for"))
    return context.redirect("/users")
