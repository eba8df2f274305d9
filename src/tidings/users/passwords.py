"""Secrets: passwords by argon2, everything that we make ourselves by a plain hash."""

import re
import secrets
from base64 import b32encode
from hashlib import blake2b, md5

from argon2 import PasswordHasher
from argon2.exceptions import Argon2Error, InvalidHashError

from tidings.errors import UsageError

#: As NIST SP 800-63B asks: length is what counts; longer than this is no password but an attack on our processor.
MIN_PASSWORD_LENGTH, MAX_PASSWORD_LENGTH = 8, 256
USERNAME_PATTERN = re.compile(r"[^\s/:\x00-\x1f]{1,100}")

_hasher = PasswordHasher()
#: What a password is checked against where there is none, so that both take the same time.
_DUMMY_HASH = _hasher.hash(secrets.token_hex(16))
#: Passwords that were right lately, and how many are remembered.
_verified: set[tuple[str, bytes]] = set()
_CACHE_KEY = secrets.token_bytes(32)
MAX_VERIFIED = 1000


def check_username(name: str) -> None:
    """No colon (HTTP Basic and Fever part name and password by it), no blank, no slash."""
    if not USERNAME_PATTERN.fullmatch(name):
        raise UsageError(
            f"{name!r} cannot be a user's name: use up to 100 characters without blanks, / and :"
        )


def hash_password(password: str) -> str:
    if not MIN_PASSWORD_LENGTH <= len(password) <= MAX_PASSWORD_LENGTH:
        raise UsageError(
            f"a password has {MIN_PASSWORD_LENGTH} to {MAX_PASSWORD_LENGTH} characters"
        )
    return _hasher.hash(password)


def check_password(hashed: str, password: str) -> bool:
    """Never right where none is set.

    Apps that speak HTTP Basic send it with every request, so a password that was right is remembered for as long as its hash
    is what is stored: by a keyed hash, in memory.
    """
    known = (hashed, blake2b(password.encode("utf-8", "replace"), key=_CACHE_KEY).digest())
    if known in _verified:
        return True
    try:
        good = _hasher.verify(hashed or _DUMMY_HASH, password[: MAX_PASSWORD_LENGTH + 1])
    except (Argon2Error, InvalidHashError):
        return False
    if len(_verified) >= MAX_VERIFIED:
        _verified.clear()
    _verified.add(known)
    return good


def new_secret() -> str:
    """130 bits in 26 letters and digits that can be typed, and that no client's form, header or parser trips over."""
    return b32encode(secrets.token_bytes(17)).decode().rstrip("=").lower()[:26]


def digest(secret: str) -> bytes:
    """What is kept of a secret that we have made."""
    return blake2b(secret.encode("utf-8", "replace"), digest_size=32).digest()


def fever_key(name: str, secret: str) -> str:
    """What Fever clients send. The old hash is theirs; what protects it is that the secret is ours, and random."""
    return md5(f"{name}:{secret}".encode(), usedforsecurity=False).hexdigest()
