"""Authenticate requests, check CSRF tokens, and render pages and redirects.

`AppServices` has the services that pages and APIs use. `page` creates a route whose handler gets
a `RequestContext` with a logged-in user and a form that passed the CSRF check. Requests without a
session are redirected to the login page, or to the setup page before the first user exists.
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
#: Maximum number of stored flash messages per user. Programs that send forms never load the page
#: that shows them.
MAX_FLASH_MESSAGES = 3
STATUS_BY_ERROR: tuple[tuple[type[TidingsError], HTTPStatus], ...] = (
    (NotFound, HTTPStatus.NOT_FOUND),
    (Forbidden, HTTPStatus.FORBIDDEN),
    (WrongPassword, HTTPStatus.FORBIDDEN),
    (TooManyAttempts, HTTPStatus.TOO_MANY_REQUESTS),
)


class FlashMessage(Struct, frozen=True):
    """Message about a finished action, shown on the user's next page."""

    text: str
    undo: bool = False


class AppServices:
    """Services of the running process that pages and APIs use."""

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
        self.peer_exchange: PeerExchange | None = None  #: None if the exchange is off
        self.flash_messages: dict[int, list[FlashMessage]] = {}
        self.undo: dict[int, Undo] = {}  #: how to undo the last action, by user id
        self._keys: dict[str, bytes] = {}

    @property
    def contact_url(self) -> str:
        """Contact address of the operator for the User-Agent header, "" if there is none."""
        return self.aggregator.fetcher.settings.contact_url

    async def save_contact(self, url: str) -> None:
        """Store the contact address and send it with all further requests."""
        await store_contact(self.store, url)
        for fetcher in (self.aggregator.fetcher, self.image_fetcher):
            if fetcher is not None:
                fetcher.set_contact_url(url)

    def reader_service(self, user: User) -> ReaderService:
        return ReaderService(user, self.store, self.clock, self.events, self.aggregator)

    async def key(self, purpose: str) -> bytes:
        """Return the HMAC signing key for ``purpose``, which is stored and never changes."""
        if purpose not in self._keys:
            self._keys[purpose] = await self.user_service.signing_key(purpose)
        return self._keys[purpose]

    async def authenticate(self, request: Request) -> User | None:
        """Return the user of a request, or None.

        A trusted reverse proxy names the user in a header; otherwise the session cookie does.
        """
        proxy = self.user_service.proxy
        named = request.headers.get(proxy.header, "") if proxy.header else ""
        if (
            named
            and (user := await self.user_service.user_by_proxy(remote_address(request), named))
            is not None
        ):
            return user
        secret = request.cookies.get(SESSION_COOKIE, "")
        return await self.user_service.user_by_session(secret) if secret else None

    def client_address(self, request: Request) -> str:
        """Return the client's IP address for the login rate limit.

        Behind a trusted proxy this is the last address of X-Forwarded-For, as clients can forge the
        others.
        """
        forwarded = request.headers.get("x-forwarded-for", "").rpartition(",")[2].strip()
        return (
            forwarded
            if forwarded and self.user_service.proxy.trusts(remote_address(request))
            else remote_address(request)
        )

    def base(self, request: Request) -> str:
        """Return the public base URL of this service, without a trailing slash."""
        return self.public_url or f"{request.url.scheme}://{request.url.netloc}"

    def is_secure(self, request: Request) -> bool:
        return self.base(request).startswith("https://")

    async def csrf(self, request: Request, user: User | None) -> str:
        """Return a new CSRF token.

        Each token has a new salt, so that compressed responses do not reveal it (BREACH attack).
        """
        salt = secrets.token_hex(CSRF_SALT_BYTES)
        return salt + await self._csrf_signature(request, user, salt)

    async def check_csrf(self, request: Request, user: User | None, form: Form) -> None:
        """Raise `Forbidden` if the CSRF token is invalid or the Origin is another site."""
        origin = request.headers.get("origin", "")
        given = form.get("csrf") or request.headers.get("x-csrf", "")
        salt, signature = given[: 2 * CSRF_SALT_BYTES], given[2 * CSRF_SALT_BYTES :]
        foreign = origin not in ("", self.base(request)) and urlsplit(
            origin
        ).netloc != request.headers.get("host", "")
        if foreign or not hmac.compare_digest(
            signature.encode(), (await self._csrf_signature(request, user, salt)).encode()
        ):
            raise Forbidden(_("this form has expired; go back, reload the page and send it again"))

    async def _csrf_signature(self, request: Request, user: User | None, salt: str) -> str:
        session = request.cookies.get(SESSION_COOKIE, "") if user else ""
        signed = f"{salt}:{user.id if user else 0}:{session}"
        return hmac.digest(await self.key("csrf"), signed.encode(), "sha256").hex()


class RequestContext:
    """Request with its user, form and settings.

    ``user_or_none`` is None only on public pages.
    """

    def __init__(
        self, services: AppServices, request: Request, user: User | None, form: Form = NO_FORM
    ) -> None:
        self.services, self.request, self.form = services, request, form
        self.user_or_none = user
        self._settings: Settings | None = None

    @property
    def user(self) -> User:
        assert (
            self.user_or_none is not None
        )  # `page` calls handlers of other pages only with a user
        return self.user_or_none

    @property
    def reader_service(self) -> ReaderService:
        return self.services.reader_service(self.user)

    async def settings(self) -> Settings:
        if self._settings is None:
            self._settings = (
                await self.services.user_service.settings(self.user_or_none)
                if self.user_or_none
                else Settings()
            )
        return self._settings

    @property
    def wants_json(self) -> bool:
        return "application/json" in self.request.headers.get("accept", "")

    def flash(self, text: str, *, undo: Undo | None = None) -> None:
        """Show ``text`` on the user's next page, with an Undo button if ``undo`` is not None."""
        pending = self.services.flash_messages.setdefault(self.user.id, [])
        if undo is not None:  # only the last action can be undone
            self.services.undo[self.user.id], pending[:] = (
                undo,
                [FlashMessage(flash.text) for flash in pending],
            )
        pending[:] = [
            *(flash for flash in pending if flash.text != text),
            FlashMessage(text, undo is not None),
        ][-MAX_FLASH_MESSAGES:]

    async def render(
        self, template: str, *, status: int = HTTPStatus.OK, **values: Any
    ) -> Response:
        """Return the response with a rendered template.

        A template whose name starts with ``_`` is a fragment, any other is a page.
        """
        settings = await self.settings()
        common: dict[str, Any] = {
            "user": self.user_or_none,
            "settings": settings,
            "now": self.services.clock(),
            "csrf": await self.services.csrf(self.request, self.user_or_none),
        }
        if self.user_or_none is not None and not template.startswith("_"):
            common["flash_messages"] = self.services.flash_messages.pop(self.user.id, [])
        text = templating.render(template, {**common, **values})
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
        """Redirect to the form's ``next`` path, or to ``default`` if it is missing or unsafe."""
        return self.redirect(safe_redirect_path(self.form.get("next")) or default)


Handler: TypeAlias = Callable[[RequestContext], Awaitable[Response]]


def page(
    services: AppServices,
    path: str,
    handler: Handler,
    *,
    is_post: bool = False,
    admin: bool = False,
    public: bool = False,
) -> Route:
    """Return a route for GET, or for POST with a CSRF check if ``is_post`` is true.

    The handler runs only for logged-in users; ``admin`` requires an administrator, ``public``
    allows requests without a session. `TidingsError` becomes an error page or a JSON error.
    """

    async def answer(request: Request) -> Response:
        user = await services.authenticate(request)
        context = RequestContext(services, request, user)
        try:
            if user is None and not public:
                return await _redirect_to_login(services, request)
            if admin and not context.user.admin:
                raise Forbidden(_("only an administrator can open this page"))
            if is_post:
                context.form = await read_form(request)
                await services.check_csrf(request, user, context.form)
            return await handler(context)
        except TidingsError as error:
            return await error_response(context, error)

    return Route(path, answer, methods=["POST"] if is_post else ["GET"])


async def _redirect_to_login(services: AppServices, request: Request) -> Response:
    if "application/json" in request.headers.get("accept", "") or request.method != "GET":
        return json({"error": _("Log in first.")}, HTTPStatus.UNAUTHORIZED)
    if await services.user_service.needs_setup():
        return RedirectResponse("/", HTTPStatus.SEE_OTHER)
    target = request.url.path + (f"?{request.url.query}" if request.url.query else "")
    return RedirectResponse(
        "/login" + (f"?next={quote(target)}" if target != "/" else ""), HTTPStatus.SEE_OTHER
    )


async def error_response(context: RequestContext, error: TidingsError) -> Response:
    """Return an error as JSON or HTML, with the status of `STATUS_BY_ERROR` (default 400)."""
    status = next(
        (status for kind, status in STATUS_BY_ERROR if isinstance(error, kind)),
        HTTPStatus.BAD_REQUEST,
    )
    if context.wants_json:
        return json({"error": templating.sentence(str(error))}, status)
    title = _("Not found") if status == HTTPStatus.NOT_FOUND else _("Something went wrong")
    return await context.render(
        "error.html", status=status, title=title, sentence=templating.sentence(str(error))
    )


def json(
    value: Any, status: int = HTTPStatus.OK, headers: Mapping[str, str] | None = None
) -> Response:
    return Response(msgspec.json.encode(value), status, headers, media_type="application/json")


def remote_address(request: Request) -> str:
    return request.client.host if request.client else ""


def safe_redirect_path(path: str) -> str:
    """Return ``path`` if it stays on this site, otherwise "" (prevents open redirects)."""
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
        secure=context.services.is_secure(context.request),
    )
    return response
