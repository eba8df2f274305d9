"""Politeness of the fetcher: conditional requests, headers, redirects, rate limits.

Each test is one of the checks of feed readers that `docs/politeness.md` lists.
"""

import asyncio
import email.utils
import re
from pathlib import Path

import pytest

from tests.fetch.origin_server import MONDAY, RSS, PollHarness, Response, with_harness
from tidings import __version__
from tidings.fetch import Problem
from tidings.fetch.link_header import parse_link_header

OLD_DATE = "Sun, 15 Nov 2026 10:00:00 GMT"


@with_harness()
async def test_second_request_is_conditional_by_last_modified(w: PollHarness) -> None:
    w.serve("/feed", modified=OLD_DATE)
    first, second = await w.poll("/feed"), await w.poll("/feed")
    assert not w.requests_to("/feed")[0].conditional
    assert w.requests_to("/feed")[1].header("If-Modified-Since") == OLD_DATE
    assert first.body == RSS
    assert second.status == 304
    assert second.unchanged


@with_harness()
async def test_second_request_is_conditional_by_etag(w: PollHarness) -> None:
    w.serve("/feed", etag='"abc"')
    await w.poll("/feed")
    second = await w.poll("/feed")
    assert w.requests_to("/feed")[1].header("If-None-Match") == '"abc"'
    assert second.unchanged


@with_harness()
async def test_both_validators_are_sent_when_both_are_known(w: PollHarness) -> None:
    w.serve("/feed", etag='"abc"', modified=OLD_DATE)
    await w.poll("/feed")
    await w.poll("/feed")
    assert w.requests_to("/feed")[1].header("If-None-Match") == '"abc"'
    assert w.requests_to("/feed")[1].header("If-Modified-Since") == OLD_DATE


@pytest.mark.parametrize(
    "etag",
    [
        b'W/"weak"',
        b"unquoted",
        b'"with spaces and , commas"',
        b'"x-gzip"-gzip',
        '"umläut"'.encode(),
        '"umläut"'.encode("latin-1"),
        b'"\xff\xfe"',
        b'""',
    ],
)
def test_etag_is_sent_back_byte_for_byte(etag: bytes) -> None:
    @with_harness()
    async def scenario(w: PollHarness) -> None:
        w.serve("/feed", etag=etag)
        await w.poll("/feed")
        second = await w.poll("/feed")
        assert w.requests_to("/feed")[1].bytes("If-None-Match") == etag
        assert second.status == 304

    scenario()


@with_harness()
async def test_validator_with_control_characters_is_dropped(w: PollHarness) -> None:
    w.script(
        "/feed", Response(headers={"ETag": b'"a\x01b"', "Last-Modified": OLD_DATE}), Response(304)
    )
    await w.poll("/feed")
    second = await w.poll("/feed")
    assert second.unchanged
    assert w.requests_to("/feed")[1].header("If-None-Match") is None


@pytest.mark.parametrize(
    "date",
    [
        b"yesterday",
        b"2026-11-15",
        b"Sun, 15 Nov 2026 10:00:00 +0200",
        b"-1",
        "März".encode("latin-1"),
    ],
)
def test_last_modified_is_sent_back_byte_for_byte(date: bytes) -> None:
    @with_harness()
    async def scenario(w: PollHarness) -> None:
        w.serve("/feed", modified=date)
        await w.poll("/feed")
        await w.poll("/feed")
        assert w.requests_to("/feed")[1].bytes("If-Modified-Since") == date

    scenario()


@with_harness()
async def test_no_validator_is_invented(w: PollHarness) -> None:
    w.serve("/feed", Date=email.utils.formatdate(MONDAY, usegmt=True))
    await w.poll("/feed")
    await w.poll("/feed")
    assert not w.requests_to("/feed")[1].conditional


@with_harness()
async def test_still_conditional_after_a_bare_304(w: PollHarness) -> None:
    w.script("/feed", Response(headers={"ETag": '"a"', "Last-Modified": OLD_DATE}), Response(304))
    for _ in range(4):
        await w.poll("/feed")
    for request in w.requests_to("/feed")[1:]:
        assert (request.header("If-None-Match"), request.header("If-Modified-Since")) == (
            '"a"',
            OLD_DATE,
        )


@with_harness()
async def test_304_updates_only_the_validators_it_has(
    w: PollHarness,
) -> None:
    w.script(
        "/feed",
        Response(headers={"ETag": '"a"', "Last-Modified": OLD_DATE}),
        Response(304, headers={"ETag": '"b"'}),
    )
    for _ in range(3):
        await w.poll("/feed")
    assert w.requests_to("/feed")[2].header("If-None-Match") == '"b"'
    assert w.requests_to("/feed")[2].header("If-Modified-Since") == OLD_DATE


@with_harness()
async def test_document_replaces_both_validators(w: PollHarness) -> None:
    w.script(
        "/feed",
        Response(headers={"ETag": '"a"', "Last-Modified": OLD_DATE}),
        Response(body=RSS + b" ", headers={"ETag": '"b"'}),
        Response(body=RSS, headers={"Last-Modified": OLD_DATE}),
    )
    for _ in range(4):
        await w.poll("/feed")
    assert w.requests_to("/feed")[2].header("If-None-Match") == '"b"'
    assert w.requests_to("/feed")[2].header("If-Modified-Since") is None
    assert w.requests_to("/feed")[3].header("If-None-Match") is None
    assert w.requests_to("/feed")[3].header("If-Modified-Since") == OLD_DATE


@with_harness()
async def test_newest_etag_is_used_when_last_modified_is_unchanged(w: PollHarness) -> None:
    w.script(
        "/feed",
        Response(headers={"ETag": '"a"', "Last-Modified": OLD_DATE}),
        Response(body=RSS + b" ", headers={"ETag": '"b"', "Last-Modified": OLD_DATE}),
    )
    for _ in range(3):
        await w.poll("/feed")
    assert w.requests_to("/feed")[2].header("If-None-Match") == '"b"'


@pytest.mark.parametrize("status", [403, 404, 429, 500, 503])
def test_validators_survive_errors(status: int) -> None:
    @with_harness()
    async def scenario(w: PollHarness) -> None:
        w.script(
            "/feed",
            Response(headers={"ETag": '"a"'}),
            Response(status, b"no", {"ETag": '"error page"'}),
            Response(304),
        )
        for _ in range(3):
            await w.poll("/feed")
        assert w.requests_to("/feed")[2].header("If-None-Match") == '"a"'

    scenario()


@with_harness()
async def test_validators_survive_a_broken_response(w: PollHarness) -> None:
    w.script(
        "/feed",
        Response(headers={"ETag": '"a"'}),
        Response(body=b"", headers={"ETag": '"b"'}),
        Response(304),
    )
    for _ in range(3):
        await w.poll("/feed")
    assert w.requests_to("/feed")[2].header("If-None-Match") == '"a"'


@with_harness()
async def test_validators_are_sent_only_to_the_url_they_came_from(w: PollHarness) -> None:
    w.script("/old", Response(302, headers={"Location": "/new", "ETag": '"redirect"'}))
    w.serve("/new", etag='"doc"')
    await w.poll("/old")
    second = await w.poll("/old")
    assert not w.requests_to("/old")[1].conditional
    assert w.requests_to("/new")[1].header("If-None-Match") == '"doc"'
    assert second.unchanged


@with_harness()
async def test_no_unconditional_request_within_a_week(w: PollHarness) -> None:
    w.script("/feed", Response(headers={"ETag": '"a"'}), Response(304))
    for _ in range(8):
        await w.poll("/feed")
        w.clock.now += 86400
    assert [request.conditional for request in w.requests_to("/feed")] == [False] + [True] * 7


@with_harness()
async def test_endless_304_leads_to_unconditional_requests(w: PollHarness) -> None:
    """A daily feed with only 304 for weeks is requested without conditions every eight days."""
    w.script("/feed", Response(headers={"ETag": '"a"'}), Response(304))
    for _ in range(20):
        await w.poll("/feed", usual_gap_s=86400)
        w.clock.now += 86400
    requests = w.requests_to("/feed")
    days = [day for day, request in enumerate(requests) if not request.conditional]
    assert days == [0, 8, 16]


@with_harness()
async def test_identical_body_is_unchanged_without_304(
    w: PollHarness,
) -> None:
    w.script(
        "/feed",
        Response(headers={"ETag": '"1"'}),
        Response(headers={"ETag": '"2"'}),
        Response(body=RSS + b"<!-- -->"),
    )
    first, second, third = [await w.poll("/feed") for _ in range(3)]
    assert (first.unchanged, second.unchanged, third.unchanged) == (False, True, False)
    assert second.body is None
    assert w.requests_to("/feed")[2].header("If-None-Match") == '"2"'


@with_harness()
async def test_no_cookies_no_referrer_no_cache_busting(w: PollHarness) -> None:
    base = f"http://localhost:{w.origin.port}"  # cookie jars ignore IP addresses
    w.serve("/feed", Set_Cookie="id=42; Path=/")
    w.script("/moved", Response(302, headers={"Location": "/feed", "Set-Cookie": "id=43; Path=/"}))
    for path in ("/feed", "/feed", "/moved"):
        await w.poll(base + path)
    allowed = {"host", "user-agent", "accept", "accept-encoding"}
    assert len(w.origin.requests) == 4
    for request in w.origin.requests:
        assert {name for name, _ in request.raw} == allowed


@with_harness()
async def test_only_get(w: PollHarness) -> None:
    w.serve("/feed", etag='"a"')
    await w.poll("/feed")
    await w.poll("/feed")
    assert {request.method for request in w.origin.requests} == {"GET"}


@pytest.mark.parametrize(
    "target",
    [
        "/feed?b=2&a=1&a=1",
        "/feed?q=%7Euser&x=%2f",
        "/%7Euser/feed.xml",
        "/a//b/feed",
        "/feed;type=rss?x=a+b%20c",
        "/feed?url=http://x.example/?y=1",
        "/feed?empty=&flag",
        "/feed?[]'!*()",
    ],
)
def test_url_is_sent_unchanged(target: str) -> None:
    @with_harness()
    async def scenario(w: PollHarness) -> None:
        await w.poll(target)
        assert [request.target for request in w.origin.requests] == [target]

    scenario()


@with_harness()
async def test_fragment_is_removed_and_unsafe_characters_are_escaped(w: PollHarness) -> None:
    await w.poll("/feed#latest")
    await w.poll("/fü d")
    assert [request.target for request in w.origin.requests] == ["/feed", "/f%C3%BC%20d"]


@with_harness()
async def test_user_agent_has_version_contact_and_subscribers(w: PollHarness) -> None:
    await w.poll("/feed", subscribers=7)
    agent = w.origin.requests[0].header("User-Agent")
    assert agent == f"tidings/{__version__} (+https://reader.example/about; 7 subscribers)"


@with_harness(contact_url="")
async def test_user_agent_without_contact(w: PollHarness) -> None:
    await w.poll("/feed")
    assert w.origin.requests[0].header("User-Agent") == f"tidings/{__version__} (1 subscribers)"


@with_harness(contact_url="")
async def test_contact_set_later_is_sent(w: PollHarness) -> None:
    await w.poll("/feed")
    w.fetcher.set_contact_url("https://reader.example/about")
    await w.poll("/feed")
    agents = [request.header("User-Agent") for request in w.requests_to("/feed")]
    assert (
        agents[1]
        == f"tidings/{__version__} (+https://reader.example/about; 1 subscribers)"
        != agents[0]
    )


@with_harness()
async def test_accept_and_accept_encoding_headers(w: PollHarness) -> None:
    await w.poll("/feed")
    assert w.origin.requests[0].header("Accept-Encoding") == "gzip, br, zstd"
    accept = w.origin.requests[0].header("Accept") or ""
    assert accept.startswith("application/atom+xml, application/rss+xml, application/feed+json,")
    assert accept.endswith("*/*;q=0.1")


@with_harness()
async def test_delta_is_requested_only_with_an_etag(w: PollHarness) -> None:
    w.script(
        "/feed",
        Response(headers={"ETag": '"1"'}),
        Response(226, RSS + b" ", {"ETag": '"2"', "IM": "feed"}),
        Response(304),
    )
    w.script("/dated", Response(headers={"Last-Modified": OLD_DATE}), Response(304))
    first, second, third = [await w.poll("/feed") for _ in range(3)]
    assert [request.header("A-IM") for request in w.requests_to("/feed")] == [None, "feed", "feed"]
    assert second.delta
    assert second.body == RSS + b" "
    assert second.digest == first.digest  # of the last complete document
    assert w.requests_to("/feed")[2].header("If-None-Match") == '"2"'
    assert third.unchanged
    await w.poll("/dated")
    await w.poll("/dated")
    assert w.requests_to("/dated")[1].header("A-IM") is None


@with_harness()
async def test_delta_is_not_requested_without_want_delta(w: PollHarness) -> None:
    w.serve("/feed", etag='"1"')
    await w.poll("/feed", want_delta=False)
    await w.poll("/feed", want_delta=False)
    assert w.requests_to("/feed")[1].header("A-IM") is None


@pytest.mark.parametrize("status", [301, 308])
def test_permanent_redirect_is_reported(status: int) -> None:
    @with_harness()
    async def scenario(w: PollHarness) -> None:
        w.script("/old", Response(status, headers={"Location": "/new#there"}))
        w.serve("/new")
        result = await w.poll("/old")
        assert result.moved_to == result.url == w.url("/new")
        assert result.body == RSS
        assert result.requests == 2

    scenario()


@pytest.mark.parametrize("status", [302, 303, 307])
def test_temporary_redirect_is_not_reported_as_a_move(status: int) -> None:
    @with_harness()
    async def scenario(w: PollHarness) -> None:
        w.script("/old", Response(status, headers={"Location": "/new"}))
        w.serve("/new")
        result = await w.poll("/old")
        assert result.moved_to is None
        assert result.body == RSS

    scenario()


@with_harness()
async def test_move_ends_at_the_first_temporary_redirect(w: PollHarness) -> None:
    w.script("/a", Response(301, headers={"Location": "/b"}))
    w.script("/b", Response(308, headers={"Location": "/c"}))
    w.script("/c", Response(302, headers={"Location": "/d"}))
    w.serve("/d")
    assert (await w.poll("/a")).moved_to == w.url("/c")


@with_harness()
async def test_redirect_to_an_error_is_not_a_move(w: PollHarness) -> None:
    w.script("/a", Response(301, headers={"Location": "/nothing"}))
    assert (await w.poll("/a")).moved_to is None


@with_harness()
async def test_redirect_loop_stops_at_the_first_repetition(w: PollHarness) -> None:
    w.script("/a", Response(302, headers={"Location": "/b"}))
    w.script("/b", Response(302, headers={"Location": "/a"}))
    w.script("/self", Response(301, headers={"Location": "/self"}))
    two, one = await w.poll("/a"), await w.poll("/self")
    assert two.error is not None
    assert (two.error.kind, two.requests) == (Problem.REDIRECTS, 2)
    assert one.requests == 1


@with_harness(redirects=3)
async def test_redirects_are_limited(w: PollHarness) -> None:
    for n in range(9):
        w.script(f"/{n}", Response(302, headers={"Location": f"/{n + 1}"}))
    result = await w.poll("/0")
    assert result.error is not None
    assert (result.error.kind, len(w.origin.requests)) == (Problem.REDIRECTS, 4)


@with_harness()
async def test_credentials_are_not_sent_to_other_hosts(w: PollHarness) -> None:
    w.script("/feed", Response(302, headers={"Location": "/same"}))
    w.script(
        "/same", Response(302, headers={"Location": f"http://localhost:{w.origin.port}/other"})
    )
    w.serve("/other")
    result = await w.poll(f"http://me:s%40crt@127.0.0.1:{w.origin.port}/feed")
    sent = [request.header("Authorization") for request in w.origin.requests]
    assert sent == ["Basic bWU6c0BjcnQ=", "Basic bWU6c0BjcnQ=", None]
    assert "s%40crt" not in repr(result)


@with_harness()
async def test_credentials_survive_a_move_on_the_same_host(w: PollHarness) -> None:
    w.script("/feed", Response(301, headers={"Location": "/new"}))
    w.serve("/new")
    result = await w.poll(f"http://me:s%40crt@127.0.0.1:{w.origin.port}/feed")
    assert result.moved_to == f"http://me:s%40crt@127.0.0.1:{w.origin.port}/new"


@with_harness()
async def test_one_connection_for_500_feeds_of_one_host(w: PollHarness) -> None:
    for n in range(500):
        w.serve(f"/{n}", etag=f'"{n}"')
    first = await asyncio.gather(*(w.poll(f"/{n}") for n in range(500)))
    second = await asyncio.gather(*(w.poll(f"/{n}") for n in range(500)))
    assert {result.status for result in first} == {200}
    assert {result.status for result in second} == {304}
    assert w.origin.connections == 1


@with_harness()
async def test_errors_and_redirects_keep_the_connection(w: PollHarness) -> None:
    w.script("/gone", Response(404, b"x" * 5000))
    w.script("/moved", Response(302, b"y" * 5000, {"Location": "/feed"}))
    w.serve("/feed")
    for path in ("/gone", "/moved", "/gone", "/feed"):
        await w.poll(path)
    assert w.origin.connections == 1


@with_harness()
async def test_retry_after_in_seconds_and_as_date(w: PollHarness) -> None:
    date = email.utils.formatdate(MONDAY + 7200, usegmt=True)
    w.script("/s", Response(429, b"slow down", {"Retry-After": "86400"}))
    w.script(
        "/d",
        Response(
            503, b"", {"Retry-After": date, "Date": email.utils.formatdate(MONDAY, usegmt=True)}
        ),
    )
    seconds, dated = await w.poll("/s"), await w.poll("/d")
    assert (seconds.retry_at, seconds.rate_limited) == (MONDAY + 86400, True)
    assert (dated.retry_at, dated.rate_limited) == (MONDAY + 7200, True)
    assert seconds.error is not None
    assert seconds.error.response_text == "slow down"


@with_harness()
async def test_max_age_applies_to_200_and_304(w: PollHarness) -> None:
    w.serve("/feed", etag='"1"', Cache_Control="public, max-age=7200")
    first = await w.poll("/feed")
    w.clock.now += 100
    second = await w.poll("/feed")
    assert (first.fresh_until, second.fresh_until) == (MONDAY + 7200, MONDAY + 7300)


@with_harness()
async def test_move_to_a_private_host_is_not_reported(w: PollHarness) -> None:
    # The first host is treated as public.
    w.fetcher.connection_pool.address = {"127.0.0.1": "93.184.216.34", "localhost": "127.0.0.1"}.get
    w.script("/old", Response(301, headers={"Location": f"http://localhost:{w.origin.port}/new"}))
    w.serve("/new")
    result = await w.poll("/old")
    assert result.body == RSS
    assert result.moved_to is None


@with_harness(treat_private_as_public=True)
async def test_move_to_a_private_host_is_reported_if_private_is_treated_as_public(
    w: PollHarness,
) -> None:
    w.fetcher.connection_pool.address = {"127.0.0.1": "93.184.216.34", "localhost": "127.0.0.1"}.get
    w.script("/old", Response(301, headers={"Location": f"http://localhost:{w.origin.port}/new"}))
    w.serve("/new")
    assert (await w.poll("/old")).moved_to == f"http://localhost:{w.origin.port}/new"
    assert w.fetcher.is_local("localhost")  # what is shared with peers does not depend on it


@with_harness()
async def test_hub_and_self_are_read_from_link_headers(w: PollHarness) -> None:
    w.serve("/feed", Link='</feed>; rel="self", <https://hub.example/>; rel=hub')
    result = await w.poll("/feed")
    assert (result.hubs, result.self_url) == (("https://hub.example/",), w.url("/feed"))


def test_link_header_variants_are_parsed() -> None:
    text = (
        '<b>; REL="Hub  self"; title="x, <y>; rel=z", <http://o.example/,;x>;rel=hub, '
        "<http://[>; rel=hub, <c>, broken"
    )
    assert parse_link_header(text, "http://a.example/f") == {
        "hub": ["http://a.example/b", "http://o.example/,;x"],
        "self": ["http://a.example/b"],
    }
    # No catastrophic backtracking.
    assert parse_link_header("<" * 60_000, "http://a.example/f") == {}


def test_tests_named_in_politeness_page_exist() -> None:
    folder = Path(__file__).parent
    page = (folder.parents[1] / "docs" / "politeness.md").read_text()
    named = set(re.findall(r"`(test_\w+)`", page))
    other_files = (
        "policy/test_constraints.py",
        "live/test_*.py",
        "cli/test_private_hosts.py",
        "web/test_first_run.py",
        "test_service.py",
    )
    files = [
        *folder.glob("test_*.py"),
        *(file for pattern in other_files for file in folder.parent.glob(pattern)),
    ]
    existing = {name for file in files for name in re.findall(r"def (test_\w+)", file.read_text())}
    assert len(named) > 60
    assert named <= existing
