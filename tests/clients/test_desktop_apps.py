"""Liferea and RSS Guard from Debian on a virtual display; run by `make test-slow`."""

import base64
import json
import sqlite3
from contextlib import closing

import pytest

from tests.clients.conftest import entry_states, require_programs, wait_until
from tests.clients.servers import PASSWORD
from tests.clients.xvfb import press_key, program, virtual_display

pytestmark = pytest.mark.slow
FEED_LIST = """<?xml version="1.0"?><opml version="1.0">
<head><title>Liferea Feed List Export</title></head><body>
<outline title="tidings" text="tidings" description="tidings" type="source"
 sourceType="fl_google_reader" id="aaaaaaa"
 xmlUrl="{address}" username="{name}" password="{password}" expanded="true" sortColumn="time"/>
</body></opml>"""


def rows(file, query):
    """Return the rows of a query; None if the database or table does not exist yet."""
    if not file.exists():
        return None
    with closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True, timeout=10)) as db:
        try:
            return db.execute(query).fetchall()
        except sqlite3.OperationalError:
            return None


def test_liferea(service, app, tmp_path):
    require_programs("liferea", "Xvfb", "xdotool", "dbus-run-session")
    config = tmp_path / ".config" / "liferea"
    config.mkdir(parents=True)
    (config / "feedlist.opml").write_text(
        FEED_LIST.format(address=service.address, name=app.name, password=PASSWORD)
    )
    database = tmp_path / ".local" / "share" / "liferea" / "liferea.db"
    with virtual_display(tmp_path) as env:
        env |= {
            "GSETTINGS_BACKEND": "memory",
            "NO_AT_BRIDGE": "1",
            "WEBKIT_DISABLE_COMPOSITING_MODE": "1",
        }
        with program(["dbus-run-session", "--", "liferea"], env, tmp_path):
            wait_until(
                lambda: len(rows(database, "SELECT title FROM items") or ()) == 8, "all items", 120
            )

            for key, condition, description in (
                ("ctrl+n", lambda: entry_states(app)[0], "a read entry"),
                ("ctrl+t", lambda: entry_states(app)[1], "a star"),
            ):
                press_key(env, "Liferea", key)
                wait_until(condition, description)
            assert len(entry_states(app)[0]) == 1


# --- RSS Guard ------------------------------------------------------------------------------------

KEY = 0x0102030405060708
CONFIG = """
[main]
first_run=false
first_run_4.0.4=false
[feeds]
feeds_update_on_startup=true
[keyboard]
m_actionSelectNextItem=F2
m_actionSelectNextUnreadMessage=F5
m_actionSwitchImportanceOfSelectedMessages=F6
m_actionUpdateAllItems=F7
"""


def obfuscate(password):
    """Encrypt a password as RSS Guard stores it: XOR with the key and the previous byte.

    Without checksum and compression.
    """
    encrypted, last = bytearray(b"\3\0"), 0
    for position, byte in enumerate(b"\0" + password.encode()):
        last ^= byte ^ KEY.to_bytes(8, "little")[position % 8]
        encrypted.append(last)
    return base64.b64encode(encrypted).decode()


def test_rss_guard(service, app, tmp_path):
    require_programs("rssguard", "Xvfb", "xdotool")
    command, database = (
        ["rssguard", "--data", tmp_path / "data"],
        tmp_path / "data" / "database" / "database.db",
    )
    account = {
        "service": 1024,
        "username": app.name,
        "password": obfuscate(PASSWORD),
        "url": service.address,
        "batch_size": 100,
    }
    account |= {"download_only_unread": False, "intelligent_synchronization": True}
    with virtual_display(tmp_path) as env:
        env["QTWEBENGINE_DISABLE_SANDBOX"] = "1"  # it does not run as root otherwise
        with program(command, env, tmp_path):
            wait_until(
                lambda: rows(
                    database, "SELECT 1 FROM Information WHERE inf_key = 'schema_version'"
                ),
                "its tables",
            )
        with closing(sqlite3.connect(database)) as db, db:
            db.execute(
                "INSERT INTO Accounts (type, custom_data) VALUES ('greader', ?)",
                (json.dumps(account),),
            )
        config = tmp_path / "data" / "config"
        config.mkdir(exist_ok=True)
        (config / "config.ini").write_text(CONFIG)
        (config / "key.private").write_text(str(KEY))
        with program(command, env, tmp_path):
            wait_until(
                lambda: len(rows(database, "SELECT 1 FROM Messages") or ()) == 8, "all items", 120
            )

            def marked(column):
                return {
                    title
                    for (title,) in rows(database, f"SELECT title FROM Messages WHERE {column}")
                }

            def read_next():
                """Select the next feed and its next unread post."""
                press_key(env, "RSS Guard", "F2")
                press_key(env, "RSS Guard", "F5")
                return marked("is_read")

            wait_until(read_next, "something read")
            press_key(env, "RSS Guard", "F6")
            wait_until(lambda: marked("is_important"), "something starred")

            def synchronized():
                """Synchronize; RSS Guard sends changes before a fetch, but not during one."""
                press_key(env, "RSS Guard", "F7")
                return entry_states(app) == (marked("is_read"), marked("is_important"))

            wait_until(synchronized, "read and starred entries", 120, interval_s=3)
