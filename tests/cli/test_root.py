"""The command itself: help, version, and how errors are told."""

import json
import os
import subprocess
import sys

import click
import pytest
from click.testing import CliRunner

from tests import TEST_TIMEOUT_S
from tidings import __version__
from tidings.cli import root


def test_installed_command_says_its_version(installed):
    assert installed("--version").stdout == f"tidings, version {__version__}\n"


@pytest.mark.parametrize("line", ["--help", "config --json", "feeds --help"])
def test_light_commands_load_nothing_heavy(line):
    check = f"""
import sys, contextlib, io
from tidings.cli import root
with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()), contextlib.suppress(SystemExit):
    root({line.split()!r})
heavy = "numpy pyarrow matplotlib rich numba aiohttp starlette uvicorn lxml msgspec"
print([module for module in heavy.split() if module in sys.modules])
"""
    assert (
        subprocess.run(
            [sys.executable, "-c", check], capture_output=True, text=True, check=True
        ).stdout
        == "[]\n"
    )


def commands(group, path=()):
    for name, command in group.commands.items():
        if isinstance(command, click.Group):
            yield from commands(command, (*path, name))
        else:
            yield (*path, name)


@pytest.mark.parametrize("path", list(commands(root)), ids=" ".join)
def test_every_command_has_an_example_and_fits_80_columns(tidings, path):
    text = tidings(*path, "--help")
    assert "Example" in text
    assert f"tidings {' '.join(path)}" in text.split("Example", 1)[1]
    assert max(len(line) for line in text.splitlines()) <= 80


def test_every_lab_command_speaks_json(tidings):
    for path in commands(root):
        if path[0] == "lab":
            assert "--json" in tidings(*path, "--help"), path


def test_a_terminal_that_knows_few_characters_shows_the_others_as_questions(installed, tmp_path):
    latin = os.environ | {"PYTHONIOENCODING": "latin-1"}
    feeds = ["--data-dir", tmp_path, "feeds"]
    installed("--data-dir", tmp_path, "import", "-", input="https://example.org/feed Grüße ☃\n")
    assert "Grüße ?" in installed(*feeds, env=latin, encoding="latin-1").stdout
    assert (
        json.loads(installed(*feeds, "--json", env=latin, encoding="latin-1").stdout)[0]["title"]
        == "Grüße ☃"
    )


def test_unknown_command_is_a_usage_error(installed):
    result = installed("laboratory")
    assert result.returncode == 2
    assert "No such command 'laboratory'" in result.stderr


def test_an_error_of_ours_is_one_line_on_stderr(installed):
    result = installed("lab", "describe", "nowhere")
    assert result.returncode == 2
    assert result.stdout == ""
    assert result.stderr.startswith("tidings: nowhere: is not a directory")
    assert result.stderr.count("\n") == 1


def failing(error):
    """The root group with one more command, which fails."""
    group = type(root)(name="tidings")

    @group.command()
    def fail():
        raise error

    return CliRunner().invoke(group, ["fail"])


def test_ctrl_c_is_quiet_and_exits_with_130():
    result = failing(KeyboardInterrupt())
    assert (result.exit_code, result.output) == (130, "")


def test_a_file_that_cannot_be_written_is_named():
    result = failing(PermissionError(13, "Permission denied", "report.html"))
    assert (result.exit_code, result.stderr) == (1, "tidings: report.html: Permission denied\n")


def test_a_reader_that_left_is_no_error_of_ours(sample):
    """`tidings ... | head -0`: quiet, whatever the exit code."""
    from tests.cli.conftest import TIDINGS

    writer = subprocess.Popen(
        [TIDINGS, "lab", "describe", sample], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    writer.stdout.close()
    assert writer.stderr.read() == b""
    writer.stderr.close()
    writer.wait(timeout=TEST_TIMEOUT_S)
