"""Forms from strangers: urlencoded, multipart, or a JSON object in their place.

The interface takes each of the three wherever it takes a form: browsers send multipart (RFC 7578),
command lines urlencoded (WHATWG URL section 5.1), and programs JSON.  What comes out is the same
`Form`, with every value of a repeated field; `Reader` says which repetitions are wrong.
"""

from __future__ import annotations

import re
from binascii import a2b_qp
from collections.abc import Callable, Iterator, Mapping
from typing import Final, Protocol, TypeAlias, cast

from attrs import field
from multipart import (  # type: ignore[import-untyped]  # it has annotations, but no py.typed
    MultipartError,
    ParserLimitReached,
    PushMultipartParser,
    parse_options_header,  # pyright: ignore[reportUnknownVariableType]  # its options: a bare dict
)

from ...values import define, frozen
from ..refusals import BadRequest, Fault, Invalid, Refusal, TooLarge, UnsupportedMediaType
from .json_meter import NOT_JSON
from .json_text import BadJson, JsonObject, JsonValue, parse_json
from .reader import Reader, Upload

__all__ = [
    "DEFAULT_LIMITS",
    "Form",
    "FormLimits",
    "FormRefusal",
    "is_json",
    "parse_form",
    "parse_members",
    "parse_query",
]

FormRefusal: TypeAlias = BadRequest | Invalid | TooLarge | UnsupportedMediaType


@frozen
class FormLimits:
    """The limits of a form.  The whole body is bounded by `ReadBody` before."""

    fields: int = 256
    """Fields and uploads together, repetitions counted."""

    name_length: int = 256
    """Characters of a field's name."""

    field_size: int = 1 << 20
    """Bytes of a value that is not an upload; AgentOS has the same bound."""

    header_size: int = 4096
    """Bytes of one header line of a part."""


DEFAULT_LIMITS: Final = FormLimits()


# Made for every form, and never changed: `frozen` would triple what making it costs.
@define
class Form:
    """A form as it was sent: each name with its values in order.  Nothing is checked yet.

    `is_json` says that it was a JSON object, in which an empty string is a value.
    """

    fields: Mapping[str, tuple[JsonValue, ...]] = field(factory=dict[str, tuple[JsonValue, ...]])
    uploads: Mapping[str, tuple[Upload, ...]] = field(factory=dict[str, tuple[Upload, ...]])
    is_json: bool = field(default=False, eq=False)

    def reader(self) -> Reader:
        """Return the reader by which a handler takes the fields it knows.

        Outside of JSON a field that is empty was not sent: clients of AgentOS send one for every
        None.
        """
        return Reader("body", self.fields if self.is_json else self._drop_empty(), self.uploads)

    def _drop_empty(self) -> dict[str, tuple[JsonValue, ...]]:
        filled: dict[str, tuple[JsonValue, ...]] = {}
        for name, values in self.fields.items():
            kept = values
            if "" in values:
                kept = tuple([value for value in values if value != ""])
            if kept:
                filled[name] = kept
        return filled


_parse_options = cast("Callable[[str], tuple[str, dict[str, str]]]", parse_options_header)


class _FormRefused(Exception):
    """Carries a refusal out of a parser's loop; never leaves this module."""

    def __init__(self, refusal: FormRefusal) -> None:
        super().__init__(refusal)
        self.refusal = refusal


def parse_form(
    content_type: bytes | None, body: bytes, limits: FormLimits = DEFAULT_LIMITS
) -> Form | FormRefusal:
    """Parse `body` as its content type says; without either, the form is empty.

    Args:
        content_type: The field's value; its charset, if there is one, has to be UTF-8.
        body: Whole.
        limits: What of it is accepted.

    Returns:
        The form; or 415 for another type, 400 for what does not parse or has too many fields,
        413 for a value that is too long, 422 for JSON that is not an object.
    """
    if content_type is None:
        return UnsupportedMediaType(_NO_TYPE) if body else Form()
    known = _BARE.get(content_type)
    media_type, options = known or _parse_options(content_type.decode("latin-1"))
    if options.get("charset", "utf-8").lower() not in ("utf-8", "utf8", "us-ascii"):
        return UnsupportedMediaType("The charset of the body has to be utf-8")
    try:
        match media_type:
            case "application/x-www-form-urlencoded":
                return Form(_parse_urlencoded(body, limits))
            case "multipart/form-data":
                return _multipart(options.get("boundary", ""), body, limits)
            case "application/json":
                members = parse_members(body, limits)
                if isinstance(members, Refusal):
                    return members
                return Form({name: (value,) for name, value in members.items()}, is_json=True)
            case _:
                return UnsupportedMediaType(_OTHER_TYPE)
    except _FormRefused as refused:
        return refused.refusal


_BARE: Final[Mapping[bytes, tuple[str, Mapping[str, str]]]] = {
    b"application/x-www-form-urlencoded": ("application/x-www-form-urlencoded", {}),
    b"application/json": ("application/json", {}),
}
"""The content types that most bodies have, which need no parsing."""

_NO_TYPE: Final = "The body has no Content-Type"
_OTHER_TYPE: Final = (
    "The body has to be multipart/form-data, application/x-www-form-urlencoded or application/json"
)


def is_json(content_type: bytes | None) -> bool:
    """Return whether a body of this content type is a JSON text."""
    media_type = (content_type or b"").partition(b";")[0]
    return media_type.strip().lower() == b"application/json"


def parse_members(
    body: bytes, limits: FormLimits = DEFAULT_LIMITS
) -> JsonObject | BadRequest | Invalid:
    """Parse `body`, a JSON object of as many members as a form has fields at most."""
    value = parse_json(body)
    if isinstance(value, BadJson):
        return BadRequest(f"{NOT_JSON}{value.reason}")
    if not isinstance(value, dict):
        return Invalid(errors=(Fault("body", "must be a JSON object"),))
    if len(value) > limits.fields:
        return _too_many(limits)
    return value


# --- urlencoded, and query strings -------------------------------------------------------------

_SPACES: Final = bytes.maketrans(b"+", b" ")
# The signs that mean something in quoted-printable; the last one is ours for an escape.
_QUOTED: Final = ((b"=", b"=3D"), (b"\r", b"=0D"), (b"\n", b"=0A"), (b"%", b"="))


def _parse_urlencoded(body: bytes, limits: FormLimits) -> dict[str, tuple[str, ...]]:
    """Return the fields.  The parsing of WHATWG URL section 5.1, but nothing is repaired."""
    pairs = body.split(b"&", limits.fields)
    if len(pairs) > limits.fields:
        raise _FormRefused(_too_many(limits))
    # Without escapes, ASCII is text as it stands.
    plain = body.isascii() and b"%" not in body and b"\0" not in body
    fields: dict[str, tuple[str, ...]] = {}
    for pair in pairs:
        if pair:
            sent, _, value = pair.translate(_SPACES).partition(b"=")
            if len(value) > limits.field_size:
                raise _FormRefused(_too_long(limits))
            if plain:
                name, text = sent.decode(), value.decode()
            else:
                name, text = _decode(sent), _decode(value)
            if not 0 < len(name) <= limits.name_length:
                raise _FormRefused(_bad_name(limits))
            fields[name] = (*fields.get(name, ()), text)
    return fields


def _decode(sent: bytes) -> str:
    return _text(_unescape(sent) if b"%" in sent else sent)


def _unescape(text: bytes) -> bytes:
    """Decode the escapes of `text`, in C: a field may have hundreds of thousands of them.

    They are those of quoted-printable (RFC 2045 section 6.7) with another sign, once the signs that
    mean something there are escaped too.  What is no escape comes out longer than one is.
    """
    quoted = text
    for sign, escape in _QUOTED:
        quoted = quoted.replace(sign, escape)
    decoded = a2b_qp(quoted)
    if len(decoded) != len(text) - 2 * text.count(b"%"):
        raise _FormRefused(BadRequest("A % is not followed by two hexadecimal digits"))
    return decoded


def parse_query(
    query: str, limits: FormLimits = DEFAULT_LIMITS
) -> Mapping[str, tuple[str, ...]] | Fault:
    """Return the fields of a query, by the rules of an urlencoded form.

    Args:
        query: What stands behind the `?` of a target, undecoded.
        limits: What of it is accepted.

    Returns:
        Every name with its values in order, for `Reader("query", …)`; or what is unreadable.
    """
    if not query:
        return {}
    try:
        return _parse_urlencoded(query.encode("utf-8", "surrogatepass"), limits)
    except _FormRefused as refused:
        return Fault("query", refused.refusal.detail)


def _too_many(limits: FormLimits) -> BadRequest:
    return BadRequest(f"There are more than {limits.fields} fields")


def _bad_name(limits: FormLimits) -> BadRequest:
    return BadRequest(f"A field's name has 1 to {limits.name_length} characters")


def _too_long(limits: FormLimits) -> TooLarge:
    sentence = f"A field is longer than {limits.field_size} bytes"
    return TooLarge(limit=limits.field_size, detail=sentence)


def _text(value: bytes) -> str:
    """Decode, and refuse what PostgreSQL cannot hold."""
    try:
        text = value.decode("utf-8")
    except UnicodeDecodeError:
        raise _FormRefused(BadRequest("A field is not UTF-8")) from None
    if "\0" in text:
        raise _FormRefused(BadRequest("A field has U+0000 in it"))
    return text


# --- multipart ---------------------------------------------------------------------------------

# RFC 2046 section 5.1.1.
_BOUNDARY: Final = re.compile(r"[0-9A-Za-z'()+_,./:=? -]{0,69}[0-9A-Za-z'()+_,./:=?-]")


class _Segment(Protocol):
    """The used part of `multipart.MultipartSegment`, which has no types of its own."""

    name: str
    filename: str | None
    content_type: str | None


def _multipart(boundary: str, body: bytes, limits: FormLimits) -> Form:
    if _BOUNDARY.fullmatch(boundary) is None:
        raise _FormRefused(BadRequest("The Content-Type has no boundary (RFC 2046 section 5.1.1)"))
    fields: dict[str, list[JsonValue]] = {}
    uploads: dict[str, list[Upload]] = {}
    for segment, data in _segments(boundary, body, limits):
        if not 0 < len(segment.name) <= limits.name_length:
            raise _FormRefused(_bad_name(limits))
        if segment.filename is None:
            if len(data) > limits.field_size:
                raise _FormRefused(_too_long(limits))
            fields.setdefault(segment.name, []).append(_text(data))
        elif segment.filename or data:  # a browser sends neither for an input left empty
            uploads.setdefault(segment.name, []).append(_upload(segment, segment.filename, data))
    return Form(
        {name: tuple(values) for name, values in fields.items()},
        {name: tuple(files) for name, files in uploads.items()},
    )


def _upload(segment: _Segment, filename: str, data: bytes) -> Upload:
    if "\0" in filename:
        raise _FormRefused(BadRequest("A file's name has U+0000 in it"))
    return Upload(filename, segment.content_type or "application/octet-stream", data)


def _segments(boundary: str, body: bytes, limits: FormLimits) -> Iterator[tuple[_Segment, bytes]]:
    """Yield each part with its content."""
    parser = PushMultipartParser(
        boundary,
        max_header_size=limits.header_size,
        max_segment_count=limits.fields,
        strict=True,
    )
    try:
        yield from _join_segments(cast("Iterator[_Segment | bytes | None]", parser.parse(body)))
        parser.close()
    except ParserLimitReached as error:
        raise _FormRefused(
            BadRequest(f"The multipart body is over a limit: {_why(error)}")
        ) from None
    except MultipartError as error:
        raise _FormRefused(
            BadRequest(f"The multipart body does not parse: {_why(error)}")
        ) from None


def _why(error: MultipartError) -> str:
    return str(error.args[0])  # a second argument would be the exception behind it


def _join_segments(events: Iterator[_Segment | bytes | None]) -> Iterator[tuple[_Segment, bytes]]:
    """Put together what the parser tells: a segment, its chunks, None where it ends."""
    for segment in events:
        yield cast("_Segment", segment), b"".join(_chunks(events))


def _chunks(events: Iterator[_Segment | bytes | None]) -> Iterator[bytes]:
    for event in events:  # a truncated body ends without None; `close` tells
        if not isinstance(event, bytes):
            return
        yield event
