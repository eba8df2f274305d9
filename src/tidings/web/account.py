"""Pages for setup, login, settings, app tokens and user management."""

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
    AppServices,
    RequestContext,
    page,
    safe_redirect_path,
    set_session,
)

#: Fields of the settings form by type. Numbers have their allowed range.
TEXT_SETTINGS = ("theme", "order", "timezone", "webhook_url", "webhook_secret")
NUMBER_SETTINGS = {"page_size": (10, 200), "quiet_from": (0, 23), "quiet_until": (0, 23)}
BOOLEAN_SETTINGS = ("oldest_first", "mark_on_scroll", "fold_duplicates", "image_proxy")


def routes(services: AppServices) -> list[BaseRoute]:
    return [
        page(services, "/", home, public=True),
        page(services, "/setup", create_first_admin, is_post=True, public=True),
        page(services, "/login", login_form, public=True),
        page(services, "/login", log_in, is_post=True, public=True),
        page(services, "/logout", log_out, is_post=True),
        page(services, "/welcome", welcome),
        page(services, "/settings/contact", save_contact, is_post=True, admin=True),
        page(services, "/settings", settings),
        page(services, "/settings", save_settings, is_post=True),
        page(services, "/settings/theme", save_theme, is_post=True),
        page(services, "/settings/test", send_test_notification, is_post=True),
        page(services, "/settings/password", change_password, is_post=True),
        page(services, "/settings/apps", apps),
        page(services, "/settings/apps", create_app_token, is_post=True),
        page(services, "/settings/apps/remove", revoke_app_token, is_post=True),
        page(services, "/settings/outputs", rotate_output_links, is_post=True),
        page(services, "/users", users, admin=True),
        page(services, "/users", change_users, is_post=True, admin=True),
    ]


# --- setup, login, logout -------------------------------------------------------------------------


async def home(context: RequestContext) -> Response:
    if context.user_or_none is not None:
        return context.redirect("/unread")
    if not await context.services.user_service.needs_setup():
        return context.redirect("/login")
    return await _setup(context)


async def _setup(context: RequestContext, problem: str = "") -> Response:
    """Render the setup form.

    The form has a contact field if no contact address is configured or stored.
    """
    form = context.form
    return await context.render(
        "setup.html",
        status=HTTPStatus.BAD_REQUEST if problem else HTTPStatus.OK,
        problem=problem,
        name=form.get("name"),
        ask_contact=not context.services.contact_url,
        contact_url=form.get("contact_url"),
    )


async def create_first_admin(context: RequestContext) -> Response:
    """Create the first user, who becomes the administrator; refuse if a user already exists."""
    services, form = context.services, context.form
    if not await services.user_service.needs_setup():
        raise Forbidden(_("setup is already done; log in instead"))
    try:
        if form.get("password") != form.get("again"):
            raise UsageError(_("the passwords do not match"))
        contact = _contact_from_form(context)
        user = await services.user_service.add_user(
            form.get("name"), form.get("password"), admin=True, by=None
        )
    except UsageError as error:
        return await _setup(context, templating.sentence(str(error)))
    if contact:
        await services.save_contact(contact)
    return set_session(
        context, context.redirect("/welcome"), await services.user_service.start_session(user)
    )


async def login_form(context: RequestContext) -> Response:
    if await context.services.user_service.needs_setup():
        return context.redirect("/")
    return await context.render(
        "login.html",
        problem="",
        name="",
        next=safe_redirect_path(context.request.query_params.get("next", "")),
    )


async def log_in(context: RequestContext) -> Response:
    user_service, form = context.services.user_service, context.form
    name, next_path = form.get("name"), safe_redirect_path(form.get("next"))
    try:
        user = await user_service.log_in(
            name, form.get("password"), context.services.client_address(context.request)
        )
    except TidingsError as error:
        return await context.render(
            "login.html",
            status=HTTPStatus.FORBIDDEN,
            problem=templating.sentence(str(error)),
            name=name,
            next=next_path,
        )
    return set_session(
        context,
        context.redirect(next_path or "/unread"),
        await user_service.start_session(user),
    )


async def log_out(context: RequestContext) -> Response:
    await context.services.user_service.end_session(context.request.cookies.get(SESSION_COOKIE, ""))
    response = context.redirect("/login")
    response.delete_cookie(SESSION_COOKIE, httponly=True, samesite="lax")
    return response


async def welcome(context: RequestContext) -> Response:
    ask_contact = context.user.admin and not context.services.contact_url
    return await context.render(
        "welcome.html", sidebar=await sidebar(context), ask_contact=ask_contact, contact_url=""
    )


async def save_contact(context: RequestContext) -> Response:
    """Store the operator's contact address if it was not entered during setup."""
    if contact := _contact_from_form(context):
        await context.services.save_contact(contact)
        context.flash(_("Saved."))
    return context.redirect("/welcome")


def _contact_from_form(context: RequestContext) -> str:
    """Return the validated contact address from the form, or "" if there is nothing to store.

    Nothing is stored if the form has no address or one is already configured.
    """
    given = context.form.get("contact_url").strip()
    return check_contact(given) if given and not context.services.contact_url else ""


# --- settings and app tokens ----------------------------------------------------------------------


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
        raise UsageError(_("the webhook URL must start with https:// or http://"))
    try:
        await context.services.user_service.save_settings(context.user, convert(changed, Settings))
    except ValidationError as error:
        raise UsageError(str(error)) from None
    context.flash(_("Saved."))
    return context.redirect_back("/settings")


async def save_theme(context: RequestContext) -> Response:
    """Store the theme that the user chose with the button in the sidebar."""
    changed: dict[str, Any] = to_builtins(await context.settings()) | {
        "theme": context.form.get("theme")
    }
    try:
        await context.services.user_service.save_settings(context.user, convert(changed, Settings))
    except ValidationError:
        raise UsageError(_("the theme must be auto, light or dark")) from None
    return (
        context.json({"theme": changed["theme"]}) if context.wants_json else context.redirect_back()
    )


async def send_test_notification(context: RequestContext) -> Response:
    sent = await context.reader_service.send_test_notification()
    context.flash(
        n_(
            "Sending a test notification to %(num)s address.",
            "Sending a test notification to %(num)s addresses.",
            sent,
        )
    )
    return context.redirect("/settings#alerts")


async def change_password(context: RequestContext) -> Response:
    user_service, form = context.services.user_service, context.form
    await user_service.log_in(
        context.user.name, form.get("old"), context.services.client_address(context.request)
    )
    if form.get("password") != form.get("again"):
        raise UsageError(_("the new passwords do not match"))
    await user_service.set_password(context.user.id, form.get("password"), by=context.user)
    context.flash(_("Password changed. Other browsers must log in again; app tokens stay valid."))
    return set_session(
        context, context.redirect("/settings"), await user_service.start_session(context.user)
    )


async def apps(context: RequestContext, secret: str = "", label: str = "") -> Response:
    return await context.render(
        "apps.html",
        sidebar=await sidebar(context),
        tokens=await context.services.user_service.tokens(context.user),
        secret=secret,
        label=label,
        base=context.services.base(context.request),
        outputs=await output_feeds.feed_paths(context),
    )


async def create_app_token(context: RequestContext) -> Response:
    """Create an app token and show its secret, which is not shown again.

    The store contains only a hash of the secret.
    """
    created = await context.services.user_service.add_token(context.user, context.form.get("label"))
    return await apps(context, created.secret, created.token.label)


async def revoke_app_token(context: RequestContext) -> Response:
    await context.services.user_service.remove_token(
        context.user, context.form.number("id", 1, 2**40)
    )
    return context.redirect("/settings/apps")


async def rotate_output_links(context: RequestContext) -> Response:
    """Invalidate the secret links of the user's output feeds and generate new ones."""
    await output_feeds.rotate_links(context)
    context.flash(_("Links reset. The old links no longer work."))
    return context.redirect("/settings/apps")


# --- user management ------------------------------------------------------------------------------


async def users(context: RequestContext) -> Response:
    all_users = await context.services.user_service.list_users(by=context.user)
    return await context.render("users.html", sidebar=await sidebar(context), users=all_users)


async def change_users(context: RequestContext) -> Response:
    user_service, form, me = context.services.user_service, context.form, context.user
    if form.get("do") == "add":
        user = await user_service.add_user(
            form.get("name"), form.get("password"), admin="admin" in form, by=me
        )
        context.flash(_("User %(name)s added.", name=user.name))
        return context.redirect("/users")
    user_id = form.number("id", 1, 2**40)
    if form.get("do") == "remove":
        await user_service.remove_user(user_id, by=me)
    elif form.get("do") == "admin":
        await user_service.set_admin(user_id, form.get("admin") == "1", by=me)
    elif form.get("do") == "password":
        await user_service.set_password(user_id, form.get("password"), by=me)
        context.flash(_("Password changed."))
    else:
        raise UsageError(_("the form is incomplete; reload the page and try again"))
    return context.redirect("/users")
