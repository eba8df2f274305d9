"""`tidings config`, `doctor`, `backup` and `restore`: what a careful operator needs."""

import json
from collections.abc import Iterable
from itertools import count
from pathlib import Path
from textwrap import fill

import click

from tidings.cli.home import Home, with_home
from tidings.cli.output import json_option, print_table, progress, tell
from tidings.config import Setting


@click.command()
@json_option
@with_home
async def config(home: Home) -> None:
    """Every option with its value, and where that comes from, as a config.toml.

    An option is set in config.toml in the data folder (timeout_s under [fetch]), in the environment
    (TIDINGS_FETCH_TIMEOUT_S), or before the command (--set fetch.timeout_s=20); the later wins.

    \b
    Example:
      tidings config
      tidings --set policy.budget=2400 config --json
    """
    keys = ("name", "value", "origin", "default", "variable", "allowed", "help")
    settings = home.settings.values()
    found = [
        {key: getattr(one, key) for key in keys} | {"type": one.kind.__name__} for one in settings
    ]
    tell(found, lambda: _show(settings))


def _show(settings: Iterable[Setting]) -> None:
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
        line = f"{setting.option} = {json.dumps(setting.value)}"  # what JSON and TOML say alike
        click.echo(
            f"# {line}\n" if setting.origin == "default" else f"{line}  # from {setting.origin}\n"
        )


@click.command()
@json_option
@with_home
async def doctor(home: Home) -> None:
    """Check configuration, folder, store, disk, clock and network.

    Nobody is asked anything: the network is looked at from this machine alone. The exit code is 1 if something is wrong.

    \b
    Example:
      tidings doctor
    """
    from tidings.cli.doctor import CHECKS, examine

    with progress("looking", total=len(CHECKS)) as bar:
        findings = await examine(home, bar.done)
    rows = [[f.verdict, f.what, f.words] for f in findings]
    tell(
        [finding._asdict() for finding in findings],
        lambda: print_table(["", "what", "found"], rows, left=3),
    )
    if any(finding.verdict == "wrong" for finding in findings):
        raise click.exceptions.Exit(1)


@click.command()
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@with_home
async def backup(home: Home, file: Path) -> None:
    """Copy the store to FILE, whole and of one moment, while the service runs. PostgreSQL has pg_dump for that.

    \b
    Example:
      tidings backup monday.db
    """
    async with home.open_store() as store:
        with progress(f"copying to {file}", total=1) as bar:
            await store.backup(file, progress=bar.reached)
    click.echo(f"{file}: {file.stat().st_size:,} bytes")


@click.command()
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@with_home
async def restore(home: Home, file: Path) -> None:
    """Put a backup in the store's place; the store that was there is kept beside it.

    \b
    Example:
      tidings restore monday.db
    """
    from tidings.errors import TidingsError, UsageError
    from tidings.store import restore as put_back

    if isinstance(home.place, str):
        raise UsageError(
            f"a store in PostgreSQL is restored by its own means; use: pg_restore -d ADDRESS {file}"
        )
    home.make_folder()
    kept = await _set_aside(home)
    try:
        with progress(f"copying {file}", total=1) as bar:
            put_back(file, home.store_path, bar.reached)
    except TidingsError:  # the store is where it was, and needs no copy
        if kept is not None:
            kept.unlink()
        raise
    click.echo(f"restored {home.store_path}" + (f"; what was there is now {kept}" if kept else ""))


async def _set_aside(home: Home) -> Path | None:
    """A copy of the store as it is; a damaged one is copied as the file that it is."""
    import shutil

    from tidings.store import StoreError

    if not home.store_path.exists():
        return None
    names = (f"{home.store_path.name}.before-restore-{number}" for number in count(1))
    aside = next(place for name in names if not (place := home.store_path.with_name(name)).exists())
    try:
        async with home.open_store() as store:
            await store.backup(aside)
    except StoreError:
        shutil.copyfile(home.store_path, aside)
    return aside
