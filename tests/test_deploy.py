"""Deployment files (Docker, compose, systemd) use valid commands, options and settings."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from tidings.cli import root
from tidings.config import read

ROOT = Path(__file__).parents[1]
UNITS = sorted((ROOT / "deploy" / "systemd").glob("*.service"))
PROGRAM = "/opt/tidings/bin/tidings"


def parse(arguments):
    """Parse a command line as the program does; unknown commands and options raise an error."""
    context = root.make_context("tidings", list(arguments))
    name, command, rest = root.resolve_command(context, [*context._protected_args, *context.args])
    return name, command.make_context(name, rest, parent=context).params


def line_of(text, key):
    (found,) = re.findall(rf"^{key}[= ](.*)$", text, re.MULTILINE)
    return found


@pytest.fixture(scope="module")
def compose():
    return yaml.safe_load((ROOT / "deploy" / "compose.yaml").read_text())


@pytest.fixture(scope="module")
def dockerfile():
    return (ROOT / "Dockerfile").read_text()


def test_compose_runs_service_and_two_workers(compose, tmp_path):
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


def test_compose_password_is_a_shared_secret_file(compose):
    for service in compose["services"].values():
        (file,) = (
            value
            for name, value in service["environment"].items()
            if name.endswith("PASSWORD_FILE")
        )
        assert file.removeprefix("/run/secrets/") in service["secrets"]
    assert set(compose["secrets"]) == {"password"}
    assert "/deploy/password" in (ROOT / ".gitignore").read_text().splitlines()


def test_entrypoint_exports_password(tmp_path):
    (tmp_path / "tidings").write_text('#!/bin/sh\necho "$PGPASSWORD" "$@"\n')
    (tmp_path / "tidings").chmod(0o755)
    (tmp_path / "password").write_text("a secret\n")
    environment = {
        "PATH": f"{tmp_path}:{os.environ['PATH']}",
        "PGPASSWORD_FILE": str(tmp_path / "password"),
    }
    script = [ROOT / "deploy" / "entrypoint.sh", "serve", "--port", "1 2"]
    assert (
        subprocess.check_output(script, env=environment, text=True) == "a secret serve --port 1 2\n"
    )


def test_image_commands_and_settings_are_valid(dockerfile, compose, tmp_path):
    assert parse(yaml.safe_load(line_of(dockerfile, "CMD"))) == (
        "serve",
        {"host": None, "port": None, "no_worker": False},
    )
    environment = dict(pair.split("=", 1) for pair in line_of(dockerfile, "ENV").split())
    del environment["TIDINGS_DATA_DIR"]  # not an option: the command line reads it
    settings = read(
        tmp_path, {k: v for k, v in environment.items() if k.startswith("TIDINGS_")}, {}
    )
    assert settings["serve.host"].value == "0.0.0.0"
    port = settings["serve.port"].value
    assert line_of(dockerfile, "EXPOSE") == str(port)
    assert f"127.0.0.1:{port}/healthz" in dockerfile
    assert compose["services"]["serve"]["ports"] == [f"127.0.0.1:{port}:{port}"]


def test_dockerignore_includes_copied_files(dockerfile):
    sent = {
        line[1:]
        for line in (ROOT / ".dockerignore").read_text().splitlines()
        if line.startswith("!")
    }
    copied = [
        argument
        for line in re.findall(r"^COPY (?!--from)(.*)$", dockerfile, re.MULTILINE)
        for argument in line.split()[:-1]
    ]
    assert {name for name in copied if not name.startswith("--")} == sent
    assert all((ROOT / name).exists() for name in sent)


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_units_start_existing_commands(unit):
    program, *arguments = line_of(unit.read_text(), "ExecStart").split()
    assert program == PROGRAM
    arguments = [a.replace("$SERVE", "--no-worker") for a in arguments]
    assert parse(arguments)[0] == ("worker" if "worker" in unit.name else "serve")


def test_units_have_the_same_sandbox():
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
def test_systemd_accepts_units(unit, tmp_path):
    if shutil.which("systemd-analyze") is None:
        # In CI too: containers and macOS have no systemd, and the tests above check the units.
        pytest.skip("systemd is not installed (Debian: apt install systemd)")
    copy = tmp_path / unit.name
    copy.write_text(unit.read_text().replace(PROGRAM, "/bin/true"))
    completed = subprocess.run(
        ["systemd-analyze", "verify", copy], capture_output=True, text=True, check=False
    )
    assert (completed.returncode, completed.stderr) == (0, "")
