"""Command line interface (CLI): the root command, error handling and exit codes.

One module per group of commands: `feeds` (add, import, feeds, export, poll), `entries`, `inspect`
(explain, status), `timing`, `maintenance` (config, doctor, backup, restore), `migrate`, `users`
(user), `peers`, `serve` (serve, worker), `demo`, and `lab*` for the simulator. A command parses its
options, calls one function of a lower package and prints the result (`output`). Heavy libraries are
imported inside the commands, which keeps `tidings --help` fast.
"""

import errno
import os
import sys
from io import TextIOWrapper
from pathlib import Path
from typing import Any

import click

from tidings import __version__
from tidings.cli.context import CliContext, default_data_dir
from tidings.cli.demo import demo
from tidings.cli.entries import entries
from tidings.cli.feeds import add, export, feeds, import_feeds, poll
from tidings.cli.help_texts import translate_help
from tidings.cli.inspect import explain, status
from tidings.cli.lab import lab
from tidings.cli.maintenance import backup, config, doctor, restore
from tidings.cli.migrate import migrate
from tidings.cli.peers import list_server, peers, recover
from tidings.cli.serve import serve, worker
from tidings.cli.timing import timing
from tidings.cli.users import user
from tidings.errors import TidingsError, UsageError
from tidings.i18n import _
from tidings.memory import tune_allocator

# Matrices are small here, so BLAS threads cost more than they save. Must be set before numpy loads.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

tune_allocator()

#: Exit code after Ctrl-C, as shells expect it: 128 + SIGINT.
INTERRUPT_EXIT_CODE = 130


class CommandError(click.ClickException):
    """An error that is printed as one line on stderr, with its exit code."""

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message)
        # click reads the attribute of the instance, although it declares a class variable.
        self.exit_code = exit_code  # type: ignore[misc]

    def show(self, file: Any = None) -> None:
        click.echo(f"tidings: {self.format_message()}", err=True)


class RootGroup(click.Group):
    """Root command group that converts exceptions to error messages and exit codes."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except TidingsError as error:
            raise CommandError(str(error), error.exit_code) from None
        except KeyboardInterrupt:
            raise click.exceptions.Exit(INTERRUPT_EXIT_CODE) from None
        except OSError as error:
            if error.errno == errno.EPIPE:  # `tidings ... | head`: click exits without a message
                raise
            prefix = f"{error.filename}: " if error.filename else ""
            raise CommandError(
                f"{prefix}{error.strerror or error}", TidingsError.exit_code
            ) from None


@click.group(
    cls=RootGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(__version__, prog_name="tidings")
@click.option(
    "--data-dir",
    type=click.Path(path_type=Path),
    envvar="TIDINGS_DATA_DIR",
    help=_(
        "Directory of the database and config.toml.  [default: $TIDINGS_DATA_DIR, or "
        "$XDG_DATA_HOME/tidings]"
    ),
)
@click.option(
    "--database",
    metavar="URL",
    help=_("PostgreSQL database, for example postgresql://user@host/name."),
)
@click.option(
    "--set",
    "flags",
    multiple=True,
    metavar="OPTION=VALUE",
    help=_("Value of an option, for example fetch.timeout_s=20."),
)
@click.pass_context
def root(
    ctx: click.Context, data_dir: Path | None, database: str | None, flags: tuple[str, ...]
) -> None:
    """Self-hosted feed reader that learns when each feed posts.

    `tidings serve` runs the service. The other commands can be used while it runs, with the same
    data directory.
    """
    values = {}
    for flag in flags:
        name, equals, value = flag.partition("=")
        if not equals:
            raise UsageError(
                _(
                    "--set %(flag)s: write OPTION=VALUE, for example --set fetch.timeout_s=20; "
                    "`tidings config` lists the options",
                    flag=flag,
                )
            )
        values[name.strip()] = value
    if database is not None:
        values["store.database"] = database
    ctx.obj = CliContext(data_dir or default_data_dir(), values)


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
translate_help(root)


def main() -> None:
    """Run the command line; the entry point of the installed script."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            # Titles may have characters that the terminal's encoding lacks.
            stream.reconfigure(errors="replace")
    root(prog_name="tidings")
