"""The administrator's page about time, and its comparison: what they say, and what they refuse."""

import re
from urllib.parse import quote

import pytest

from tidings.policy import POLICIES
from tidings.web.comparison import STEPS


def test_the_page_names_every_policy_and_is_for_administrators(ada, bob):
    page = ada.get("/timing")
    assert page.status == 200
    for name, policy in POLICIES.items():
        assert f'value="{name}"' in page.text
        assert policy.summary.split("(")[0].strip().split("'")[0] in page.text
    assert "No feed is followed yet" in page.text
    assert bob.get("/timing").status == 403
    assert "/timing" not in bob.get("/unread").text


def test_a_comparison_has_a_table_and_a_curve(house, ada):
    page = ada.get("/timing?policies=uniform&policies=min-delay&budget=2&trace=homogeneous&seed=3")
    assert page.status == 200
    assert house.made[-1] == ("homogeneous", 3)
    assert '<th scope="row">min-delay</th>' in page.text
    assert page.text.count("<polyline") == 3  # two policies and the limit
    assert 'aria-label="Mean delay against budget' in page.text
    assert 'value="min-delay" checked' in page.text


def test_data_behind_the_picture(ada, bob):
    page = ada.get("/timing?policies=uniform&budget=2")
    link = page.link(r"/timing/compare\.json\?[^\"]*")
    data = ada.get(link)
    assert data.headers["Content-Type"] == "application/json"
    assert [at["budget"] for at in data.json["curve"]] == [2 * step for step in STEPS]
    assert data.json["curve"][0]["results"][0]["policy"] == "uniform"
    assert bob.get(link).status == 403


def test_the_same_question_is_computed_once(house, ada):
    before = len(house.made)
    for _ in range(2):
        ada.get("/timing?policies=uniform&budget=3&seed=77")
    assert len(house.made) == before + 1


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
    page = ada.get(f"/timing?{query}")
    assert page.status == 400
    assert sentence in page.text
    assert not re.search(r"<script(?! type=\"module\")", page.text)


def test_bad_parameters_of_the_data(ada):
    page = ada.get("/timing/compare.json?budget=0")
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
