"""`tidings ...`: the command line.

One file per group of commands: `feeding` (add, import, poll), `reading` (feeds, entries, export), `telling` (explain, status),
`keeping` (config, doctor, backup, restore), `people` (user), `serve`, and the laboratory's in `lab*`. A command reads its
options, calls one function of a room below, and prints what came back (`output`). Heavy libraries are imported when a command
runs, so that `tidings --help` answers at once.
"""

import errno
import os
import sys
from io import TextIOWrapper
from pathlib import Path
from typing import Any

import click

from tidings import __version__
from tidings.cli.demo import demo
from tidings.cli.feeding import add, import_feeds, poll
from tidings.cli.home import Home, default_folder
from tidings.cli.keeping import backup, config, doctor, restore
from tidings.cli.lab import lab
from tidings.cli.moving import migrate
from tidings.cli.peers import list_server, peers, recover
from tidings.cli.people import user
from tidings.cli.reading import entries, export, feeds
from tidings.cli.serve import serve, worker
from tidings.cli.telling import explain, status
from tidings.cli.timing import timing
from tidings.errors import TidingsError, UsageError
from tidings.memory import tune_allocator

# numpy's matrices are small here: threads that wait for each other would cost several times the work. Before numpy is loaded.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

tune_allocator()

#: What a shell expects of a program that was stopped with Ctrl-C: 128 + SIGINT.
INTERRUPTED = 130


class Refusal(click.ClickException):
    """An error of ours, told in one line."""

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = exit_code  # type: ignore[misc]  # click asks the instance, whatever its annotation says

    def show(self, file: Any = None) -> None:
        click.echo(f"tidings: {self.format_message()}", err=True)


class Root(click.Group):
    """The one place where errors become lines on stderr and exit codes."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except TidingsError as error:
            raise Refusal(str(error), error.exit_code) from None
        except KeyboardInterrupt:
            raise click.exceptions.Exit(INTERRUPTED) from None
        except OSError as error:
            if error.errno == errno.EPIPE:  # `tidings ... | head`: click leaves quietly
                raise
            place = f"{error.filename}: " if error.filename else ""
            raise Refusal(f"{place}{error.strerror or error}", TidingsError.exit_code) from None


@click.group(
    cls=Root, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100}
)
@click.version_option(__version__, prog_name="tidings")
@click.option(
    "--data-dir",
    type=click.Path(path_type=Path),
    envvar="TIDINGS_DATA_DIR",
    help="Folder of the store and config.toml; else $TIDINGS_DATA_DIR, else tidings in the user's data folder.",
)
@click.option(
    "--database",
    metavar="ADDRESS",
    help="A store in PostgreSQL, as in postgresql://user@host/name.",
)
@click.option(
    "--set",
    "flags",
    multiple=True,
    metavar="OPTION=VALUE",
    help="An option of the configuration: fetch.timeout_s=20.",
)
@click.pass_context
def root(
    ctx: click.Context, data_dir: Path | None, database: str | None, flags: tuple[str, ...]
) -> None:
    """A feed aggregator that knows when to look.

    `tidings serve` looks after your feeds; the other commands work beside it, on the same data folder.
    """
    values = {}
    for flag in flags:
        name, equals, value = flag.partition("=")
        if not equals:
            raise UsageError(
                f"--set {flag}: write OPTION=VALUE, as in --set fetch.timeout_s=20; `tidings config` lists them"
            )
        values[name.strip()] = value
    if database is not None:
        values["store.database"] = database
    ctx.obj = Home(data_dir or default_folder(), values)


for command in (
    serve,
    worker,
    demo,
    add,
    import_feeds,
    export,
    feeds,
    entries,
    poll,
    explain,
    status,
    timing,
    peers,
    recover,
    list_server,
    doctor,
    backup,
    restore,
    migrate,
    user,
    config,
    lab,
):
    root.add_command(command)


def main() -> None:
    """The installed command."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(
                errors="replace"
            )  # a terminal may know fewer characters than a title has
    root(prog_name="tidings")
