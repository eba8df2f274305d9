"""Service wiring: components from the configuration, errors and shutdown."""

import asyncio
import socket
import sqlite3
import threading
import time
from contextlib import closing

import pytest

from tests import TEST_TIMEOUT_S
from tests.web.conftest import ReaderServer
from tidings import service
from tidings.aggregator import retry
from tidings.aggregator.contact import store_contact
from tidings.config import ConfigError, config_of, read
from tidings.store import Store, StoreError
from tidings.store.feed_models import NewSubscription
from tidings.users import favicons


def settings(folder, **flags):
    return read(folder, {}, {name.replace("_", ".", 1): value for name, value in flags.items()})


def test_fetch_settings_from_configuration(tmp_path):
    config_settings = settings(
        tmp_path,
        fetch_contact_url="https://example.org/me",
        fetch_max_bytes="20000",
        fetch_timeout_s="7",
    )
    fetcher_settings = service.fetch_settings(config_of(config_settings))
    assert (
        fetcher_settings.contact_url,
        fetcher_settings.max_bytes,
        fetcher_settings.timeout_s,
    ) == ("https://example.org/me", 20000, 7.0)
    assert (
        fetcher_settings.allow_private,
        fetcher_settings.concurrency,
        fetcher_settings.host_spacing_s,
    ) == (False, 100, 1.0)


def test_contact_url_defaults_to_public_url(tmp_path):
    def contact(**flags):
        return service.fetch_settings(config_of(settings(tmp_path, **flags))).contact_url

    public = "https://reader.example"
    assert contact() == ""
    assert contact(serve_public_url=public) == public
    assert (
        contact(serve_public_url=public, fetch_contact_url="https://me.example/")
        == "https://me.example/"
    )


def test_stored_contact_is_used_without_configured_one(tmp_path):
    async def contact(**flags):
        async with service.open_polling(
            settings(tmp_path, **flags), tmp_path / "tidings.db"
        ) as aggregator:
            await store_contact(aggregator.store, "https://stored.example/")
            return aggregator.fetcher.settings.contact_url

    assert asyncio.run(contact()) == ""  # stored after this process has started
    assert asyncio.run(contact()) == "https://stored.example/"
    assert (
        asyncio.run(contact(serve_public_url="https://reader.example")) == "https://reader.example"
    )


def test_running_process_uses_newly_stored_contact(tmp_path, monkeypatch):
    monkeypatch.setattr(service, "WATCH_INTERVAL_S", 0.01)

    async def scenario():
        stop = asyncio.Event()
        async with service.open_polling(
            settings(tmp_path), tmp_path / "tidings.db", serving=True
        ) as aggregator:
            running = asyncio.create_task(service.run_polling(aggregator, settings(tmp_path), stop))
            await store_contact(aggregator.store, "https://stored.example/")
            async with asyncio.timeout(TEST_TIMEOUT_S):
                while not aggregator.fetcher.settings.contact_url:
                    await asyncio.sleep(0.01)
            stop.set()
            await running
            return aggregator.fetcher.common_headers(1)

    assert b"(+https://stored.example/; 1 subscribers)" in asyncio.run(scenario())


def test_invalid_policy_parameter_is_reported_with_origin(tmp_path):
    assert (
        service.check_policy(settings(tmp_path, policy_name="fixed:interval_h=2")).name == "fixed"
    )
    with pytest.raises(
        ConfigError, match=r"--set policy.name: policy 'fixed' has no parameter 'color'"
    ):
        service.check_policy(settings(tmp_path, policy_name="fixed:color=2"))


def test_address_is_a_url():
    with service.listen("127.0.0.1", 0) as server_socket:
        assert (
            service.address(server_socket) == f"http://127.0.0.1:{server_socket.getsockname()[1]}/"
        )


def test_open_polling_uses_policy_and_budget(tmp_path):
    async def scenario():
        config_settings = settings(tmp_path, policy_name="uniform", policy_budget="100/hour")
        async with service.open_polling(config_settings, tmp_path / "tidings.db") as aggregator:
            assert aggregator.scheduler.budget_per_day == 2400
            return await aggregator.poll()

    assert asyncio.run(scenario()).poll_count == 0


@pytest.mark.parametrize("serving", [True, False])
def test_store_uses_threads_only_in_service(tmp_path, serving):
    async def scenario():
        async with service.open_polling(
            settings(tmp_path), tmp_path / "tidings.db", serving=serving
        ) as aggregator:
            return await aggregator.store.write(lambda db: threading.get_ident())

    assert (asyncio.run(scenario()) == threading.get_ident()) is not serving


def test_shutdown_does_not_wait_for_silent_server(tmp_path, monkeypatch):
    monkeypatch.setattr(service, "GRACE_S", 0.1)

    async def feed(url=None):
        async with Store.open(tmp_path / "tidings.db", clock=lambda: 0.0) as store:
            if url is not None:
                await store.add_subscriptions([NewSubscription(url, 0.0)])
            return (await store.feeds())[0]

    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/feed"
        asyncio.run(feed(url))
        with ReaderServer(tmp_path):
            silent.settimeout(TEST_TIMEOUT_S)
            connection, _ = silent.accept()  # the poll waits for the response
        connection.close()
    state = asyncio.run(feed()).feed.state
    assert state.next_poll_at is not None  # due again when its lease expires
    assert state.last_poll_at is None


def test_store_error_is_retried(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(retry, "RETRY_DELAYS_S", (0.01,) * 10_000)
    monkeypatch.setattr(favicons, "CHECK_INTERVAL_S", 0.01)
    with (
        ReaderServer(tmp_path) as serving,
        closing(sqlite3.connect(tmp_path / "tidings.db", timeout=TEST_TIMEOUT_S)) as db,
    ):
        db.execute("ALTER TABLE icons RENAME TO elsewhere")
        end = time.monotonic() + TEST_TIMEOUT_S
        while (
            "tidings.retry" not in {record.name for record in caplog.records}
            and time.monotonic() < end
        ):
            time.sleep(0.01)
        db.execute("ALTER TABLE elsewhere RENAME TO icons")
        assert serving.get("/healthz")[0].status == 200
    assert "store_operation_failed" in caplog.text


def test_permanent_store_error_stops_service(tmp_path, monkeypatch):
    monkeypatch.setattr(service, "WATCH_INTERVAL_S", 0.01)
    monkeypatch.setattr(retry, "RETRY_DELAYS_S", (0.01,))
    with ReaderServer(tmp_path) as serving, closing(sqlite3.connect(tmp_path / "tidings.db")) as db:
        db.execute("PRAGMA foreign_keys = OFF")
        db.execute("DROP TABLE feeds")
        error = serving.wait_for_error()
    assert isinstance(error, StoreError)
    assert "no such table: feeds" in str(error)
