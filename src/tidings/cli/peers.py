"""Commands of the peer exchange: `tidings peers`, `recover` and `list-server`."""

import time
from typing import TYPE_CHECKING

import click

from tidings.cli.context import CliContext, find_feed, with_context
from tidings.cli.output import json_option, print_result, print_table
from tidings.formatting import NO_VALUE, ago, duration, figures
from tidings.i18n import _, n_

if TYPE_CHECKING:
    from tidings.store import Store
    from tidings.store.peers import Peer


@click.group(invoke_without_command=True)
@json_option
@click.pass_context
def peers(ctx: click.Context) -> None:
    """Show exchange peers.

    Lists the entries that each peer sent and received, and how much earlier they arrived.
    Disconnected peers are listed with the reason.

    \b
    Examples:
      tidings peers
      tidings peers private https://example.org/feed
    """
    if ctx.invoked_subcommand is None:
        _list_peers()


@with_context
async def _list_peers(context: CliContext) -> None:
    from tidings.store import peers

    async with context.open_store() as store:
        known = await store.read(peers.peers)
        key = await _own_key(context, store)
    print_result(
        {"key": key, "peers": [_peer_json(peer) for peer in known]},
        lambda: _print_peers(context, key, known),
    )


def _print_peers(context: CliContext, key: str, known: "list[Peer]") -> None:
    if not context.config.exchange_enabled:
        click.echo(_("Peer exchange is off. To turn it on, set exchange.enabled=true."))
    if key:
        click.echo(_("public key of this node: %(key)s", key=key) + "\n")
    headings = [
        _("peer"),
        _("usefulness"),
        _("received"),
        _("sent"),
        _("deficit"),
        _("entries"),
        _("confirmed"),
        _("false"),
        _("time saved"),
    ]
    print_table(headings, [_row(peer) for peer in known if peer.present])
    for peer in known:
        if not peer.present and peer.reason:
            line = f"{peer.nid}: {peer.reason}"
            if peer.banned_until:
                end = ago(peer.banned_until, time.time())
                line = _("%(peer)s (the block ends %(end)s)", peer=line, end=end)
            click.echo(line)


async def _own_key(context: CliContext, store: "Store") -> str:
    if not context.config.exchange_keys:
        return ""
    from tidings.exchange.keys import Signer
    from tidings.users import UserService

    return Signer(await UserService(store, time.time).signing_key("exchange")).key.hex()


def _peer_json(peer: "Peer") -> dict[str, object]:
    return {
        "nid": peer.nid,
        "present": peer.present,
        "usefulness": peer.usefulness,
        "deficit": peer.figures.get("given", 0.0) - peer.figures.get("brought", 0.0),
        **peer.figures,
        "earlier_mean_s": _earlier_s(peer),
        "key": peer.key.hex(),
        "banned_until": peer.banned_until,
        "why": peer.reason,
        "at": peer.at,
    }


def _row(peer: "Peer") -> list[str]:
    f = peer.figures
    shares = [
        figures(n) for n in (peer.usefulness, f["brought"], f["given"], f["given"] - f["brought"])
    ]
    counts = [f"{f[name]:,.0f}" for name in ("entries", "confirmed", "false")]
    earlier_s = _earlier_s(peer)
    return [peer.nid, *shares, *counts, NO_VALUE if earlier_s is None else duration(earlier_s)]


def _earlier_s(peer: "Peer") -> float | None:
    """Return how much earlier than our own polls the peer's entries arrived, on average."""
    confirmed = peer.figures.get("confirmed", 0)
    return peer.figures["earlier_s"] / confirmed if confirmed else None


@peers.command()
@click.argument("feed", metavar="URL|ID")
@click.option("--no", is_flag=True, help=_("Removal of the private mark."))
@with_context
async def private(context: CliContext, feed: str, no: bool) -> None:
    """Mark a feed as private.

    Nothing about a private feed is sent to peers. Feeds with a password or a key in their URL, and
    feeds at private IP addresses, are always private.

    \b
    Example:
      tidings peers private https://example.org/feed
    """
    from tidings.store import peers

    async with context.open_store() as store:
        await store.write(peers.set_private, (await find_feed(store, feed)).id, not no)


@click.command()
@click.argument("feed", metavar="URL|ID")
@click.option(
    "--since", metavar="DATE", type=click.DateTime(), help=_("Only entries published since DATE.")
)
@json_option
@with_context
async def recover(context: CliContext, feed: str, since: object) -> None:
    """Fetch old entries from peers' archives.

    Recovered entries are marked with their source.

    \b
    Example:
      tidings recover https://example.org/feed --since 2026-01-01
    """
    from datetime import UTC, datetime

    from tidings.aggregator.exchange_setup import recover_manually

    start = since.replace(tzinfo=UTC).timestamp() if isinstance(since, datetime) else 0.0
    async with context.open_store() as store:
        found = await find_feed(store, feed)
        recovered = await recover_manually(store, context.config, found, start, time.time)
    entries = n_("%(num)s entry", "%(num)s entries", recovered.entries)
    print_result(
        {
            "feed": found.url,
            "holders": recovered.holders,
            "entries": recovered.entries,
            "new": recovered.new,
        },
        _(
            "%(entries)s from %(peers)s, %(new)s new",
            entries=entries,
            peers=n_("%(num)s peer", "%(num)s peers", recovered.holders),
            new=f"{recovered.new:,}",
        ),
    )


@click.command("list-server")
@click.option("--host", default="0.0.0.0", show_default=True, help=_("Listen address."))
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=8036,
    show_default=True,
    help=_("Port (0 = any free port)."),
)
def list_server(host: str, port: int) -> None:
    """Run a list server for peer discovery.

    A list server gives new nodes of the exchange the addresses of recently seen nodes. It stores
    nothing else. It runs until Ctrl-C.

    \b
    Example:
      tidings list-server --port 8036
    """
    from tidings.exchange.listserver import ListServer
    from tidings.service import address, listen, serve_until_signal

    with listen(host, port) as server_socket:
        click.echo(
            _(
                "the list server is running at %(server_socket)s (press Ctrl-C to stop)",
                server_socket=address(server_socket),
            )
        )
        serve_until_signal(ListServer(time.time).app(), server_socket)
