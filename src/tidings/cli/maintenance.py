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
from tidings.i18n import _


@click.command()
@json_option
@with_context
async def config(context: CliContext) -> None:
    """Show all configuration options.

    The output is a config.toml with the value and origin of each option. You can set an option in
    config.toml in the data directory (timeout_s under [fetch]), in the environment
    (TIDINGS_FETCH_TIMEOUT_S), or before the command (--set fetch.timeout_s=20). The environment
    overrides the file. --set overrides both.

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
        if setting.origin == "default":
            click.echo(f"# {line}\n")
        else:
            note = _("from %(origin)s", origin=setting.origin)
            click.echo(f"{line}  # {note}\n")


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

    with progress(_("checking"), total=len(CHECKS)) as bar:
        results = await run_checks(context, bar.advance)
    rows = [[one.verdict, one.subject, one.text] for one in results]
    print_result(
        [{"what": one.subject, "verdict": one.verdict, "words": one.text} for one in results],
        lambda: print_table(["", _("check"), _("result")], rows, left=3),
    )
    if any(one.verdict == "error" for one in results):
        raise click.exceptions.Exit(1)


@click.command()
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@with_context
async def backup(context: CliContext, file: Path) -> None:
    """Back up the database to FILE.

    The backup is a consistent snapshot. It can be made while the service runs. For PostgreSQL, use
    pg_dump.

    \b
    Example:
      tidings backup monday.db
    """
    async with context.open_store() as store:
        with progress(_("copying to %(file)s", file=file), total=1) as bar:
            await store.backup(file, progress=bar.set_position)
    click.echo(_("%(file)s: %(size)s bytes", file=file, size=f"{file.stat().st_size:,}"))


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
            _(
                "`tidings restore` works for SQLite only; for PostgreSQL run: pg_restore -d "
                "URL %(file)s",
                file=file,
            )
        )
    context.create_data_dir()
    previous = await _copy_existing_store(context)
    try:
        with progress(_("copying %(file)s", file=file), total=1) as bar:
            restore_store(file, context.store_path, bar.set_position)
    except TidingsError:  # the database is unchanged, so the copy is not needed
        if previous is not None:
            previous.unlink()
        raise
    click.echo(_("restored %(file)s", file=context.store_path))
    if previous:
        click.echo(_("the previous database is %(file)s", file=previous))


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
