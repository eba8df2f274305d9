"""Setup, login and logout, CSRF and Host header checks, contact address, user management."""

import pytest

from tests.local_server import LocalServer, rss
from tests.web.client import PASSWORD
from tests.web.conftest import ReaderServer
from tidings.web.app import is_allowed_host
from tidings.web.request_context import safe_redirect_path


def test_first_user_becomes_administrator_and_others_must_log_in(tmp_path):
    with ReaderServer(tmp_path) as server:
        ada = server.client("ada")
        assert ada.get("/unread").redirect_path == "/"
        assert ada.get("/login").redirect_path == "/"
        assert "You will be the administrator" in ada.get("/").text
        refused = ada.post("/setup", name="ada", password=PASSWORD, again="another", at="/")
        assert (refused.status, "The passwords do not match" in refused.text) == (400, True)
        assert (
            "8 to 256 characters"
            in ada.post("/setup", name="ada", password="short", again="short", at="/").text
        )
        ada.create_admin()
        assert ada.get("/").redirect_path == "/unread"
        assert "Add your first feeds" in ada.get("/welcome").text
        assert "You have no feeds yet." in ada.get("/unread").text

        eve = server.client("eve")
        assert eve.get("/").redirect_path == "/login"
        assert eve.get("/feed/3?show=all").redirect_path == "/login?next=/feed/3%3Fshow%3Dall"
        assert (
            eve.post("/setup", name="eve", password=PASSWORD, again=PASSWORD, at="/login").status
            == 403
        )
        assert eve.log_in("guess").status == 403
        assert "Wrong user name or password" in eve.log_in("guess").text

        again = server.client("ada")
        assert (
            again.post(
                "/login", name="ada", password=PASSWORD, next="/starred", at="/login"
            ).redirect_path
            == "/starred"
        )
        assert again.post("/logout").redirect_path == "/login"
        assert again.get("/unread").redirect_path == "/login?next=/unread"
        assert ada.get("/unread").status == 200  # the other browser is still logged in


CONTACT = "https://ada.example/about"
FIELD = 'name="contact_url"'


def test_setup_contact_is_sent_to_publishers(tmp_path):
    with ReaderServer(tmp_path) as server, UserAgentRecorder() as publisher:
        ada = server.client("ada")
        page = ada.get("/").text
        assert FIELD in page
        assert "before they block tidings" in page
        assert "TIDINGS_FETCH_CONTACT_URL" in page
        form = {"name": "ada", "password": PASSWORD, "again": PASSWORD, "at": "/"}
        refused = ada.post("/setup", contact_url="me@ada.example", **form)
        assert (refused.status, "The contact must be a web address" in refused.text) == (400, True)
        assert 'value="me@ada.example"' in refused.text
        assert ada.post("/setup", contact_url=f" {CONTACT} ", **form).redirect_path == "/welcome"
        assert FIELD not in ada.get("/welcome").text
        ada.subscribe(f"{publisher.address}/feed")
        assert f"(+{CONTACT}; " in publisher.agents[-1]
    with ReaderServer(tmp_path) as server, UserAgentRecorder() as publisher:  # after a restart
        ada = server.client("ada")
        ada.log_in()
        ada.subscribe(f"{publisher.address}/feed")
        assert f"(+{CONTACT}; " in publisher.agents[-1]


def test_welcome_page_asks_only_admin_for_missing_contact(tmp_path):
    with ReaderServer(tmp_path) as server, UserAgentRecorder() as publisher:
        ada = server.client("ada").create_admin()
        bob = ada.add_user("bob")
        assert FIELD in ada.get("/welcome").text
        assert FIELD not in bob.get("/welcome").text
        assert bob.post("/settings/contact", contact_url="https://bob.example/").status == 403
        assert ada.post("/settings/contact", contact_url="nonsense").status == 400
        assert ada.post("/settings/contact", contact_url=CONTACT).redirect_path == "/welcome"
        assert FIELD not in ada.get("/welcome").text
        ada.post(
            "/settings/contact", contact_url="https://other.example/"
        )  # ignored: a contact is set
        ada.subscribe(f"{publisher.address}/feed")
        assert f"(+{CONTACT}; " in publisher.agents[-1]


@pytest.mark.parametrize("option", ["fetch.contact_url", "serve.public_url"])
def test_configured_contact_hides_the_contact_field(tmp_path, option):
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
    """Feed server that records the User-Agent headers."""

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


def test_failed_logins_are_rate_limited(reader_server):
    eve = reader_server.client("bob")
    for _ in range(5):
        assert "Wrong user name or password" in eve.log_in("guess").text
    assert "too many failed logins" in eve.log_in().text.lower()


def test_login_limit_uses_forwarded_address_behind_trusted_proxy(reader_server):
    def guess(address):
        return (
            reader_server.client()
            .get("/v1/me", Authorization="Basic em9lOmd1ZXNz", X_Forwarded_For=address)
            .status
        )

    assert [guess("203.0.113.9") for _ in range(6)] == [401] * 5 + [429]
    assert guess("203.0.113.10") == 401


def test_session_cookie_has_security_attributes(tmp_path):
    with ReaderServer(tmp_path) as server:
        ada = server.client("ada").create_admin()
        cookie = ada.log_in().headers["Set-Cookie"].lower()
        assert "httponly" in cookie
        assert "samesite=lax" in cookie
        assert "secure" not in cookie
    public = ReaderServer(tmp_path, **{"serve.public_url": "https://reader.example"})
    with public as server:
        assert "secure" in server.client("ada").log_in().headers["Set-Cookie"].lower()


def test_password_change_ends_other_sessions(tmp_path):
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


def test_form_without_csrf_token_or_from_other_origin_is_rejected(reader_server, ada):
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
    own_origin = f"http://127.0.0.1:{reader_server.port}"
    assert (
        ada.request(
            "POST", "/folders", f"csrf={token}&do=add&name=mine", Origin=own_origin, **kind
        ).status
        == 303
    )
    new_token = ada.get("/settings").text.partition('csrf" value="')[2].partition('"')[0]
    assert token != new_token  # every page has a new salt


def test_unknown_host_header_is_rejected(reader_server, ada):
    refused = ada.get("/unread", Host="rebound.example")
    assert (refused.status, "serve.public_url" in refused.text) == (421, True)
    assert ada.get("/unread", Host=f"localhost:{reader_server.port}").status == 200


@pytest.mark.parametrize(
    "host", ["127.0.0.1:80", "[::1]:8035", "192.0.2.7", "nas", "nas.local:8035", "reader.example"]
)
def test_allowed_host_headers(host):
    assert is_allowed_host(host, "reader.example")


@pytest.mark.parametrize(
    "host", ["", "evil.example", "reader.example.evil.example", "1.2.3.4.evil.example:80"]
)
def test_foreign_host_headers_are_not_allowed(host):
    assert is_allowed_host(host, "reader.example") is (host == "")


@pytest.mark.parametrize(
    "path", ["https://evil.example", "//evil.example", "/\\evil.example", "evil", "/a\nb", ""]
)
def test_unsafe_redirect_path_is_dropped(path):
    assert safe_redirect_path(path) == ""


def test_content_security_policy_forbids_foreign_scripts_and_frames(ada):
    for path in ("/unread", "/login", "/nothing", "/settings"):
        page = ada.get(path)
        policy = page.headers["Content-Security-Policy"]
        assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self'")
        assert "frame-ancestors 'none'" in policy
        assert "unsafe" not in policy
        assert page.headers["X-Content-Type-Options"] == "nosniff"
        assert " style=" not in page.text
        assert " on" + "click" not in page.text


def test_admin_adds_promotes_and_deletes_users(tmp_path):
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
        assert (
            ada.post("/users", do="remove", id=1).status == 400
        )  # the last administrator cannot be deleted
