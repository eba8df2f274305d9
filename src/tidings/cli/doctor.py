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
from tidings.cli.output import feeds_text
from tidings.errors import TidingsError
from tidings.i18n import _

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
    text = _(
        "%(changed)s of %(settings)s options differ from the default",
        changed=changed,
        settings=len(context.settings),
    )
    results = [CheckResult(_("configuration"), "ok", text)]
    if config.fetch_allow_private:
        text = _(
            "requests to private addresses are allowed; if other users add feeds, "
            "set fetch.allow_private=false"
        )
        results.append(CheckResult(_("private addresses"), "warn", text))
    return results


async def _check_contact(context: CliContext) -> list[CheckResult]:
    from tidings.aggregator.contact import stored_contact

    url = context.config.contact_url
    if not url and context.store_exists:
        with suppress(TidingsError):  # the database check reports this error
            async with context.open_store() as store:
                url = await stored_contact(store)
    if url:
        return [CheckResult(_("contact"), "ok", url)]
    text = _(
        "publishers cannot contact you before they block you; set fetch.contact_url to a page "
        "with your contact details, or set serve.public_url"
    )
    return [CheckResult(_("contact"), "warn", text)]


async def _check_data_dir(context: CliContext) -> list[CheckResult]:
    data_dir = context.data_dir
    if not data_dir.is_dir():
        text = _(
            "%(data_dir)s does not exist yet; `tidings add` or `tidings serve` creates it",
            data_dir=data_dir,
        )
        return [CheckResult(_("data directory"), "warn", text)]
    if not os.access(data_dir, os.R_OK | os.W_OK | os.X_OK):
        text = _(
            "this user cannot write to %(data_dir)s; change its owner or its mode",
            data_dir=data_dir,
        )
        return [CheckResult(_("data directory"), "error", text)]
    if stat.S_IMODE(data_dir.stat().st_mode) & 0o077:
        text = _(
            "other users of this computer can read %(data_dir)s; run: chmod 700 %(data_dir)s",
            data_dir=data_dir,
        )
        return [CheckResult(_("data directory"), "warn", text)]
    return [CheckResult(_("data directory"), "ok", str(data_dir))]


async def _check_database(context: CliContext) -> list[CheckResult]:
    if not context.store_exists:
        text = _("there is no database yet; start with `tidings add URL` or `tidings import FILE`")
        return [CheckResult(_("database"), "warn", text)]
    async with context.open_store() as store:
        problems = await store.check()
        status = await store.status()
    if problems:
        return [
            CheckResult(
                _("database"),
                "error",
                _("%(problem)s; restore your last backup with `tidings restore`", problem=problem),
            )
            for problem in problems
        ]
    size = (
        _("%(st_size)s MB", st_size=f"{context.store_location.stat().st_size / 1e6:,.1f}")
        if isinstance(context.store_location, Path)
        else "PostgreSQL"
    )
    feeds = feeds_text(status.feeds)
    text = _(
        "%(feeds)s, %(entries)s entries, %(size)s, no damage found",
        feeds=feeds,
        entries=f"{status.entries:,}",
        size=size,
    )
    return [CheckResult(_("database"), "ok", text)]


async def _check_disk(context: CliContext) -> list[CheckResult]:
    parents = (context.data_dir, *context.data_dir.absolute().parents)
    existing = next(directory for directory in parents if directory.exists())
    free = shutil.disk_usage(existing).free
    needed = MIN_FREE_BYTES
    if context.store_path.exists():
        needed = max(needed, 2 * context.store_path.stat().st_size)
    if free < needed:
        text = _(
            "%(free)s GB are free, but a backup needs %(needed)s GB; free some disk space",
            free=f"{free / 1e9:,.1f}",
            needed=f"{needed / 1e9:,.1f}",
        )
        return [CheckResult(_("disk"), "error", text)]
    text = _("%(free)s GB of disk space are free", free=f"{free / 1e9:,.1f}")
    return [CheckResult(_("disk"), "ok", text)]


async def _check_clock(context: CliContext) -> list[CheckResult]:
    now = time.time()
    text = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(now))
    if now < EARLIEST_VALID_TIME:
        return [
            CheckResult(
                _("clock"),
                "error",
                _(
                    "the clock shows %(time)s, which is in the past; set the system clock",
                    time=text,
                ),
            )
        ]
    if context.store_exists:
        async with context.open_store() as store:
            last_request_at = max((await store.last_request_times(now)).values(), default=0.0)
        if last_request_at > now:
            text = _(
                "the clock shows %(time)s, but the last request was %(seconds)s s later; "
                "set the system clock",
                time=text,
                seconds=f"{last_request_at - now:,.0f}",
            )
            return [CheckResult(_("clock"), "error", text)]
    return [CheckResult(_("clock"), "ok", text)]


async def _check_network(context: CliContext) -> list[CheckResult]:
    return [*_check_dns(), *_check_routes(), *_check_certificates(), *_check_open_files(context)]


def _check_dns() -> Iterator[CheckResult]:
    try:
        socket.getaddrinfo("localhost", 80)
    except OSError as error:
        text = _(
            "localhost cannot be resolved (%(strerror)s); check /etc/hosts", strerror=error.strerror
        )
        yield CheckResult(_("DNS"), "error", text)
        return
    resolver = Path("/etc/resolv.conf")
    if resolver.exists() and "nameserver" not in resolver.read_text(errors="replace"):
        text = _(
            "%(resolver)s has no nameserver line, so host names cannot be resolved; add one",
            resolver=resolver,
        )
        yield CheckResult(_("DNS"), "error", text)
    else:
        yield CheckResult(_("DNS"), "ok", _("a resolver is configured"))


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
        yield CheckResult(
            _("route"),
            "ok",
            _(
                "there is a route to the internet over %(protocols)s",
                protocols=", ".join(protocols),
            ),
        )
    else:
        text = _("there is no route to the internet; only local addresses can be polled")
        yield CheckResult(_("route"), "warn", text)


def _check_certificates() -> Iterator[CheckResult]:
    context = ssl.create_default_context()
    paths = ssl.get_default_verify_paths()
    if context.cert_store_stats()["x509_ca"] or (
        paths.capath and any(Path(paths.capath).iterdir())
    ):
        yield CheckResult(_("certificates"), "ok", _("CA certificates are installed"))
    else:
        text = _(
            "there are no CA certificates, so HTTPS requests fail; on Debian, run: "
            "apt install ca-certificates"
        )
        yield CheckResult(_("certificates"), "error", text)


def _check_open_files(context: CliContext) -> Iterator[CheckResult]:
    soft_limit, hard_limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    concurrency = context.config.fetch_concurrency
    needed = 4 * concurrency + 100
    if soft_limit < needed:
        text = _(
            "the limit %(soft_limit)s may be too low for %(concurrency)s concurrent "
            "requests; raise it with `ulimit -n %(needed)s` (at most %(hard_limit)s), or "
            "lower fetch.concurrency",
            soft_limit=soft_limit,
            concurrency=concurrency,
            needed=needed,
            hard_limit=hard_limit,
        )
        yield CheckResult(_("open files"), "warn", text)
    else:
        yield CheckResult(
            _("open files"),
            "ok",
            _("%(soft_limit)s open files are allowed", soft_limit=f"{soft_limit:,}"),
        )


CHECKS: dict[str, Callable[[CliContext], Awaitable[list[CheckResult]]]] = {
    _("configuration"): _check_configuration,
    _("data directory"): _check_data_dir,
    _("database"): _check_database,
    _("contact"): _check_contact,
    _("disk"): _check_disk,
    _("clock"): _check_clock,
    _("network"): _check_network,
}
