"""The programs that are measured: how each is given its feeds, how it refreshes them, and what it has stored.

A program that is not installed is left out, with a line that says how to install it.
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
    """What one run of a program took, the processes that it started included; memory is that of the largest of them."""

    cpu_s: float
    wall_s: float
    peak_mb: float

    def __add__(self, other: "Cost") -> "Cost":
        return Cost(
            self.cpu_s + other.cpu_s, self.wall_s + other.wall_s, max(self.peak_mb, other.peak_mb)
        )


def run(command: Sequence[str | Path], environment: dict[str, str], *, check: bool = True) -> Cost:
    """Run a command to its end, quietly; with ``must``, it may not fail."""
    with tempfile.TemporaryFile("w+") as out:
        begun = time.perf_counter()
        child = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            env={**os.environ, **environment},
        )
        _, status, usage = os.wait4(child.pid, 0)
        seconds = time.perf_counter() - begun
        child.returncode = os.waitstatus_to_exitcode(status)
        if child.returncode and check:
            out.seek(0)
            raise SystemExit(
                f"{' '.join(map(str, command))}: ended with {child.returncode}\n{out.read()[-2000:]}"
            )
    return Cost(usage.ru_utime + usage.ru_stime, seconds, usage.ru_maxrss / 1024)


class Program:
    """One of them, with its state in a folder of its own."""

    name: ClassVar[str]
    install: ClassVar[str]
    #: Refreshes after the first until the validators are used.
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
        """Make the feeds known."""

    def command(self) -> list[str | Path]:
        raise NotImplementedError

    def stored(self) -> int:
        """Entries."""
        raise NotImplementedError

    def refresh(self, *, check: bool = True) -> Cost:
        return run(self.command(), self.environment, check=check)

    def _count(self, file: str, query: str) -> int:
        with closing(sqlite3.connect(self.folder / file)) as db:
            return int(db.execute(query).fetchone()[0])


class Tidings(Program):
    """The real command, with all that it does to an entry: made safe to show, and its words put into the search index."""

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
    """lemon24/reader, in a virtual environment of its own. Its search index is a command apart."""

    name, install = (
        "reader",
        "python3 -m venv DIR && DIR/bin/pip install 'reader[cli]' sgmllib3k, then --reader DIR/bin/python",
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

    def _reader(self, *words: str) -> list[str | Path]:
        return [self.python, "-m", "reader", "--db", self.folder / "db.sqlite", *words]

    def stored(self) -> int:
        return self._count("db.sqlite", "SELECT count(*) FROM entries")


class ReaderWithIndex(Reader):
    """The same, with the search index that ours always makes."""

    name = "reader with index"

    def prepare(self, urls: Sequence[str]) -> None:
        super().prepare(urls)
        run(self._reader("search", "enable"), self.environment)

    def refresh(self, *, check: bool = True) -> Cost:
        return super().refresh(check=check) + run(
            self._reader("search", "update"), self.environment, check=check
        )


class Newsboat(Program):
    """Its second refresh downloads all again; the third is the first that is answered with 304."""

    name, install, warm_ups = "newsboat", "apt-get install newsboat", 1

    def prepare(self, urls: Sequence[str]) -> None:
        (self.folder / "config").write_text("reload-threads 4\n")

    def command(self) -> list[str | Path]:
        at = self.folder
        return [
            "newsboat",
            "-C",
            at / "config",
            "-c",
            at / "cache.db",
            "-u",
            at / "urls",
            "-x",
            "reload",
        ]

    def stored(self) -> int:
        return self._count("cache.db", "SELECT count(*) FROM rss_item WHERE deleted = 0")


class Sfeed(Program):
    """A shell script around curl and small programs, eight feeds at a time; it knows no conditional requests."""

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
