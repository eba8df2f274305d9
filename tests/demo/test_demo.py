"""The demo as a whole: two services live in one world, the screen shows how they do, and the simulator foretold it."""

import asyncio
import json
import os
import re
import threading
from contextlib import suppress

import pytest

from tests import TEST_TIMEOUT_S
from tests.web.client import UserClient
from tidings.demo.demo import PASSWORD, READER, Plan
from tidings.demo.run import run_demo
from tidings.demo.services import open_demo
from tidings.errors import UsageError
from tidings.lab.score import metrics
from tidings.model import DAY_S
from tidings.service import address, listen


def run_in_demo(plan, scenario, patience_s=TEST_TIMEOUT_S):
    async def run_test():
        async with open_demo(plan) as demo:
            return await asyncio.wait_for(scenario(demo), patience_s)

    return asyncio.run(run_test())


def test_what_is_live_is_what_was_foretold():
    async def scenario(demo):
        await demo.until_the_end()
        live = {name: metrics(demo.score_polls(name)) for name in demo.plan.policies}
        totals = await demo.figures()
        return live, {name: metrics(demo.foretell(name)) for name in demo.plan.policies}, totals

    live, foretold, totals = run_in_demo(
        Plan(publishers=40, days=1.0, speed=float("inf"), friends=0), scenario
    )
    assert live["uniform"]["mean_delay_s"] == pytest.approx(
        foretold["uniform"]["mean_delay_s"], rel=0.01
    )
    assert live["price"]["mean_delay_s"] == pytest.approx(
        foretold["price"]["mean_delay_s"], rel=0.25
    )  # a day says little
    assert live["price"]["mean_delay_s"] < 0.7 * live["uniform"]["mean_delay_s"]
    assert live["price"]["polls"] <= 1.1 * 40 * 6
    price, uniform = totals["policies"]
    assert (price["policy"], uniform["policy"], totals["day"]) == ("price", "uniform", 1.0)
    assert price["requests"] == price["hits"] + price["unchanged"] + price["refused"]
    assert price["pushed"] > 0
    assert {"late_s", "title", "publisher"} <= set(totals["last"][0])


def test_friends_tell_each_other():
    async def scenario(demo):
        await demo.until_the_end()
        return await demo.figures(), [
            demo.aggregators[member.name].polls.peer_exchange for member in demo.plan.members
        ]

    plan = Plan(publishers=16, days=0.75, speed=float("inf"), policies=())

    totals, nodes = run_in_demo(plan, scenario)
    friends = totals["friends"]
    assert (friends["nodes"], len(nodes)) == (3, 3)
    assert friends["told"] > 0
    assert 0 < friends["requests"] <= 1.5 * 16 * 6
    assert friends["p50_s"] <= friends["p90_s"]


def test_the_screen_changes_the_speed_and_nothing_is_left_behind(tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    threads = threading.active_count()

    def visit(port):
        nobody = UserClient(port)
        page = nobody.get("/demo")
        assert (page.status, "uniform" in page.text, nobody.get("/").redirect_path) == (
            200,
            True,
            "/demo",
        )
        for part in re.findall(r'(?:href|src)="(/[^"]+)"', page.text):
            assert (
                nobody.get(part).status == 200
            )  # a browser asks for all of them, and complains aloud
        assert 'rel="icon"' in page.text
        assert nobody.request("POST", "/demo/speed", "speed=20").status == 303
        assert nobody.get("/demo.json").json["speed"] == 20
        for wrong in ("speed=0", "speed=1e9", "", "speed=many"):
            assert nobody.request("POST", "/demo/speed", wrong).status == 400
        assert (
            nobody.request(
                "POST", "/demo/speed", "speed=1", Origin="http://elsewhere.example"
            ).status
            == 403
        )
        return page.link(r"http://127\.0\.0\.1:\d+/")

    async def scenario():
        stop, said = asyncio.Event(), asyncio.Queue()
        with listen("127.0.0.1", 0) as server_socket:
            running = asyncio.create_task(
                run_demo(
                    Plan(publishers=12, days=300.0, speed=1000.0, friends=0),
                    server_socket,
                    stop,
                    said.put_nowait,
                )
            )
            await said.get()
            assert address(server_socket) in await said.get()
            assert len(os.listdir(tmp_path)) == 1
            pages = await asyncio.to_thread(visit, server_socket.getsockname()[1])
            stop.set()
            found = await asyncio.wait_for(running, TEST_TIMEOUT_S)
        return pages, found

    pages, found = asyncio.run(scenario())
    assert list(found) == ["price, live", "uniform, live"]
    assert os.listdir(tmp_path) == []
    assert threading.active_count() <= threads + 1
    with pytest.raises(OSError, match="refused"):
        UserClient(int(pages.rpartition(":")[2].strip("/"))).get("/")


@pytest.mark.parametrize("wrong", [{"publishers": 0}, {"days": 0.0}, {"days": 1000.0}])
def test_what_cannot_be_is_refused(wrong):
    with pytest.raises(UsageError):
        Plan(**wrong)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [11, 12, 13, 14, 15])
@pytest.mark.parametrize("factor", [2.0, 0.5])
def test_the_slider_keeps_its_promise(factor, seed, capsys):
    """A week under one budget; then what the page promises for another, and a week under that."""

    async def scenario(demo):
        await demo.clock.sleep(7 * DAY_S)
        name, aggregator = "price", demo.aggregators["price"]
        changed_at = demo.clock()
        with demo.clock.hold():
            before = metrics(demo.score_polls(name))["mean_delay_s"]
            promised = await asyncio.to_thread(slide, demo.addresses[name])
        await demo.until_the_end()
        after = metrics(demo.score_polls(name, changed_at))
        assert aggregator.scheduler.budget.requests == demo.plan.budget * factor
        return before, promised, after

    def slide(pages):
        admin = UserClient(int(pages.rpartition(":")[2].strip("/")), READER)
        admin.log_in(PASSWORD)
        curve = None
        while curve is None:
            with suppress(
                TimeoutError
            ):  # on a busy machine it takes minutes, and is kept for whoever asks again
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
        publishers=300, days=14.0, speed=float("inf"), policies=("price",), friends=0, seed=seed
    )
    before, promised, after = run_in_demo(plan, scenario, 3600)
    with capsys.disabled():
        print(
            json.dumps(
                {
                    "factor": factor,
                    "seed": seed,
                    "mean before, min": before / 60,
                    "promised, min": promised["mean_s"] / 60,
                    "came true, min": after["mean_delay_s"] / 60,
                    "off": after["mean_delay_s"] / promised["mean_s"] - 1,
                    "missed, promised and true": [promised["missed_share"], after["missed_share"]],
                    "polls per feed and day": after["polls_per_feed_day"],
                }
            )
        )
    assert after["mean_delay_s"] == pytest.approx(promised["mean_s"], rel=0.1)
