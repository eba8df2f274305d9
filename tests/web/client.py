"""Test client for pages: keeps the session cookie and sends forms with their CSRF token."""

import base64
import http.client
import json
import re
import time
from dataclasses import dataclass
from urllib.parse import urlencode

from tests import TEST_TIMEOUT_S

PASSWORD = "correct horse"


def wait_until(condition, timeout_s=TEST_TIMEOUT_S):
    """Wait until ``condition()`` is true; return its value."""
    deadline = time.monotonic() + timeout_s
    while not (value := condition()):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return value


def basic(name, password=PASSWORD, encoding="utf-8"):
    """Headers of HTTP Basic authentication."""
    return {
        "Authorization": "Basic " + base64.b64encode(f"{name}:{password}".encode(encoding)).decode()
    }


@dataclass
class Page:
    """Response of the server."""

    status: int
    headers: http.client.HTTPMessage
    text: str
    body: bytes

    @property
    def redirect_path(self):
        return self.headers.get("Location", "")

    @property
    def json(self):
        return json.loads(self.text)

    @property
    def entries(self):
        """Entry ids in the list, in order."""
        return [int(found) for found in re.findall(r'<li id="e(\d+)"', self.text)]

    @property
    def unread(self):
        return [
            int(found) for found in re.findall(r'<li id="e(\d+)" class="entry unread', self.text)
        ]

    def link(self, pattern):
        """Return the first link that matches the pattern."""
        return re.search(rf'href="({pattern})"', self.text).group(1).replace("&amp;", "&")


class UserClient:
    """A user: ``ada.get("/unread")``, ``ada.post("/entry/1", star="1")``, ``ada.subscribe(u)``."""

    def __init__(self, port, name=""):
        self.port, self.name, self.cookie = port, name, ""
        self._csrf = ""

    def request(self, method, path, body=None, **headers):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=TEST_TIMEOUT_S)
        headers = {name.replace("_", "-"): value for name, value in headers.items()}
        if self.cookie:
            headers["Cookie"] = f"tidings={self.cookie}"
        connection.request(method, path, body, headers)
        response = connection.getresponse()
        content = response.read()
        connection.close()
        for cookie in response.headers.get_all("Set-Cookie", []):
            self.cookie = re.match('tidings="?([^";]*)', cookie).group(1)
            self._csrf = ""
        return Page(response.status, response.headers, content.decode("utf-8", "replace"), content)

    def get(self, path, **headers):
        return self.request("GET", path, **headers)

    def token(self, at="/settings"):
        if not self._csrf:
            self._csrf = re.search(r'name="csrf" value="([^"]+)"', self.get(at).text).group(1)
        return self._csrf

    def post(self, path, fields=None, accept="text/html", at="/settings", **more):
        form = {"csrf": self.token(at), **(fields or {}), **more}
        kind = "application/x-www-form-urlencoded"
        return self.request(
            "POST", path, urlencode(form, doseq=True), Content_Type=kind, Accept=accept
        )

    def send_file(self, path, name, content):
        """Upload a file as multipart/form-data."""
        field = f'--cut\r\nContent-Disposition: form-data; name="csrf"\r\n\r\n{self.token()}\r\n'
        head = (
            f'--cut\r\nContent-Disposition: form-data; name="{name}"; filename="a.opml"\r\n'
            "Content-Type: text/xml\r\n\r\n"
        )
        body = field.encode() + head.encode() + content + b"\r\n--cut--\r\n"
        return self.request("POST", path, body, Content_Type="multipart/form-data; boundary=cut")

    def create_admin(self):
        """Create the first user (administrator) on the setup page."""
        answer = self.post("/setup", name=self.name, password=PASSWORD, again=PASSWORD, at="/")
        assert answer.redirect_path == "/welcome", answer.text
        return self

    def log_in(self, password=PASSWORD):
        self.cookie, self._csrf = "", ""
        return self.post("/login", name=self.name, password=password, at="/login")

    def add_user(self, name):
        assert self.post("/users", do="add", name=name, password=PASSWORD).redirect_path == "/users"
        client = UserClient(self.port, name)
        assert client.log_in().redirect_path == "/unread"
        return client

    def subscribe(self, url):
        """Subscribe to a feed and wait until it is fetched; return its id."""
        answer = self.post("/feeds/add", url=url)
        assert answer.redirect_path.startswith("/feed/"), answer.text
        return int(answer.redirect_path.rpartition("/")[2])
