"""From configuration to a node of the exchange."""

import ssl
from collections.abc import Callable
from ipaddress import ip_address
from secrets import token_hex
from typing import Any

from msgspec import Struct

from tidings.aggregator.aggregator import Aggregator
from tidings.aggregator.contact import stored_contact
from tidings.aggregator.neighbours import Neighbourhood, is_private, keep_recovered
from tidings.config import FRIEND, Config, ConfigError, listed
from tidings.errors import UsageError
from tidings.exchange import messages
from tidings.exchange.archive import Trade
from tidings.exchange.client import Client, ask, download
from tidings.exchange.keys import Signer, is_signed
from tidings.exchange.node import Node
from tidings.exchange.values import Nid, Query, Rules
from tidings.fetch.user_agent import user_agent
from tidings.store import Store, neighbours
from tidings.store.rows import Feed

#: In the store: where neighbours reach the service, address and port, for commands that speak in its name.
LISTENS = "exchange"


def check(config: Config, address: str) -> None:
    """Refuse what cannot work, before anything has begun; ``address`` is where neighbours would have to reach us."""
    if ip_address(address).is_loopback and not config.fetch_allow_private:
        raise ConfigError(
            "exchange.enabled",
            f"others cannot reach {address}; set exchange.host to an address that they can (0.0.0.0 for all) and exchange.port",
        )
    if config.exchange_friends_only and not (config.exchange_keys and config.exchange_friends):
        raise ConfigError("exchange.friends_only", "friends know each other by keys: set exchange.keys and exchange.friends")
    if config.exchange_certificate and not config.exchange_port:
        raise ConfigError("exchange.certificate", "is for a port of its own: set exchange.port too")


def make_client(config: Config, address: str, port: int, contact_url: str) -> Client:
    """Calls come from where we listen, unless that is everywhere: a node is known by that address."""
    tls = None
    if config.exchange_certificate:  # nodes are addresses, which no authority vouches for: keys tell friends from others
        tls = ssl.create_default_context()
        tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE
    local = "" if ip_address(address).is_unspecified else address
    agent = user_agent(contact_url)
    return Client(port, allow_private=config.fetch_allow_private, local_address=local, tls=tls, agent=agent)


def make_neighbourhood(
    aggregator: Aggregator, config: Config, address: str, port: int, secret: bytes, clock: Callable[[], float], **options: Any
) -> Neighbourhood:
    """A node that listens there; ``secret`` is its own, from which its key is made."""
    friends = [match for part in listed(config.exchange_friends) if (match := FRIEND.fullmatch(part))]
    rules = Rules(friends=frozenset(bytes.fromhex(f["key"]) for f in friends), friends_only=config.exchange_friends_only)
    signer = Signer(secret) if config.exchange_keys else None
    keyed: dict[str, Any] = {"sign": signer.sign, "key": signer.key} if signer is not None else {}
    node = Node({}, rules, seed=int.from_bytes(secret[:8], "big"), verify=is_signed if friends else None, **keyed)
    known: list[Nid] = [messages.read_nid(friend["nid"]) for friend in friends if friend["nid"]]
    node.meet(known, clock())
    node.members.ask_lists(listed(config.exchange_lists))
    client = make_client(config, address, port, aggregator.fetcher.settings.contact_url)
    among_ourselves = ip_address(address).is_loopback
    options |= {"signer": signer, "among_ourselves": among_ourselves, "decoys": config.exchange_decoys}
    return Neighbourhood(aggregator, node, client, clock, **options)


class Recovered(Struct, frozen=True):
    """What others' archives had."""

    holders: int
    entries: int
    new: int


async def recover_by_hand(
    store: Store, config: Config, feed: Feed, since: float, clock: Callable[[], float], until: float = 4e9
) -> Recovered:
    """Ask the neighbours of the service that works on this store, in its name: a node is who calls from its address."""
    if not config.exchange_enabled:
        raise UsageError("the exchange is off; set exchange.enabled, and start the service once (docs/exchange.md)")
    listens = (await store.shared()).get(LISTENS)
    present = [peer.nid for peer in await store.read(neighbours.peers) if peer.present]
    if listens is None or not present:
        raise UsageError("there are no neighbours yet; start the service with `tidings serve`, and look with `tidings peers`")
    address, _, port = listens.decode().partition(" ")
    told = {known.id for known in await store.read(neighbours.shareable)}
    if feed.id not in told or is_private(feed.url, among_ourselves=ip_address(address).is_loopback):
        raise UsageError(f"{feed.url} is private: neighbours are not told of it, and so they cannot be asked")
    client = make_client(config, address, int(port), config.contact_url or await stored_contact(store))
    try:
        holdings = await ask(client, present, Query(token_hex(16), feed.url, since, until))
        found = await download(client, Trade(altruist=True), holdings, feed.url, since, until, clock)
    finally:
        await client.close()
    entries = sum(len(some) for some in found.values())
    return Recovered(len(found), entries, await keep_recovered(store, feed, found, clock()))
