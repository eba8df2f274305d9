"""`tidings peers`, `recover` and `list-server`: the exchange from the command line."""

import time
from typing import TYPE_CHECKING

import click

from tidings.cli.home import Home, find_feed, with_home
from tidings.cli.output import json_option, print_table, tell
from tidings.formatting import NO_VALUE, ago, count, duration, figures

if TYPE_CHECKING:
    from tidings.store import Store
    from tidings.store.peers import Peer


@click.group(invoke_without_command=True)
@json_option
@click.pass_context
def peers(ctx: click.Context) -> None:
    """Neighbours: what they give and get, what they brought and how much earlier; who was dropped, and why.

    \b
    Examples:
      tidings peers
      tidings peers private https://example.org/feed
    """
    if ctx.invoked_subcommand is None:
        _list()


@with_home
async def _list(home: Home) -> None:
    from tidings.store import peers

    async with home.open_store() as store:
        known = await store.read(peers.peers)
        key = await _own_key(home, store)
    tell({"key": key, "peers": [_told(peer) for peer in known]}, lambda: _show(home, key, known))


def _show(home: Home, key: str, known: "list[Peer]") -> None:
    if not home.config.exchange_enabled:
        click.echo("The exchange is off; set exchange.enabled to begin (docs/exchange.md).")
    if key:
        click.echo(f"our key, for friends: {key}\n")
    heads = [
        "neighbour",
        "useful",
        "brought",
        "given",
        "deficit",
        "entries",
        "confirmed",
        "false",
        "earlier by",
    ]
    print_table(heads, [_row(peer) for peer in known if peer.present])
    for peer in known:
        if not peer.present and peer.reason:
            until = (
                f", not let in again before {ago(peer.banned_until, time.time())}"
                if peer.banned_until
                else ""
            )
            click.echo(f"{peer.nid}: {peer.reason}{until}")


async def _own_key(home: Home, store: "Store") -> str:
    if not home.config.exchange_keys:
        return ""
    from tidings.exchange.keys import Signer
    from tidings.users import UserService

    return Signer(await UserService(store, time.time).key("exchange")).key.hex()


def _told(peer: "Peer") -> dict[str, object]:
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
    """How much earlier than by our own looks its entries came, on average."""
    confirmed = peer.figures.get("confirmed", 0)
    return peer.figures["earlier_s"] / confirmed if confirmed else None


@peers.command()
@click.argument("feed", metavar="URL|ID")
@click.option("--no", is_flag=True, help="It may be told again.")
@with_home
async def private(home: Home, feed: str, no: bool) -> None:
    """Mark a feed as private: neighbours are never told of it.

    Feeds with a password or a key in their address, or at a private address, need no mark.

    \b
    Example:
      tidings peers private https://example.org/feed
    """
    from tidings.store import peers

    async with home.open_store() as store:
        await store.write(peers.set_private, (await find_feed(store, feed)).id, not no)


@click.command()
@click.argument("feed", metavar="URL|ID")
@click.option(
    "--since", metavar="DATE", type=click.DateTime(), help="Published since then.  [default: ever]"
)
@json_option
@with_home
async def recover(home: Home, feed: str, since: object) -> None:
    """Ask the archives of neighbours for old entries of a feed; what comes is marked as theirs.

    \b
    Example:
      tidings recover https://example.org/feed --since 2026-01-01
    """
    from datetime import UTC, datetime

    from tidings.aggregator.exchange_setup import recover_manually

    begin = since.replace(tzinfo=UTC).timestamp() if isinstance(since, datetime) else 0.0
    async with home.open_store() as store:
        found = await find_feed(store, feed)
        recovered = await recover_manually(store, home.config, found, begin, time.time)
    entries = "entry" if recovered.entries == 1 else "entries"
    tell(
        {
            "feed": found.url,
            "holders": recovered.holders,
            "entries": recovered.entries,
            "new": recovered.new,
        },
        f"{recovered.entries:,} {entries} at {count(recovered.holders, 'node')}, {recovered.new:,} new",
    )


@click.command("list-server")
@click.option("--host", default="0.0.0.0", show_default=True, help="Address to listen on.")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=8036,
    show_default=True,
    help="Port; 0 picks a free one.",
)
def list_server(host: str, port: int) -> None:
    """Tell newcomers of the exchange about nodes that asked lately, until Ctrl-C. It knows addresses and nothing else.

    \b
    Example:
      tidings list-server --port 8036
    """
    from tidings.exchange.listserver import ListServer
    from tidings.service import address, listen, serve_until_signal

    with listen(host, port) as listening:
        click.echo(f"the list server is at {address(listening)} (Ctrl-C stops it)")
        serve_until_signal(ListServer(time.time).app(), listening)
