"""SSRF protection: private addresses in all spellings, redirects, proxies."""

import asyncio
import socket

import pytest

from tests.fetch.origin_server import Clock, OriginServer, PollHarness, Response, with_harness
from tidings.fetch import Fetcher, FetchRequest, FetchSettings, Problem
from tidings.fetch.ssrf import BlockedAddress, is_public, ssrf_safe_socket_factory


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1",
        "10.1.2.3",
        "172.16.0.1",
        "192.168.1.1",
        "169.254.169.254",  # cloud metadata service
        "100.64.0.1",  # CGNAT
        "100.100.100.200",
        "0.0.0.0",
        "224.0.0.1",
        "240.0.0.1",
        "255.255.255.255",
        "192.0.2.1",
        "198.18.0.1",
        "::",
        "::1",
        "fe80::1",
        "fe80::1%eth0",
        "fc00::1",
        "fd00:ec2::254",
        "fec0::1",
        "ff02::1",
        "2001:db8::1",
        "::ffff:127.0.0.1",
        "::ffff:10.0.0.1",
        "::127.0.0.1",
        "64:ff9b::7f00:1",  # NAT64 to 127.0.0.1
        "64:ff9b::a9fe:a9fe",
        "64:ff9b:1::7f00:1",
        "2002:7f00:1::",  # 6to4
        "2002:c0a8:101::1",
        "2001:0:1:2:3:4:5:6",  # Teredo
        "localhost",
        "",
    ],
)
def test_not_public(address: str) -> None:
    assert not is_public(address)


@pytest.mark.parametrize(
    "address",
    [
        "93.184.216.34",
        "2606:2800:220:1::1",
        "::ffff:93.184.216.34",
        "64:ff9b::5db8:d822",
        "2002:5db8:d822::1",
    ],
)
def test_public(address: str) -> None:
    assert is_public(address)


def test_socket_factory_blocks_private_addresses() -> None:
    info = (socket.AF_INET, socket.SOCK_STREAM, 0, "", ("10.0.0.1", 80))
    with pytest.raises(BlockedAddress, match=r"fetch\.allow_private"):
        ssrf_safe_socket_factory(allow_private=False)(info)
    ssrf_safe_socket_factory(allow_private=True)(info).close()


@pytest.mark.parametrize(
    "host",
    ["127.0.0.1", "localhost", "[::1]", "[::ffff:127.0.0.1]", "0.0.0.0", "127.1", "2130706433"],
)
def test_loopback_is_blocked_in_all_spellings(host: str) -> None:
    async def scenario() -> None:
        async with OriginServer().running() as origin, Fetcher(FetchSettings(), Clock()) as fetcher:
            result = await fetcher.fetch(FetchRequest(f"http://{host}:{origin.port}/feed"))
        assert origin.connections == 0
        assert result.error is not None
        # Other spellings of the address are handled as host names, which do not exist.
        assert result.error.kind in (
            (Problem.BLOCKED,)
            if not host[-1:].isdigit() or host.count(".") == 3
            else tuple(Problem)
        )

    asyncio.run(scenario())


@with_harness()
async def test_redirect_to_private_address_is_blocked(w: PollHarness) -> None:
    """The first host is explicitly allowed, like a public one; the second is not."""
    w.script(
        "/feed", Response(301, headers={"Location": f"http://127.0.0.2:{w.origin.port}/secret"})
    )
    w.fetcher.connection_pool.make_socket = _allow_all_except("127.0.0.2")
    result = await w.poll("/feed")
    assert result.error is not None
    assert (result.error.kind, result.moved_to) == (Problem.BLOCKED, None)
    assert len(w.origin.requests) == 1


def _allow_all_except(blocked: str):
    def make_socket(info):
        return ssrf_safe_socket_factory(allow_private=info[4][0] != blocked)(info)

    return make_socket


def test_ipv4_and_ipv6_both_work() -> None:
    async def scenario(host: str, literal: str) -> None:
        async with (
            OriginServer().running(host) as origin,
            Fetcher(FetchSettings(allow_private=True), Clock()) as fetcher,
        ):
            origin.scripts["/feed"] = lambda request: Response()
            result = await fetcher.fetch(FetchRequest(f"http://{literal}:{origin.port}/feed"))
        assert result.status == 200
        assert origin.requests[0].header("Host") == f"{literal}:{origin.port}"

    asyncio.run(scenario("127.0.0.1", "127.0.0.1"))
    if socket.has_ipv6:
        asyncio.run(scenario("::1", "[::1]"))


def test_environment_proxies_are_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")

    @with_harness()
    async def scenario(w: PollHarness) -> None:
        w.serve("/feed")
        assert (await w.poll("/feed")).status == 200

    scenario()
