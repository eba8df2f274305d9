"""Command `tidings migrate sqlite-to-postgres`: copy a SQLite database to PostgreSQL."""

from pathlib import Path

import click

from tidings.cli.context import CliContext, with_context
from tidings.cli.output import progress
from tidings.errors import UsageError
from tidings.i18n import _


@click.group()
def migrate() -> None:
    """Move data between database types."""


@migrate.command("sqlite-to-postgres")
@click.option(
    "--from",
    "source",
    type=click.Path(dir_okay=False, path_type=Path),
    help=_("SQLite file.  [default: tidings.db in the data directory]"),
)
@with_context
async def sqlite_to_postgres(context: CliContext, source: Path | None) -> None:
    """Copy a SQLite database to PostgreSQL.

    The PostgreSQL database must be empty. All rows are compared after the copy, and the SQLite file
    is not changed. Stop the service first. If the command is interrupted, run it again: it resumes
    where it stopped.

    \b
    Example:
      tidings --database postgresql://me@db/tidings migrate sqlite-to-postgres
    """
    from tidings.store.sqlite_to_postgres import move

    if not context.config.store_database:
        raise UsageError(
            _(
                "set the PostgreSQL database with --database before the command, for "
                "example --database postgresql:///tidings"
            )
        )
    with progress(_("copying"), total=1) as bar:

        def report(text: str, done: int, total: int) -> None:
            bar.set_text(text)
            bar.set_position(done, total)

        rows = await move(source or context.store_path, context.config.store_database, report)
    click.echo(
        _(
            "copied and compared %(rows)s rows; to use this database, set --database "
            "or the option store.database",
            rows=f"{rows:,}",
        )
    )
