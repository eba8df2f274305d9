"""`tidings serve` and `tidings worker`: the service, in front; and one of those who poll for it elsewhere."""

import click

from tidings.cli.home import Home


@click.command()
@click.option("--host", help="Address to listen on.  [default: 127.0.0.1]")
@click.option(
    "--port", type=click.IntRange(0, 65535), help="Port; 0 picks a free one.  [default: 8035]"
)
@click.option(
    "--no-worker",
    is_flag=True,
    help="Pages alone: workers on the same PostgreSQL database do the polling.",
)
@click.pass_obj
def serve(home: Home, host: str | None, port: int | None, no_worker: bool) -> None:
    """Look after the feeds, and serve pages and figures, until Ctrl-C.

    All in one process: polls at the times that the policy chooses, pushes, pages, /metrics, /healthz, /readyz. It says
    on stdout where it listens, and on stderr what happens.

    \b
    Example:
      tidings serve --port 8035
      tidings --data-dir data --set policy.budget=2400 serve
      tidings --database postgresql://tidings@db/tidings serve --no-worker
    """
    from tidings.errors import UsageError
    from tidings.service import serve as run

    for option, value in (("serve.host", host), ("serve.port", port)):
        if value is not None:
            home.flags[option] = str(value)
    if no_worker and not isinstance(home.place, str):
        raise UsageError(
            "--no-worker needs a PostgreSQL database that workers poll for: name it with --database"
        )
    home.make_folder()
    run(home.settings, home.place, echo=click.echo, polling=not no_worker)


@click.command()
@click.pass_obj
def worker(home: Home) -> None:
    """Poll what is due, as one of any number of workers on one PostgreSQL database, until Ctrl-C or SIGTERM.

    They share the feeds, the budget and the hosts; one of them leads. A worker that dies is missed for no longer than a lease;
    one that is told to stop hands back what it has not begun.

    \b
    Example:
      tidings --database postgresql://tidings@db/tidings worker
    """
    from tidings.service import run_worker

    run_worker(home.settings, home.place, echo=click.echo)
