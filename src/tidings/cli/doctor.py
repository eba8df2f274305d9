"""`tidings doctor`: everything that can be wrong around a service, looked at without asking anybody on the network."""

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

from tidings.cli.home import Home
from tidings.errors import TidingsError

Verdict: TypeAlias = Literal["well", "look", "wrong"]

LEAST_FREE_BYTES = 200_000_000
#: No clock of a machine that runs this program was ever right with an earlier time: it was written in 2026.
WRITTEN_AT = 1_767_225_600.0
#: From TEST-NET-1 and the documentation prefix (RFC 5737, 3849): a socket that is "connected" there sends nothing.
NOWHERE = ((socket.AF_INET, "192.0.2.1"), (socket.AF_INET6, "2001:db8::1"))


class Finding(NamedTuple):
    """What was looked at, and what to do about it."""

    what: str
    verdict: Verdict
    words: str


async def examine(home: Home, progress: Callable[[], object]) -> list[Finding]:
    """All checks, one after another; what one of them cannot do is a finding too."""
    findings = []
    for what, check in CHECKS.items():
        try:
            findings += await check(home)
        except TidingsError as error:
            findings.append(Finding(what, "wrong", str(error)))
        progress()
    return findings


async def _configuration(home: Home) -> list[Finding]:
    from tidings.service import check_policy

    config = home.config
    check_policy(home.settings)
    own = sum(setting.origin != "default" for setting in home.settings.values())
    found = [
        Finding(
            "configuration",
            "well",
            f"{own} of {len(home.settings)} options differ from the default",
        )
    ]
    if config.fetch_allow_private:
        found.append(
            Finding(
                "private addresses",
                "look",
                "may be asked; set fetch.allow_private=false if others add feeds",
            )
        )
    return found


async def _contact(home: Home) -> list[Finding]:
    from tidings.aggregator.contact import stored_contact

    url = home.config.contact_url
    if not url and home.has_store:
        with suppress(TidingsError):  # the check of the store says what is wrong with it
            async with home.open_store() as store:
                url = await stored_contact(store)
    if url:
        return [Finding("contact", "well", url)]
    advice = "set fetch.contact_url to a page of yours (or serve.public_url), in config.toml or as TIDINGS_FETCH_CONTACT_URL"
    return [
        Finding("contact", "look", f"publishers cannot reach you before they block you; {advice}")
    ]


async def _folder(home: Home) -> list[Finding]:
    folder = home.folder
    if not folder.is_dir():
        return [
            Finding(
                "folder",
                "look",
                f"{folder} is not there yet; `tidings add` or `tidings serve` makes it",
            )
        ]
    if not os.access(folder, os.R_OK | os.W_OK | os.X_OK):
        return [
            Finding(
                "folder",
                "wrong",
                f"{folder} is not writable for this user; change its owner or its mode",
            )
        ]
    if stat.S_IMODE(folder.stat().st_mode) & 0o077:
        return [
            Finding(
                "folder", "look", f"others on this machine can look into {folder}; `chmod 700` it"
            )
        ]
    return [Finding("folder", "well", str(folder))]


async def _store(home: Home) -> list[Finding]:
    if not home.has_store:
        return [
            Finding(
                "store", "look", "is empty; begin with `tidings add URL` or `tidings import FILE`"
            )
        ]
    async with home.open_store() as store:
        problems = await store.check()
        status = await store.status()
    if problems:
        return [
            Finding("store", "wrong", f"{problem}; restore your last backup with `tidings restore`")
            for problem in problems
        ]
    size = (
        f"{home.place.stat().st_size / 1e6:,.1f} MB"
        if isinstance(home.place, Path)
        else "in PostgreSQL"
    )
    return [
        Finding(
            "store", "well", f"{status.feeds:,} feeds, {status.entries:,} entries, {size}, whole"
        )
    ]


async def _disk(home: Home) -> list[Finding]:
    there = next(
        folder for folder in (home.folder, *home.folder.absolute().parents) if folder.exists()
    )
    free = shutil.disk_usage(there).free
    needed = max(
        LEAST_FREE_BYTES, 2 * home.store_path.stat().st_size if home.store_path.exists() else 0
    )
    words = f"{free / 1e9:,.1f} GB free"
    if free < needed:
        return [
            Finding(
                "disk", "wrong", f"{words}, and a backup needs {needed / 1e9:,.1f} GB; make room"
            )
        ]
    return [Finding("disk", "well", words)]


async def _clock(home: Home) -> list[Finding]:
    now = time.time()
    words = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(now))
    if now < WRITTEN_AT:
        return [
            Finding(
                "clock", "wrong", f"says {words}, which is before this program was written; set it"
            )
        ]
    if home.has_store:
        async with home.open_store() as store:
            asked = max((await store.last_request_times(now)).values(), default=0.0)
        if asked > now:
            return [
                Finding(
                    "clock",
                    "wrong",
                    f"says {words}, but a host was asked {asked - now:,.0f} s after that; set it",
                )
            ]
    return [Finding("clock", "well", words)]


async def _network(home: Home) -> list[Finding]:
    return [*_names(), *_routes(), *_certificates(), *_files(home)]


def _names() -> Iterator[Finding]:
    try:
        socket.getaddrinfo("localhost", 80)
    except OSError as error:
        yield Finding(
            "names", "wrong", f"localhost cannot be resolved ({error.strerror}); look at /etc/hosts"
        )
        return
    resolver = Path("/etc/resolv.conf")
    if resolver.exists() and "nameserver" not in resolver.read_text(errors="replace"):
        yield Finding("names", "wrong", f"{resolver} names no server, so no feed can be found")
    else:
        yield Finding("names", "well", "a resolver is configured")


def _routes() -> Iterator[Finding]:
    ways = []
    for family, nowhere in NOWHERE:
        try:
            with socket.socket(family, socket.SOCK_DGRAM) as trial:
                trial.connect((nowhere, 9))
            ways.append("IPv6" if family == socket.AF_INET6 else "IPv4")
        except OSError:
            continue
    if ways:
        yield Finding("route", "well", f"there is a way out by {' and '.join(ways)}")
    else:
        yield Finding(
            "route",
            "look",
            "there is no way out of this machine; only its own addresses can be asked",
        )


def _certificates() -> Iterator[Finding]:
    context = ssl.create_default_context()
    paths = ssl.get_default_verify_paths()
    if context.cert_store_stats()["x509_ca"] or (
        paths.capath and any(Path(paths.capath).iterdir())
    ):
        yield Finding("certificates", "well", "authorities are installed")
    else:
        yield Finding(
            "certificates",
            "wrong",
            "no authorities are installed, so https fails; on Debian: apt install ca-certificates",
        )


def _files(home: Home) -> Iterator[Finding]:
    allowed, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = 4 * home.config.fetch_concurrency + 100
    if allowed < needed:
        advice = f"raise it with `ulimit -n {needed}` (at most {most}), or lower fetch.concurrency"
        yield Finding(
            "open files",
            "look",
            f"{allowed} may be too few for {home.config.fetch_concurrency} requests at once; {advice}",
        )
    else:
        yield Finding("open files", "well", f"{allowed:,} allowed")


CHECKS: dict[str, Callable[[Home], Awaitable[list[Finding]]]] = {
    "configuration": _configuration,
    "folder": _folder,
    "store": _store,
    "contact": _contact,
    "disk": _disk,
    "clock": _clock,
    "network": _network,
}
