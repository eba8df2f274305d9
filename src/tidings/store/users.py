"""Users and their secrets, of which only hashes are here."""

from typing import Any

import msgspec

from tidings.errors import UsageError
from tidings.store.connection import Connection
from tidings.store.feed_models import DEFAULT_USER_ID
from tidings.store.ingest import update_feed_weights
from tidings.store.user_models import Settings, Token, User

#: That a token was used is noted at most so often: else every request of an app would write.
TOKEN_USE_INTERVAL_S = 3600.0

_USER = "id, name, admin, created_at, seen_at"
_settings = msgspec.json.Decoder(Settings)


def _user_of(row: Any) -> User:
    user_id, name, admin, created_at, seen_at = row
    return User(user_id, name, bool(admin), created_at, seen_at)


def users(db: Connection) -> list[User]:
    """By name. The store's first user is nobody until an administrator has taken its place."""
    rows = db.execute(f"SELECT {_USER} FROM users WHERE created_at IS NOT NULL ORDER BY name")
    return [_user_of(row) for row in rows]


def find_user(db: Connection, user: int | str) -> User | None:
    column = "name" if isinstance(user, str) else "id"
    row = db.execute(
        f"SELECT {_USER} FROM users WHERE {column} = ? AND created_at IS NOT NULL", (user,)
    ).fetchone()
    return _user_of(row) if row else None


def find_user_with_password_hash(db: Connection, name: str) -> tuple[User | None, str]:
    """A user and the hash of their password; nothing where there is none."""
    user = find_user(db, name)
    if user is None:
        return None, ""
    return user, db.execute("SELECT password FROM users WHERE id = ?", (user.id,)).fetchone()[0]


def has_administrator(db: Connection) -> bool:
    return db.execute("SELECT 1 FROM users WHERE admin = 1 LIMIT 1").fetchone() is not None


def add_user(db: Connection, name: str, hashed: str, admin: bool, now: float) -> User:
    """Somebody new; the first administrator takes the place, and the subscriptions, of the store's first user."""
    if find_user(db, name) is not None:
        raise UsageError(
            f"there is a user {name} already; `tidings user password {name}` changes the password"
        )
    first = (
        db.execute(
            "SELECT 1 FROM users WHERE id = ? AND created_at IS NULL", (DEFAULT_USER_ID,)
        ).fetchone()
        is not None
    )
    if admin and first:
        db.execute(
            "UPDATE users SET name = ?, password = ?, admin = 1, created_at = ? WHERE id = ?",
            (name, hashed, now, DEFAULT_USER_ID),
        )
        return User(DEFAULT_USER_ID, name, True, now, None)
    row = db.execute(
        "INSERT INTO users (name, password, admin, created_at) VALUES (?, ?, ?, ?) RETURNING id",
        (name, hashed, int(admin), now),
    ).fetchone()
    return User(row[0], name, admin, now, None)


def set_password(db: Connection, user_id: int, hashed: str) -> None:
    db.execute("UPDATE users SET password = ? WHERE id = ?", (hashed, user_id))
    db.execute("DELETE FROM tokens WHERE user_id = ? AND kind = 'session'", (user_id,))


def set_admin(db: Connection, user_id: int, admin: bool) -> None:
    db.execute("UPDATE users SET admin = ? WHERE id = ?", (int(admin), user_id))
    _require_administrator(db)


def remove_user(db: Connection, user_id: int, now: float) -> None:
    feed_ids = [
        i for (i,) in db.execute("SELECT feed_id FROM subscriptions WHERE user_id = ?", (user_id,))
    ]
    db.execute("DELETE FROM users WHERE id = ?", (user_id,))
    _require_administrator(db)
    update_feed_weights(db, feed_ids, now)


def _require_administrator(db: Connection) -> None:
    if not has_administrator(db):
        raise UsageError("this is the last administrator; make somebody else one first")


def record_login(db: Connection, user_id: int, now: float) -> None:
    db.execute("UPDATE users SET seen_at = ? WHERE id = ?", (now, user_id))


def settings(db: Connection, user_id: int) -> Settings:
    row = db.execute("SELECT settings FROM users WHERE id = ?", (user_id,)).fetchone()
    return _settings.decode(row[0]) if row else Settings()


def save_settings(db: Connection, user_id: int, chosen: Settings) -> None:
    db.execute(
        "UPDATE users SET settings = ? WHERE id = ?",
        (msgspec.json.encode(chosen).decode(), user_id),
    )


# --- tokens ------------------------------------------------------------------------------------------------------------

_TOKEN = ", ".join(Token.__struct_fields__)


def add_token(
    db: Connection,
    user_id: int,
    kind: str,
    digest: bytes,
    fever: bytes | None,
    label: str,
    now: float,
    until: float | None,
) -> Token:
    if (
        label
        and db.execute(
            "SELECT 1 FROM tokens WHERE user_id = ? AND kind = ? AND label = ?",
            (user_id, kind, label),
        ).fetchone()
    ):
        raise UsageError(
            f"there is a token {label} already; remove it first, or give this one another name"
        )
    db.execute("DELETE FROM tokens WHERE user_id = ? AND expires_at < ?", (user_id, now))
    row = db.execute(
        "INSERT INTO tokens (user_id, kind, digest, fever, label, created_at, expires_at) VALUES (?, ?, ?, ?, ?, ?, ?) "
        f"RETURNING {_TOKEN}",
        (user_id, kind, digest, fever, label, now, until),
    ).fetchone()
    return Token(*row)


def tokens(db: Connection, user_id: int) -> list[Token]:
    rows = db.execute(
        f"SELECT {_TOKEN} FROM tokens WHERE user_id = ? AND kind = 'app' ORDER BY label", (user_id,)
    )
    return [Token(*row) for row in rows]


def find_token_owner(
    db: Connection, digest: bytes, kind: str, now: float
) -> tuple[User | None, bool]:
    """Whose secret this is, and whether its use should be noted."""
    column, kind = ("fever", "app") if kind == "fever" else ("digest", kind)
    row = db.execute(
        f"SELECT user_id, used_at FROM tokens WHERE {column} = ? AND kind = ? AND (expires_at IS NULL OR expires_at > ?)",
        (digest, kind, now),
    ).fetchone()
    return (
        (find_user(db, row[0]), row[1] is None or row[1] < now - TOKEN_USE_INTERVAL_S)
        if row
        else (None, False)
    )


def record_token_use(db: Connection, digest: bytes, now: float, lasts_s: float) -> None:
    """A session lasts from its last use on."""
    db.execute(
        "UPDATE tokens SET used_at = ?, expires_at = CASE WHEN expires_at IS NULL THEN expires_at ELSE ? END "
        "WHERE digest = ? OR fever = ?",
        (now, now + lasts_s, digest, digest),
    )


def remove_token(db: Connection, user_id: int, token_id: int) -> bool:
    return (
        db.execute(
            "DELETE FROM tokens WHERE id = ? AND user_id = ? AND kind = 'app'", (token_id, user_id)
        ).rowcount
        == 1
    )


def end_session(db: Connection, digest: bytes) -> None:
    db.execute("DELETE FROM tokens WHERE digest = ? AND kind = 'session'", (digest,))


def get_or_create_secret(db: Connection, key: str, secret: bytes, now: float) -> bytes:
    """The secret of this installation: this one, unless another process was faster."""
    db.execute(
        "INSERT INTO shared (key, value, updated_at) VALUES (?, ?, ?) ON CONFLICT (key) DO NOTHING",
        (key, secret, now),
    )
    return bytes(db.execute("SELECT value FROM shared WHERE key = ?", (key,)).fetchone()[0])
