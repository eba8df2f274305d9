"""What is sent with a form: fields and files, of a bounded size.

Files come as multipart/form-data, which is MIME: the standard library's mail parser reads it.
"""

from collections.abc import Iterator
from email import message_from_bytes, policy
from urllib.parse import parse_qsl

from starlette.requests import Request

from tidings.errors import UsageError

#: A form with its file: a list of 100,000 feeds has 20 MB.
MAX_BYTES = 32_000_000
MAX_FIELDS = 10_000


class TooLarge(UsageError):
    """More was sent than is read."""


class Form:
    """The fields of a form, each a list of texts, and its files."""

    def __init__(self, fields: dict[str, list[str]], files: dict[str, bytes]) -> None:
        self._fields, self.files = fields, files

    def __contains__(self, name: str) -> bool:
        return name in self._fields

    def get(self, name: str, default: str = "") -> str:
        """The last of that name, without blanks around it."""
        return self._fields[name][-1].strip() if name in self._fields else default

    def all(self, name: str) -> list[str]:
        return self._fields.get(name, [])

    def number(self, name: str, least: int, most: int) -> int:
        text = self.get(name)
        if not (
            text.isascii()
            and text.lstrip("-").isdecimal()
            and len(text) < 16
            and least <= int(text) <= most
        ):
            raise UsageError(
                f"{name} must be a whole number between {least} and {most}, not {text[:50]!r}"
            )
        return int(text)

    def ids(self) -> list[int]:
        """``ids``, parted by commas."""
        return [
            int(part)
            for part in self.get("ids").split(",")
            if part.isascii() and part.isdecimal() and len(part) < 16
        ]


NO_FORM = Form({}, {})


async def read_form(request: Request) -> Form:
    body = await read_body(request, MAX_BYTES)
    if len(body) > MAX_BYTES:
        raise UsageError(f"more than {MAX_BYTES // 1_000_000} MB cannot be sent at once")
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


# --- for all who read what was sent ------------------------------------------------------------------------------------


async def read_body(request: Request, most: int) -> bytes:
    """All of it, or one byte more than may be: enough to see that it is too much."""
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > most:
            break
    return bytes(body[: most + 1])


def pairs(encoded: str, most: int) -> list[tuple[str, str]]:
    """Of a query, or a form that is written like one."""
    try:
        found = parse_qsl(encoded, keep_blank_values=True, max_num_fields=most)
    except ValueError:
        raise TooLarge(f"the request has more than {most:,} fields") from None
    return [(name, text(value.encode("utf-8", "replace"))) for name, value in found]


def parts(kind: str, body: bytes) -> Iterator[tuple[str, str | None, bytes]]:
    """Name, name of the file if it is one, and content; ``kind`` is the header Content-Type."""
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
    """Without what the store does not take: zero characters, halves of characters."""
    return value.decode("utf-8", "replace").replace("\0", "")
