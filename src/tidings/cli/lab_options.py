"""Options shared by commands of `tidings lab`: minimum intervals and poll constraints."""

from typing import Any

import click

from tidings.cli.output import Decorated
from tidings.config import DURATION_UNITS, Config, parse_duration
from tidings.errors import UsageError
from tidings.i18n import _


class MinInterval(click.ParamType[float]):
    """Minimum interval, converted to seconds: ``15min``, ``1h``, ``900``."""

    name = "duration"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        seconds = parse_duration(str(value))
        if seconds is None or seconds > DURATION_UNITS["d"]:
            self.fail(
                _(
                    "%(value)r is not a duration up to 1 day; write a number with s, min or h, "
                    "for example 15min",
                    value=value,
                )
            )
        return seconds


class MinIntervalList(click.ParamType[list[float]]):
    """Comma-separated minimum intervals, converted to seconds: ``5min,1h``."""

    name = "durations"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> list[float]:
        if isinstance(value, list):
            return value
        return [MinInterval().convert(part, param, ctx) for part in str(value).split(",")]


def as_served_options(command: Decorated) -> Decorated:
    """Add the options ``--as-served`` and ``--min-interval``, for `chosen_min_interval`."""
    default = Config().policy_min_interval
    for add in (
        click.option(
            "--min-interval",
            type=MinInterval(),
            metavar="DURATION",
            help=_("Minimum interval for --as-served (default: %(default)s).", default=default),
        ),
        click.option(
            "--as-served",
            is_flag=True,
            help=_("Simulation with the poll constraints and poll costs of the service."),
        ),
    ):
        command = add(command)
    return command


def chosen_min_interval(as_served: bool, min_interval: float | None) -> float | None:
    """Return the minimum interval of a run as served, in seconds; None without constraints."""
    if min_interval is not None and not as_served:
        raise UsageError(_("--min-interval is part of the poll constraints; add --as-served"))
    if not as_served:
        return None
    return Config().min_interval_s if min_interval is None else min_interval
