"""Feed URLs with a password: redacted on all pages, exported only in the subscriber's OPML."""

import re

import pytest

from tests.local_server import LocalServer
from tests.web.test_access_control import PAGES, fill_path

#: A feed without a title; its URL is shown instead.
UNTITLED = (
    '<rss version="2.0"><channel><item><title>Hidden</title><guid>1</guid></item></channel></rss>'
)


@pytest.fixture(scope="module")
def protected_feed(reader_server):
    with LocalServer() as server:
        server.pages["/feed"] = UNTITLED
        address = f"http://ann:hush@{server.host}/feed"
        feed = reader_server.ada.subscribe(address)
        yield {
            "feed": feed,
            "icon": feed,
            "entry": 1,
            "address": address,
            "shown": address.replace("hush", "***"),
        }


@pytest.mark.parametrize(
    "path", [path for path in PAGES if path not in ("/events", "/feeds/export.opml")]
)
def test_no_page_shows_the_password(reader_server, protected_feed, path):
    assert "hush" not in reader_server.ada.get(fill_path(path, protected_feed)).text
    assert "hush" not in reader_server.bob.get(fill_path(path, protected_feed)).text


def test_subscriber_sees_redacted_url(ada, protected_feed):
    page = ada.get(f"/feed/{protected_feed['feed']}/about").text
    assert f">{protected_feed['shown']}</a>" in page
    assert 'name="title" value=""' in page  # the URL is not a title that the user set
    assert protected_feed["shown"] in ada.get("/unread").text


def test_error_message_redacts_the_password(ada):
    page = ada.post("/feeds/add", url="http://ann:hush@127.0.0.1:9/feed")
    assert "ann:***@127.0.0.1:9" in page.text
    assert len(re.findall("hush", page.text)) == 1  # in the input field, to be corrected


def test_only_own_opml_export_has_the_password(ada, bob, protected_feed):
    assert f'xmlUrl="{protected_feed["address"]}"' in ada.get("/feeds/export.opml").text
    assert "hush" not in bob.get("/feeds/export.opml").text


def test_output_feeds_do_not_contain_the_password(ada, protected_feed):
    found = re.findall(r'href="(/out/[^"]+)"', ada.get("/settings/apps").text)
    feed_texts = [ada.get(path).text for path in found]
    assert "Hidden" in feed_texts[0]
    assert "hush" not in str(feed_texts)
