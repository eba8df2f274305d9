"""`tidings serve`: the web service, in front."""

import click


@click.command()
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--port", type=click.IntRange(0, 65535), default=8035, show_default=True, help="Port; 0 picks a free one.")
def serve(host: str, port: int) -> None:
    """Serve the web pages until Ctrl-C.

    In this version: what the policies are, and a comparison of them on a small generated trace.

    \b
    Example:
      tidings serve --port 8035
    """
    from tidings.service import run

    run(host, port, say=click.echo)
