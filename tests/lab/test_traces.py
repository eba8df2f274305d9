"""Tests of reading and validating trace files, and of the error messages."""

import numpy as np
import pytest

from tests.trace_helpers import trace_of
from tidings.errors import TraceError
from tidings.lab.traces import UNLIMITED, read_trace, write_trace


@pytest.mark.parametrize("as_csv", [True, False])
def test_written_and_read_back(tmp_path, as_csv):
    trace = trace_of([10, 30, 20], [], [5, 5], window=[3, 4, 1])
    write_trace(trace, tmp_path / "t", as_csv=as_csv)
    again = read_trace(tmp_path / "t")
    assert again.times.tolist() == [10, 20, 30, 5, 5]
    assert again.offsets.tolist() == [0, 3, 3, 5]
    assert again.window.tolist() == [3, 4, 1]
    assert (again.start, again.end) == (5, 30)


def write_csv_trace(tmp_path, posts, feeds=None):
    (tmp_path / "posts.csv").write_text(posts)
    if feeds is not None:
        (tmp_path / "feeds.csv").write_text(feeds)
    return tmp_path


def test_windows_weights_and_names_are_optional(tmp_path):
    trace = read_trace(write_csv_trace(tmp_path, "feed_id,published_at\na,3\nb,1\na,2\n"))
    assert trace.feed_ids.tolist() == ["a", "b"]
    assert trace.times.tolist() == [2, 3, 1]
    assert trace.window.tolist() == [UNLIMITED, UNLIMITED]


def test_feeds_without_posts_count(tmp_path):
    trace = read_trace(
        write_csv_trace(
            tmp_path, "feed_id,published_at\n7,3\n", "feed_id,window,weight\n9,5,2\n7,,\n"
        )
    )
    assert trace.n_feeds == 2
    assert trace.weight.tolist() == [2, 1]
    assert trace.window.tolist() == [5, UNLIMITED]
    assert trace.offsets.tolist() == [0, 0, 1]


@pytest.mark.parametrize(
    ("posts", "feeds", "says"),
    [
        (
            "feed_id,published_at\n1,soon\n",
            None,
            r"posts.csv, row 1, column 'published_at': 'soon' is not a number",
        ),
        (
            "feed_id,published_at\n1,5\n2,\n",
            None,
            r"posts.csv, row 2, column 'published_at': is empty",
        ),
        (
            "feed_id,published_at\n1,-5\n",
            None,
            r"posts.csv, row 1, column 'published_at': -5 must be",
        ),
        ("feed_id,published_at\n1,inf\n", None, r"row 1, column 'published_at'"),
        ("feed_id,when\n1,5\n", None, r"has no column 'published_at'; it has feed_id, when"),
        ("feed_id,published_at\n,5\nx,6\n", None, r"row 1, column 'feed_id': is empty"),
        ("feed_id,published_at\n1,5,6\n", None, r"row 1: has 3 fields"),
        ("feed_id,published_at\n", None, r"has no rows"),
        ("", None, r"is empty; the first line names the columns"),
        (
            "feed_id,published_at\n1,5\n3,6\n",
            "feed_id\n1\n",
            r"posts.csv, row 2, column 'feed_id': feed 3 is not in feeds.csv",
        ),
        (
            "feed_id,published_at\n1,5\n",
            "feed_id\n1\n1\n",
            r"feeds.csv, row 2, column 'feed_id': feed 1 is listed twice",
        ),
        (
            "feed_id,published_at\n1,5\n",
            "feed_id,window\n1,0\n",
            r"feeds.csv, row 1, column 'window': 0 must be",
        ),
        ("feed_id,published_at\n1,5\n", "feed_id,weight\n1,-1\n", r"column 'weight'"),
    ],
)
def test_a_bad_trace_names_file_row_and_column(tmp_path, posts, feeds, says):
    with pytest.raises(TraceError, match=says):
        read_trace(write_csv_trace(tmp_path, posts, feeds))


def test_a_file_that_is_not_parquet(tmp_path):
    (tmp_path / "posts.parquet").write_text("hello")
    with pytest.raises(TraceError, match="not a readable Parquet file"):
        read_trace(tmp_path)


@pytest.mark.parametrize("name", ["nowhere", ""])
def test_a_trace_that_is_not_there(tmp_path, name):
    with pytest.raises(TraceError, match=r"is not a directory|holds neither"):
        read_trace(tmp_path / name)


def test_the_cut_must_leave_something(tmp_path):
    trace = trace_of([0, 86400 * 10])
    assert trace.training_end(3) == 3 * 86400
    with pytest.raises(TraceError, match="leave nothing to test"):
        trace.training_end(10)


def test_select_keeps_some_feeds():
    trace = trace_of([1, 2], [3], [4, 5, 6], window=[1, 2, 3]).select(np.array([2, 0]))
    assert trace.times.tolist() == [4, 5, 6, 1, 2]
    assert trace.window.tolist() == [3, 1]
