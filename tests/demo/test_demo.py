"""Complete demo: two services, the dashboard, and agreement with the simulator."""

import asyncio
import json
import os
import re
import threading
from contextlib import suppress

import pytest

from tests import TEST_TIMEOUT_S
from tests.web.client import UserClient
from tidings.demo.demo import PASSWORD, USER_NAME, Plan
from tidings.demo.run import run_demo
from tidings.demo.services import open_demo
from tidings.errors import UsageError
from tidings.lab.score import metrics
from tidings.model import DAY_S
from tidings.service import address, listen


def run_in_demo(plan, scenario, timeout_s=TEST_TIMEOUT_S):
    async def run_test():
        async with open_demo(plan) as demo:
            return await asyncio.wait_for(scenario(demo), timeout_s)

    return asyncio.run(run_test())


def test_live_metrics_match_the_simulator():
    async def scenario(demo):
        await demo.wait_until_end()
        live = {name: metrics(demo.score_polls(name)) for name in demo.plan.policies}
        totals = await demo.figures()
        return (
            live,
            {name: metrics(demo.simulate_policy(name)) for name in demo.plan.policies},
            totals,
        )

    live, simulated, totals = run_in_demo(
        Plan(publishers=40, days=1.0, speed=float("inf"), peer_count=0), scenario
    )
    assert live["uniform"]["mean_delay_s"] == pytest.approx(
        simulated["uniform"]["mean_delay_s"], rel=0.01
    )
    assert live["price"]["mean_delay_s"] == pytest.approx(
        simulated["price"]["mean_delay_s"], rel=0.25
    )  # one day has a large variance
    assert live["price"]["mean_delay_s"] < 0.7 * live["uniform"]["mean_delay_s"]
    assert live["price"]["polls"] <= 1.1 * 40 * 6
    price, uniform = totals["policies"]
    assert (price["policy"], uniform["policy"], totals["day"]) == ("price", "uniform", 1.0)
    assert price["requests"] == price["hits"] + price["unchanged"] + price["refused"]
    assert price["pushed"] > 0
    assert {"late_s", "title", "publisher"} <= set(totals["last"][0])


def test_exchange_nodes_receive_entries_from_peers():
    async def scenario(demo):
        await demo.wait_until_end()
        return await demo.figures(), [
            demo.aggregators[instance.name].polls.peer_exchange for instance in demo.plan.instances
        ]

    plan = Plan(publishers=16, days=0.75, speed=float("inf"), policies=())

    totals, nodes = run_in_demo(plan, scenario)
    peer_count = totals["friends"]
    assert (peer_count["nodes"], len(nodes)) == (3, 3)
    assert peer_count["told"] > 0
    assert 0 < peer_count["requests"] <= 1.5 * 16 * 6
    assert peer_count["p50_s"] <= peer_count["p90_s"]


def test_dashboard_changes_the_speed_and_demo_leaves_no_files(tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    threads = threading.active_count()

    def use_dashboard(port):
        client = UserClient(port)
        page = client.get("/demo")
        assert (page.status, "uniform" in page.text, client.get("/").redirect_path) == (
            200,
            True,
            "/demo",
        )
        for part in re.findall(r'(?:href|src)="(/[^"]+)"', page.text):
            assert client.get(part).status == 200  # a browser requests all of them
        assert 'rel="icon"' in page.text
        assert client.request("POST", "/demo/speed", "speed=20").status == 303
        assert client.get("/demo.json").json["speed"] == 20
        for body in ("speed=0", "speed=1e9", "", "speed=many"):
            assert client.request("POST", "/demo/speed", body).status == 400
        assert (
            client.request(
                "POST", "/demo/speed", "speed=1", Origin="http://elsewhere.example"
            ).status
            == 403
        )
        return page.link(r"http://127\.0\.0\.1:\d+/")

    async def scenario():
        stop, lines = asyncio.Event(), asyncio.Queue()
        with listen("127.0.0.1", 0) as server_socket:
            running = asyncio.create_task(
                run_demo(
                    Plan(publishers=12, days=300.0, speed=1000.0, peer_count=0),
                    server_socket,
                    stop,
                    lines.put_nowait,
                )
            )
            await lines.get()
            assert address(server_socket) in await lines.get()
            assert len(os.listdir(tmp_path)) == 1
            pages = await asyncio.to_thread(use_dashboard, server_socket.getsockname()[1])
            stop.set()
            found = await asyncio.wait_for(running, TEST_TIMEOUT_S)
        return pages, found

    pages, found = asyncio.run(scenario())
    assert list(found) == ["price, live", "uniform, live"]
    assert os.listdir(tmp_path) == []
    assert threading.active_count() <= threads + 1
    with pytest.raises(OSError, match="refused"):
        UserClient(int(pages.rpartition(":")[2].strip("/"))).get("/")


@pytest.mark.parametrize("settings", [{"publishers": 0}, {"days": 0.0}, {"days": 1000.0}])
def test_invalid_plan_is_rejected(settings):
    with pytest.raises(UsageError):
        Plan(**settings)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [11, 12, 13, 14, 15])
@pytest.mark.parametrize("factor", [2.0, 0.5])
def test_budget_forecast_matches_the_delay_after_the_change(factor, seed, capsys):
    """Run a week at one budget, change it to a forecast budget, and run another week."""

    async def scenario(demo):
        await demo.clock.sleep(7 * DAY_S)
        name, aggregator = "price", demo.aggregators["price"]
        changed_at = demo.clock()
        with demo.clock.pause():
            before = metrics(demo.score_polls(name))["mean_delay_s"]
            forecast = await asyncio.to_thread(change_budget, demo.addresses[name])
        await demo.wait_until_end()
        after = metrics(demo.score_polls(name, changed_at))
        assert aggregator.scheduler.budget.requests == demo.plan.budget * factor
        return before, forecast, after

    def change_budget(pages):
        admin = UserClient(int(pages.rpartition(":")[2].strip("/")), USER_NAME)
        admin.log_in(PASSWORD)
        curve = None
        while curve is None:
            with suppress(
                TimeoutError
            ):  # takes minutes on a busy computer; the next request gets the cached result
                curve = admin.get("/timing/curve.json").json
        point = min(
            curve["points"], key=lambda point: abs(point["per_day"] - factor * curve["budget"])
        )
        assert point["per_day"] == pytest.approx(factor * curve["budget"])
        assert (
            admin.post("/timing/budget", per_day=str(round(point["per_day"]))).redirect_path
            == "/timing"
        )
        return point

    plan = Plan(
        publishers=300, days=14.0, speed=float("inf"), policies=("price",), peer_count=0, seed=seed
    )
    before, forecast, after = run_in_demo(plan, scenario, 3600)
    with capsys.disabled():
        print(
            json.dumps(
                {
                    "factor": factor,
                    "seed": seed,
                    "mean before, min": before / 60,
                    "forecast, min": forecast["mean_s"] / 60,
                    "mean after, min": after["mean_delay_s"] / 60,
                    "error": after["mean_delay_s"] / forecast["mean_s"] - 1,
                    "missed, forecast and after": [forecast["missed_share"], after["missed_share"]],
                    "polls per feed and day": after["polls_per_feed_day"],
                }
            )
        )
    assert after["mean_delay_s"] == pytest.approx(forecast["mean_s"], rel=0.1)
