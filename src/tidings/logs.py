"""Structured logging that writes one line per event with named fields, as text or JSON.

``log.info("poll_finished", feed=12, new=3)`` becomes ``poll_finished feed=12 new=3`` or a JSON
object. Event names are ``noun_verb``. Passwords in URLs are redacted.
"""

import json
import logging
import sys
from datetime import UTC, datetime
from typing import Any, TextIO

from tidings.redaction import redact_password


class Log:
    """Logger whose events have named fields.

    It uses the logger of the standard library with the same name.
    """

    def __init__(self, name: str) -> None:
        self._logger = logging.getLogger(name)

    def debug(self, event: str, **fields: Any) -> None:
        self._log(logging.DEBUG, event, fields)

    def info(self, event: str, **fields: Any) -> None:
        self._log(logging.INFO, event, fields)

    def warning(self, event: str, **fields: Any) -> None:
        self._log(logging.WARNING, event, fields)

    def exception(self, event: str, **fields: Any) -> None:
        """Log an unexpected error with its traceback."""
        self._log(logging.ERROR, event, fields, traceback=True)

    def _log(self, level: int, event: str, fields: dict[str, Any], traceback: bool = False) -> None:
        if self._logger.isEnabledFor(level):
            self._logger.log(level, event, exc_info=traceback, extra={"fields": fields})


class TextFormatter(logging.Formatter):
    """Formatter for lines such as ``2026-11-16T08:00:00Z info poll_finished feed=12``."""

    def format(self, record: logging.LogRecord) -> str:
        fields = " ".join(f"{key}={_value(value)}" for key, value in _fields(record).items())
        event = f"{_time(record)} {record.levelname.lower()} {record.getMessage()}"
        line = f"{event} {fields}" if fields else event
        return redact_password(
            line if not record.exc_info else f"{line}\n{self.formatException(record.exc_info)}"
        )


class JsonFormatter(logging.Formatter):
    """Formatter that writes one JSON object per line."""

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
    """Set the level, format and output stream of all loggers of tidings.

    The main program calls this function once. ``level`` is the name of a level such as "info",
    ``form`` is "text" or "json", and ``stream`` is standard error by default.
    """
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
