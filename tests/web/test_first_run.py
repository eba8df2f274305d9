"""Who gets in: the first run, logging in and out, forms of ours, names that mean us."""

import pytest

from tests.sites import Site, rss
from tests.web.conftest import Serving
from tests.web.people import PASSWORD
from tidings.web.app import is_our_name
from tidings.web.visit import local


def test_the_first_who_comes_becomes_the_administrator_and_from_then_on_one_has_to_log_in(tmp_path):
    with Serving(tmp_path) as serving:
        ada = serving.person("ada")
        assert ada.get("/unread").goes_to == "/"
        assert ada.get("/login").goes_to == "/"
        assert "you will be the administrator" in ada.get("/").text
        refused = ada.post("/setup", name="ada", password=PASSWORD, again="another", at="/")
        assert (refused.status, "are not the same" in refused.text) == (400, True)
        assert "8 to 256 characters" in ada.post("/setup", name="ada", password="short", again="short", at="/").text
        ada.begin()
        assert ada.get("/").goes_to == "/unread"
        assert "What would you like to read?" in ada.get("/welcome").text
        assert "You follow nothing yet." in ada.get("/unread").text

        eve = serving.person("eve")
        assert eve.get("/").goes_to == "/login"
        assert eve.get("/feed/3?show=all").goes_to == "/login?next=/feed/3%3Fshow%3Dall"
        assert eve.post("/setup", name="eve", password=PASSWORD, again=PASSWORD, at="/login").status == 403
        assert eve.log_in("guess").status == 403
        assert "do not belong together" in eve.log_in("guess").text

        again = serving.person("ada")
        assert again.post("/login", name="ada", password=PASSWORD, next="/starred", at="/login").goes_to == "/starred"
        assert again.post("/logout").goes_to == "/login"
        assert again.get("/unread").goes_to == "/login?next=/unread"
        assert ada.get("/unread").status == 200  # the other browser is still in


CONTACT = "https://ada.example/about"
FIELD = 'name="contact_url"'


def test_the_first_page_asks_for_a_contact_that_publishers_then_see(tmp_path):
    with Serving(tmp_path) as serving, Agents() as publisher:
        ada = serving.person("ada")
        page = ada.get("/").text
        assert FIELD in page
        assert "before they block this reader" in page
        assert "TIDINGS_FETCH_CONTACT_URL" in page
        form = {"name": "ada", "password": PASSWORD, "again": PASSWORD, "at": "/"}
        refused = ada.post("/setup", contact_url="me@ada.example", **form)
        assert (refused.status, "The contact must be a web address" in refused.text) == (400, True)
        assert 'value="me@ada.example"' in refused.text
        assert ada.post("/setup", contact_url=f" {CONTACT} ", **form).goes_to == "/welcome"
        assert FIELD not in ada.get("/welcome").text
        ada.follow(f"{publisher.address}/feed")
        assert f"(+{CONTACT}; " in publisher.agents[-1]
    with Serving(tmp_path) as serving, Agents() as publisher:  # and after a restart
        ada = serving.person("ada")
        ada.log_in()
        ada.follow(f"{publisher.address}/feed")
        assert f"(+{CONTACT}; " in publisher.agents[-1]


def test_an_admin_who_gave_no_contact_is_asked_on_the_welcome_page_and_nobody_else(tmp_path):
    with Serving(tmp_path) as serving, Agents() as publisher:
        ada = serving.person("ada").begin()
        bob = ada.invite("bob")
        assert FIELD in ada.get("/welcome").text
        assert FIELD not in bob.get("/welcome").text
        assert bob.post("/settings/contact", contact_url="https://bob.example/").status == 403
        assert ada.post("/settings/contact", contact_url="nonsense").status == 400
        assert ada.post("/settings/contact", contact_url=CONTACT).goes_to == "/welcome"
        assert FIELD not in ada.get("/welcome").text
        ada.post("/settings/contact", contact_url="https://other.example/")  # one is enough
        ada.follow(f"{publisher.address}/feed")
        assert f"(+{CONTACT}; " in publisher.agents[-1]


@pytest.mark.parametrize("option", ["fetch.contact_url", "serve.public_url"])
def test_nobody_is_asked_for_a_contact_that_the_configuration_has(tmp_path, option):
    with Serving(tmp_path, **{option: "https://reader.example"}) as serving, Agents() as publisher:
        ada = serving.person("ada")
        assert FIELD not in ada.get("/").text
        form = {"name": "ada", "password": PASSWORD, "again": PASSWORD, "at": "/"}
        assert ada.post("/setup", contact_url=CONTACT, **form).goes_to == "/welcome"
        assert FIELD not in ada.get("/welcome").text
        ada.follow(f"{publisher.address}/feed")
        assert "(+https://reader.example; " in publisher.agents[-1]


class Agents(Site):
    """A publisher that notes who asks."""

    def __init__(self):
        super().__init__()
        self.agents = []

    def answer(self, request):
        self.agents.append(request.headers["User-Agent"])
        return 200, "application/rss+xml", rss("Feed", ["<item><guid>1</guid><title>Post</title></item>"])


def test_guessing_is_slow(house):
    eve = house.person("bob")
    for _ in range(5):
        assert "do not belong together" in eve.log_in("guess").text
    assert "too many failed log-ins" in eve.log_in().text.lower()


def test_apps_that_come_through_one_proxy_are_told_apart(house):
    def guess(address):
        return house.person().get("/v1/me", Authorization="Basic em9lOmd1ZXNz", X_Forwarded_For=address).status

    assert [guess("203.0.113.9") for _ in range(6)] == [401] * 5 + [429]
    assert guess("203.0.113.10") == 401


def test_the_cookie_is_kept_from_scripts_and_from_other_sites(tmp_path):
    with Serving(tmp_path) as serving:
        ada = serving.person("ada").begin()
        cookie = ada.log_in().headers["Set-Cookie"].lower()
        assert "httponly" in cookie
        assert "samesite=lax" in cookie
        assert "secure" not in cookie
    public = Serving(tmp_path, **{"serve.public_url": "https://reader.example"})
    with public as serving:
        assert "secure" in serving.person("ada").log_in().headers["Set-Cookie"].lower()


def test_changing_the_password_ends_all_other_sessions(tmp_path):
    with Serving(tmp_path) as serving:
        ada = serving.person("ada").begin()
        phone = serving.person("ada")
        phone.log_in()
        assert ada.post("/settings/password", old="wrong", password="new password", again="new password").status == 403
        assert ada.post("/settings/password", old=PASSWORD, password="new password", again="other").status == 400
        changed = ada.post("/settings/password", old=PASSWORD, password="new password", again="new password")
        assert changed.goes_to == "/settings"
        assert ada.get("/unread").status == 200
        assert phone.get("/unread").goes_to.startswith("/login")


def test_a_form_without_our_token_or_from_elsewhere_does_nothing(house, ada):
    kind = {"Content_Type": "application/x-www-form-urlencoded"}
    token = ada.token()
    assert ada.ask("POST", "/folders", "do=add&name=forged", **kind).status == 403
    assert ada.ask("POST", "/folders", f"csrf={token}&do=add&name=forged", Origin="https://evil.example", **kind).status == 403
    assert ada.ask("POST", "/folders", f"csrf={house.bob.token()}&do=add&name=forged", **kind).status == 403
    assert "forged" not in ada.get("/feeds").text
    ours = f"http://127.0.0.1:{house.port}"
    assert ada.ask("POST", "/folders", f"csrf={token}&do=add&name=mine", Origin=ours, **kind).status == 303
    assert token != ada.get("/settings").text.partition('csrf" value="')[2].partition('"')[0]  # salted anew


def test_names_that_anybody_could_point_at_us_are_refused(house, ada):
    refused = ada.get("/unread", Host="rebound.example")
    assert (refused.status, "serve.public_url" in refused.text) == (421, True)
    assert ada.get("/unread", Host=f"localhost:{house.port}").status == 200


@pytest.mark.parametrize("host", ["127.0.0.1:80", "[::1]:8035", "192.0.2.7", "nas", "nas.local:8035", "reader.example"])
def test_addresses_and_our_own_names_are_ours(host):
    assert is_our_name(host, "reader.example")


@pytest.mark.parametrize("host", ["", "evil.example", "reader.example.evil.example", "1.2.3.4.evil.example:80"])
def test_other_names_are_not(host):
    assert is_our_name(host, "reader.example") is (host == "")


@pytest.mark.parametrize("path", ["https://evil.example", "//evil.example", "/\\evil.example", "evil", "/a\nb", ""])
def test_nobody_is_led_away(path):
    assert local(path) == ""


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
    with Serving(tmp_path) as serving:
        ada = serving.person("ada").begin()
        bob = ada.invite("bob")
        assert bob.get("/users").status == 403
        assert bob.post("/users", do="add", name="mallory", password=PASSWORD).status == 403
        assert ada.post("/users", do="admin", id=2, admin="1").goes_to == "/users"
        assert bob.get("/users").status == 200
        assert ada.post("/users", do="password", id=2, password="another one").goes_to == "/users"
        assert bob.get("/unread").goes_to.startswith("/login")
        assert ada.post("/users", do="remove", id=2).goes_to == "/users"
        assert bob.log_in("another one").status == 403
        assert ada.post("/users", do="remove", id=1).status == 400  # the last administrator stays
