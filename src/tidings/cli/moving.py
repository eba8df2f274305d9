"""`tidings migrate sqlite-to-postgres`: from one machine to several."""

from pathlib import Path

import click

from tidings.cli.home import Home, with_home
from tidings.cli.output import progress
from tidings.errors import UsageError


@click.group()
def migrate() -> None:
    """Move a store from one kind of database to another."""


@migrate.command("sqlite-to-postgres")
@click.option(
    "--from",
    "source",
    type=click.Path(dir_okay=False, path_type=Path),
    help="The file to move.  [default: the store of the data folder]",
)
@with_home
async def sqlite_to_postgres(home: Home, source: Path | None) -> None:
    """Move a store from its file into an empty PostgreSQL database, and compare the two.

    Stop the service first. If it is interrupted, give the same command again: it goes on where it stopped. The file stays as
    it is.

    \b
    Example:
      tidings --database postgresql://me@db/tidings migrate sqlite-to-postgres
    """
    from tidings.store.sqlite_to_postgres import move

    if not home.config.store_database:
        raise UsageError(
            "name the PostgreSQL database with --database before the command, as in --database postgresql:///tidings"
        )
    with progress("moving", total=1) as bar:

        def tell(what: str, done: int, of: int) -> None:
            bar.say(what)
            bar.reached(done, of)

        rows = await move(source or home.store_path, home.config.store_database, tell)
    click.echo(
        f"moved {rows:,} rows, and compared them; from now on name the database with --database or store.database"
    )
