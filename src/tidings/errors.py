"""Exception hierarchy: errors with messages for the user and exit codes of the command line."""

from tidings.redaction import redact_password


class TidingsError(Exception):
    """Base class of expected errors; the message says what happened and what to do about it."""

    exit_code = 1

    def __str__(self) -> str:
        """Return the message without passwords: it is shown on pages, in terminals and in logs."""
        return redact_password(super().__str__())

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle without calling `__init__`, which would get the complete message as argument."""
        return _unpickle, (type(self), self.args), self.__dict__


def _unpickle(kind: type[TidingsError], args: tuple[object, ...]) -> TidingsError:
    return kind.__new__(kind, *args)


class UsageError(TidingsError):
    """Invalid input: an unknown policy, a negative budget, rates that are not numbers."""

    exit_code = 2


class TraceError(UsageError):
    """An invalid trace, with its file and, where known, row and column."""

    def __init__(
        self, file: object, problem: str, *, row: int | None = None, column: str | None = None
    ) -> None:
        place = str(file)
        if row is not None:
            place += f", row {row}"
        if column is not None:
            place += f", column {column!r}"
        super().__init__(f"{place}: {problem}")
        self.file, self.row, self.column = file, row, column


class MissingExtra(TidingsError):
    """A command needs a library of an extra that is not installed."""

    def __init__(self, library: str, extra: str, purpose: str) -> None:
        super().__init__(
            f"{purpose} needs {library}; install it with: pip install 'tidings[{extra}]' "
            "(or: make setup)"
        )
