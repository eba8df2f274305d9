"""Hash passwords (Argon2), generate secrets, and validate user names."""

import re
import secrets
from base64 import b32encode
from hashlib import blake2b, md5

from argon2 import PasswordHasher
from argon2.exceptions import Argon2Error, InvalidHashError

from tidings.errors import UsageError
from tidings.i18n import _

#: Password length. The minimum is that of NIST SP 800-63B; the maximum limits Argon2's CPU time.
MIN_PASSWORD_LENGTH, MAX_PASSWORD_LENGTH = 8, 256
USERNAME_PATTERN = re.compile(r"[^\s/:\x00-\x1f]{1,100}")

_hasher = PasswordHasher()
#: Hash that is verified for unknown users, so that the response time does not reveal them.
_DUMMY_HASH = _hasher.hash(secrets.token_hex(16))
#: Cache of recently verified passwords: (stored hash, keyed hash of the password).
_verified: set[tuple[str, bytes]] = set()
_CACHE_KEY = secrets.token_bytes(32)
#: Maximum number of cached passwords.
MAX_VERIFIED = 1000


def check_username(name: str) -> None:
    """Raise `UsageError` if a name is too long or contains a space, slash or colon.

    HTTP Basic and Fever separate name and password by a colon.
    """
    if not USERNAME_PATTERN.fullmatch(name):
        raise UsageError(
            _(
                "%(name)s is not a valid user name; use at most 100 characters "
                "without spaces, / and :",
                name=repr(name),
            )
        )


def hash_password(password: str) -> str:
    """Return the Argon2 hash of a new password.

    Raises `UsageError` unless the password has `MIN_PASSWORD_LENGTH` to `MAX_PASSWORD_LENGTH`
    characters.
    """
    if not MIN_PASSWORD_LENGTH <= len(password) <= MAX_PASSWORD_LENGTH:
        raise UsageError(
            _(
                "the password must have %(min)s to %(max)s characters",
                min=MIN_PASSWORD_LENGTH,
                max=MAX_PASSWORD_LENGTH,
            )
        )
    return _hasher.hash(password)


def check_password(hashed: str, password: str) -> bool:
    """Return whether a password matches its Argon2 hash; an empty hash matches no password.

    Apps that use HTTP Basic send the password with each request, and Argon2 is slow. A verified
    password is therefore cached in memory as a keyed hash; the cache entry is valid only for the
    same stored hash.
    """
    cache_key = (hashed, blake2b(password.encode("utf-8", "replace"), key=_CACHE_KEY).digest())
    if cache_key in _verified:
        return True
    try:
        is_correct = _hasher.verify(hashed or _DUMMY_HASH, password[: MAX_PASSWORD_LENGTH + 1])
    except (Argon2Error, InvalidHashError):
        return False
    if len(_verified) >= MAX_VERIFIED:
        _verified.clear()
    _verified.add(cache_key)
    return is_correct


def new_secret() -> str:
    """Return a new secret of 130 random bits, as 26 lower-case letters and digits.

    The secret can be typed and needs no escaping in forms, headers and URLs of clients.
    """
    return b32encode(secrets.token_bytes(17)).decode().rstrip("=").lower()[:26]


def digest(secret: str) -> bytes:
    """Return the hash under which a generated secret is stored in the database.

    A fast hash is sufficient because generated secrets have 130 random bits.
    """
    return blake2b(secret.encode("utf-8", "replace"), digest_size=32).digest()


def fever_key(name: str, secret: str) -> str:
    """Return the API key of Fever clients, md5 of ``name:secret`` as the protocol requires.

    MD5 is acceptable here because the secret is generated, not a password chosen by the user.
    """
    return md5(f"{name}:{secret}".encode(), usedforsecurity=False).hexdigest()
