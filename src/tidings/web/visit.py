"""One request of a person: who they are, what they may, and how they are answered.

`Site` holds the living parts that pages are made of. `page` makes a route whose handler is given a `Visit`: somebody who is
logged in, whose form (if there is one) came from our own page. Everybody else is led to the log-in page, or on the first run
to the page that makes the first administrator.
"""

import hmac
import secrets
from collections.abc import Awaitable, Callable, Mapping
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, TypeAlias
from urllib.parse import quote, urlsplit

import msgspec
from msgspec import Struct
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Route

from tidings.aggregator.contact import store_contact
from tidings.errors import TidingsError
from tidings.fetch import Fetcher
from tidings.people import Events, Forbidden, NotFound, People, Reading, TooManyAttempts, WrongPassword
from tidings.people.icons import Icons
from tidings.people.people import SESSION_S
from tidings.store.people_rows import Settings, User
from tidings.texts import _
from tidings.web import pages
from tidings.web.forms import NO_FORM, Form, read_form
from tidings.web.now import Live
from tidings.web.processes import Replays
from tidings.web.undo import Undo

if TYPE_CHECKING:
    from tidings.aggregator.neighbours import Neighbourhood

COOKIE = "tidings"
SALT = 16
#: Told on one page; forms that are sent by a program are followed by no page.
MOST_NOTES = 3
STATUS: tuple[tuple[type[TidingsError], HTTPStatus], ...] = (
    (NotFound, HTTPStatus.NOT_FOUND),
    (Forbidden, HTTPStatus.FORBIDDEN),
    (WrongPassword, HTTPStatus.FORBIDDEN),
    (TooManyAttempts, HTTPStatus.TOO_MANY_REQUESTS),
)


class Note(Struct, frozen=True):
    """What a form has done, told on the next page."""

    text: str
    undo: bool = False


class Site:
    """The living parts that pages and APIs need."""

    def __init__(
        self,
        live: Live,
        people: People,
        events: Events,
        icons: Icons,
        clock: Callable[[], float],
        *,
        pictures: Fetcher | None = None,
        public_url: str = "",
    ) -> None:
        self.live, self.people, self.events, self.icons, self.clock = live, people, events, icons, clock
        self.replays = Replays(clock)
        self.pictures, self.public_url = pictures, public_url.rstrip("/")
        self.aggregator, self.store = live.aggregator, live.aggregator.store
        self.neighbourhood: Neighbourhood | None = None  #: where the exchange is on
        self.notes: dict[int, list[Note]] = {}
        self.undo: dict[int, Undo] = {}  #: of what each user has done last
        self._keys: dict[str, bytes] = {}

    @property
    def contact_url(self) -> str:
        """Where publishers can reach the operator; empty if nobody has said."""
        return self.aggregator.fetcher.settings.contact_url

    async def save_contact(self, url: str) -> None:
        """Keep a contact address and send it with every request from now on."""
        await store_contact(self.store, url)
        for fetcher in (self.aggregator.fetcher, self.pictures):
            if fetcher is not None:
                fetcher.use_contact(url)

    def reading(self, user: User) -> Reading:
        return Reading(user, self.store, self.clock, self.events, self.aggregator)

    async def key(self, purpose: str) -> bytes:
        if purpose not in self._keys:
            self._keys[purpose] = await self.people.key(purpose)
        return self._keys[purpose]

    async def who(self, request: Request) -> User | None:
        """By the word of a proxy that we trust, or by the browser's cookie."""
        proxy = self.people.proxy
        named = request.headers.get(proxy.header, "") if proxy.header else ""
        if named and (user := await self.people.by_proxy(peer(request), named)) is not None:
            return user
        secret = request.cookies.get(COOKIE, "")
        return await self.people.session(secret) if secret else None

    def address(self, request: Request) -> str:
        """Who somebody is to the limit on guesses: behind a trusted proxy, whom that names last."""
        forwarded = request.headers.get("x-forwarded-for", "").rpartition(",")[2].strip()
        return forwarded if forwarded and self.people.proxy.believes(peer(request)) else peer(request)

    def base(self, request: Request) -> str:
        """Where the outside reaches us."""
        return self.public_url or f"{request.url.scheme}://{request.url.netloc}"

    def is_secure(self, request: Request) -> bool:
        return self.base(request).startswith("https://")

    async def csrf(self, request: Request, user: User | None) -> str:
        """Salted anew for every page: one that stays the same could be guessed letter by letter from packed pages (BREACH)."""
        salt = secrets.token_hex(SALT)
        return salt + await self._mark(request, user, salt)

    async def check_csrf(self, request: Request, user: User | None, form: Form) -> None:
        origin = request.headers.get("origin", "")
        given = form.get("csrf") or request.headers.get("x-csrf", "")
        salt, mark = given[: 2 * SALT], given[2 * SALT :]
        foreign = origin not in ("", self.base(request)) and urlsplit(origin).netloc != request.headers.get("host", "")
        if foreign or not hmac.compare_digest(mark.encode(), (await self._mark(request, user, salt)).encode()):
            raise Forbidden(_("this form is too old, or not ours; go back, reload the page and send it again"))

    async def _mark(self, request: Request, user: User | None, salt: str) -> str:
        whose = f"{salt}:{user.id if user else 0}:{request.cookies.get(COOKIE, '') if user else ''}"
        return hmac.digest(await self.key("csrf"), whose.encode(), "sha256").hex()


class Visit:
    """A request with who makes it. ``user`` is None on the pages that are for everybody alone."""

    def __init__(self, site: Site, request: Request, user: User | None, form: Form = NO_FORM) -> None:
        self.site, self.request, self.form = site, request, form
        self.somebody = user
        self._settings: Settings | None = None

    @property
    def user(self) -> User:
        assert self.somebody is not None  # handlers of pages that are not for everybody are called for users alone
        return self.somebody

    @property
    def reading(self) -> Reading:
        return self.site.reading(self.user)

    async def settings(self) -> Settings:
        if self._settings is None:
            self._settings = await self.site.people.settings(self.somebody) if self.somebody else Settings()
        return self._settings

    @property
    def wants_json(self) -> bool:
        return "application/json" in self.request.headers.get("accept", "")

    def note(self, text: str, *, undo: Undo | None = None) -> None:
        waiting = self.site.notes.setdefault(self.user.id, [])
        if undo is not None:  # only what was done last can be taken back
            self.site.undo[self.user.id], waiting[:] = undo, [Note(note.text) for note in waiting]
        waiting[:] = [*(note for note in waiting if note.text != text), Note(text, undo is not None)][-MOST_NOTES:]

    async def render(self, template: str, *, status: int = HTTPStatus.OK, **values: Any) -> Response:
        """A whole page, or a part of one (whose name begins with ``_``)."""
        settings = await self.settings()
        frame: dict[str, Any] = {
            "user": self.somebody,
            "settings": settings,
            "now": self.site.clock(),
            "csrf": await self.site.csrf(self.request, self.somebody),
        }
        if self.somebody is not None and not template.startswith("_"):
            frame["notes"] = self.site.notes.pop(self.user.id, [])
        text = pages.render(template, {**frame, **values})
        headers = {"cache-control": "private, no-store"}
        return HTMLResponse(text, status, headers | {"content-security-policy": pages.security(settings.image_proxy)})

    def json(self, value: Any, status: int = HTTPStatus.OK) -> Response:
        return json(value, status)

    def go(self, path: str) -> Response:
        return RedirectResponse(path, HTTPStatus.SEE_OTHER)

    def back(self, default: str = "/unread") -> Response:
        """To where the form says that it stands; only ever to a page of ours."""
        return self.go(local(self.form.get("next")) or default)


Handler: TypeAlias = Callable[[Visit], Awaitable[Response]]


def page(
    site: Site, path: str, handler: Handler, *, posts: bool = False, admin: bool = False, everybody: bool = False
) -> Route:
    """A route: GET, or with ``posts`` POST, for those who are logged in, for administrators, or for ``everybody``."""

    async def answer(request: Request) -> Response:
        user = await site.who(request)
        visit = Visit(site, request, user)
        try:
            if user is None and not everybody:
                return await _turn_away(site, request)
            if admin and not visit.user.admin:
                raise Forbidden(_("only an administrator may see this"))
            if posts:
                visit.form = await read_form(request)
                await site.check_csrf(request, user, visit.form)
            return await handler(visit)
        except TidingsError as error:
            return await refuse(visit, error)

    return Route(path, answer, methods=["POST"] if posts else ["GET"])


async def _turn_away(site: Site, request: Request) -> Response:
    if "application/json" in request.headers.get("accept", "") or request.method != "GET":
        return json({"error": _("Log in first.")}, HTTPStatus.UNAUTHORIZED)
    if await site.people.is_new():
        return RedirectResponse("/", HTTPStatus.SEE_OTHER)
    wanted = request.url.path + (f"?{request.url.query}" if request.url.query else "")
    return RedirectResponse("/login" + (f"?next={quote(wanted)}" if wanted != "/" else ""), HTTPStatus.SEE_OTHER)


async def refuse(visit: Visit, error: TidingsError) -> Response:
    status = next((status for kind, status in STATUS if isinstance(error, kind)), HTTPStatus.BAD_REQUEST)
    if visit.wants_json:
        return json({"error": pages.sentence(str(error))}, status)
    title = _("Not found") if status == HTTPStatus.NOT_FOUND else _("That did not work")
    return await visit.render("problem.html", status=status, title=title, sentence=pages.sentence(str(error)))


def json(value: Any, status: int = HTTPStatus.OK, headers: Mapping[str, str] | None = None) -> Response:
    return Response(msgspec.json.encode(value), status, headers, media_type="application/json")


def peer(request: Request) -> str:
    return request.client.host if request.client else ""


def local(path: str) -> str:
    """The path if it is one of ours, else nothing: no address of another site, however written."""
    return path if path.startswith("/") and not path.startswith(("//", "/\\")) and path.isprintable() else ""


def set_session(visit: Visit, response: Response, secret: str) -> Response:
    response.set_cookie(
        COOKIE,
        secret,
        max_age=int(SESSION_S),
        httponly=True,
        samesite="lax",
        secure=visit.site.is_secure(visit.request),
    )
    return response
