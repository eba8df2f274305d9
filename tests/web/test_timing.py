"""Timing page, budget forecast and policy lab; figures appear only with enough history."""

import asyncio
import io
import os
import re
import time
import zipfile
from urllib.parse import quote

import numpy as np
import pytest

from tests.cli.blogs import Blogs
from tests.web.client import basic, wait_until
from tests.web.conftest import ReaderServer
from tidings.errors import UsageError
from tidings.lab.traces import read_trace
from tidings.model import DAY_S, HOUR_S
from tidings.policy import POLICIES, policy_class
from tidings.reasons import reason
from tidings.store import Store
from tidings.store.feed_models import EntryText, FeedState, NewSubscription, PollOutcome
from tidings.web.comparison import CURVE_BUDGET_FACTORS
from tidings.web.forecast import MAX_REQUESTS_PER_FEED, budgets_to_simulate
from tidings.web.subprocess_runner import CACHE_TTL_S, SimulationCache

FEEDS, EACH, DAYS = 12, 60, 20.0
#: Days before the first poll that the first documents cover.
DAYS_BEFORE_FIRST_POLL = 10.0


async def _write_history(path, now, days=DAYS, each=EACH):
    """Write a history of feeds that post three times a day, each post found an hour later.

    The last two polls of each feed are a 304 and a 429. Posts older than ``days`` come from the
    first document of each feed.
    """
    rng = np.random.default_rng(1)
    started_at = now - days * DAY_S
    async with Store.open(path, clock=lambda: started_at) as store:
        added = await store.add_subscriptions(
            [NewSubscription(f"http://127.0.0.1:9/{i}", now + DAY_S) for i in range(FEEDS)]
        )
        for feed in added:
            state = FeedState(
                title=f"Blog {feed.feed_id}",
                window=10,
                shown=10,
                next_poll_at=now + HOUR_S,
                last_poll_at=now - HOUR_S,
                reason=reason("text", text="it is time"),
                not_modified=0.9 if feed.feed_id % 2 else 0.0,
                document_bytes=900,
            )
            first = [
                EntryText(
                    identity=f"old {number}",
                    digest=b"",
                    published_at=float(at),
                    title=f"Old {number}",
                )
                for number, at in enumerate(
                    np.sort(started_at - rng.uniform(0, DAYS_BEFORE_FIRST_POLL, 10) * DAY_S)
                )
            ]
            outcomes = [
                PollOutcome(
                    feed_id=feed.feed_id,
                    at=started_at,
                    status=200,
                    entries=10,
                    new=tuple(first),
                    state=state,
                )
            ]
            times = np.sort(now - rng.uniform(0.1, days - 0.1, each) * DAY_S)
            for number, at in enumerate(times.tolist()):
                new = EntryText(
                    identity=str(number),
                    digest=b"",
                    published_at=at,
                    title=f"Post {number}",
                    delay_s=HOUR_S,
                )
                outcomes.append(
                    PollOutcome(
                        feed_id=feed.feed_id,
                        at=at + HOUR_S,
                        status=200,
                        entries=10,
                        new=(new,),
                        bytes=900,
                        state=state,
                    )
                )
            last = times[-1] + HOUR_S
            outcomes.append(
                PollOutcome(
                    feed_id=feed.feed_id,
                    at=last + 60,
                    status=304,
                    reason=reason("text", text="in vain"),
                )
            )
            outcomes.append(
                PollOutcome(
                    feed_id=feed.feed_id,
                    at=last + 120,
                    status=429,
                    error_kind="http 429",
                    error="too many",
                )
            )
            for outcome in outcomes:
                await store.record([outcome])
    return added[0].feed_id


@pytest.fixture(scope="module")
def server_with_history(tmp_path_factory):
    """A service with 20 days of history and no feed due within the next hour."""
    folder, now = tmp_path_factory.mktemp("data"), time.time()
    feed = asyncio.run(_write_history(folder / "tidings.db", now))
    with ReaderServer(folder, **{"policy.budget": "6/feed"}) as server:
        server.ada, server.feed = server.client("ada").create_admin(), feed
        yield server


def test_timing_page_without_feeds_and_for_other_users(ada, bob):
    page = ada.get("/timing")
    assert (page.status, "You have no feeds yet" in page.text) == (200, True)
    for path in (
        "/timing",
        "/timing.json",
        "/timing/curve",
        "/timing/curve.json",
        "/timing/lab",
        "/timing/trace.zip",
    ):
        assert bob.get(path).status == 403
    assert bob.post("/timing/budget", per_day="100").status == 403
    assert "/timing" not in bob.get("/unread").text


def test_timing_page_has_figures_and_charts_of_the_week(server_with_history):
    page = server_with_history.ada.get("/timing")
    assert (page.status, page.text.count("<svg viewBox")) == (200, 3)
    assert "The median delay is 60 min. 90 % of the posts arrived within 60 min." in page.text
    assert "shown after" not in page.text
    payload = server_with_history.ada.get("/timing.json").json
    assert sum(day["asked"] for day in payload["days"]) == sum(
        day["came"] + day["unchanged"] + day["failed"] for day in payload["days"]
    )
    assert {day["p50_s"] for day in payload["days"] if day["came"]} == {HOUR_S}
    assert payload["evidence"]["polled_days"] == pytest.approx(DAYS, abs=0.1)
    assert payload["limited"][0]["host"] == "http://127.0.0.1:9"
    refused = re.search(r"([\d,]+) requests? refused this week", page.text)
    assert int(refused[1]) == payload["limited"][0]["refused"] > 0
    for chart in re.findall(r"<svg viewBox[^>]*>", page.text):
        assert re.search('role="img" aria-label="[^"]{30,}"', chart)


def test_budget_curve_uses_own_history_and_budget_can_be_set(server_with_history):
    curve = server_with_history.ada.get("/timing/curve.json").json
    assert (curve["policy"], curve["feeds"]) == ("price", FEEDS)
    assert [point["per_day"] for point in curve["points"]] == pytest.approx(
        [FEEDS * each for each in budgets_to_simulate(6.0)]
    )
    delays = [point["mean_s"] for point in curve["points"]]
    assert delays == sorted(delays, reverse=True)
    assert curve["own"] in curve["points"]
    assert curve["own"]["per_day"] == 72
    assert curve["days"] == pytest.approx(7.0)
    assert "data-points=" in server_with_history.ada.get("/timing/curve").text
    assert "Show as a table" in server_with_history.ada.get("/timing?curve=1").text
    assert 'value="72"' in server_with_history.ada.get("/timing").text
    assert server_with_history.ada.post("/timing/budget", per_day="24").redirect_path == "/timing"
    page = server_with_history.ada.get("/timing")
    assert 'name="per_day" value="24"' in page.text
    assert "The budget is now 24 requests a day." in page.text
    for wrong in ("0", "9999", "many", ""):
        assert server_with_history.ada.post("/timing/budget", per_day=wrong).status == 400


def test_hourly_polling_is_simulated_with_same_history_and_constraints(
    server_with_history,
):
    curve = server_with_history.ada.get("/timing/curve.json").json
    hourly, own = curve["hourly"], curve["own"]
    # Every second feed never answers 304: its interval is up to a fifth longer than an hour.
    assert 0.85 * 24 * FEEDS < hourly["polls_per_day"] < 24 * FEEDS
    assert 15 * 60 < hourly["median_s"] < 40 * 60
    assert own["polls_per_day"] < hourly["polls_per_day"]
    part = server_with_history.ada.get("/timing/curve").text
    requests = f"{hourly['polls_per_day']:,.0f}"
    assert f"With hourly polling: {requests} requests a day, mean delay" in part
    assert f"tidings: {own['polls_per_day']:,.0f} requests a day, mean delay" in part
    assert "These figures come from a simulation" in part


def test_budget_range_is_1_to_96_requests_per_feed_and_day(server_with_history):
    page = server_with_history.ada.get("/timing").text
    assert f'data-min="{FEEDS}" data-max="{int(MAX_REQUESTS_PER_FEED) * FEEDS}"' in page
    assert f'min="1" max="{96 * FEEDS}"' in page
    for per_feed in (0.1, 1.0, 12.0, 95.0, 96.0):
        budgets = budgets_to_simulate(per_feed)
        assert per_feed in budgets
        assert len(budgets) <= 6
        assert budgets == sorted(budgets)
        assert (budgets[0] <= 1.0 * 1.3, budgets[-1] >= 96.0 / 1.3) == (True, True)


def test_unusable_budget_is_reported_on_page_api_and_metrics(server_with_history):
    before = server_with_history.ada.get("/timing")
    assert "12 feeds are already checked" not in before.text
    most = int(
        re.search(
            r"More than (\d+) has no effect, because no feed may be checked more often", before.text
        )[1]
    )
    # Minimum intervals: 15 min for six feeds, 60 min for six, all up to a fifth longer.
    assert 6 * (80 + 20) <= most <= 6 * (96 + 24)
    server_with_history.ada.post("/timing/budget", per_day=str(96 * FEEDS))
    note = (
        f"Only {most:,} of 1,152 requests a day can be used. "
        "12 feeds are already checked as often as allowed."
    )
    assert server_with_history.ada.get("/timing").text.count(note) == 1
    data = server_with_history.ada.get("/timing.json").json
    assert (int(data["usable_per_day"]), data["feeds_at_min_interval"]) == (most, 12)
    payload = server_with_history.ada.get("/v1/budget", **basic("ada")).json
    assert (payload["budget_per_day"], payload["feeds_at_min_interval"]) == (1152, 12)
    assert payload["usable_per_day"] == data["usable_per_day"]
    metrics = server_with_history.ada.get("/metrics").text
    assert f"tidings_budget_usable_requests_per_day {payload['usable_per_day']!r}" in metrics
    assert "tidings_feeds_at_min_interval 12" in metrics
    server_with_history.ada.post("/timing/budget", per_day=str(6 * FEEDS))
    assert "of 72 requests a day can be used" not in server_with_history.ada.get("/timing").text


def test_lab_simulates_own_history_and_exports_it_as_trace(server_with_history, tmp_path):
    page = server_with_history.ada.get(
        "/timing/lab?policies=price&policies=uniform&budget=2&trace=own"
    )
    assert (page.status, page.text.count("<polyline")) == (200, 3)
    assert f"{FEEDS} feeds" in page.text
    archive = server_with_history.ada.get("/timing/trace.zip")
    zipfile.ZipFile(io.BytesIO(archive.body)).extractall(tmp_path)
    trace = read_trace(tmp_path / "own-history")
    assert (trace.n_feeds, trace.n_posts) == (FEEDS, FEEDS * (EACH + 10))
    assert set(trace.window) == {10}


def test_feed_page_shows_heatmap_and_poll_timeline(server_with_history):
    page = server_with_history.ada.get(f"/feed/{server_with_history.feed}/about?days=7")
    assert page.status == 200
    assert page.text.count('class="heat ') == 7 * 24
    payload = server_with_history.ada.get(f"/feed/{server_with_history.feed}/about.json").json
    recent = [poll for poll in payload["polls"] if poll["at"] > time.time() - 7 * DAY_S]
    drawn = re.findall(r'class="poll (?!scheduled)(\w+)" transform', page.text)
    assert sorted(drawn) == sorted(
        [
            "failed" if p["error_kind"] else "unchanged" if p["status"] == 304 else "found"
            for p in recent
        ]
    )
    assert "(95 % confidence:" in page.text
    assert "9 of 10 posts were already known: no posts were missed" in page.text
    assert payload["reason"]["text"][1:20] in page.text


def test_curve_with_too_little_history_shows_a_message(reader_server, ada, blogs):
    ada.subscribe(blogs.url(1))
    page = ada.get("/timing?curve=1")
    assert (
        page.status,
        "shown after 3 days of checks and 14 days of post history" in page.text,
    ) == (200, True)


def test_lab_lists_every_policy(ada):
    page = ada.get("/timing/lab")
    for name, policy in POLICIES.items():
        assert f'value="{name}"' in page.text
        assert policy.summary.split("(")[0].strip().split("'")[0] in page.text


def test_comparison_has_a_table_and_a_chart(reader_server, ada):
    page = ada.get(
        "/timing/lab?policies=uniform&policies=min-delay&budget=2&trace=homogeneous&seed=3"
    )
    assert page.status == 200
    assert "100 feeds" in page.text
    assert '<th scope="row">min-delay</th>' in page.text
    assert page.text.count("<polyline") == 3  # two policies and the limit
    assert 'aria-label="Delay including missed posts, by budget' in page.text
    assert 'value="min-delay" checked' in page.text


def test_comparison_data_as_json(ada, bob):
    page = ada.get("/timing/lab?policies=uniform&budget=2")
    link = page.link(r"/timing/lab\.json\?[^\"]*")
    data = ada.get(link)
    assert data.headers["Content-Type"] == "application/json"
    assert [point["budget"] for point in data.json["curve"]] == [
        2 * factor for factor in CURVE_BUDGET_FACTORS
    ]
    assert data.json["curve"][0]["results"][0]["policy"] == "uniform"
    assert bob.get(link).status == 403


def test_simulation_runs_in_subprocess_and_is_cached_until_expiry():
    now, started_at = [0.0], []

    async def job():
        started_at.append(now[0])
        return (os.getpid,)

    async def run():
        simulations = SimulationCache(lambda: now[0])
        results = [await simulations.get("pid", job) for _ in range(2)]
        now[0] = CACHE_TTL_S
        return [*results, await simulations.get("pid", job)]

    first, again, later = asyncio.run(run())
    assert first == again
    assert len({os.getpid(), first, later}) == 3
    assert started_at == [0.0, CACHE_TTL_S]


def test_error_of_simulation_is_raised():
    async def job():
        return policy_class, "best"

    with pytest.raises(UsageError, match="unknown policy"):
        asyncio.run(SimulationCache(time.time).get("best", job))


@pytest.mark.parametrize(
    ("query", "sentence"),
    [
        ("policies=best", "There is no policy &#39;best&#39;; choose from"),
        ("policies=", "Choose 1 to 5 policies, not 0."),
        ("policies=uniform,min-delay,combined,fixed,lru-2,price", "Choose 1 to 5 policies, not 6."),
        ("policies=fixed:interval_h=0.0001", "There is no policy"),
        ("budget=much", "The budget must be a number, not &#39;much&#39;."),
        ("budget=0", "The budget must be between 0.1 and 12 checks per feed and day, not 0."),
        ("budget=1e9", "The budget must be between"),
        ("budget=nan", "The budget must be a finite number"),
        ("seed=1.5", "The seed must be a whole number"),
        ("seed=-1", "The seed must be a whole number"),
        ("trace=%3Cscript%3E", "There is no trace &#39;&lt;script&gt;&#39;"),
        ("size=9", "There is no parameter &#39;size&#39;"),
        ("&".join(f"a{i}=1" for i in range(99)), "The address has too many parameters."),
    ],
)
def test_invalid_parameters_get_an_error_message(ada, query, sentence):
    page = ada.get(f"/timing/lab?{query}")
    assert page.status == 400
    assert sentence in page.text
    assert not re.search(r"<script(?! type=\"module\")", page.text)


def test_invalid_parameters_of_json_data(ada):
    page = ada.get("/timing/lab.json?budget=0")
    assert page.status == 400
    assert "between 0.1 and 12" in page.json["error"]


def test_unknown_paths_and_methods(server):
    client = server.client()
    assert client.get("/nothing").status == 404
    assert client.get("/?x=" + quote("ü" * 3000)).status == 414
    assert client.request("PUT", "/unread").status == 405
    page = client.request("HEAD", "/")
    assert (page.status, page.text) == (200, "")
    assert int(page.headers["Content-Length"]) > 1000


# --- figures only with enough history -------------------------------------------------------------


#: Figures that need more history: delays, shares of saved or missed posts, simulations.
FIGURES = re.compile(
    r"median delay</dt>|90 % of|median delay is \d|unchanged responses \(304\)|missed</dt>|"
    r"fewer requests|With hourly polling|With tidings: \d|data-points|class=\"current-budget\""
)


def test_new_installation_shows_no_figures_without_history(tmp_path):
    with Blogs(200, entries=5) as blogs, ReaderServer(tmp_path) as server:
        ada = server.client("ada").create_admin()
        ada.send_file(
            "/feeds/import", "file", blogs.write_opml(tmp_path / "list.opml").read_bytes()
        )
        wait_until(
            lambda: "200 requests for 200 feeds in the last 24 hours" in ada.get("/timing").text
        )
        text = ada.get("/timing").text
        assert not FIGURES.search(text)
        assert (
            "Delays are shown after 3 days of checks and 50 posts (so far: 0 days and 0 posts)."
            in text
        )
        assert (
            "The effect of a different budget is shown after 3 days of checks and 14 days of post"
            " history" in text
        )
        assert (
            "Missed posts and unchanged responses are shown after 3 days of checks"
            " (so far: 0 days)." in text
        )
        assert text.count("–</text>") == 6  # days before the first poll are gaps
        assert not FIGURES.search(ada.get("/timing?curve=1").text)
        assert ada.get("/timing/curve.json").status == 400
        data = ada.get("/timing.json").json
        assert {(day["p50_s"], day["p90_s"]) for day in data["days"]} == {(None, None)}
        payload = ada.get("/api/status").json
        assert {
            (payload["status"][p]["delay_p50_s"], payload["status"][p]["delay_p90_s"])
            for p in ("hour", "day", "week")
        } == {(None, None)}
        blogs.advance(6 * HOUR_S)  # posts with a delay, minutes after the first poll
        ada.post("/feed/1/poll")
        assert not FIGURES.search(ada.get("/timing").text)
        statistics = ada.get("/statistics").text
        assert "shown after 3 days of checks and 50 posts" in statistics
        assert "median delay</dt>" not in statistics
        assert "posts arrive" not in ada.get("/timing").text


def test_figures_appear_when_there_is_enough_history(tmp_path):
    asyncio.run(_write_history(tmp_path / "tidings.db", time.time(), days=8.0, each=24))
    with ReaderServer(tmp_path) as server:
        ada = server.client("ada").create_admin()
        text = ada.get("/timing").text
        assert "The median delay is 60 min. 90 % of the posts arrived within 60 min." in text
        assert re.search(r"unchanged responses \(304\)</dt><dd>[\d.]+ %", text)
        assert "shown after" not in text
        part = ada.get("/timing/curve").text
        assert "data-points" in part
        assert re.search(r"With hourly polling: \d+ requests a day, mean delay [\d.]+ min", part)
        statistics = ada.get("/statistics").text
        assert "median delay</dt><dd>60 min" in statistics


def test_curve_without_comparison_before_a_week_of_checks(tmp_path):
    asyncio.run(_write_history(tmp_path / "tidings.db", time.time(), days=5.0, each=20))
    with ReaderServer(tmp_path) as server:
        ada = server.client("ada").create_admin()
        part = ada.get("/timing/curve").text
        assert "data-points" in part
        assert "With hourly polling" not in part
        assert (
            "The comparison with hourly polling is shown after 7 days of checks (so far: 5 days)."
            in part
        )
        assert ada.get("/timing/curve.json").json["hourly"] is None
