"""Who somebody is: users, passwords, sessions, tokens for apps, and the word of a trusted proxy.

Passwords are stored as argon2 makes of them. Every other secret is made here from enough randomness that a plain hash of it
is all that has to be kept (`secrets`): who reads the database learns none of them.
"""

import asyncio
import hmac
import ipaddress
import secrets
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from msgspec import Struct

from tidings.errors import UsageError
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

#: A browser that does not come back for so long has to log in again.
SESSION_LIFETIME_S = 30 * 86400.0
#: That somebody has logged in is noted at most so often: apps that speak HTTP Basic do so with every request.
LAST_LOGIN_RESOLUTION_S = 60.0
#: Under this key lies the secret of this installation, of which other keys are made.
SECRET_NAME = "secret"


class TrustedProxy(Struct, frozen=True):
    """A proxy that logs people in for us: the header that it names them in, and from which addresses it is believed."""

    header: str = ""
    addresses: tuple[str, ...] = ()  #: networks, such as 127.0.0.1 or 10.0.0.0/8

    def trusts(self, address: str) -> bool:
        try:
            peer = ipaddress.ip_address(address)
        except ValueError:
            return False
        return any(
            peer in ipaddress.ip_network(network, strict=False) for network in self.addresses
        )


class NewToken(Struct, frozen=True):
    """A token with its secret, which is shown once.

    The secret serves as the key of the REST API, as the password of any app beside the user's name, and for Fever.
    """

    token: Token
    secret: str


class UserService:
    """All users of one store."""

    def __init__(
        self, store: Store, clock: Callable[[], float], proxy: TrustedProxy | None = None
    ) -> None:
        self.store, self.proxy = store, proxy or TrustedProxy()
        self._clock = clock
        self._login_limiter = LoginLimiter(clock)

    # --- users ---------------------------------------------------------------------------------------------------------
    # ``by`` is the user who asks for it; None is the command line, and the first run.

    async def needs_setup(self) -> bool:
        """Whether nobody has been named administrator yet: then the first-run page is for whoever comes."""
        return not await self.store.read(table.has_administrator)

    async def users(self, *, by: User | None) -> list[User]:
        _require_admin(by)
        return await self.store.read(table.users)

    async def user(self, user: int | str) -> User | None:
        """By id or name."""
        return await self.store.read(table.find_user, user)

    async def add_user(
        self, name: str, password: str, *, admin: bool = False, by: User | None
    ) -> User:
        """The first administrator takes over the store's first user, and what was subscribed to before there were users."""
        _require_admin(by)
        check_username(name)
        hashed = await _run_in_thread(hash_password, password)
        return await self.store.write(table.add_user, name, hashed, admin, self._clock())

    async def set_password(self, user_id: int, password: str, *, by: User | None) -> None:
        """Ends all sessions of the user; tokens of apps stay."""
        if by is None or by.id != user_id:
            _require_admin(by)
        hashed = await _run_in_thread(hash_password, password)
        await self.store.write(table.set_password, await self._require_user(user_id), hashed)

    async def set_admin(self, user_id: int, admin: bool, *, by: User | None) -> None:
        _require_admin(by)
        await self.store.write(table.set_admin, await self._require_user(user_id), admin)

    async def remove_user(self, user_id: int, *, by: User | None) -> None:
        """With all that is theirs. The last administrator cannot be removed."""
        if by is None or by.id != user_id:
            _require_admin(by)
        await self.store.write(table.remove_user, await self._require_user(user_id), self._clock())

    async def settings(self, user: User) -> Settings:
        return await self.store.read(table.settings, user.id)

    async def save_settings(self, user: User, settings: Settings) -> None:
        await self.store.write(table.save_settings, user.id, settings)

    # --- log in --------------------------------------------------------------------------------------------------------

    async def log_in(self, name: str, password: str, address: str) -> User:
        """By the user's own password or the secret of one of their tokens. `WrongPassword`, `TooManyAttempts`."""
        self._login_limiter.check(name, address)
        user, hashed = await self.store.read(table.find_user_with_password_hash, name)
        user_by_token = await self._user_by_secret(password, "app")
        if user is None or user_by_token is None or user_by_token.id != user.id:
            # A name that nobody has takes as long as one that somebody has.
            good = await _run_in_thread(check_password, hashed, password)
            if user is None or not good:
                self._login_limiter.record_failure(name, address)
                raise WrongPassword("name and password do not belong together")
        self._login_limiter.record_success(name, address)
        now = self._clock()
        if user.seen_at is None or user.seen_at < now - LAST_LOGIN_RESOLUTION_S:
            await self.store.write(table.record_login, user.id, now)
        return user

    async def user_by_proxy(self, address: str, name: str) -> User | None:
        """Whom a trusted proxy at ``address`` names in its header; somebody new is made a user: the proxy decides who may."""
        if not self.proxy.header or not name or not self.proxy.trusts(address):
            return None
        user = await self.user(name)
        if user is None:
            check_username(name)
            user = await self.store.write(table.add_user, name, "", False, self._clock())
        return user

    async def start_session(self, user: User) -> str:
        """A secret for the browser's cookie."""
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

    async def session(self, secret: str) -> User | None:
        return await self._user_by_secret(secret, "session")

    async def end_session(self, secret: str) -> None:
        await self.store.write(table.end_session, digest(secret))

    # --- tokens for apps -----------------------------------------------------------------------------------------------

    async def add_token(self, user: User, label: str) -> NewToken:
        """Refused if the user has one of this label."""
        if not label.strip():
            raise UsageError("a token needs a name, such as the app that will use it")
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
            raise NotFound(f"there is no token {token_id}")

    async def user_by_token(self, secret: str) -> User | None:
        """The REST API's key (``X-Auth-Token``)."""
        return await self._user_by_secret(secret, "app")

    async def user_by_fever_key(self, api_key: str) -> User | None:
        """Fever's key: md5 of ``name:secret`` in hex, of a token's secret."""
        return await self._user_by_secret(api_key.strip().lower(), "fever")

    async def client_login(self, name: str, password: str, address: str) -> str:
        """Google Reader's Auth token for who logs in so.

        It stays the same until the password changes, however often an app logs in, and has no character that any client
        trips over. Who logs in with a token's secret has that secret as Auth token.
        """
        user = await self.log_in(name, password, address)
        user_by_token = await self._user_by_secret(password, "app")
        return (
            password
            if user_by_token is not None and user_by_token.id == user.id
            else await self._google_auth_token(user)
        )

    async def user_by_auth_token(self, auth: str) -> User | None:
        """The user of a Google Reader Auth token."""
        user_id, slash, _ = auth.partition("/")
        if not slash:
            return await self._user_by_secret(auth, "app")
        user = (
            await self.user(int(user_id))
            if user_id.isascii() and user_id.isdecimal() and len(user_id) < 10
            else None
        )
        good = user is not None and hmac.compare_digest(
            (await self._google_auth_token(user)).encode(), auth.encode()
        )
        return user if good else None

    async def _google_auth_token(self, user: User) -> str:
        _, hashed = await self.store.read(table.find_user_with_password_hash, user.name)
        key = await self.key("auth")
        return f"{user.id}/{hmac.digest(key, f'{user.id}:{hashed}'.encode(), 'sha256').hex()}"

    async def key(self, purpose: str) -> bytes:
        """A key of this installation for signing: the image proxy's, say. It never changes."""
        secret = (await self.store.load_values()).get(SECRET_NAME)
        if secret is None:
            secret = await self.store.write(
                table.get_or_create_secret, SECRET_NAME, secrets.token_bytes(32), self._clock()
            )
        return hmac.digest(secret, purpose.encode(), "sha256")

    async def _user_by_secret(self, secret: str, kind: str) -> User | None:
        key, now = digest(secret), self._clock()
        user, note = await self.store.read(table.find_token_owner, key, kind, now)
        if note:
            await self.store.write(table.record_token_use, key, now, SESSION_LIFETIME_S)
        return user

    async def _require_user(self, user_id: int) -> int:
        if await self.user(user_id) is None:
            raise NotFound(f"there is no user {user_id}")
        return user_id


def _require_admin(by: User | None) -> None:
    if by is not None and not by.admin:
        raise Forbidden("only an administrator may do this")


async def _run_in_thread(work: Callable[P, T], *args: P.args, **options: P.kwargs) -> T:
    """argon2 takes its time on purpose: in a thread."""
    return await asyncio.to_thread(work, *args, **options)
