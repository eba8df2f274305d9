"""Storage of feeds, entries, polls and users in SQLite or PostgreSQL.

`Store` is the interface for other packages. It uses the models of `tidings.store.feed_models`.
`restore` replaces a store with a backup.
"""

from tidings.store.connection import StoreError
from tidings.store.sqlite_file import restore
from tidings.store.store import Store

__all__ = ["Store", "StoreError", "restore"]
