"""`tidings serve`: real HTTP on the loopback address, a free port each time."""

import http.client
import json
import re
import signal
import socket
import subprocess
import threading
from urllib.parse import urlsplit

import pytest

from tests.cli.conftest import TIDINGS
from tests.worlds import poisson_trace
from tidings.policy import POLICIES
from tidings.service import Server
from tidings.web.comparison import STEPS


@pytest.fixture(scope="module")
def server():
    """The server in a thread, on a trace that is quick to replay."""
    made = []

    def make_trace(kind, seed):
        made.append((kind, seed))
        return poisson_trace([0.5, 2, 8], 21, seed=seed, window=5)

    with Server("127.0.0.1", 0, make_trace) as server:
        server.made = made
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def get(server, target, method="GET"):
    connection = http.client.HTTPConnection(*server.server_address[:2], timeout=60)
    connection.request(method, target)
    response = connection.getresponse()
    body = response.read().decode()
    connection.close()
    return response, body


def test_the_page_names_every_policy_and_asks_nothing_of_others(server):
    response, body = get(server, "/")
    assert response.status == 200
    for name, policy in POLICIES.items():
        assert f'value="{name}"' in body
        assert policy.summary.split("(")[0].strip().split("'")[0] in body
    assert "<script" not in body
    assert re.findall(r"(?:src|href|action)=\"(?!/)[^\"]*", body) == []
    policy = response.headers["Content-Security-Policy"]
    assert policy.startswith("default-src 'none'")
    assert "unsafe" not in policy
    assert response.headers["X-Content-Type-Options"] == "nosniff"


def test_style_and_icon_are_our_own(server):
    for target, kind in (("/style.css", "text/css; charset=utf-8"), ("/icon.svg", "image/svg+xml")):
        response, body = get(server, target)
        assert (response.status, response.headers["Content-Type"]) == (200, kind)
        assert "http" not in body.replace("http://www.w3.org/2000/svg", "")


def test_a_comparison_has_a_table_and_a_curve(server):
    response, body = get(server, "/?policies=uniform&policies=min-delay&budget=2&trace=homogeneous&seed=3")
    assert response.status == 200
    assert server.made[-1] == ("homogeneous", 3)
    assert '<th scope="row">min-delay</th>' in body
    assert body.count("<polyline") == 3  # two policies and the limit
    assert "<desc id=" in body
    assert 'value="min-delay" checked' in body


def test_data_behind_the_picture(server):
    _, body = get(server, "/?policies=uniform&budget=2")
    link = re.search(r'href="(/compare\.json\?[^"]*)"', body).group(1).replace("&amp;", "&")
    response, text = get(server, link)
    assert response.headers["Content-Type"] == "application/json"
    data = json.loads(text)
    assert [at["budget"] for at in data["curve"]] == [2 * step for step in STEPS]
    assert data["curve"][0]["results"][0]["policy"] == "uniform"


def test_the_same_question_is_computed_once(server):
    before = len(server.made)
    for _ in range(2):
        get(server, "/?policies=uniform&budget=3&seed=77")
    assert len(server.made) == before + 1


@pytest.mark.parametrize(
    ("query", "sentence"),
    [
        ("policies=best", "There is no policy &#x27;best&#x27;; choose from"),
        ("policies=", "Choose 1 to 5 policies, not 0."),
        ("policies=uniform,min-delay,combined,fixed,lru-2,price", "Choose 1 to 5 policies, not 6."),
        ("policies=fixed:interval_h=0.0001", "There is no policy"),
        ("budget=much", "The budget must be a number, not &#x27;much&#x27;."),
        ("budget=0", "The budget must be between 0.1 and 12 polls per feed and day, not 0."),
        ("budget=1e9", "The budget must be between"),
        ("budget=nan", "The budget must be a finite number"),
        ("seed=1.5", "The seed must be a whole number"),
        ("seed=-1", "The seed must be a whole number"),
        ("trace=%3Cscript%3E", "There is no trace &#x27;&lt;script&gt;&#x27;"),
        ("colour=red", "There is no parameter &#x27;colour&#x27;"),
    ],
)
def test_bad_parameters_get_a_clear_sentence(server, query, sentence):
    response, body = get(server, f"/?{query}")
    assert response.status == 400
    assert sentence in body
    assert "<script" not in body


def test_bad_parameters_of_the_data(server):
    response, body = get(server, "/compare.json?budget=0")
    assert response.status == 400
    assert "between 0.1 and 12" in json.loads(body)["error"]


def test_other_addresses_and_methods(server):
    assert get(server, "/nothing")[0].status == 404
    assert get(server, "/?x=" + "y" * 3000)[0].status == 414
    assert get(server, "/?" + "&".join(f"a{i}=1" for i in range(99)))[0].status == 400
    assert get(server, "/", method="POST")[0].status == 501
    response, body = get(server, "/", method="HEAD")
    assert (response.status, body) == (200, "")
    assert int(response.headers["Content-Length"]) > 1000


# --- the command --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ending", [signal.SIGTERM, signal.SIGINT])
def test_serves_until_told_to_stop(ending):
    command = [TIDINGS, "serve", "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            said = process.stdout.readline()  # the line comes once the socket listens
            address = urlsplit(re.search(r"http://\S+", said).group())
            connection = http.client.HTTPConnection(address.hostname, address.port, timeout=60)
            connection.request("GET", "/")
            assert connection.getresponse().status == 200
            process.send_signal(ending)
            out, err = process.communicate(timeout=60)
        finally:
            process.kill()
    assert (process.returncode, out, err) == (0, "stopped\n", "")


def test_a_port_in_use_says_what_to_do(installed):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        result = installed("serve", "--port", port)
    assert result.returncode == 2
    assert (
        result.stderr
        == f"tidings: port {port} is in use; stop what listens there, or choose another with --port (0 picks a free one)\n"
    )


def test_addresses_that_cannot_be_served(installed):
    assert "is not an address of this machine" in installed("serve", "--host", "192.0.2.1", "--port", "0").stderr
    assert installed("serve", "--port", "70000").returncode == 2
