"""What is kept: feeds, entries, polls, estimates, in SQLite (or, at scale, PostgreSQL)."""
