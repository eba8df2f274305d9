"""What the options before every command say: the data folder, and options of the configuration. Read when a command asks."""

import os
from collections.abc import Callable, Coroutine
from functools import cached_property, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec

import click

from tidings.config import Config, Setting, config_of, read
from tidings.errors import UsageError

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager

    from tidings.aggregator import Aggregator
    from tidings.store import Store
    from tidings.store.feed_models import Feed

P = ParamSpec("P")


def default_folder() -> Path:
    """``tidings`` where the user's programs keep their data (XDG base directories)."""
    return Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share") / "tidings"


class Home:
    """A data folder and its configuration."""

    def __init__(self, folder: Path, flags: dict[str, str]) -> None:
        self.folder, self.flags = folder, flags

    @cached_property
    def settings(self) -> dict[str, Setting]:
        found = read(self.folder, os.environ, self.flags)
        if (
            found["policy.name"].value != found["policy.name"].default
        ):  # whoever has chosen none need not load them all
            from tidings.service import check_policy

            check_policy(found)
        return found

    @cached_property
    def config(self) -> Config:
        return config_of(self.settings)

    @property
    def store_path(self) -> Path:
        """The file that is the store, if it is no database elsewhere."""
        return self.folder / "tidings.db"

    @property
    def place(self) -> Path | str:
        """Where the store is: the file, or the address of a PostgreSQL database."""
        return self.config.store_database or self.store_path

    @property
    def has_store(self) -> bool:
        """Whether there is one already. A database is made ready by whoever comes first."""
        return bool(self.config.store_database) or self.store_path.exists()

    def make_folder(self) -> None:
        """For its owner alone: what somebody reads is nobody's business."""
        if self.folder.exists() and not self.folder.is_dir():
            raise UsageError(f"--data-dir {self.folder}: is a file; name a folder")
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)

    def open_store(self) -> "Store":
        """The store, which must be there: a mistyped folder shall not look like an empty store."""
        import time

        from tidings.store import Store

        if not self.has_store:
            raise UsageError(
                f"there is no store in {self.folder} yet; begin with `tidings add URL` or `tidings import FILE`, "
                "or name another folder with --data-dir before the command"
            )
        return Store.open(self.place, clock=time.time)

    def open_polling(self) -> "AbstractAsyncContextManager[Aggregator]":
        """The parts that polling needs; of what they log, only what somebody should do something about is told."""
        from tidings import logs
        from tidings.service import open_polling

        logs.configure_logging("warning", self.config.log_format)
        return open_polling(self.settings, self.place)


def with_home(
    command: Callable[Concatenate[Home, P], Coroutine[Any, Any, None]],
) -> Callable[P, None]:
    """A command that is handed the `Home`, and may await."""

    @wraps(command)
    def run(*args: P.args, **options: P.kwargs) -> None:
        from tidings import event_loop

        event_loop.run(command(click.get_current_context().ensure_object(Home), *args, **options))

    return run


async def find_feed(store: "Store", feed: str) -> "Feed":
    """By id or address, former addresses included."""
    found = await store.feed(int(feed) if feed.isdecimal() else feed)
    if found is None:
        raise UsageError(
            f"there is no feed {feed} here; `tidings feeds` lists them, `tidings add {feed}` adds one"
        )
    return found
