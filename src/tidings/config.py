"""All configuration in one table: the fields of `Config`, each with its type, default, what is allowed, and help.

An option is called ``fetch.timeout_s``. It is set, the later winning, in ``config.toml`` of the data folder (``timeout_s``
under ``[fetch]``), in the environment (``TIDINGS_FETCH_TIMEOUT_S``), or by the flag ``--set fetch.timeout_s=20``. A wrong
option is refused with its place and with what is allowed; nothing is ignored silently.
"""

import difflib
import math
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from ipaddress import ip_network
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from tidings.errors import UsageError

FILE = "config.toml"
PREFIX = "TIDINGS_"
BUDGET = re.compile(r"(?P<requests>\d+(\.\d+)?)\s*(/\s*(?P<unit>feed|day|hour))?")
TRUSTED_PEER = re.compile(r"(?P<key>[0-9a-fA-F]{64})(@(?P<nid>\[?[0-9a-fA-F.:]+\]?:\d{1,5}))?")
DURATION = re.compile(r"(?P<number>\d+(\.\d+)?)\s*(?P<unit>s|sec|m|min|h|d)?", re.IGNORECASE)
DURATION_UNITS = {"": 1.0, "s": 1.0, "sec": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
SIZE = re.compile(r"(?P<number>\d+(\.\d+)?)\s*(?P<unit>kB|MB|GB)", re.IGNORECASE)
SIZE_UNITS = {"kb": 1e3, "mb": 1e6, "gb": 1e9}
LEVELS = ("debug", "info", "warning", "error")


class ConfigError(UsageError):
    """An option that is wrong: names its place and what is allowed."""

    def __init__(self, place: str, problem: str) -> None:
        super().__init__(f"{place}: {problem}")


def option(default: Any, allowed: str, check: Callable[[Any], bool], help: str) -> Any:
    """A row of the table."""
    return field(default=default, metadata={"allowed": allowed, "check": check, "help": help})


def _is_network(text: str) -> bool:
    try:
        ip_network(text.strip(), strict=False)
    except ValueError:
        return False
    return True


def is_web_address(text: str) -> bool:
    """Return whether this is an http or https address that a User-Agent can carry in its comment."""
    parts = urlsplit(text)
    return (
        parts.scheme in ("http", "https")
        and bool(parts.hostname)
        and not re.search(r"[\s()\x00-\x1f\x7f]", text)
    )


def parse_duration(text: str) -> float | None:
    """Seconds of a duration such as ``15 min``, ``1h`` or ``900``; None where it is none."""
    found = DURATION.fullmatch(text.strip())
    return float(found["number"]) * DURATION_UNITS[(found["unit"] or "").lower()] if found else None


def parse_bytes(text: str) -> float | None:
    """Bytes of a size such as ``500 MB``; None where it is none."""
    found = SIZE.fullmatch(text.strip())
    return float(found["number"]) * SIZE_UNITS[found["unit"].lower()] if found else None


def split_list(value: str) -> list[str]:
    """What stands between commas."""
    return [part.strip() for part in value.split(",") if part.strip()]


@dataclass(frozen=True, slots=True)
class Config:
    """The table. The part of a name before the first underscore is its section."""

    fetch_allow_private: bool = option(
        False,
        "true or false",
        lambda value: True,
        "May private, loopback and link-local addresses be asked? Leave this off where others may add feeds.",
    )
    fetch_treat_private_as_public: bool = option(
        False,
        "true or false",
        lambda value: True,
        "Apply host spacing, host pauses and redirect rules to private and loopback hosts too, for tests of politeness. "
        "Requests reach such hosts only with fetch.allow_private = true.",
    )
    fetch_contact_url: str = option(
        "",
        "an http or https address, or nothing",
        lambda value: not value or is_web_address(value),
        "Address in the User-Agent of every request, by which publishers can reach you. If empty, serve.public_url is used.",
    )
    fetch_max_bytes: int = option(
        10_000_000,
        "at least 10,000",
        lambda value: value >= 10_000,
        "The largest document that is read, packed or unpacked.",
    )
    fetch_timeout_s: float = option(
        30.0,
        "between 1 and 600",
        lambda value: 1 <= value <= 600,
        "For a request with its answer, to the last byte.",
    )
    fetch_concurrency: int = option(
        100,
        "between 1 and 1,000",
        lambda value: 1 <= value <= 1000,
        "Requests under way at once, to all hosts together.",
    )
    fetch_host_spacing_s: float = option(
        1.0,
        "between 0.1 and 60",
        lambda value: 0.1 <= value <= 60,
        "Least seconds between two requests to one host. Private hosts are exempt unless fetch.treat_private_as_public is set.",
    )
    policy_name: str = option(
        "price",
        "a name that `tidings lab compare` knows, perhaps with parameters",
        bool,
        "The policy that decides when each feed is polled.",
    )
    policy_budget: str = option(
        "12/feed",
        "a number above 0, alone or followed by /day, /hour or /feed",
        lambda value: (
            (match := BUDGET.fullmatch(value)) is not None and float(match["requests"]) > 0
        ),
        "Requests that may be spent: in a day (2400), in an hour (100/hour), or in a day for each feed there is (12/feed).",
    )
    policy_byte_budget: str = option(
        "",
        "a number of bytes above 0 with kB, MB or GB, such as 500 MB, or nothing",
        lambda value: not value or (parse_bytes(value) or 0) > 0,
        "Bytes that polls may transfer in a day, beside the budget of requests; nothing sets no limit.",
    )
    policy_min_interval: str = option(
        "15 min",
        "a duration up to 1 day with s, min or h, such as 15 min; a plain number is in seconds",
        lambda value: (seconds := parse_duration(value)) is not None and seconds <= 86400,
        "Minimum time between two polls of a feed whose publisher states no interval and answers unchanged with 304. "
        "A feed that always sends the full document waits four times as long; an interval that the publisher states "
        "holds from a third of this up to a day.",
    )
    store_database: str = option(
        "",
        "the address of a PostgreSQL database (postgresql://user@host/name), or nothing",
        lambda value: not value or value.startswith(("postgresql://", "postgres://")),
        "Where the store is, if it is not a file in the data folder: for more feeds or workers than one process can serve.",
    )
    store_retain_days: float = option(
        365.0,
        "at least 1",
        lambda value: value >= 1,
        "Entries that came longer ago are forgotten, save each feed's newest.",
    )
    store_retain_entries: int = option(
        100,
        "at least 0",
        lambda value: value >= 0,
        "So many of each feed's newest entries are kept, however old.",
    )
    serve_host: str = option(
        "127.0.0.1", "an address of this machine", bool, "Address to listen on."
    )
    serve_port: int = option(
        8035, "between 0 and 65,535", lambda value: 0 <= value <= 65535, "Port; 0 picks a free one."
    )
    serve_public_url: str = option(
        "",
        "an http or https address, or nothing",
        lambda value: not value or is_web_address(value),
        "Where hubs can reach this service; with it, feeds that have a WebSub hub are pushed to us instead of polled.",
    )
    serve_proxy_header: str = option(
        "",
        "the name of a header, or nothing",
        lambda value: re.fullmatch(r"[A-Za-z0-9-]*", value) is not None,
        "In which a proxy that logs people in names them, such as Remote-User; somebody new is made a user.",
    )
    serve_proxy_addresses: str = option(
        "127.0.0.1",
        "addresses or networks with commas between, such as 127.0.0.1, 10.0.0.0/8",
        lambda value: all(_is_network(part) for part in value.split(",")),
        "From where the proxy is believed: who it says has logged in, and from which address they came.",
    )
    exchange_enabled: bool = option(
        False,
        "true or false",
        lambda value: True,
        "Shall what we fetch be exchanged with neighbours? They learn which public feeds are followed here.",
    )
    exchange_host: str = option(
        "",
        "an address of this machine, or nothing",
        lambda value: True,
        "Address to listen on for neighbours, if not serve.host.",
    )
    exchange_port: int = option(
        0,
        "between 0 and 65,535",
        lambda value: 0 <= value <= 65535,
        "Port for neighbours, who must reach it without a proxy in between; 0: the service's own.",
    )
    exchange_lists: str = option(
        "",
        "addresses with ports, separated by commas",
        lambda value: all(re.fullmatch(r"[^\s,/@]+:\d{1,5}", part) for part in split_list(value)),
        "List servers that name nodes to newcomers, as in lists.example.org:8036.",
    )
    exchange_keys: bool = option(
        False,
        "true or false",
        lambda value: True,
        'Sign what we fetch, so that friends can believe it (needs the extra "keys").',
    )
    exchange_friends: str = option(
        "",
        "public keys of 64 hexadecimal digits, each perhaps with @address:port, separated by commas",
        lambda value: all(TRUSTED_PEER.fullmatch(part) for part in split_list(value)),
        "Nodes whose signed entries are believed at once; `tidings peers` tells a node's own key.",
    )
    exchange_friends_only: bool = option(
        False, "true or false", lambda value: True, "Exchange with friends alone."
    )
    exchange_decoys: int = option(
        0,
        "between 0 and 100",
        lambda value: 0 <= value <= 100,
        "Feeds of neighbours that are fetched and told as if somebody read them here, so that nobody can tell who reads what.",
    )
    exchange_certificate: str = option(
        "",
        "a file, or nothing",
        lambda value: True,
        "Certificate with its key (PEM) for exchange.port: all calls to and from neighbours are encrypted, theirs must be too.",
    )
    log_level: str = option(
        "info",
        f"one of {', '.join(LEVELS)}",
        lambda value: value in LEVELS,
        "What is worth a line.",
    )
    log_format: str = option(
        "text",
        "text or json",
        lambda value: value in ("text", "json"),
        "Lines of key=value, or of JSON.",
    )

    @property
    def contact_url(self) -> str:
        """Where publishers can reach the operator; empty if the configuration does not say."""
        return self.fetch_contact_url or self.serve_public_url

    @property
    def budget(self) -> "Budget":
        """The budget as a number."""
        found = BUDGET.fullmatch(self.policy_budget)
        assert found is not None  # checked when it was read
        requests = float(found["requests"]) * (24 if found["unit"] == "hour" else 1)
        return Budget(requests, found["unit"] == "feed")

    @property
    def min_interval_s(self) -> float:
        """`policy.min_interval` in seconds."""
        seconds = parse_duration(self.policy_min_interval)
        assert seconds is not None  # checked when it was read
        return seconds

    @property
    def bytes_per_day(self) -> float:
        """`policy.byte_budget` in bytes; infinite where there is none."""
        return parse_bytes(self.policy_byte_budget) or math.inf


@dataclass(frozen=True, slots=True)
class Budget:
    """Requests per day, over all feeds or for each."""

    requests: float
    each: bool

    def per_day(self, feeds: int) -> float:
        """Over all of so many feeds."""
        return self.requests * max(feeds, 1) if self.each else self.requests


@dataclass(frozen=True, slots=True)
class Setting:
    """An option with its value and where that comes from."""

    section: str
    option: str
    kind: type
    default: Any
    value: Any
    origin: str
    allowed: str
    help: str

    @property
    def name(self) -> str:
        return f"{self.section}.{self.option}"

    @property
    def variable(self) -> str:
        return f"{PREFIX}{self.section}_{self.option}".upper()


def _table() -> dict[str, Any]:
    """The fields of `Config` by the names that users know."""
    return {".".join(row.name.split("_", 1)): row for row in fields(Config)}


def read(
    folder: Path, environment: Mapping[str, str], flags: Mapping[str, str]
) -> dict[str, Setting]:
    """Every option with its value, from the file in the folder, the environment, and ``--set`` flags."""
    table = _table()
    values = {name: (row.default, "default") for name, row in table.items()}
    for name, value, origin in (
        *_in_file(folder / FILE),
        *_in_environment(environment, table),
        *_in_flags(flags),
    ):
        if name not in table:
            raise ConfigError(origin, f"there is no option {name}{_suggestion(name, list(table))}")
        values[name] = (_validated(table[name], value, origin), origin)
    return {name: _setting(name, table[name], *values[name]) for name in table}


def _setting(name: str, row: Any, value: Any, origin: str) -> Setting:
    section, _, option_name = name.partition(".")
    return Setting(
        section,
        option_name,
        row.type,
        row.default,
        value,
        origin,
        row.metadata["allowed"],
        row.metadata["help"],
    )


def config_of(settings: Mapping[str, Setting]) -> Config:
    """The values alone."""
    return Config(**{name.replace(".", "_"): setting.value for name, setting in settings.items()})


def _in_file(file: Path) -> Iterator[tuple[str, Any, str]]:
    try:
        text = file.read_text("utf-8")
    except FileNotFoundError:
        return
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(str(file), f"cannot be read: {error}") from None
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(str(file), f"is not TOML: {error}") from None
    for section, options in document.items():
        if not isinstance(options, dict):
            raise ConfigError(
                str(file),
                f"{section} stands outside of any section; put it under one, such as [fetch]",
            )
        for name, value in options.items():
            yield f"{section}.{name}", value, str(file)


def _in_environment(
    environment: Mapping[str, str], table: Mapping[str, Any]
) -> Iterator[tuple[str, str, str]]:
    """Variables of our sections; others that begin with our name (TIDINGS_DATA_DIR, what Docker sets) are not options."""
    sections = {name.partition(".")[0] for name in table}
    for variable, text in sorted(environment.items()):
        section, _, name = variable.removeprefix(PREFIX).lower().partition("_")
        if variable.startswith(PREFIX) and section in sections and name:
            yield f"{section}.{name}", text, variable


def _in_flags(flags: Mapping[str, str]) -> Iterator[tuple[str, str, str]]:
    for name, text in flags.items():
        yield name, text, f"--set {name}"


def _suggestion(name: str, names: list[str]) -> str:
    near = difflib.get_close_matches(name, names, n=1)
    return f"; did you mean {near[0]}?" if near else f"; there are {', '.join(names)}"


def _validated(row: Any, value: Any, origin: str) -> Any:
    """The value as its type, or a refusal. Text from the environment or a flag is read; TOML must have the type itself."""
    converted = _convert(row.type, value)
    if converted is None or not row.metadata["check"](converted):
        name = ".".join(row.name.split("_", 1))
        must = {bool: "", int: "a whole number ", float: "a number ", str: ""}[row.type]
        raise ConfigError(origin, f"{name} must be {must}{row.metadata['allowed']}, not {value!r}")
    return converted


def _convert(kind: type, value: Any) -> Any:
    """None where it cannot be."""
    if kind is str and not isinstance(value, bool):
        return str(value).strip() if isinstance(value, str | int | float) else None
    if isinstance(value, kind) and (kind is bool or not isinstance(value, bool)):
        return value
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if not isinstance(value, str):
        return None
    text = value.strip().lower()
    if kind is bool:
        return {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}.get(
            text
        )
    try:
        number = kind(text.replace("_", ""))
    except ValueError:
        return None
    return number if math.isfinite(number) else None
