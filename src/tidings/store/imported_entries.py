"""Entries that a user imported into a feed (Miniflux's entry import), visible only to that user.

A feed is stored once for all its subscribers. An imported entry is a row of `entries` like the
others, with its owner in `imported_entries`. Lists exclude the entries that other users imported;
statistics, posting times and peers exclude all imported entries, because no publisher posted them.
"""

from tidings.store.connection import Connection
from tidings.store.entry_state import EntryStateChange, update_entry_state
from tidings.store.feed_models import EntryText
from tidings.store.identities import find_known, identity_hash
from tidings.store.record import insert_entry
from tidings.store.retention import delete_entries


def import_entry(
    db: Connection,
    user_id: int,
    feed_id: int,
    entry: EntryText,
    change: EntryStateChange,
    now: float,
) -> tuple[int, bool] | None:
    """Store an entry for one subscriber of a feed and set its state.

    Returns its id, and whether it is new; an entry that was imported before is not changed, except
    for its state. Returns None if the entry was deleted since.
    """
    key = feed_id, identity_hash(entry.identity)
    known = find_known(db, [key]).get(key)
    entry_id = insert_entry(db, feed_id, entry, "import", now) if known is None else None
    is_new = entry_id is not None
    if is_new:
        db.insert("imported_entries", ("entry_id", "user_id"), [(entry_id, user_id)])
    else:  # known, or inserted by another process since the query above
        entry_id = (known or find_known(db, [key])[key]).entry_id
    if entry_id is None:
        return None
    update_entry_state(db, user_id, [entry_id], change, now)
    return entry_id, is_new


def delete_imported_entries(db: Connection, user_id: int) -> None:
    """Delete all entries that a user imported."""
    rows = db.execute("SELECT entry_id FROM imported_entries WHERE user_id = ?", (user_id,))
    delete_entries(db, [i for (i,) in rows.fetchall()])
