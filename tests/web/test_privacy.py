"""A feed with a password in its address: its reader sees that there is one and has it in their own lists, others do not."""

import re

import pytest

from tests.sites import Site
from tests.web.test_walk import PAGES, filled

#: A feed without a name is called by its address.
NAMELESS = '<rss version="2.0"><channel><item><title>Hidden</title><guid>1</guid></item></channel></rss>'


@pytest.fixture(scope="module")
def locked(house):
    with Site() as there:
        there.pages["/feed"] = NAMELESS
        address = f"http://ann:hush@{there.host}/feed"
        feed = house.ada.follow(address)
        yield {"feed": feed, "icon": feed, "entry": 1, "address": address, "shown": address.replace("hush", "***")}


@pytest.mark.parametrize("path", [path for path in PAGES if path not in ("/events", "/feeds/export.opml")])
def test_no_page_shows_the_password(house, locked, path):
    assert "hush" not in house.ada.get(filled(path, locked)).text
    assert "hush" not in house.bob.get(filled(path, locked)).text


def test_its_reader_sees_that_there_is_one(ada, locked):
    page = ada.get(f"/feed/{locked['feed']}/about").text
    assert f">{locked['shown']}</a>" in page
    assert 'name="title" value=""' in page  # its address is not a name that somebody gave it
    assert locked["shown"] in ada.get("/unread").text


def test_a_complaint_about_it_does_not_show_it(ada):
    page = ada.post("/feeds/add", url="http://ann:hush@127.0.0.1:9/feed")
    assert "ann:***@127.0.0.1:9" in page.text
    assert len(re.findall("hush", page.text)) == 1  # in the field, where it is to be put right


def test_it_comes_back_with_the_readers_own_list(ada, bob, locked):
    assert f'xmlUrl="{locked["address"]}"' in ada.get("/feeds/export.opml").text
    assert "hush" not in bob.get("/feeds/export.opml").text


def test_output_feeds_do_not_tell_it(ada, locked):
    found = re.findall(r'href="(/out/[^"]+)"', ada.get("/settings/apps").text)
    told = [ada.get(path).text for path in found]
    assert "Hidden" in told[0]
    assert "hush" not in str(told)
