"""User accounts and authentication by password, session, API token or proxy header.

Passwords are stored as Argon2 hashes. All other secrets are random (130 bits), so a plain hash of
them is stored; the database contains no secret in clear text.
"""

import asyncio
import hmac
import ipaddress
import secrets
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from msgspec import Struct

from tidings.errors import UsageError
from tidings.i18n import _
from tidings.store import Store
from tidings.store import users as table
from tidings.store.user_models import Settings, Token, User
from tidings.users.errors import Forbidden, NotFound, WrongPassword
from tidings.users.login_limiter import LoginLimiter
from tidings.users.passwords import (
    check_password,
    check_username,
    digest,
    fever_key,
    hash_password,
    new_secret,
)

P = ParamSpec("P")
T = TypeVar("T")

#: Seconds without a request after which a browser session expires.
SESSION_LIFETIME_S = 30 * 86400.0
#: Minimum seconds between updates of a user's last login, because HTTP Basic logs in each time.
LAST_LOGIN_RESOLUTION_S = 60.0
#: Key of the stored value with the installation's secret, from which other keys are derived.
SECRET_NAME = "secret"


class TrustedProxy(Struct, frozen=True):
    """Reverse proxy that authenticates users and passes the user name in a header."""

    header: str = ""  #: name of the header
    addresses: tuple[str, ...] = ()  #: networks of the proxy, such as 127.0.0.1 or 10.0.0.0/8

    def trusts(self, address: str) -> bool:
        """Return whether the header is accepted from a client with this IP address."""
        try:
            peer = ipaddress.ip_address(address)
        except ValueError:
            return False
        return any(
            peer in ipaddress.ip_network(network, strict=False) for network in self.addresses
        )


class NewToken(Struct, frozen=True):
    """API token that was just created, with its secret, which is shown only once.

    The secret is the API key of the REST API, the app password next to the user name, and the
    secret of the Fever API key.
    """

    token: Token
    secret: str


class UserService:
    """Accounts, logins, sessions and API tokens of the users of one store.

    The parameter ``by`` is the acting user; None is the command line or the first run. Methods
    raise `Forbidden` where ``by`` lacks the role `admin`, and `NotFound` for an unknown user.
    """

    def __init__(
        self, store: Store, clock: Callable[[], float], proxy: TrustedProxy | None = None
    ) -> None:
        self.store, self.proxy = store, proxy or TrustedProxy()
        self._clock = clock
        self._login_limiter = LoginLimiter(clock)

    # --- users ------------------------------------------------------------------------------------

    async def needs_setup(self) -> bool:
        """Return whether there is no administrator yet.

        Any visitor can then open the first-run page.
        """
        return not await self.store.read(table.has_administrator)

    async def list_users(self, *, by: User | None) -> list[User]:
        _require_admin(by)
        return await self.store.read(table.users)

    async def find_user(self, user: int | str) -> User | None:
        """Return the user with this id or name, or None."""
        return await self.store.read(table.find_user, user)

    async def add_user(
        self, name: str, password: str, *, admin: bool = False, by: User | None
    ) -> User:
        """Add a user; raise `UsageError` if the name is invalid or in use, or the password invalid.

        The first administrator takes over the store's initial user with its subscriptions.
        """
        _require_admin(by)
        check_username(name)
        hashed = await _run_in_thread(hash_password, password)
        return await self.store.write(table.add_user, name, hashed, admin, self._clock())

    async def set_password(self, user_id: int, password: str, *, by: User | None) -> None:
        """Set a user's password and end all sessions of the user; API tokens stay valid."""
        if by is None or by.id != user_id:
            _require_admin(by)
        hashed = await _run_in_thread(hash_password, password)
        await self.store.write(table.set_password, await self._require_user(user_id), hashed)

    async def set_admin(self, user_id: int, admin: bool, *, by: User | None) -> None:
        _require_admin(by)
        await self.store.write(table.set_admin, await self._require_user(user_id), admin)

    async def remove_user(self, user_id: int, *, by: User | None) -> None:
        """Delete a user and their data; raise `UsageError` for the last administrator."""
        if by is None or by.id != user_id:
            _require_admin(by)
        await self.store.write(table.remove_user, await self._require_user(user_id), self._clock())

    async def settings(self, user: User) -> Settings:
        return await self.store.read(table.settings, user.id)

    async def save_settings(self, user: User, settings: Settings) -> None:
        await self.store.write(table.save_settings, user.id, settings)

    # --- log in -----------------------------------------------------------------------------------

    async def log_in(self, name: str, password: str, address: str) -> User:
        """Return the user who has this password, or an API token with this secret.

        ``address`` is the client's IP address, for the rate limit. Raises `WrongPassword`, or
        `TooManyAttempts` during the backoff after failures.
        """
        self._login_limiter.check(name, address)
        user, hashed = await self.store.read(table.find_user_with_password_hash, name)
        user_by_token = await self._user_by_secret(password, "app")
        if user is None or user_by_token is None or user_by_token.id != user.id:
            # Unknown names are verified too, so that the response time does not reveal them.
            is_correct = await _run_in_thread(check_password, hashed, password)
            if user is None or not is_correct:
                self._login_limiter.record_failure(name, address)
                raise WrongPassword(_("wrong user name or password"))
        self._login_limiter.record_success(name, address)
        now = self._clock()
        if user.seen_at is None or user.seen_at < now - LAST_LOGIN_RESOLUTION_S:
            await self.store.write(table.record_login, user.id, now)
        return user

    async def user_by_proxy(self, address: str, name: str) -> User | None:
        """Return the user that a trusted proxy at ``address`` names, or None if it is not trusted.

        An unknown user is added, because access control is left to the proxy.
        """
        if not self.proxy.header or not name or not self.proxy.trusts(address):
            return None
        user = await self.find_user(name)
        if user is None:
            check_username(name)
            user = await self.store.write(table.add_user, name, "", False, self._clock())
        return user

    async def start_session(self, user: User) -> str:
        """Start a session and return its secret, which is the value of the session cookie."""
        secret = new_secret()
        now = self._clock()
        await self.store.write(
            table.add_token,
            user.id,
            "session",
            digest(secret),
            None,
            "",
            now,
            now + SESSION_LIFETIME_S,
        )
        return secret

    async def user_by_session(self, secret: str) -> User | None:
        return await self._user_by_secret(secret, "session")

    async def end_session(self, secret: str) -> None:
        await self.store.write(table.end_session, digest(secret))

    # --- tokens for apps --------------------------------------------------------------------------

    async def add_token(self, user: User, label: str) -> NewToken:
        """Add an API token; raise `UsageError` if the label is empty or already in use."""
        if not label.strip():
            raise UsageError(_("enter a name for the token, such as the name of the app"))
        secret = new_secret()
        keys = digest(secret), digest(fever_key(user.name, secret))
        token = await self.store.write(
            table.add_token, user.id, "app", *keys, label.strip(), self._clock(), None
        )
        return NewToken(token, secret)

    async def tokens(self, user: User) -> list[Token]:
        return await self.store.read(table.tokens, user.id)

    async def remove_token(self, user: User, token_id: int) -> None:
        if not await self.store.write(table.remove_token, user.id, token_id):
            raise NotFound(_("there is no token %(id)s", id=token_id))

    async def user_by_token(self, secret: str) -> User | None:
        """Return the user of an API token (header ``X-Auth-Token`` of the REST API), or None."""
        return await self._user_by_secret(secret, "app")

    async def user_by_fever_key(self, api_key: str) -> User | None:
        """Return the user of a Fever API key, or None.

        The key is md5 of ``name:secret`` in hex, for the secret of an API token.
        """
        return await self._user_by_secret(api_key.strip().lower(), "fever")

    async def client_login(self, name: str, password: str, address: str) -> str:
        """Log in to the Google Reader API (ClientLogin) and return the Auth token.

        The Auth token stays the same until the password changes. A login with the secret of an
        API token returns that secret as Auth token. Raises the same errors as `log_in`.
        """
        user = await self.log_in(name, password, address)
        user_by_token = await self._user_by_secret(password, "app")
        return (
            password
            if user_by_token is not None and user_by_token.id == user.id
            else await self._google_auth_token(user)
        )

    async def user_by_auth_token(self, auth: str) -> User | None:
        """Return the user of a Google Reader Auth token, or None."""
        user_id, slash, _signature = auth.partition("/")
        if not slash:
            return await self._user_by_secret(auth, "app")
        user = (
            await self.find_user(int(user_id))
            if user_id.isascii() and user_id.isdecimal() and len(user_id) < 10
            else None
        )
        is_valid = user is not None and hmac.compare_digest(
            (await self._google_auth_token(user)).encode(), auth.encode()
        )
        return user if is_valid else None

    async def _google_auth_token(self, user: User) -> str:
        _user, hashed = await self.store.read(table.find_user_with_password_hash, user.name)
        key = await self.signing_key("auth")
        return f"{user.id}/{hmac.digest(key, f'{user.id}:{hashed}'.encode(), 'sha256').hex()}"

    async def signing_key(self, purpose: str) -> bytes:
        """Return the installation's signing key for a purpose (HMAC), which never changes."""
        secret = (await self.store.load_values()).get(SECRET_NAME)
        if secret is None:
            secret = await self.store.write(
                table.get_or_create_secret, SECRET_NAME, secrets.token_bytes(32), self._clock()
            )
        return hmac.digest(secret, purpose.encode(), "sha256")

    async def _user_by_secret(self, secret: str, kind: str) -> User | None:
        key, now = digest(secret), self._clock()
        user, should_record = await self.store.read(table.find_token_owner, key, kind, now)
        if should_record:
            await self.store.write(table.record_token_use, key, now, SESSION_LIFETIME_S)
        return user

    async def _require_user(self, user_id: int) -> int:
        if await self.find_user(user_id) is None:
            raise NotFound(_("there is no user %(id)s", id=user_id))
        return user_id


def _require_admin(by: User | None) -> None:
    if by is not None and not by.admin:
        raise Forbidden(_("only an administrator can do this"))


async def _run_in_thread(work: Callable[P, T], *args: P.args, **options: P.kwargs) -> T:
    """Run a slow function such as Argon2 in a thread, so that the event loop is not blocked."""
    return await asyncio.to_thread(work, *args, **options)
