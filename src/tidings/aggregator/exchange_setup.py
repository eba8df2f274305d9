"""Construction of the peer exchange from the configuration, and manual recovery from peers."""

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
from tidings.i18n import _
from tidings.store import Store, peers
from tidings.store.feed_models import Feed

#: Key of the stored address and port where peers reach the service. Commands that contact peers on
#: behalf of the service read it.
LISTEN_ADDRESS_KEY = "exchange"


def check_exchange_config(config: Config, address: str) -> None:
    """Raise `ConfigError` if the exchange cannot work with the configuration.

    ``address`` is the IP address on which the exchange listens for peers.
    """
    if ip_address(address).is_loopback and not config.fetch_allow_private:
        raise ConfigError(
            "exchange.enabled",
            _(
                "peers cannot reach %(address)s; set exchange.host and exchange.port "
                "to an address that they can reach",
                address=address,
            ),
        )
    if config.exchange_friends_only and not (config.exchange_keys and config.exchange_friends):
        raise ConfigError(
            "exchange.friends_only",
            _("trusted peers are identified by keys; set exchange.keys and exchange.friends"),
        )
    if config.exchange_certificate and not config.exchange_port:
        raise ConfigError(
            "exchange.certificate",
            _("the certificate needs a separate port for peers; set exchange.port"),
        )


def make_client(config: Config, address: str, port: int, contact_url: str) -> Client:
    """Create the client for calls to peers.

    Calls use the listening address as source, unless it is unspecified (0.0.0.0), because peers
    identify a node by its address.
    """
    tls = None
    if config.exchange_certificate:
        # Certificates are not verified: no CA signs bare IP addresses. Keys identify trusted peers.
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
    """Create the exchange for a node that listens on ``address`` and ``port``.

    The signing key is derived from ``secret``. ``options`` are passed to `PeerExchange`.
    """
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
    signing: dict[str, Any] = {"sign": signer.sign, "key": signer.key} if signer is not None else {}
    node = Node(
        {},
        settings,
        seed=int.from_bytes(secret[:8], "big"),
        verify=is_valid_signature if friends else None,
        **signing,
    )
    known: list[Nid] = [messages.read_nid(friend["nid"]) for friend in friends if friend["nid"]]
    node.add_candidates(known, clock())
    node.membership.set_list_servers(split_list(config.exchange_lists))
    client = make_client(config, address, port, aggregator.fetcher.settings.contact_url)
    loopback_only = ip_address(address).is_loopback
    options |= {
        "signer": signer,
        "loopback_only": loopback_only,
        "decoys": config.exchange_decoys,
    }
    return PeerExchange(aggregator, node, client, clock, **options)


class RecoveryResult(Struct, frozen=True):
    """Result of a manual recovery from peers' archives."""

    holders: int  #: number of peers that had entries
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
    """Recover entries of a feed from the archives of peers (command `tidings recover`).

    ``since`` and ``until`` limit the publication times. The calls are made from the address of the
    service on this store, by which peers identify the service. Raises `UsageError` if the exchange
    is off, there are no peers, or the feed is private.
    """
    if not config.exchange_enabled:
        raise UsageError(
            _(
                "peer exchange is off; set exchange.enabled and start the service once "
                "(docs/exchange.md)"
            )
        )
    listen_address = (await store.load_values()).get(LISTEN_ADDRESS_KEY)
    connected = [peer.nid for peer in await store.read(peers.peers) if peer.present]
    if listen_address is None or not connected:
        raise UsageError(
            _("no peers yet; start the service with `tidings serve` and check `tidings peers`")
        )
    address, port = listen_address.decode().split(" ")
    shareable_ids = {known.id for known in await store.read(peers.shareable_feeds)}
    if feed.id not in shareable_ids or is_private(
        feed.url, loopback_only=ip_address(address).is_loopback
    ):
        raise UsageError(
            _(
                "%(url)s is a private feed, so its posts cannot be recovered from peers",
                url=feed.url,
            )
        )
    client = make_client(
        config, address, int(port), config.contact_url or await stored_contact(store)
    )
    try:
        holdings = await find_holdings(
            client, connected, Query(token_hex(16), feed.url, since, until)
        )
        entries_by_peer = await download(
            client, Trade(altruist=True), holdings, feed.url, since, until, clock
        )
    finally:
        await client.close()
    entries = sum(len(received) for received in entries_by_peer.values())
    return RecoveryResult(
        len(entries_by_peer),
        entries,
        await store_recovered_entries(store, feed, entries_by_peer, clock()),
    )
