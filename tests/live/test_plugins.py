"""The plug-in of docs/plugins.md, installed as the page says, in the laboratory and live."""

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
    """What pip leaves of a package of one module."""
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
def here(installed, monkeypatch):
    """The same in this process; afterwards it is as if it had never been there."""
    monkeypatch.syspath_prepend(str(installed))
    before = dict(POLICIES)
    load_plugins.cache_clear()
    yield installed
    POLICIES.clear()
    POLICIES.update(before)
    load_plugins.cache_clear()
    sys.modules.pop("tidings_silence", None)


def tidings(installed, *words):
    done = subprocess.run(
        [Path(sys.executable).with_name("tidings"), "lab", *words],
        cwd=installed,
        env={**os.environ, "PYTHONPATH": str(installed)},
        check=False,
        capture_output=True,
        text=True,
        timeout=TEST_TIMEOUT_S,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_in_the_laboratory(installed):
    tidings(installed, "generate", "sample", "--like", "sia-cho", "--feeds", "40", "--days", "40")
    told = tidings(
        installed, "compare", "sample", "--policies", "silence,uniform", "--budget", "1", "--json"
    )
    rows = {row["policy"]: row for row in json.loads(told)["results"]}
    assert {"silence", "uniform"} <= set(rows)
    assert rows["silence"]["polls"] == pytest.approx(rows["uniform"]["polls"], rel=0.02)


def test_live(here, tmp_path):
    async def day():
        async with feed_server(tmp_path, policy="silence:share=0.25") as there:
            there.feed("/a")
            there.write("/a", 3, at=there.clock() - 2 * DAY_S, every_s=HOUR_S)
            await there.subscribe("/a")
            await there.poll(due=True)
            first = await there.stored_feed("/a")
            assert (first.state.reason.code, first.state.reason.params["policy"]) == (
                "policy",
                "silence",
            )
            await there.run_for(hours=24)
            assert len(there.requests_for("/a")) > 2

    asyncio.run(asyncio.wait_for(day(), TEST_TIMEOUT_S))


def test_parameters_are_checked_like_ours(here):
    assert make_policy("silence:share=0.25").share == 0.25
    with pytest.raises(TidingsError, match="no parameter 'part'"):
        make_policy("silence:part=0.25")


@pytest.mark.parametrize(
    ("code", "point", "says"),
    [
        ("import nothing_of_this_name", "tidings_silence:Silence", "cannot be loaded"),
        ("Silence = 3", "tidings_silence:Silence", "not a subclass"),
    ],
)
def test_a_broken_plug_in_is_named(tmp_path, here, code, point, says):
    (here / "tidings_silence.py").write_text(code)
    with pytest.raises(TidingsError, match=f"{point}.*{says}"):
        make_policy("another")
