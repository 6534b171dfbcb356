"""The content of a request and the headers that go with it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, TypeAlias, cast
from urllib.parse import urlencode

from legation.http.messages import Headers, compact_json

__all__ = ["Fields", "HeaderFields", "encode_content", "request_headers"]

HOST: Final = "legation.test"

Fields: TypeAlias = Mapping[str, Any]
"""A form or a query by name."""

HeaderFields: TypeAlias = Mapping[str, str] | Iterable[tuple[str, str]]
"""Names, in any case, and values."""


def encode_content(body: bytes, value: Any, form: Fields | None) -> tuple[str | None, bytes]:
    """Return the media type, if we choose it, and the content."""
    if value is not None:
        return "application/json", compact_json(value).encode()
    if form is not None:
        fields = {name: _form_text(part) for name, part in form.items()}
        return "application/x-www-form-urlencoded", urlencode(fields).encode("ascii")
    return None, body


def _form_text(value: Any) -> str:
    """Return `value` as the text of a form's field: text as it is, all else as JSON."""
    return value if isinstance(value, str) else compact_json(value)


def request_headers(
    given: HeaderFields, content_type: str | None, content: bytes, token: str | None
) -> Headers:
    """Return the fields to send; one that was given is not added again."""
    pairs = cast("Mapping[str, str]", given).items() if isinstance(given, Mapping) else given
    fields = [(name.lower(), value) for name, value in pairs]
    names = {name for name, _ in fields}
    added = (
        ("host", HOST),
        ("authorization", f"Bearer {token}" if token else None),
        ("content-type", content_type),
        ("content-length", str(len(content)) if content else None),
    )
    fields += [(n, v) for n, v in added if v is not None and n not in names]
    return tuple((name.encode("ascii"), value.encode("latin-1")) for name, value in fields)
