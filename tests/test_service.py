"""The wiring: from configuration to parts, and how it ends."""

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


def test_the_fetcher_gets_what_the_configuration_says(tmp_path):
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


def test_the_contact_is_the_configured_one_else_the_public_address(tmp_path):
    def contact(**flags):
        return service.fetch_settings(config_of(settings(tmp_path, **flags))).contact_url

    public = "https://reader.example"
    assert contact() == ""
    assert contact(serve_public_url=public) == public
    assert (
        contact(serve_public_url=public, fetch_contact_url="https://me.example/")
        == "https://me.example/"
    )


def test_the_contact_in_the_store_is_used_where_the_configuration_has_none(tmp_path):
    async def contact(**flags):
        async with service.open_polling(
            settings(tmp_path, **flags), tmp_path / "tidings.db"
        ) as aggregator:
            await store_contact(aggregator.store, "https://stored.example/")
            return aggregator.fetcher.settings.contact_url

    assert asyncio.run(contact()) == ""  # it is entered after this process has started
    assert asyncio.run(contact()) == "https://stored.example/"
    assert (
        asyncio.run(contact(serve_public_url="https://reader.example")) == "https://reader.example"
    )


def test_a_running_process_takes_up_a_contact_that_another_has_stored(tmp_path, monkeypatch):
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


def test_the_policy_may_have_parameters_and_a_wrong_one_is_refused_where_it_was_named(tmp_path):
    assert (
        service.check_policy(settings(tmp_path, policy_name="fixed:interval_h=2")).name == "fixed"
    )
    with pytest.raises(
        ConfigError, match=r"--set policy.name: policy 'fixed' has no parameter 'colour'"
    ):
        service.check_policy(settings(tmp_path, policy_name="fixed:colour=2"))


def test_addresses_are_told_as_browsers_take_them():
    with service.listen("127.0.0.1", 0) as server_socket:
        assert (
            service.address(server_socket) == f"http://127.0.0.1:{server_socket.getsockname()[1]}/"
        )


def test_the_parts_open_and_close_with_any_policy_and_budget(tmp_path):
    async def scenario():
        config_settings = settings(tmp_path, policy_name="uniform", policy_budget="100/hour")
        async with service.open_polling(config_settings, tmp_path / "tidings.db") as aggregator:
            assert aggregator.scheduler.budget_per_day == 2400
            return await aggregator.poll()

    assert asyncio.run(scenario()).poll_count == 0


@pytest.mark.parametrize("serving", [True, False])
def test_pages_wait_for_no_transaction_and_a_command_for_no_thread(tmp_path, serving):
    async def scenario():
        async with service.open_polling(
            settings(tmp_path), tmp_path / "tidings.db", serving=serving
        ) as aggregator:
            return await aggregator.store.write(lambda db: threading.get_ident())

    assert (asyncio.run(scenario()) == threading.get_ident()) is not serving


def test_a_server_that_never_answers_does_not_keep_the_service_from_ending(tmp_path, monkeypatch):
    monkeypatch.setattr(service, "GRACE_S", 0.1)

    async def feed(url=None):
        async with Store.open(tmp_path / "tidings.db", clock=lambda: 0.0) as store:
            if url is not None:
                await store.add([NewSubscription(url, 0.0)])
            return (await store.feeds())[0]

    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/feed"
        asyncio.run(feed(url))
        with ReaderServer(tmp_path):
            silent.settimeout(TEST_TIMEOUT_S)
            connection, _ = silent.accept()  # it has asked, and will wait
        connection.close()
    left = asyncio.run(feed()).feed.state
    assert left.next_poll_at is not None  # due again when its lease ends
    assert left.last_poll_at is None


def test_a_store_that_is_away_for_a_moment_is_waited_for(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(retry, "RETRY_DELAYS_S", (0.01,) * 10_000)
    monkeypatch.setattr(favicons, "CHECK_INTERVAL_S", 0.01)
    with (
        ReaderServer(tmp_path) as serving,
        closing(sqlite3.connect(tmp_path / "tidings.db", timeout=TEST_TIMEOUT_S)) as db,
    ):
        db.execute("ALTER TABLE icons RENAME TO elsewhere")
        end = time.monotonic() + TEST_TIMEOUT_S
        while (
            "tidings.retry" not in {one.name for one in caplog.records} and time.monotonic() < end
        ):
            time.sleep(0.01)
        db.execute("ALTER TABLE elsewhere RENAME TO icons")
        assert serving.get("/healthz")[0].status == 200
    assert "the store cannot be used; trying again" in caplog.text


def test_a_store_that_breaks_ends_the_service_with_one_error(tmp_path, monkeypatch):
    monkeypatch.setattr(service, "WATCH_INTERVAL_S", 0.01)
    monkeypatch.setattr(retry, "RETRY_DELAYS_S", (0.01,))
    with ReaderServer(tmp_path) as serving, closing(sqlite3.connect(tmp_path / "tidings.db")) as db:
        db.execute("PRAGMA foreign_keys = OFF")
        db.execute("DROP TABLE feeds")
        error = serving.wait_for_error()
    assert isinstance(error, StoreError)
    assert "no such table: feeds" in str(error)
