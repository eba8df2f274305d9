"""Schema migrations: databases of earlier versions open, migrate and keep their rows."""

import sqlite3

from tests import postgres
from tests.store.conftest import entry
from tests.store.schema_versions import (
    CONSTRAINT_FACTS_VERSION,
    RENAMES_VERSION,
    UNDO_CONSTRAINT_FACTS,
    UNDO_RENAMES,
)
from tests.trace_helpers import MONDAY
from tidings.policy.constraints import ASSUMED_CONDITIONAL_SHARE
from tidings.reasons import reason, render
from tidings.store import entry_queries, entry_state, feeds, folders, notifications, peers, users
from tidings.store.entry_state import EntryStateChange
from tidings.store.feed_models import Pause, PushSubscription, SuspectedGap
from tidings.store.ingest import add_notifications
from tidings.store.peers import Peer
from tidings.store.saved_searches import save_search, saved_searches
from tidings.store.user_models import Settings, Stream

REASON_TEXT = 'its ttl is "2 h"'


def change_database(location, *statements):
    """Run statements on a closed store."""
    if isinstance(location, str):
        postgres.sql(location, *statements)
        return
    with sqlite3.connect(location) as db:
        for statement in statements:
            db.execute(statement)
    db.close()


def set_version(location, version):
    if isinstance(location, str):
        postgres.sql(location, f"UPDATE tidings_version SET version = {version}")
    else:
        change_database(location, f"PRAGMA user_version = {version}")


def table_names(location):
    if isinstance(location, str):
        rows = postgres.sql(
            location,
            "SELECT table_name FROM information_schema.tables WHERE table_schema = 'public'",
        )
    else:
        db = sqlite3.connect(location)
        rows = db.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
        db.close()
    return {name for (name,) in rows}


def test_migration_converts_reasons_and_adds_constraint_facts(open_store, location):
    with open_store() as store:
        feed = store.subscribe()
        store.record_poll(feed, state={"etag": '"a"'})
    change_database(
        location,
        *UNDO_CONSTRAINT_FACTS,
        *(f"UPDATE {table} SET reason = '{REASON_TEXT}'" for table in ("feeds", "polls")),
    )
    set_version(location, CONSTRAINT_FACTS_VERSION - 1)
    with open_store() as store:
        found = store.feed(feed)
        assert found.state.reason == reason("text", text=REASON_TEXT)
        assert render(store.polls(feed)[0].reason) == REASON_TEXT
        assert found.state.not_modified == ASSUMED_CONDITIONAL_SHARE  # it has validators
        assert (found.min_interval_s, found.state.stated_s) == (0.0, 0.0)


def fill_renamed_tables(store):
    """Write at least one row into every table that was renamed or has a renamed column."""
    a, b, gone = (store.subscribe(f"https://{name}.example/feed") for name in ("a", "b", "gone"))
    store.write(users.save_settings, 1, Settings(deduplicate=True))
    text = "one two three four five six seven eight nine ten eleven twelve thirteen fourteen"
    now = store.clock()
    pause = Pause("https://a.example", now + 600, "429, Retry-After: 600")
    store.record_poll(
        a,
        new=[entry(1, text=text, published_at=now, declared_published_at=now - 5)],
        gap=SuspectedGap(1.0, 2.0, 3.5),
        host="https://a.example",
        pause=pause,
    )
    duplicate = entry(2, text=text, published_at=now)
    store.record_poll(b, new=[duplicate])
    store.record_poll(
        b, new=[entry(3)], source="neighbour", peer_path=("10.0.0.9:80", "10.0.0.1:80")
    )
    store.retire(gone, "the server says 410 Gone")
    change = EntryStateChange(starred=True, rating=4, add_tags=("later",), title="Own title")
    store.write(entry_state.update_entry_state, 1, [1], change, now)
    store.write(save_search, 1, "Numbers", Stream(search="seven"))
    store.write(add_notifications, 1, "alert", [3], "My rule", now)
    store.write(peers.save_peers, [Peer("10.0.0.1:80", now, True, 2.5, None, "left", b"key", {})])
    store.write(peers.save_poll_notice, now, "https://a.example/feed", b"notice")
    store.save_values({"price": b"0.5"})
    store.take_tokens(10, 240.0)
    store.save_push_subscription(
        PushSubscription(
            a, "https://hub.example/", "topic", "token", "secret", "active", None, None, 3, 2
        )
    )


def snapshot(store):
    """Read everything that `fill_renamed_tables` wrote, without changing it."""
    everything = Stream(by="publication")
    page = store.read(entry_queries.page, 1, everything, 100, None)
    return {
        "entries": store.entries(),
        "items": page,
        "starred": store.read(entry_queries.ids, 1, Stream(starred=True), 10, None),
        "tagged": store.read(entry_queries.ids, 1, Stream(tags=("later",)), 10, None),
        "tags": store.read(entry_state.tags, 1),
        "totals": store.read(folders.totals, 1),
        "feeds": [store.feed(feed) for feed in (1, 2, 3)],
        "known": store.known_entries(1, ["id:1", "id:9"]),
        "documents": store.read(
            lambda db: db.execute(
                "SELECT feed_id, identity_hashes FROM documents ORDER BY feed_id"
            ).fetchall()
        ),
        "polls": [store.polls(feed) for feed in (1, 2)],
        "gaps": store.gaps(),
        "paused": store.paused_hosts(),
        "values": store.load_values(),
        "push": store.find_push_subscription(1),
        "searches": store.read(saved_searches, 1),
        "pending": store.read(notifications.pending_notifications),
        "rule names": store.read(
            lambda db: db.execute("SELECT entry_id, rule_name FROM notifications").fetchall()
        ),
        "peers": store.read(peers.peers),
        "peer claims": store.read(peers.unconfirmed_peer_claims),
        "dedup keys": store.read(
            lambda db: db.execute("SELECT * FROM dedup_keys ORDER BY key, entry_id").fetchall()
        ),
        "settings": store.read(users.settings, 1),
        "host": store.read(feeds.last_request_times, 0.0),
    }


def test_migration_of_the_previous_version_keeps_renamed_tables(open_store, location):
    with open_store() as store:
        fill_renamed_tables(store)
        before = snapshot(store)
        names = table_names(location)
    assert all(before.values())
    (item,) = [item for item in before["items"].items if item.entry.id == 1]
    assert (item.entry.title, item.rating, item.tags, item.duplicates) == (
        "Own title",
        4,
        ("later",),
        (2,),
    )

    change_database(location, *UNDO_RENAMES)
    set_version(location, RENAMES_VERSION - 1)
    old_names = table_names(location)
    assert {"tellings", "folds", "stories", "marks", "labels", "shared"} <= old_names
    assert "peer_claims" not in old_names

    with open_store() as store:
        assert snapshot(store) == before
        assert table_names(location) == names
        assert store.check() == []
        assert store.write(peers.take_poll_notices) == [b"notice"]
        assert store.take_tokens(1000, 240.0) == 230
        assert store.write(peers.confirm, 2, ["id:3"]) == 1
        (search,) = store.read(saved_searches, 1)
        assert store.write(save_search, 1, "Another", Stream()).id == search.id + 1
        assert store.record_poll(1, new=[entry(9)]).new == (4,)
        store.clock.forward(days=400)
        assert (
            store.apply_retention(days=30, min_entries=0).entries == 1
        )  # starred and shown entries stay


def test_new_database_has_the_renamed_tables(open_store, location):
    with open_store():
        pass
    renamed = {sql.split()[2] for sql in UNDO_RENAMES if "RENAME TO" in sql}
    assert len(renamed) == 12
    assert renamed <= table_names(location)


def test_peer_claim_times_survive_the_migration(open_store, location):
    with open_store() as store:
        feed = store.subscribe()
        store.record_poll(feed, new=[entry(1)], source="neighbour", peer_path=("10.0.0.1:80",))
    change_database(location, *UNDO_RENAMES, "UPDATE tellings SET told_at = told_at + 7")
    set_version(location, RENAMES_VERSION - 1)
    with open_store() as store:
        (claim,) = store.read(peers.unconfirmed_peer_claims)
        assert claim.received_at == MONDAY + 7
