"""Parse URL-encoded and multipart/form-data bodies with size and field limits.

Multipart bodies (file uploads) are MIME and are parsed with the standard library's email parser.
"""

from collections.abc import Iterator
from email import message_from_bytes, policy
from urllib.parse import parse_qsl

from starlette.requests import Request

from tidings.errors import UsageError
from tidings.i18n import _

#: Maximum size of a form with a file in bytes. An OPML file of 100,000 feeds has 20 MB.
MAX_BYTES = 32_000_000
MAX_FIELDS = 10_000


class TooLarge(UsageError):
    """Error for a request body that exceeds the size or field limit."""


class Form:
    """Parsed form with its fields, which have one or more values, and the uploaded files."""

    def __init__(self, fields: dict[str, list[str]], files: dict[str, bytes]) -> None:
        self._fields, self.files = fields, files

    def __contains__(self, name: str) -> bool:
        return name in self._fields

    def get(self, name: str, default: str = "") -> str:
        """Return the last value of a field without surrounding spaces, or ``default``."""
        return self._fields[name][-1].strip() if name in self._fields else default

    def all(self, name: str) -> list[str]:
        return self._fields.get(name, [])

    def number(self, name: str, least: int, most: int) -> int:
        """Return a field as an integer; raise `UsageError` unless it is in [least, most]."""
        text = self.get(name)
        if not (
            text.isascii()
            and text.lstrip("-").isdecimal()
            and len(text) < 16
            and least <= int(text) <= most
        ):
            raise UsageError(
                _(
                    "%(name)s must be a whole number between %(least)s and %(most)s, not %(text)s",
                    name=name,
                    least=least,
                    most=most,
                    text=repr(text[:50]),
                )
            )
        return int(text)

    def ids(self) -> list[int]:
        """Return the comma-separated integers of the field ``ids``, ignoring other text."""
        return [
            int(part)
            for part in self.get("ids").split(",")
            if part.isascii() and part.isdecimal() and len(part) < 16
        ]


NO_FORM = Form({}, {})


async def read_form(request: Request) -> Form:
    """Read and parse the body of a form request; raise `UsageError` if it is too large."""
    body = await read_body(request, MAX_BYTES)
    if len(body) > MAX_BYTES:
        raise UsageError(
            _("the file is larger than %(mb)s MB; choose a smaller one", mb=MAX_BYTES // 1_000_000)
        )
    kind = request.headers.get("content-type", "")
    fields: dict[str, list[str]] = {}
    files: dict[str, bytes] = {}
    if kind.lower().startswith("multipart/form-data"):
        for name, file, content in parts(kind, body):
            if file is None:
                fields.setdefault(name, []).append(text(content))
            elif content:
                files[name] = content
        return Form(fields, files)
    for name, value in pairs(body.decode("utf-8", "replace"), MAX_FIELDS):
        fields.setdefault(name, []).append(value)
    return Form(fields, files)


# --- helpers, also used by web.api ----------------------------------------------------------------


async def read_body(request: Request, most: int) -> bytes:
    """Return the request body, cut off after ``most`` + 1 bytes.

    A result of ``most`` + 1 bytes means that the body is too large.
    """
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > most:
            break
    return bytes(body[: most + 1])


def pairs(encoded: str, most: int) -> list[tuple[str, str]]:
    """Return the fields of a query string or URL-encoded form as (name, value).

    Raises `TooLarge` if there are more than ``most`` fields.
    """
    try:
        fields = parse_qsl(encoded, keep_blank_values=True, max_num_fields=most)
    except ValueError:
        raise TooLarge(
            _("the form has more than %(most)s fields; send fewer", most=f"{most:,}")
        ) from None
    return [(name, text(value.encode("utf-8", "replace"))) for name, value in fields]


def parts(kind: str, body: bytes) -> Iterator[tuple[str, str | None, bytes]]:
    """Yield (field name, file name or None, content) of each part of a multipart body.

    ``kind`` is the Content-Type header.
    """
    header = (
        b"Content-Type: "
        + kind.encode("latin-1", "replace").replace(b"\r", b"").replace(b"\n", b"")
        + b"\r\n\r\n"
    )
    for part in message_from_bytes(header + body, policy=policy.HTTP).iter_parts():
        name, content = (
            part.get_param("name", header="content-disposition"),
            part.get_payload(decode=True),
        )
        if isinstance(name, str) and isinstance(content, bytes):
            yield name, part.get_filename(), content


def text(value: bytes) -> str:
    """Decode UTF-8, replacing invalid bytes and removing NUL, which PostgreSQL rejects."""
    return value.decode("utf-8", "replace").replace("\0", "")
