"""Commands `tidings serve` (web server and polling) and `tidings worker` (polling only)."""

import click

from tidings.cli.context import CliContext
from tidings.i18n import _


@click.command()
@click.option("--host", help=_("Listen address.  [default: 127.0.0.1]"))
@click.option(
    "--port", type=click.IntRange(0, 65535), help=_("Port (0 = any free port).  [default: 8035]")
)
@click.option(
    "--no-worker",
    is_flag=True,
    help=_("Web server only. Workers on the same PostgreSQL database poll the feeds."),
)
@click.pass_obj
def serve(context: CliContext, host: str | None, port: int | None, no_worker: bool) -> None:
    """Run the reader: web pages, API and polling.

    One process polls the feeds, receives pushes (WebSub) and serves the web pages, the APIs,
    /metrics, /healthz and /readyz until Ctrl-C. It prints its address on stdout and logs to stderr.

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
            context.flags[option] = str(value)
    if no_worker and not isinstance(context.store_location, str):
        raise UsageError(_("--no-worker needs a PostgreSQL database; set it with --database"))
    context.create_data_dir()
    run(context.settings, context.store_location, echo=click.echo, polling=not no_worker)


@click.command()
@click.pass_obj
def worker(context: CliContext) -> None:
    """Run a polling worker (PostgreSQL only).

    Any number of workers can share one database. They share the feeds, the budget and the host
    limits. One of them is the leader. If a worker crashes, other workers take over its feeds when
    its leases expire. A worker that is stopped (Ctrl-C, SIGTERM) releases its leases.

    \b
    Example:
      tidings --database postgresql://tidings@db/tidings worker
    """
    from tidings.service import run_worker

    run_worker(context.settings, context.store_location, echo=click.echo)
