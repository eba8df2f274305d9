"""Third-party client libraries: all their operations, checked through the other APIs."""

import freshrss_api
import libgreader
import miniflux
import pytest
from libgreader.auth import ClientAuthMethod
from libgreader.url import ReaderUrl

from tests.clients.conftest import entry_states
from tests.clients.servers import PASSWORD

ALL = {f"{blog} 2.0.{number}" for blog in ("Alpha", "Beta") for number in range(1, 5)}


@pytest.fixture(params=["password", "key"])
def client(service, app, request):
    credentials = (
        {"api_key": app.token}
        if request.param == "key"
        else {"username": app.name, "password": PASSWORD}
    )
    return miniflux.Client(service.address, **credentials)


def test_miniflux(client, app, blogs):
    assert client.me()["username"] == app.name
    assert client.get_version()["version"]
    result = client.get_entries(status=["unread"], order="published_at", direction="desc")
    assert (result["total"], {entry["title"] for entry in result["entries"]}) == (8, ALL)
    first, second, third = result["entries"][:3]
    client.update_entries([first["id"], second["id"]], "read")
    client.toggle_bookmark(third["id"])
    assert entry_states(app) == ({first["title"], second["title"]}, {third["title"]})
    assert [entry["id"] for entry in client.get_entries(starred=True)["entries"]] == [third["id"]]
    assert (
        client.get_entries(status=["read"], after_entry_id=min(first["id"], second["id"]))["total"]
        == 1
    )
    assert (
        client.update_entry(first["id"], title="In short", content="<p>So</p>")["title"]
        == "In short"
    )
    assert client.get_entry(first["id"])["content"] == "<p>So</p>"
    feed = client.get_entry(first["id"])["feed"]
    assert sum(client.get_feed_counters()["unreads"].values()) == 6
    client.mark_feed_entries_as_read(feed["id"])
    assert client.get_feed_entries(feed["id"], status=["unread"])["total"] == 0
    assert client.discover(blogs.site("gamma"))[0]["url"] == blogs.feed("gamma")
    category = client.create_category("Third")
    feed_id = client.create_feed(blogs.feed("gamma"), category["id"])
    assert client.get_feed(feed_id)["category"]["title"] == "Third"
    assert client.update_feed(feed_id, title="Mine")["title"] == "Mine"
    assert client.get_category_entries(category["id"])["total"] == 4
    client.refresh_feed(feed_id)
    assert blogs.feed("gamma") in client.export()
    client.delete_feed(feed_id)
    opml = f'<opml version="2.0"><body><outline xmlUrl="{blogs.feed("alpha")}"/></body></opml>'
    assert "imported" in client.import_feeds(opml)["message"]
    client.mark_user_entries_as_read(client.me()["id"])
    client.flush_history()
    assert client.get_entries(status=["unread"])["total"] == 0
    with pytest.raises(miniflux.ResourceNotFound):
        client.get_entry(10**9)


def test_wrong_key_raises_access_unauthorized(service):
    with pytest.raises(miniflux.AccessUnauthorized):
        miniflux.Client(service.address, api_key="guessed").me()


@pytest.fixture
def google(service, app, monkeypatch):
    """Replace the library's URLs of Google by those of the service."""
    monkeypatch.setattr(ClientAuthMethod, "CLIENT_URL", f"{service.address}/accounts/ClientLogin")
    for name, value in vars(ReaderUrl).items():
        if isinstance(value, str):
            monkeypatch.setattr(
                ReaderUrl, name, value.replace("https://www.google.com", service.address)
            )
    return libgreader.GoogleReader(ClientAuthMethod(app.name, PASSWORD))


def test_libgreader(google, app, blogs):
    assert google.getUserInfo()["userName"] == app.name
    assert google.buildSubscriptionList()
    feeds = {feed.title: feed for feed in google.getFeeds()}
    assert {(name, feed.unread) for name, feed in feeds.items()} == {("Alpha", 4), ("Beta", 4)}
    assert {category.label for category in google.getCategories()} == {"Greek"}
    feeds["Alpha"].loadItems()
    first, second = feeds["Alpha"].getItems()[:2]
    assert first.isUnread()
    assert first.markRead()
    assert second.star()
    assert entry_states(app) == ({first.title}, {second.title})
    assert first.markUnread()
    assert second.unStar()
    assert entry_states(app) == (set(), set())
    assert feeds["Beta"].markAllRead()
    feeds["Alpha"].loadItems(excludeRead=True)
    assert entry_states(app)[0] == {title for title in ALL if title.startswith("Beta")}
    google.makeSpecialFeeds()
    starred = google.getSpecialFeed(ReaderUrl.STARRED_LIST)
    assert second.star()
    starred.loadItems()
    assert [item.title for item in starred.getItems()] == [second.title]
    assert google.subscribe(blogs.feed("delta"))
    assert google.unsubscribe(blogs.feed("delta"))


def test_freshrss_api(service, app):
    """Fever API at the URL path of FreshRSS."""
    client = freshrss_api.FreshRSSAPI(service.address, app.name, app.token)
    assert {feed["title"] for feed in client.get_feeds()["feeds"]} == {"Alpha", "Beta"}
    assert [group["title"] for group in client.get_groups()["groups"]] == ["Greek"]
    first, second, *_ = unread = client.get_unreads()
    assert {item.title for item in unread} == ALL
    client.set_mark("read", first.id)
    client.set_mark("saved", second.id)
    assert entry_states(app) == ({first.title}, {second.title})
    assert [item.id for item in client.get_saved()] == [second.id]
    client.set_mark("unsaved", second.id)
    assert client.get_saved() == []
    with pytest.raises(freshrss_api.AuthenticationError):
        freshrss_api.FreshRSSAPI(service.address, app.name, PASSWORD)
