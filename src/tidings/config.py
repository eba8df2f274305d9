"""Configuration options with their types, default values, allowed values and help texts.

The options are the fields of `Config`. An option such as ``fetch.timeout_s`` can be set in three
places, each of which takes precedence over the ones before it: ``timeout_s`` under ``[fetch]`` in
``config.toml`` of the data folder, the environment variable ``TIDINGS_FETCH_TIMEOUT_S``, and the
flag ``--set fetch.timeout_s=20``. An unknown option or an invalid value raises a `ConfigError` that
names the place where the option was set and the allowed values.
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
from tidings.i18n import N_, _

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
    """Error for an unknown option or an invalid value of an option.

    The message names the place where the option was set and the allowed values.
    """

    def __init__(self, place: str, problem: str) -> None:
        super().__init__(f"{place}: {problem}")


def option(default: Any, allowed: str, check: Callable[[Any], bool], help: str) -> Any:
    """Declare a configuration option as a dataclass field of `Config`.

    ``check`` returns whether a value is valid, ``allowed`` describes the valid values for error
    messages, and ``help`` is the description in the documentation.
    """
    return field(default=default, metadata={"allowed": allowed, "check": check, "help": help})


def _is_network(text: str) -> bool:
    try:
        ip_network(text.strip(), strict=False)
    except ValueError:
        return False
    return True


def is_web_address(text: str) -> bool:
    """Return whether ``text`` is an http or https URL that fits into a User-Agent comment."""
    parts = urlsplit(text)
    return (
        parts.scheme in ("http", "https")
        and bool(parts.hostname)
        and not re.search(r"[\s()\x00-\x1f\x7f]", text)
    )


def parse_duration(text: str) -> float | None:
    """Return a duration such as ``15 min``, ``1h`` or ``900`` in seconds.

    Returns None if the text is not a duration. A number without a unit is in seconds.
    """
    match = DURATION.fullmatch(text.strip())
    return float(match["number"]) * DURATION_UNITS[(match["unit"] or "").lower()] if match else None


def parse_bytes(text: str) -> float | None:
    """Return a size such as ``500 MB`` in bytes, or None if the text is not a size."""
    match = SIZE.fullmatch(text.strip())
    return float(match["number"]) * SIZE_UNITS[match["unit"].lower()] if match else None


def split_list(value: str) -> list[str]:
    """Split a comma-separated list into its parts and drop empty parts."""
    return [part.strip() for part in value.split(",") if part.strip()]


@dataclass(frozen=True, slots=True)
class Config:
    """Values of all configuration options.

    The part of a field's name before the first underscore is the section of the option.
    """

    fetch_allow_private: bool = option(
        False,
        N_("true or false"),
        lambda value: True,
        N_(
            "Allow requests to private, loopback and link-local addresses. Leave this off if "
            "other users may add feeds."
        ),
    )
    fetch_treat_private_as_public: bool = option(
        False,
        N_("true or false"),
        lambda value: True,
        N_(
            "Apply host spacing, host pauses and redirect rules to private and loopback hosts "
            "too, for tests of politeness. Requests reach such hosts only with "
            "fetch.allow_private = true."
        ),
    )
    fetch_contact_url: str = option(
        "",
        N_("an http or https URL, or empty"),
        lambda value: not value or is_web_address(value),
        N_(
            "Contact URL in the User-Agent of every request. Publishers can use it to reach you. "
            "If empty, serve.public_url is used."
        ),
    )
    fetch_max_bytes: int = option(
        10_000_000,
        N_("at least 10,000"),
        lambda value: value >= 10_000,
        N_("Maximum size of a document in bytes, before and after decompression."),
    )
    fetch_timeout_s: float = option(
        30.0,
        N_("between 1 and 600"),
        lambda value: 1 <= value <= 600,
        N_("Timeout of a request in seconds, up to the last byte of the response."),
    )
    fetch_concurrency: int = option(
        100,
        N_("between 1 and 1,000"),
        lambda value: 1 <= value <= 1000,
        N_("Maximum number of concurrent requests to all hosts."),
    )
    fetch_host_spacing_s: float = option(
        1.0,
        N_("between 0.1 and 60"),
        lambda value: 0.1 <= value <= 60,
        N_(
            "Minimum time in seconds between two requests to one host. Private hosts are exempt "
            "unless fetch.treat_private_as_public is set."
        ),
    )
    policy_name: str = option(
        "price",
        N_("the name of a policy that `tidings lab compare` accepts, optionally with parameters"),
        bool,
        N_("Scheduling policy that decides when each feed is polled."),
    )
    policy_budget: str = option(
        "12/feed",
        N_("a number above 0, optionally followed by /day, /hour or /feed"),
        lambda value: (
            (match := BUDGET.fullmatch(value)) is not None and float(match["requests"]) > 0
        ),
        N_(
            "Request budget: per day (2400), per hour (100/hour), or per day for each feed "
            "(12/feed)."
        ),
    )
    policy_byte_budget: str = option(
        "",
        N_("a size above 0 in kB, MB or GB, such as 500 MB, or empty"),
        lambda value: not value or (parse_bytes(value) or 0) > 0,
        N_(
            "Maximum transfer of all polls per day, in addition to the request budget. Empty "
            "means no limit."
        ),
    )
    policy_min_interval: str = option(
        "15 min",
        N_("a duration up to 1 day with s, min or h, such as 15 min; a plain number is in seconds"),
        lambda value: (seconds := parse_duration(value)) is not None and seconds <= 86400,
        N_(
            "Minimum time between two polls of a feed whose publisher states no interval and "
            "answers 304 when nothing has changed. For a feed that always sends the full "
            "document, the minimum is four times as long. An interval that the publisher states "
            "is respected if it is between a third of this value and one day."
        ),
    )
    store_database: str = option(
        "",
        N_("the URL of a PostgreSQL database (postgresql://user@host/name), or empty"),
        lambda value: not value or value.startswith(("postgresql://", "postgres://")),
        N_(
            "PostgreSQL database to use instead of the SQLite file in the data folder. It allows "
            "more feeds and several workers."
        ),
    )
    store_retain_days: float = option(
        365.0,
        N_("at least 1"),
        lambda value: value >= 1,
        N_(
            "Retention period in days. Older entries are deleted, except the newest ones of each "
            "feed (store.retain_entries)."
        ),
    )
    store_retain_entries: int = option(
        100,
        N_("at least 0"),
        lambda value: value >= 0,
        N_("Number of newest entries of each feed that are kept regardless of their age."),
    )
    serve_host: str = option(
        "127.0.0.1", N_("an address of this machine"), bool, N_("Address to listen on.")
    )
    serve_port: int = option(
        8035,
        N_("between 0 and 65,535"),
        lambda value: 0 <= value <= 65535,
        N_("Port to listen on. 0 picks a free port."),
    )
    serve_public_url: str = option(
        "",
        N_("an http or https URL, or empty"),
        lambda value: not value or is_web_address(value),
        N_(
            "Public URL of this service. If set, feeds that have a WebSub hub are pushed to this "
            "service instead of polled."
        ),
    )
    serve_proxy_header: str = option(
        "",
        N_("the name of a header, or empty"),
        lambda value: re.fullmatch(r"[A-Za-z0-9-]*", value) is not None,
        N_(
            "Header in which an authenticating proxy sends the user name, such as Remote-User. A "
            "user that does not exist yet is created."
        ),
    )
    serve_proxy_addresses: str = option(
        "127.0.0.1",
        N_("addresses or networks separated by commas, such as 127.0.0.1, 10.0.0.0/8"),
        lambda value: all(_is_network(part) for part in value.split(",")),
        N_(
            "Addresses of trusted proxies. Only they may send the user name (serve.proxy_header) "
            "and the address of the client (X-Forwarded-For)."
        ),
    )
    exchange_enabled: bool = option(
        False,
        N_("true or false"),
        lambda value: True,
        N_(
            "Exchange fetched entries with peers. Peers learn which public feeds this server "
            "subscribes to."
        ),
    )
    exchange_host: str = option(
        "",
        N_("an address of this machine, or empty"),
        lambda value: True,
        N_("Address to listen on for peers. If empty, serve.host is used."),
    )
    exchange_port: int = option(
        0,
        N_("between 0 and 65,535"),
        lambda value: 0 <= value <= 65535,
        N_("Port for peers, who must reach it without a proxy. 0 uses serve.port."),
    )
    exchange_lists: str = option(
        "",
        N_("addresses with ports, separated by commas"),
        lambda value: all(re.fullmatch(r"[^\s,/@]+:\d{1,5}", part) for part in split_list(value)),
        N_(
            "List servers from which a new node learns its first peers, such as "
            "lists.example.org:8036."
        ),
    )
    exchange_keys: bool = option(
        False,
        N_("true or false"),
        lambda value: True,
        N_(
            "Sign fetched entries, so that nodes that trust this one can verify them (needs the "
            'extra "keys").'
        ),
    )
    exchange_friends: str = option(
        "",
        N_(
            "public keys of 64 hexadecimal digits, each optionally with @address:port, separated "
            "by commas"
        ),
        lambda value: all(TRUSTED_PEER.fullmatch(part) for part in split_list(value)),
        N_(
            "Trusted peers, whose signed entries are accepted without confirmation. `tidings "
            "peers` shows the key of a node."
        ),
    )
    exchange_friends_only: bool = option(
        False,
        N_("true or false"),
        lambda value: True,
        N_("Exchange only with trusted peers (exchange.friends)."),
    )
    exchange_decoys: int = option(
        0,
        N_("between 0 and 100"),
        lambda value: 0 <= value <= 100,
        N_(
            "Number of decoys. A decoy is a feed of a peer that is fetched and announced "
            "although no user is subscribed to it. Decoys hide from peers which feeds your users "
            "read."
        ),
    )
    exchange_certificate: str = option(
        "",
        N_("a file, or empty"),
        lambda value: True,
        N_(
            "TLS certificate with its private key (PEM) for exchange.port. All connections to "
            "and from peers are then encrypted. The peers must use TLS too."
        ),
    )
    log_level: str = option(
        "info",
        N_("one of debug, info, warning, error"),
        lambda value: value in LEVELS,
        N_("Minimum level of log messages."),
    )
    log_format: str = option(
        "text",
        N_("text or json"),
        lambda value: value in ("text", "json"),
        N_("Log format: text with key=value pairs, or one JSON object per line."),
    )

    @property
    def contact_url(self) -> str:
        """URL where publishers can reach the operator, or an empty string if none is configured."""
        return self.fetch_contact_url or self.serve_public_url

    @property
    def budget(self) -> "Budget":
        """Request budget, parsed from the option ``policy.budget``."""
        match = BUDGET.fullmatch(self.policy_budget)
        assert match is not None  # validated by `read`
        requests = float(match["requests"]) * (24 if match["unit"] == "hour" else 1)
        return Budget(requests, match["unit"] == "feed")

    @property
    def min_interval_s(self) -> float:
        """Shortest time in seconds between two polls of a feed (option ``policy.min_interval``)."""
        seconds = parse_duration(self.policy_min_interval)
        assert seconds is not None  # validated by `read`
        return seconds

    @property
    def bytes_per_day(self) -> float:
        """Maximum transfer of all polls in bytes per day, or infinity if no limit is set."""
        return parse_bytes(self.policy_byte_budget) or math.inf


@dataclass(frozen=True, slots=True)
class Budget:
    """Number of requests per day, either for all feeds together or for each feed."""

    requests: float
    each: bool  #: whether `requests` applies to each feed instead of all feeds together

    def per_day(self, feeds: int) -> float:
        """Return the total number of requests per day if there are ``feeds`` feeds."""
        return self.requests * max(feeds, 1) if self.each else self.requests


@dataclass(frozen=True, slots=True)
class Setting:
    """Option with its value and the place where the value was set.

    ``origin`` is "default", the path of the file, the environment variable or the flag.
    """

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
    """Return the fields of `Config` by option name (``fetch.timeout_s``)."""
    return {".".join(row.name.split("_", 1)): row for row in fields(Config)}


def read(
    folder: Path, environment: Mapping[str, str], flags: Mapping[str, str]
) -> dict[str, Setting]:
    """Read all options from ``config.toml`` in ``folder``, the environment and ``--set`` flags.

    Raises `ConfigError` for an unknown option or an invalid value.
    """
    table = _table()
    values = {name: (row.default, "default") for name, row in table.items()}
    for name, value, origin in (
        *_in_file(folder / FILE),
        *_in_environment(environment, table),
        *_in_flags(flags),
    ):
        if name not in table:
            raise ConfigError(origin, _unknown_option(name, list(table)))
        values[name] = (_validate(table[name], value, origin), origin)
    return {name: _setting(name, table[name], *values[name]) for name in table}


def _setting(name: str, row: Any, value: Any, origin: str) -> Setting:
    section, option_name = name.split(".", 1)
    allowed, help_text = row.metadata["allowed"], row.metadata["help"]
    return Setting(
        section,
        option_name,
        row.type,
        row.default,
        value,
        origin,
        _(allowed),
        _(help_text),
    )


def config_of(settings: Mapping[str, Setting]) -> Config:
    """Build a `Config` from the values of ``settings``."""
    return Config(**{name.replace(".", "_"): setting.value for name, setting in settings.items()})


def _in_file(file: Path) -> Iterator[tuple[str, Any, str]]:
    try:
        text = file.read_text("utf-8")
    except FileNotFoundError:
        return
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(str(file), _("cannot be read: %(error)s", error=error)) from None
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(str(file), _("is not valid TOML: %(error)s", error=error)) from None
    for section, options in document.items():
        if not isinstance(options, dict):
            raise ConfigError(
                str(file),
                _(
                    "%(option)s is outside of a section; move it below a heading such as [fetch]",
                    option=section,
                ),
            )
        for name, value in options.items():
            yield f"{section}.{name}", value, str(file)


def _in_environment(
    environment: Mapping[str, str], table: Mapping[str, Any]
) -> Iterator[tuple[str, str, str]]:
    """Yield (option name, text, variable name) of all environment variables that set options.

    Variables outside of the known sections, such as ``TIDINGS_DATA_DIR``, are not options.
    """
    sections = {name.partition(".")[0] for name in table}
    for variable, text in sorted(environment.items()):
        section, _separator, name = variable.removeprefix(PREFIX).lower().partition("_")
        if variable.startswith(PREFIX) and section in sections and name:
            yield f"{section}.{name}", text, variable


def _in_flags(flags: Mapping[str, str]) -> Iterator[tuple[str, str, str]]:
    for name, text in flags.items():
        yield name, text, f"--set {name}"


def _unknown_option(name: str, names: list[str]) -> str:
    similar = difflib.get_close_matches(name, names, n=1)
    if similar:
        return _(
            "unknown option %(name)s; did you mean %(similar)s?", name=name, similar=similar[0]
        )
    return _("unknown option %(name)s; known options: %(names)s", name=name, names=", ".join(names))


def _validate(row: Any, value: Any, origin: str) -> Any:
    """Return a value converted to the type of its option, or raise `ConfigError`.

    Text from the environment or from a flag is parsed. A value from TOML must have the right type.
    """
    converted = _convert(row.type, value)
    if converted is None or not row.metadata["check"](converted):
        name = ".".join(row.name.split("_", 1))
        texts = {
            int: N_("%(name)s must be a whole number %(allowed)s, not %(value)r"),
            float: N_("%(name)s must be a number %(allowed)s, not %(value)r"),
        }
        text = texts.get(row.type, N_("%(name)s must be %(allowed)s, not %(value)r"))
        allowed = row.metadata["allowed"]
        raise ConfigError(origin, _(text, name=name, allowed=_(allowed), value=value))
    return converted


def _convert(kind: type, value: Any) -> Any:
    """Return a value converted to the type of its option, or None if that is not possible."""
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
