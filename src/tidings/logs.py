"""One line per thing that happened, with the same keys everywhere, so that a decision can be found and read in the log.

``log.info("polled", feed=12, new=3)`` becomes ``polled feed=12 new=3``, or an object of JSON.
"""

import json
import logging
import sys
from datetime import UTC, datetime
from typing import Any, TextIO

from tidings.redaction import redact_password


class Log:
    """The standard library's logger, with fields."""

    def __init__(self, name: str) -> None:
        self._logger = logging.getLogger(name)

    def debug(self, event: str, **fields: Any) -> None:
        self._log(logging.DEBUG, event, fields)

    def info(self, event: str, **fields: Any) -> None:
        self._log(logging.INFO, event, fields)

    def warning(self, event: str, **fields: Any) -> None:
        self._log(logging.WARNING, event, fields)

    def exception(self, event: str, **fields: Any) -> None:
        """An error that nobody expected, with its traceback."""
        self._log(logging.ERROR, event, fields, traceback=True)

    def _log(self, level: int, event: str, fields: dict[str, Any], traceback: bool = False) -> None:
        if self._logger.isEnabledFor(level):
            self._logger.log(level, event, exc_info=traceback, extra={"fields": fields})


class TextFormatter(logging.Formatter):
    """``2026-11-16T08:00:00Z info polled feed=12 reason="..."``."""

    def format(self, record: logging.LogRecord) -> str:
        fields = " ".join(f"{key}={_value(value)}" for key, value in _fields(record).items())
        line = f"{_time(record)} {record.levelname.lower()} {record.getMessage()}{' ' if fields else ''}{fields}"
        return redact_password(
            line if not record.exc_info else f"{line}\n{self.formatException(record.exc_info)}"
        )


class JsonFormatter(logging.Formatter):
    """One object on each line."""

    def format(self, record: logging.LogRecord) -> str:
        record_fields = {
            "at": _time(record),
            "level": record.levelname.lower(),
            "event": record.getMessage(),
            **_fields(record),
        }
        if record.exc_info:
            record_fields["traceback"] = self.formatException(record.exc_info)
        return redact_password(json.dumps(record_fields, default=str, ensure_ascii=False))


def configure_logging(
    level: str = "info", form: str = "text", stream: TextIO | None = None
) -> None:
    """Where lines go and how they look; called once by a program, never by a part."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonFormatter() if form == "json" else TextFormatter())
    logger = logging.getLogger("tidings")
    logger.handlers[:] = [handler]
    logger.setLevel(level.upper())
    logger.propagate = False


def _fields(record: logging.LogRecord) -> dict[str, Any]:
    return getattr(record, "fields", {})


def _time(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _value(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.3f}".rstrip("0").rstrip(".")
    text = str(value)
    plain = text and not any(character.isspace() or character in '="' for character in text)
    return text if plain else json.dumps(text, ensure_ascii=False)
