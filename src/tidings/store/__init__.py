"""What is kept: feeds, entries, polls, estimates, in SQLite (or, at scale, PostgreSQL).

`Store` is all that other rooms need, with the values of `tidings.store.feed_models`; `restore` puts a backup in a store's place.
"""

from tidings.store.connection import StoreError
from tidings.store.sqlite_file import restore
from tidings.store.store import Store

__all__ = ["Store", "StoreError", "restore"]
