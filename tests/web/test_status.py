"""Service status: metrics, health and readiness checks, access to the figures."""

import asyncio
import time

import pytest

from tests.cli.blogs import Blogs
from tests.cli.conftest import Tidings
from tests.web.conftest import ReaderServer
from tidings import service
from tidings.config import read
from tidings.store.feed_models import NewSubscription
from tidings.web.metrics import PollCounters
from tidings.web.status import StatusReporter


@pytest.fixture(scope="module")
def polling_server(tmp_path_factory):
    """A service before setup, with three feeds and one on an unreachable host."""
    folder = tmp_path_factory.mktemp("data")
    command = Tidings("--data-dir", folder, "--set", "fetch.allow_private=true")
    with Blogs(3) as blogs:
        command("import", blogs.write_opml(folder / "feeds.opml"))
        command.run("import", "-", input="http://127.0.0.1:9/nothing.xml")
        command("poll", "--all")
        with ReaderServer(folder) as server:
            server.blogs = blogs
            yield server


def test_metrics_include_feeds_budget_and_errors(polling_server):
    response, body = polling_server.get("/metrics")
    assert response.headers["Content-Type"].startswith("text/plain; version=0.0.4")
    figures = dict(line.rsplit(" ", 1) for line in body.splitlines() if not line.startswith("#"))
    assert figures['tidings_feeds{state="followed"}'] == "4"
    assert figures['tidings_feeds_failing{kind="connect"}'] == "1"
    assert figures["tidings_entries"] == "60"
    assert (
        figures["tidings_budget_requests_per_day"]
        == figures["tidings_budget_usable_requests_per_day"]
        == "48"
    )
    assert figures['tidings_spent_requests{period="day"}'] == "4"
    assert {"tidings_feeds_due", "tidings_hosts_paused", "tidings_polls_in_flight"} <= set(figures)


def test_health_and_readiness(polling_server):
    assert polling_server.get("/healthz")[1] == "alive\n"
    response, body = polling_server.get("/readyz")
    assert (response.status, body) == (200, "ready\n")


def test_service_with_overdue_feeds_is_not_ready(tmp_path):
    async def scenario():
        async with service.open_polling(
            read(tmp_path, {}, {}), tmp_path / "tidings.db"
        ) as aggregator:
            status_reporter = StatusReporter(aggregator, None, PollCounters(), time.time)
            await aggregator.store.add_subscriptions(
                [NewSubscription("http://example.org/", time.time() - 60)]
            )
            before = await status_reporter.readiness_problem()
            await aggregator.store.add_subscriptions(
                [NewSubscription("http://example.com/", time.time() - 3600)]
            )
            return before, await status_reporter.readiness_problem()

    before, after = asyncio.run(scenario())
    assert before == ""
    assert after == "a feed is overdue by 3600 s and no poll is in flight"


def test_unknown_push_callback_is_rejected(polling_server):
    assert (
        polling_server.get("/push/unknown?hub.mode=subscribe&hub.topic=x&hub.challenge=y")[0].status
        == 404
    )
    assert polling_server.get("/push/unknown", "POST", "<feed/>")[0].status == 410
    assert polling_server.get("/push/unknown", "POST", "x" * 10_000_001)[0].status == 413
    assert polling_server.get("/push/unknown", "PUT")[0].status == 405


def test_first_admin_gets_existing_feeds_and_only_admins_see_figures(
    polling_server,
):
    status = polling_server.json("/api/status")
    assert (status["budget_per_day"], status["status"]["feeds"], status["status"]["errors"]) == (
        48,
        4,
        {"connect": 1},
    )
    ada = polling_server.client("ada").create_admin()
    page = ada.get("/timing").text
    assert "4 requests for 4 feeds in the last 24 hours" in page
    assert 'name="per_day" value="48"' in page
    assert "nothing.xml" in page.partition("Feeds that need attention")[2].partition("</table>")[0]
    assert "Recent checks" in page
    assert "Next checks" in page
    assert "Birds and small kettles" in page
    assert ada.get("/api/status").json["status"]["feeds"] == 4

    for target in ("/metrics", "/api/status"):
        assert polling_server.get(target)[0].status == 403
    secret = (
        ada.post("/settings/apps", label="prometheus")
        .text.partition("<code>")[2]
        .partition("</code>")[0]
    )
    assert (
        polling_server.get("/metrics", headers={"Authorization": f"Bearer {secret}"})[0].status
        == 200
    )
    bob = ada.add_user("bob")
    assert bob.get("/metrics").status == 403


def test_failing_feed_is_listed_first_with_error_and_next_check(polling_server):
    ada = polling_server.client("ada")
    ada.log_in()
    listed = ada.get("/feeds").text.partition("feeds-list")[2]
    # Failing feeds come first.
    assert listed.index("nothing.xml") < listed.index("Birds and small kettles")
    assert "The checks have failed since" in listed
    page = ada.get("/feed/4/about").text
    assert "1 failure in a row" in page
    assert "Next check" in page
