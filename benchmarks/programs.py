"""Measured programs: how to add feeds, refresh them, and count the stored entries.

A program that is not installed is skipped with a hint how to install it.
"""

import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

TIDINGS = Path(sys.executable).with_name("tidings")
ADD_FEEDS = """
import sys
from reader import make_reader
with make_reader(sys.argv[1]) as reader:
    for url in open(sys.argv[2]).read().split():
        reader.add_feed(url)
"""


@dataclass(frozen=True)
class Cost:
    """Cost of a run including child processes; memory is that of the largest process."""

    cpu_s: float
    wall_s: float
    peak_mb: float

    def __add__(self, other: "Cost") -> "Cost":
        return Cost(
            self.cpu_s + other.cpu_s, self.wall_s + other.wall_s, max(self.peak_mb, other.peak_mb)
        )


def run(command: Sequence[str | Path], environment: dict[str, str], *, check: bool = True) -> Cost:
    """Run a command without output; with ``check``, a failure ends the benchmark."""
    with tempfile.TemporaryFile("w+") as out:
        started = time.perf_counter()
        child = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            env={**os.environ, **environment},
        )
        _, status, usage = os.wait4(child.pid, 0)
        seconds = time.perf_counter() - started
        child.returncode = os.waitstatus_to_exitcode(status)
        if child.returncode and check:
            out.seek(0)
            raise SystemExit(
                f"{' '.join(map(str, command))}: exit code {child.returncode}\n{out.read()[-2000:]}"
            )
    return Cost(usage.ru_utime + usage.ru_stime, seconds, usage.ru_maxrss / 1024)


class Program:
    """A measured program, with its state in a separate folder."""

    name: ClassVar[str]
    install: ClassVar[str]
    #: Refreshes after the first one until conditional requests are used.
    warm_ups: ClassVar[int] = 0

    def __init__(self, folder: Path, urls: Sequence[str]) -> None:
        self.folder = folder / self.name
        self.folder.mkdir(parents=True)
        self.environment = {"HOME": str(self.folder), "LC_ALL": "C.UTF-8"}
        (self.folder / "urls").write_text("".join(f"{url}\n" for url in urls))
        self.prepare(urls)

    @classmethod
    def installed(cls) -> bool:
        return shutil.which(cls.name) is not None

    def prepare(self, urls: Sequence[str]) -> None:
        """Add the feeds."""

    def command(self) -> list[str | Path]:
        raise NotImplementedError

    def stored(self) -> int:
        """Return the number of stored entries."""
        raise NotImplementedError

    def refresh(self, *, check: bool = True) -> Cost:
        return run(self.command(), self.environment, check=check)

    def _count(self, file: str, query: str) -> int:
        with closing(sqlite3.connect(self.folder / file)) as db:
            return int(db.execute(query).fetchone()[0])


class Tidings(Program):
    """tidings, including sanitizing of entries and the search index."""

    name, install = "tidings", "make setup"

    @classmethod
    def installed(cls) -> bool:
        return TIDINGS.exists()

    def prepare(self, urls: Sequence[str]) -> None:
        self.environment["TIDINGS_FETCH_ALLOW_PRIVATE"] = "true"
        run([TIDINGS, "--data-dir", self.folder, "import", self.folder / "urls"], self.environment)

    def command(self) -> list[str | Path]:
        return [TIDINGS, "--data-dir", self.folder, "poll", "--all"]

    def stored(self) -> int:
        return self._count(
            "tidings.db", "SELECT count(*) FROM entries JOIN search ON search.rowid = entries.id"
        )


class Reader(Program):
    """lemon24/reader, in a separate virtual environment. Its search index is a separate command."""

    name, install = (
        "reader",
        "python3 -m venv DIR && DIR/bin/pip install 'reader[cli]' sgmllib3k, "
        "then --reader DIR/bin/python",
    )
    python: ClassVar[str] = ""

    @classmethod
    def installed(cls) -> bool:
        return bool(cls.python)

    def prepare(self, urls: Sequence[str]) -> None:
        run(
            [self.python, "-c", ADD_FEEDS, self.folder / "db.sqlite", self.folder / "urls"],
            self.environment,
        )

    def command(self) -> list[str | Path]:
        return self._reader("update", "--no-scheduled", "--workers", "10")

    def _reader(self, *arguments: str) -> list[str | Path]:
        return [self.python, "-m", "reader", "--db", self.folder / "db.sqlite", *arguments]

    def stored(self) -> int:
        return self._count("db.sqlite", "SELECT count(*) FROM entries")


class ReaderWithIndex(Reader):
    """lemon24/reader with the search index, which tidings always updates."""

    name = "reader with index"

    def prepare(self, urls: Sequence[str]) -> None:
        super().prepare(urls)
        run(self._reader("search", "enable"), self.environment)

    def refresh(self, *, check: bool = True) -> Cost:
        return super().refresh(check=check) + run(
            self._reader("search", "update"), self.environment, check=check
        )


class Newsboat(Program):
    """newsboat, whose second refresh downloads all feeds again; the third one gets 304."""

    name, install, warm_ups = "newsboat", "apt-get install newsboat", 1

    def prepare(self, urls: Sequence[str]) -> None:
        (self.folder / "config").write_text("reload-threads 4\n")

    def command(self) -> list[str | Path]:
        return [
            "newsboat",
            "-C",
            self.folder / "config",
            "-c",
            self.folder / "cache.db",
            "-u",
            self.folder / "urls",
            "-x",
            "reload",
        ]

    def stored(self) -> int:
        return self._count("cache.db", "SELECT count(*) FROM rss_item WHERE deleted = 0")


class Sfeed(Program):
    """sfeed: a shell script around curl, eight feeds at a time, without conditional requests."""

    name, install = "sfeed_update", "apt-get install sfeed curl"

    def prepare(self, urls: Sequence[str]) -> None:
        feeds = "".join(f"  feed 'feed {number}' '{url}'\n" for number, url in enumerate(urls))
        (self.folder / "sfeedrc").write_text(
            f"sfeedpath='{self.folder}/feeds'\nmaxjobs=8\nfeeds() {{\n{feeds}}}\n"
        )

    def command(self) -> list[str | Path]:
        return ["sfeed_update", self.folder / "sfeedrc"]

    def stored(self) -> int:
        return sum(path.read_bytes().count(b"\n") for path in (self.folder / "feeds").iterdir())


PROGRAMS: tuple[type[Program], ...] = (Tidings, Reader, ReaderWithIndex, Newsboat, Sfeed)
