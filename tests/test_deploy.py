"""The files under deploy/ say what this program understands: commands, options, settings, and what systemd wants."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from tidings.cli import root
from tidings.config import read

HERE = Path(__file__).parents[1]
UNITS = sorted((HERE / "deploy" / "systemd").glob("*.service"))
PROGRAM = "/opt/tidings/bin/tidings"


def parse(arguments):
    """Read a command line as the program would; what it does not know raises."""
    context = root.make_context("tidings", list(arguments))
    name, command, rest = root.resolve_command(context, [*context._protected_args, *context.args])
    return name, command.make_context(name, rest, parent=context).params


def line_of(text, key):
    (found,) = re.findall(rf"^{key}[= ](.*)$", text, re.MULTILINE)
    return found


@pytest.fixture(scope="module")
def compose():
    return yaml.safe_load((HERE / "deploy" / "compose.yaml").read_text())


@pytest.fixture(scope="module")
def dockerfile():
    return (HERE / "Dockerfile").read_text()


def test_compose_runs_pages_alone_and_two_workers_on_one_database(compose, tmp_path):
    services = compose["services"]
    assert parse(services["serve"]["command"]) == (
        "serve",
        {"host": None, "port": None, "no_worker": True},
    )
    assert parse(services["worker"]["command"])[0] == "worker"
    assert services["worker"]["deploy"]["replicas"] == 2
    for name in ("serve", "worker"):
        settings = read(tmp_path, services[name]["environment"], {})
        assert settings["store.database"].value == "postgresql://tidings@database/tidings"
        assert services[name]["depends_on"]["database"]["condition"] == "service_healthy"


def test_the_password_stands_in_a_file_that_all_are_given(compose):
    for service in compose["services"].values():
        (file,) = (
            value
            for name, value in service["environment"].items()
            if name.endswith("PASSWORD_FILE")
        )
        assert file.removeprefix("/run/secrets/") in service["secrets"]
    assert set(compose["secrets"]) == {"password"}
    assert "/deploy/password" in (HERE / ".gitignore").read_text().splitlines()


def test_the_entrypoint_hands_the_password_on(tmp_path):
    (tmp_path / "tidings").write_text('#!/bin/sh\necho "$PGPASSWORD" "$@"\n')
    (tmp_path / "tidings").chmod(0o755)
    (tmp_path / "password").write_text("a secret\n")
    environment = {
        "PATH": f"{tmp_path}:{os.environ['PATH']}",
        "PGPASSWORD_FILE": str(tmp_path / "password"),
    }
    script = [HERE / "deploy" / "entrypoint.sh", "serve", "--port", "1 2"]
    assert (
        subprocess.check_output(script, env=environment, text=True) == "a secret serve --port 1 2\n"
    )


def test_the_image_knows_its_commands_and_settings(dockerfile, compose, tmp_path):
    assert parse(yaml.safe_load(line_of(dockerfile, "CMD"))) == (
        "serve",
        {"host": None, "port": None, "no_worker": False},
    )
    environment = dict(pair.split("=", 1) for pair in line_of(dockerfile, "ENV").split())
    del environment[
        "TIDINGS_DATA_DIR"
    ]  # the command line reads it, before there is a configuration
    settings = read(
        tmp_path, {k: v for k, v in environment.items() if k.startswith("TIDINGS_")}, {}
    )
    assert settings["serve.host"].value == "0.0.0.0"
    port = settings["serve.port"].value
    assert line_of(dockerfile, "EXPOSE") == str(port)
    assert f"127.0.0.1:{port}/healthz" in dockerfile
    assert compose["services"]["serve"]["ports"] == [f"127.0.0.1:{port}:{port}"]


def test_what_the_image_is_made_from_is_sent_to_its_builder(dockerfile):
    sent = {
        line[1:]
        for line in (HERE / ".dockerignore").read_text().splitlines()
        if line.startswith("!")
    }
    copied = [
        words
        for line in re.findall(r"^COPY (?!--from)(.*)$", dockerfile, re.MULTILINE)
        for words in line.split()[:-1]
    ]
    assert {name for name in copied if not name.startswith("--")} == sent
    assert all((HERE / name).exists() for name in sent)


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_units_start_what_there_is(unit):
    program, *arguments = line_of(unit.read_text(), "ExecStart").split()
    assert program == PROGRAM
    arguments = [a.replace("$SERVE", "--no-worker") for a in arguments]
    assert parse(arguments)[0] == ("worker" if "worker" in unit.name else "serve")


def test_the_units_give_the_same_rights():
    def rights(unit):
        return sorted(
            line
            for line in unit.read_text().splitlines()
            if re.match(r"(Protect|Private|Restrict|System|No|Cap)", line)
        )

    assert len(UNITS) == 2
    assert rights(UNITS[0]) == rights(UNITS[1])
    assert {"NoNewPrivileges=yes", "ProtectSystem=strict", "CapabilityBoundingSet="} <= set(
        rights(UNITS[0])
    )


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_systemd_takes_the_units(unit, tmp_path):
    if shutil.which("systemd-analyze") is None:
        # In CI too: containers and macOS have none, and what the units say is held by the tests above.
        pytest.skip("there is no systemd here (Debian: apt install systemd)")
    here = tmp_path / unit.name
    here.write_text(unit.read_text().replace(PROGRAM, "/bin/true"))
    completed = subprocess.run(
        ["systemd-analyze", "verify", here], capture_output=True, text=True, check=False
    )
    assert (completed.returncode, completed.stderr) == (0, "")
