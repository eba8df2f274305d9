"""Databases as earlier versions left them: what takes a migration back."""

from tidings.store.schema import MIGRATIONS

#: The version of the schema in which feeds have facts for the constraint rule, and reasons are JSON.
CONSTRAINT_FACTS_VERSION = next(
    n for n, sql in enumerate(MIGRATIONS, start=1) if "ADD COLUMN stated_s" in sql
)
_COLUMNS = (
    "min_interval_s",
    "stated_s",
    "stated_by",
    "not_modified",
    "document_bytes",
    "poll_bytes",
)
DROP_CONSTRAINT_FACTS = (
    *(f"ALTER TABLE feeds DROP COLUMN {column}" for column in _COLUMNS),
    "ALTER TABLE subscriptions DROP COLUMN min_interval_s",
)
