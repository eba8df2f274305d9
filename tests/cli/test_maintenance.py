"""Commands `config`, `doctor`, `backup` and `restore`."""

import shutil
import sqlite3
import tomllib

import pytest

from tidings.config import read


def test_config_reports_values_and_origins(tidings, tmp_path, monkeypatch):
    monkeypatch.setenv("TIDINGS_POLICY_BUDGET", "2400")
    (tmp_path / "config.toml").write_text("[fetch]\ncontact_url = 'https://example.org/'\n")
    rows = tidings.json("--data-dir", tmp_path, "--set", "log.level=debug", "config")
    changed = {
        row["name"]: (row["value"], row["origin"]) for row in rows if row["origin"] != "default"
    }
    assert changed == {
        "fetch.contact_url": ("https://example.org/", str(tmp_path / "config.toml")),
        "policy.budget": ("2400", "TIDINGS_POLICY_BUDGET"),
        "log.level": ("debug", "--set log.level"),
    }
    assert {row["variable"] for row in rows} >= {
        "TIDINGS_FETCH_ALLOW_PRIVATE",
        "TIDINGS_SERVE_PUBLIC_URL",
    }


def test_config_output_is_a_valid_config_file(tidings, tmp_path):
    text = tidings(
        "--data-dir",
        tmp_path,
        "--set",
        "fetch.timeout_s=20",
        "--set",
        "policy.budget=100/hour",
        "config",
    )
    assert tomllib.loads(text) == {
        "fetch": {"timeout_s": 20.0},
        "policy": {"budget": "100/hour"},
        "store": {},
        "serve": {},
        "exchange": {},
        "log": {},
    }
    (tmp_path / "config.toml").write_text(text.replace("# allow_private", "allow_private"))
    settings = read(tmp_path, {}, {})
    assert (settings["fetch.timeout_s"].value, settings["fetch.allow_private"].value) == (
        20.0,
        False,
    )
    assert max(len(line) for line in text.splitlines()) <= 80


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--set", "fetch.timeout_s", "feeds"), "--set fetch.timeout_s: write OPTION=VALUE"),
        (
            ("--set", "fetch.tmeout_s=3", "config"),
            "unknown option fetch.tmeout_s; did you mean fetch.timeout_s?",
        ),
        (
            ("--set", "policy.name=best", "serve"),
            "--set policy.name: unknown policy 'best'; choose from price",
        ),
        (
            ("--set", "policy.name=best", "status"),
            "--set policy.name: unknown policy 'best'; choose from price",
        ),
        (
            ("--set", "policy.name=fixed:color=2", "feeds"),
            "policy 'fixed' has no parameter 'color'",
        ),
        (("--set", "serve.port=x", "serve"), "--set serve.port: serve.port must be a whole number"),
    ],
)
def test_invalid_option_is_one_line_with_exit_code_2(tidings, tmp_path, arguments, message):
    output = tidings.expect_error("--data-dir", tmp_path, *arguments)
    assert output.startswith("tidings: ")
    assert message in output
    assert output.count("\n") == 1


def test_doctor_accepts_a_new_and_a_used_data_directory(local_tidings, blogs):
    assert {one["verdict"] for one in local_tidings.json("doctor")} <= {"ok", "warn"}
    local_tidings("add", blogs.url(1))
    results = {one["what"]: one for one in local_tidings.json("doctor")}
    assert results["database"]["words"].startswith("1 feed, 20 entries")
    assert {
        "configuration",
        "data directory",
        "database",
        "disk",
        "clock",
        "DNS",
        "certificates",
        "open files",
    } <= set(results)
    assert results["private addresses"]["verdict"] == "warn"


@pytest.mark.parametrize("option", ["fetch.contact_url", "serve.public_url"])
def test_doctor_warns_without_a_contact_url(local_tidings, blogs, tmp_path, option):
    def contact(*options):
        return next(
            one for one in local_tidings.json(*options, "doctor") if one["what"] == "contact"
        )

    missing = contact()
    assert missing["verdict"] == "warn"
    assert "set fetch.contact_url" in missing["words"]
    assert "serve.public_url" in missing["words"]
    there = contact("--set", f"{option}=https://me.example/")
    assert (there["verdict"], there["words"]) == ("ok", "https://me.example/")
    local_tidings("add", blogs.url(1))
    assert contact()["verdict"] == "warn"
    with sqlite3.connect(tmp_path / "data" / "tidings.db") as db:
        db.execute(
            "INSERT INTO key_values (key, value, updated_at) VALUES (?, ?, 0)",
            ("contact_url", b"https://stored.example/"),
        )
    db.close()
    assert contact()["words"] == "https://stored.example/"


def test_doctor_reports_errors_and_exits_with_1(local_tidings, blogs, tmp_path):
    local_tidings("add", blogs.url(1))
    with sqlite3.connect(tmp_path / "data" / "tidings.db") as db:
        db.execute("INSERT INTO search (search) VALUES ('delete-all')")
        db.execute("UPDATE hosts SET last_request_at = 9e9")
    db.close()
    result = local_tidings.run("doctor")
    assert result.exit_code == 1
    assert "20 entries cannot be found by search; restore your last backup" in result.stdout
    assert "error  clock" in result.stdout
    (tmp_path / "data" / "config.toml").write_text("[fetch]\ntimeout_s = 'long'")
    assert "fetch.timeout_s must be a number" in local_tidings.run("doctor").stdout


def test_doctor_reports_a_file_that_is_no_database(local_tidings, tmp_path):
    (tmp_path / "data").mkdir(mode=0o755)
    (tmp_path / "data" / "tidings.db").write_bytes(
        b"not a database, but long enough to be looked at" * 100
    )
    output = local_tidings.run("doctor").stdout
    assert "file is not a database; choose the database of tidings, or restore a backup" in output
    assert "other users of this computer can read" in output


def test_restore_keeps_the_previous_database(local_tidings, blogs, tmp_path):
    local_tidings("add", blogs.url(1))
    assert "bytes" in local_tidings("backup", tmp_path / "b.db")
    local_tidings("add", blogs.url(2))
    assert "the previous database is" in local_tidings("restore", tmp_path / "b.db")
    assert len(local_tidings.json("feeds")) == 1
    local_tidings("restore", tmp_path / "data" / "tidings.db.before-restore-1")
    assert len(local_tidings.json("feeds")) == 2


def test_restore_creates_a_data_directory(local_tidings, blogs, tmp_path):
    local_tidings("add", blogs.url(1))
    local_tidings("backup", tmp_path / "b.db")
    shutil.rmtree(tmp_path / "data")
    assert (
        local_tidings("restore", tmp_path / "b.db")
        == f"restored {tmp_path / 'data' / 'tidings.db'}\n"
    )
    assert len(local_tidings.json("entries", "--limit", 0)) == 20


def test_restore_of_another_file_changes_nothing(local_tidings, blogs, tmp_path):
    local_tidings("add", blogs.url(1))
    (tmp_path / "text").write_text("Hello " * 1000)
    assert "is not a database" in local_tidings.expect_error("restore", tmp_path / "text", code=1)
    assert "does not exist" in local_tidings.expect_error("restore", tmp_path / "nothing")
    assert not list(tmp_path.glob("data/*before-restore*"))
    assert len(local_tidings.json("feeds")) == 1
    assert "is the database in use" in local_tidings.expect_error(
        "backup", tmp_path / "data" / "tidings.db"
    )


def test_data_directory_is_accessible_to_its_owner_only(local_tidings, blogs, tmp_path):
    local_tidings("add", blogs.url(1))
    assert (tmp_path / "data").stat().st_mode & 0o077 == 0
    assert (tmp_path / "data" / "tidings.db").stat().st_mode & 0o077 == 0


def test_data_directory_from_the_environment(tidings, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "xdg"))
    assert f"no database in {tmp_path / 'xdg' / 'tidings'} yet" in tidings.expect_error("feeds")
    monkeypatch.setenv("TIDINGS_DATA_DIR", str(tmp_path / "other"))
    assert f"no database in {tmp_path / 'other'} yet" in tidings.expect_error("feeds")
