"""The page and the comparison: what they say, and what they refuse."""

import json
import re

import pytest

from tidings.policy import POLICIES
from tidings.web.comparison import STEPS


def test_the_page_names_every_policy_and_asks_nothing_of_others(serving):
    response, body = serving.get("/")
    assert response.status == 200
    for name, policy in POLICIES.items():
        assert f'value="{name}"' in body
        assert policy.summary.split("(")[0].strip().split("'")[0] in body
    assert "<script" not in body
    assert re.findall(r"(?:src|href|action)=\"(?!/)[^\"]*", body) == []
    policy = response.headers["Content-Security-Policy"]
    assert policy.startswith("default-src 'none'")
    assert "unsafe" not in policy
    assert response.headers["X-Content-Type-Options"] == "nosniff"


def test_style_and_icon_are_our_own(serving):
    for target, kind in (("/style.css", "text/css; charset=utf-8"), ("/icon.svg", "image/svg+xml")):
        response, body = serving.get(target)
        assert (response.status, response.headers["Content-Type"]) == (200, kind)
        assert "http" not in body.replace("http://www.w3.org/2000/svg", "")


def test_a_comparison_has_a_table_and_a_curve(serving):
    response, body = serving.get("/?policies=uniform&policies=min-delay&budget=2&trace=homogeneous&seed=3")
    assert response.status == 200
    assert serving.made[-1] == ("homogeneous", 3)
    assert '<th scope="row">min-delay</th>' in body
    assert body.count("<polyline") == 3  # two policies and the limit
    assert "<desc id=" in body
    assert 'value="min-delay" checked' in body


def test_data_behind_the_picture(serving):
    _, body = serving.get("/?policies=uniform&budget=2")
    link = re.search(r'href="(/compare\.json\?[^"]*)"', body).group(1).replace("&amp;", "&")
    response, text = serving.get(link)
    assert response.headers["Content-Type"] == "application/json"
    data = json.loads(text)
    assert [at["budget"] for at in data["curve"]] == [2 * step for step in STEPS]
    assert data["curve"][0]["results"][0]["policy"] == "uniform"


def test_the_same_question_is_computed_once(serving):
    before = len(serving.made)
    for _ in range(2):
        serving.get("/?policies=uniform&budget=3&seed=77")
    assert len(serving.made) == before + 1


@pytest.mark.parametrize(
    ("query", "sentence"),
    [
        ("policies=best", "There is no policy &#x27;best&#x27;; choose from"),
        ("policies=", "Choose 1 to 5 policies, not 0."),
        ("policies=uniform,min-delay,combined,fixed,lru-2,price", "Choose 1 to 5 policies, not 6."),
        ("policies=fixed:interval_h=0.0001", "There is no policy"),
        ("budget=much", "The budget must be a number, not &#x27;much&#x27;."),
        ("budget=0", "The budget must be between 0.1 and 12 polls per feed and day, not 0."),
        ("budget=1e9", "The budget must be between"),
        ("budget=nan", "The budget must be a finite number"),
        ("seed=1.5", "The seed must be a whole number"),
        ("seed=-1", "The seed must be a whole number"),
        ("trace=%3Cscript%3E", "There is no trace &#x27;&lt;script&gt;&#x27;"),
        ("colour=red", "There is no parameter &#x27;colour&#x27;"),
    ],
)
def test_bad_parameters_get_a_clear_sentence(serving, query, sentence):
    response, body = serving.get(f"/?{query}")
    assert response.status == 400
    assert sentence in body
    assert "<script" not in body


def test_bad_parameters_of_the_data(serving):
    response, body = serving.get("/compare.json?budget=0")
    assert response.status == 400
    assert "between 0.1 and 12" in json.loads(body)["error"]


def test_other_addresses_and_methods(serving):
    assert serving.get("/nothing")[0].status == 404
    assert serving.get("/?x=" + "y" * 3000)[0].status == 414
    assert serving.get("/?" + "&".join(f"a{i}=1" for i in range(99)))[0].status == 400
    assert serving.get("/", method="POST")[0].status == 405
    response, body = serving.get("/", method="HEAD")
    assert (response.status, body) == (200, "")
    assert int(response.headers["Content-Length"]) > 1000
