"""Run commands: in this process, or the installed script in a subprocess."""

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

#: Path of the installed script, beside the Python interpreter of the tests.
TIDINGS = Path(sys.executable).with_name("tidings")


for variable in [name for name in os.environ if name.startswith("TIDINGS_")]:
    del os.environ[variable]  # the developer's own configuration must not affect the tests


class Tidings:
    """Run commands in this process: ``tidings("lab", "limit", ...)`` returns the output.

    ``.json`` returns the parsed JSON output, and ``.expect_error`` the error message of a command
    that must fail.
    """

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

    def expect_error(self, *arguments, code=2):
        result = self.run(*arguments)
        assert result.exit_code == code, result.output
        assert result.stdout == ""
        return result.stderr


@pytest.fixture
def tidings():
    return Tidings()


@pytest.fixture
def local_tidings(tmp_path):
    """Run commands on a new data directory, with requests to loopback addresses allowed."""
    return Tidings("--data-dir", tmp_path / "data", "--set", "fetch.allow_private=true")


@pytest.fixture(scope="module")
def blogs():
    with Blogs(4) as blogs:
        yield blogs


@pytest.fixture
def installed():
    """Run the installed script in a subprocess."""

    def run(*arguments, **options):
        command = [TIDINGS, *(str(a) for a in arguments)]
        return subprocess.run(
            command, capture_output=True, text=True, timeout=TEST_TIMEOUT_S, check=False, **options
        )

    return run


@pytest.fixture(scope="session")
def sample(tmp_path_factory):
    """Write a trace of 20 feeds over 21 days, with windows small enough to miss posts."""
    folder = tmp_path_factory.mktemp("traces") / "sample"
    rates = np.geomspace(0.3, 30, 20)
    write_trace(poisson_trace(rates, 21, seed=3, window=5), folder)
    return folder
