"""Who gets in: the first run, logging in and out, forms of ours, names that mean us."""

import pytest

from tests.local_server import LocalServer, rss
from tests.web.client import PASSWORD
from tests.web.conftest import ReaderServer
from tidings.web.app import is_allowed_host
from tidings.web.request_context import safe_redirect_path


def test_the_first_who_comes_becomes_the_administrator_and_from_then_on_one_has_to_log_in(tmp_path):
    with ReaderServer(tmp_path) as server:
        ada = server.client("ada")
        assert ada.get("/unread").redirect_path == "/"
        assert ada.get("/login").redirect_path == "/"
        assert "you will be the administrator" in ada.get("/").text
        refused = ada.post("/setup", name="ada", password=PASSWORD, again="another", at="/")
        assert (refused.status, "are not the same" in refused.text) == (400, True)
        assert (
            "8 to 256 characters"
            in ada.post("/setup", name="ada", password="short", again="short", at="/").text
        )
        ada.create_admin()
        assert ada.get("/").redirect_path == "/unread"
        assert "What would you like to read?" in ada.get("/welcome").text
        assert "You follow nothing yet." in ada.get("/unread").text

        eve = server.client("eve")
        assert eve.get("/").redirect_path == "/login"
        assert eve.get("/feed/3?show=all").redirect_path == "/login?next=/feed/3%3Fshow%3Dall"
        assert (
            eve.post("/setup", name="eve", password=PASSWORD, again=PASSWORD, at="/login").status
            == 403
        )
        assert eve.log_in("guess").status == 403
        assert "do not belong together" in eve.log_in("guess").text

        again = server.client("ada")
        assert (
            again.post(
                "/login", name="ada", password=PASSWORD, next="/starred", at="/login"
            ).redirect_path
            == "/starred"
        )
        assert again.post("/logout").redirect_path == "/login"
        assert again.get("/unread").redirect_path == "/login?next=/unread"
        assert ada.get("/unread").status == 200  # the other browser is still in


CONTACT = "https://ada.example/about"
FIELD = 'name="contact_url"'


def test_the_first_page_asks_for_a_contact_that_publishers_then_see(tmp_path):
    with ReaderServer(tmp_path) as server, UserAgentRecorder() as publisher:
        ada = server.client("ada")
        page = ada.get("/").text
        assert FIELD in page
        assert "before they block this reader" in page
        assert "TIDINGS_FETCH_CONTACT_URL" in page
        form = {"name": "ada", "password": PASSWORD, "again": PASSWORD, "at": "/"}
        refused = ada.post("/setup", contact_url="me@ada.example", **form)
        assert (refused.status, "The contact must be a web address" in refused.text) == (400, True)
        assert 'value="me@ada.example"' in refused.text
        assert ada.post("/setup", contact_url=f" {CONTACT} ", **form).redirect_path == "/welcome"
        assert FIELD not in ada.get("/welcome").text
        ada.subscribe(f"{publisher.address}/feed")
        assert f"(+{CONTACT}; " in publisher.agents[-1]
    with ReaderServer(tmp_path) as server, UserAgentRecorder() as publisher:  # and after a restart
        ada = server.client("ada")
        ada.log_in()
        ada.subscribe(f"{publisher.address}/feed")
        assert f"(+{CONTACT}; " in publisher.agents[-1]


def test_an_admin_who_gave_no_contact_is_asked_on_the_welcome_page_and_nobody_else(tmp_path):
    with ReaderServer(tmp_path) as server, UserAgentRecorder() as publisher:
        ada = server.client("ada").create_admin()
        bob = ada.add_user("bob")
        assert FIELD in ada.get("/welcome").text
        assert FIELD not in bob.get("/welcome").text
        assert bob.post("/settings/contact", contact_url="https://bob.example/").status == 403
        assert ada.post("/settings/contact", contact_url="nonsense").status == 400
        assert ada.post("/settings/contact", contact_url=CONTACT).redirect_path == "/welcome"
        assert FIELD not in ada.get("/welcome").text
        ada.post("/settings/contact", contact_url="https://other.example/")  # one is enough
        ada.subscribe(f"{publisher.address}/feed")
        assert f"(+{CONTACT}; " in publisher.agents[-1]


@pytest.mark.parametrize("option", ["fetch.contact_url", "serve.public_url"])
def test_nobody_is_asked_for_a_contact_that_the_configuration_has(tmp_path, option):
    with (
        ReaderServer(tmp_path, **{option: "https://reader.example"}) as server,
        UserAgentRecorder() as publisher,
    ):
        ada = server.client("ada")
        assert FIELD not in ada.get("/").text
        form = {"name": "ada", "password": PASSWORD, "again": PASSWORD, "at": "/"}
        assert ada.post("/setup", contact_url=CONTACT, **form).redirect_path == "/welcome"
        assert FIELD not in ada.get("/welcome").text
        ada.subscribe(f"{publisher.address}/feed")
        assert "(+https://reader.example; " in publisher.agents[-1]


class UserAgentRecorder(LocalServer):
    """A publisher that notes who asks."""

    def __init__(self):
        super().__init__()
        self.agents = []

    def answer(self, request):
        self.agents.append(request.headers["User-Agent"])
        return (
            200,
            "application/rss+xml",
            rss("Feed", ["<item><guid>1</guid><title>Post</title></item>"]),
        )


def test_guessing_is_slow(reader_server):
    eve = reader_server.client("bob")
    for _ in range(5):
        assert "do not belong together" in eve.log_in("guess").text
    assert "too many failed log-ins" in eve.log_in().text.lower()


def test_apps_that_come_through_one_proxy_are_told_apart(reader_server):
    def guess(address):
        return (
            reader_server.client()
            .get("/v1/me", Authorization="Basic em9lOmd1ZXNz", X_Forwarded_For=address)
            .status
        )

    assert [guess("203.0.113.9") for _ in range(6)] == [401] * 5 + [429]
    assert guess("203.0.113.10") == 401


def test_the_cookie_is_kept_from_scripts_and_from_other_sites(tmp_path):
    with ReaderServer(tmp_path) as server:
        ada = server.client("ada").create_admin()
        cookie = ada.log_in().headers["Set-Cookie"].lower()
        assert "httponly" in cookie
        assert "samesite=lax" in cookie
        assert "secure" not in cookie
    public = ReaderServer(tmp_path, **{"serve.public_url": "https://reader.example"})
    with public as server:
        assert "secure" in server.client("ada").log_in().headers["Set-Cookie"].lower()


def test_changing_the_password_ends_all_other_sessions(tmp_path):
    with ReaderServer(tmp_path) as server:
        ada = server.client("ada").create_admin()
        phone = server.client("ada")
        phone.log_in()
        assert (
            ada.post(
                "/settings/password", old="wrong", password="new password", again="new password"
            ).status
            == 403
        )
        assert (
            ada.post(
                "/settings/password", old=PASSWORD, password="new password", again="other"
            ).status
            == 400
        )
        changed = ada.post(
            "/settings/password", old=PASSWORD, password="new password", again="new password"
        )
        assert changed.redirect_path == "/settings"
        assert ada.get("/unread").status == 200
        assert phone.get("/unread").redirect_path.startswith("/login")


def test_a_form_without_our_token_or_from_elsewhere_does_nothing(reader_server, ada):
    kind = {"Content_Type": "application/x-www-form-urlencoded"}
    token = ada.token()
    assert ada.request("POST", "/folders", "do=add&name=forged", **kind).status == 403
    assert (
        ada.request(
            "POST",
            "/folders",
            f"csrf={token}&do=add&name=forged",
            Origin="https://evil.example",
            **kind,
        ).status
        == 403
    )
    assert (
        ada.request(
            "POST", "/folders", f"csrf={reader_server.bob.token()}&do=add&name=forged", **kind
        ).status
        == 403
    )
    assert "forged" not in ada.get("/feeds").text
    ours = f"http://127.0.0.1:{reader_server.port}"
    assert (
        ada.request(
            "POST", "/folders", f"csrf={token}&do=add&name=mine", Origin=ours, **kind
        ).status
        == 303
    )
    assert (
        token != ada.get("/settings").text.partition('csrf" value="')[2].partition('"')[0]
    )  # salted anew


def test_names_that_anybody_could_point_at_us_are_refused(reader_server, ada):
    refused = ada.get("/unread", Host="rebound.example")
    assert (refused.status, "serve.public_url" in refused.text) == (421, True)
    assert ada.get("/unread", Host=f"localhost:{reader_server.port}").status == 200


@pytest.mark.parametrize(
    "host", ["127.0.0.1:80", "[::1]:8035", "192.0.2.7", "nas", "nas.local:8035", "reader.example"]
)
def test_addresses_and_our_own_names_are_ours(host):
    assert is_allowed_host(host, "reader.example")


@pytest.mark.parametrize(
    "host", ["", "evil.example", "reader.example.evil.example", "1.2.3.4.evil.example:80"]
)
def test_other_names_are_not(host):
    assert is_allowed_host(host, "reader.example") is (host == "")


@pytest.mark.parametrize(
    "path", ["https://evil.example", "//evil.example", "/\\evil.example", "evil", "/a\nb", ""]
)
def test_nobody_is_led_away(path):
    assert safe_redirect_path(path) == ""


def test_every_answer_forbids_foreign_scripts_and_frames(ada):
    for path in ("/unread", "/login", "/nothing", "/settings"):
        page = ada.get(path)
        policy = page.headers["Content-Security-Policy"]
        assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self'")
        assert "frame-ancestors 'none'" in policy
        assert "unsafe" not in policy
        assert page.headers["X-Content-Type-Options"] == "nosniff"
        assert " style=" not in page.text
        assert " on" + "click" not in page.text


def test_administrators_invite_promote_and_remove(tmp_path):
    with ReaderServer(tmp_path) as server:
        ada = server.client("ada").create_admin()
        bob = ada.add_user("bob")
        assert bob.get("/users").status == 403
        assert bob.post("/users", do="add", name="mallory", password=PASSWORD).status == 403
        assert ada.post("/users", do="admin", id=2, admin="1").redirect_path == "/users"
        assert bob.get("/users").status == 200
        assert (
            ada.post("/users", do="password", id=2, password="another one").redirect_path
            == "/users"
        )
        assert bob.get("/unread").redirect_path.startswith("/login")
        assert ada.post("/users", do="remove", id=2).redirect_path == "/users"
        assert bob.log_in("another one").status == 403
        assert ada.post("/users", do="remove", id=1).status == 400  # the last administrator stays
