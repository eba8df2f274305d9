"""From configuration to a node of the exchange."""

import ssl
from collections.abc import Callable
from ipaddress import ip_address
from secrets import token_hex
from typing import Any

from msgspec import Struct

from tidings.aggregator.aggregator import Aggregator
from tidings.aggregator.contact import stored_contact
from tidings.aggregator.peer_exchange import PeerExchange, is_private, store_recovered_entries
from tidings.config import TRUSTED_PEER, Config, ConfigError, split_list
from tidings.errors import UsageError
from tidings.exchange import messages
from tidings.exchange.archive import Trade
from tidings.exchange.client import Client, download, find_holdings
from tidings.exchange.keys import Signer, is_valid_signature
from tidings.exchange.node import Node
from tidings.exchange.protocol import Nid, NodeSettings, Query
from tidings.fetch.user_agent import user_agent
from tidings.store import Store, peers
from tidings.store.feed_models import Feed

#: In the store: where neighbours reach the service, address and port, for commands that speak in its name.
LISTEN_ADDRESS_KEY = "exchange"


def check_exchange_config(config: Config, address: str) -> None:
    """Refuse what cannot work, before anything has begun; ``address`` is where neighbours would have to reach us."""
    if ip_address(address).is_loopback and not config.fetch_allow_private:
        raise ConfigError(
            "exchange.enabled",
            f"others cannot reach {address}; set exchange.host to an address that they can (0.0.0.0 for all) and exchange.port",
        )
    if config.exchange_friends_only and not (config.exchange_keys and config.exchange_friends):
        raise ConfigError(
            "exchange.friends_only",
            "friends know each other by keys: set exchange.keys and exchange.friends",
        )
    if config.exchange_certificate and not config.exchange_port:
        raise ConfigError("exchange.certificate", "is for a port of its own: set exchange.port too")


def make_client(config: Config, address: str, port: int, contact_url: str) -> Client:
    """Calls come from where we listen, unless that is everywhere: a node is known by that address."""
    tls = None
    if (
        config.exchange_certificate
    ):  # nodes are addresses, which no authority vouches for: keys tell friends from others
        tls = ssl.create_default_context()
        tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE
    local = "" if ip_address(address).is_unspecified else address
    agent = user_agent(contact_url)
    return Client(
        port, allow_private=config.fetch_allow_private, local_address=local, tls=tls, agent=agent
    )


def make_peer_exchange(
    aggregator: Aggregator,
    config: Config,
    address: str,
    port: int,
    secret: bytes,
    clock: Callable[[], float],
    **options: Any,
) -> PeerExchange:
    """A node that listens there; ``secret`` is its own, from which its key is made."""
    friends = [
        match
        for part in split_list(config.exchange_friends)
        if (match := TRUSTED_PEER.fullmatch(part))
    ]
    settings = NodeSettings(
        friends=frozenset(bytes.fromhex(f["key"]) for f in friends),
        friends_only=config.exchange_friends_only,
    )
    signer = Signer(secret) if config.exchange_keys else None
    keyed: dict[str, Any] = {"sign": signer.sign, "key": signer.key} if signer is not None else {}
    node = Node(
        {},
        settings,
        seed=int.from_bytes(secret[:8], "big"),
        verify=is_valid_signature if friends else None,
        **keyed,
    )
    known: list[Nid] = [messages.read_nid(friend["nid"]) for friend in friends if friend["nid"]]
    node.add_candidates(known, clock())
    node.membership.set_list_servers(split_list(config.exchange_lists))
    client = make_client(config, address, port, aggregator.fetcher.settings.contact_url)
    loopback_only = ip_address(address).is_loopback
    options |= {
        "signer": signer,
        "among_ourselves": loopback_only,
        "decoys": config.exchange_decoys,
    }
    return PeerExchange(aggregator, node, client, clock, **options)


class RecoveryResult(Struct, frozen=True):
    """What others' archives had."""

    holders: int
    entries: int
    new: int


async def recover_manually(
    store: Store,
    config: Config,
    feed: Feed,
    since: float,
    clock: Callable[[], float],
    until: float = 4e9,
) -> RecoveryResult:
    """Ask the neighbours of the service that works on this store, in its name: a node is who calls from its address."""
    if not config.exchange_enabled:
        raise UsageError(
            "the exchange is off; set exchange.enabled, and start the service once (docs/exchange.md)"
        )
    listens = (await store.load_values()).get(LISTEN_ADDRESS_KEY)
    present = [peer.nid for peer in await store.read(peers.peers) if peer.present]
    if listens is None or not present:
        raise UsageError(
            "there are no neighbours yet; start the service with `tidings serve`, and look with `tidings peers`"
        )
    address, _, port = listens.decode().partition(" ")
    shareable_ids = {known.id for known in await store.read(peers.shareable_feeds)}
    if feed.id not in shareable_ids or is_private(
        feed.url, loopback_only=ip_address(address).is_loopback
    ):
        raise UsageError(
            f"{feed.url} is private: neighbours are not told of it, and so they cannot be asked"
        )
    client = make_client(
        config, address, int(port), config.contact_url or await stored_contact(store)
    )
    try:
        holdings = await find_holdings(
            client, present, Query(token_hex(16), feed.url, since, until)
        )
        found = await download(
            client, Trade(altruist=True), holdings, feed.url, since, until, clock
        )
    finally:
        await client.close()
    entries = sum(len(some) for some in found.values())
    return RecoveryResult(
        len(found), entries, await store_recovered_entries(store, feed, found, clock())
    )
