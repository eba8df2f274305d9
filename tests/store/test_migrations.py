"""Stores of earlier versions, brought up to date when they are opened."""

import sqlite3

import pytest

from tests.store.schema_versions import CONSTRAINT_FACTS_VERSION, DROP_CONSTRAINT_FACTS
from tidings.policy.constraints import ASSUMED_CONDITIONAL_SHARE
from tidings.reasons import reason, render

PROSE = 'its ttl asks for "2 h" between polls'


def as_before(execute):
    for statement in DROP_CONSTRAINT_FACTS:
        execute(statement)
    for table in ("feeds", "polls"):
        execute(f"UPDATE {table} SET reason = '{PROSE}'")


def check(store, feed):
    found = store.feed(feed)
    assert found.state.reason == reason("text", text=PROSE)
    assert render(store.polls(feed)[0].reason) == PROSE
    assert found.state.not_modified == ASSUMED_CONDITIONAL_SHARE  # it has validators
    assert (found.min_interval_s, found.state.stated_s) == (0.0, 0.0)


@pytest.mark.parametrize("place", ["sqlite"], indirect=True)
def test_reasons_of_a_file_become_data_and_feeds_have_facts(open_store, location):
    with open_store() as store:
        feed = store.subscribe()
        store.record_poll(feed, state={"etag": '"a"'})
    with sqlite3.connect(location) as db:
        as_before(db.execute)
        db.execute(f"PRAGMA user_version = {CONSTRAINT_FACTS_VERSION - 1}")
    db.close()
    with open_store() as store:
        check(store, feed)


@pytest.mark.parametrize("place", ["postgres"], indirect=True)
def test_reasons_of_a_database_become_data_and_feeds_have_facts(open_store):
    def before(db):
        as_before(db.command)
        db.execute("UPDATE tidings_version SET version = ?", (CONSTRAINT_FACTS_VERSION - 1,))

    with open_store() as store:
        feed = store.subscribe()
        store.record_poll(feed, state={"etag": '"a"'})
        store.write(before)
    with open_store() as store:
        check(store, feed)
