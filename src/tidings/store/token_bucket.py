"""Token buckets that enforce the daily budget of requests and bytes across all workers.

A bucket contains at most one day's budget, is full at first and refills at a constant rate. It may
be in debt by at most one day's budget.
"""

from tidings.store.connection import Connection

#: Names of the two buckets, for requests and for bytes. The second is used only with a byte budget.
REQUESTS, BYTES = "requests", "bytes"


def take_tokens(db: Connection, max_tokens: int, per_day: float, now: float) -> int:
    """Take up to ``max_tokens`` request tokens, and return how many were taken.

    Return unused tokens with `consume_budget` and a negative amount.
    """
    tokens = _refill(db, REQUESTS, per_day, now)
    granted = max(min(max_tokens, int(tokens + 1e-9)), 0)
    _set_tokens(db, REQUESTS, tokens - granted)
    return granted


def consume_budget(db: Connection, amount: float, bucket: str = REQUESTS) -> None:
    """Subtract tokens that were used without `take_tokens`, even into debt.

    A negative amount returns tokens.
    """
    db.execute(
        "UPDATE token_buckets SET tokens = tokens - ? WHERE name = ?", (float(amount), bucket)
    )


def token_deficit(db: Connection, per_day: float, now: float, bucket: str = REQUESTS) -> float:
    """Return the number of tokens that must be refilled until one is available.

    The number is 0 if a token is available now.
    """
    return max(1.0 - _refill(db, bucket, per_day, now), 0.0)


def _refill(db: Connection, bucket: str, per_day: float, now: float) -> float:
    """Add the tokens since the last refill, and return the number of tokens in the bucket.

    The row is locked until the commit.
    """
    capacity = max(per_day, 1.0)
    row = db.execute(
        "INSERT INTO token_buckets (name, tokens, filled_at) VALUES (?, ?, ?) "
        "ON CONFLICT (name) DO UPDATE SET tokens = token_buckets.tokens + "
        "CASE WHEN excluded.filled_at > token_buckets.filled_at "
        "THEN (excluded.filled_at - token_buckets.filled_at) * ? / 86400.0 ELSE 0 END, "
        "filled_at = CASE WHEN excluded.filled_at > token_buckets.filled_at "
        "THEN excluded.filled_at ELSE token_buckets.filled_at END "
        "RETURNING tokens",
        (bucket, capacity, now, per_day),
    ).fetchone()
    tokens = max(min(float(row[0]), capacity), -capacity)
    _set_tokens(db, bucket, tokens)
    return tokens


def _set_tokens(db: Connection, bucket: str, tokens: float) -> None:
    db.execute("UPDATE token_buckets SET tokens = ? WHERE name = ?", (tokens, bucket))
