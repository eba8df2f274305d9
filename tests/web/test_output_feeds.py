"""Output feeds: valid Atom, RSS, JSON Feed and OPML; conditional requests and delta encoding."""

import re
from datetime import datetime
from email.utils import formatdate, parsedate_to_datetime
from urllib.parse import urlsplit

import pytest
from lxml import etree

A = "{http://www.w3.org/2005/Atom}"
DC = "{http://purl.org/dc/elements/1.1/}"
MEDIA_TYPES = {
    "atom": "application/atom+xml",
    "rss": "application/rss+xml",
    "json": "application/feed+json",
}


@pytest.fixture(scope="module", autouse=True)
def subscribed_feeds(reader_server, blogs):
    """Two feeds, one in a folder; one entry is starred and has tags with XML characters."""
    ada = reader_server.ada
    ada.subscribe(blogs.url(1))
    reader_server.two = ada.subscribe(blogs.url(2))
    ada.post(f"/feed/{reader_server.two}/about", title="Tom & Jerry <3", folder="Birds & bees")
    reader_server.entry = ada.get("/all").entries[0]
    ada.post(f"/entry/{reader_server.entry}", star="1")
    ada.post(f"/entry/{reader_server.entry}", tag="r&d <b>, näher")
    ada.post("/searches", q="kettle")


def output_paths(client, kind):
    """Return the paths of a user's output feeds by title."""
    links = re.findall(
        rf'href="(/out/[^"]+\.{kind})">\w+<span class="sr-only"> – ([^<]*)',
        client.get("/settings/apps").text,
    )
    return {
        title.replace("&amp;", "&").replace("&lt;", "<").replace("&gt;", ">"): path
        for path, title in links
    }


def test_every_view_has_output_feeds_in_three_formats(ada):
    for kind, media_type in MEDIA_TYPES.items():
        found = output_paths(ada, kind)
        assert set(found) == {
            "All posts",
            "Unread",
            "Starred",
            "Birds & bees",
            "r&d <b>",
            "näher",
            "kettle",
        }
        for path in found.values():
            answer = ada.get(path)
            assert (answer.status, answer.headers["Content-Type"].partition(";")[0]) == (
                200,
                media_type,
            )


def test_feed_page_links_its_output_feed(reader_server, ada, bob):
    page = ada.get(f"/feed/{reader_server.two}/about")
    feed = etree.fromstring(ada.get(page.link(r"/out/[^\"]+\.atom")).body)
    assert feed.findtext(f"{A}title") == "Tom & Jerry <3 – tidings"
    assert len(feed.findall(f"{A}entry")) == 20


def test_atom_conforms_to_rfc_4287(reader_server, ada):
    for path in output_paths(ada, "atom").values():
        feed = etree.fromstring(ada.get(path).body)
        assert feed.tag == f"{A}feed"
        links = {link.get("rel"): link.get("href") for link in feed.findall(f"{A}link")}
        assert (
            links["self"]
            == feed.findtext(f"{A}id")
            == f"http://127.0.0.1:{reader_server.port}{path}"
        )
        assert links["hub"] == f"http://127.0.0.1:{reader_server.port}/hub"
        assert feed.findtext(f"{A}title")
        assert feed.findtext(f"{A}author/{A}name")
        entries = feed.findall(f"{A}entry")
        ids = [entry.findtext(f"{A}id") for entry in entries]
        assert len(set(ids)) == len(ids) > 0
        for entry in entries:
            assert urlsplit(entry.findtext(f"{A}id")).scheme == "http"
            assert entry.findtext(f"{A}title")
            assert entry.findtext(f"{A}author/{A}name")
            assert urlsplit(entry.find(f"{A}link[@rel='alternate']").get("href")).netloc
            assert entry.find(f"{A}content").get("type") == "html"
            assert not re.search(
                r'(href|src)="(?!https?:|mailto:)', entry.findtext(f"{A}content")
            )  # no relative URLs
            for name in ("published", "updated"):
                assert datetime.fromisoformat(entry.findtext(f"{A}{name}")).tzinfo
        assert all(category.get("term") for category in feed.iter(f"{A}category"))


def test_rss_conforms_to_rss_2(ada):
    for path in output_paths(ada, "rss").values():
        root = etree.fromstring(ada.get(path).body)
        assert (root.tag, root.get("version")) == ("rss", "2.0")
        (channel,) = root
        assert all(channel.findtext(name) for name in ("title", "link", "description"))
        assert parsedate_to_datetime(channel.findtext("lastBuildDate"))
        assert channel.find(f"{A}link[@rel='self']").get("href").endswith(path)
        guids = [item.find("guid") for item in channel.findall("item")]
        assert len({guid.text for guid in guids}) == len(guids) > 0
        assert all(guid.get("isPermaLink") == "false" for guid in guids)
        for item in channel.findall("item"):
            assert item.findtext("title")
            assert item.findtext(f"{DC}creator")  # <author> must be an email address
            assert parsedate_to_datetime(item.findtext("pubDate"))
            assert len(item.findall("enclosure")) <= 1
            assert all(
                file.get("url") and file.get("length").isdecimal()
                for file in item.findall("enclosure")
            )


def test_json_feed_conforms_to_version_1_1(ada):
    for path in output_paths(ada, "json").values():
        feed = ada.get(path).json
        assert feed["version"] == "https://jsonfeed.org/version/1.1"
        assert feed["title"]
        assert feed["feed_url"].endswith(path)
        assert feed["hubs"][0]["type"] == "WebSub"
        assert len({item["id"] for item in feed["items"]}) == len(feed["items"]) > 0
        assert all(
            item["content_html"] and datetime.fromisoformat(item["date_published"]).tzinfo
            for item in feed["items"]
        )


def test_empty_view_has_creation_date_of_user(bob):
    feed = etree.fromstring(bob.get(output_paths(bob, "atom")["Starred"]).body)
    assert feed.find(f"{A}entry") is None
    updated = datetime.fromisoformat(feed.findtext(f"{A}updated"))
    assert updated.year > 2020  # W3C's validator rejects implausible dates


def test_output_feed_has_entries_of_its_view(reader_server, ada):
    found = output_paths(ada, "json")
    assert [item["id"] for item in ada.get(found["Starred"]).json["items"]] == [
        f"http://127.0.0.1:{reader_server.port}/entry/{reader_server.entry}"
    ]
    assert {"r&d <b>", "näher"} <= set(ada.get(found["näher"]).json["items"][0]["tags"])
    assert len(ada.get(found["Birds & bees"]).json["items"]) == 20
    assert all("kettle" in str(item).lower() for item in ada.get(found["kettle"]).json["items"])


def test_opml_conforms_to_version_2(ada):
    answer = ada.get("/feeds/export.opml")
    assert answer.headers["Content-Type"].startswith("text/x-opml")
    root = etree.fromstring(answer.body)
    assert (root.tag, root.get("version")) == ("opml", "2.0")
    assert root.findtext("head/title")
    assert root.find("body/outline[@text='Birds & bees']/outline").get("text") == "Tom & Jerry <3"
    for outline in root.iter("outline"):
        assert outline.get("text")
        if len(outline) == 0:
            assert outline.get("type") == "rss"
            assert urlsplit(outline.get("xmlUrl")).scheme == "http"


# --- conditional requests and delta encoding ------------------------------------------------------


def publish_and_poll(client, blogs, feed, number):
    """Let a blog publish, poll its feed, and return the ids of the new entries."""
    before = set(client.get(f"/feed/{feed}?show=all").entries)
    blogs.advance_until_posts(number)
    client.post(f"/feed/{feed}/poll")
    return set(client.get(f"/feed/{feed}?show=all").entries) - before


def ids(answer):
    found = [
        entry.findtext(f"{A}id") for entry in etree.fromstring(answer.body).findall(f"{A}entry")
    ]
    return {int(url.rpartition("/")[2]) for url in found}


def test_unchanged_feed_gets_304(ada):
    path = output_paths(ada, "atom")["All posts"]
    first = ada.get(path)
    for etag in (
        first.headers["ETag"],
        f"W/{first.headers['ETag']}",
        f'"other", {first.headers["ETag"]}',
    ):
        again = ada.get(path, If_None_Match=etag)
        assert (again.status, again.body, again.headers["ETag"]) == (
            304,
            b"",
            first.headers["ETag"],
        )
    later = formatdate(
        parsedate_to_datetime(first.headers["Last-Modified"]).timestamp() + 1, usegmt=True
    )
    assert ada.get(path, If_Modified_Since=later).status == 304
    # RFC 9110: If-Modified-Since is ignored if there is an If-None-Match.
    assert ada.get(path, If_None_Match='"other"', If_Modified_Since=later).status == 200
    for nonsense in ("yesterday", "Mon, 99 Foo 2026 00:00:00 GMT"):
        assert ada.get(path, If_Modified_Since=nonsense).status == 200


def test_delta_encoding_sends_only_new_entries(reader_server, ada, blogs):
    path = output_paths(ada, "atom")["Birds & bees"]
    first = ada.get(path)
    new_ids = publish_and_poll(ada, blogs, reader_server.two, 2)
    assert new_ids
    delta = ada.get(path, If_None_Match=first.headers["ETag"], A_IM="vcdiff, feed")
    assert (delta.status, delta.headers["IM"]) == (226, "feed")
    assert ids(delta) == new_ids
    # Caches that do not support RFC 3229 must not store it as the full feed.
    assert "no-store" in delta.headers["Cache-Control"]
    assert len(delta.body) < len(first.body) / 2
    assert ada.get(path, If_None_Match=delta.headers["ETag"], A_IM="feed").status == 304
    by_date = ada.get(path, If_Modified_Since=first.headers["Last-Modified"], A_IM="feed")
    # All entries if the first ones arrived within the same second.
    assert (by_date.status in (200, 226), new_ids <= ids(by_date)) == (True, True)
    long_ago = ada.get(path, If_None_Match='"1-1000-aaaaaaaaaaaa"', A_IM="feed")
    # All entries are new to this client, so the response is the full feed.
    assert (long_ago.status, len(ids(long_ago))) == (200, len(ids(first)) + len(new_ids))

    full = ada.get(path, If_None_Match=first.headers["ETag"])  # without A-IM
    assert (full.status, full.headers.get("IM")) == (200, None)
    assert len(ids(full)) > len(new_ids)
    assert ada.get(path, A_IM="feed").status == 200  # the client's version is unknown
    assert ada.get(path, If_None_Match='"made-up"', A_IM="feed").status == 200
    assert ada.get(path, If_None_Match=first.headers["ETag"], A_IM="gzip").status == 200


def test_view_not_sorted_by_arrival_is_sent_in_full(ada):
    path = output_paths(ada, "atom")["Starred"]
    first = ada.get(path)
    older = ada.get("/all").entries[-1]
    ada.post(f"/entry/{older}", star="1")
    answer = ada.get(path, If_None_Match=first.headers["ETag"], A_IM="feed")
    assert (answer.status, older in ids(answer)) == (200, True)


def test_links_are_signed_and_can_be_reset(reader_server, ada, bob):
    path = output_paths(ada, "rss")["All posts"]
    anonymous_client = reader_server.client()
    assert anonymous_client.get(path).status == 200
    assert anonymous_client.get(path.replace("/all", "/starred")).status == 404
    assert anonymous_client.get(path.replace("/out/1/", "/out/2/")).status == 404
    assert anonymous_client.get(path.replace(".rss", ".html")).status == 404
    assert anonymous_client.get("/out/1//all.rss").status == 404
    ada.post("/settings/outputs")
    assert anonymous_client.get(path).status == 404
    assert anonymous_client.get(output_paths(ada, "rss")["All posts"]).status == 200
    assert "Tom" not in str(output_paths(bob, "rss"))
