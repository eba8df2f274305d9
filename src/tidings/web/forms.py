"""What a browser sends with a form: fields and files, of a bounded size.

Files come as multipart/form-data, which is MIME: the standard library's mail parser reads it.
"""

from email import message_from_bytes, policy
from urllib.parse import parse_qsl

from starlette.requests import Request

from tidings.errors import UsageError

#: A form with its file: a list of 100,000 feeds has 20 MB.
MOST_BYTES = 32_000_000
MOST_FIELDS = 10_000


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
        if not (text.isascii() and text.lstrip("-").isdecimal() and len(text) < 16 and least <= int(text) <= most):
            raise UsageError(f"{name} must be a whole number between {least} and {most}, not {text[:50]!r}")
        return int(text)

    def ids(self) -> list[int]:
        """``ids``, parted by commas."""
        return [int(part) for part in self.get("ids").split(",") if part.isascii() and part.isdecimal() and len(part) < 16]


NO_FORM = Form({}, {})


async def read_form(request: Request) -> Form:
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > MOST_BYTES:
            raise UsageError(f"more than {MOST_BYTES // 1_000_000} MB cannot be sent at once")
    kind = request.headers.get("content-type", "")
    if kind.lower().startswith("multipart/form-data"):
        return _multipart(kind, bytes(body))
    fields: dict[str, list[str]] = {}
    try:
        pairs = parse_qsl(body.decode("utf-8", "replace"), keep_blank_values=True, max_num_fields=MOST_FIELDS)
    except ValueError:
        raise UsageError("the form has too many fields") from None
    for name, value in pairs:
        fields.setdefault(name, []).append(_text(value))
    return Form(fields, {})


def _multipart(kind: str, body: bytes) -> Form:
    header = b"Content-Type: " + kind.encode("latin-1", "replace").replace(b"\r", b"").replace(b"\n", b"") + b"\r\n\r\n"
    message = message_from_bytes(header + body, policy=policy.HTTP)
    fields: dict[str, list[str]] = {}
    files: dict[str, bytes] = {}
    for part in message.iter_parts():
        name = part.get_param("name", header="content-disposition")
        content = part.get_payload(decode=True)
        if isinstance(name, str) and isinstance(content, bytes):
            if part.get_filename() is None:
                fields.setdefault(name, []).append(_text(content.decode("utf-8", "replace")))
            elif content:
                files[name] = content
    return Form(fields, files)


def _text(value: str) -> str:
    """Without what the store does not take: zero characters, halves of characters."""
    return value.replace("\0", "").encode("utf-8", "replace").decode()
