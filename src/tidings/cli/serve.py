"""`tidings serve`: the service, in front."""

import click

from tidings.cli.home import Home


@click.command()
@click.option("--host", help="Address to listen on.  [default: 127.0.0.1]")
@click.option("--port", type=click.IntRange(0, 65535), help="Port; 0 picks a free one.  [default: 8035]")
@click.pass_obj
def serve(home: Home, host: str | None, port: int | None) -> None:
    """Look after the feeds, and serve pages and figures, until Ctrl-C.

    All in one process: polls at the times that the policy chooses, pushes, pages, /metrics, /healthz, /readyz. It says
    on stdout where it listens, and on stderr what happens.

    \b
    Example:
      tidings serve --port 8035
      tidings --data-dir data --set policy.budget=2400 serve
    """
    from tidings.service import serve as run

    for option, value in (("serve.host", host), ("serve.port", port)):
        if value is not None:
            home.flags[option] = str(value)
    home.make_folder()
    run(home.settings, home.place, say=click.echo)
