"""CLI context: data directory, configuration and database of the current command.

Created from the global options (`--data-dir`, `--database`, `--set`). The configuration is read on
first use.
"""

import os
from collections.abc import Callable, Coroutine
from functools import cached_property, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec

import click

from tidings.config import Config, Setting, config_of, read
from tidings.errors import UsageError
from tidings.i18n import _

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager

    from tidings.aggregator import Aggregator
    from tidings.store import Store
    from tidings.store.feed_models import Feed

P = ParamSpec("P")


def default_data_dir() -> Path:
    """Return the default data directory (XDG Base Directory Specification)."""
    return Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share") / "tidings"


class CliContext:
    """Data directory and configuration of a command.

    Args:
        data_dir: directory of the database and of config.toml.
        flags: configuration options given on the command line, by name.
    """

    def __init__(self, data_dir: Path, flags: dict[str, str]) -> None:
        self.data_dir, self.flags = data_dir, flags

    @cached_property
    def settings(self) -> dict[str, Setting]:
        """All configuration options with their values and origins."""
        settings = read(self.data_dir, os.environ, self.flags)
        # The check loads all policies, which is slow, so it is skipped for the default.
        if settings["policy.name"].value != settings["policy.name"].default:
            from tidings.service import check_policy

            check_policy(settings)
        return settings

    @cached_property
    def config(self) -> Config:
        return config_of(self.settings)

    @property
    def store_path(self) -> Path:
        """Path of the SQLite database in the data directory."""
        return self.data_dir / "tidings.db"

    @property
    def store_location(self) -> Path | str:
        """Path of the SQLite database, or the URL of the PostgreSQL database."""
        return self.config.store_database or self.store_path

    @property
    def store_exists(self) -> bool:
        """Whether the database exists; always true for PostgreSQL."""
        return bool(self.config.store_database) or self.store_path.exists()

    def create_data_dir(self) -> None:
        """Create the data directory, accessible only to its owner.

        Raises:
            UsageError: if the path is a file.
        """
        if self.data_dir.exists() and not self.data_dir.is_dir():
            raise UsageError(
                _("--data-dir %(data_dir)s is a file; choose a directory", data_dir=self.data_dir)
            )
        self.data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)

    def open_store(self) -> "Store":
        """Open the existing database.

        Raises:
            UsageError: if there is none. A mistyped directory must not look like an empty database.
        """
        import time

        from tidings.store import Store

        if not self.store_exists:
            raise UsageError(
                _(
                    "there is no database in %(data_dir)s yet; start with `tidings "
                    "add URL` or `tidings import FILE`, or choose another directory "
                    "with --data-dir",
                    data_dir=self.data_dir,
                )
            )
        return Store.open(self.store_location, clock=time.time)

    def open_polling(self) -> "AbstractAsyncContextManager[Aggregator]":
        """Open an aggregator that can poll feeds; only warnings and errors are logged."""
        from tidings import logs
        from tidings.service import open_polling

        logs.configure_logging("warning", self.config.log_format)
        return open_polling(self.settings, self.store_location)


def with_context(
    command: Callable[Concatenate[CliContext, P], Coroutine[Any, Any, None]],
) -> Callable[P, None]:
    """Decorate an async command: pass it the `CliContext` and run it in an event loop."""

    @wraps(command)
    def run(*args: P.args, **options: P.kwargs) -> None:
        from tidings import event_loop

        event_loop.run(
            command(click.get_current_context().ensure_object(CliContext), *args, **options)
        )

    return run


async def find_feed(store: "Store", feed: str) -> "Feed":
    """Return a feed by id or URL, including former URLs; raise `UsageError` if there is none."""
    found = await store.feed(int(feed) if feed.isdecimal() else feed)
    if found is None:
        raise UsageError(
            _(
                "there is no feed %(feed)s; `tidings feeds` lists all feeds, `tidings add "
                "%(feed)s` subscribes to one",
                feed=feed,
            )
        )
    return found
