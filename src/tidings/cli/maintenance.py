"""Maintenance commands: `tidings config`, `doctor`, `backup` and `restore`."""

import json
from collections.abc import Iterable
from itertools import count
from pathlib import Path
from textwrap import fill

import click

from tidings.cli.context import CliContext, with_context
from tidings.cli.output import json_option, print_result, print_table, progress
from tidings.config import Setting


@click.command()
@json_option
@with_context
async def config(context: CliContext) -> None:
    """Show all configuration options.

    The output is a config.toml with the value and origin of each option. An option is set in
    config.toml in the data directory (timeout_s under [fetch]), in the environment
    (TIDINGS_FETCH_TIMEOUT_S), or before the command (--set fetch.timeout_s=20). The environment
    overrides the file, and --set overrides both.

    \b
    Example:
      tidings config
      tidings --set policy.budget=2400 config --json
    """
    keys = ("name", "value", "origin", "default", "variable", "allowed", "help")
    settings = context.settings.values()
    result = [
        {key: getattr(one, key) for key in keys} | {"type": one.kind.__name__} for one in settings
    ]
    print_result(result, lambda: _print_settings(settings))


def _print_settings(settings: Iterable[Setting]) -> None:
    section = ""
    for setting in settings:
        if setting.section != section:
            section = setting.section
            click.echo(f"[{section}]")
        click.echo(
            fill(
                f"{setting.help} ({setting.allowed})",
                80,
                initial_indent="# ",
                subsequent_indent="# ",
            )
        )
        # Strings, numbers and booleans are written the same in JSON and in TOML.
        line = f"{setting.option} = {json.dumps(setting.value)}"
        click.echo(
            f"# {line}\n" if setting.origin == "default" else f"{line}  # from {setting.origin}\n"
        )


@click.command()
@json_option
@with_context
async def doctor(context: CliContext) -> None:
    """Check the installation for problems.

    Checks configuration, data directory, database, disk, clock and network, without sending
    requests. The exit code is 1 if there is an error.

    \b
    Example:
      tidings doctor
    """
    from tidings.cli.doctor import CHECKS, run_checks

    with progress("checking", total=len(CHECKS)) as bar:
        results = await run_checks(context, bar.advance)
    rows = [[one.verdict, one.subject, one.text] for one in results]
    print_result(
        [{"what": one.subject, "verdict": one.verdict, "words": one.text} for one in results],
        lambda: print_table(["", "check", "result"], rows, left=3),
    )
    if any(one.verdict == "error" for one in results):
        raise click.exceptions.Exit(1)


@click.command()
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@with_context
async def backup(context: CliContext, file: Path) -> None:
    """Back up the database to FILE.

    The backup is a consistent snapshot and can be made while the service runs. It is for SQLite;
    back up PostgreSQL with pg_dump.

    \b
    Example:
      tidings backup monday.db
    """
    async with context.open_store() as store:
        with progress(f"copying to {file}", total=1) as bar:
            await store.backup(file, progress=bar.set_position)
    click.echo(f"{file}: {file.stat().st_size:,} bytes")


@click.command()
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@with_context
async def restore(context: CliContext, file: Path) -> None:
    """Restore the database from a backup.

    A copy of the current database is kept beside it.

    \b
    Example:
      tidings restore monday.db
    """
    from tidings.errors import TidingsError, UsageError
    from tidings.store import restore as restore_store

    if isinstance(context.store_location, str):
        raise UsageError(
            f"`tidings restore` works for SQLite only; for PostgreSQL run: pg_restore -d URL {file}"
        )
    context.create_data_dir()
    previous = await _copy_existing_store(context)
    try:
        with progress(f"copying {file}", total=1) as bar:
            restore_store(file, context.store_path, bar.set_position)
    except TidingsError:  # the database is unchanged, so the copy is not needed
        if previous is not None:
            previous.unlink()
        raise
    note = f"; the previous database is {previous}" if previous else ""
    click.echo(f"restored {context.store_path}{note}")


async def _copy_existing_store(context: CliContext) -> Path | None:
    """Copy the current database beside itself; a damaged one is copied as a plain file."""
    import shutil

    from tidings.store import StoreError

    if not context.store_path.exists():
        return None
    names = (f"{context.store_path.name}.before-restore-{number}" for number in count(1))
    copy = next(path for name in names if not (path := context.store_path.with_name(name)).exists())
    try:
        async with context.open_store() as store:
            await store.backup(copy)
    except StoreError:
        shutil.copyfile(context.store_path, copy)
    return copy
