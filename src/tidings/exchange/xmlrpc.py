"""XML-RPC as far as the exchange needs it, read without trust.

A document type is refused before anything in it can mean something, so no entity is ever expanded; depth, number and size of
values are bounded. Numbers of more than 32 bits go as doubles, which all implementations know.
"""

import base64
import binascii
import math
from collections.abc import Mapping, Sequence
from typing import Any

from lxml import etree  # type: ignore[import-untyped]  # has no types

from tidings.errors import TidingsError

#: The largest call or answer, and what it may hold.
MAX_MESSAGE_BYTES = 2_000_000
MAX_VALUES = 60_000
MAX_DEPTH = 8
CONTENT_TYPE = "text/xml"


class InvalidXmlRpc(TidingsError):
    """What came is not a call, or not an answer."""


class Fault(TidingsError):
    """The other side refused."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code


def write_call(function: str, *parameters: Any) -> bytes:
    root = etree.Element("methodCall")
    etree.SubElement(root, "methodName").text = function
    params = etree.SubElement(root, "params")
    for parameter in parameters:
        _write(etree.SubElement(params, "param"), parameter)
    return _bytes(root)


def write_response(value: Any) -> bytes:
    root = etree.Element("methodResponse")
    _write(etree.SubElement(etree.SubElement(root, "params"), "param"), value)
    return _bytes(root)


def write_fault(code: int, text: str) -> bytes:
    root = etree.Element("methodResponse")
    _write(etree.SubElement(root, "fault"), {"faultCode": code, "faultString": text})
    return _bytes(root)


def _bytes(root: Any) -> bytes:
    return bytes(etree.tostring(root, xml_declaration=True, encoding="utf-8"))


def read_call(body: bytes) -> tuple[str, list[Any]]:
    """The function and its parameters."""
    root = _tree(body)
    name = root.findtext("methodName") if root.tag == "methodCall" else None
    if not name or len(name) > 100:
        raise InvalidXmlRpc("this is not an XML-RPC call")
    reader = _Reader()
    return name.strip(), [
        reader.value(param.find("value"), 0) for param in root.iterfind("params/param")
    ]


def read_response(body: bytes) -> Any:
    """The value, or `Fault`."""
    root = _tree(body)
    if root.tag != "methodResponse":
        raise InvalidXmlRpc("this is not an XML-RPC answer")
    fault = root.find("fault/value")
    if fault is not None:
        fault_value = _Reader().value(fault, 0)
        code, text = (
            (fault_value.get("faultCode"), fault_value.get("faultString"))
            if isinstance(fault_value, dict)
            else (0, "")
        )
        raise Fault(code if isinstance(code, int) else 0, str(text)[:500])
    return _Reader().value(root.find("params/param/value"), 0)


def _tree(body: bytes) -> Any:
    if len(body) > MAX_MESSAGE_BYTES:
        raise InvalidXmlRpc(f"more than {MAX_MESSAGE_BYTES:,} bytes are not read")
    parser = etree.XMLParser(
        resolve_entities=False,
        no_network=True,
        load_dtd=False,
        huge_tree=False,
        remove_comments=True,
    )
    if b"<!DOCTYPE" in body or b"<!ENTITY" in body:  # within text both would be written with &lt;
        raise InvalidXmlRpc("document types are not read")
    try:
        root = etree.fromstring(body, parser)
    except (etree.XMLSyntaxError, ValueError) as error:
        raise InvalidXmlRpc(f"this is not XML: {str(error)[:200]}") from None
    if root.getroottree().docinfo.internalDTD is not None:
        raise InvalidXmlRpc("document types are not read")
    return root


class _Reader:
    def __init__(self) -> None:
        self._left = MAX_VALUES

    def value(self, element: Any, depth: int) -> Any:
        self._left -= 1
        if element is None or self._left < 0 or depth > MAX_DEPTH:
            raise InvalidXmlRpc("a value is missing, or there are too many or too deep ones")
        if len(element) == 0:
            return element.text or ""  # a value without a type is a string
        inner = element[0]
        text = (inner.text or "").strip()
        try:
            match inner.tag:
                case "string":
                    return inner.text or ""
                case "int" | "i4" | "i8":
                    return int(text[:20])
                case "double":
                    return _finite(float(text[:50]))
                case "boolean":
                    return text == "1"
                case "base64":
                    return base64.b64decode("".join(text.split()), validate=True)
                case "array":
                    return [self.value(item, depth + 1) for item in inner.iterfind("data/value")]
                case "struct":
                    return {
                        m.findtext("name") or "": self.value(m.find("value"), depth + 1)
                        for m in inner.iterfind("member")
                    }
        except (ValueError, binascii.Error):
            raise InvalidXmlRpc(f"this is no {inner.tag}: {text[:50]}") from None
        raise InvalidXmlRpc(f"there is no type {str(inner.tag)[:50]}")


def _finite(number: float) -> float:
    if not math.isfinite(number):
        raise ValueError
    return number


def _write(parent: Any, value: Any) -> None:
    element = etree.SubElement(parent, "value")
    if isinstance(value, bool):
        etree.SubElement(element, "boolean").text = "1" if value else "0"
    elif isinstance(value, int):
        etree.SubElement(element, "int").text = str(value)
    elif isinstance(value, float):
        etree.SubElement(element, "double").text = f"{value:.6f}"
    elif isinstance(value, str):
        etree.SubElement(element, "string").text = value
    elif isinstance(value, bytes):
        etree.SubElement(element, "base64").text = base64.b64encode(value).decode()
    elif isinstance(value, Mapping):
        struct = etree.SubElement(element, "struct")
        for name, item in value.items():
            member = etree.SubElement(struct, "member")
            etree.SubElement(member, "name").text = name
            _write(member, item)
    elif isinstance(value, Sequence):
        data = etree.SubElement(etree.SubElement(element, "array"), "data")
        for item in value:
            _write(data, item)
    else:
        raise TypeError(f"XML-RPC has no {type(value).__name__}")
