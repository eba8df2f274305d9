"""Prometheus metrics: text format and poll counters."""

from tidings.store.feed_models import EntryText, PollOutcome, RecordResult, SuspectedGap
from tidings.web.metrics import Family, PollCounters, Sample, exposition


def text_of(counts):
    return exposition(counts.families()).splitlines()


def entry(delay_s):
    return EntryText("id", b"", 0.0, delay_s=delay_s)


def test_exposition_format_escapes_labels():
    families = [
        Family(
            "a_total",
            "counter",
            "Things.",
            [Sample(3), Sample(0.25, {"kind": 'a "b"\\c\nd', "x": "y"})],
        ),
        Family("empty", "gauge", "Nothing.", []),
    ]
    assert exposition(families).splitlines() == [
        "# HELP a_total Things.",
        "# TYPE a_total counter",
        "a_total 3",
        r'a_total{kind="a \"b\"\\c\nd",x="y"} 0.25',
        "# HELP empty Nothing.",
        "# TYPE empty gauge",
    ]


def test_polls_are_counted_by_outcome():
    counts = PollCounters()
    good = PollOutcome(feed_id=1, at=0.0, status=200, bytes=1000, gap=SuspectedGap(0, 1, 5.0))
    counts.count_polls([good, good], [RecordResult((1, 2), 1), RecordResult((), 0)])
    counts.count_polls(
        [PollOutcome(feed_id=2, at=0.0, error_kind="timeout")], [RecordResult((), 0)]
    )
    counts.count_polls([PollOutcome(feed_id=2, at=0.0, source="push")], [RecordResult((3,), 0)])
    lines = text_of(counts)
    assert 'tidings_polls_total{source="poll",status="200"} 2' in lines
    assert 'tidings_polls_total{source="poll",status="none"} 1' in lines
    assert 'tidings_polls_total{source="push",status="none"} 1' in lines
    assert 'tidings_poll_errors_total{kind="timeout"} 1' in lines
    assert {
        "tidings_poll_bytes_total 2000",
        "tidings_entries_new_total 3",
        "tidings_entries_changed_total 1",
    } <= set(lines)
    assert "tidings_gaps_total 2" in lines


def test_delay_histogram_buckets_are_cumulative():
    counts = PollCounters()
    outcome = PollOutcome(feed_id=1, at=0.0, new=tuple(entry(s) for s in (60.0, 61.0, 1e9, None)))
    counts.count_polls([outcome], [RecordResult((1, 2, 3, 4), 0)])
    lines = text_of(counts)
    assert 'tidings_delay_seconds_bucket{le="60"} 1' in lines
    assert 'tidings_delay_seconds_bucket{le="300"} 2' in lines
    assert 'tidings_delay_seconds_bucket{le="604800"} 2' in lines
    assert 'tidings_delay_seconds_bucket{le="+Inf"} 3' in lines
    assert "tidings_delay_seconds_count 3" in lines
    assert "tidings_delay_seconds_sum 1000000121" in lines
