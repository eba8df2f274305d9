"""Diagnostics of `tidings doctor`: configuration, database, disk, clock, network settings."""

import os
import resource
import shutil
import socket
import ssl
import stat
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Literal, NamedTuple, TypeAlias

from tidings.cli.context import CliContext
from tidings.errors import TidingsError
from tidings.formatting import count

Verdict: TypeAlias = Literal["ok", "warn", "error"]

MIN_FREE_BYTES = 200_000_000
#: 1 January 2026: this version is newer, so a clock that shows an earlier time is wrong.
EARLIEST_VALID_TIME = 1_767_225_600.0
#: Addresses of TEST-NET-1 and of the documentation prefix (RFC 5737, RFC 3849). Connecting a UDP
#: socket to them checks the routing table without sending a packet.
UNROUTED_ADDRESSES = ((socket.AF_INET, "192.0.2.1"), (socket.AF_INET6, "2001:db8::1"))


class CheckResult(NamedTuple):
    """Result of one check: its subject, the verdict, and what was found or has to be done."""

    subject: str
    verdict: Verdict
    text: str


async def run_checks(
    context: CliContext, report_progress: Callable[[], object]
) -> list[CheckResult]:
    """Run all checks in turn; a `TidingsError` raised by a check becomes an error result."""
    results = []
    for subject, check in CHECKS.items():
        try:
            results += await check(context)
        except TidingsError as error:
            results.append(CheckResult(subject, "error", str(error)))
        report_progress()
    return results


async def _check_configuration(context: CliContext) -> list[CheckResult]:
    from tidings.service import check_policy

    config = context.config
    check_policy(context.settings)
    changed = sum(setting.origin != "default" for setting in context.settings.values())
    text = f"{changed} of {len(context.settings)} options differ from the default"
    results = [CheckResult("configuration", "ok", text)]
    if config.fetch_allow_private:
        text = (
            "requests to private addresses are allowed; "
            "set fetch.allow_private=false if other users add feeds"
        )
        results.append(CheckResult("private addresses", "warn", text))
    return results


async def _check_contact(context: CliContext) -> list[CheckResult]:
    from tidings.aggregator.contact import stored_contact

    url = context.config.contact_url
    if not url and context.store_exists:
        with suppress(TidingsError):  # the database check reports this error
            async with context.open_store() as store:
                url = await stored_contact(store)
    if url:
        return [CheckResult("contact", "ok", url)]
    text = (
        "publishers cannot contact you before they block you; set fetch.contact_url to a web page "
        "of yours (or serve.public_url), in config.toml or as TIDINGS_FETCH_CONTACT_URL"
    )
    return [CheckResult("contact", "warn", text)]


async def _check_data_dir(context: CliContext) -> list[CheckResult]:
    data_dir = context.data_dir
    if not data_dir.is_dir():
        text = f"{data_dir} does not exist yet; `tidings add` or `tidings serve` creates it"
        return [CheckResult("data directory", "warn", text)]
    if not os.access(data_dir, os.R_OK | os.W_OK | os.X_OK):
        text = f"{data_dir} is not writable for this user; change its owner or its mode"
        return [CheckResult("data directory", "error", text)]
    if stat.S_IMODE(data_dir.stat().st_mode) & 0o077:
        text = f"other users of this computer can read {data_dir}; run: chmod 700 {data_dir}"
        return [CheckResult("data directory", "warn", text)]
    return [CheckResult("data directory", "ok", str(data_dir))]


async def _check_database(context: CliContext) -> list[CheckResult]:
    if not context.store_exists:
        text = "no database yet; start with `tidings add URL` or `tidings import FILE`"
        return [CheckResult("database", "warn", text)]
    async with context.open_store() as store:
        problems = await store.check()
        status = await store.status()
    if problems:
        return [
            CheckResult(
                "database", "error", f"{problem}; restore your last backup with `tidings restore`"
            )
            for problem in problems
        ]
    size = (
        f"{context.store_location.stat().st_size / 1e6:,.1f} MB"
        if isinstance(context.store_location, Path)
        else "PostgreSQL"
    )
    feeds = count(status.feeds, "feed")
    text = f"{feeds}, {status.entries:,} entries, {size}, no damage found"
    return [CheckResult("database", "ok", text)]


async def _check_disk(context: CliContext) -> list[CheckResult]:
    parents = (context.data_dir, *context.data_dir.absolute().parents)
    existing = next(directory for directory in parents if directory.exists())
    free = shutil.disk_usage(existing).free
    needed = MIN_FREE_BYTES
    if context.store_path.exists():
        needed = max(needed, 2 * context.store_path.stat().st_size)
    text = f"{free / 1e9:,.1f} GB free"
    if free < needed:
        text += f", but a backup needs {needed / 1e9:,.1f} GB; free some space"
        return [CheckResult("disk", "error", text)]
    return [CheckResult("disk", "ok", text)]


async def _check_clock(context: CliContext) -> list[CheckResult]:
    now = time.time()
    text = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(now))
    if now < EARLIEST_VALID_TIME:
        return [CheckResult("clock", "error", f"{text} is in the past; set the system clock")]
    if context.store_exists:
        async with context.open_store() as store:
            last_request_at = max((await store.last_request_times(now)).values(), default=0.0)
        if last_request_at > now:
            text += f", but the last request was {last_request_at - now:,.0f} s later"
            return [CheckResult("clock", "error", f"{text}; set the system clock")]
    return [CheckResult("clock", "ok", text)]


async def _check_network(context: CliContext) -> list[CheckResult]:
    return [*_check_dns(), *_check_routes(), *_check_certificates(), *_check_open_files(context)]


def _check_dns() -> Iterator[CheckResult]:
    try:
        socket.getaddrinfo("localhost", 80)
    except OSError as error:
        text = f"localhost cannot be resolved ({error.strerror}); check /etc/hosts"
        yield CheckResult("DNS", "error", text)
        return
    resolver = Path("/etc/resolv.conf")
    if resolver.exists() and "nameserver" not in resolver.read_text(errors="replace"):
        text = f"{resolver} has no nameserver line, so host names cannot be resolved; add one"
        yield CheckResult("DNS", "error", text)
    else:
        yield CheckResult("DNS", "ok", "a resolver is configured")


def _check_routes() -> Iterator[CheckResult]:
    protocols = []
    for family, host in UNROUTED_ADDRESSES:
        try:
            with socket.socket(family, socket.SOCK_DGRAM) as probe:
                probe.connect((host, 9))
            protocols.append("IPv6" if family == socket.AF_INET6 else "IPv4")
        except OSError:
            continue
    if protocols:
        yield CheckResult("route", "ok", f"the internet is routed over {' and '.join(protocols)}")
    else:
        text = "there is no route to the internet; only local addresses can be polled"
        yield CheckResult("route", "warn", text)


def _check_certificates() -> Iterator[CheckResult]:
    context = ssl.create_default_context()
    paths = ssl.get_default_verify_paths()
    if context.cert_store_stats()["x509_ca"] or (
        paths.capath and any(Path(paths.capath).iterdir())
    ):
        yield CheckResult("certificates", "ok", "CA certificates are installed")
    else:
        text = "no CA certificates, so HTTPS requests fail; on Debian: apt install ca-certificates"
        yield CheckResult("certificates", "error", text)


def _check_open_files(context: CliContext) -> Iterator[CheckResult]:
    soft_limit, hard_limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    concurrency = context.config.fetch_concurrency
    needed = 4 * concurrency + 100
    if soft_limit < needed:
        text = (
            f"the limit {soft_limit} may be too low for {concurrency} concurrent requests; raise "
            f"it with `ulimit -n {needed}` (at most {hard_limit}), or lower fetch.concurrency"
        )
        yield CheckResult("open files", "warn", text)
    else:
        yield CheckResult("open files", "ok", f"{soft_limit:,} allowed")


CHECKS: dict[str, Callable[[CliContext], Awaitable[list[CheckResult]]]] = {
    "configuration": _check_configuration,
    "data directory": _check_data_dir,
    "database": _check_database,
    "contact": _check_contact,
    "disk": _check_disk,
    "clock": _check_clock,
    "network": _check_network,
}
