"""The plug-in of docs/plugins.md, installed as documented, in the lab and in the service."""

import asyncio
import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests import TEST_TIMEOUT_S
from tests.live.feed_server import feed_server
from tidings.errors import TidingsError
from tidings.model import DAY_S, HOUR_S
from tidings.policy import POLICIES, make_policy
from tidings.policy.registry import load_plugins

PAGE = Path(__file__).parents[2] / "docs" / "plugins.md"


def install(folder, code, points):
    """Write the files that pip installs for a package of one module."""
    about = folder / "tidings_silence-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: tidings-silence\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text(
        "[tidings.policies]\n" + "".join(f"{k} = {v}\n" for k, v in points.items())
    )
    (folder / "tidings_silence.py").write_text(code)


@pytest.fixture
def installed(tmp_path):
    text = PAGE.read_text()
    code = re.search(r"```python\n(.*?)```", text, re.S)[1]
    project = tomllib.loads(re.search(r"```toml\n(.*?)```", text, re.S)[1])
    folder = tmp_path / "site"
    folder.mkdir()
    install(folder, code, project["project"]["entry-points"]["tidings.policies"])
    return folder


@pytest.fixture
def loaded(installed, monkeypatch):
    """Make the plug-in importable in this process, and unload it afterwards."""
    monkeypatch.syspath_prepend(str(installed))
    before = dict(POLICIES)
    load_plugins.cache_clear()
    yield installed
    POLICIES.clear()
    POLICIES.update(before)
    load_plugins.cache_clear()
    sys.modules.pop("tidings_silence", None)


def tidings(installed, *arguments):
    completed = subprocess.run(
        [Path(sys.executable).with_name("tidings"), "lab", *arguments],
        cwd=installed,
        env={**os.environ, "PYTHONPATH": str(installed)},
        check=False,
        capture_output=True,
        text=True,
        timeout=TEST_TIMEOUT_S,
    )
    assert completed.returncode == 0, completed.stderr
    return completed.stdout


def test_plugin_in_lab(installed):
    tidings(installed, "generate", "sample", "--like", "sia-cho", "--feeds", "40", "--days", "40")
    output = tidings(
        installed, "compare", "sample", "--policies", "silence,uniform", "--budget", "1", "--json"
    )
    rows = {row["policy"]: row for row in json.loads(output)["results"]}
    assert {"silence", "uniform"} <= set(rows)
    assert rows["silence"]["polls"] == pytest.approx(rows["uniform"]["polls"], rel=0.02)


def test_plugin_in_service(loaded, tmp_path):
    async def day():
        async with feed_server(tmp_path, policy="silence:share=0.25") as server:
            server.feed("/a")
            server.write("/a", 3, at=server.clock() - 2 * DAY_S, every_s=HOUR_S)
            await server.subscribe("/a")
            await server.poll(due=True)
            first = await server.stored_feed("/a")
            assert (first.state.reason.code, first.state.reason.params["policy"]) == (
                "policy",
                "silence",
            )
            await server.run_for(hours=24)
            assert len(server.requests_for("/a")) > 2

    asyncio.run(asyncio.wait_for(day(), TEST_TIMEOUT_S))


def test_plugin_parameters_are_checked(loaded):
    assert make_policy("silence:share=0.25").share == 0.25
    with pytest.raises(TidingsError, match="no parameter 'part'"):
        make_policy("silence:part=0.25")


@pytest.mark.parametrize(
    ("code", "point", "message"),
    [
        ("import nothing_of_this_name", "tidings_silence:Silence", "cannot be loaded"),
        ("Silence = 3", "tidings_silence:Silence", "not a subclass"),
    ],
)
def test_broken_plugin_is_named_in_error(tmp_path, loaded, code, point, message):
    (loaded / "tidings_silence.py").write_text(code)
    with pytest.raises(TidingsError, match=f"{point}.*{message}"):
        make_policy("another")
