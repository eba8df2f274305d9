"""Queries for user accounts, settings, sessions and app tokens.

Only hashes of secrets are stored.
"""

from typing import Any

import msgspec

from tidings.errors import UsageError
from tidings.i18n import _
from tidings.store.connection import Connection
from tidings.store.feed_models import DEFAULT_USER_ID
from tidings.store.imported_entries import delete_imported_entries
from tidings.store.ingest import update_feed_weights
from tidings.store.user_models import Settings, Token, User

#: Minimum time in seconds between two updates of a token's last use. Otherwise every request would
#: write to the database.
TOKEN_USE_INTERVAL_S = 3600.0

_USER_COLUMNS = "id, name, admin, created_at, seen_at"
_settings_decoder = msgspec.json.Decoder(Settings)


def _decode_user(row: Any) -> User:
    user_id, name, admin, created_at, seen_at = row
    return User(user_id, name, bool(admin), created_at, seen_at)


def users(db: Connection) -> list[User]:
    """List users by name.

    The initial user of the store is left out until the first admin has taken it over.
    """
    rows = db.execute(
        f"SELECT {_USER_COLUMNS} FROM users WHERE created_at IS NOT NULL ORDER BY name"
    )
    return [_decode_user(row) for row in rows]


def find_user(db: Connection, user: int | str) -> User | None:
    """Return a user by id or name, or None."""
    column = "name" if isinstance(user, str) else "id"
    row = db.execute(
        f"SELECT {_USER_COLUMNS} FROM users WHERE {column} = ? AND created_at IS NOT NULL", (user,)
    ).fetchone()
    return _decode_user(row) if row else None


def find_user_with_password_hash(db: Connection, name: str) -> tuple[User | None, str]:
    """Return a user and the hash of the password, or (None, "") if there is no such user."""
    user = find_user(db, name)
    if user is None:
        return None, ""
    return user, db.execute("SELECT password FROM users WHERE id = ?", (user.id,)).fetchone()[0]


def has_administrator(db: Connection) -> bool:
    return db.execute("SELECT 1 FROM users WHERE admin = 1 LIMIT 1").fetchone() is not None


def add_user(db: Connection, name: str, password_hash: str, admin: bool, now: float) -> User:
    """Add a user.

    The first admin takes over the store's initial user and its subscriptions. Raises `UsageError`
    if the name is in use.
    """
    if find_user(db, name) is not None:
        raise UsageError(
            _(
                "there is already a user %(name)s; "
                "`tidings user password %(name)s` changes the password",
                name=name,
            )
        )
    has_initial_user = (
        db.execute(
            "SELECT 1 FROM users WHERE id = ? AND created_at IS NULL", (DEFAULT_USER_ID,)
        ).fetchone()
        is not None
    )
    if admin and has_initial_user:
        db.execute(
            "UPDATE users SET name = ?, password = ?, admin = 1, created_at = ? WHERE id = ?",
            (name, password_hash, now, DEFAULT_USER_ID),
        )
        return User(DEFAULT_USER_ID, name, True, now, None)
    row = db.execute(
        "INSERT INTO users (name, password, admin, created_at) VALUES (?, ?, ?, ?) RETURNING id",
        (name, password_hash, int(admin), now),
    ).fetchone()
    return User(row[0], name, admin, now, None)


def set_password(db: Connection, user_id: int, password_hash: str) -> None:
    """Set a user's password hash and end all their sessions."""
    db.execute("UPDATE users SET password = ? WHERE id = ?", (password_hash, user_id))
    db.execute("DELETE FROM tokens WHERE user_id = ? AND kind = 'session'", (user_id,))


def set_admin(db: Connection, user_id: int, admin: bool) -> None:
    """Grant or remove admin rights. Raises `UsageError` for the last admin."""
    db.execute("UPDATE users SET admin = ? WHERE id = ?", (int(admin), user_id))
    _require_administrator(db)


def remove_user(db: Connection, user_id: int, now: float) -> None:
    """Delete a user and all their data. Raises `UsageError` for the last admin."""
    feed_ids = [
        i for (i,) in db.execute("SELECT feed_id FROM subscriptions WHERE user_id = ?", (user_id,))
    ]
    delete_imported_entries(db, user_id)
    db.execute("DELETE FROM users WHERE id = ?", (user_id,))
    _require_administrator(db)
    update_feed_weights(db, feed_ids, now)


def _require_administrator(db: Connection) -> None:
    if not has_administrator(db):
        raise UsageError(_("this is the last administrator; give another user admin rights first"))


def record_login(db: Connection, user_id: int, now: float) -> None:
    db.execute("UPDATE users SET seen_at = ? WHERE id = ?", (now, user_id))


def settings(db: Connection, user_id: int) -> Settings:
    row = db.execute("SELECT settings FROM users WHERE id = ?", (user_id,)).fetchone()
    return _settings_decoder.decode(row[0]) if row else Settings()


def save_settings(db: Connection, user_id: int, settings: Settings) -> None:
    db.execute(
        "UPDATE users SET settings = ? WHERE id = ?",
        (msgspec.json.encode(settings).decode(), user_id),
    )


# --- tokens ---------------------------------------------------------------------------------------

_TOKEN_COLUMNS = ", ".join(Token.__struct_fields__)


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
    """Add a session or app token by its hash.

    ``fever`` is the hash of the key for the Fever API. Raises `UsageError` if the user has a token
    of this kind with this label.
    """
    if (
        label
        and db.execute(
            "SELECT 1 FROM tokens WHERE user_id = ? AND kind = ? AND label = ?",
            (user_id, kind, label),
        ).fetchone()
    ):
        raise UsageError(
            _(
                "there is already a token %(label)s; revoke it first, or choose another name",
                label=label,
            )
        )
    db.execute("DELETE FROM tokens WHERE user_id = ? AND expires_at < ?", (user_id, now))
    row = db.execute(
        "INSERT INTO tokens (user_id, kind, digest, fever, label, created_at, expires_at) "
        "VALUES (?, ?, ?, ?, ?, ?, ?) "
        f"RETURNING {_TOKEN_COLUMNS}",
        (user_id, kind, digest, fever, label, now, until),
    ).fetchone()
    return Token(*row)


def tokens(db: Connection, user_id: int) -> list[Token]:
    """List a user's app tokens by label."""
    rows = db.execute(
        f"SELECT {_TOKEN_COLUMNS} FROM tokens WHERE user_id = ? AND kind = 'app' ORDER BY label",
        (user_id,),
    )
    return [Token(*row) for row in rows]


def find_token_owner(
    db: Connection, digest: bytes, kind: str, now: float
) -> tuple[User | None, bool]:
    """Return the owner of a token, and whether the last use of the token should be updated.

    The owner is None if the token is unknown or has expired.
    """
    column, kind = ("fever", "app") if kind == "fever" else ("digest", kind)
    row = db.execute(
        f"SELECT user_id, used_at FROM tokens WHERE {column} = ? AND kind = ? "
        "AND (expires_at IS NULL OR expires_at > ?)",
        (digest, kind, now),
    ).fetchone()
    return (
        (find_user(db, row[0]), row[1] is None or row[1] < now - TOKEN_USE_INTERVAL_S)
        if row
        else (None, False)
    )


def record_token_use(db: Connection, digest: bytes, now: float, lasts_s: float) -> None:
    """Update the last use of a token. A session expires ``lasts_s`` seconds after it."""
    db.execute(
        "UPDATE tokens SET used_at = ?, "
        "expires_at = CASE WHEN expires_at IS NULL THEN expires_at ELSE ? END "
        "WHERE digest = ? OR fever = ?",
        (now, now + lasts_s, digest, digest),
    )


def remove_token(db: Connection, user_id: int, token_id: int) -> bool:
    """Delete an app token, and return whether it existed."""
    return (
        db.execute(
            "DELETE FROM tokens WHERE id = ? AND user_id = ? AND kind = 'app'", (token_id, user_id)
        ).rowcount
        == 1
    )


def end_session(db: Connection, digest: bytes) -> None:
    db.execute("DELETE FROM tokens WHERE digest = ? AND kind = 'session'", (digest,))


def get_or_create_secret(db: Connection, key: str, secret: bytes, now: float) -> bytes:
    """Return the stored secret of a key. ``secret`` is stored first if there is none."""
    db.execute(
        "INSERT INTO key_values (key, value, updated_at) VALUES (?, ?, ?) "
        "ON CONFLICT (key) DO NOTHING",
        (key, secret, now),
    )
    return bytes(db.execute("SELECT value FROM key_values WHERE key = ?", (key,)).fetchone()[0])
