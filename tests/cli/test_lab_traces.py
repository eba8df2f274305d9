"""Commands `lab describe` and `lab generate`, and errors of invalid traces."""

import numpy as np
import pytest

from tidings.lab.traces import read_trace, write_table

VALID_POSTS = "feed_id,published_at\n1,100\n2,200\n"


def test_describe_fits_80_columns_and_plots(tidings, sample, tmp_path):
    text = tidings("lab", "describe", sample, "--plot", tmp_path / "sample.png")
    assert text.startswith("sample: 20 feeds, ")
    assert max(len(line) for line in text.splitlines()) <= 80
    assert (tmp_path / "sample.png").read_bytes().startswith(b"\x89PNG")


def test_describe_as_json(tidings, sample):
    found = tidings.json("lab", "describe", sample)
    assert found["feeds"] == 20
    assert len(found["hour_of_day_share"]) == 24
    assert sum(found["day_of_week_share"]) == pytest.approx(1)


@pytest.mark.parametrize(
    ("posts", "feeds", "message"),
    [
        (
            "feed_id,published_at\n1,100\n1,noon\n",
            None,
            "posts.csv, row 2, column 'published_at': 'noon' is not a number",
        ),
        ("feed_id,published_at\n1,100\n,5\n", None, "posts.csv, row 2, column 'feed_id': is empty"),
        (
            "feed_id,published_at\n1,-5\n",
            None,
            "posts.csv, row 1, column 'published_at': -5 must be",
        ),
        (
            "feed_id,published_at\n1,2,3\n",
            None,
            "posts.csv, row 1: has 3 fields where the header names 2",
        ),
        ("feed,published_at\n1,2\n", None, "has no column 'feed_id'; it has feed, published_at"),
        ("feed_id,published_at\n", None, "posts.csv: has no rows"),
        ("", None, "posts.csv: is empty; the first line names the columns"),
        (
            VALID_POSTS,
            "feed_id\n1\n",
            "posts.csv, row 2, column 'feed_id': feed 2 is not in feeds.csv",
        ),
        (
            VALID_POSTS,
            "feed_id\n1\n2\n1\n",
            "feeds.csv, row 3, column 'feed_id': feed 1 is listed twice",
        ),
        (VALID_POSTS, "feed_id,window\n1,5\n2,0\n", "feeds.csv, row 2, column 'window': 0 must be"),
        (
            VALID_POSTS,
            "feed_id,window\n1,5\n2,2.5\n",
            "feeds.csv, row 2, column 'window': 2.5 is not a whole number",
        ),
        (
            VALID_POSTS,
            "feed_id,weight\n1,-1\n2,1\n",
            "feeds.csv, row 1, column 'weight': -1 must be",
        ),
    ],
)
def test_invalid_traces_are_reported_by_file_row_and_column(
    tidings, tmp_path, posts, feeds, message
):
    (tmp_path / "posts.csv").write_text(posts)
    if feeds is not None:
        (tmp_path / "feeds.csv").write_text(feeds)
    output = tidings.expect_error("lab", "describe", tmp_path)
    assert message in output
    assert output.count("\n") == 1


def test_unreadable_files_are_named(tidings, tmp_path):
    (tmp_path / "posts.csv").write_bytes(b"\xff\xfe\x00binary")
    assert "posts.csv: is not readable as CSV in UTF-8" in tidings.expect_error(
        "lab", "describe", tmp_path
    )
    (tmp_path / "posts.parquet").write_bytes(b"not a table")
    assert "posts.parquet: is not a readable Parquet file" in tidings.expect_error(
        "lab", "describe", tmp_path
    )


def test_dates_instead_of_seconds_are_rejected(tidings, tmp_path):
    when = np.array(["2024-01-01T00:00:00"], dtype="datetime64[ns]")
    write_table(tmp_path / "posts.parquet", {"feed_id": np.array([1]), "published_at": when})
    assert "seconds since 1970" in tidings.expect_error("lab", "describe", tmp_path)


def test_empty_directory_is_rejected(tidings, tmp_path):
    assert "holds neither posts.parquet nor posts.csv" in tidings.expect_error(
        "lab", "describe", tmp_path
    )


# --- generate -------------------------------------------------------------------------------


GENERATE = ("--like", "homogeneous", "--feeds", "5", "--days", "10")


@pytest.mark.parametrize("form", [(), ("--csv",)])
def test_generate_writes_a_trace_that_reads_back(tidings, tmp_path, form):
    found = tidings.json("lab", "generate", tmp_path / "t", *GENERATE, *form)
    trace = read_trace(tmp_path / "t")
    assert (trace.n_feeds, trace.n_posts) == (found["feeds"], found["posts"])
    assert (tmp_path / "t" / ("posts.csv" if form else "posts.parquet")).exists()


def test_the_same_seed_gives_the_same_trace(tidings, tmp_path):
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        tidings("lab", "generate", tmp_path / name, *GENERATE, "--seed", seed)
    a, b, c = (read_trace(tmp_path / name).times for name in "abc")
    assert np.array_equal(a, b)
    assert not np.array_equal(a, c)


def test_generate_overwrites_only_with_force(tidings, tmp_path):
    tidings("lab", "generate", tmp_path, *GENERATE)
    assert "is not empty; choose another directory, or add --force" in tidings.expect_error(
        "lab", "generate", tmp_path, *GENERATE
    )
    tidings("lab", "generate", tmp_path, *GENERATE, "--csv", "--force", "--seed", "9")
    assert sorted(file.name for file in tmp_path.iterdir()) == [
        "feeds.csv",
        "posts.csv",
    ]  # the old format would be read instead


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--like", "twitter"), "'twitter'; choose from"),
        (("--like", "homogeneous", "--feeds", "0"), "0 is not in the range x>=1"),
        (("--like", "homogeneous", "--days", "0"), "0.0 is not in the range x>0"),
        ((), "Missing option '--like'"),
    ],
)
def test_invalid_options_are_rejected(tidings, tmp_path, arguments, message):
    assert message in tidings.expect_error("lab", "generate", tmp_path / "t", *arguments)
    assert not (tmp_path / "t").exists()
