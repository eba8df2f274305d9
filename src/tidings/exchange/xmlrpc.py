"""XML-RPC encoding and decoding, hardened against untrusted input (XXE, entity expansion).

A document type declaration (DTD) is rejected before it is parsed, so no entity is ever expanded.
Depth, number and size of values are limited. Numbers of more than 32 bits are sent as doubles,
which all implementations support.
"""

import base64
import binascii
import math
from collections.abc import Mapping, Sequence
from typing import Any

from lxml import etree  # type: ignore[import-untyped]  # has no types

from tidings.errors import TidingsError

#: Maximum size of a call or response in bytes.
MAX_MESSAGE_BYTES = 2_000_000
#: Maximum number of values in a message.
MAX_VALUES = 60_000
#: Maximum nesting depth of values.
MAX_DEPTH = 8
CONTENT_TYPE = "text/xml"


class InvalidXmlRpc(TidingsError):
    """Error for a message that is not a valid XML-RPC call or response."""


class Fault(TidingsError):
    """Error raised when the other node refused the call with an XML-RPC fault."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code


def write_call(function: str, *parameters: Any) -> bytes:
    """Encode a method call."""
    root = etree.Element("methodCall")
    etree.SubElement(root, "methodName").text = function
    params = etree.SubElement(root, "params")
    for parameter in parameters:
        _write(etree.SubElement(params, "param"), parameter)
    return _bytes(root)


def write_response(value: Any) -> bytes:
    """Encode a method response."""
    root = etree.Element("methodResponse")
    _write(etree.SubElement(etree.SubElement(root, "params"), "param"), value)
    return _bytes(root)


def write_fault(code: int, text: str) -> bytes:
    """Encode a fault response."""
    root = etree.Element("methodResponse")
    _write(etree.SubElement(root, "fault"), {"faultCode": code, "faultString": text})
    return _bytes(root)


def _bytes(root: Any) -> bytes:
    return bytes(etree.tostring(root, xml_declaration=True, encoding="utf-8"))


def read_call(body: bytes) -> tuple[str, list[Any]]:
    """Decode a method call and return the function's name and the parameters.

    Raises `InvalidXmlRpc` if the body is not a valid call.
    """
    root = _parse_xml(body)
    name = root.findtext("methodName") if root.tag == "methodCall" else None
    if not name or len(name) > 100:
        raise InvalidXmlRpc("this is not an XML-RPC call")
    reader = _Reader()
    return name.strip(), [
        reader.value(param.find("value"), 0) for param in root.iterfind("params/param")
    ]


def read_response(body: bytes) -> Any:
    """Decode a method response and return its value. Raises `Fault` for a fault response."""
    root = _parse_xml(body)
    if root.tag != "methodResponse":
        raise InvalidXmlRpc("this is not an XML-RPC response")
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


def _parse_xml(body: bytes) -> Any:
    if len(body) > MAX_MESSAGE_BYTES:
        raise InvalidXmlRpc(f"a message must not be larger than {MAX_MESSAGE_BYTES:,} bytes")
    parser = etree.XMLParser(
        resolve_entities=False,
        no_network=True,
        load_dtd=False,
        huge_tree=False,
        remove_comments=True,
    )
    if b"<!DOCTYPE" in body or b"<!ENTITY" in body:  # in text, "<" is always escaped
        raise InvalidXmlRpc("document type declarations are not allowed")
    try:
        root = etree.fromstring(body, parser)
    except (etree.XMLSyntaxError, ValueError) as error:
        raise InvalidXmlRpc(f"this is not XML: {str(error)[:200]}") from None
    if root.getroottree().docinfo.internalDTD is not None:
        raise InvalidXmlRpc("document type declarations are not allowed")
    return root


class _Reader:
    def __init__(self) -> None:
        self._values_left = MAX_VALUES

    def value(self, element: Any, depth: int) -> Any:
        self._values_left -= 1
        if element is None or self._values_left < 0 or depth > MAX_DEPTH:
            raise InvalidXmlRpc("a value is missing, or values are too many or nested too deep")
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
            raise InvalidXmlRpc(f"invalid {inner.tag}: {text[:50]}") from None
        raise InvalidXmlRpc(f"unknown type {str(inner.tag)[:50]}")


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
        raise TypeError(f"XML-RPC cannot represent {type(value).__name__}")
