"""Database schema as an ordered list of migrations.

The number of applied migrations is the schema version. Never change the text of a migration that
was released: existing databases have run it, and new databases run all of them.

Migrations are written for SQLite; `translate_to_postgres` changes the parts that differ. SQLite
ignores ``/* postgres: ... */`` as a comment; PostgreSQL executes its content, and skips statements
that begin with ``/* sqlite */``. Times are seconds since the epoch (UTC). Large columns come last,
because SQLite reads a row from its beginning and need not follow the overflow pages of the rest.
"""

import re

from tidings.store import schema_users

#: All migrations, oldest first. Tables and columns have the names that were used at that time.
#: Migration 9 lists the tables and columns that were renamed.
MIGRATIONS = (
    """
    CREATE TABLE feeds (
      id INTEGER PRIMARY KEY AUTOINCREMENT,
      url TEXT NOT NULL UNIQUE,
      host TEXT NOT NULL,
      added_at DOUBLE PRECISION NOT NULL,
      weight DOUBLE PRECISION NOT NULL DEFAULT 1,
      retired_at DOUBLE PRECISION,
      retired_why TEXT NOT NULL DEFAULT '',
      title TEXT NOT NULL,
      site_url TEXT NOT NULL,
      format TEXT NOT NULL,
      "window" INTEGER NOT NULL,
      shown INTEGER NOT NULL,
      oldest_at DOUBLE PRECISION,
      dropped INTEGER NOT NULL,
      by_age INTEGER NOT NULL,
      usual_gap_s DOUBLE PRECISION,
      next_poll_at DOUBLE PRECISION,
      reason TEXT NOT NULL,
      last_poll_at DOUBLE PRECISION,
      last_ok_at DOUBLE PRECISION,
      errors INTEGER NOT NULL,
      failing_since DOUBLE PRECISION,
      error_kind TEXT NOT NULL,
      last_error TEXT NOT NULL,
      etag TEXT NOT NULL,
      last_modified TEXT NOT NULL,
      validators_since DOUBLE PRECISION,
      validators_url TEXT NOT NULL,
      body_digest BLOB NOT NULL,
      earliest_at DOUBLE PRECISION,
      forbidden BLOB NOT NULL,
      moved_to TEXT NOT NULL,
      moved_sightings INTEGER NOT NULL,
      moved_since DOUBLE PRECISION,
      self_url TEXT NOT NULL,
      hubs TEXT NOT NULL,
      hints TEXT NOT NULL
    ) /* postgres: WITH (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.02) */;
    CREATE INDEX feeds_due ON feeds (next_poll_at);

    CREATE TABLE aliases (
      url TEXT PRIMARY KEY,
      feed_id INTEGER NOT NULL REFERENCES feeds (id) ON DELETE CASCADE,
      since DOUBLE PRECISION NOT NULL
    );
    CREATE INDEX aliases_feed ON aliases (feed_id);

    CREATE TABLE documents (
      feed_id INTEGER PRIMARY KEY REFERENCES feeds (id) ON DELETE CASCADE,
      marks BLOB NOT NULL
    );

    CREATE TABLE entries (
      id INTEGER PRIMARY KEY AUTOINCREMENT,
      feed_id INTEGER NOT NULL REFERENCES feeds (id) ON DELETE CASCADE,
      identity TEXT NOT NULL,
      digest BLOB NOT NULL,
      published_at DOUBLE PRECISION NOT NULL,
      published_told DOUBLE PRECISION,
      updated_at DOUBLE PRECISION,
      first_seen_at DOUBLE PRECISION NOT NULL,
      changed_at DOUBLE PRECISION,
      source TEXT NOT NULL,
      delay_s DOUBLE PRECISION,
      url TEXT NOT NULL,
      title TEXT NOT NULL,
      author TEXT NOT NULL,
      comments_url TEXT NOT NULL,
      content TEXT NOT NULL,
      summary TEXT NOT NULL,
      tags TEXT NOT NULL,
      enclosures TEXT NOT NULL
      /* postgres: , words TSVECTOR NOT NULL */
    ) /* postgres: PARTITION BY RANGE (id) */;
    CREATE INDEX entries_published ON entries (feed_id, published_at);
    CREATE INDEX entries_seen ON entries (first_seen_at, delay_s, feed_id);

    CREATE TABLE entry_versions (
      entry_id INTEGER NOT NULL REFERENCES entries (id) ON DELETE CASCADE,
      replaced_at DOUBLE PRECISION NOT NULL,
      digest BLOB NOT NULL,
      updated_at DOUBLE PRECISION,
      url TEXT NOT NULL,
      title TEXT NOT NULL,
      author TEXT NOT NULL,
      content TEXT NOT NULL,
      summary TEXT NOT NULL,
      PRIMARY KEY (entry_id, replaced_at)
    );

    CREATE TABLE identities (
      feed_id INTEGER NOT NULL REFERENCES feeds (id) ON DELETE CASCADE,
      mark INTEGER NOT NULL,
      entry_id INTEGER NOT NULL,
      PRIMARY KEY (feed_id, mark)
    ) WITHOUT ROWID;

    /* postgres: CREATE SEQUENCE entries_id_seq */;
    /* postgres: ALTER TABLE entries ALTER COLUMN words SET STORAGE EXTERNAL */;
    /* postgres: CREATE INDEX entries_words ON entries USING gin (words) */;
    /* sqlite */ CREATE VIRTUAL TABLE search USING fts5 (title, body, columnsize=0, tokenize='unicode61 remove_diacritics 2');
    /* sqlite */ INSERT INTO search (search, rank) VALUES ('automerge', 0);
    /* sqlite */ INSERT INTO search (search, rank) VALUES ('crisismerge', 64);

    CREATE TABLE polls (
      feed_id INTEGER NOT NULL REFERENCES feeds (id) ON DELETE CASCADE,
      at DOUBLE PRECISION NOT NULL,
      source TEXT NOT NULL,
      status INTEGER NOT NULL,
      bytes INTEGER NOT NULL,
      elapsed_s DOUBLE PRECISION NOT NULL,
      entries INTEGER NOT NULL,
      new INTEGER NOT NULL,
      changed INTEGER NOT NULL,
      delay_mean_s DOUBLE PRECISION,
      delay_max_s DOUBLE PRECISION,
      lost DOUBLE PRECISION,
      reason TEXT NOT NULL,
      error_kind TEXT NOT NULL,
      error TEXT NOT NULL,
      PRIMARY KEY (feed_id, at)
    );
    CREATE INDEX polls_at ON polls (at, bytes);

    CREATE TABLE gaps (
      id INTEGER PRIMARY KEY AUTOINCREMENT,
      feed_id INTEGER NOT NULL REFERENCES feeds (id) ON DELETE CASCADE,
      found_at DOUBLE PRECISION NOT NULL,
      from_at DOUBLE PRECISION NOT NULL,
      until_at DOUBLE PRECISION NOT NULL,
      lost DOUBLE PRECISION NOT NULL,
      recovered INTEGER NOT NULL DEFAULT 0,
      state TEXT NOT NULL DEFAULT 'open',
      UNIQUE (feed_id, found_at)
    );
    CREATE INDEX gaps_found ON gaps (found_at);

    CREATE TABLE estimates (
      feed_id INTEGER NOT NULL REFERENCES feeds (id) ON DELETE CASCADE,
      policy TEXT NOT NULL,
      state BLOB NOT NULL,
      updated_at DOUBLE PRECISION NOT NULL,
      PRIMARY KEY (feed_id, policy)
    ) WITHOUT ROWID;

    CREATE TABLE shared (
      key TEXT PRIMARY KEY,
      value BLOB NOT NULL,
      updated_at DOUBLE PRECISION NOT NULL
    );

    CREATE TABLE hosts (
      host TEXT PRIMARY KEY,
      last_request_at DOUBLE PRECISION,
      paused_until DOUBLE PRECISION,
      why TEXT NOT NULL DEFAULT '',
      next_at DOUBLE PRECISION NOT NULL DEFAULT 0,
      leased_until DOUBLE PRECISION NOT NULL DEFAULT 0,
      leased_by TEXT NOT NULL DEFAULT ''
    ) /* postgres: WITH (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.02) */;

    CREATE TABLE buckets (
      name TEXT PRIMARY KEY,
      tokens DOUBLE PRECISION NOT NULL,
      filled_at DOUBLE PRECISION NOT NULL
    );

    CREATE TABLE users (
      id INTEGER PRIMARY KEY AUTOINCREMENT,
      name TEXT NOT NULL UNIQUE
    );
    INSERT INTO users (id, name) VALUES (1, 'operator');

    CREATE TABLE folders (
      id INTEGER PRIMARY KEY AUTOINCREMENT,
      user_id INTEGER NOT NULL REFERENCES users (id) ON DELETE CASCADE,
      name TEXT NOT NULL,
      UNIQUE (user_id, name)
    );

    CREATE TABLE subscriptions (
      user_id INTEGER NOT NULL REFERENCES users (id) ON DELETE CASCADE,
      feed_id INTEGER NOT NULL REFERENCES feeds (id) ON DELETE CASCADE,
      folder_id INTEGER REFERENCES folders (id) ON DELETE SET NULL,
      title TEXT NOT NULL,
      added_at DOUBLE PRECISION NOT NULL,
      PRIMARY KEY (user_id, feed_id)
    );
    CREATE INDEX subscriptions_feed ON subscriptions (feed_id);

    CREATE TABLE pushes (
      feed_id INTEGER PRIMARY KEY REFERENCES feeds (id) ON DELETE CASCADE,
      hub TEXT NOT NULL,
      topic TEXT NOT NULL,
      token TEXT NOT NULL UNIQUE,
      secret TEXT NOT NULL,
      state TEXT NOT NULL,
      lease_until DOUBLE PRECISION,
      last_push_at DOUBLE PRECISION,
      pushed INTEGER NOT NULL,
      missed INTEGER NOT NULL
    );
    """,  # noqa: E501  # text of a released migration
    schema_users.USER_TABLES,
    """
    CREATE TABLE neighbours (
      nid TEXT PRIMARY KEY,
      at DOUBLE PRECISION NOT NULL,
      present INTEGER NOT NULL,
      usefulness DOUBLE PRECISION NOT NULL,
      banned_until DOUBLE PRECISION,
      why TEXT NOT NULL,
      key BLOB NOT NULL,
      figures TEXT NOT NULL
    );
    CREATE TABLE tellings (
      entry_id INTEGER PRIMARY KEY,
      sender TEXT NOT NULL,
      path TEXT NOT NULL,
      told_at DOUBLE PRECISION NOT NULL,
      recovered INTEGER NOT NULL
    );
    CREATE INDEX tellings_sender ON tellings (sender);
    CREATE TABLE private_feeds (
      feed_id INTEGER PRIMARY KEY REFERENCES feeds (id) ON DELETE CASCADE
    );
    """,
    """
    ALTER TABLE deliveries ADD COLUMN problem TEXT NOT NULL DEFAULT '';
    """,
    """
    CREATE TABLE sights (
      at DOUBLE PRECISION NOT NULL,
      feed TEXT NOT NULL,
      sight BLOB NOT NULL,
      PRIMARY KEY (at, feed)
    );
    """,
    """
    ALTER TABLE marks ADD COLUMN title TEXT;
    ALTER TABLE marks ADD COLUMN content TEXT;
    """,
    """
    DROP INDEX stories_at;
    /* sqlite */ DROP TABLE search;
    /* sqlite */ CREATE VIRTUAL TABLE search USING fts5 (title, body, content='', tokenize='ascii');
    /* sqlite */ INSERT INTO search (search, rank) VALUES ('automerge', 0);
    /* sqlite */ INSERT INTO search (search, rank) VALUES ('crisismerge', 200);
    /* sqlite */ INSERT INTO search (rowid, title, body)
      SELECT id, folded(title), folded(words_of(content, summary)) FROM entries;
    /* postgres: UPDATE entries SET words = replace(words::text, 'ς', 'σ')::tsvector WHERE words::text LIKE '%ς%' */;
    """,  # noqa: E501  # text of a released migration
    """
    ALTER TABLE feeds ADD COLUMN min_interval_s DOUBLE PRECISION NOT NULL DEFAULT 0;
    ALTER TABLE feeds ADD COLUMN stated_s DOUBLE PRECISION NOT NULL DEFAULT 0;
    ALTER TABLE feeds ADD COLUMN stated_by INTEGER NOT NULL DEFAULT 0;
    ALTER TABLE feeds ADD COLUMN not_modified DOUBLE PRECISION NOT NULL DEFAULT 0;
    ALTER TABLE feeds ADD COLUMN document_bytes DOUBLE PRECISION NOT NULL DEFAULT 0;
    ALTER TABLE feeds ADD COLUMN poll_bytes DOUBLE PRECISION NOT NULL DEFAULT 0;
    ALTER TABLE subscriptions ADD COLUMN min_interval_s DOUBLE PRECISION;
    UPDATE feeds SET not_modified = 0.75 WHERE etag <> '' OR last_modified <> '';
    /* sqlite */ UPDATE feeds SET reason = json_object('code', 'text', 'params', json_object('text', reason))
      WHERE reason <> '';
    /* sqlite */ UPDATE polls SET reason = json_object('code', 'text', 'params', json_object('text', reason))
      WHERE reason <> '';
    /* postgres: UPDATE feeds SET reason = json_build_object('code', 'text', 'params', json_build_object('text', reason))::text
      WHERE reason <> '' */;
    /* postgres: UPDATE polls SET reason = json_build_object('code', 'text', 'params', json_build_object('text', reason))::text
      WHERE reason <> '' */;
    """,  # noqa: E501  # text of a released migration
    """
    ALTER TABLE entries RENAME COLUMN published_told TO declared_published_at;
    ALTER TABLE feeds RENAME COLUMN retired_why TO retired_reason;
    ALTER TABLE hosts RENAME COLUMN why TO pause_reason;
    ALTER TABLE neighbours RENAME COLUMN why TO reason;
    ALTER TABLE notices RENAME COLUMN why TO rule_name;
    ALTER TABLE polls RENAME COLUMN lost TO missed;
    ALTER TABLE gaps RENAME COLUMN lost TO missed;
    ALTER TABLE identities RENAME COLUMN mark TO identity_hash;
    ALTER TABLE documents RENAME COLUMN marks TO identity_hashes;
    ALTER TABLE folds RENAME COLUMN story_id TO first_entry_id;
    ALTER TABLE tellings RENAME COLUMN told_at TO received_at;
    ALTER TABLE sights RENAME COLUMN sight TO notice;
    ALTER TABLE sights RENAME COLUMN feed TO feed_url;
    ALTER TABLE pushes RENAME COLUMN pushed TO pushed_count;
    ALTER TABLE pushes RENAME COLUMN missed TO unpushed_count;
    ALTER TABLE tellings RENAME TO peer_claims;
    ALTER TABLE folds RENAME TO duplicate_groups;
    ALTER TABLE stories RENAME TO dedup_keys;
    ALTER TABLE marks RENAME TO entry_states;
    ALTER TABLE labels RENAME TO entry_tags;
    ALTER TABLE searches RENAME TO saved_searches;
    ALTER TABLE notices RENAME TO notifications;
    ALTER TABLE neighbours RENAME TO peers;
    ALTER TABLE sights RENAME TO poll_notices;
    ALTER TABLE shared RENAME TO key_values;
    ALTER TABLE buckets RENAME TO token_buckets;
    ALTER TABLE pushes RENAME TO push_subscriptions;
    """,
    """
    CREATE TABLE imported_entries (
      entry_id INTEGER PRIMARY KEY,
      user_id INTEGER NOT NULL
    );
    CREATE INDEX imported_entries_user ON imported_entries (user_id);
    """,
)


#: Tables whose rows are deleted together with the entry of their ``entry_id``.
ENTRY_TABLES = (
    "entry_versions",
    "peer_claims",
    "imported_entries",
    *schema_users.ENTRY_TABLES,
)
#: Queries for the ids of entries that retention never deletes.
KEPT_ENTRY_QUERIES: tuple[str, ...] = schema_users.KEPT_ENTRY_QUERIES
#: Condition on the id of an entry that came from its feed, and was not imported by a user.
NOT_IMPORTED = "NOT IN (SELECT entry_id FROM imported_entries)"

#: Replacements that translate SQL to PostgreSQL. Foreign keys to feeds and entries are removed,
#: because each check would lock the feed, and dropping a partition would scan all referencing rows.
_POSTGRES_REPLACEMENTS = (
    (re.compile(r"/\* postgres: (.*?) \*/", re.DOTALL), r"\1"),
    (re.compile(r"REFERENCES (feeds|entries) \(id\) ON DELETE CASCADE"), ""),
    (re.compile(r"PRIMARY KEY AUTOINCREMENT(?=.*PARTITION BY)", re.DOTALL), "PRIMARY KEY"),
    (re.compile(r"PRIMARY KEY AUTOINCREMENT"), "GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY"),
    (re.compile(r"\bINTEGER\b"), "BIGINT"),
    (re.compile(r"\bBLOB\b"), "BYTEA"),
    (re.compile(r"WITHOUT ROWID"), ""),
)


def statements(migration: str) -> list[str]:
    """Split a migration into statements.

    They are executed one by one, because `sqlite3.Connection.executescript` would commit the
    transaction.
    """
    return [statement for part in migration.split(";\n") if (statement := part.strip())]


def translate_to_postgres(migration: str) -> list[str]:
    """Split a migration into statements in the SQL of PostgreSQL."""
    translated = []
    for statement in statements(migration):
        if not statement.startswith("/* sqlite */"):
            for pattern, replacement in _POSTGRES_REPLACEMENTS:
                statement = pattern.sub(replacement, statement)
            translated.append(statement)
    return translated
