"""Recording poll results: atomic, idempotent, with versions, poll log and gaps."""

import pytest

from tests.store.conftest import INTEGRITY_ERRORS, entry
from tests.trace_helpers import MONDAY
from tidings.document import Enclosure
from tidings.reasons import reason
from tidings.store.feed_models import GapRepair, KnownEntry, SuspectedGap
from tidings.store.record import MAX_VERSIONS


def test_new_entries_are_listed_newest_first(store):
    feed = store.subscribe()
    recorded = store.record_poll(feed, new=[entry(1), entry(2)])
    assert store.titles() == ["Post 2", "Post 1"]
    assert recorded.new == (1, 2)


def test_entry_round_trip(store):
    feed = store.subscribe()
    file = Enclosure("https://a.example/1.mp3", "audio/mpeg", 5)
    given = entry(
        1,
        text="words",
        author="Ann",
        tags=("x", "y"),
        enclosures=(file,),
        declared_published_at=5.0,
        updated_at=6.0,
        delay_s=7.0,
    )
    (entry_id,) = store.record_poll(feed, new=[given]).new
    stored = store.entry(entry_id)
    for name in (
        "identity",
        "digest",
        "title",
        "author",
        "content",
        "tags",
        "enclosures",
        "declared_published_at",
        "updated_at",
        "delay_s",
    ):
        assert getattr(stored, name) == getattr(given, name), name
    assert (stored.feed_id, stored.first_seen_at, stored.source, stored.changed_at) == (
        feed,
        store.clock() - 1,
        "poll",
        None,
    )
    assert store.entry(99) is None


def test_same_outcome_is_stored_once(store):
    feed = store.subscribe()
    outcome = store.outcome(feed, new=[entry(1)], gap=SuspectedGap(1.0, 2.0, 3.0))
    store.record([outcome])
    (again,) = store.record([outcome])
    assert again.new == ()
    assert store.titles() == ["Post 1"]
    assert len(store.polls(feed)) == len(store.gaps()) == 1


def test_repeated_identity_in_document_gives_one_entry(store):
    feed = store.subscribe()
    assert len(store.record_poll(feed, new=[entry(1), entry(1)]).new) == 1


def test_same_identity_in_two_feeds(store):
    a, b = store.subscribe("https://a.example/"), store.subscribe("https://b.example/")
    store.record([store.outcome(a, new=[entry(1)]), store.outcome(b, new=[entry(1)])])
    assert len(store.entries()) == 2


def test_known_entries_returns_ids_and_digests(store):
    feed = store.subscribe()
    (entry_id,) = store.record_poll(feed, new=[entry(1)]).new
    assert store.known_entries(feed, ["id:1", "id:2"]) == {
        "id:1": KnownEntry(entry_id, b"1", MONDAY + 3600)
    }
    assert store.known_entries(feed, []) == {}


def test_changed_entry_keeps_publication_time_and_version(store):
    feed = store.subscribe()
    (entry_id,) = store.record_poll(feed, new=[entry(1, text="it rains")]).new
    changed_at = store.clock()
    assert (
        store.record_poll(
            feed,
            changed=(entry(1, text="it snows", title="Corrected", digest=b"2", published_at=0.0),),
        ).changed
        == 1
    )

    stored = store.entry(entry_id)
    assert (stored.title, stored.published_at, stored.changed_at) == (
        "Corrected",
        entry(1).published_at,
        changed_at,
    )
    assert [(v.title, v.content, v.replaced_at) for v in store.versions(entry_id)] == [
        ("Post 1", "<p>it rains</p>", changed_at)
    ]
    assert store.titles(search="snows") == ["Corrected"]
    assert store.titles(search="rains") == []


def test_push_and_correcting_poll_in_one_transaction(store):
    feed = store.subscribe()
    push = store.outcome(feed, new=[entry(1, text="it rains")], source="push")
    store.clock.forward(1)
    store.record(
        [
            push,
            store.outcome(feed, new=[entry(1)], changed=(entry(1, text="it snows", digest=b"2"),)),
        ]
    )
    assert store.titles(search="snows") == ["Post 1"]
    assert store.titles(search="rains") == []
    assert store.check() == []


def test_unchanged_digest_creates_no_version(store):
    feed = store.subscribe()
    (entry_id,) = store.record_poll(feed, new=[entry(1)]).new
    assert store.record_poll(feed, changed=(entry(1), entry(2, digest=b"2"))).changed == 0
    assert store.versions(entry_id) == []


def test_only_last_versions_are_kept(store):
    feed = store.subscribe()
    (entry_id,) = store.record_poll(feed, new=[entry(1, digest=b"0")]).new
    for number in range(1, MAX_VERSIONS + 4):
        store.record_poll(feed, changed=(entry(1, digest=b"%d" % number),))
    assert [int(v.digest) for v in store.versions(entry_id)] == list(range(MAX_VERSIONS + 2, 2, -1))


def test_poll_log_has_results_and_reasons(store):
    feed = store.subscribe()
    store.record_poll(
        feed,
        new=[entry(1, delay_s=10.0), entry(2, delay_s=30.0), entry(3)],
        bytes=500,
        entries=3,
        reason=reason("added"),
    )
    store.record_poll(
        feed, status=0, error_kind="timeout", error="no answer within 30 s", reason=reason("manual")
    )
    failed, good = store.polls(feed)
    assert (good.new, good.entries, good.delay_mean_s, good.delay_max_s, good.reason) == (
        3,
        3,
        20.0,
        30.0,
        reason("added"),
    )
    assert (failed.error_kind, failed.error, failed.delay_mean_s, failed.missed) == (
        "timeout",
        "no answer within 30 s",
        None,
        None,
    )
    assert store.polls_since(good.at) == 2
    assert store.polls_since(failed.at) == 1


def test_gap_is_repaired_by_archive_entries(store):
    feed = store.subscribe()
    store.record_poll(
        feed, new=[entry(9)], gap=SuspectedGap(from_at=100.0, until_at=200.0, missed=2.5)
    )
    (gap,) = store.gaps(feed_id=feed, state="open")
    assert (gap.from_at, gap.until_at, gap.missed, gap.recovered) == (100.0, 200.0, 2.5, 0)
    assert store.polls(feed)[0].missed == 2.5

    store.record_poll(
        feed,
        source="archive",
        new=[entry(7), entry(8), entry(9)],
        repair=GapRepair(gap.id, "repaired"),
    )
    assert store.gaps(state="open") == []
    assert [(g.state, g.recovered) for g in store.gaps()] == [("repaired", 2)]
    assert [e.source for e in store.entries()] == ["archive", "archive", "poll"]


def test_invalid_outcome_rolls_back_the_batch(store):
    a, b = store.subscribe("https://a.example/"), store.subscribe("https://b.example/")
    broken = store.outcome(b, new=[entry(1, author=None)])
    with pytest.raises(INTEGRITY_ERRORS):
        store.record([store.outcome(a, new=[entry(1)], state={"etag": "x"}), broken])
    assert store.entries() == []
    assert store.polls(a) == []
    assert store.feed(a).state.etag == ""


def test_poll_finished_after_retirement_does_not_reschedule(store):
    feed = store.subscribe()
    outcome = store.outcome(feed, new=[entry(1)])
    store.retire(feed, "not wanted")
    store.record([outcome])
    assert store.feed(feed).state.next_poll_at is None
    assert store.titles() == ["Post 1"]
