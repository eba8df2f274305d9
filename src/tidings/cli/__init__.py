"""`tidings ...`: the command line.

One file per group of commands: `lab` (traces), `lab_formulas` (the papers' formulas on numbers you give), `lab_runs` (policies
on traces), `serve`. A command reads its options, calls one function of a room below, and prints what came back (`output`).
What it needs of numpy, pyarrow and matplotlib it imports when it runs, so that `tidings --help` answers at once.
"""

import errno
from typing import Any

import click

from tidings import __version__
from tidings.cli.lab import lab
from tidings.cli.serve import serve
from tidings.errors import TidingsError

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


@click.group(cls=Root, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="tidings")
def root() -> None:
    """A feed aggregator that knows when to look."""


root.add_command(lab)
root.add_command(serve)


def main() -> None:
    """The installed command."""
    root(prog_name="tidings")
