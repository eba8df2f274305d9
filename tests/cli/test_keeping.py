"""Configuration, examination, backup and restore."""

import shutil
import sqlite3
import tomllib

import pytest

from tidings.config import read


def test_config_prints_the_table_with_origins(tidings, tmp_path, monkeypatch):
    monkeypatch.setenv("TIDINGS_POLICY_BUDGET", "2400")
    (tmp_path / "config.toml").write_text("[fetch]\ncontact_url = 'https://example.org/'\n")
    rows = tidings.json("--data-dir", tmp_path, "--set", "log.level=debug", "config")
    told = {
        row["name"]: (row["value"], row["origin"]) for row in rows if row["origin"] != "default"
    }
    assert told == {
        "fetch.contact_url": ("https://example.org/", str(tmp_path / "config.toml")),
        "policy.budget": ("2400", "TIDINGS_POLICY_BUDGET"),
        "log.level": ("debug", "--set log.level"),
    }
    assert {row["variable"] for row in rows} >= {
        "TIDINGS_FETCH_ALLOW_PRIVATE",
        "TIDINGS_SERVE_PUBLIC_URL",
    }


def test_what_config_prints_is_a_file_that_says_the_same(tidings, tmp_path):
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
        "fetch": {"timeout_s": 20.0}, "policy": {"budget": "100/hour"}, "store": {}, "serve": {}, "exchange": {}, "log": {}
    }  # fmt: skip
    (tmp_path / "config.toml").write_text(text.replace("# allow_private", "allow_private"))
    settings = read(tmp_path, {}, {})
    assert (settings["fetch.timeout_s"].value, settings["fetch.allow_private"].value) == (
        20.0,
        False,
    )
    assert max(len(line) for line in text.splitlines()) <= 80


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("--set", "fetch.timeout_s", "feeds"), "--set fetch.timeout_s: write OPTION=VALUE"),
        (
            ("--set", "fetch.tmeout_s=3", "config"),
            "there is no option fetch.tmeout_s; did you mean fetch.timeout_s?",
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
            ("--set", "policy.name=fixed:colour=2", "feeds"),
            "policy 'fixed' has no parameter 'colour'",
        ),
        (("--set", "serve.port=x", "serve"), "--set serve.port: serve.port must be a whole number"),
    ],
)
def test_a_wrong_option_is_one_line_and_exit_code_2(tidings, tmp_path, arguments, complaint):
    said = tidings.refuses("--data-dir", tmp_path, *arguments)
    assert said.startswith("tidings: ")
    assert complaint in said
    assert said.count("\n") == 1


def test_the_doctor_finds_a_fresh_folder_and_a_used_one_well(home, blogs):
    assert {finding["verdict"] for finding in home.json("doctor")} <= {"well", "look"}
    home("add", blogs.url(1))
    findings = {finding["what"]: finding for finding in home.json("doctor")}
    assert findings["store"]["words"].startswith("1 feeds, 20 entries")
    assert {
        "configuration",
        "folder",
        "store",
        "disk",
        "clock",
        "names",
        "certificates",
        "open files",
    } <= set(findings)
    assert findings["private addresses"]["verdict"] == "look"


@pytest.mark.parametrize("option", ["fetch.contact_url", "serve.public_url"])
def test_the_doctor_warns_where_publishers_cannot_reach_the_operator(home, blogs, tmp_path, option):
    def contact(*options):
        return next(
            finding for finding in home.json(*options, "doctor") if finding["what"] == "contact"
        )

    missing = contact()
    assert missing["verdict"] == "look"
    assert "set fetch.contact_url" in missing["words"]
    assert "serve.public_url" in missing["words"]
    there = contact("--set", f"{option}=https://me.example/")
    assert (there["verdict"], there["words"]) == ("well", "https://me.example/")
    home("add", blogs.url(1))
    assert contact()["verdict"] == "look"
    with sqlite3.connect(tmp_path / "data" / "tidings.db") as db:
        db.execute(
            "INSERT INTO shared (key, value, updated_at) VALUES (?, ?, 0)",
            ("contact_url", b"https://stored.example/"),
        )
    db.close()
    assert contact()["words"] == "https://stored.example/"


def test_the_doctor_names_what_is_wrong_and_exits_with_1(home, blogs, tmp_path):
    home("add", blogs.url(1))
    with sqlite3.connect(tmp_path / "data" / "tidings.db") as db:
        db.execute("INSERT INTO search (search) VALUES ('delete-all')")
        db.execute("UPDATE hosts SET last_request_at = 9e9")
    db.close()
    result = home.run("doctor")
    assert result.exit_code == 1
    assert "20 entries cannot be found by search; restore your last backup" in result.stdout
    assert "wrong  clock" in result.stdout
    (tmp_path / "data" / "config.toml").write_text("[fetch]\ntimeout_s = 'long'")
    assert "fetch.timeout_s must be a number" in home.run("doctor").stdout


def test_the_doctor_knows_a_file_that_is_no_store(home, tmp_path):
    (tmp_path / "data").mkdir(mode=0o755)
    (tmp_path / "data" / "tidings.db").write_bytes(
        b"not a database, but long enough to be looked at" * 100
    )
    said = home.run("doctor").stdout
    assert "file is not a database; name the store's own file, or restore a backup over it" in said
    assert "others on this machine can look into" in said


def test_a_backup_is_restored_and_what_was_there_is_kept(home, blogs, tmp_path):
    home("add", blogs.url(1))
    assert "bytes" in home("backup", tmp_path / "b.db")
    home("add", blogs.url(2))
    assert "what was there is now" in home("restore", tmp_path / "b.db")
    assert len(home.json("feeds")) == 1
    home("restore", tmp_path / "data" / "tidings.db.before-restore-1")
    assert len(home.json("feeds")) == 2


def test_a_backup_makes_a_new_home(home, blogs, tmp_path):
    home("add", blogs.url(1))
    home("backup", tmp_path / "b.db")
    shutil.rmtree(tmp_path / "data")
    assert home("restore", tmp_path / "b.db") == f"restored {tmp_path / 'data' / 'tidings.db'}\n"
    assert len(home.json("entries", "--limit", 0)) == 20


def test_what_is_no_backup_is_refused_and_changes_nothing(home, blogs, tmp_path):
    home("add", blogs.url(1))
    (tmp_path / "text").write_text("Hello " * 1000)
    assert "is not a database" in home.refuses("restore", tmp_path / "text", code=1)
    assert "does not exist" in home.refuses("restore", tmp_path / "nothing")
    assert not list(tmp_path.glob("data/*before-restore*"))
    assert len(home.json("feeds")) == 1
    assert "is the store itself" in home.refuses("backup", tmp_path / "data" / "tidings.db")


def test_the_folder_is_for_its_owner_alone(home, blogs, tmp_path):
    home("add", blogs.url(1))
    assert (tmp_path / "data").stat().st_mode & 0o077 == 0
    assert (tmp_path / "data" / "tidings.db").stat().st_mode & 0o077 == 0


def test_the_folder_is_where_the_environment_says(tidings, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "xdg"))
    assert f"no store in {tmp_path / 'xdg' / 'tidings'} yet" in tidings.refuses("feeds")
    monkeypatch.setenv("TIDINGS_DATA_DIR", str(tmp_path / "said"))
    assert f"no store in {tmp_path / 'said'} yet" in tidings.refuses("feeds")
