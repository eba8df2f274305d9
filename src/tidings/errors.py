"""Exception classes with messages for the user and exit codes of the command line."""

from tidings.redaction import redact_password


class TidingsError(Exception):
    """Base class of all expected errors.

    The message says what happened and what the user can do about it.
    """

    exit_code = 1

    def __str__(self) -> str:
        """Return the message with all passwords replaced.

        The message is shown on pages, in terminals and in logs.
        """
        return redact_password(super().__str__())

    def __reduce__(self) -> tuple[object, ...]:
        """Describe the error for pickle in a way that does not call `__init__`.

        Pickle would call `__init__` with the complete message as its only argument.
        """
        return _unpickle, (type(self), self.args), self.__dict__


def _unpickle(kind: type[TidingsError], args: tuple[object, ...]) -> TidingsError:
    return kind.__new__(kind, *args)


class UsageError(TidingsError):
    """Error for invalid input, such as an unknown policy or a negative budget."""

    exit_code = 2


class TraceError(UsageError):
    """Error for an invalid trace file, with its row and column where they are known."""

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
    """Error for a command that needs an optional library that is not installed."""

    def __init__(self, library: str, extra: str, purpose: str) -> None:
        super().__init__(
            f"{purpose} needs {library}; install it with: pip install 'tidings[{extra}]' "
            "(or: make setup)"
        )
