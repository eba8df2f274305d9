"""Databases of earlier schema versions: the statements that undo migrations.

The statements must run from the newest migration back to the oldest.
"""

import re

from tidings.store.schema import MIGRATIONS, statements

#: The schema version in which tables and columns got their present names.
RENAMES_VERSION = next(
    n for n, sql in enumerate(MIGRATIONS, start=1) if "RENAME TO key_values" in sql
)
_TABLE = re.compile(r"ALTER TABLE (\w+) RENAME TO (\w+)")
_COLUMN = re.compile(r"ALTER TABLE (\w+) RENAME COLUMN (\w+) TO (\w+)")


def _undo(statement):
    if match := _TABLE.fullmatch(statement):
        old, new = match.groups()
        return f"ALTER TABLE {new} RENAME TO {old}"
    table, old, new = _COLUMN.fullmatch(statement).groups()
    return f"ALTER TABLE {table} RENAME COLUMN {new} TO {old}"


_RENAMES = statements(MIGRATIONS[RENAMES_VERSION - 1])
UNDO_RENAMES = (
    "DROP TABLE imported_entries",
    *(_undo(statement) for statement in reversed(_RENAMES)),
)

#: The schema version in which feeds got the facts of the poll constraints, and reasons became JSON.
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
UNDO_CONSTRAINT_FACTS = (
    *UNDO_RENAMES,
    *(f"ALTER TABLE feeds DROP COLUMN {column}" for column in _COLUMNS),
    "ALTER TABLE subscriptions DROP COLUMN min_interval_s",
)
