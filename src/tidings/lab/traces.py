"""Read, validate and write trace files, which contain the posting times of feeds.

A trace is a directory with ``posts.parquet`` (feed_id, published_at in epoch seconds UTC, optional
size in bytes) and ``feeds.parquet`` (feed_id, optional name, window, weight), or the same as CSV
with a header line. It covers the time from its first post to its last, both included.
"""

import csv
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tidings.errors import MissingExtra, TraceError
from tidings.lab.segments import segment_offsets
from tidings.model import DAY_S, Documents, Floats, Ints

#: Window of a feed whose document lists all its posts, and default if no window is declared.
UNLIMITED = 2**31 - 1
#: Size of a post in bytes where a trace has no sizes. Sia & Cho sect. 4.6: "the average size of a
#: posting is 560 bytes".
POST_BYTES = 560.0


@dataclass(frozen=True, slots=True)
class Trace:
    """Posting times of many feeds, sorted by feed and time.

    ``offsets[i]:offsets[i + 1]`` are the posts of feed i.
    """

    name: str
    feed_ids: npt.NDArray[Any]
    feed_names: list[str]
    window: Ints  #: number of entries that the document of each feed lists
    weight: Floats  #: importance of the posts of each feed
    times: Floats  #: epoch seconds of each post
    sizes: Floats  #: bytes of each post
    offsets: Ints

    @classmethod
    def build(
        cls,
        name: str,
        feed: Ints,
        times: Floats,
        window: npt.ArrayLike,
        *,
        feed_ids: npt.NDArray[Any] | None = None,
        feed_names: list[str] | None = None,
        weight: npt.ArrayLike | None = None,
        sizes: Floats | None = None,
    ) -> "Trace":
        """Return a trace of unsorted posts; posts at the same time keep their order.

        ``feed`` is the feed number of each post, from 0, ``times`` are epoch seconds. ``window`` is
        the number of entries that the document of each feed lists.
        """
        windows = np.asarray(window, dtype=np.int64)
        n = len(windows)
        order = np.lexsort((times, feed))
        size = np.full(len(times), np.nan) if sizes is None else sizes.astype(np.float64)
        return cls(
            name=name,
            feed_ids=np.arange(n) if feed_ids is None else feed_ids,
            feed_names=[""] * n if feed_names is None else feed_names,
            window=windows,
            weight=np.ones(n) if weight is None else np.asarray(weight, dtype=np.float64),
            times=times[order].astype(np.float64),
            sizes=np.where(np.isnan(size), POST_BYTES, size)[order],
            offsets=segment_offsets(feed[order], n),
        )

    @property
    def n_feeds(self) -> int:
        return len(self.window)

    @property
    def n_posts(self) -> int:
        return len(self.times)

    @property
    def start(self) -> float:
        """Time of the first post, in epoch seconds."""
        return float(self.times.min()) if len(self.times) else 0.0

    @property
    def end(self) -> float:
        """Time of the last post, in epoch seconds."""
        return float(self.times.max()) if len(self.times) else 0.0

    @property
    def days(self) -> float:
        return (self.end - self.start) / DAY_S

    @property
    def feed_of_post(self) -> Ints:
        return np.repeat(np.arange(self.n_feeds), np.diff(self.offsets))

    def training_end(self, train_days: float) -> float:
        """Return the end of the training period, ``train_days`` after the first post.

        Raises `TraceError` if no time is left after the training period.
        """
        if not 0 <= train_days < max(self.days, 1e-9):
            raise TraceError(
                self.name,
                f"covers {self.days:.1f} days; {train_days:g} days of training leave nothing to "
                "test",
            )
        return self.start + train_days * DAY_S

    def history(self, until: float) -> Documents:
        """Return the posts before ``until`` (epoch seconds) as one document per feed.

        A policy learns from them at its start.
        """
        first = self.offsets[:-1]
        before = np.concatenate([[0], np.cumsum(self.times < until)])
        known = first + (before[self.offsets[1:]] - before[first])
        return Documents(
            self.times, first.copy(), first.copy(), known, np.zeros(self.n_feeds, dtype=np.bool_)
        )

    def select(self, feeds: Ints) -> "Trace":
        """Return the trace of only some feeds."""
        keep = (
            np.concatenate([np.arange(self.offsets[f], self.offsets[f + 1]) for f in feeds])
            if len(feeds)
            else feeds
        )
        lengths = self.offsets[feeds + 1] - self.offsets[feeds]
        return Trace.build(
            self.name,
            np.repeat(np.arange(len(feeds)), lengths),
            self.times[keep],
            self.window[feeds],
            feed_ids=self.feed_ids[feeds],
            feed_names=[self.feed_names[f] for f in feeds],
            weight=self.weight[feeds],
            sizes=self.sizes[keep],
        )


# --- reading --------------------------------------------------------------------------------------

Table = dict[str, npt.NDArray[Any]]


def read_trace(path: str | Path) -> Trace:
    """Read and validate a trace directory; raise `TraceError` with file, row and column."""
    folder = Path(path)
    if not folder.is_dir():
        raise TraceError(
            folder,
            "is not a directory; a trace is a directory with posts.parquet and feeds.parquet (or "
            ".csv)",
        )
    posts_file = _one_of(folder, "posts")
    if posts_file is None:
        raise TraceError(folder, "holds neither posts.parquet nor posts.csv")
    posts = read_table(posts_file)
    ids = column(posts_file, posts, "feed_id")
    times = numbers(posts_file, posts, "published_at", low=0.0)
    sizes = numbers(posts_file, posts, "size", low=0.0, missing=np.nan) if "size" in posts else None
    if len(times) == 0:
        raise TraceError(posts_file, "has no rows; a trace needs at least one post")
    feeds_file = _one_of(folder, "feeds")
    if feeds_file is None:
        feed_ids, feed = np.unique(ids, return_inverse=True)
        return Trace.build(
            folder.name,
            feed,
            times,
            np.full(len(feed_ids), UNLIMITED),
            feed_ids=feed_ids,
            sizes=sizes,
        )
    feeds = read_table(feeds_file)
    feed_ids = column(feeds_file, feeds, "feed_id")
    _unique, first = np.unique(feed_ids, return_index=True)
    if len(first) < len(feed_ids):
        row = int(np.setdiff1d(np.arange(len(feed_ids)), first)[0])
        raise TraceError(
            feeds_file, f"feed {feed_ids[row]} is listed twice", row=row + 1, column="feed_id"
        )
    feed = feed_rows(ids, feed_ids, posts_file, feeds_file.name)
    n = len(feed_ids)
    window = (
        numbers(feeds_file, feeds, "window", low=1.0, missing=UNLIMITED)
        if "window" in feeds
        else np.full(n, UNLIMITED)
    )
    broken = np.flatnonzero(window != np.rint(window))
    if len(broken):
        row = int(broken[0])
        raise TraceError(
            feeds_file,
            f"{window[row]:g} is not a whole number of entries",
            row=row + 1,
            column="window",
        )
    weight = (
        numbers(feeds_file, feeds, "weight", low=0.0, missing=1.0) if "weight" in feeds else None
    )
    names = (
        [str(name) if name is not None else "" for name in feeds["name"].tolist()]
        if "name" in feeds
        else None
    )
    return Trace.build(
        folder.name,
        feed,
        times,
        window,
        feed_ids=feed_ids,
        feed_names=names,
        weight=weight,
        sizes=sizes,
    )


def feed_rows(ids: npt.NDArray[Any], known: npt.NDArray[Any], file: Path, where: str) -> Ints:
    """Return the position of each feed id among the known ids.

    Ids may be written as numbers or as text. Raises `TraceError` for an unknown id; ``where``
    describes in the message where it is missing.
    """
    if known.dtype.kind != ids.dtype.kind:
        known, ids = known.astype(str), ids.astype(str)
    order = np.argsort(known, kind="stable")
    place = np.minimum(np.searchsorted(known[order], ids), max(len(known) - 1, 0))
    unknown = np.flatnonzero(known[order][place] != ids) if len(known) else np.arange(len(ids))
    if len(unknown):
        row = int(unknown[0])
        raise TraceError(file, f"feed {ids[row]} is not in {where}", row=row + 1, column="feed_id")
    return order[place]


def _one_of(folder: Path, stem: str) -> Path | None:
    return next(
        (file for file in (folder / f"{stem}.parquet", folder / f"{stem}.csv") if file.exists()),
        None,
    )


def read_table(file: Path) -> Table:
    """Return the columns of a Parquet or CSV file as arrays; raise `TraceError` if invalid."""
    if not file.exists():
        raise TraceError(file, "does not exist")
    if file.suffix == ".csv":
        try:
            return _read_csv(file)
        except (UnicodeDecodeError, csv.Error) as error:
            raise TraceError(file, f"is not readable as CSV in UTF-8: {error}") from None
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError:
        raise MissingExtra("pyarrow", "lab", "reading Parquet files") from None
    try:
        table = pq.read_table(file)
    except (pa.ArrowException, OSError) as error:
        raise TraceError(file, f"is not a readable Parquet file: {error}") from None
    return {name: table[name].to_numpy(zero_copy_only=False) for name in table.column_names}


def _read_csv(file: Path) -> Table:
    with file.open(newline="", encoding="utf-8-sig") as lines:
        reader = csv.reader(lines)
        header = next(reader, None)
        if not header:
            raise TraceError(file, "is empty; the first line names the columns")
        rows = []
        for number, row in enumerate(reader, start=1):
            if row and len(row) != len(header):
                raise TraceError(
                    file, f"has {len(row)} fields where the header names {len(header)}", row=number
                )
            if row:
                rows.append(row)
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(header)
    table: Table = {}
    for name, values in zip(header, columns, strict=True):
        try:
            table[name.strip()] = np.array([int(v) for v in values])
        except ValueError:
            table[name.strip()] = np.array(values, dtype=object)
    return table


def column(file: Path, table: Table, name: str) -> npt.NDArray[Any]:
    """Return a required column of text or whole numbers; raise `TraceError` for empty cells."""
    if name not in table:
        raise TraceError(file, f"has no column {name!r}; it has {', '.join(table)}", column=name)
    values = table[name]
    if values.dtype.kind == "f" and np.isnan(values).any():
        raise TraceError(
            file, "is empty", row=int(np.flatnonzero(np.isnan(values))[0]) + 1, column=name
        )
    if values.dtype == object:
        for row, value in enumerate(values.tolist(), start=1):
            if value is None or value == "":
                raise TraceError(file, "is empty", row=row, column=name)
        values = values.astype(str)
    return values


def numbers(
    file: Path, table: Table, name: str, *, low: float, missing: float | None = None
) -> Floats:
    """Return a column of finite numbers that are at least ``low``.

    Empty cells become ``missing`` if it is not None. Raises `TraceError` for any other value.
    """
    if name not in table:
        raise TraceError(file, f"has no column {name!r}; it has {', '.join(table)}", column=name)
    raw = table[name]
    values = np.empty(len(raw))
    if (
        raw.dtype.kind in "mM"
    ):  # as numbers, their unit would depend on the file (nanoseconds, for example)
        raise TraceError(
            file,
            "holds dates or spans; it must hold numbers (times in seconds since 1970, UTC)",
            column=name,
        )
    if raw.dtype.kind in "iufb":
        values[:] = raw
    else:
        for row, cell in enumerate(raw.tolist()):
            try:
                values[row] = np.nan if cell is None or cell == "" else float(cell)
            except (TypeError, ValueError):
                raise TraceError(
                    file, f"{cell!r} is not a number", row=row + 1, column=name
                ) from None
    empty = np.isnan(values)
    if empty.any():
        if missing is None:
            raise TraceError(
                file, "is empty or not a number", row=int(np.flatnonzero(empty)[0]) + 1, column=name
            )
        values[empty] = missing
    wrong = np.flatnonzero(~np.isnan(values) & ((values < low) | np.isinf(values)))
    if len(wrong):
        row = int(wrong[0])
        raise TraceError(
            file,
            f"{values[row]:g} must be a finite number of at least {low:g}",
            row=row + 1,
            column=name,
        )
    return values


# --- writing --------------------------------------------------------------------------------------


def write_table(file: Path, table: Table) -> None:
    """Write columns as a Parquet or CSV file, by the extension of the file."""
    if file.suffix == ".csv":
        with file.open("w", newline="", encoding="utf-8") as out:
            writer = csv.writer(out)
            writer.writerow(table)
            writer.writerows(zip(*(values.tolist() for values in table.values()), strict=True))
        return
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError:
        raise MissingExtra("pyarrow", "lab", "writing Parquet files") from None
    pq.write_table(pa.table(table), file)


def write_trace(trace: Trace, path: str | Path, *, as_csv: bool = False) -> None:
    """Write a trace directory that `read_trace` can read."""
    folder = Path(path)
    folder.mkdir(parents=True, exist_ok=True)
    ending = "csv" if as_csv else "parquet"
    posts = {
        "feed_id": trace.feed_ids[trace.feed_of_post],
        "published_at": np.rint(trace.times).astype(np.int64),
        "size": np.rint(trace.sizes).astype(np.int32),
    }
    feeds = {
        "feed_id": trace.feed_ids,
        "name": np.array(trace.feed_names, dtype=object),
        "window": trace.window,
        "weight": trace.weight,
    }
    write_table(folder / f"posts.{ending}", posts)
    write_table(folder / f"feeds.{ending}", feeds)
