"""Secrets: passwords by argon2, everything that we make ourselves by a plain hash."""

import re
import secrets
from base64 import b32encode
from hashlib import blake2b, md5

from argon2 import PasswordHasher
from argon2.exceptions import Argon2Error, InvalidHashError

from tidings.errors import UsageError

#: As NIST SP 800-63B asks: length is what counts; longer than this is no password but an attack on our processor.
SHORTEST, LONGEST = 8, 256
NAME = re.compile(r"[^\s/:\x00-\x1f]{1,100}")

_hasher = PasswordHasher()
#: What a password is checked against where there is none, so that both take the same time.
_NOBODY = _hasher.hash(secrets.token_hex(16))
#: Passwords that were right lately, and how many are remembered.
_right: set[tuple[str, bytes]] = set()
_MEMORY_KEY = secrets.token_bytes(32)
MOST_RIGHT = 1000


def usable_name(name: str) -> None:
    """No colon (HTTP Basic and Fever part name and password by it), no blank, no slash."""
    if not NAME.fullmatch(name):
        raise UsageError(f"{name!r} cannot be a user's name: use up to 100 characters without blanks, / and :")


def hash_password(password: str) -> str:
    if not SHORTEST <= len(password) <= LONGEST:
        raise UsageError(f"a password has {SHORTEST} to {LONGEST} characters")
    return _hasher.hash(password)


def check_password(hashed: str, password: str) -> bool:
    """Never right where none is set.

    Apps that speak HTTP Basic send it with every request, so a password that was right is remembered for as long as its hash
    is what is stored: by a keyed hash, in memory.
    """
    known = (hashed, blake2b(password.encode("utf-8", "replace"), key=_MEMORY_KEY).digest())
    if known in _right:
        return True
    try:
        good = _hasher.verify(hashed or _NOBODY, password[: LONGEST + 1])
    except (Argon2Error, InvalidHashError):
        return False
    if len(_right) >= MOST_RIGHT:
        _right.clear()
    _right.add(known)
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
