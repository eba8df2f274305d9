"""Who is here: the first run, logging in and out, one's own settings and apps, and for administrators all users."""

from http import HTTPStatus
from typing import Any

from msgspec import ValidationError, convert, to_builtins
from starlette.responses import Response
from starlette.routing import BaseRoute

from tidings.aggregator.contact import check_contact
from tidings.errors import TidingsError, UsageError
from tidings.people import Forbidden
from tidings.people.alerts import check_address
from tidings.store.people_rows import Settings
from tidings.texts import _, n_
from tidings.web import output, pages
from tidings.web.reader import sidebar
from tidings.web.visit import COOKIE, Site, Visit, local, page, set_session

#: Settings of the form by how their fields are read.
CHOICES = ("theme", "order", "timezone", "webhook_url", "webhook_secret")
NUMBERS = {"page_size": (10, 200), "quiet_from": (0, 23), "quiet_until": (0, 23)}
SWITCHES = ("oldest_first", "mark_on_scroll", "fold_duplicates", "image_proxy")


def routes(site: Site) -> list[BaseRoute]:
    return [
        page(site, "/", home, everybody=True),
        page(site, "/setup", make_first, posts=True, everybody=True),
        page(site, "/login", login_form, everybody=True),
        page(site, "/login", log_in, posts=True, everybody=True),
        page(site, "/logout", log_out, posts=True),
        page(site, "/welcome", welcome),
        page(site, "/settings/contact", save_contact, posts=True, admin=True),
        page(site, "/settings", settings),
        page(site, "/settings", save_settings, posts=True),
        page(site, "/settings/theme", save_theme, posts=True),
        page(site, "/settings/test", send_test, posts=True),
        page(site, "/settings/password", change_password, posts=True),
        page(site, "/settings/apps", apps),
        page(site, "/settings/apps", add_app, posts=True),
        page(site, "/settings/apps/remove", remove_app, posts=True),
        page(site, "/settings/outputs", new_addresses, posts=True),
        page(site, "/users", users, admin=True),
        page(site, "/users", change_users, posts=True, admin=True),
    ]


# --- in and out --------------------------------------------------------------------------------------------------------


async def home(visit: Visit) -> Response:
    if visit.somebody is not None:
        return visit.go("/unread")
    if not await visit.site.people.is_new():
        return visit.go("/login")
    return await _setup(visit)


async def _setup(visit: Visit, problem: str = "") -> Response:
    """The form for the first user; it asks for a contact if neither the configuration nor the store has one."""
    form = visit.form
    return await visit.render(
        "setup.html",
        status=HTTPStatus.BAD_REQUEST if problem else HTTPStatus.OK,
        problem=problem,
        name=form.get("name"),
        ask_contact=not visit.site.contact_url,
        contact_url=form.get("contact_url"),
    )


async def make_first(visit: Visit) -> Response:
    """Whoever comes first is the administrator; nobody else can be made this way."""
    site, form = visit.site, visit.form
    if not await site.people.is_new():
        raise Forbidden(_("there is an administrator already; log in"))
    try:
        if form.get("password") != form.get("again"):
            raise UsageError(_("the two passwords are not the same"))
        contact = _contact_in(visit)
        user = await site.people.add_user(form.get("name"), form.get("password"), admin=True, by=None)
    except UsageError as error:
        return await _setup(visit, pages.sentence(str(error)))
    if contact:
        await site.save_contact(contact)
    return set_session(visit, visit.go("/welcome"), await site.people.start_session(user))


async def login_form(visit: Visit) -> Response:
    if await visit.site.people.is_new():
        return visit.go("/")
    return await visit.render("login.html", problem="", name="", next=local(visit.request.query_params.get("next", "")))


async def log_in(visit: Visit) -> Response:
    people, form = visit.site.people, visit.form
    name, back = form.get("name"), local(form.get("next"))
    try:
        user = await people.log_in(name, form.get("password"), visit.site.address(visit.request))
    except TidingsError as error:
        said = pages.sentence(str(error))
        return await visit.render("login.html", status=HTTPStatus.FORBIDDEN, problem=said, name=name, next=back)
    return set_session(visit, visit.go(back or "/unread"), await people.start_session(user))


async def log_out(visit: Visit) -> Response:
    await visit.site.people.end_session(visit.request.cookies.get(COOKIE, ""))
    response = visit.go("/login")
    response.delete_cookie(COOKIE, httponly=True, samesite="lax")
    return response


async def welcome(visit: Visit) -> Response:
    ask_contact = visit.user.admin and not visit.site.contact_url
    return await visit.render("welcome.html", sidebar=await sidebar(visit), ask_contact=ask_contact, contact_url="")


async def save_contact(visit: Visit) -> Response:
    """The contact address, from an admin who was not asked for one when the first user was made."""
    if contact := _contact_in(visit):
        await visit.site.save_contact(contact)
        visit.note(_("Saved."))
    return visit.go("/welcome")


def _contact_in(visit: Visit) -> str:
    """The contact address in the form, checked; empty if there is one already."""
    given = visit.form.get("contact_url").strip()
    return check_contact(given) if given and not visit.site.contact_url else ""


# --- one's own ---------------------------------------------------------------------------------------------------------


async def settings(visit: Visit) -> Response:
    failed = await visit.reading.undelivered()
    return await visit.render("settings.html", sidebar=await sidebar(visit), zones=pages.zones(), failed=failed)


async def save_settings(visit: Visit) -> Response:
    form = visit.form
    changed: dict[str, Any] = to_builtins(await visit.settings())
    changed |= {name: form.get(name) for name in CHOICES if name in form}
    changed |= {name: form.number(name, *bounds) for name, bounds in NUMBERS.items() if name in form}
    changed |= {name: name in form for name in SWITCHES}
    changed["alert_urls"] = form.get("alert_urls").split()
    for url in changed["alert_urls"]:
        check_address(url)
    if changed.get("webhook_url", "") and not changed["webhook_url"].startswith(("http://", "https://")):
        raise UsageError(_("the webhook must be an address that begins with https:// or http://"))
    try:
        await visit.site.people.save_settings(visit.user, convert(changed, Settings))
    except ValidationError as error:
        raise UsageError(str(error)) from None
    visit.note(_("Saved."))
    return visit.back("/settings")


async def save_theme(visit: Visit) -> Response:
    """The switch in the sidebar."""
    changed: dict[str, Any] = to_builtins(await visit.settings()) | {"theme": visit.form.get("theme")}
    try:
        await visit.site.people.save_settings(visit.user, convert(changed, Settings))
    except ValidationError:
        raise UsageError(_("a theme is auto, light or dark")) from None
    return visit.json({"theme": changed["theme"]}) if visit.wants_json else visit.back()


async def send_test(visit: Visit) -> Response:
    sent = await visit.reading.send_test()
    visit.note(n_("A test is on its way to %(num)s address.", "A test is on its way to %(num)s addresses.", sent))
    return visit.go("/settings#alerts")


async def change_password(visit: Visit) -> Response:
    people, form = visit.site.people, visit.form
    await people.log_in(visit.user.name, form.get("old"), visit.site.address(visit.request))
    if form.get("password") != form.get("again"):
        raise UsageError(_("the two new passwords are not the same"))
    await people.set_password(visit.user.id, form.get("password"), by=visit.user)
    visit.note(_("The password is changed. Other browsers have to log in again; apps keep their tokens."))
    return set_session(visit, visit.go("/settings"), await people.start_session(visit.user))


async def apps(visit: Visit, secret: str = "", label: str = "") -> Response:
    return await visit.render(
        "apps.html",
        sidebar=await sidebar(visit),
        tokens=await visit.site.people.tokens(visit.user),
        secret=secret,
        label=label,
        base=visit.site.base(visit.request),
        outputs=await output.addresses(visit),
    )


async def add_app(visit: Visit) -> Response:
    """The secret is on the page that answers, and nowhere else ever again."""
    made = await visit.site.people.add_token(visit.user, visit.form.get("label"))
    return await apps(visit, made.secret, made.token.label)


async def remove_app(visit: Visit) -> Response:
    await visit.site.people.remove_token(visit.user, visit.form.number("id", 1, 2**40))
    return visit.go("/settings/apps")


async def new_addresses(visit: Visit) -> Response:
    """All addresses of this user's output feeds change: the old ones have become known to somebody."""
    await output.renew(visit)
    visit.note(_("All output feeds have new addresses; the old ones answer no more."))
    return visit.go("/settings/apps")


# --- everybody ---------------------------------------------------------------------------------------------------------


async def users(visit: Visit) -> Response:
    everybody = await visit.site.people.users(by=visit.user)
    return await visit.render("users.html", sidebar=await sidebar(visit), users=everybody)


async def change_users(visit: Visit) -> Response:
    people, form, me = visit.site.people, visit.form, visit.user
    if form.get("do") == "add":
        user = await people.add_user(form.get("name"), form.get("password"), admin="admin" in form, by=me)
        visit.note(_("%(name)s can log in now.", name=user.name))
        return visit.go("/users")
    user_id = form.number("id", 1, 2**40)
    if form.get("do") == "remove":
        await people.remove_user(user_id, by=me)
    elif form.get("do") == "admin":
        await people.set_admin(user_id, form.get("admin") == "1", by=me)
    elif form.get("do") == "password":
        await people.set_password(user_id, form.get("password"), by=me)
        visit.note(_("The password is changed."))
    else:
        raise UsageError(_("nothing was asked for"))
    return visit.go("/users")
