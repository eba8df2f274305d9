"""Migration that creates the tables for users and their entry states.

Unread entries have a separate table (`unread`), filled when entries arrive: the unread list, its
counts and "mark all as read" never scan the entries that were read. Triggers count its rows for
each subscription. Entry states and tags have a row only if a user changed the entry.
"""

#: Tables whose rows are deleted together with the entry of their ``entry_id``.
ENTRY_TABLES = (
    "unread",
    "entry_states",
    "entry_tags",
    "notifications",
    "duplicate_groups",
    "full_texts",
)
#: Queries for the ids of entries that retention never deletes.
KEPT_ENTRY_QUERIES = (
    "SELECT entry_id FROM entry_states WHERE starred_at IS NOT NULL",
    "SELECT entry_id FROM entry_tags",
)

#: Text of the migration. Tables have the names that were used at that time (see migration 9 of
#: `schema.MIGRATIONS`).
USER_TABLES = """
    ALTER TABLE users ADD COLUMN password TEXT NOT NULL DEFAULT '';
    ALTER TABLE users ADD COLUMN admin INTEGER NOT NULL DEFAULT 0;
    ALTER TABLE users ADD COLUMN created_at DOUBLE PRECISION;
    ALTER TABLE users ADD COLUMN seen_at DOUBLE PRECISION;
    ALTER TABLE users ADD COLUMN settings TEXT NOT NULL DEFAULT '{}';
    ALTER TABLE subscriptions ADD COLUMN priority TEXT NOT NULL DEFAULT 'normal';
    ALTER TABLE subscriptions ADD COLUMN full_text INTEGER NOT NULL DEFAULT 0;
    ALTER TABLE subscriptions ADD COLUMN unread INTEGER NOT NULL DEFAULT 0;
    ALTER TABLE subscriptions ADD COLUMN newest_unread_at DOUBLE PRECISION;
    CREATE INDEX subscriptions_full_text ON subscriptions (feed_id) WHERE full_text = 1;

    CREATE TABLE tokens (
      id INTEGER PRIMARY KEY AUTOINCREMENT,
      user_id INTEGER NOT NULL REFERENCES users (id) ON DELETE CASCADE,
      kind TEXT NOT NULL,
      digest BLOB NOT NULL UNIQUE,
      fever BLOB UNIQUE,
      label TEXT NOT NULL,
      created_at DOUBLE PRECISION NOT NULL,
      used_at DOUBLE PRECISION,
      expires_at DOUBLE PRECISION
    );
    CREATE INDEX tokens_user ON tokens (user_id, kind);

    CREATE TABLE unread (
      user_id INTEGER NOT NULL REFERENCES users (id) ON DELETE CASCADE,
      entry_id INTEGER NOT NULL,
      feed_id INTEGER NOT NULL,
      published_at DOUBLE PRECISION NOT NULL,
      first_seen_at DOUBLE PRECISION NOT NULL,
      PRIMARY KEY (user_id, entry_id)
    ) WITHOUT ROWID;
    CREATE INDEX unread_entry ON unread (entry_id);
    CREATE INDEX unread_feed ON unread (user_id, feed_id, published_at, entry_id, first_seen_at);
    CREATE INDEX unread_published ON unread (user_id, published_at, entry_id, feed_id);
    /* sqlite */ CREATE TRIGGER unread_more AFTER INSERT ON unread BEGIN
      UPDATE subscriptions SET unread = unread + 1, newest_unread_at = max(coalesce(newest_unread_at, 0), new.first_seen_at)
      WHERE user_id = new.user_id AND feed_id = new.feed_id; END;
    /* sqlite */ CREATE TRIGGER unread_less AFTER DELETE ON unread BEGIN
      UPDATE subscriptions SET unread = unread - 1 WHERE user_id = old.user_id AND feed_id = old.feed_id; END;
    /* postgres: CREATE FUNCTION count_unread() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
      UPDATE subscriptions AS s SET unread = s.unread + CASE TG_OP WHEN 'INSERT' THEN c.n ELSE -c.n END,
        newest_unread_at = CASE TG_OP WHEN 'INSERT' THEN greatest(s.newest_unread_at, c.at) ELSE s.newest_unread_at END
      FROM (SELECT user_id, feed_id, count(*) AS n, max(first_seen_at) AS at FROM rows GROUP BY user_id, feed_id) AS c
      WHERE s.user_id = c.user_id AND s.feed_id = c.feed_id; RETURN NULL; END $$ */;
    /* postgres: CREATE TRIGGER unread_more AFTER INSERT ON unread
      REFERENCING NEW TABLE AS rows FOR EACH STATEMENT EXECUTE FUNCTION count_unread() */;
    /* postgres: CREATE TRIGGER unread_less AFTER DELETE ON unread
      REFERENCING OLD TABLE AS rows FOR EACH STATEMENT EXECUTE FUNCTION count_unread() */;
    INSERT INTO unread (user_id, entry_id, feed_id, published_at, first_seen_at)
      SELECT s.user_id, e.id, e.feed_id, e.published_at, e.first_seen_at
      FROM entries AS e JOIN subscriptions AS s ON s.feed_id = e.feed_id
      WHERE e.first_seen_at > (SELECT max(first_seen_at) FROM entries) - 604800;
    CREATE INDEX entries_order ON entries (published_at, id, feed_id);

    CREATE TABLE marks (
      user_id INTEGER NOT NULL REFERENCES users (id) ON DELETE CASCADE,
      entry_id INTEGER NOT NULL,
      feed_id INTEGER NOT NULL,
      starred_at DOUBLE PRECISION,
      read_at DOUBLE PRECISION,
      muted_at DOUBLE PRECISION,
      rating INTEGER NOT NULL DEFAULT 0,
      PRIMARY KEY (user_id, entry_id)
    ) WITHOUT ROWID;
    CREATE INDEX marks_entry ON marks (entry_id);
    CREATE INDEX marks_starred ON marks (user_id, starred_at, entry_id, feed_id) WHERE starred_at IS NOT NULL;
    CREATE INDEX marks_muted ON marks (user_id, muted_at) WHERE muted_at IS NOT NULL;
    CREATE INDEX marks_read ON marks (user_id, read_at) WHERE read_at IS NOT NULL;

    CREATE TABLE labels (
      user_id INTEGER NOT NULL REFERENCES users (id) ON DELETE CASCADE,
      name TEXT NOT NULL,
      entry_id INTEGER NOT NULL,
      PRIMARY KEY (user_id, name, entry_id)
    ) WITHOUT ROWID;
    CREATE INDEX labels_entry ON labels (entry_id, user_id);

    CREATE TABLE searches (
      id INTEGER PRIMARY KEY AUTOINCREMENT,
      user_id INTEGER NOT NULL REFERENCES users (id) ON DELETE CASCADE,
      name TEXT NOT NULL,
      stream TEXT NOT NULL,
      UNIQUE (user_id, name)
    );

    CREATE TABLE rules (
      id INTEGER PRIMARY KEY AUTOINCREMENT,
      user_id INTEGER NOT NULL REFERENCES users (id) ON DELETE CASCADE,
      rule TEXT NOT NULL
    );
    CREATE INDEX rules_user ON rules (user_id);

    CREATE TABLE notices (
      id INTEGER PRIMARY KEY AUTOINCREMENT,
      user_id INTEGER NOT NULL REFERENCES users (id) ON DELETE CASCADE,
      kind TEXT NOT NULL,
      entry_id INTEGER NOT NULL,
      why TEXT NOT NULL,
      at DOUBLE PRECISION NOT NULL,
      UNIQUE (user_id, kind, entry_id)
    );

    CREATE TABLE deliveries (
      id INTEGER PRIMARY KEY AUTOINCREMENT,
      user_id INTEGER NOT NULL REFERENCES users (id) ON DELETE CASCADE,
      kind TEXT NOT NULL,
      target TEXT NOT NULL,
      made_at DOUBLE PRECISION NOT NULL,
      next_at DOUBLE PRECISION NOT NULL,
      tries INTEGER NOT NULL DEFAULT 0,
      body TEXT NOT NULL
    );
    CREATE INDEX deliveries_next ON deliveries (next_at);

    CREATE TABLE stories (
      key BIGINT NOT NULL,
      entry_id INTEGER NOT NULL,
      feed_id INTEGER NOT NULL,
      at DOUBLE PRECISION NOT NULL,
      simhash BIGINT NOT NULL,
      PRIMARY KEY (key, entry_id)
    ) WITHOUT ROWID;
    CREATE INDEX stories_at ON stories (at);

    CREATE TABLE folds (
      entry_id INTEGER PRIMARY KEY,
      story_id INTEGER NOT NULL
    );
    CREATE INDEX folds_story ON folds (story_id);

    CREATE TABLE full_texts (
      entry_id INTEGER PRIMARY KEY,
      at DOUBLE PRECISION NOT NULL,
      content TEXT NOT NULL
    );

    CREATE TABLE icons (
      feed_id INTEGER PRIMARY KEY REFERENCES feeds (id) ON DELETE CASCADE,
      at DOUBLE PRECISION NOT NULL,
      type TEXT NOT NULL,
      data BLOB NOT NULL
    );
"""  # noqa: E501  # text of a released migration
