"""Root command: help, version, error messages and exit codes."""

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


def test_installed_command_prints_its_version(installed):
    assert installed("--version").stdout == f"tidings, version {__version__}\n"


@pytest.mark.parametrize("line", ["--help", "config --json", "feeds --help"])
def test_light_commands_load_nothing_heavy(line):
    check = f"""
import sys, contextlib, io
from tidings.cli import root
quiet = contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO())
with quiet[0], quiet[1], contextlib.suppress(SystemExit):
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


def groups(group, path=()):
    yield path, group
    for name, command in group.commands.items():
        if isinstance(command, click.Group):
            yield from groups(command, (*path, name))


@pytest.mark.parametrize("path", [path for path, _ in groups(root)], ids=" ".join)
def test_command_summaries_are_short_and_not_cut(tidings, path):
    """Summaries have at most 45 characters, and no help at 80 columns cuts one off with "..."."""
    group = dict(groups(root))[path]
    summaries = dict(
        line.split(maxsplit=1)
        for line in tidings(*path, "--help").split("Commands:")[1].strip().splitlines()
    )
    assert set(summaries) == set(group.commands)
    for name, summary in summaries.items():
        assert not summary.endswith("..."), name
        assert len(summary) <= 45, name
        help_text = group.commands[name].short_help or group.commands[name].help
        assert help_text.strip().splitlines()[0] == summary, name


@pytest.mark.parametrize("path", list(commands(root)), ids=" ".join)
def test_every_command_has_an_example_and_fits_80_columns(tidings, path):
    text = tidings(*path, "--help")
    assert "Example" in text
    assert f"tidings {' '.join(path)}" in text.split("Example", 1)[1]
    assert max(len(line) for line in text.splitlines()) <= 80


def test_every_lab_command_has_json_output(tidings):
    for path in commands(root):
        if path[0] == "lab":
            assert "--json" in tidings(*path, "--help"), path


def test_characters_outside_the_terminal_encoding_are_replaced(installed, tmp_path):
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


def test_error_is_one_line_on_stderr(installed):
    result = installed("lab", "describe", "nowhere")
    assert result.returncode == 2
    assert result.stdout == ""
    assert result.stderr.startswith("tidings: nowhere: is not a directory")
    assert result.stderr.count("\n") == 1


def run_failing_command(error):
    """Run a command that raises ``error`` in a group like the root command."""
    group = type(root)(name="tidings")

    @group.command()
    def fail():
        raise error

    return CliRunner().invoke(group, ["fail"])


def test_ctrl_c_exits_with_130_without_output():
    result = run_failing_command(KeyboardInterrupt())
    assert (result.exit_code, result.output) == (130, "")


def test_unwritable_file_is_named():
    result = run_failing_command(PermissionError(13, "Permission denied", "report.html"))
    assert (result.exit_code, result.stderr) == (1, "tidings: report.html: Permission denied\n")


def test_closed_pipe_is_no_error(sample):
    """`tidings ... | head -0` prints no error."""
    from tests.cli.conftest import TIDINGS

    writer = subprocess.Popen(
        [TIDINGS, "lab", "describe", sample], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    writer.stdout.close()
    assert writer.stderr.read() == b""
    writer.stderr.close()
    writer.wait(timeout=TEST_TIMEOUT_S)
