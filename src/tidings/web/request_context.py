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
from tidings.i18n import _
from tidings.store.user_models import Settings, User
from tidings.users import (
    EventBus,
    Forbidden,
    NotFound,
    ReaderService,
    TooManyAttempts,
    UserService,
    WrongPassword,
)
from tidings.users.favicons import FaviconFetcher
from tidings.users.user_service import SESSION_LIFETIME_S
from tidings.web import templating
from tidings.web.forms import NO_FORM, Form, read_form
from tidings.web.status import StatusReporter
from tidings.web.subprocess_runner import SimulationCache
from tidings.web.undo import Undo

if TYPE_CHECKING:
    from tidings.aggregator.peer_exchange import PeerExchange

SESSION_COOKIE = "tidings"
CSRF_SALT_BYTES = 16
#: Told on one page; forms that are sent by a program are followed by no page.
MAX_FLASH_MESSAGES = 3
STATUS_BY_ERROR: tuple[tuple[type[TidingsError], HTTPStatus], ...] = (
    (NotFound, HTTPStatus.NOT_FOUND),
    (Forbidden, HTTPStatus.FORBIDDEN),
    (WrongPassword, HTTPStatus.FORBIDDEN),
    (TooManyAttempts, HTTPStatus.TOO_MANY_REQUESTS),
)


class FlashMessage(Struct, frozen=True):
    """What a form has done, told on the next page."""

    text: str
    undo: bool = False


class Site:
    """The living parts that pages and APIs need."""

    def __init__(
        self,
        status_reporter: StatusReporter,
        user_service: UserService,
        events: EventBus,
        icons: FaviconFetcher,
        clock: Callable[[], float],
        *,
        image_fetcher: Fetcher | None = None,
        public_url: str = "",
    ) -> None:
        self.status_reporter, self.user_service, self.events, self.icons, self.clock = (
            status_reporter,
            user_service,
            events,
            icons,
            clock,
        )
        self.simulations = SimulationCache(clock)
        self.image_fetcher, self.public_url = image_fetcher, public_url.rstrip("/")
        self.aggregator, self.store = status_reporter.aggregator, status_reporter.aggregator.store
        self.peer_exchange: PeerExchange | None = None  #: where the exchange is on
        self.flash_messages: dict[int, list[FlashMessage]] = {}
        self.undo: dict[int, Undo] = {}  #: of what each user has done last
        self._keys: dict[str, bytes] = {}

    @property
    def contact_url(self) -> str:
        """Where publishers can reach the operator; empty if nobody has said."""
        return self.aggregator.fetcher.settings.contact_url

    async def save_contact(self, url: str) -> None:
        """Keep a contact address and send it with every request from now on."""
        await store_contact(self.store, url)
        for fetcher in (self.aggregator.fetcher, self.image_fetcher):
            if fetcher is not None:
                fetcher.set_contact_url(url)

    def reader_service(self, user: User) -> ReaderService:
        return ReaderService(user, self.store, self.clock, self.events, self.aggregator)

    async def key(self, purpose: str) -> bytes:
        if purpose not in self._keys:
            self._keys[purpose] = await self.user_service.key(purpose)
        return self._keys[purpose]

    async def authenticate(self, request: Request) -> User | None:
        """By the word of a proxy that we trust, or by the browser's cookie."""
        proxy = self.user_service.proxy
        named = request.headers.get(proxy.header, "") if proxy.header else ""
        if (
            named
            and (user := await self.user_service.user_by_proxy(remote_address(request), named))
            is not None
        ):
            return user
        secret = request.cookies.get(SESSION_COOKIE, "")
        return await self.user_service.session(secret) if secret else None

    def address(self, request: Request) -> str:
        """Who somebody is to the limit on guesses: behind a trusted proxy, whom that names last."""
        forwarded = request.headers.get("x-forwarded-for", "").rpartition(",")[2].strip()
        return (
            forwarded
            if forwarded and self.user_service.proxy.trusts(remote_address(request))
            else remote_address(request)
        )

    def base(self, request: Request) -> str:
        """Where the outside reaches us."""
        return self.public_url or f"{request.url.scheme}://{request.url.netloc}"

    def is_secure(self, request: Request) -> bool:
        return self.base(request).startswith("https://")

    async def csrf(self, request: Request, user: User | None) -> str:
        """Salted anew for every page: one that stays the same could be guessed letter by letter from packed pages (BREACH)."""
        salt = secrets.token_hex(CSRF_SALT_BYTES)
        return salt + await self._csrf_signature(request, user, salt)

    async def check_csrf(self, request: Request, user: User | None, form: Form) -> None:
        origin = request.headers.get("origin", "")
        given = form.get("csrf") or request.headers.get("x-csrf", "")
        salt, mark = given[: 2 * CSRF_SALT_BYTES], given[2 * CSRF_SALT_BYTES :]
        foreign = origin not in ("", self.base(request)) and urlsplit(
            origin
        ).netloc != request.headers.get("host", "")
        if foreign or not hmac.compare_digest(
            mark.encode(), (await self._csrf_signature(request, user, salt)).encode()
        ):
            raise Forbidden(
                _("this form is too old, or not ours; go back, reload the page and send it again")
            )

    async def _csrf_signature(self, request: Request, user: User | None, salt: str) -> str:
        whose = f"{salt}:{user.id if user else 0}:{request.cookies.get(SESSION_COOKIE, '') if user else ''}"
        return hmac.digest(await self.key("csrf"), whose.encode(), "sha256").hex()


class RequestContext:
    """A request with who makes it. ``user`` is None on the pages that are for everybody alone."""

    def __init__(
        self, site: Site, request: Request, user: User | None, form: Form = NO_FORM
    ) -> None:
        self.site, self.request, self.form = site, request, form
        self.user_or_none = user
        self._settings: Settings | None = None

    @property
    def user(self) -> User:
        assert (
            self.user_or_none is not None
        )  # handlers of pages that are not for everybody are called for users alone
        return self.user_or_none

    @property
    def reader_service(self) -> ReaderService:
        return self.site.reader_service(self.user)

    async def settings(self) -> Settings:
        if self._settings is None:
            self._settings = (
                await self.site.user_service.settings(self.user_or_none)
                if self.user_or_none
                else Settings()
            )
        return self._settings

    @property
    def wants_json(self) -> bool:
        return "application/json" in self.request.headers.get("accept", "")

    def flash(self, text: str, *, undo: Undo | None = None) -> None:
        waiting = self.site.flash_messages.setdefault(self.user.id, [])
        if undo is not None:  # only what was done last can be taken back
            self.site.undo[self.user.id], waiting[:] = (
                undo,
                [FlashMessage(flash.text) for flash in waiting],
            )
        waiting[:] = [
            *(flash for flash in waiting if flash.text != text),
            FlashMessage(text, undo is not None),
        ][-MAX_FLASH_MESSAGES:]

    async def render(
        self, template: str, *, status: int = HTTPStatus.OK, **values: Any
    ) -> Response:
        """A whole page, or a part of one (whose name begins with ``_``)."""
        settings = await self.settings()
        frame: dict[str, Any] = {
            "user": self.user_or_none,
            "settings": settings,
            "now": self.site.clock(),
            "csrf": await self.site.csrf(self.request, self.user_or_none),
        }
        if self.user_or_none is not None and not template.startswith("_"):
            frame["notes"] = self.site.flash_messages.pop(self.user.id, [])
        text = templating.render(template, {**frame, **values})
        headers = {"cache-control": "private, no-store"}
        return HTMLResponse(
            text,
            status,
            headers
            | {"content-security-policy": templating.content_security_policy(settings.image_proxy)},
        )

    def json(self, value: Any, status: int = HTTPStatus.OK) -> Response:
        return json(value, status)

    def redirect(self, path: str) -> Response:
        return RedirectResponse(path, HTTPStatus.SEE_OTHER)

    def redirect_back(self, default: str = "/unread") -> Response:
        """To where the form says that it stands; only ever to a page of ours."""
        return self.redirect(safe_redirect_path(self.form.get("next")) or default)


Handler: TypeAlias = Callable[[RequestContext], Awaitable[Response]]


def page(
    site: Site,
    path: str,
    handler: Handler,
    *,
    posts: bool = False,
    admin: bool = False,
    public: bool = False,
) -> Route:
    """A route: GET, or with ``posts`` POST, for those who are logged in, for administrators, or for ``everybody``."""

    async def answer(request: Request) -> Response:
        user = await site.authenticate(request)
        context = RequestContext(site, request, user)
        try:
            if user is None and not public:
                return await _redirect_to_login(site, request)
            if admin and not context.user.admin:
                raise Forbidden(_("only an administrator may see this"))
            if posts:
                context.form = await read_form(request)
                await site.check_csrf(request, user, context.form)
            return await handler(context)
        except TidingsError as error:
            return await error_response(context, error)

    return Route(path, answer, methods=["POST"] if posts else ["GET"])


async def _redirect_to_login(site: Site, request: Request) -> Response:
    if "application/json" in request.headers.get("accept", "") or request.method != "GET":
        return json({"error": _("Log in first.")}, HTTPStatus.UNAUTHORIZED)
    if await site.user_service.needs_setup():
        return RedirectResponse("/", HTTPStatus.SEE_OTHER)
    wanted = request.url.path + (f"?{request.url.query}" if request.url.query else "")
    return RedirectResponse(
        "/login" + (f"?next={quote(wanted)}" if wanted != "/" else ""), HTTPStatus.SEE_OTHER
    )


async def error_response(context: RequestContext, error: TidingsError) -> Response:
    status = next(
        (status for kind, status in STATUS_BY_ERROR if isinstance(error, kind)),
        HTTPStatus.BAD_REQUEST,
    )
    if context.wants_json:
        return json({"error": templating.sentence(str(error))}, status)
    title = _("Not found") if status == HTTPStatus.NOT_FOUND else _("That did not work")
    return await context.render(
        "problem.html", status=status, title=title, sentence=templating.sentence(str(error))
    )


def json(
    value: Any, status: int = HTTPStatus.OK, headers: Mapping[str, str] | None = None
) -> Response:
    return Response(msgspec.json.encode(value), status, headers, media_type="application/json")


def remote_address(request: Request) -> str:
    return request.client.host if request.client else ""


def safe_redirect_path(path: str) -> str:
    """The path if it is one of ours, else nothing: no address of another site, however written."""
    return (
        path
        if path.startswith("/") and not path.startswith(("//", "/\\")) and path.isprintable()
        else ""
    )


def set_session(context: RequestContext, response: Response, secret: str) -> Response:
    response.set_cookie(
        SESSION_COOKIE,
        secret,
        max_age=int(SESSION_LIFETIME_S),
        httponly=True,
        samesite="lax",
        secure=context.site.is_secure(context.request),
    )
    return response
