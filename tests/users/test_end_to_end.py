"""End-to-end tests of the service: webhooks, proxy authentication, full text."""

import asyncio
import html
import json
import re
import time

from tests import TEST_TIMEOUT_S
from tests.cli.blogs import Blogs
from tests.cli.conftest import Tidings
from tests.local_server import LocalServer
from tests.users.conftest import require_extra
from tests.web.conftest import ReaderServer
from tidings.store import Store
from tidings.store.user_models import Settings
from tidings.users import UserService


def test_new_entries_are_posted_to_webhook(tmp_path):
    command = Tidings("--data-dir", tmp_path, "--set", "fetch.allow_private=true")
    added = command.run(
        "user", "add", "ann", "--admin", "--password-stdin", input="correct horse battery"
    )
    assert added.exit_code == 0, added.output

    async def save_settings(settings):
        async with Store.open(tmp_path / "tidings.db", clock=time.time) as store:
            user_service = UserService(store, time.time)
            await user_service.save_settings(await user_service.find_user("ann"), settings)

    with Blogs(1) as blogs, LocalServer() as site:
        command("add", blogs.url(1).replace("://", "://ann:hush@"))
        asyncio.run(save_settings(Settings(webhook_url=f"{site.address}/")))
        blogs.advance(30 * 86400)
        with ReaderServer(tmp_path) as serving:
            token = command("user", "token", "ann", "--label", "test").strip()
            refreshed, _ = serving.get(
                "/v1/feeds/1/refresh", "PUT", headers={"X-Auth-Token": token}
            )
            assert refreshed.status == 204
            deadline = time.monotonic() + TEST_TIMEOUT_S
            while not site.posted and time.monotonic() < deadline:
                time.sleep(0.05)
    payload = json.loads(site.posted[0].body)
    assert payload["event_type"] == "new_entries"
    # The password of the feed is redacted.
    assert payload["feed"]["feed_url"] == blogs.url(1).replace("://", "://ann:***@")
    assert payload["entries"]


def test_proxy_header_is_trusted_only_from_its_address(tmp_path):
    header = {"Remote-User": "ann", "Accept": "text/html"}
    for addresses, is_trusted in (("127.0.0.0/8, ::1", True), ("10.0.0.1", False)):
        folder = tmp_path / str(is_trusted)
        folder.mkdir()
        flags = {"serve.proxy_header": "Remote-User", "serve.proxy_addresses": addresses}
        command = Tidings("--data-dir", folder)
        command.run(
            "user", "add", "root", "--admin", "--password-stdin", input="correct horse battery"
        )
        with ReaderServer(folder, **flags) as serving:
            page, _ = serving.get("/unread", headers=header)
            anonymous, _ = serving.get("/unread")
        assert (page.status == 200) == is_trusted
        assert anonymous.status != 200
        assert [user["name"] for user in command.json("user", "list")] == ["ann", "root"][
            not is_trusted :
        ]


FEED = """<rss version="2.0"><channel><title>Birds</title><link>{site}</link>
<description>x</description>
<item><title>Herons</title><link>{site}/1</link><guid>1</guid>
<description>The beginning</description></item>
<item><title>Gone</title><link>{site}/2</link><guid>2</guid>
<description>Of another</description></item></channel></rss>"""


def test_full_text_is_loaded_on_page(tmp_path):
    require_extra("trafilatura", "fulltext")
    command = Tidings("--data-dir", tmp_path, "--set", "fetch.allow_private=true")
    with LocalServer() as site:
        site.pages["/feed"] = FEED.format(site=f"{site.address}")
        site.pages["/1"] = (
            f"<html><body><article><p>{'All that there is to say of herons. ' * 20}</p>"
            f"</article></body></html>"
        )
        command("add", f"{site.address}/feed")
        with ReaderServer(tmp_path) as serving:
            ann = serving.client("ann").create_admin()
            ids = {entry["title"]: entry["id"] for entry in command.json("entries")}
            herons, gone = ids["Herons"], ids["Gone"]
            (link,) = re.findall(
                r'class="full-text-link" href="([^"]+)"', ann.get(f"/feed/1?entry={herons}").text
            )
            assert "All that there is to say" in ann.get(html.unescape(link)).text
            failed = ann.get(f"/feed/1?entry={gone}&full_text=1").text
    assert "Of another" in failed
    assert "status 404" in failed
