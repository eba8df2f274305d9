"""Commands as a user gives them: in this process, or the installed script in its own."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from tests import TEST_TIMEOUT_S
from tests.cli.blogs import Blogs
from tests.trace_helpers import poisson_trace
from tidings.cli import root
from tidings.lab.traces import write_trace

#: The installed command stands beside the interpreter that runs the tests.
TIDINGS = Path(sys.executable).with_name("tidings")


for variable in [name for name in os.environ if name.startswith("TIDINGS_")]:
    del os.environ[variable]  # a developer's own options are nobody's business here


class Tidings:
    """``tidings("lab", "limit", ...)`` prints; ``.json`` parses; ``.refuses`` gives the complaint of a wrong request."""

    def __init__(self, *before):
        self._before = before

    def run(self, *arguments, input=None):
        line = [str(a) for a in (*self._before, *arguments)]
        return CliRunner().invoke(root, line, input, prog_name="tidings", catch_exceptions=False)

    def __call__(self, *arguments):
        result = self.run(*arguments)
        assert result.exit_code == 0, result.stderr
        return result.stdout

    def json(self, *arguments):
        return json.loads(self(*arguments, "--json"))

    def refuses(self, *arguments, code=2):
        result = self.run(*arguments)
        assert result.exit_code == code, result.output
        assert result.stdout == ""
        return result.stderr


@pytest.fixture
def tidings():
    return Tidings()


@pytest.fixture
def home(tmp_path):
    """``home("feeds")``: commands on a data folder of their own, that may ask the loopback address."""
    return Tidings("--data-dir", tmp_path / "data", "--set", "fetch.allow_private=true")


@pytest.fixture(scope="module")
def blogs():
    with Blogs(4) as blogs:
        yield blogs


@pytest.fixture
def installed():
    """Run the installed script in a process of its own."""

    def run(*arguments, **options):
        command = [TIDINGS, *(str(a) for a in arguments)]
        return subprocess.run(
            command, capture_output=True, text=True, timeout=TEST_TIMEOUT_S, check=False, **options
        )

    return run


@pytest.fixture(scope="session")
def sample(tmp_path_factory):
    """A trace of 20 feeds over 21 days, on disk, with windows small enough to lose posts."""
    folder = tmp_path_factory.mktemp("traces") / "sample"
    rates = np.geomspace(0.3, 30, 20)
    write_trace(poisson_trace(rates, 21, seed=3, window=5), folder)
    return folder
