"""What commands print and read: tables, JSON, progress, lists of numbers.

Results go to stdout, everything else to stderr. Tables are aligned columns without boxes; colour and progress bars appear on a
terminal only, so that a pipe or a file gets plain text.
"""

import json
import math
import re
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import contextmanager
from io import StringIO
from pathlib import Path
from typing import Any, TypeVar

import click

Decorated = TypeVar("Decorated", bound=Callable[..., Any])
#: No row of a table in a file has more columns.
WIDEST = 1_000_000

# --- reading ------------------------------------------------------------------------------------------------------------


class Numbers(click.ParamType[list[float]]):
    """Numbers separated by commas: ``30,30,10,10``."""

    name = "numbers"

    def __init__(self, *, low: float | None = None, above: float | None = None) -> None:
        self.low, self.above = low, above

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> list[float]:
        if isinstance(value, list):  # a default
            return value
        return [
            self._one(text.strip(), place)
            for place, text in enumerate(str(value).split(","), start=1)
        ]

    def _one(self, text: str, place: int) -> float:
        try:
            number = float(text)
        except ValueError:
            found = repr(text) if text else "nothing"
            self.fail(
                f"{found} at place {place} is not a number; write numbers separated by commas, as in 30,30,10,10"
            )
        if not math.isfinite(number):
            self.fail(f"{text} at place {place} is not a finite number")
        if self.low is not None and number < self.low:
            self.fail(f"{text} at place {place} must be at least {self.low:g}")
        if self.above is not None and number <= self.above:
            self.fail(f"{text} at place {place} must be above {self.above:g}")
        return number


class Names(click.ParamType[list[str]]):
    """Names separated by commas: ``uniform,min-delay``."""

    name = "names"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> list[str]:
        if isinstance(value, list):
            return value
        names = [name.strip() for name in str(value).split(",")]
        if not all(names):
            self.fail(
                f"{value!r} has an empty name; write names separated by commas, as in uniform,min-delay"
            )
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            self.fail(f"{', '.join(twice)} is listed twice")
        return names


class Span(click.ParamType[float]):
    """A time in seconds, as people write it: ``30min``, ``12h``, ``7d``."""

    name = "time"
    units_s = {"s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}
    form = re.compile(r"(\d+(?:\.\d+)?)\s*([a-z]+)")

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        found = self.form.fullmatch(str(value).strip())
        if found is None or found[2] not in self.units_s or not float(found[1]):
            self.fail(
                f"{value!r} is not a time; write a number and {', '.join(self.units_s)}, as in 30min, 12h or 7d"
            )
        return float(found[1]) * self.units_s[found[2]]


class Spans(Span):
    """Several, separated by commas: ``30min,16h``."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        return [super(Spans, self).convert(part, param, ctx) for part in str(value).split(",")]


class Target(click.ParamType[Path]):
    """What a result is written to: refused, if it cannot be, before the work is done."""

    name = "file"

    def __init__(self, *endings: str, directory: bool = False) -> None:
        self.endings, self.directory = endings, directory

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        path = Path(value)
        if self.directory:
            if path.exists() and not path.is_dir():
                self.fail(f"{path} is a file; name a directory")
        elif self.endings and path.suffix.lower() not in self.endings:
            self.fail(f"{path}: the ending must be one of {', '.join(self.endings)}")
        elif not path.resolve().parent.is_dir():
            self.fail(f"{path}: there is no directory {path.parent}; make it first")
        return path


# --- printing -----------------------------------------------------------------------------------------------------------


def tell(found: Any, words: str | Callable[[], object]) -> None:
    """A command's result: with --json as it is, else in words, which may be a function that prints them."""
    if wants_json():
        print_json(found)
    elif isinstance(words, str):
        click.echo(words)
    else:
        words()


def wants_json() -> bool:
    """Whether the command that runs was given --json."""
    return bool(click.get_current_context().meta.get(__name__))


def print_json(value: Any) -> None:
    """One JSON document on stdout; what is not a finite number becomes null, because JSON knows no nan."""
    click.echo(_json(value, indent=2))


async def print_json_list(values: AsyncIterator[Any]) -> None:
    """A JSON array, an element to a line as it comes: a million entries need no more memory than one."""
    comma = "["
    async for value in values:
        click.echo(f"{comma}\n{_json(value)}", nl=False)
        comma = ","
    click.echo("[]" if comma == "[" else "\n]")


def _json(value: Any, indent: int | None = None) -> str:
    """Characters that stdout cannot show are escaped, so that none is lost."""
    wide = (sys.stdout.encoding or "").lower().startswith("utf")
    return json.dumps(_plain(value), indent=indent, ensure_ascii=not wide, allow_nan=False)


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if hasattr(value, "tolist"):  # a numpy array or scalar, without importing numpy to find out
        return _plain(value.tolist())
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if value is None or isinstance(value, str | int | float):
        return value
    return str(value)


def print_table(headings: Sequence[str], rows: Sequence[Sequence[str]], *, left: int = 1) -> None:
    """Aligned columns, the first ``left`` of them to the left and the rest, numbers, to the right."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    terminal = sys.stdout.isatty()
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for column, heading in enumerate(headings):
        table.add_column(
            Text(heading),
            justify="left" if column < left else "right",
            overflow="fold",
            no_wrap=column >= left,
        )
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    buffer = StringIO()
    width = None if terminal else WIDEST  # nothing to fit: as wide as the widest row
    Console(file=buffer, force_terminal=terminal, highlight=False, width=width).print(table)
    click.echo("\n".join(line.rstrip() for line in buffer.getvalue().splitlines()))


# --- progress -----------------------------------------------------------------------------------------------------------


class Progress:
    """A bar on stderr; silent where stderr is not a terminal."""

    def __init__(self, bar: Any = None, task: Any = None) -> None:
        self._bar, self._task = bar, task

    def say(self, text: str) -> None:
        """What is being done now."""
        if self._bar is not None:
            self._bar.update(self._task, description=text)

    def done(self, steps: float = 1.0) -> None:
        if self._bar is not None:
            self._bar.advance(self._task, steps)

    def tell(self, text: str, steps: float) -> None:
        """What is being done now, and how much more has been."""
        self.done(steps)
        self.say(text)

    def reached(self, steps: float, total: float) -> None:
        """So far, of so many: where the total is known only while it goes on."""
        if self._bar is not None:
            self._bar.update(self._task, completed=steps, total=total)


@contextmanager
def progress(text: str, total: float | None = None) -> Iterator[Progress]:
    """Show that something is under way, how far it is, and how long it may still take; gone when it is done."""
    if not sys.stderr.isatty():
        yield Progress()
        return
    from rich import progress as rich_progress
    from rich.console import Console

    columns: list[Any] = [
        rich_progress.TextColumn("{task.description}", markup=False),
        rich_progress.BarColumn(bar_width=24, complete_style="cyan"),
    ]
    if total is not None:
        columns.append(rich_progress.MofNCompleteColumn())
    columns += [
        rich_progress.TimeElapsedColumn(),
        rich_progress.TextColumn("left"),
        rich_progress.TimeRemainingColumn(),
    ]
    with rich_progress.Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        yield Progress(bar, bar.add_task(text, total=total))


# --- options that many commands share -----------------------------------------------------------------------------------


def _note_json(ctx: click.Context, param: click.Parameter, wanted: bool) -> None:
    ctx.meta[__name__] = wanted


json_option = click.option(
    "--json",
    is_flag=True,
    expose_value=False,
    callback=_note_json,
    help="Print the result as JSON.",
)
seed_option = click.option(
    "--seed",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    help="Seed of all randomness.",
)


def plot_option(what: str) -> Callable[[Decorated], Decorated]:
    """``--plot FILE`` for a command whose result is a curve."""
    endings = (".png", ".svg", ".pdf")
    told = f"Also draw {what}; the ending of FILE says how ({', '.join(endings)})."
    return click.option("--plot", type=Target(*endings), metavar="FILE", help=told)
