"""One tree of errors: what a user can do something about says so in its message."""

from tidings.redaction import redact_password


class TidingsError(Exception):
    """Anything that tidings refuses or cannot do; the message names what to do about it."""

    exit_code = 1

    def __str__(self) -> str:
        """Messages go to pages, terminals, apps and logs; an address in one keeps its password for itself."""
        return redact_password(super().__str__())

    def __reduce__(self) -> tuple[object, ...]:
        """From process to process as it is: `__init__` would be given the finished message."""
        return _again, (type(self), self.args), self.__dict__


def _again(kind: type[TidingsError], args: tuple[object, ...]) -> TidingsError:
    return kind.__new__(kind, *args)


class UsageError(TidingsError):
    """The request itself is wrong: an unknown policy, a negative budget, rates that are not numbers."""

    exit_code = 2


class TraceError(UsageError):
    """A trace that cannot be used; names the file and, where there is one, the row and column."""

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
    """A command needs a library of an optional part."""

    def __init__(self, library: str, extra: str, purpose: str) -> None:
        super().__init__(
            f"{purpose} needs {library}; install it with: pip install 'tidings[{extra}]' (or: make setup)"
        )
