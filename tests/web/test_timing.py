"""The administrator's pages about time, and the policy lab: what they say, what they do, and what they refuse."""

import asyncio
import io
import os
import re
import time
import zipfile
from urllib.parse import quote

import numpy as np
import pytest

from tests.web.conftest import Serving
from tidings.errors import UsageError
from tidings.lab.traces import read_trace
from tidings.model import DAY_S, HOUR_S
from tidings.policy import POLICIES, policy_class
from tidings.reasons import reason
from tidings.store import Store
from tidings.store.rows import EntryText, FeedState, PollOutcome, Wanted
from tidings.web.comparison import STEPS
from tidings.web.forecast import FACTORS
from tidings.web.processes import KEPT_S, Replays

FEEDS, EACH, DAYS = 12, 30, 12.0


async def _live_for_days(path, now):
    """Feeds that post twice or three times a day, each of which was found an hour later; then a look in vain and a refusal."""
    rng = np.random.default_rng(1)
    async with Store.open(path, clock=lambda: now - 29 * DAY_S) as store:
        added = await store.add([Wanted(f"http://127.0.0.1:9/{i}", now + DAY_S) for i in range(FEEDS)])
        for feed in added:
            times = np.sort(now - rng.uniform(0.1, DAYS, EACH) * DAY_S)
            state = FeedState(
                title=f"Blog {feed.feed_id}", window=10, shown=10, next_poll_at=now + HOUR_S, reason=reason("new_feed")
            )
            outcomes = []
            for number, at in enumerate(times.tolist()):
                new = EntryText(identity=str(number), digest=b"", published_at=at, title=f"Post {number}", delay_s=HOUR_S)
                outcomes.append(
                    PollOutcome(
                        feed_id=feed.feed_id, at=at + HOUR_S, status=200, entries=10, new=(new,), bytes=900, state=state
                    )
                )
            last = times[-1] + HOUR_S
            outcomes.append(PollOutcome(feed_id=feed.feed_id, at=last + 60, status=304, reason=reason("manual")))
            outcomes.append(
                PollOutcome(feed_id=feed.feed_id, at=last + 120, status=429, error_kind="http 429", error="too many")
            )
            for outcome in outcomes:
                await store.record([outcome])
    return added[0].feed_id


@pytest.fixture(scope="module")
def watched(tmp_path_factory):
    """A service that has some days behind it, and nothing to poll before an hour has passed."""
    folder, now = tmp_path_factory.mktemp("watched"), time.time()
    feed = asyncio.run(_live_for_days(folder / "tidings.db", now))
    with Serving(folder, **{"policy.budget": "6/feed"}) as serving:
        serving.ada, serving.feed = serving.person("ada").begin(), feed
        yield serving


def test_the_page_is_for_administrators_and_says_what_to_do_first(ada, bob):
    page = ada.get("/timing")
    assert (page.status, "No feed is followed yet" in page.text) == (200, True)
    for path in ("/timing", "/timing.json", "/timing/curve", "/timing/curve.json", "/timing/lab", "/timing/trace.zip"):
        assert bob.get(path).status == 403
    assert bob.post("/timing/budget", per_day="100").status == 403
    assert "/timing" not in bob.get("/unread").text


def test_a_week_is_told_in_figures_and_pictures(watched):
    page = watched.ada.get("/timing")
    assert (page.status, page.text.count("<svg viewBox")) == (200, 3)
    assert "Half within 60 min" in page.text
    told = watched.ada.get("/timing.json").json
    assert sum(day["asked"] for day in told["days"]) == sum(
        day["came"] + day["unchanged"] + day["failed"] for day in told["days"]
    )
    assert {day["p50_s"] for day in told["days"] if day["came"]} == {HOUR_S}
    assert told["limited"][0]["host"] == "http://127.0.0.1:9"
    refused = re.search(r"([\d,]+) requests? refused this week", page.text)
    assert int(refused[1]) == told["limited"][0]["refused"] > 0
    for picture in re.findall(r"<svg viewBox[^>]*>", page.text):
        assert re.search('role="img" aria-label="[^"]{30,}"', picture)


def test_the_curve_is_of_ones_own_history_and_the_slider_applies_a_budget(watched):
    curve = watched.ada.get("/timing/curve.json").json
    assert (curve["policy"], curve["feeds"], len(curve["points"])) == ("price", FEEDS, len(FACTORS))
    delays = [point["mean_s"] for point in curve["points"]]
    assert delays == sorted(delays, reverse=True)
    assert "data-points=" in watched.ada.get("/timing/curve").text
    assert "The same as a table" in watched.ada.get("/timing?curve=1").text
    assert 'value="72"' in watched.ada.get("/timing").text
    assert watched.ada.post("/timing/budget", per_day="24").goes_to == "/timing"
    page = watched.ada.get("/timing")
    assert 'name="per_day" value="24"' in page.text
    assert "From now on 24 requests a day." in page.text
    for wrong in ("0", "9999", "many", ""):
        assert watched.ada.post("/timing/budget", per_day=wrong).status == 400


def test_ones_own_history_under_any_policy_and_as_a_trace(watched, tmp_path):
    page = watched.ada.get("/timing/lab?policies=price&policies=uniform&budget=2&trace=own")
    assert (page.status, page.text.count("<polyline")) == (200, 3)
    assert f"{FEEDS} feeds" in page.text
    packed = watched.ada.get("/timing/trace.zip")
    zipfile.ZipFile(io.BytesIO(packed.body)).extractall(tmp_path)
    trace = read_trace(tmp_path / "own-history")
    assert (trace.n_feeds, trace.n_posts) == (FEEDS, FEEDS * EACH)
    assert set(trace.window) == {10}


def test_a_feeds_page_draws_its_habits_and_its_looks(watched):
    page = watched.ada.get(f"/feed/{watched.feed}/about?days=7")
    assert page.status == 200
    assert page.text.count('class="heat ') == 7 * 24
    told = watched.ada.get(f"/feed/{watched.feed}/about.json").json
    recent = [poll for poll in told["polls"] if poll["at"] > time.time() - 7 * DAY_S]
    drawn = re.findall(r'class="look (?!coming)(\w+)" transform', page.text)
    assert sorted(drawn) == sorted(
        ["failed" if p["error_kind"] else "unchanged" if p["status"] == 304 else "found" for p in recent]
    )
    assert "(95 %:" in page.text
    assert "9 were known already: nothing in between was missed" in page.text
    assert told["reason"]["text"][1:20] in page.text


def test_too_little_history_says_so(house, ada, blogs):
    ada.follow(blogs.url(1))
    page = ada.get("/timing?curve=1")
    assert (page.status, "There is too little history yet" in page.text) == (200, True)


def test_the_lab_names_every_policy(ada):
    page = ada.get("/timing/lab")
    for name, policy in POLICIES.items():
        assert f'value="{name}"' in page.text
        assert policy.summary.split("(")[0].strip().split("'")[0] in page.text


def test_a_comparison_has_a_table_and_a_curve(house, ada):
    page = ada.get("/timing/lab?policies=uniform&policies=min-delay&budget=2&trace=homogeneous&seed=3")
    assert page.status == 200
    assert "100 feeds" in page.text
    assert '<th scope="row">min-delay</th>' in page.text
    assert page.text.count("<polyline") == 3  # two policies and the limit
    assert 'aria-label="Mean delay against budget' in page.text
    assert 'value="min-delay" checked' in page.text


def test_data_behind_the_picture(ada, bob):
    page = ada.get("/timing/lab?policies=uniform&budget=2")
    link = page.link(r"/timing/lab\.json\?[^\"]*")
    data = ada.get(link)
    assert data.headers["Content-Type"] == "application/json"
    assert [at["budget"] for at in data.json["curve"]] == [2 * step for step in STEPS]
    assert data.json["curve"][0]["results"][0]["policy"] == "uniform"
    assert bob.get(link).status == 403


def test_a_question_is_answered_once_in_a_process_of_its_own_until_the_answer_is_old():
    now, asked = [0.0], []

    async def question():
        asked.append(now[0])
        return (os.getpid,)

    async def ask():
        replays = Replays(lambda: now[0])
        answers = [await replays.get("who", question) for _ in range(2)]
        now[0] = KEPT_S
        return [*answers, await replays.get("who", question)]

    first, again, later = asyncio.run(ask())
    assert first == again
    assert len({os.getpid(), first, later}) == 3
    assert asked == [0.0, KEPT_S]


def test_what_a_question_is_refused_with_comes_back():
    async def question():
        return policy_class, "best"

    with pytest.raises(UsageError, match="unknown policy"):
        asyncio.run(Replays(time.time).get("best", question))


@pytest.mark.parametrize(
    ("query", "sentence"),
    [
        ("policies=best", "There is no policy &#39;best&#39;; choose from"),
        ("policies=", "Choose 1 to 5 policies, not 0."),
        ("policies=uniform,min-delay,combined,fixed,lru-2,price", "Choose 1 to 5 policies, not 6."),
        ("policies=fixed:interval_h=0.0001", "There is no policy"),
        ("budget=much", "The budget must be a number, not &#39;much&#39;."),
        ("budget=0", "The budget must be between 0.1 and 12 polls per feed and day, not 0."),
        ("budget=1e9", "The budget must be between"),
        ("budget=nan", "The budget must be a finite number"),
        ("seed=1.5", "The seed must be a whole number"),
        ("seed=-1", "The seed must be a whole number"),
        ("trace=%3Cscript%3E", "There is no trace &#39;&lt;script&gt;&#39;"),
        ("colour=red", "There is no parameter &#39;colour&#39;"),
        ("&".join(f"a{i}=1" for i in range(99)), "The address has too many parameters."),
    ],
)
def test_bad_parameters_get_a_clear_sentence(ada, query, sentence):
    page = ada.get(f"/timing/lab?{query}")
    assert page.status == 400
    assert sentence in page.text
    assert not re.search(r"<script(?! type=\"module\")", page.text)


def test_bad_parameters_of_the_data(ada):
    page = ada.get("/timing/lab.json?budget=0")
    assert page.status == 400
    assert "between 0.1 and 12" in page.json["error"]


def test_other_addresses_and_methods(serving):
    nobody = serving.person()
    assert nobody.get("/nothing").status == 404
    assert nobody.get("/?x=" + quote("ü" * 3000)).status == 414
    assert nobody.ask("PUT", "/unread").status == 405
    page = nobody.ask("HEAD", "/")
    assert (page.status, page.text) == (200, "")
    assert int(page.headers["Content-Length"]) > 1000
